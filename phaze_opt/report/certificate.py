"""A certificate in words and tables: what is proved, the best designs, how flat the top is."""

from __future__ import annotations

import csv
import dataclasses
import io
from collections import Counter
from dataclasses import dataclass

import numpy as np

from phaze_opt.certify.certificate import BOUND_SLACK, POINTS_FILE, Claim
from phaze_opt.certify.check.report import CheckReport
from phaze_opt.certify.prove import read_values
from phaze_opt.certify.result import CertifyProgress, CertifyResult, RankedDesign
from phaze_opt.hardware.template import DesignPoint
from phaze_opt.objective.goals import Goal
from phaze_opt.objective.scenario import CommonMean, Scenario
from phaze_opt.report.content import Column, TableContent
from phaze_opt.report.goal_values import UNITS, format_value, shown_value
from phaze_opt.report.text import format_mib, format_number, format_percentage, format_time
from phaze_opt.units import bytes_to_gib

TIED = 4.0 * BOUND_SLACK
"""Relative difference up to which two values are the same: bounds are widened by `BOUND_SLACK` for rounding."""
LEAST_SHOWN = 1e-5
"""Gaps below this are shown as below it."""
MAX_HISTORY_ROWS = 12
"""Rows of the table of gap over time; a longer history is thinned."""
COMMON_MEANS = {
    CommonMean.ARITHMETIC: "arithmetic mean",
    CommonMean.GEOMETRIC: "geometric mean",
    CommonMean.WORST: "the model worst off",
}
INFEASIBLE = {"no placement fits the memory": "that no placement fits into the memory"}
"""Reasons of the table that do not read as part of a sentence."""


@dataclass(frozen=True, slots=True)
class Ties:
    """How many points attain the best value: ``at_least`` by their solutions, ``at_most`` by their bounds."""

    at_least: int
    at_most: int


def count_ties(result: CertifyResult) -> Ties:
    """How many points attain the incumbent's value, from the certificate's table.

    Raises:
        InputError: the table cannot be read.
    """
    claim = result.certificate.claim
    if not claim.is_feasible:
        return Ties(0, 0)
    known = read_values(result.certificate, result.directory)
    least = claim.value * (1.0 - TIED)
    return Ties(int(np.count_nonzero(known.values >= least)), int(np.count_nonzero(known.values_upper >= least)))


def claim_sentence(result: CertifyResult) -> str:
    """One sentence: what is proved, or how far it is."""
    certificate, claim = result.certificate, result.certificate.claim
    what = _describe_problem(certificate.scenario)
    if not claim.is_feasible:
        return f"Proved: none of the {claim.num_points:,} points of this space is feasible for {what}."
    goal = certificate.goal
    attained = f"this design attains {format_value(goal, claim.value)} {UNITS[goal]} for {what}"
    of_all = f"of all {claim.num_points:,} points"
    if claim.gap <= TIED:
        return f"Proved: {of_all} none is better than this one; {attained}."
    bound = f"none exceeds {format_value(goal, claim.value_upper)} (gap {format_gap(claim.gap)})"
    if claim.is_proved:
        return f"Proved within {format_gap(claim.tolerance)}: {attained}, and {of_all} {bound}."
    return f"Not proved within {format_gap(claim.tolerance)}: {attained}; {of_all} {bound}."


def _describe_problem(scenario: Scenario) -> str:
    """Models with the mean over them, devices, and the budgets of a chip."""
    names = ", ".join(model.name for model in scenario.models)
    mean = f" ({COMMON_MEANS[scenario.common]})" if len(scenario.models) > 1 else ""
    budgets = [
        f"{budget:g} {unit}"
        for budget, unit in ((scenario.max_area_mm2, "mm2"), (scenario.max_tdp_w, "W of TDP"))
        if budget is not None
    ]
    within = f", within {' and '.join(budgets)} a chip" if budgets else ""
    return f"{names}{mean} on {scenario.cluster.num_devices:,} devices{within}"


def infeasible_sentence(result: CertifyResult) -> str:
    """How many points are proved infeasible, by their reasons; empty if none is.

    Raises:
        OSError: the certificate's table cannot be read.
    """
    from pyarrow.parquet import read_table

    reasons = read_table(result.directory / POINTS_FILE, columns=["reason"]).column("reason").to_pylist()
    counts = Counter(reason for reason in reasons if reason)
    if not counts:
        return ""
    parts = ", ".join(f"{count:,} {INFEASIBLE.get(reason, reason)}" for reason, count in counts.most_common())
    return f"Proved infeasible: {parts}."


def ties_sentence(ties: Ties) -> str:
    """How many designs share the first place; empty if it is one alone."""
    if ties.at_most <= 1:
        return "No other design attains it."
    if ties.at_least == ties.at_most:
        return f"{ties.at_least:,} designs tie for best; the first is the one of least area."
    others = f"between {ties.at_least:,} and {ties.at_most:,} designs"
    return f"{others[0].upper()}{others[1:]} tie for best, as far as the proof goes."


def best_table(result: CertifyResult) -> TableContent:
    """The best designs; ties share a rank."""
    is_per_tdp = result.certificate.goal is Goal.THROUGHPUT_PER_TDP
    goal = result.certificate.goal
    figures = (UNITS[goal], "samples/s" if is_per_tdp else "mm2")
    headings = ("rank", "TC", "VC", "GLB", "HBM GB", "mb", *figures, "W")
    columns = tuple(Column(heading, is_number=True) for heading in headings)
    rows = tuple(_best_row(design, is_per_tdp=is_per_tdp) for design in result.best)
    emphasised = frozenset(row for row, design in enumerate(result.best) if design.rank == 1)
    note = "TC: cores x width x depth; VC: cores x lanes; mb: samples a micro-batch; ties share a rank"
    return TableContent(f"Best {len(rows)} designs", columns, rows, note, emphasised)


def _best_row(design: RankedDesign, *, is_per_tdp: bool) -> tuple[str, ...]:
    point, evaluation = design.point, design.evaluation
    rate = format_number(evaluation.throughput_samples_per_s)
    per_kilowatt = f"{shown_value(Goal.THROUGHPUT_PER_TDP, design.value):,.4g}"
    figures = (per_kilowatt, rate) if is_per_tdp else (rate, format_number(evaluation.area_mm2))
    return (
        str(design.rank),
        f"{point.num_tc}x{point.tc_width}x{point.tc_depth}",
        f"{point.num_vc}x{point.vc_width}",
        format_mib(point.glb_bytes),
        f"{bytes_to_gib(point.hbm_bytes):g}",
        str(point.micro_batch),
        *figures,
        format_number(evaluation.tdp_w),
    )


def best_designs_csv(result: CertifyResult) -> str:
    """The best designs with all their figures, a line each."""
    fields = [field.name for field in dataclasses.fields(DesignPoint)]
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(["rank", "index", *fields, "value", "value_upper", "throughput_samples_per_s", "area_mm2", "tdp_w"])
    for design in result.best:
        point, evaluation = design.point, design.evaluation
        figures = (evaluation.throughput_samples_per_s, evaluation.area_mm2, evaluation.tdp_w)
        sizes = (getattr(point, name) for name in fields)
        lines.writerow([design.rank, design.index, *sizes, design.value, design.value_upper, *figures])
    return text.getvalue()


def flatness_table(result: CertifyResult) -> TableContent:
    """How many points come close to the best one."""
    total = result.certificate.claim.num_points
    columns = (Column("within"), Column("points", is_number=True), Column("share of the space", is_number=True))
    rows = []
    for flat in result.flatness:
        is_exact = flat.at_least == flat.at_most
        between = f"{flat.at_least:,}" if is_exact else f"between {flat.at_least:,} and {flat.at_most:,}"
        low, high = (f"{100.0 * count / total:.2g} %" for count in (flat.at_least, flat.at_most))
        rows.append((format_gap(flat.within), between, high if is_exact else f"{low} to {high}"))
    note = "the lower count has solutions that reach it, the upper one bounds that allow it"
    return TableContent("How flat the top is", columns, tuple(rows), note)


def history_table(result: CertifyResult) -> TableContent:
    """Incumbent, bound and gap over time."""
    goal = result.certificate.goal
    columns = tuple(
        Column(heading, is_number=True) for heading in ("after", "solved", "open", "incumbent", "bound", "gap")
    )
    rows = tuple(progress_row(progress, goal=goal) for progress in thinned(result.history))
    return TableContent(
        "The proof over time", columns, rows, f"incumbent and bound in {UNITS[goal]}; open: points still in doubt"
    )


def progress_row(progress: CertifyProgress, *, goal: Goal) -> tuple[str, ...]:
    """After, solved, open, incumbent, bound, gap; the two in `UNITS` of the goal."""
    has_value, has_bound = progress.value > 0.0, 0.0 < progress.value_upper < float("inf")
    return (
        format_time(progress.wall_s),
        f"{progress.num_solved:,}",
        f"{progress.num_open:,}",
        format_value(goal, progress.value) if has_value else "-",
        format_value(goal, progress.value_upper) if has_bound else "-",
        format_gap(progress.gap) if has_value and has_bound else "-",
    )


def thinned(history: tuple[CertifyProgress, ...]) -> tuple[CertifyProgress, ...]:
    """At most `MAX_HISTORY_ROWS` of a history, its first and last among them."""
    if len(history) <= MAX_HISTORY_ROWS:
        return history
    kept = np.unique(np.linspace(0, len(history) - 1, MAX_HISTORY_ROWS).round().astype(int))
    return tuple(history[index] for index in kept)


def effort_sentence(result: CertifyResult) -> str:
    """What the proof cost."""
    claim, provenance = result.certificate.claim, result.certificate.provenance
    return (
        f"{claim.num_points:,} points bounded, {claim.num_solved:,} solved; "
        f"{provenance.num_ilp_solves:,} schedule ILPs, {provenance.num_placements:,} placements; "
        f"{format_time(result.wall_s)}."
    )


def check_sentence(report: CheckReport) -> str:
    """What a certificate that holds states, and what of it was worked out again."""
    claim, names = report.claim, ", ".join(report.models)
    num_bounds = report.num_relaxed + report.num_exact
    how = (
        f"{num_bounds:,} bounds and {report.num_schedules:,} schedules worked out again in {format_time(report.wall_s)}"
    )
    if report.num_over_budget:
        how = f"{report.num_over_budget:,} points over a budget, {how}"
    if not claim.is_feasible:
        return f"Valid: none of {claim.num_points:,} points is feasible for {names}; {how}."
    state = "proved" if claim.is_proved else "not proved"
    attained, upper = (format_value(report.goal, value) for value in (claim.value, claim.value_upper))
    return (
        f"Valid: for {names} the best of {claim.num_points:,} points attains {attained} "
        f"{UNITS[report.goal]} and none exceeds {upper} (gap {format_gap(claim.gap)}, "
        f"{state} within {format_gap(claim.tolerance)}); {how}."
    )


def unproved_sentence(claim: Claim) -> str:
    """The warning of a proof that ended above its tolerance."""
    return (
        f"not proved within the tolerance of {format_gap(claim.tolerance)}: the gap is {format_gap(claim.gap)}; "
        "the design and its bound are valid, but a better design may exist within that gap"
    )


def format_gap(gap: float) -> str:
    """A relative gap as a percentage of two or three digits; rounding reads as zero."""
    if gap <= TIED:
        return "0 %"
    if gap < LEAST_SHOWN:
        return f"<{100.0 * LEAST_SHOWN:g} %"
    return format_percentage(gap)
