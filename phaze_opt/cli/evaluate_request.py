"""What the command line of ``evaluate`` asks for."""

from dataclasses import dataclass

from phaze_opt.cli.plan_options import PlanOptions, is_full
from phaze_opt.errors import InputError
from phaze_opt.hardware.device import Device
from phaze_opt.hardware.presets import find_machine
from phaze_opt.objective.scenario_options import ScenarioOptions
from phaze_opt.workload.model import ModelSpec

PLAN_RECOMPUTE = ("none", "selective", "full")
"""Words of ``--recompute`` that only whole plans know."""


@dataclass(frozen=True, slots=True)
class EvaluateRequest:
    """A job and what to price it on. Nothing here is about what is shown: that changes no number.

    Attributes:
        models: to train.
        arch: preset, file or inline sizes.
        micro_batch: as written; None where nothing was.
        network: as given; None where it goes with the machine.
        is_as_published: whether ``--plans phaze`` was given: placements, of a machine that exists as if designed.
        scenario, plan: the options.
        with_sensitivity: whether assumptions are varied too.
    """

    models: tuple[ModelSpec, ...]
    arch: str
    micro_batch: str | None
    network: str | None
    scenario: ScenarioOptions
    plan: PlanOptions
    with_sensitivity: bool = False
    is_as_published: bool = False

    @property
    def device(self) -> Device | None:
        """The machine, if it exists."""
        return find_machine(self.arch)

    @property
    def is_for_plans(self) -> bool:
        """Whether parallel plans are priced: of a real machine, or of a design where something is said of plans.

        Raises:
            InputError: something is said of plans beside ``--plans phaze``.
        """
        scenario = self.scenario
        is_named = scenario.software is not None or scenario.recompute in PLAN_RECOMPUTE
        is_said = is_named or self.plan.is_asked_for or is_full(scenario)
        if self.is_as_published:
            if is_said:
                message = "phaze does not go with options of a parallel plan; leave one or the other out"
                raise InputError(message, source="--plans")
            return False
        return is_said or self.device is not None
