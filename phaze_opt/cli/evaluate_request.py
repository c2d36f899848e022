"""What the command line of ``evaluate`` asks for."""

from dataclasses import dataclass

from phaze_opt.cli.plan_options import MachineOptions
from phaze_opt.hardware.device import Device
from phaze_opt.hardware.presets import find_machine
from phaze_opt.objective.scenario import PlanSpace, form_of
from phaze_opt.objective.scenario_options import ScenarioOptions
from phaze_opt.workload.model import ModelSpec


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
    """

    models: tuple[ModelSpec, ...]
    arch: str
    micro_batch: str | None
    network: str | None
    scenario: ScenarioOptions
    machine: MachineOptions
    with_sensitivity: bool = False
    has_range: bool = True

    @property
    def device(self) -> Device | None:
        """The machine, if it exists."""
        return find_machine(self.arch)

    @property
    def is_placed(self) -> bool:
        """Whether Phaze's placements are asked for, of a machine that exists as if it were designed.

        Raises:
            InputError: an option of full plans is given beside.
        """
        return form_of(self.scenario).plans is PlanSpace.PHAZE
