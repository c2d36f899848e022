"""``phaze-opt evaluate``: one accelerator on one model, as tables or as one line of JSON."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from phaze_opt.cli.options import DetailsOption, JsonOption, ReportOption, with_options
from phaze_opt.cli.output import (
    check_file_to_write,
    end_infeasible,
    out,
    print_answer,
    print_bills,
    print_json,
    print_more,
    print_notes,
    print_priced,
    print_tables,
    say,
)
from phaze_opt.cli.progress import TerminalWatch
from phaze_opt.jobs.evaluate_request import EvaluateOptions
from phaze_opt.jobs.options import RECORDS
from phaze_opt.jobs.scenario import named_models
from phaze_opt.jobs.watch import spared

if TYPE_CHECKING:
    from phaze_opt.jobs.evaluate_request import EvaluateRequest
    from phaze_opt.jobs.priced_job import PricedJob, RankedJob
    from phaze_opt.report.answer import ShortAnswer
    from phaze_opt.report.table import TableContent


@with_options
def evaluate(
    *,
    asked: EvaluateOptions,
    sensitivity: Annotated[
        bool,
        typer.Option(
            "--sensitivity",
            help="Vary every assumption of a design over its range and show what changes.",
            rich_help_panel=RECORDS,
        ),
    ] = False,
    report: ReportOption = None,
    details: DetailsOption = False,
    json: JsonOption = False,
) -> None:
    """Price training on one accelerator, designed or real: its parallel plans, and where the time of the best goes.

    Degrees of a plan that are given stay, the others are searched. A machine that exists has the software measured on
    it, or the nearest one.
    """
    from phaze_opt.jobs.evaluate import price_baselines, price_job
    from phaze_opt.report.priced_job import job_to_json

    check_file_to_write(report, option="--report", example="evaluate.html")
    shown, models = (
        asked.shown,
        named_models(asked.chip.model, source="--model", allow_unknown=asked.chip.allow_unknown),
    )
    request = asked.request(models, has_range=shown.has_range, with_sensitivity=sensitivity)
    watch = TerminalWatch()
    answer = price_job(request, watch)
    baselines = price_baselines(request, answer, watch, names=shown.baseline)
    if json:
        print_json(job_to_json(request, answer, baselines, top=shown.top))
    else:
        _print_answer(answer, request, baselines, top=shown.top, is_detailed=details)
    if report is not None and answer.evaluation.is_feasible:
        with spared("the page of --report", watch):
            _write_page(report, answer, request, baselines, top=shown.top)
            say(f"report: {report}")
    if not answer.evaluation.is_feasible:
        end_infeasible(answer.evaluation.reason)


def _print_answer(
    answer: PricedJob, request: EvaluateRequest, baselines: Sequence[PricedJob], *, top: int, is_detailed: bool
) -> None:
    """What a person sees: the answer, then what it comes from if that is asked for."""
    from phaze_opt.objective.priced_as import priced_as

    compared = _compared(answer, baselines)
    if answer.evaluation.is_feasible:
        first = _first_of(answer, request, baselines, compared, top=top)
        print_answer(first)
    if is_detailed:
        _print_details(answer, request, top=top, has_plans=not compared)
    elif answer.sensitivity:
        _print_sensitivity(answer)
    if answer.evaluation.is_feasible:
        print_priced(priced_as(request.models, request.scenario.sequence_length), is_told=is_detailed)
        print_more(*first.more, is_detailed=is_detailed)


def _compared(answer: PricedJob, baselines: Sequence[PricedJob]) -> list[TableContent]:
    """The job and its money on the answer's machine and on the baselines; none where there are none."""
    from phaze_opt.report.baselines import baselines_table, money_table

    others = [each.contestant for each in baselines]
    if not others:
        return []
    money = money_table([answer.contestant, *others])
    job = baselines_table(answer.contestant, others, has_dies=answer.die is not None)
    return [job] if money is None else [job, money]


def _write_page(
    path: Path, answer: PricedJob, request: EvaluateRequest, baselines: Sequence[PricedJob], *, top: int
) -> None:
    """The page of --report: the answer as it is printed, its pictures beside the baselines', and all tables."""
    from phaze_opt.jobs.evaluate_chip import reference_evaluations
    from phaze_opt.report.page import write_report
    from phaze_opt.report.pictures import Pictured, evaluation_document

    evaluation, machine = answer.evaluation, answer.setting.machine
    references = reference_evaluations(request, evaluation) if not answer.is_by_plans else {}
    first = _first_of(answer, request, baselines, _compared(answer, baselines), top=top)
    pictured = [Pictured(each.setting.machine, each.evaluation, each.die, each.bill) for each in (answer, *baselines)]
    if not baselines:
        pictured += [Pictured(name, each) for name, each in references.items() if name != machine]
    title = f"{answer.setting.model} on {answer.setting.num_devices:,} {machine}"
    write_report(path, evaluation_document(title, first, pictured, references))


def _first_of(
    answer: PricedJob,
    request: EvaluateRequest,
    baselines: Sequence[PricedJob],
    compared: Sequence[TableContent],
    *,
    top: int,
) -> ShortAnswer:
    """What is said first: of plans which to run, of several models their mean, of a placement what it attains."""
    from phaze_opt.jobs.evaluate_chip import reference_evaluations
    from phaze_opt.objective.recipe import phase_words, recipe_sentence
    from phaze_opt.objective.reference_machines import machines_of
    from phaze_opt.report import answer as words
    from phaze_opt.report.design import machine_note, members_table, performance_table
    from phaze_opt.report.plans import IDEAL_NOTE, launch_sentences, plans_table

    best, setting, plans = answer.evaluation, answer.setting, answer.plans
    held = {each.setting.machine: each.evaluation for each in baselines}
    notes = words.told_notes(answer.notes)
    training = (_money_words(answer, baselines), _run_words(answer, request))
    end = words.overturn_sentence(answer.headline, {name: each.throughput_samples_per_s for name, each in held.items()})
    times = words.times_sentence(best, setting.machine, held)
    if plans is None:
        own = members_table(best) if best.members else None
        if own is None:
            references = reference_evaluations(request, best)
            own = performance_table(best, references=references)
            others = {name: each for name, each in machines_of(references).items() if name != setting.machine}
            times = times or words.times_sentence(best, setting.machine, others)
        notes = (*notes, *(f"Note: {note}." for note in filter(None, [machine_note(best.accelerator)])))
        said = words.attained_sentence(best, setting.machine, setting.num_devices)
        return words.ShortAnswer((said, times, end, *training), tuple(compared) if compared else (own,), notes)
    notes = (*notes, f"Note: {IDEAL_NOTE}.") if setting.is_ideal else notes
    ranked, chosen = plans.ranking.ranked, plans.chosen
    table = plans_table(plans.ranking, setting, top=top, to_run=plans.to_run)
    near = words.told_apart_sentence(ranked, setting)
    launch = launch_sentences(plans.flags(chosen, setting))[:1] if setting.is_real else ()
    sparse, phase = "", ""
    if answer.recipe is not None:
        sparse, phase = recipe_sentence(answer.recipe), phase_words(answer.recipe)
    ran = f"{phase}{words.run_sentence(chosen, setting)}"
    beside = words.fastest_sentence(ranked, setting, plans.to_run)
    sentences = (ran, " ".join(filter(None, (times, near))), sparse, end, beside, *training)
    return words.ShortAnswer(sentences, tuple(compared) if compared else (table,), notes, launch)


def _money_words(answer: PricedJob, baselines: Sequence[PricedJob]) -> str:
    """Where a token costs least, of several machines."""
    from phaze_opt.report.baselines import money_sentence

    return money_sentence([answer.contestant, *(each.contestant for each in baselines)])


def _run_words(answer: PricedJob, request: EvaluateRequest) -> str:
    """What a training run takes where it is asked for: its days always, its cost or why that is not known."""
    from phaze_opt.hardware.economics.ownership import run_days
    from phaze_opt.report.bill import days_words, run_sentence

    if answer.bill is not None:
        return run_sentence(answer.bill, answer.headline)
    tokens, rate = (request.costs.tokens if request.costs else None), answer.evaluation.throughput_tokens_per_s
    if tokens is None or not answer.unbilled:
        return ""
    days = f"{days_words(tokens, run_days(tokens, rate), answer.headline)}. " if rate > 0.0 else ""
    return f"{days}W{answer.unbilled[1:]}."


def _print_sensitivity(answer: PricedJob) -> None:
    from phaze_opt.report.bill import prices_table
    from phaze_opt.report.design import sensitivity_content

    print_tables(sensitivity_content(answer.sensitivity))
    if answer.price_rows and answer.bill is not None:
        print_tables(prices_table(answer.price_rows, answer.bill))


def _print_details(answer: PricedJob, request: EvaluateRequest, *, top: int, has_plans: bool) -> None:
    """All tables but that of plans if it is printed already, and what they rest on."""
    from phaze_opt.objective.recipe import PUBLISHED
    from phaze_opt.report.answer import is_told, range_sentence
    from phaze_opt.report.design import members_table, sensitivity_content
    from phaze_opt.report.die import area_table

    for each in answer.members or (answer,):
        if each.plans is not None and each.evaluation.is_feasible:
            _print_plans(each, each.plans, top=0 if has_plans and not answer.members else top)
    if answer.members and answer.evaluation.is_feasible:
        print_tables(members_table(answer.evaluation))
    if not answer.is_by_plans:
        _print_placement(answer, request)
    if answer.die is not None:
        print_tables(area_table({"mm2": answer.die}))
    _print_bill(answer)
    if answer.sensitivity:
        print_tables(sensitivity_content(answer.sensitivity))
    if answer.headline is not None:
        out().print(range_sentence(answer.headline))
    if answer.recipe is not None:
        out().print(f"{PUBLISHED[0].upper()}{PUBLISHED[1:]}.")
    if not answer.is_by_plans:
        print_notes([note for note in answer.notes if not is_told(note)])


def _print_bill(answer: PricedJob) -> None:
    """What the cluster costs and which prices decide, or why that is not known."""
    from phaze_opt.report.bill import prices_table

    if answer.bill is None:
        if answer.unbilled:
            out().print(f"W{answer.unbilled[1:]}.")
        return
    print_bills({answer.setting.machine: answer.bill})
    if answer.price_rows:
        print_tables(prices_table(answer.price_rows, answer.bill))


def _print_placement(answer: PricedJob, request: EvaluateRequest) -> None:
    """Tables of a design with its placement, then one sentence on what limits it."""
    from phaze_opt.jobs.evaluate_chip import reference_evaluations
    from phaze_opt.report.design import evaluation_contents, limits_sentence

    evaluation = answer.evaluation
    print_tables(*evaluation_contents(evaluation, references=reference_evaluations(request, evaluation)))
    if evaluation.is_feasible:
        out().print(limits_sentence(evaluation))


def _print_plans(answer: PricedJob, plans: RankedJob, *, top: int) -> None:
    """Tables of plans (if any are to be shown), of the step and memory of the one to run, the machine; its launch."""
    from phaze_opt.report.design import time_shares
    from phaze_opt.report.plans import (
        alone_sentences,
        launch_sentences,
        machine_table,
        memory_table,
        plans_table,
        step_table,
    )

    screen, ranking, setting = out(), plans.ranking, answer.setting
    is_alone = len(ranking.ranked) == 1 and not ranking.num_misfits
    if top and not is_alone:
        print_tables(plans_table(ranking, setting, top=top, to_run=plans.to_run))
    best = plans.chosen
    shares = () if setting.is_real else time_shares(answer.evaluation.breakdown)
    causes = [(name, seconds) for name, seconds, _ in shares]
    print_tables(step_table(best, setting, causes), memory_table(best), machine_table(answer.evaluation, setting))
    # Nothing that exists runs a design.
    said = launch_sentences(plans.flags(best, setting)) if setting.is_real else ()
    for sentence in (*alone_sentences(best, setting), *said) if is_alone else said:
        screen.print(sentence)
    if setting.notes:
        screen.print("; ".join(setting.notes))
