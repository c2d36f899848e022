"""A job priced for ``evaluate``, and its one line of JSON: the same keys for designed chips and real machines."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from phaze_opt.cli.evaluate_request import EvaluateRequest
from phaze_opt.cost.clocks import MachineClock
from phaze_opt.cost.stacks import is_of_software, load_stack, measured_rows, unmeasured_parts
from phaze_opt.graph.traced.traced_workload import TracedWorkload
from phaze_opt.hardware.device import MatrixStyle
from phaze_opt.hardware.economics.device_cost import DeviceParts
from phaze_opt.hardware.fitted import load_fitted
from phaze_opt.hardware.silicon.die_report import DieReport, die_to_json
from phaze_opt.objective.bill import Bill, PriceRow
from phaze_opt.objective.caveats import Note, notes_to_json
from phaze_opt.objective.evaluation import Evaluation, evaluation_to_json
from phaze_opt.objective.headline_range import HeadlineRange
from phaze_opt.objective.plan_evaluation import PlannedJob
from phaze_opt.objective.price_setting import PriceSetting
from phaze_opt.objective.priced_as import priced_as, priced_to_json
from phaze_opt.objective.recipe import RecipePrice
from phaze_opt.objective.sensitivity import SensitivityRow
from phaze_opt.plan.launch_flags import LaunchFlags, launch_flags, maxtext_flags
from phaze_opt.plan.plan_search import PlanRanking, RankedPlan
from phaze_opt.record.plain_data import field_values
from phaze_opt.report.answer import fastest_sentence, gain_of_fastest, range_to_json
from phaze_opt.report.baselines import Contestant, throughput_ratio
from phaze_opt.report.bill import bill_to_json
from phaze_opt.report.die import SAME_SOFTWARE, rate_of
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

    def to_json(self, *, top: int) -> dict[str, Any]:
        """All of it; ``top`` says how many plans."""
        ranking = None if self.plans is None else self.plans.ranking
        members = {"members": [each.to_json(top=top) for each in self.members]} if self.members else {}
        return {
            **evaluation_to_json(self.evaluation),
            **members,
            **({} if self.recipe is None else {"sparsity": self.recipe.to_json()}),
            "range": range_to_json(self.headline),
            "die": None if self.die is None else die_to_json(self.die),
            "cost": bill_to_json(self.bill, unsaid=self.unbilled),
            "notes": notes_to_json(self.notes),
            "setting": asdict(self.setting),
            "num_fitting": None if ranking is None else len(ranking.ranked),
            "num_misfits": None if ranking is None else ranking.num_misfits,
            "num_dominated": None if ranking is None else len(ranking.beaten),
            "dominated": [] if ranking is None else beaten_to_json(ranking, top=top),
            "plans": [] if self.plans is None else plans_to_json(self.plans, self.setting, top=top),
            **self._named_plans(),
        }

    def _named_plans(self) -> dict[str, dict[str, Any] | None]:
        """The plan that all figures are of, and the fastest with what it would gain; of none that fits, nothing."""
        plans, setting = self.plans, self.setting
        if plans is None or not plans.ranking.ranked:
            return {"plan_to_run": None, "fastest": None}
        ranked, place = plans.ranking.ranked, plans.to_run
        beside = {"gain": gain_of_fastest(ranked, place), "why_not": fastest_sentence(ranked, setting, place)}
        return {
            "plan_to_run": plan_to_json(plans, plans.chosen, ranked[0], setting),
            "fastest": plan_to_json(plans, ranked[0], ranked[0], setting) | beside,
        }


def job_to_json(
    request: EvaluateRequest, answer: PricedJob, baselines: Sequence[PricedJob], *, top: int
) -> dict[str, Any]:
    """The whole document: an answer with its baselines, what its models were priced as, and what was varied."""
    document = answer.to_json(top=top) | {"baselines": baselines_to_json(answer, baselines)}
    document["priced_as"] = priced_to_json(priced_as(request.models, request.scenario.sequence_length))
    if request.with_sensitivity:
        document["sensitivity"] = [asdict(row) for row in answer.sensitivity]
        document["price_sensitivity"] = [asdict(row) for row in answer.price_rows]
    return document


def beaten_to_json(ranking: PlanRanking, *, top: int) -> list[dict[str, Any]]:
    """The fastest of the plans that are left out, each with the plan that beats it."""
    rows = np.arange(min(top, len(ranking.beaten)))
    pairs = zip(ranking.beaten.take(rows), ranking.beaten_by.take(rows), strict=True)
    return [{"plan": field_values(plan), "by": field_values(other)} for plan, other in pairs]


def plans_to_json(plans: RankedJob, setting: PriceSetting, *, top: int) -> list[dict[str, Any]]:
    """The fastest plans; SI units."""
    fastest = list(plans.ranking.ranked[:top])
    return [plan_to_json(plans, each, fastest[0], setting) for each in fastest]


def plan_to_json(plans: RankedJob, each: RankedPlan, best: RankedPlan, setting: PriceSetting) -> dict[str, Any]:
    """One of the plans that fit; ``best`` is the fastest of them."""
    rows = measured_rows(setting.software)
    return {
        **field_values(each.plan),
        "unmeasured": None if rows is None else list(unmeasured_parts(each.plan, rows)),
        "iteration_time_s": each.time.seconds,
        "throughput_tokens_per_s": setting.tokens_per_s(each.time),
        "mfu": setting.mfu(each),
        "peak_memory_bytes": each.memory.peak_bytes,
        "memory_range_bytes": list(each.memory.range_bytes),
        "memory_share": each.memory.peak_bytes / setting.memory_bytes,
        "is_to_the_brim": setting.is_to_the_brim(each),
        "is_within_error": setting.is_within_error(each, best),
        "breakdown": asdict(each.time),
        "stages": [asdict(stage) for stage in each.memory.stages],
        "launch": asdict(plans.flags(each, setting)),
    }


def baselines_to_json(answer: PricedJob, baselines: Sequence[PricedJob]) -> list[dict[str, Any]]:
    """Each baseline as an answer of its own with its plan to run, and its throughput over that of the answer."""
    return [
        each.to_json(top=1)
        | {
            "name": each.setting.machine,
            SAME_SOFTWARE: None if each.same_software is None else rate_of(each.same_software.evaluation),
            "throughput_ratio": throughput_ratio(each.evaluation, answer.evaluation),
        }
        for each in baselines
    ]
