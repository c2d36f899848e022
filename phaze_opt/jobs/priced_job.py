"""A job priced on one machine: the answer of ``evaluate``."""

from dataclasses import dataclass

from phaze_opt.cost.clocks import MachineClock
from phaze_opt.cost.stacks import is_of_software, load_stack
from phaze_opt.graph.traced.traced_workload import TracedWorkload
from phaze_opt.hardware.device import MatrixStyle
from phaze_opt.hardware.economics.device_cost import DeviceParts
from phaze_opt.hardware.fitted import load_fitted
from phaze_opt.hardware.silicon.die_report import DieReport
from phaze_opt.objective.bill import Bill, PriceRow
from phaze_opt.objective.caveats import Note
from phaze_opt.objective.evaluation import Evaluation
from phaze_opt.objective.headline_range import HeadlineRange, SensitivityRow
from phaze_opt.objective.plan_evaluation import PlannedJob
from phaze_opt.objective.priced_as import PriceSetting
from phaze_opt.objective.recipe import RecipePrice
from phaze_opt.plan.launch_flags import LaunchFlags, launch_flags, maxtext_flags
from phaze_opt.plan.plan_search import PlanRanking, RankedPlan
from phaze_opt.workload.software import launch_sizes, refusals

MEGATRON = "megatron-core"
"""Software whose flags are given."""


@dataclass(frozen=True, slots=True)
class RankedJob:
    """The plans of a job, fastest first, what they were priced for, and the place of the one to run among them."""

    job: PlannedJob
    ranking: PlanRanking
    to_run: int = 0

    @property
    def chosen(self) -> RankedPlan:
        """The plan to run, where any fits."""
        return self.ranking.ranked[self.to_run]

    def flags(self, ranked: RankedPlan, setting: PriceSetting) -> LaunchFlags:
        """What starts a run of one of them: under MaxText, and on TPUs, MaxText's settings."""
        model, training, machine = self.job.model, self.job.training, self.job.machine
        if isinstance(model, TracedWorkload) and not model.has_attention:
            return LaunchFlags(unsaid=(f"{model.name} is no transformer, so no flags are given",))
        kinds = {"is_fp8": setting.peak_type == "fp8", "has_experts": model.has_experts}
        clock, stack = machine.clock, machine.stack
        is_tpu = isinstance(clock, MachineClock) and clock.device.style is MatrixStyle.SYSTOLIC
        if is_of_software(stack.name, "maxtext") or is_tpu:
            return maxtext_flags(ranked.plan, training=training, stack=stack, network=machine.network, **kinds)
        rules, sizes = load_stack(MEGATRON, load_fitted()).rules, launch_sizes(model, training, ranked.plan)
        return launch_flags(
            ranked.plan,
            training=training,
            num_layers=model.num_layers,
            stack=stack,
            is_plain=model.cut.is_plain,
            refusals=refusals(MEGATRON, rules, sizes),
            **kinds,
        )


@dataclass(frozen=True, slots=True)
class Contestant:
    """One machine with what the job comes to on it.

    ``bill`` of its cluster, or ``unbilled``: why that is not known; ``same_software`` is a baseline's under the
    answer's software.
    """

    evaluation: Evaluation
    setting: PriceSetting
    bill: Bill | None = None
    unbilled: str = ""
    same_software: Evaluation | None = None


@dataclass(frozen=True, slots=True)
class PricedJob:
    """An answer of ``evaluate``.

    Attributes:
        evaluation: of the best placement or the plan to run, or why there is none.
        setting: what it was priced under.
        notes: what it rests on.
        plans: the plans; None of a placement, and of several models.
        sensitivity: rows for every assumption, where asked for.
        members: of each of several models with plans of its own.
        headline: the range of the figure; None if it was not asked for, or nothing is feasible.
        die: of a designed chip; None by the 22 nm tables and of machines that exist.
        parts: what its device's cost is made of; None where that is not known.
        bill: what the cluster costs; None where that is not known.
        unbilled: why not.
        price_rows: what the range of each price does, where sensitivity is asked for.
        recipe: phases of sparse training, whose mean ``evaluation`` is; None of dense weights.
        same_software: of a machine beside an answer, the same under the answer's software; None where it cannot run so.
    """

    evaluation: Evaluation
    setting: PriceSetting
    notes: tuple[Note, ...]
    plans: RankedJob | None = None
    sensitivity: tuple[SensitivityRow, ...] = ()
    members: "tuple[PricedJob, ...]" = ()
    headline: HeadlineRange | None = None
    die: DieReport | None = None
    parts: DeviceParts | None = None
    bill: Bill | None = None
    unbilled: str = ""
    price_rows: tuple[PriceRow, ...] = ()
    recipe: RecipePrice | None = None
    same_software: "PricedJob | None" = None

    @property
    def is_by_plans(self) -> bool:
        """Whether parallel plans were priced, rather than the placement of a design."""
        return self.plans is not None or bool(self.members)

    @property
    def contestant(self) -> Contestant:
        """What a table of baselines shows of it."""
        same = None if self.same_software is None else self.same_software.evaluation
        return Contestant(self.evaluation, self.setting, self.bill, self.unbilled, same)


def throughput_ratio(other: Evaluation, answer: Evaluation) -> float | None:
    """Samples a second of another machine for each of the answer; None where the answer is infeasible."""
    if answer.throughput_samples_per_s <= 0:
        return None
    return other.throughput_samples_per_s / answer.throughput_samples_per_s
