"""Rows of a user's own file that contradict themselves, and times that no machine can have had.

Such times are mostly in another unit than the column's. The limits are wide: they are to find a slip of a thousand, not
a slow program. All of the package's measurements lie within them (`tests/validation/test_plausibility.py`).
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from types import MappingProxyType

from phaze_opt.errors import InputError
from phaze_opt.units import SECONDS, unit_meant
from phaze_opt.validation.matching_set import is_tpu
from phaze_opt.validation.measured_row import Row, shown
from phaze_opt.validation.row_times import MEASURED, MODEL_SECONDS, SENT_BYTES, measured_seconds, roofline_of
from phaze_opt.validation.training.row import state_shards, zero_stage

AHEAD_OF_PEAK = 2.0
"""A time this often below that of its multiplications at the peak, or of a ring at memory's rate, is not one."""
AHEAD_OF_MEMORY = 20.0
"""The same against memory's rate: caches are faster than memory, by less than this."""
ODD_ROWS = 100
"""Rows of which a single one may be beyond the limits."""
LEAST_S = 1e-7
"""No launch is as short."""
MOST_IDEALS = 100.0
"""A time this often above what the FLOPs take at the peak, beside what is added for waiting, is not one."""
LAYER_S, LAUNCH_S, COLLECTIVE_S = 1e-2, 1e-2, 1.0
"""What is added for waiting: for each layer of each micro-batch, for an operator or a block, for a collective."""
SLOW_LINK_BYTES_PER_S = 1e8
"""Rate of the slowest network that is thought of."""
_NAMES = MappingProxyType({"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"})
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
        yield "recompute", f"value '{shown(word)}' must be {', '.join(words[:-1])} or {words[-1]}"
    if row.text("float8", "") and row.text("dtype", "bf16").lower() != "fp8":
        yield "float8", "is of 8-bit matmuls; give dtype fp8, or leave float8 blank"
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
        yield "sharding", f"value '{shown(sharding)}' says no ZeRO stage; give zero1, zero2, zero3, fsdp or none"
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


def check_times(rows: Sequence[Row], kind: str) -> None:
    """Refuse a file by its first row whose time is beyond all limits; rows of unknown machines are not judged.

    A unit that was mistaken shows in every row. One row in more than `ODD_ROWS` is a measurement gone wrong, of which a
    mean over the others says enough: it is scored as it stands.

    Raises:
        InputError: names file, line and column, and the unit in which the time would be plausible.
    """
    if kind not in MEASURED:
        return
    faults = [(row, rule) for row in rows if row.text(MEASURED[kind][0], "") and (rule := _fault(row, kind))]
    if len(faults) * ODD_ROWS > len(rows):
        row, rule = faults[0]
        message = f"column '{MEASURED[kind][0]}': value '{row.text(MEASURED[kind][0])[:40]}' {rule}"
        raise InputError(message, source=row.source, line=row.line)


def time_limits_s(row: Row, kind: str) -> tuple[float, float]:
    """Shortest and longest time that a row may have, s.

    Raises:
        InputError: its machine or type is unknown.
    """
    device = row.device()
    if kind in MODEL_SECONDS:
        # Attention may skip scores, so that the least is without them and the most with all.
        least = MODEL_SECONDS[kind](row, device, scores_share=0.0) / AHEAD_OF_PEAK
        most = MOST_IDEALS * MODEL_SECONDS[kind](row, device) + _waiting_s(row, kind)
    elif kind in SENT_BYTES:
        sent = SENT_BYTES[kind](row)
        least = sent / (AHEAD_OF_PEAK * device.hbm_bandwidth_bytes_per_s)
        most = sent / SLOW_LINK_BYTES_PER_S + COLLECTIVE_S
    else:
        roofline = roofline_of(row, kind)
        if roofline is None:
            return LEAST_S, math.inf
        compute_s, memory_s = roofline(row, device)
        least = max(compute_s / AHEAD_OF_PEAK, memory_s / AHEAD_OF_MEMORY)
        # A window may not be skipped, so that the most is with all keys.
        whole = replace(row, values={**row.values, "window": ""}) if row.text("window", "") else row
        most = MOST_IDEALS * max(roofline(whole, device)) + LAUNCH_S
    return max(least, LEAST_S), most


def _waiting_s(row: Row, kind: str) -> float:
    """What a layer, a model or a training step may wait for, beside its multiplications."""
    if kind == "layer":
        return LAUNCH_S
    layers = row.number("layers")
    if kind == "whole model":
        return layers * LAYER_S + LAUNCH_S
    group = row.number("tp", 1.0) * row.number("pp", 1.0) * row.number("cp", 1.0)
    sequences = max(1.0, row.number("global_batch") * group / row.number("n_devices"))
    waiting_s = layers * math.ceil(sequences / max(1.0, row.number("micro_batch", 1.0))) * LAYER_S
    if row.number("n_devices") == 1:
        return waiting_s
    hidden = row.number("hidden")
    per_layer = 4.0 * hidden + row.number("mlp_matrices", 2.0) * row.number("ffn", 4.0 * hidden)
    return waiting_s + 4.0 * layers * hidden * per_layer / SLOW_LINK_BYTES_PER_S


def _fault(row: Row, kind: str) -> str:
    """What is wrong with a row's time; empty if nothing is, or nothing can be said."""
    try:
        least, most = time_limits_s(row, kind)
    except (InputError, ZeroDivisionError):
        return ""
    column, _ = MEASURED[kind]
    measured_s = measured_seconds(row, kind)
    if least <= measured_s <= most:
        return ""
    unit = column.rpartition("_")[2]
    unit_s = SECONDS[unit]
    is_short = measured_s < least
    limit = (least if is_short else most) / unit_s
    bound = f"{float(f'{limit:.2g}'):,.8g} {unit}"
    than = f"shorter than {bound}, which" if is_short else f"longer than {bound}, which no"
    who = "nothing on this machine can beat" if is_short else "work of this size takes, however slow the program"
    meant = unit_meant(measured_s / unit_s, unit, least / unit_s, most / unit_s)
    return f"is {than} {who}; {_advice(unit, meant)}"


def _advice(unit: str, meant: tuple[str, float] | None) -> str:
    """What to do about a time, by the unit of another size in which it would be plausible."""
    if meant is None:
        return f"check that it is in {_NAMES[unit]}, and the machine, the type and the sizes of the row"
    other, factor = meant
    remedy = f"multiply by {factor:,.0f}" if factor > 1 else f"divide by {1 / factor:,.0f}"
    return f"it looks like {_NAMES[other]}: give {_NAMES[unit]} ({remedy})"
