"""A finished search in tables and as a page: what to build, what it was chosen from, and what of it is proven."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby
from types import MappingProxyType
from typing import TYPE_CHECKING

from phaze_opt import __version__
from phaze_opt.certify.standing import TIED
from phaze_opt.jobs.machines_beside import ChipBeside, bills_in, dies_in
from phaze_opt.objective.evaluation import Evaluation, is_proven
from phaze_opt.objective.goals import Goal
from phaze_opt.objective.heterogeneous import HeterogeneousEvaluation, HeterogeneousStage
from phaze_opt.report.bill import bill_tables
from phaze_opt.report.certificate import format_gap
from phaze_opt.report.chip import chip_fields, chip_note, trained_fields
from phaze_opt.report.design import bound_words, evaluation_contents, limits_sentence, span
from phaze_opt.report.die import area_table, limits_table, power_table
from phaze_opt.report.document import ReportDocument
from phaze_opt.report.figures import search_pictures
from phaze_opt.report.pictures import amount_pictures, in_reading_order, picture_sections
from phaze_opt.report.plans import describe_plan
from phaze_opt.report.table import Column, Field, Fields, TableContent, number, pairs_table, table_of, words
from phaze_opt.report.text import counted, format_number, format_share, format_time, numbers_apart
from phaze_opt.search.result import OwnBest, SearchResult, Trial, rank
from phaze_opt.study.judging.scoring import front_regret
from phaze_opt.study.result import Truth, TruthKind

if TYPE_CHECKING:
    from phaze_opt.report.picture import Picture

NUM_RUNNERS_UP = 5
_WORTH = MappingProxyType({"analytic": "evaluate --sensitivity", "calibrated": "validate, evaluate --sensitivity"})
"""Commands that say what the package's own estimators are worth."""
_PLACED = "exact dynamic program, recomputed independently"
_PLANNED = "the fastest that the options leave: degrees, stage cuts, recomputation; exact program"


def standing_table(
    result: SearchResult, *, space_size: int | None = None, optimum: Truth | None = None
) -> TableContent:
    """What is certified about the best design, and what is not.

    Args:
        result: the finished search.
        space_size: points of the space, if known.
        optimum: the best value of the space, if a study or a certificate has it.
    """
    best = result.best
    rows: list[tuple[str, str, str]] = []
    if best is not None:
        rows = [_schedules_standing(best), _plan_standing(best)]
    if best is not None and optimum is not None:
        rows.append(_known_standing(result, optimum))
    else:
        rows.append(_search_standing(result, space_size=space_size))
    rows.append(_estimates_standing(best))
    columns = (Column("what"), Column("standing"), Column("how it is known"))
    return TableContent("What is certified, and what is not", columns, tuple(rows))


def standing_words(result: SearchResult, *, space_size: int | None = None, optimum: Truth | None = None) -> str:
    """Whether it is proven that the best design is the best of the space, or that the front is its front."""
    row = _search_standing(result, space_size=space_size)
    if result.best is not None and optimum is not None:
        row = _known_standing(result, optimum)
    what, standing, how = row
    begins = {"proven": f"it is proven to be the {what}", "not attained": f"it is not the {what}"}
    return f"{begins.get(standing, f'it is not proven to be the {what} (`certify` proves one)')}: {how}"


def _estimates_standing(best: Evaluation | None) -> tuple[str, str, str]:
    name = (best.provenance.estimator if best is not None else "") or "analytic"
    worth = f"its assumptions and what they are worth: {_WORTH[name]}" if name in _WORTH else "of another package"
    return ("estimates", "model", f"{name}; {worth}")


def _schedules_standing(best: Evaluation) -> tuple[str, str, str]:
    schedules = [schedule for part in (best, *best.members) for schedule in part.schedules]
    num_proven = sum(is_proven(schedule.gap) for schedule in schedules)
    if num_proven == len(schedules):
        return ("operator schedules", "proven", f"all {len(schedules)} meet their lower bound")
    gap = format_share(max(schedule.gap for schedule in schedules))
    how = f"{num_proven} of {len(schedules)} meet their lower bound; largest gap {gap}"
    return ("operator schedules", "bounded", how)


def _plan_standing(best: Evaluation) -> tuple[str, str, str]:
    what, how = ("plan", _PLANNED) if best.is_planned else ("placement", _PLACED)
    return (what, "proven", how) if is_proven(best.rate_gap) else (what, "bounded", bound_words(best))


def _known_standing(result: SearchResult, optimum: Truth) -> tuple[str, str, str]:
    """The best of the search against the best of the space."""
    source = "a certificate" if optimum.kind is TruthKind.CERTIFIED else "an enumeration"
    if optimum.front:
        missed = front_regret(Goal.PARETO, [trial.values for trial in result.pareto_front], optimum.front)
        designs = f"{source} in this directory has {counted(len(optimum.front), 'design')} on it"
        how = f"{designs}; hypervolume missed {format_gap(missed)}"
        return ("front of the space", "proven" if missed <= TIED else "not attained", how)
    short = 1.0 - result.trials[result.best_number].values[0] / optimum.value
    if short > TIED:
        how = f"{source} in this directory knows a better one: this one falls {format_gap(short)} short of it"
        return ("best of the space", "not attained", how)
    than = "none is better" if optimum.gap <= TIED else f"none is more than {format_gap(optimum.gap)} better"
    return ("best of the space", "proven", f"by {source} in this directory: {than}")


def _search_standing(result: SearchResult, *, space_size: int | None) -> tuple[str, str, str]:
    tried = counted(result.distinct_evaluations, "distinct design")
    if space_size is not None:
        if result.distinct_evaluations >= space_size:
            how = "its only design was evaluated" if space_size == 1 else f"all {space_size:,} designs were evaluated"
            return _evaluated_standing(result, how)
        if result.is_pruning_safe and result.distinct_evaluations + result.pruned >= space_size:
            how = f"{tried} evaluated, the other {result.pruned:,} ruled out by their bounds"
            return _evaluated_standing(result, how)
        tried += f" of {space_size:,}"
    return ("best of the space", "not proven", f"{tried} evaluated; a better one may exist")


def _evaluated_standing(result: SearchResult, how: str) -> tuple[str, str, str]:
    """The best of designs that were all evaluated or ruled out, as far as their schedules are solved."""
    if is_proven(result.open_gap):
        return ("best of the space", "proven", how)
    left = f"up to {format_share(result.open_gap)}" if math.isfinite(result.open_gap) else "the choice open"
    return ("best of the space", "bounded", f"{how}, but open schedules leave {left}")


def effort_table(result: SearchResult, later_s: Mapping[str, float] | None = None) -> TableContent:
    """What the search did and cost, and what was found of its best design after it, by name and seconds."""
    statuses = Counter(record.evaluation.status.value.replace("_", " ") for record in result.trials)
    outcomes = ", ".join(f"{count} {status}" for status, count in statuses.most_common())
    natural = "nothing left to propose" if result.is_exhausted else "budget spent"
    ending = "interrupted" if result.is_interrupted else natural
    placed = "programs over plans" if any(each.evaluation.is_planned for each in result.trials) else "placements"
    rows = [
        ("trials", f"{result.evaluations:,} ({result.distinct_evaluations:,} distinct), {ending}"),
        ("outcomes", outcomes or "none"),
        ("solved", f"{result.ilp_solves:,} schedule ILPs, {result.placements:,} {placed}"),
        ("time", format_time(result.wall_s)),
        *((f"then {name}", format_time(seconds)) for name, seconds in (later_s or {}).items()),
    ]
    if result.probes or result.pruned:
        rows.insert(3, ("looked at", f"{counted(result.probes, 'probe')}, {result.pruned:,} pruned"))
    return pairs_table("Search", tuple(rows))


def runners_up_table(result: SearchResult) -> TableContent:
    """The best distinct designs found, or the Pareto front where there are several objectives."""
    is_front = any(len(record.values) > 1 for record in result.trials)
    records = result.pareto_front[: 2 * NUM_RUNNERS_UP] if is_front else best_records(result.trials)
    title = "Pareto front" if is_front else "Best designs found"
    if is_front and len(result.pareto_front) > len(records):
        title += f" ({len(records)} of {len(result.pareto_front)})"
    is_common = any(record.evaluation.members for record in records)
    texts = numbers_apart([record.evaluation.throughput_samples_per_s for record in records])
    rates = dict(zip((record.number for record in records), texts, strict=True))
    fields: Fields[Trial[Evaluation]] = (
        number("trial", lambda trial: str(trial.number)),
        *trained_fields(lambda trial: trial.point, lambda trial: trial.evaluation),
        number("mean samples/s" if is_common else "samples/s", lambda trial: rates[trial.number]),
        number("mm2", lambda trial: format_number(trial.evaluation.area_mm2)),
        number("W", lambda trial: format_number(trial.evaluation.tdp_w)),
    )
    note = chip_note((record.point for record in records), has_micro_batch=True)
    return table_of(title, fields, records, note, emphasis=lambda trial: trial.number == result.best_number)


def best_records(records: Sequence[Trial[Evaluation]], count: int = NUM_RUNNERS_UP) -> tuple[Trial[Evaluation], ...]:
    """The best distinct feasible trials by their first objective."""
    feasible = [record for record in records if record.values and not record.is_repeat]
    return tuple(sorted(feasible, key=rank)[:count])


def search_contents(
    result: SearchResult,
    *,
    references: Mapping[str, Evaluation],
    space_size: int | None = None,
    optimum: Truth | None = None,
    own: Sequence[OwnBest] = (),
    later_s: Mapping[str, float] | None = None,
) -> list[TableContent]:
    """The best design as `evaluation_contents` has it, then the field it was chosen from and what is proven."""
    contents = [] if result.best is None else evaluation_contents(result.best, references=references)
    contents = [content for content in contents if not content.title.startswith("Operator schedules")]
    contents += own_contents(own) if own else []
    if any(record.values for record in result.trials):
        contents.append(runners_up_table(result))
    return [*contents, effort_table(result, later_s), standing_table(result, space_size=space_size, optimum=optimum)]


def own_contents(own: Sequence[OwnBest]) -> list[TableContent]:
    """What each model of a common design would get from a chip of its own, and those chips."""
    model: Field[OwnBest] = words("model", lambda each: each.own.model)
    gains: Fields[OwnBest] = (
        model,
        number("samples/s here", lambda each: format_number(each.common.throughput_samples_per_s)),
        number("own best", lambda each: format_number(each.own.throughput_samples_per_s)),
        number("share", lambda each: format_share(each.share)),
        number("own W", lambda each: format_number(each.own.tdp_w)),
    )
    chips: Fields[OwnBest] = (model, *trained_fields(lambda each: each.point, lambda each: each.own))
    more = format_time(sum(each.wall_s for each in own))
    note = (
        "own best: the same search for the model alone, or a design met here; share: what this design attains of it, "
        f"by the goal; these searches took {more} more"
    )
    return [
        table_of("What each model's own best chip gives", gains, own, note),
        table_of(
            "Each model's own best chip", chips, own, chip_note((each.point for each in own), has_micro_batch=True)
        ),
    ]


def heterogeneous_contents(found: HeterogeneousEvaluation) -> list[TableContent]:
    """What the pipeline is worth, then its stages."""
    return [heterogeneous_table(found), heterogeneous_stages_table(found)]


def heterogeneous_table(found: HeterogeneousEvaluation) -> TableContent:
    """Throughput, power and area, beside the best one design for all stages among the same candidates."""
    placement = found.placement
    degrees = (
        f"tensor {placement.tensor_parallel} x pipeline {len(placement.stages)} x data {placement.data_parallel}, "
        f"micro-batch {found.micro_batch}"
    )
    rows = (
        ("throughput", f"{format_number(found.throughput_samples_per_s)} samples/s"),
        ("against the best one design", _gain(found.gain)),
        ("throughput/TDP", f"{format_number(found.throughput_per_tdp)} samples/s/W"),
        ("against that one design", _gain(found.gain_per_tdp)),
        ("TDP, mean of stages", f"{format_number(found.mean_tdp_w)} W"),
        ("area, mean of stages", f"{format_number(found.mean_area_mm2)} mm2"),
        ("area, largest stage", f"{format_number(found.largest_area_mm2)} mm2"),
        ("designs", f"{found.num_designs} of {found.num_candidates} candidates, the designs of this search"),
        *((("degrees", degrees),) if placement.plan is None else ()),
    )
    said = [] if placement.plan is None else [describe_plan(placement.plan)]
    said += ["no mix of these designs is faster than one of them"] if found.num_designs == 1 else []
    exact = "placement" if placement.plan is None else "plan"
    said.append(f"{exact} and design of every stage are the fastest by the schedules found, priced again by other code")
    return pairs_table("Heterogeneous pipeline", rows, note="; ".join(said))


def heterogeneous_stages_table(found: HeterogeneousEvaluation) -> TableContent:
    """One line for every run of stages that are alike."""
    numbered = enumerate(found.stages, start=1)
    alike = groupby(numbered, key=lambda entry: (entry[1].point, entry[1].layers, entry[1].stage.time_s))
    fields: Fields[list[tuple[int, HeterogeneousStage]]] = (
        words("stages", lambda run: span(run[0][0], run[-1][0])),
        words("layers", lambda run: _layers(run[0][1])),
        *chip_fields(lambda run: run[0][1].point),
        number("time", lambda run: format_time(run[0][1].stage.time_s)),
        number("mm2", lambda run: format_number(run[0][1].area_mm2)),
        number("W", lambda run: format_number(run[0][1].tdp_w)),
    )
    note = f"{chip_note(stage.point for stage in found.stages)}; time: of one micro-batch"
    return table_of("Design of every stage", fields, (list(run) for _, run in alike), note)


def _layers(stage: HeterogeneousStage) -> str:
    return ", ".join(name if count == 1 else f"{count} x {name}" for name, count in stage.layers)


def _gain(gain: float) -> str:
    """``+1.2 %``, or that there is nothing to compare with."""
    if math.isinf(gain):
        return "no candidate fits alone"
    return f"{'+' if gain >= 0 else '-'}{format_share(abs(gain))}"


def search_document(
    result: SearchResult,
    *,
    title: str,
    goal: str,
    references: Mapping[str, Evaluation],
    extra_figures: Mapping[str, Picture] | None = None,
    first: Sequence[TableContent] = (),
    space_size: int | None = None,
    optimum: Truth | None = None,
    pipeline: HeterogeneousEvaluation | None = None,
    own: Sequence[OwnBest] = (),
    lead: Sequence[str] = (),
    details: Sequence[str] = (),
    later_s: Mapping[str, float] | None = None,
    beside: Sequence[ChipBeside] = (),
) -> ReportDocument:
    """The page of a search: the answer, its pictures, then every table.

    Args:
        result: the finished search.
        title: heading of the page.
        goal: of the search: throughput, throughput_per_tdp or pareto.
        references: evaluations of the reference machines by name.
        extra_figures: further figures by file name (schedule Gantt, pipeline timeline).
        first: tables of the answer.
        space_size: points of the space, if known.
        optimum: the best value of the space, if a study or a certificate has it.
        pipeline: the best one of one design per stage, if asked for.
        own: for each model of a common design its own best chip.
        lead: sentences at the top.
        details: what they rest on.
        later_s: what took how long after the search.
        beside: the best design and the machines.
    """
    found = search_pictures(
        result.trials, goal=goal, references=references, front=result.pareto_front, best=result.best
    )
    dies, bills = dies_in(beside), bills_in(beside)
    contents = search_contents(
        result, references=references, space_size=space_size, optimum=optimum, own=own, later_s=later_s
    )
    contents += [] if pipeline is None else heterogeneous_contents(pipeline)
    contents += [area_table(dies), power_table(dies), limits_table(dies)] if dies else []
    contents += bill_tables(bills)
    limits = "Nothing feasible was found." if result.best is None else limits_sentence(result.best)
    figures = {**in_reading_order({**found, **amount_pictures(dies, bills)}), **(extra_figures or {})}
    return ReportDocument(
        title,
        picture_sections(first, figures, contents, (*details, limits)),
        lead=tuple(filter(None, lead)) or (limits,),
        footer=(("phaze-opt", __version__), ("search", result.search_id)),
    )
