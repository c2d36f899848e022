"""The one line of JSON of ``evaluate``: the same keys for designed chips and machines that exist."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from phaze_opt.cost.stacks import measured_rows, unmeasured_parts
from phaze_opt.hardware.silicon.die_report import die_to_json
from phaze_opt.jobs.evaluate_request import EvaluateRequest
from phaze_opt.jobs.machines_beside import rate_of
from phaze_opt.jobs.priced_job import PricedJob, RankedJob, throughput_ratio
from phaze_opt.objective.caveats import notes_to_json
from phaze_opt.objective.evaluation import evaluation_to_json
from phaze_opt.objective.priced_as import PriceSetting, priced_as, priced_to_json
from phaze_opt.plan.plan_search import PlanRanking, RankedPlan
from phaze_opt.record.plain_data import field_values
from phaze_opt.report.answer import fastest_sentence, gain_of_fastest, range_to_json
from phaze_opt.report.bill import bill_to_json
from phaze_opt.report.die import SAME_SOFTWARE


def answer_to_json(answer: PricedJob, *, top: int) -> dict[str, Any]:
    """An answer alone; ``top`` says how many plans."""
    ranking = None if answer.plans is None else answer.plans.ranking
    members = {"members": [answer_to_json(each, top=top) for each in answer.members]} if answer.members else {}
    return {
        **evaluation_to_json(answer.evaluation),
        **members,
        **({} if answer.recipe is None else {"sparsity": answer.recipe.to_json()}),
        "range": range_to_json(answer.headline),
        "die": None if answer.die is None else die_to_json(answer.die),
        "cost": bill_to_json(answer.bill, unsaid=answer.unbilled),
        "notes": notes_to_json(answer.notes),
        "setting": asdict(answer.setting),
        "num_fitting": None if ranking is None else len(ranking.ranked),
        "num_misfits": None if ranking is None else ranking.num_misfits,
        "num_dominated": None if ranking is None else len(ranking.beaten),
        "dominated": [] if ranking is None else beaten_to_json(ranking, top=top),
        "plans": [] if answer.plans is None else plans_to_json(answer.plans, answer.setting, top=top),
        **_named_plans(answer),
    }


def _named_plans(answer: PricedJob) -> dict[str, dict[str, Any] | None]:
    """The plan that all figures are of, and the fastest with what it would gain; of none that fits, nothing."""
    plans, setting = answer.plans, answer.setting
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
    document = answer_to_json(answer, top=top) | {"baselines": baselines_to_json(answer, baselines)}
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
        answer_to_json(each, top=1)
        | {
            "name": each.setting.machine,
            SAME_SOFTWARE: None if each.same_software is None else rate_of(each.same_software.evaluation),
            "throughput_ratio": throughput_ratio(each.evaluation, answer.evaluation),
        }
        for each in baselines
    ]
