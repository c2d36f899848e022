"""Options of a parallel plan: each fixes one degree or choice; several values, separated by commas, are searched."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from phaze_opt.cli.numbers import MAX_COUNT, MAX_MICRO_BATCH, integer, parse_integers, read_integer
from phaze_opt.cli.options import CHOICES, INTEGER
from phaze_opt.errors import InputError

if TYPE_CHECKING:
    from phaze_opt.objective.step.plan_space import PlanChoices
    from phaze_opt.workload.model import ModelSpec
    from phaze_opt.workload.plan import Recompute

PLAN = "Parallel plan (any of these prices whole plans; lists are searched)"
DEFAULT_TOP = 10

PlanRecomputeOption = Annotated[
    str,
    typer.Option(
        "--recompute",
        help="auto (per stage, where needed), never or always; of plans also none, selective or full.",
        rich_help_panel=CHOICES,
    ),
]
PipelineOption = Annotated[
    str | None, typer.Option("--pipeline", help="Pipeline stages.", rich_help_panel=PLAN, show_default=False)
]
DataOption = Annotated[
    str | None,
    typer.Option(
        "--data", help="Replicas (data-parallel degree).", rich_help_panel=PLAN, show_default="the devices left"
    ),
]
ContextOption = Annotated[
    str | None,
    typer.Option(
        "--context-parallel", help="Shards of the sequence in attention.", rich_help_panel=PLAN, show_default="1"
    ),
]
ExpertOption = Annotated[
    str | None,
    typer.Option(
        "--expert-parallel", help="Replicas that experts are spread over.", rich_help_panel=PLAN, show_default="1"
    ),
]
InterleaveOption = Annotated[
    str | None,
    typer.Option("--interleave", help="Model chunks a stage (1F1B is 1).", rich_help_panel=PLAN, show_default="1"),
]
ZeroOption = Annotated[
    str | None,
    typer.Option(
        "--zero",
        help="ZeRO stage: 1 shards optimizer state, 2 gradients too, 3 parameters too (FSDP).",
        rich_help_panel=PLAN,
        show_default="the least measured with the software, else 0",
    ),
]
StateShardsOption = Annotated[
    str | None,
    typer.Option(
        "--state-shards",
        help="Replicas that ZeRO shards over (hybrid sharding).",
        rich_help_panel=PLAN,
        show_default="all",
    ),
]
SoftwareOption = Annotated[
    str | None,
    typer.Option(
        "--software",
        help="Training software whose fitted constants and overlaps apply (see `phaze-opt software`).",
        rich_help_panel=PLAN,
        show_default="on a real machine the one measured on it, else ideal",
    ),
]
GradientBitsOption = Annotated[
    str | None,
    typer.Option(
        "--gradient-bits",
        help="16 or 32: width of gradients, as held and as sent.",
        rich_help_panel=PLAN,
        show_default="the software's",
    ),
]
DtypeOption = Annotated[
    str | None,
    typer.Option("--dtype", help="bf16, fp16 or fp8.", rich_help_panel=PLAN, show_default="bf16"),
]
ConstantsOption = Annotated[
    Path | None,
    typer.Option(
        "--constants",
        help="Fitted constants that `phaze-opt calibrate` wrote.",
        rich_help_panel=PLAN,
        show_default="the package's",
    ),
]
TopOption = Annotated[
    int | None,
    typer.Option(
        "--top",
        help="Plans to show.",
        parser=integer("--top", high=1000),
        metavar=INTEGER,
        rich_help_panel=PLAN,
        show_default=str(DEFAULT_TOP),
    ),
]


@dataclass(frozen=True, slots=True)
class PlanTexts:
    """What the user wrote for each option of a plan; None where nothing was."""

    tensor: str
    pipeline: str | None
    data: str | None
    context: str | None
    expert: str | None
    interleave: str | None
    zero: str | None
    state_shards: str | None
    software: str | None
    gradient_bits: str | None
    dtype: str | None
    constants: Path | None
    top: int | None

    @property
    def is_asked_for(self) -> bool:
        """Whether any option belongs to plans alone."""
        return any(
            value is not None
            for value in (
                self.pipeline,
                self.data,
                self.context,
                self.expert,
                self.interleave,
                self.zero,
                self.state_shards,
                self.software,
                self.gradient_bits,
                self.dtype,
                self.constants,
                self.top,
            )
        )


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


def parse_choices(
    texts: PlanTexts, *, micro_batch: str | None, recompute: str, is_sequence_parallel: bool
) -> PlanChoices:
    """The choices that the options leave.

    Raises:
        InputError: an option breaks a rule; the message names it.
    """
    from phaze_opt.objective.step.plan_space import FREE_MICRO_BATCH, PlanChoices

    if texts.state_shards is not None and not any(_stages(texts.zero)):
        message = "is for sharded state; give --zero 1, 2 or 3 too, or leave it out"
        raise InputError(message, source="--state-shards")
    return PlanChoices(
        tensor=parse_integers(texts.tensor, option="--tensor-parallel", high=MAX_COUNT),
        pipeline=_degrees(texts.pipeline, "--pipeline", ()),
        data=_degrees(texts.data, "--data", ()),
        context=_degrees(texts.context, "--context-parallel", (1,)),
        expert=_degrees(texts.expert, "--expert-parallel", (1,)),
        interleave=_degrees(texts.interleave, "--interleave", (1,)),
        micro_batch=_degrees(micro_batch, "--micro-batch", FREE_MICRO_BATCH, high=MAX_MICRO_BATCH),
        zero=_stages(texts.zero),
        state_shards=_degrees(texts.state_shards, "--state-shards", (0,)),
        recompute=_recompute(recompute),
        is_sequence_parallel=is_sequence_parallel,
    )


def _degrees(text: str | None, option: str, default: tuple[int, ...], *, high: int = MAX_COUNT) -> tuple[int, ...]:
    return default if text is None else parse_integers(text, option=option, high=high)


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
