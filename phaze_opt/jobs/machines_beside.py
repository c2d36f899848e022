"""What machines make of the job of a search or a proof; one that exists its own figures, as ``evaluate`` has them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from phaze_opt.errors import InputError
from phaze_opt.graph.any_model import AnyModel
from phaze_opt.hardware.constants import Constants
from phaze_opt.hardware.designed_chip import described_chip
from phaze_opt.hardware.device_catalogue import told_name
from phaze_opt.hardware.presets import PHAZE_REFERENCE, TPU_V4, find_machine
from phaze_opt.hardware.silicon.die_report import DieReport, die_of
from phaze_opt.hardware.silicon.silicon import has_die
from phaze_opt.jobs.evaluate import price_beside
from phaze_opt.jobs.evaluate_request import EvaluateRequest, MachineOptions
from phaze_opt.jobs.priced_job import PricedJob
from phaze_opt.jobs.watch import Watch
from phaze_opt.objective.bill import Bill, CostTerms, bill_of_design, cluster_bill
from phaze_opt.objective.evaluate import Objective
from phaze_opt.objective.evaluation import Evaluation, EvaluationStatus
from phaze_opt.objective.reference_machines import MODELLED, REFERENCES, machines_under
from phaze_opt.objective.scenario import Scenario, planned_micro_batches
from phaze_opt.objective.scenario_options import ScenarioOptions, SpaceOptions
from phaze_opt.objective.several_models import combine_evaluations
from phaze_opt.objective.silicon_options import SiliconForm, meant_machine

DESIGN = "this design"
"""Name of a design beside machines."""


@dataclass(frozen=True, slots=True)
class ChipBeside:
    """A design or a machine, and what a job comes to on it.

    Attributes:
        name: that it goes by.
        evaluation: of a machine that exists its own, under its own software.
        die: None by the 22 nm tables and of machines that exist.
        bill: what a cluster costs; None where that is not known or not asked for.
        same_software: the same under the software of the design that it stands beside; None where it cannot run so.
        software: the name of that.
    """

    name: str
    evaluation: Evaluation
    die: DieReport | None = None
    bill: Bill | None = None
    same_software: Evaluation | None = None
    software: str = ""


def dies_beside(
    best: Evaluation | None, machines: Mapping[str, Evaluation], constants: Constants, *, name: str = DESIGN
) -> tuple[ChipBeside, ...]:
    """A design, then machines modelled as it is, as dies; empty where chips are none or nothing is feasible."""
    if best is None or not has_die(constants):
        return ()
    every = {name: best, **machines}
    return tuple(ChipBeside(key, each, die_of(each.accelerator, constants)) for key, each in every.items())


def dies_in(beside: Sequence[ChipBeside]) -> dict[str, DieReport]:
    """The dies among a design and machines, by name."""
    return {each.name: each.die for each in beside if each.die is not None}


def bills_in(beside: Sequence[ChipBeside]) -> dict[str, Bill]:
    """The bills that are known of a design and machines, by name."""
    return {each.name: each.bill for each in beside if each.bill is not None}


def rate_of(evaluation: Evaluation) -> float:
    """Samples a second."""
    return evaluation.throughput_samples_per_s


def job_request(
    models: tuple[AnyModel, ...],
    scenario: ScenarioOptions,
    space: SpaceOptions,
    costs: CostTerms | None,
    *,
    network: str | None,
) -> EvaluateRequest:
    """What `evaluate` is asked for a job that a search or a proof has, but for the architecture.

    Args:
        models: that are trained.
        scenario: the options given.
        space: says which micro-batches were asked for, in its file too.
        costs: on what costs are said.
        network: as given; None where it goes with the machine.
    """
    batches = ",".join(map(str, planned_micro_batches(space))) or None
    return EvaluateRequest(models, "", batches, network, scenario, MachineOptions(), has_range=False, costs=costs)


@dataclass(frozen=True, slots=True)
class JobBeside:
    """The job of a search or a proof, to be priced on machines that its designs stand beside.

    Attributes:
        scenario, constants: as it is posed.
        request: the same as `evaluate` is asked for it; its architecture is none.
        micro_batches: of the space.
    """

    scenario: Scenario
    constants: Constants
    request: EvaluateRequest
    micro_batches: tuple[int, ...]

    def price(self, names: Sequence[str], watch: Watch) -> tuple[ChipBeside, ...]:
        """Presets, files or chips inline, in the order given: of a machine that exists its own figures.

        Beside Phaze's placements, and where its name says so, that is modelled as a design is. Budgets do not apply.

        Raises:
            InputError: one is none of these.
        """
        found: dict[str, ChipBeside] = {}
        objective = Objective(self.scenario.without_budgets(), constants=self.constants)
        for name in dict.fromkeys(meant_machine(name, self._form) for name in names):
            each = self._price(name, objective, watch)
            found[name if each.name in found else each.name] = each
        return tuple(replace(each, name=name) for name, each in found.items())

    def beside(
        self, best: Evaluation | None, baselines: Sequence[str], watch: Watch
    ) -> tuple[tuple[ChipBeside, ...], int]:
        """The best design, the baselines and the references, and how many baselines there are; nothing without a best.

        References are TPU v4 and Phaze's reference; in Phaze's form both are modelled alike.
        """
        if best is None:
            return (), 0
        held = self.price(baselines, watch)
        is_modelled = self.scenario.plans is None or self._form is SiliconForm.PHAZE
        names = REFERENCES if is_modelled else (TPU_V4, PHAZE_REFERENCE)
        # What the design is held against in words stands beside it in pictures and tables first too.
        others = self.price([name for name in names if name not in {each.name for each in held}], watch)
        return (self._design(DESIGN, best), *held, *others), len(held)

    @property
    def _form(self) -> SiliconForm:
        return SiliconForm.PHAZE if self.scenario.silicon is None else SiliconForm.DIE

    def _price(self, name: str, objective: Objective, watch: Watch) -> ChipBeside:
        device = find_machine(name.removeprefix(MODELLED))
        if device is None or name.startswith(MODELLED) or self.scenario.plans is None:
            given = name if device is None or name.startswith(MODELLED) else MODELLED + name
            ((called, evaluation),) = machines_under(objective, self.micro_batches, [given]).items()
            return replace(self._design(called, evaluation), same_software=evaluation)
        software = self.scenario.stack.name
        try:
            own = price_beside(replace(self.request, arch=name), software, watch, is_design=True)
        except InputError as error:
            chip = described_chip(device, self.constants)
            return ChipBeside(
                told_name(device), objective.refuse(chip, 1, EvaluationStatus.TOO_FEW_DEVICES, str(error))
            )
        evaluation, same = self._mean(own), None if own.same_software is None else self._mean(own.same_software)
        bill, costs, count = own.bill, self.request.costs, self.request.scenario.devices
        if own.members and bill is not None and costs is not None:
            bill = cluster_bill(bill.parts, evaluation, costs, num_devices=count)
        return ChipBeside(own.setting.machine, evaluation, None, bill, same, software)

    def _mean(self, priced: PricedJob) -> Evaluation:
        """Of several models as the job's common design is worth."""
        members = [each.evaluation for each in priced.members]
        return combine_evaluations(members, scenario=self.scenario) if members else priced.evaluation

    def _design(self, name: str, evaluation: Evaluation) -> ChipBeside:
        """A chip as it is modelled, with its die and its bill."""
        known, costs = self.constants, self.request.costs
        die = die_of(evaluation.accelerator, known) if has_die(known) else None
        bill = None if costs is None else bill_of_design(evaluation, self.scenario, known, costs)
        return ChipBeside(name, evaluation, die, bill)
