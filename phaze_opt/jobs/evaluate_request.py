"""What the command line of ``evaluate`` asks for, and the software that it comes to; quick to import."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from phaze_opt.errors import InputError
from phaze_opt.jobs.options import RANGE_HELP, RECORDS, CostOptions, ModelOptions
from phaze_opt.objective.scenario_options import (
    EXAMPLE,
    MACHINES,
    PLAN,
    PLANNED_MICRO_BATCHES,
    WORKLOAD,
    Kind,
    ScenarioOptions,
    declared,
    of_run,
    same,
)

if TYPE_CHECKING:
    from phaze_opt.graph.any_model import AnyModel
    from phaze_opt.hardware.device import Device
    from phaze_opt.hardware.fitted import FittedConstants, FittedGroup
    from phaze_opt.objective.bill import CostTerms
    from phaze_opt.objective.software_notes import SoftwareChoice
    from phaze_opt.workload.software import TrainingStack
    from phaze_opt.workload.workload import Workload

DEFAULT_DTYPE, NARROW_DTYPE = "bf16", "fp8"
_planned = partial(declared, panel=PLAN)


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineOptions:
    """What the user said of a machine's number format, power and constants, and of the load of experts on it.

    None where nothing was said.
    """

    dtype: str | None = _planned(None, "bf16, fp16 or fp8.", Kind.TEXT, shown="bf16, fp8 with --float8")
    float8: str | None = of_run("float8")
    power_limit_w: float | None = _planned(
        None,
        "Limit of power of a device, W, as nvidia-smi sets it; what it changes is assumed.",
        Kind.AMOUNT,
        shown="its data sheet's",
    )
    constants: Path | None = _planned(
        None, "Fitted constants that `phaze-opt calibrate` wrote.", Kind.PATH, shown="the package's"
    )
    expert_imbalance: float | None = _planned(
        None, "Tokens of the fullest device's experts over the mean, none dropped.", Kind.AMOUNT, shown="1: balanced"
    )
    expert_capacity: float | None = _planned(
        None,
        "Tokens that each expert takes over the mean: padded to that, dropped beyond.",
        Kind.AMOUNT,
        shown="none are dropped",
    )

    @property
    def number_format(self) -> str:
        """Of matmuls.

        Raises:
            InputError: a recipe of 8-bit matmuls is given beside another format.
        """
        if self.float8 is not None and self.dtype not in (None, NARROW_DTYPE):
            message = f"is of 8-bit matmuls, and --dtype is {self.dtype}; give --dtype fp8, or leave one of them out"
            raise InputError(message, source="--float8")
        return self.dtype or (DEFAULT_DTYPE if self.float8 is None else NARROW_DTYPE)


DEFAULT_TOP = 10
NETWORK_OF_THE_MACHINE = {
    "network": {
        "default": None,
        "help": "A network preset or a TOML file (see `phaze-opt network`).",
        "shown": "two-level; of a real machine, its own",
    }
}
"""A real machine comes with a network."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChipOptions:
    """One accelerator and what it trains."""

    model: str = same(ModelOptions, "model", is_required=True)
    allow_unknown: bool = same(ModelOptions, "allow_unknown")
    arch: str = declared(
        "",
        f"A preset, a TOML or JSON file of a design or of a machine of your own, or inline in quotes: '{EXAMPLE}'.",
        Kind.TEXT,
        panel=WORKLOAD,
        is_required=True,
        values=MACHINES,
    )
    micro_batch: str | None = declared(
        None,
        "Samples a micro-batch.",
        Kind.TEXT,
        panel=PLAN,
        shown=f"what divides a replica's samples, up to {PLANNED_MICRO_BATCHES[-1]} or a device's share; "
        "of Phaze's placements, 8",
        alias="mbs",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownOptions:
    """What stands beside the answer; nothing here changes a number of it."""

    baseline: str = declared(
        "",
        "Price the same job on these too, machines that exist under their own software: presets or files, "
        "comma-separated.",
        Kind.TEXT,
        panel=RECORDS,
        values=MACHINES,
    )
    has_range: bool = declared(True, RANGE_HELP, Kind.SWITCH, flag="--range", panel=RECORDS)
    top: int = declared(DEFAULT_TOP, "Plans to show.", Kind.COUNT, high=1000, panel=RECORDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOptions:
    """A job on one accelerator, and which of the options were given."""

    chip: ChipOptions
    machine: MachineOptions
    scenario: Annotated[ScenarioOptions, NETWORK_OF_THE_MACHINE]
    costs: CostOptions
    given: frozenset[str] = frozenset()

    def request(self, models: tuple[AnyModel, ...], *, has_range: bool, with_sensitivity: bool) -> EvaluateRequest:
        """The job that they ask for; ``models`` are those named."""
        network = self.scenario.network if "network" in self.given else None
        return EvaluateRequest(
            models,
            self.chip.arch,
            self.chip.micro_batch,
            network,
            self.scenario,
            self.machine,
            with_sensitivity=with_sensitivity,
            has_range=has_range,
            costs=self.costs.terms(),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluateOptions(PlanOptions):
    """The same with what stands beside the answer."""

    shown: ShownOptions


@dataclass(frozen=True, slots=True)
class EvaluateRequest:
    """A job and what to price it on. Nothing here is about what is shown: that changes no number.

    Attributes:
        models: to train.
        arch: preset, file or inline sizes.
        micro_batch: as written; None where nothing was.
        network: as given; None where it goes with the machine.
        scenario, machine: the options.
        with_sensitivity: whether assumptions are varied too.
        has_range: whether the figure is priced again under each doubt.
        costs: on what its cost is said; None to say none.
        is_one_of_several: whether its software stands for one that nobody knows, which may run as that cannot.
    """

    models: tuple[AnyModel, ...]
    arch: str
    micro_batch: str | None
    network: str | None
    scenario: ScenarioOptions
    machine: MachineOptions
    with_sensitivity: bool = False
    has_range: bool = True
    costs: CostTerms | None = None
    is_one_of_several: bool = False

    def __post_init__(self) -> None:
        """Take Phaze's name of its reference for that with Phaze's tables.

        Raises:
            InputError: the silicon asked for is none, or does not go with the published form.
        """
        from phaze_opt.hardware.presets import TPU_V4
        from phaze_opt.objective.silicon_options import meant_machine, silicon_form

        if self.arch.strip().lower() == TPU_V4:
            object.__setattr__(self, "arch", meant_machine(self.arch, silicon_form(self.scenario)))

    @property
    def device(self) -> Device | None:
        """The machine, if it exists, under the limit of power that was given.

        Raises:
            InputError: the limit is none of the machine's.
        """
        from phaze_opt.hardware.presets import find_machine

        found, limit_w = find_machine(self.arch), self.machine.power_limit_w
        if found is None or limit_w is None:
            return found
        try:
            return found.limited_to(limit_w)
        except InputError as error:
            raise InputError(str(error).removeprefix(f"'{error.key}': "), source="--power-limit-w") from None

    @property
    def is_placed(self) -> bool:
        """Whether Phaze's placements are asked for, of a machine that exists as if it were designed.

        Raises:
            InputError: an option of full plans is given beside.
        """
        from phaze_opt.objective.scenario import PlanSpace, form_of

        return form_of(self.scenario).plans is PlanSpace.PHAZE


def training_length(model: Workload, asked: int | None) -> int:
    """Tokens of a sequence: as asked, or the model's own.

    Raises:
        InputError: the model cannot be run on as many; of a config, what in it says so.
    """
    from phaze_opt.workload.model import ModelSpec
    from phaze_opt.workload.workload import sequence_length_of

    try:
        return sequence_length_of(model, asked)
    except InputError as error:
        message = str(error).removeprefix(f"'{error.key}': ")
        if isinstance(model, ModelSpec):
            message += ", or as --model its config.json with a larger max_position_embeddings"
        raise InputError(message, source="--sequence-length") from error


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
    scenario: ScenarioOptions,
    *,
    device: Device | None,
    fitted: FittedConstants,
    dtype: str = "",
    float8: str | None = None,
    is_one_of_several: bool = False,
    is_transformer: bool = True,
) -> ChosenSoftware:
    """The software asked for, else the one measured on a real machine, else that of the rule.

    Of models that are no transformers, and on a machine that exists, it is one that trains any module.

    Args:
        scenario: names the software, its attention form (which only the ideal one takes) and the width of gradients.
        device: a real machine; None for a designed chip.
        fitted: constants of the software.
        dtype: of a real machine's matmuls.
        float8: recipe of 8-bit ones; the software's own unless given.
        is_one_of_several: as of `EvaluateRequest`.
        is_transformer: whether any of the models is a transformer.

    Raises:
        InputError: no software goes by the name, or an option does not go with it.
    """
    from phaze_opt.cost.stacks import usual_software
    from phaze_opt.cost.suited_software import software_of_any_module
    from phaze_opt.objective.scenario import named_stack
    from phaze_opt.objective.software_notes import SoftwareChoice

    name, is_measured = usual_software(device)
    choice = SoftwareChoice.MEASURED if is_measured else SoftwareChoice.RULE
    of_any = "" if is_transformer or device is None else software_of_any_module(device)
    if scenario.software is None and of_any:
        name, choice = of_any, SoftwareChoice.ANY_MODULE
    if scenario.software is not None:
        name = scenario.software
        choice = SoftwareChoice.SUITED if is_one_of_several else SoftwareChoice.NAMED
    own = replace(scenario, gradient_bits=None)
    measured, stack = (
        named_stack(each, name, fitted=fitted, dtype=dtype, float8=float8, is_known=not is_one_of_several)
        for each in (own, scenario)
    )
    return ChosenSoftware(measured, stack, choice)


def fitted_errors(constants: Path | None) -> dict[str, dict[str, float]]:
    """Errors of rows kept out by data set, from the file of constants in force."""
    from phaze_opt.hardware.fitted import read_fitted_file, read_own_file

    return (read_own_file() if constants is None else read_fitted_file(constants)).sets


def own_fit(constants: Path | None, software: str, *, has_experts: bool = False) -> str:
    """What a software's constants in a user's file were fitted to, in words; empty if the user fitted none of them.

    Rows of models like the one priced, with experts or without, are meant; it says so where the file has others alone.
    """
    from phaze_opt.objective.software_notes import own_fit_note

    like, other = (
        own_fit_note(software, _groups_of(constants, software, each)) for each in (has_experts, not has_experts)
    )
    unlike = f"{other}; none is of a model {'with' if has_experts else 'without'} experts" if other else ""
    return like or unlike


def unused_fit(constants: Path | None, software: str) -> str:
    """Of which other software a user's file holds constants that the user fitted; empty if of this one, or of none."""
    from phaze_opt.hardware.fitted import read_fitted_file
    from phaze_opt.jobs.measurements import software_of_groups
    from phaze_opt.objective.software_notes import fitted_by_user

    groups = {} if constants is None else read_fitted_file(constants).groups
    others = software_of_groups(name for name, group in groups.items() if fitted_by_user(group))
    if not others or software in others or own_fit(constants, software):
        return ""
    named = ", ".join(others)
    return f"what you fitted of software is of {named} and does not price {software}; --software names one of them"


def own_error(constants: Path | None, software: str, *, has_experts: bool) -> float | None:
    """The largest mean error of rows kept out of a user's fit of a software, as a share; None where there is none.

    Args:
        constants: file of the user's.
        software: its name.
        has_experts: whether the rows must be of models with experts; else they must be of models without.
    """
    from phaze_opt.objective.software_notes import own_fit_error

    return own_fit_error(_groups_of(constants, software, has_experts))


def _groups_of(constants: Path | None, software: str, has_experts: bool) -> list[FittedGroup]:
    """A software's groups in a user's file of constants, with experts or without; none without a file."""
    from phaze_opt.cost.stacks import expert_group, lineage, stack_group
    from phaze_opt.hardware.fitted import read_fitted_file

    groups = {} if constants is None else read_fitted_file(constants).groups
    names = map(expert_group if has_experts else stack_group, lineage(software))
    return [groups[name] for name in names if name in groups]
