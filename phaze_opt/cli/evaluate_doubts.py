"""What an answer of ``evaluate`` hangs on: every assumption varied, and the range of its figure."""

from dataclasses import replace

from phaze_opt.cli.evaluate_chip import load_chip_scenario
from phaze_opt.cli.evaluate_request import EvaluateRequest
from phaze_opt.cli.output import working
from phaze_opt.cli.priced_job import PricedJob, RankedJob
from phaze_opt.hardware.constants import load_constants
from phaze_opt.hardware.fitted import load_fitted
from phaze_opt.hardware.presets import load_architecture
from phaze_opt.objective.evaluate import Objective
from phaze_opt.objective.headline_range import (
    OTHER_SOFTWARE,
    HeadlineRange,
    other_software,
    range_of_design,
    range_of_prices,
)
from phaze_opt.objective.sensitivity import SensitivityCase, SensitivityRow, analyse_sensitivity
from phaze_opt.plan.plan_search import rank_plans


def vary_assumptions(request: EvaluateRequest, answer: PricedJob) -> tuple[SensitivityRow, ...]:
    """The sensitivity table of one architecture, with progress on standard error."""
    case = SensitivityCase(
        scenario=load_chip_scenario(request, constants=load_constants()),
        build_accelerator=lambda constants: load_architecture(request.arch, constants=constants),
        micro_batch=answer.evaluation.micro_batch,
        network_name=request.scenario.network,
    )
    with working("varying every assumption over its range"):
        return tuple(analyse_sensitivity(case))


def find_range(request: EvaluateRequest, answer: PricedJob) -> HeadlineRange | None:
    """The range of the answer's throughput; None of several models on a machine that exists."""
    if request.is_placed or request.device is None:
        scenario = load_chip_scenario(request, constants=load_constants())
        known = scenario.constants_of()
        with working("pricing the design under each doubt"):
            return range_of_design(
                Objective(scenario, constants=known),
                lambda constants: load_architecture(request.arch, constants=constants),
                value=answer.evaluation.throughput_samples_per_s,
                micro_batch=answer.evaluation.micro_batch,
            )
    return None if answer.plans is None else _range_of_plan(answer, answer.plans, request)


def _range_of_plan(answer: PricedJob, plans: RankedJob, request: EvaluateRequest) -> HeadlineRange:
    """The range of the best plan of a real machine: the same plan under other software, where it fits."""
    job, best = plans.job, plans.ranking.ranked[0]
    fitted = load_fitted(request.machine.constants)
    prices = {}
    for name in OTHER_SOFTWARE:
        if name == job.machine.stack.name:
            continue
        machine = replace(job.machine, stack=other_software(job.machine.stack, name, fitted))
        ranked = rank_plans(job.model, job.training, [best.plan], machine=machine).ranked
        if ranked:
            prices[name] = job.training.global_batch / ranked[0].time.seconds
    return range_of_prices(
        answer.evaluation.throughput_samples_per_s,
        error=answer.setting.error_share,
        error_words="of steps kept out of the fit",
        alternatives={"software": prices},
    )
