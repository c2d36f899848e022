"""A finished search in tables: what to build, what it was chosen from, and what of it is proven."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from types import MappingProxyType

from phaze_opt.objective.evaluation import Evaluation
from phaze_opt.report.certificate import TIED, format_gap
from phaze_opt.report.content import Column, TableContent, pairs_table
from phaze_opt.report.design import PROVEN_GAP
from phaze_opt.report.text import format_mib, format_number, format_share, format_time
from phaze_opt.search.result import SearchResult
from phaze_opt.search.trial import Trial, rank
from phaze_opt.study.result import Truth, TruthKind
from phaze_opt.units import bytes_to_gib

NUM_RUNNERS_UP = 5
_WORTH = MappingProxyType({"analytic": "evaluate --sensitivity", "calibrated": "validate, evaluate --sensitivity"})
"""Commands that say what the package's own estimators are worth."""


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
        rows = [_schedules_standing(best), ("placement", "proven", "exact dynamic program, recomputed independently")]
    if best is not None and optimum is not None:
        rows.append(_known_standing(result, optimum))
    else:
        rows.append(_search_standing(result, space_size=space_size))
    rows.append(_estimates_standing(best))
    columns = (Column("what"), Column("standing"), Column("how it is known"))
    return TableContent("What is certified, and what is not", columns, tuple(rows))


def _estimates_standing(best: Evaluation | None) -> tuple[str, str, str]:
    name = (best.provenance.estimator if best is not None else "") or "analytic"
    worth = f"its assumptions and what they are worth: {_WORTH[name]}" if name in _WORTH else "of another package"
    return ("estimates", "model", f"{name}; {worth}")


def _schedules_standing(best: Evaluation) -> tuple[str, str, str]:
    schedules = [schedule for part in (best, *best.members) for schedule in part.schedules]
    num_proven = sum(1 for schedule in schedules if schedule.gap <= PROVEN_GAP)
    if num_proven == len(schedules):
        return ("operator schedules", "proven", f"all {len(schedules)} meet their lower bound")
    bound = format_number(best.throughput_bound_samples_per_s)
    how = (
        f"{num_proven} of {len(schedules)} meet their lower bound; largest gap {format_share(best.schedule_gap)}, "
        f"so this placement reaches at most {bound} samples/s"
    )
    return ("operator schedules", "bounded", how)


def _known_standing(result: SearchResult, optimum: Truth) -> tuple[str, str, str]:
    """The best of the search against the best of the space."""
    source = "a certificate" if optimum.kind is TruthKind.CERTIFIED else "an enumeration"
    short = 1.0 - result.trials[result.best_number].values[0] / optimum.value
    if short > TIED:
        how = f"{source} in this directory knows a better one: this one falls {format_gap(short)} short of it"
        return ("best of the space", "not attained", how)
    than = "none is better" if optimum.gap <= TIED else f"none is more than {format_gap(optimum.gap)} better"
    return ("best of the space", "proven", f"by {source} in this directory: {than}")


def _search_standing(result: SearchResult, *, space_size: int | None) -> tuple[str, str, str]:
    tried = f"{result.distinct_evaluations:,} distinct designs"
    if space_size is not None:
        if result.distinct_evaluations >= space_size:
            return ("best of the space", "proven", f"all {space_size:,} designs were evaluated")
        if result.is_pruning_safe and result.distinct_evaluations + result.pruned >= space_size:
            how = f"{tried} evaluated, the other {result.pruned:,} ruled out by their bounds"
            return ("best of the space", "proven", how)
        tried += f" of {space_size:,}"
    return ("best of the space", "not proven", f"{tried} evaluated; a better one may exist")


def effort_table(result: SearchResult) -> TableContent:
    """What the search did and cost."""
    statuses = Counter(record.evaluation.status.value.replace("_", " ") for record in result.trials)
    outcomes = ", ".join(f"{count} {status}" for status, count in statuses.most_common())
    natural = "nothing left to propose" if result.is_exhausted else "budget spent"
    ending = "interrupted" if result.is_interrupted else natural
    rows = [
        ("trials", f"{result.evaluations:,} ({result.distinct_evaluations:,} distinct), {ending}"),
        ("outcomes", outcomes or "none"),
        ("solved", f"{result.ilp_solves:,} schedule ILPs, {result.placements:,} placements"),
        ("time", format_time(result.wall_s)),
    ]
    if result.probes or result.pruned:
        rows.insert(3, ("looked at", f"{result.probes:,} probes, {result.pruned:,} pruned"))
    return pairs_table("Search", tuple(rows))


def runners_up_table(result: SearchResult) -> TableContent:
    """The best distinct designs found, or the Pareto front where there are several objectives."""
    is_front = any(len(record.values) > 1 for record in result.trials)
    records = result.pareto_front[: 2 * NUM_RUNNERS_UP] if is_front else best_records(result.trials)
    title = "Pareto front" if is_front else "Best designs found"
    if is_front and len(result.pareto_front) > len(records):
        title += f" ({len(records)} of {len(result.pareto_front)})"
    headings = ("TC", "VC", "GLB", "HBM GB", "mb", "samples/s", "mm2", "W")
    columns = (Column("trial", is_number=True), *(Column(heading, is_number=True) for heading in headings))
    is_best = [record.number == result.best_number for record in records]
    emphasised = frozenset(index for index, flag in enumerate(is_best) if flag)
    note = "TC: cores x width x depth; VC: cores x lanes; mb: samples a micro-batch"
    return TableContent(title, columns, tuple(_record_row(record) for record in records), note, emphasised)


def best_records(records: Sequence[Trial[Evaluation]], count: int = NUM_RUNNERS_UP) -> tuple[Trial[Evaluation], ...]:
    """The best distinct feasible trials by their first objective."""
    feasible = [record for record in records if record.values and not record.is_repeat]
    return tuple(sorted(feasible, key=rank)[:count])


def _record_row(record: Trial[Evaluation]) -> tuple[str, ...]:
    point, evaluation = record.point, record.evaluation
    return (
        str(record.number),
        f"{point.num_tc}x{point.tc_width}x{point.tc_depth}",
        f"{point.num_vc}x{point.vc_width}",
        format_mib(point.glb_bytes),
        f"{bytes_to_gib(point.hbm_bytes):g}",
        str(point.micro_batch),
        format_number(evaluation.throughput_samples_per_s),
        format_number(evaluation.area_mm2),
        format_number(evaluation.tdp_w),
    )
