"""``po.evaluate`` and ``po.plans``: a job on one accelerator, designed or real."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from phaze_opt.api.kept_words import KeptWords
from phaze_opt.api.keywords import said_of, with_keywords
from phaze_opt.api.shown import Fact, Result
from phaze_opt.errors import InputError
from phaze_opt.graph.any_model import AnyModel
from phaze_opt.jobs.evaluate import price_baselines, price_job
from phaze_opt.jobs.evaluate_request import DEFAULT_TOP, EvaluateOptions, EvaluateRequest, PlanOptions
from phaze_opt.jobs.priced_job import PricedJob
from phaze_opt.jobs.scenario import named_models
from phaze_opt.objective.bill import Bill
from phaze_opt.objective.evaluation import Evaluation
from phaze_opt.objective.priced_as import PriceSetting
from phaze_opt.plan.plan_search import RankedPlan
from phaze_opt.record.plain_data import field_values
from phaze_opt.record.result_fields import headlines_of
from phaze_opt.report.figures import breakdown_picture
from phaze_opt.report.picture import Marks, Picture, PlotAxis
from phaze_opt.report.plans import describe_plan
from phaze_opt.report.priced_job import job_to_json
from phaze_opt.workload.plan import ParallelPlan

FIGURES = tuple(each.name for each in headlines_of(Evaluation))
"""Of an evaluation, in the order of a result's text; None where not known."""
OF_DEGREES = ("tensor", "pipeline", "data", "context", "expert", "micro_batch", "interleave", "zero", "recompute")
"""Columns of a plan that every frame of plans has."""


@dataclass(frozen=True, slots=True, repr=False)
class PricedDesign(Result):
    """What training comes to on one accelerator.

    Attributes:
        job: the answer of the command, with its plans and what they were priced under.
        request: what was asked.
        baselines: the same job on other machines.
        notes: sentences on what the figures rest on.
        top: plans that its frame has; None for all.
    """

    job: PricedJob
    request: EvaluateRequest
    baselines: tuple[PricedDesign, ...] = ()
    notes: tuple[str, ...] = ()
    top: int | None = None

    @property
    def evaluation(self) -> Evaluation:
        """All figures, as `Objective` returns them."""
        return self.job.evaluation

    @property
    def is_feasible(self) -> bool:
        """Whether any plan or placement fits; if not, ``evaluation.reason`` says why."""
        return self.evaluation.is_feasible

    @property
    def plan(self) -> ParallelPlan | None:
        """The plan to run, which the figures are of; None of placements, of several models and where none fits."""
        return None if self.evaluation.placement is None else self.evaluation.placement.plan

    @property
    def throughput_samples_per_s(self) -> float:
        """Samples a second over the whole cluster; 0 where nothing fits."""
        return self.evaluation.throughput_samples_per_s

    @property
    def throughput_tokens_per_s(self) -> float:
        """Tokens a second over the whole cluster."""
        return self.evaluation.throughput_tokens_per_s

    @property
    def iteration_time_s(self) -> float:
        """Seconds of a step."""
        return self.evaluation.iteration_time_s

    @property
    def mfu(self) -> float:
        """Model FLOPs over the peak of all devices."""
        return self.evaluation.mfu

    @property
    def area_mm2(self) -> float | None:
        """Of the chip; None of a machine whose area is not published."""
        return self.evaluation.known("area_mm2")

    @property
    def tdp_w(self) -> float | None:
        """Of the chip; None of a machine whose power is not published."""
        return self.evaluation.known("tdp_w")

    @property
    def range_samples_per_s(self) -> tuple[float, float] | None:
        """The lowest and the highest throughput under each doubt alone; None where it was not asked for."""
        return None if self.job.headline is None else (float(self.job.headline.low), float(self.job.headline.high))

    @property
    def bill(self) -> Bill | None:
        """What the cluster costs; None where that is not known, and ``job.unbilled`` says why."""
        return self.job.bill

    @property
    def facts(self) -> Mapping[str, Fact]:
        """The figures, the plan, what it was priced under and what a device costs."""
        setting, found = self.job.setting, self.evaluation
        job: dict[str, Fact] = {"model": setting.model, "arch": setting.machine, "devices": setting.num_devices}
        if not found.is_feasible:
            return {**job, "is_feasible": False, "reason": found.reason}
        figures: dict[str, Fact] = {name: found.known(name) for name in FIGURES}
        low_high = self.range_samples_per_s
        if low_high is not None:
            figures["range_samples_per_s"] = f"{low_high[0]:.4g} .. {low_high[1]:.4g}"
        plan = {} if self.plan is None else {"plan": plan_words(self.plan), "software": setting.software}
        return {**job, **figures, **plan, **cost_facts(self.bill)}

    def rows(self) -> Iterable[Mapping[str, Fact]]:
        """The ``top`` fastest plans and the one to run; of a placement and of several models one row each."""
        plans = self.job.plans
        if plans is None:
            for each in self.job.members or (self.job,):
                found = each.evaluation
                yield {"model": found.model, **{name: found.known(name) for name in FIGURES}}
            return
        ranked, to_run = plans.ranking.ranked, plans.to_run
        for place, plan in enumerate(ranked[: self.top]):
            yield _plan_row(plan, self.job.setting, is_to_run=place == to_run)
        if self.top is not None and self.top <= to_run:
            yield _plan_row(ranked[to_run], self.job.setting, is_to_run=True)

    def to_dict(self) -> dict[str, Any]:
        """The document of ``evaluate --json``, with ``top`` plans or ten."""
        return job_to_json(self.request, self.job, [each.job for each in self.baselines], top=self.top or DEFAULT_TOP)

    def picture(self) -> Picture:
        """Where the time of a step goes, beside the baselines."""
        return breakdown_picture(
            {each.job.setting.machine: each.evaluation for each in (self, *self.baselines)}, needs_schedules=False
        )


@dataclass(frozen=True, slots=True, repr=False)
class PlanList(Result):
    """Every parallel plan that fits, fastest first.

    Attributes:
        priced: the job that they are plans of.
    """

    priced: PricedDesign

    @property
    def best(self) -> ParallelPlan | None:
        """The fastest, which need not be the one to run; None where none fits."""
        plans = self.priced.job.plans
        return plans.ranking.ranked[0].plan if plans is not None and self.num_fitting else None

    @property
    def num_fitting(self) -> int:
        """Plans that fit the memory and that no other of the same degrees beats."""
        return 0 if self.priced.job.plans is None else len(self.priced.job.plans.ranking.ranked)

    @property
    def num_misfits(self) -> int:
        """Plans that do not fit the memory."""
        return 0 if self.priced.job.plans is None else self.priced.job.plans.ranking.num_misfits

    @property
    def facts(self) -> Mapping[str, Fact]:
        """The plan to run, and how many others there are."""
        counts: dict[str, Fact] = {"num_fitting": self.num_fitting, "num_misfits": self.num_misfits}
        return {**counts, **self.priced.facts}

    def rows(self) -> Iterable[Mapping[str, Fact]]:
        """A row a plan."""
        return self.priced.rows()

    def to_dict(self) -> dict[str, Any]:
        """The document of ``evaluate --json``."""
        return self.priced.to_dict()

    def picture(self) -> Picture:
        """Memory against tokens a second, a point a plan."""
        rows = list(self.rows())
        points = Marks(
            [float(row["peak_memory_gib"] or 0.0) for row in rows],
            [float(row["throughput_tokens_per_s"] or 0.0) for row in rows],
            hovers=[str(row["plan"]) for row in rows],
        )
        title = f"Plans of {self.priced.job.setting.model} on {self.priced.job.setting.machine}"
        axes = PlotAxis("peak memory of a device, GiB"), PlotAxis("tokens/s", is_from_zero=True)
        return Picture(title, (points,), *axes)


@with_keywords
def evaluate(*, asked: EvaluateOptions, sensitivity: bool = False, watch: KeptWords) -> PricedDesign:
    """Price training on one accelerator, designed or real; degrees that are given stay, the others are searched.

    ``sensitivity`` varies every assumption of a design over its range.
    """
    request = asked.request(_models(asked), has_range=asked.shown.has_range, with_sensitivity=sensitivity)
    return replace(_priced(request, watch, baseline=asked.shown.baseline), top=asked.shown.top)


@with_keywords
def plans(*, asked: PlanOptions, watch: KeptWords) -> PlanList:
    """Rank every parallel plan of a model on one accelerator that the degrees given leave.

    Raises:
        InputError: several models or Phaze's placements are asked for, which have no list of plans.
    """
    request = asked.request(_models(asked), has_range=False, with_sensitivity=False)
    if len(request.models) > 1 or request.is_placed:
        message = "plans are of one model, and Phaze's placements have none; po.evaluate prices both"
        raise InputError(message, key="model" if len(request.models) > 1 else "plans")
    return PlanList(_priced(request, watch, baseline=""))


def _models(asked: PlanOptions) -> tuple[AnyModel, ...]:
    with said_of("model"):
        return named_models(asked.chip.model, source="--model", allow_unknown=asked.chip.allow_unknown)


def _priced(request: EvaluateRequest, watch: KeptWords, *, baseline: str) -> PricedDesign:
    job = price_job(request, watch)
    others = price_baselines(request, job, watch, names=baseline)
    beside = tuple(PricedDesign(each, replace(request, arch=each.setting.machine)) for each in others)
    notes = (*watch.sentences, *(note.sentence for note in job.notes))
    return PricedDesign(job, request, beside, notes)


def cost_facts(bill: Bill | None) -> dict[str, Fact]:
    """What a device and its cluster cost to buy, where known."""
    if bill is None:
        return {}
    return {each.name: getattr(bill, each.name) for each in headlines_of(Bill)}


def plan_words(plan: ParallelPlan) -> str:
    """A plan in a line."""
    return describe_plan(plan).removeprefix("plan: ")


def _plan_row(ranked: RankedPlan, setting: PriceSetting, *, is_to_run: bool) -> dict[str, Fact]:
    """A plan's words and degrees, its figures, and whether it is the one to run."""
    values: Mapping[str, Fact] = json.loads(json.dumps(field_values(ranked.plan)))
    return {
        "plan": plan_words(ranked.plan),
        **{name: values[name] for name in OF_DEGREES},
        "iteration_time_s": float(ranked.time.seconds),
        "throughput_tokens_per_s": float(setting.tokens_per_s(ranked.time)),
        "mfu": float(setting.mfu(ranked)),
        "peak_memory_gib": float(ranked.memory.peak_bytes) / 2**30,
        "is_to_run": is_to_run,
    }
