"""Options of a parallel plan: each fixes one degree or choice; several values, separated by commas, are searched."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

from phaze_opt.cli.options import parse_integers, read_integer
from phaze_opt.errors import InputError
from phaze_opt.objective.scenario_options import MAX_MICRO_BATCH, Kind, ScenarioOptions, declared

if TYPE_CHECKING:
    from phaze_opt.objective.step.plan_space import PlanChoices
    from phaze_opt.workload.model import ModelSpec
    from phaze_opt.workload.plan import Recompute

PLAN = "Parallel plan (any of these prices whole plans; lists are searched)"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOptions:
    """What the user said of a plan; None and no values where nothing was said."""

    pipeline: tuple[int, ...] = declared((), "Pipeline stages.", Kind.COUNTS, panel=PLAN)
    data: tuple[int, ...] = declared(
        (), "Replicas (data-parallel degree).", Kind.COUNTS, panel=PLAN, shown="the devices left"
    )
    context_parallel: tuple[int, ...] = declared(
        (), "Shards of the sequence in attention.", Kind.COUNTS, panel=PLAN, shown="1"
    )
    expert_parallel: tuple[int, ...] = declared(
        (), "Replicas that experts are spread over.", Kind.COUNTS, panel=PLAN, shown="1"
    )
    interleave: tuple[int, ...] = declared((), "Model chunks a stage (1F1B is 1).", Kind.COUNTS, panel=PLAN, shown="1")
    zero: str | None = declared(
        None,
        "ZeRO stage: 1 shards optimizer state, 2 gradients too, 3 parameters too (FSDP).",
        Kind.TEXT,
        panel=PLAN,
        shown="the least measured with the software, else 0",
    )
    state_shards: tuple[int, ...] = declared(
        (), "Replicas that ZeRO shards over (hybrid sharding).", Kind.COUNTS, panel=PLAN, shown="all"
    )
    software: str | None = declared(
        None,
        "Training software whose fitted constants and overlaps apply (see `phaze-opt software`).",
        Kind.TEXT,
        panel=PLAN,
        shown="on a real machine the one measured on it, else ideal",
    )
    gradient_bits: str | None = declared(
        None, "16 or 32: width of gradients, as held and as sent.", Kind.TEXT, panel=PLAN, shown="the software's"
    )
    dtype: str | None = declared(None, "bf16, fp16 or fp8.", Kind.TEXT, panel=PLAN, shown="bf16")
    constants: Path | None = declared(
        None,
        "Fitted constants that `phaze-opt calibrate` wrote.",
        Kind.PATH,
        panel=PLAN,
        shown="the package's",
    )
    top: int | None = declared(None, "Plans to show.", Kind.COUNT, panel=PLAN, high=1000, shown="10")

    @property
    def is_asked_for(self) -> bool:
        """Whether anything was said of plans."""
        return any(getattr(self, each.name) != each.default for each in fields(self))


def training_length(model: ModelSpec, asked: int | None) -> int:
    """Tokens of a sequence: as asked, or the model's own maximum within reason.

    Raises:
        InputError: more than the model has positions for.
    """
    from phaze_opt.objective.scenario import MAX_DEFAULT_SEQUENCE_LENGTH

    longest = model.max_sequence_length
    length = min(longest, MAX_DEFAULT_SEQUENCE_LENGTH) if asked is None else asked
    if length > longest:
        message = (
            f"{length} exceeds the {longest} positions of {model.name}; give at most {longest}, or as --model its "
            "config.json with a larger max_position_embeddings"
        )
        raise InputError(message, source="--sequence-length")
    return length


def plan_choices(plan: PlanOptions, scenario: ScenarioOptions, *, micro_batch: str | None) -> PlanChoices:
    """The choices that the options leave.

    Raises:
        InputError: an option breaks a rule; the message names it.
    """
    from phaze_opt.objective.step.plan_space import FREE_MICRO_BATCH, PlanChoices

    stages = _stages(plan.zero)
    if plan.state_shards and not any(stages):
        message = "is for sharded state; give --zero 1, 2 or 3 too, or leave it out"
        raise InputError(message, source="--state-shards")
    batches: tuple[int, ...] = FREE_MICRO_BATCH
    if micro_batch is not None:
        batches = parse_integers(micro_batch, option="--micro-batch", high=MAX_MICRO_BATCH)
    return PlanChoices(
        tensor=scenario.tensor_parallel,
        pipeline=plan.pipeline,
        data=plan.data,
        context=plan.context_parallel or (1,),
        expert=plan.expert_parallel or (1,),
        interleave=plan.interleave or (1,),
        micro_batch=batches,
        zero=stages,
        state_shards=plan.state_shards or (0,),
        recompute=_recompute(scenario.recompute),
        is_sequence_parallel=scenario.sequence_parallel,
    )


def _stages(text: str | None) -> tuple[int, ...]:
    """ZeRO stages, 0 to 3."""
    if text is None:
        return (0,)
    stages = [read_integer(word, low=0, high=3) for word in text.split(",")]
    if any(stage is None for stage in stages):
        message = f"'{text[:60]}' must be ZeRO stages from 0 to 3 separated by commas, such as 0,1"
        raise InputError(message, source="--zero")
    return tuple(sorted({stage for stage in stages if stage is not None}))


def _recompute(text: str) -> tuple[Recompute, ...]:
    """``auto`` tries all; never and always are other words for none and full."""
    from phaze_opt.record.spelling import suggest
    from phaze_opt.workload.plan import Recompute

    if text == "auto":
        return tuple(Recompute)
    names = {"never": Recompute.NONE, "always": Recompute.FULL} | {kind.value: kind for kind in Recompute}
    if text not in names:
        message = f"'{text[:60]}' is unknown; {suggest(text, [*names, 'auto'])}"
        raise InputError(message, source="--recompute")
    return (names[text],)
