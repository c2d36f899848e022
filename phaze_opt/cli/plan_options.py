"""Options of a parallel plan, and the software it is priced with.

Each option fixes one degree or choice; several values, separated by commas, are searched.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from phaze_opt.cli.options import parse_integers, read_integer
from phaze_opt.errors import InputError
from phaze_opt.objective.scenario_options import MAX_MICRO_BATCH, Kind, ScenarioOptions, declared
from phaze_opt.record.suggestions import parse_word

if TYPE_CHECKING:
    from phaze_opt.hardware.device import Device
    from phaze_opt.hardware.fitted import FittedConstants
    from phaze_opt.report.software import SoftwareChoice
    from phaze_opt.workload.model import ModelSpec
    from phaze_opt.workload.plan import PlanChoices, Recompute
    from phaze_opt.workload.software import TrainingStack

GRADIENT_BYTES = MappingProxyType({"16": 2, "32": 4})
"""Words of ``--gradient-bits``."""
ALL_ZERO = (0, 1, 2, 3)
PLAN = "Parallel plan (of a real machine always; a design with any of these; lists are searched)"
_planned = partial(declared, panel=PLAN)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOptions:
    """What the user said of a plan; None and no values where nothing was said."""

    pipeline: tuple[int, ...] = _planned((), "Pipeline stages.", Kind.COUNTS)
    data: tuple[int, ...] = _planned((), "Replicas (data-parallel degree).", Kind.COUNTS, shown="the devices left")
    context_parallel: tuple[int, ...] = _planned((), "Shards of the sequence in attention.", Kind.COUNTS, shown="1")
    expert_parallel: tuple[int, ...] = _planned((), "Replicas that experts are spread over.", Kind.COUNTS, shown="1")
    interleave: tuple[int, ...] = _planned((), "Model chunks a stage (1F1B is 1).", Kind.COUNTS, shown="1")
    zero: str | None = _planned(
        None,
        "ZeRO stage: 1 shards optimizer state, 2 gradients too, 3 parameters too (FSDP).",
        Kind.TEXT,
        shown="the least measured with the software, else 0",
    )
    state_shards: tuple[int, ...] = _planned(
        (), "Replicas that ZeRO shards over (hybrid sharding).", Kind.COUNTS, shown="all"
    )
    gradient_bits: str | None = _planned(
        None, "16 or 32: width of gradients, as held and as sent.", Kind.TEXT, shown="the software's"
    )
    dtype: str | None = _planned(None, "bf16, fp16 or fp8.", Kind.TEXT, shown="bf16")
    constants: Path | None = _planned(
        None, "Fitted constants that `phaze-opt calibrate` wrote.", Kind.PATH, shown="the package's"
    )

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
    from phaze_opt.workload.plan import FREE_MICRO_BATCH, PlanChoices

    stages = _stages(plan.zero)
    if plan.state_shards and not any(stages):
        message = "is for sharded state; give --zero 1, 2 or 3 too, or leave it out"
        raise InputError(message, source="--state-shards")
    batches: tuple[int, ...] = FREE_MICRO_BATCH
    if micro_batch is not None:
        batches = parse_integers(micro_batch, option="--micro-batch", high=MAX_MICRO_BATCH)
    rest = () if is_full(scenario) else (1,)
    return PlanChoices(
        tensor=scenario.tensor_parallel,
        pipeline=plan.pipeline,
        data=plan.data,
        context=plan.context_parallel or (1,),
        expert=plan.expert_parallel or rest,
        interleave=plan.interleave or rest,
        micro_batch=batches,
        zero=stages,
        state_shards=plan.state_shards or (0,),
        recompute=_recompute(scenario.recompute),
        is_sequence_parallel=scenario.is_sequence_parallel,
    )


def is_full(scenario: ScenarioOptions) -> bool:
    """Whether every degree and ZeRO stage that nobody fixed is searched."""
    from phaze_opt.objective.scenario import PlanSpace

    return parse_word(PlanSpace, scenario.plans, source="--plans") is PlanSpace.FULL


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
    from phaze_opt.record.suggestions import suggest
    from phaze_opt.workload.plan import Recompute

    if text == "auto":
        return tuple(Recompute)
    names = {"never": Recompute.NONE, "always": Recompute.FULL} | {kind.value: kind for kind in Recompute}
    if text not in names:
        message = f"'{text[:60]}' is unknown; {suggest(text, [*names, 'auto'])}"
        raise InputError(message, source="--recompute")
    return (names[text],)


@dataclass(frozen=True, slots=True)
class ChosenSoftware:
    """A software, and who decided on it.

    Attributes:
        measured: as it was measured.
        stack: the same with gradients as wide as asked for.
        choice: the user, measurements on the machine, or a rule.
    """

    measured: TrainingStack
    stack: TrainingStack
    choice: SoftwareChoice


def choose_software(
    plan: PlanOptions, scenario: ScenarioOptions, *, device: Device | None, fitted: FittedConstants
) -> ChosenSoftware:
    """The software asked for, else the one measured on a real machine, else that of the rule.

    Args:
        plan: names the width of its gradients, held and sent, where the user did.
        scenario: names the software, and the attention form, which only the ideal one takes.
        device: a real machine; None for a designed chip.
        fitted: constants of the software.

    Raises:
        InputError: no software goes by the name, or it has another attention form than the one asked for, or gradients
            are of another width than 16 or 32 bits.
    """
    from phaze_opt.cost.measured_software import usual_software
    from phaze_opt.objective.scenario import named_stack
    from phaze_opt.report.software import SoftwareChoice

    name, is_measured = usual_software(device)
    choice = SoftwareChoice.MEASURED if is_measured else SoftwareChoice.RULE
    if scenario.software is not None:
        name, choice = scenario.software, SoftwareChoice.NAMED
    stack = named_stack(name, attention=scenario.attention, fitted=fitted)
    bits = plan.gradient_bits
    if bits is not None and bits not in GRADIENT_BYTES:
        message = f"'{bits[:60]}' must be 16 or 32, the bits of a gradient"
        raise InputError(message, source="--gradient-bits")
    priced = stack if bits is None else replace(stack, gradient_bytes=GRADIENT_BYTES[bits])
    return ChosenSoftware(stack, priced, choice)


def fitted_errors(constants: Path | None) -> dict[str, dict[str, float]]:
    """Errors of rows kept out by data set, from the file of constants in force."""
    from phaze_opt.hardware.fitted import read_fitted_file, read_own_file

    return (read_own_file() if constants is None else read_fitted_file(constants)).sets


def own_fit(constants: Path | None, software: str) -> str:
    """What a software's constants in a user's file were fitted to, in words; empty if the user fitted none of them."""
    from phaze_opt.cost.stacks import stack_groups
    from phaze_opt.hardware.fitted import read_fitted_file
    from phaze_opt.report.software import own_fit_note

    if constants is None:
        return ""
    groups = read_fitted_file(constants).groups
    return own_fit_note(software, [groups[name] for name in stack_groups(software) if name in groups])
