"""Training rows of a user's own file that contradict themselves; published sets are read as they are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from phaze_opt.errors import InputError
from phaze_opt.validation.likeness import is_tpu
from phaze_opt.validation.row import Row
from phaze_opt.validation.training.row import state_shards, zero_stage

RECOMPUTE_WORDS = ("full", "selective", "none")
MAXTEXT, MAXTEXT_WORDS = "train_maxtext_tpu", ("full", "none", "custom", "minimal")
"""The set whose rows are in MaxText's words of recomputation, and those words."""
UNSHARDED_WORDS = ("none", "no", "ddp", "replicated")
"""What says that replicas share nothing; other words of sharding must say a ZeRO stage."""


def check_training_rows(rows: Sequence[Row]) -> None:
    """Refuse what a prediction would have to pass over: degrees, batches and words that cannot be meant.

    Rows of TPUs count batches per chip and replicas per slice, so their degrees tell less.

    Raises:
        InputError: the first contradiction, by file, line and column.
    """
    for row in rows:
        for column, rule in _contradictions(row):
            message = f"column '{column}': {rule}"
            raise InputError(message, source=row.source, line=row.line)


def _contradictions(row: Row) -> Iterator[tuple[str, str]]:
    """Column and broken rule."""
    word, words = row.text("recompute", "none"), MAXTEXT_WORDS if row.dataset == MAXTEXT else RECOMPUTE_WORDS
    if word.lower() not in words:
        yield "recompute", f"value '{_shown(word)}' must be {', '.join(words[:-1])} or {words[-1]}"
    num_shared, heads = row.integer("kv_heads", 0), row.integer("heads")
    if not row.text("mlp_matrices", "") and 0 < num_shared < heads:
        rule = (
            f"is blank beside {num_shared} kv_heads of {heads} heads; state 3 (a gated MLP, as Llama's) or 2 (a GPT's)"
        )
        yield "mlp_matrices", rule
    if is_tpu(row.text("hardware"), row.find_device()):
        return
    devices, batch = row.integer("n_devices"), row.integer("global_batch")
    sharding = row.text("sharding", "none")
    if not zero_stage(sharding.lower()) and sharding.lower() not in UNSHARDED_WORDS:
        yield "sharding", f"value '{_shown(sharding)}' says no ZeRO stage; give zero1, zero2, zero3, fsdp or none"
    group = row.integer("tp", 1) * row.integer("pp", 1) * row.integer("cp", 1)
    data, micro_batch = row.integer("dp", 0), row.number("micro_batch", 0.0)
    if data and group * data != devices:
        yield "dp", f"tp x pp x cp x dp = {group * data:,} are not the {devices:,} devices of the row; leave dp blank"
    replicas = max(1, devices // group)
    if batch < replicas:
        yield "global_batch", f"{batch:,} samples leave some of {replicas:,} replicas without any; more are needed"
    shards = state_shards(sharding.lower())
    if shards and replicas % shards:
        yield "sharding", f"{replicas:,} replicas are no whole number of groups of {shards:,} that share the state"
    if micro_batch * replicas > batch:
        rule = f"{micro_batch:g} samples on each of {replicas:,} replicas are more than the global batch of {batch:,}"
        yield "micro_batch", rule


def _shown(text: str) -> str:
    """A value as it stands in a message: on one line, and cut."""
    return " ".join(text.split())[:40]
