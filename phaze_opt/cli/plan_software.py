"""The training software that plans are priced with: as named, or the one measured on the machine."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from phaze_opt.errors import InputError
from phaze_opt.record.spelling import parse_word

if TYPE_CHECKING:
    from pathlib import Path

    from phaze_opt.cli.plan_options import PlanOptions
    from phaze_opt.hardware.fitted import FittedConstants
    from phaze_opt.report.plans import PlanSetting
    from phaze_opt.workload.model import ModelSpec
    from phaze_opt.workload.stack import TrainingStack
    from phaze_opt.workload.training import TrainingSpec

DEFAULT_ATTENTION = "fused"
GRADIENT_BYTES = MappingProxyType({"16": 2, "32": 4})
"""Words of ``--gradient-bits``."""


@dataclass(frozen=True, slots=True)
class ChosenSoftware:
    """A software, and whether the machine decided on it because the user named none."""

    stack: TrainingStack
    is_chosen: bool


def choose_software(
    named: str | None, *, machine: str | None, attention: str, fitted: FittedConstants
) -> ChosenSoftware:
    """The software asked for, else the one measured on a real machine, else the ideal one.

    Args:
        named: what the user wrote for ``--software``.
        machine: name of a real machine; None for a designed chip, whose software is ideal unless named.
        attention: attention form of the command line, which only the ideal one takes.
        fitted: constants of the software.

    Raises:
        InputError: no software goes by the name, or it has another attention form than the one asked for.
    """
    from phaze_opt.objective.step.measured_software import software_measured_on
    from phaze_opt.objective.step.stacks import list_stacks, load_stack
    from phaze_opt.record.spelling import suggest
    from phaze_opt.workload.stack import IDEAL_STACK
    from phaze_opt.workload.training import AttentionForm

    measured = software_measured_on(machine) if named is None and machine is not None else None
    name = named if named is not None else measured or IDEAL_STACK.name
    if name not in list_stacks():
        message = f"no training software is named '{name[:60]}'; {suggest(name, list_stacks())}"
        raise InputError(message, source="--software")
    if name == IDEAL_STACK.name:
        form = parse_word(AttentionForm, attention, source="--attention")
        return ChosenSoftware(replace(IDEAL_STACK, attention=form), is_chosen=False)
    stack = load_stack(name, fitted)
    if attention not in (DEFAULT_ATTENTION, stack.attention.value):
        message = (
            f"is for ideal software; {name} has {stack.attention.value} attention; leave it out or give "
            "--software ideal"
        )
        raise InputError(message, source="--attention")
    return ChosenSoftware(stack, is_chosen=measured is not None)


def with_gradients(software: ChosenSoftware, bits: str | None) -> ChosenSoftware:
    """The software with gradients as wide as ``--gradient-bits`` says, held and sent; as it is unless given.

    Raises:
        InputError: another width than 16 or 32.
    """
    if bits is None:
        return software
    if bits not in GRADIENT_BYTES:
        message = f"'{bits[:60]}' must be 16 or 32, the bits of a gradient"
        raise InputError(message, source="--gradient-bits")
    return replace(software, stack=replace(software.stack, gradient_bytes=GRADIENT_BYTES[bits]))


def notes_on(
    software: ChosenSoftware,
    stack: TrainingStack,
    setting: PlanSetting,
    *,
    plan: PlanOptions,
    model: ModelSpec,
    training: TrainingSpec,
) -> tuple[str, ...]:
    """What prices with a software rest on, in sentences.

    Args:
        software: as it was measured.
        stack: the same with gradients as wide as asked for.
        setting: machine and number format of the plans.
        plan: what the user said.
        model: what is trained.
        training: its sequence length and optimizer.
    """
    from phaze_opt.report.plan_notes import software_notes

    return software_notes(
        stack.name,
        machine=setting.machine,
        dtype=setting.peak_type,
        is_chosen=software.is_chosen,
        is_zero_named=plan.zero is not None,
        gradients=(stack.gradient_bytes, software.stack.gradient_bytes, stack.gradient_source),
        num_experts=model.num_experts,
        sequence_length=training.sequence_length,
        errors=_fitted_errors(plan.constants),
        own_fit=_own_fit(plan.constants, stack.name),
    )


def _fitted_errors(constants: Path | None) -> dict[str, dict[str, float]]:
    """Errors of rows kept out by data set, from the file of constants in force."""
    from phaze_opt.hardware.fitted import read_fitted_file, read_own_file

    return (read_own_file() if constants is None else read_fitted_file(constants)).sets


def _own_fit(constants: Path | None, software: str) -> str:
    """What a software's constants in a user's file were fitted to, in words; empty if the user fitted none of them."""
    from phaze_opt.hardware.fitted import read_fitted_file
    from phaze_opt.objective.step.stacks import PARENTS, stack_group
    from phaze_opt.report.plan_notes import own_fit_note

    if constants is None:
        return ""
    groups = read_fitted_file(constants).groups
    names = dict.fromkeys(stack_group(name) for name in (PARENTS.get(software, software), software))
    return own_fit_note(software, [groups[name] for name in names if name in groups])
