"""A certificate in words and tables: what is proved, the best designs, how flat the top is, why the runner-up loses."""

import csv
import dataclasses
import io
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from phaze_opt.certify.certificate import Claim
from phaze_opt.certify.check.report import CheckReport
from phaze_opt.certify.prove import point_columns
from phaze_opt.certify.result import CertifyResult, CertifyStage, Flatness, FrontDesign, ProofMove, RankedDesign
from phaze_opt.certify.standing import TIED, SecondBest, Ties
from phaze_opt.hardware.chip_template import DesignPoint
from phaze_opt.objective.evaluation import Evaluation
from phaze_opt.objective.goals import FrontAxis, Goal
from phaze_opt.objective.scenario import Scenario
from phaze_opt.placement.problem import PlacementResult
from phaze_opt.record.progress import Progress
from phaze_opt.record.result_fields import headlines_of, names_of
from phaze_opt.report.chip import chip_note, compared_parts, trained_fields
from phaze_opt.report.design import CAUSES, COMMON_MEANS, describe_degrees
from phaze_opt.report.plans import describe_plan
from phaze_opt.report.table import Field, Fields, TableContent, number, table_of, words
from phaze_opt.report.text import (
    GOAL_UNITS,
    counted,
    format_number,
    format_percentage,
    format_time,
    format_value,
    numbers_apart,
    shown_value,
)

PROGRESS_HEADINGS = ("after", "solved", "open", "incumbent", "bound", "gap")
LEAST_SHOWN = 1e-5
"""Gaps below this are shown as below it."""
MAX_HISTORY_ROWS = 12
"""Rows of the table of gap over time; a longer history is thinned."""
AXIS_WORDS = {
    FrontAxis.THROUGHPUT: "throughput",
    FrontAxis.TDP: "TDP",
    FrontAxis.AREA: "area",
    FrontAxis.COST: "cost of a device",
}
NOTICEABLE = 0.02
"""Causes with less than this share of the largest change are left out."""
MAX_CAUSES = 3
INFEASIBLE = {"no placement fits the memory": "that no placement fits into the memory"}
"""Reasons of the table that do not read as part of a sentence."""


def claim_sentence(result: CertifyResult) -> str:
    """One sentence: what is proved, or how far it is."""
    certificate, claim = result.certificate, result.certificate.claim
    what = describe_certified(certificate.scenario)
    if not claim.is_feasible:
        return f"Proved: none of the {counted(claim.num_points, 'point')} of this space is feasible for {what}."
    goal = certificate.goal
    attained = f"this design attains {format_value(goal, claim.value)} {GOAL_UNITS[goal]} for {what}"
    of_all = f"of all {counted(claim.num_points, 'point')}"
    if claim.gap <= TIED:
        return f"Proved: {of_all} none is better than this one; {attained}."
    bound = f"none exceeds {format_value(goal, claim.value_upper)} (gap {format_gap(claim.gap)})"
    if claim.is_proved:
        return f"Proved within {format_gap(claim.tolerance)}: {attained}, and {of_all} {bound}."
    return f"Not proved within {format_gap(claim.tolerance)}: {attained}; {of_all} {bound}."


def proved_words(result: CertifyResult) -> str:
    """How surely the best design is the best, without what it attains."""
    claim, goal = result.certificate.claim, result.certificate.goal
    of_all = f"none of all {counted(claim.num_points, 'point')}"
    if claim.gap <= TIED:
        return f"proved: {of_all} is better"
    bound = f"{of_all} exceeds {format_value(goal, claim.value_upper)} {GOAL_UNITS[goal]} (gap {format_gap(claim.gap)})"
    return f"{'proved' if claim.is_proved else 'not proved'} within {format_gap(claim.tolerance)}: {bound}"


def describe_certified(scenario: Scenario) -> str:
    """Models with the mean over them, devices, and the budgets of a chip."""
    names = ", ".join(model.name for model in scenario.models)
    mean = f" ({COMMON_MEANS[scenario.common]})" if len(scenario.models) > 1 else ""
    budgets = [
        f"{budget:g} {unit}"
        for budget, unit in ((scenario.max_area_mm2, "mm2"), (scenario.max_tdp_w, "W of TDP"))
        if budget is not None
    ]
    limits = [f"{' and '.join(budgets)} a chip"] if budgets else []
    if scenario.max_capex_usd is not None:
        limits.append(f"{format_number(scenario.max_capex_usd)} USD of capex")
    within = f", within {' and '.join(limits)}" if limits else ""
    return f"{names}{mean} on {counted(scenario.cluster.num_devices, 'device')}{within}"


def infeasible_sentence(result: CertifyResult) -> str:
    """How many points are proved infeasible, by their reasons; empty if none is.

    Raises:
        InputError: the certificate's table cannot be read.
    """
    (reasons,) = point_columns(result.directory, ("reason",))
    counts = Counter(reason for reason in reasons if reason)
    if not counts:
        return ""
    parts = ", ".join(f"{count:,} {INFEASIBLE.get(reason, reason)}" for reason, count in counts.most_common())
    return f"Proved infeasible: {parts}."


def rows_words(result: CertifyResult) -> str:
    """Which designs are ranked and counted, where some have no bound of their own; else empty."""
    claim = result.certificate.claim
    return f" of the {claim.num_rows:,} with a bound of their own" if claim.num_left_out else ""


def ties_sentence(ties: Ties, rows: str = "") -> str:
    """How many designs share the first place, of those that `rows_words` names."""
    if ties.at_most <= 1:
        return f"No other design{rows} attains it."
    if ties.at_least == ties.at_most:
        return f"{ties.at_least:,} designs tie for best; the first is the one of least area."
    return f"B{_counted(ties.at_least, ties.at_most)[1:]} designs tie for best, as far as the proof goes."


def best_table(result: CertifyResult) -> TableContent:
    """The best designs; ties share a rank."""
    goal = result.certificate.goal
    texts = numbers_apart([design.evaluation.throughput_samples_per_s for design in result.best])
    rates = dict(zip((design.index for design in result.best), texts, strict=True))
    is_common = any(design.evaluation.members for design in result.best)
    rate: Field[RankedDesign] = number(
        "mean samples/s" if is_common else "samples/s", lambda design: rates[design.index]
    )
    worth: Fields[RankedDesign] = (rate, number("mm2", lambda design: format_number(design.evaluation.area_mm2)))
    if goal is Goal.THROUGHPUT_PER_TDP:
        worth = (number(GOAL_UNITS[goal], lambda design: f"{shown_value(goal, design.value):,.4g}"), rate)
    fields: Fields[RankedDesign] = (
        number("rank", lambda design: str(design.rank)),
        *trained_fields(lambda design: design.point, lambda design: design.evaluation),
        *worth,
        number("W", lambda design: format_number(design.evaluation.tdp_w)),
    )
    points = [design.point for design in result.best]
    note = f"{chip_note(points, has_micro_batch=True)}; ties share a rank"
    title = f"Best {counted(len(result.best), 'design')}{rows_words(result)}"
    return table_of(title, fields, result.best, note, emphasis=lambda design: design.rank == 1)


def plan_sentences(result: CertifyResult) -> tuple[str, ...]:
    """The plan of each model on the best design; nothing of placements."""
    best = result.best[0].evaluation
    placed = [(each.model, each.placement) for each in best.members or (best,)]
    plans = [(name, placement.plan) for name, placement in placed if placement is not None]
    return tuple(
        f"Its {describe_plan(plan)}." if not best.members else f"{name}, {describe_plan(plan)}."
        for name, plan in plans
        if plan is not None
    )


def best_designs_csv(result: CertifyResult) -> str:
    """The best designs with all their figures, a line each; of a front all of it, with cost where that is a goal."""
    sizes = [field.name for field in dataclasses.fields(DesignPoint)]
    head, rows = _front_rows(result) if result.certificate.axes else _best_rows(result)
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow([head[0], "index", *sizes, *head[1:]])
    for (first, *figures), design in rows:
        lines.writerow([first, design.index, *(getattr(design.point, name) for name in sizes), *figures])
    return text.getvalue()


Rows = list[tuple[tuple[float, ...], RankedDesign | FrontDesign]]
"""Figures of designs, the number of each first."""


def _best_rows(result: CertifyResult) -> tuple[tuple[str, ...], Rows]:
    figures, head = headlines_of(Evaluation), ("rank", "value", "value_upper")
    rows: Rows = []
    for design in result.best:
        known = (getattr(design.evaluation, each.name) for each in figures)
        rows.append(((design.rank, design.value, design.value_upper, *known), design))
    return (*head, *(each.name for each in figures)), rows


def _front_rows(result: CertifyResult) -> tuple[tuple[str, ...], Rows]:
    """The front, numbered as in its table."""
    head = tuple(
        name for name in names_of(FrontDesign) if all(getattr(each, name) is not None for each in result.front)
    )
    rows: Rows = [
        ((place, *(getattr(design, name) for name in head)), design)
        for place, design in enumerate(result.front, start=1)
    ]
    return ("number", *head), rows


def flatness_table(result: CertifyResult) -> TableContent:
    """How many points come close to the best one."""
    claim = result.certificate.claim
    total = claim.num_points

    def shares(flat: Flatness) -> str:
        least, most = (f"{100.0 * count / total:.2g} %" for count in (flat.at_least, flat.at_most))
        return most if flat.at_least == flat.at_most else f"{least} to {most}"

    fields: Fields[Flatness] = (
        words("within", lambda flat: format_gap(flat.within)),
        number("points", lambda flat: _counted(flat.at_least, flat.at_most)),
        number("share of the space", shares),
    )
    note = "the lower count has solutions that reach it, the upper one bounds that allow it"
    if claim.num_left_out:
        note += f"; of the {claim.num_rows:,} points with a bound of their own"
    return table_of("How flat the top is", fields, result.flatness, note)


def _counted(at_least: int, at_most: int) -> str:
    return f"{at_least:,}" if at_least == at_most else f"between {at_least:,} and {at_most:,}"


def history_table(result: CertifyResult) -> TableContent:
    """Incumbent, bound and gap over time."""
    goal = result.certificate.goal
    note = f"incumbent and bound in {GOAL_UNITS[goal]}; open: points still in doubt"
    return table_of("The proof over time", progress_fields(goal), thinned(result.history), note)


def progress_fields(goal: Goal) -> Fields[ProofMove]:
    """A proof at one time; incumbent and bound in `GOAL_UNITS`."""
    return (
        number("after", lambda move: format_time(move.wall_s)),
        number("solved", lambda move: f"{move.num_solved:,}"),
        number("open", lambda move: f"{move.num_open:,}"),
        number("incumbent", lambda move: format_value(goal, move.value) if move.value > 0.0 else "-"),
        number("bound", lambda move: format_value(goal, move.value_upper) if has_bound(move) else "-"),
        number("gap", lambda move: format_gap(move.gap) if has_gap(move) else "-"),
    )


def progress_row(progress: ProofMove, *, goal: Goal) -> tuple[str, ...]:
    """After, solved, open, incumbent, bound, gap."""
    return tuple(field.cell(progress) for field in progress_fields(goal))


def progress_words(progress: ProofMove, goal: Goal) -> Progress:
    """A proof's progress with incumbent, bound and gap where they are known.

    One solution may settle thousands of open points, or none: they say nothing of how many solutions are left.
    """
    values = dict(zip(PROGRESS_HEADINGS, progress_row(progress, goal=goal), strict=True))
    known = (
        [f"{name} {values[name]}" for name in PROGRESS_HEADINGS[3:] if values[name] != "-"]
        if has_figures(progress)
        else []
    )
    if progress.stage is CertifyStage.BOUNDING:
        return Progress(progress.stage, progress.num_bounded, progress.num_points, ", ".join(known))
    still_open = [f"{progress.num_open:,} open"] if progress.num_open else []
    return Progress(progress.stage, progress.num_solved, None, ", ".join(("solved", *still_open, *known)))


def has_figures(progress: ProofMove) -> bool:
    """Whether there is an incumbent or a bound to show."""
    return progress.value > 0.0 or 0.0 < progress.value_upper < float("inf")


def has_gap(move: ProofMove) -> bool:
    """Whether bound and incumbent are known, of a front in every part of it."""
    return move.value > 0.0 and has_bound(move) and move.gap < float("inf")


def has_bound(move: ProofMove) -> bool:
    """Whether anything is known of the largest value."""
    return 0.0 < move.value_upper < float("inf")


def thinned(history: tuple[ProofMove, ...]) -> tuple[ProofMove, ...]:
    """At most `MAX_HISTORY_ROWS` of a history, its first and last among them."""
    if len(history) <= MAX_HISTORY_ROWS:
        return history
    kept = np.unique(np.linspace(0, len(history) - 1, MAX_HISTORY_ROWS).round().astype(int))
    return tuple(history[index] for index in kept)


def effort_sentence(result: CertifyResult) -> str:
    """What the proof cost."""
    claim, provenance = result.certificate.claim, result.certificate.provenance
    placed = (
        ("placement",) if result.certificate.scenario.plans is None else ("program over plans", "programs over plans")
    )
    return (
        f"{counted(claim.num_points, 'point')} bounded, {claim.num_solved:,} solved; "
        f"{counted(provenance.num_ilp_solves, 'schedule ILP')}, {counted(provenance.num_placements, *placed)}; "
        f"{format_time(result.wall_s)}."
    )


def check_sentence(report: CheckReport) -> str:
    """What a certificate that holds states, and what of it was worked out again."""
    claim, names = report.claim, ", ".join(report.models)
    how = _worked_out_again(report)
    if not claim.is_feasible:
        return f"Valid: none of {counted(claim.num_points, 'point')} is feasible for {names}; {how}."
    state = "proved" if claim.is_proved else "not proved"
    proved = f"(gap {format_gap(claim.gap)}, {state} within {format_gap(claim.tolerance)}); {how}."
    if report.axes:
        return (
            f"Valid: for {names} {len(claim.front):,} of {counted(claim.num_points, 'point')} "
            f"{'is' if len(claim.front) == 1 else 'are'} on the front of "
            f"{axes_words(report.axes)} {proved}"
        )
    attained, upper = (format_value(report.goal, value) for value in (claim.value, claim.value_upper))
    return (
        f"Valid: for {names} the best of {counted(claim.num_points, 'point')} attains {attained} "
        f"{GOAL_UNITS[report.goal]} and none exceeds {upper} {proved}"
    )


def axes_words(axes: Sequence[FrontAxis]) -> str:
    """The goals of a front in words."""
    *first, last = (AXIS_WORDS[axis] for axis in axes)
    return f"{', '.join(first)} and {last}"


def _worked_out_again(report: CheckReport) -> str:
    """How much of a certificate was."""
    num_bounds = report.num_relaxed + report.num_exact
    how = (
        f"{counted(num_bounds, 'bound')} and {counted(report.num_schedules, 'schedule')} worked out again in "
        f"{format_time(report.wall_s)}"
    )
    if report.num_over_budget:
        how = f"{counted(report.num_over_budget, 'point')} over a budget, {how}"
    return how


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


@dataclass(frozen=True, slots=True)
class CauseChange:
    """How much more time an iteration of the runner-up spends on one cause, s; negative if less."""

    cause: str
    more_s: float


@dataclass(frozen=True, slots=True)
class RunnerUp:
    """The best design of lower value beside the best one.

    Attributes:
        design: the runner-up.
        falls_short: relative to the best value.
        causes: what an iteration spends more or less on, largest change first; of the model that loses most where
            there are several.
        model: that model.
        more_s: longer iteration of that model, s.
        sentences: all of it in words.
        is_certain: no other design can lie between it and the best; otherwise it is the best of those looked at.
    """

    design: RankedDesign
    falls_short: float
    causes: tuple[CauseChange, ...]
    model: str
    more_s: float
    sentences: tuple[str, ...]
    is_certain: bool = True


def explain_runner_up(best: Sequence[RankedDesign], *, goal: Goal) -> RunnerUp | None:
    """The first design of lower value and why it loses; None if all designs tie.

    Args:
        best: by rank, the best design first.
        goal: what is maximised.
    """
    second = next((design for design in best if design.rank > 1), None)
    if second is None:
        return None
    first = best[0]
    winner, loser = _most_apart(first.evaluation, second.evaluation)
    causes = cause_changes(winner, loser)
    more_s = loser.iteration_time_s - winner.iteration_time_s
    falls_short = 1.0 - second.value / first.value
    share = sum(design.rank == second.rank for design in best)
    sentences = (
        _what_it_reaches(second, goal=goal, falls_short=falls_short, num_tied=share),
        _where_time_goes(winner, loser, causes, is_one_of_many=bool(first.evaluation.members)),
        _power(first.evaluation, second.evaluation) if goal is Goal.THROUGHPUT_PER_TDP else "",
        _what_differs(first.evaluation, second.evaluation, models=(winner, loser)),
    )
    return RunnerUp(second, falls_short, causes, loser.model, more_s, tuple(filter(None, sentences)))


def explain_second(best: Sequence[RankedDesign], second: SecondBest | None, *, goal: Goal) -> RunnerUp | None:
    """Why the best design of lower value loses; arguments as `explain_runner_up` has them."""
    if second is None:
        return None
    is_listed = any(design is second.design for design in best)
    explained = explain_runner_up(best if is_listed else (best[0], second.design), goal=goal)
    return None if explained is None else dataclasses.replace(explained, is_certain=second.is_certain)


def cause_changes(winner: Evaluation, loser: Evaluation) -> tuple[CauseChange, ...]:
    """Differences of two time breakdowns, largest first; they sum to the difference of the iteration times."""
    changes = (
        CauseChange(name, getattr(loser.breakdown, field) - getattr(winner.breakdown, field))
        for field, name, _ in CAUSES
    )
    return tuple(sorted((change for change in changes if change.more_s), key=lambda change: -abs(change.more_s)))


def _most_apart(first: Evaluation, second: Evaluation) -> tuple[Evaluation, Evaluation]:
    """The model on which the second design loses most; the designs themselves where there is one model."""
    pairs = list(zip(first.members, second.members, strict=True)) or [(first, second)]
    return max(pairs, key=lambda pair: pair[1].iteration_time_s / pair[0].iteration_time_s)


def _what_it_reaches(second: RankedDesign, *, goal: Goal, falls_short: float, num_tied: int) -> str:
    value = f"{format_value(goal, second.value)} {GOAL_UNITS[goal]}"
    if goal is not Goal.THROUGHPUT:
        value += f" ({format_number(second.evaluation.throughput_samples_per_s)} samples/s)"
    tied = f", shared by {num_tied} designs" if num_tied > 1 else ""
    return f"The runner-up (rank {second.rank}{tied}) falls {format_percentage(falls_short)} short with {value}."


def _where_time_goes(
    winner: Evaluation, loser: Evaluation, causes: Sequence[CauseChange], *, is_one_of_many: bool
) -> str:
    more_s = loser.iteration_time_s - winner.iteration_time_s
    of_model = f" of {loser.model}, on which it loses most," if is_one_of_many else ""
    if not causes:
        return f"An iteration{of_model} takes as long on both."
    times = f"{_digits(loser.iteration_time_s)} in place of {_digits(winner.iteration_time_s)}"
    floor = NOTICEABLE * abs(causes[0].more_s)
    shown = [change for change in causes if abs(change.more_s) >= floor][:MAX_CAUSES]
    lost = [f"{change.cause} {format_time(change.more_s)} more" for change in shown if change.more_s > 0.0]
    saved = [f"{change.cause} {format_time(-change.more_s)} less" for change in shown if change.more_s < 0.0]
    longer = "longer" if more_s > 0.0 else "shorter"
    parts = f"{_listed(lost)}, though {_listed(saved)}" if lost and saved else _listed(lost or saved)
    return f"An iteration{of_model} is {format_time(abs(more_s))} {longer} ({times}): {parts}."


def _power(first: Evaluation, second: Evaluation) -> str:
    now, before = format_number(second.tdp_w), format_number(first.tdp_w)
    return f"Its TDP is {now} W in place of {before} W." if now != before else ""


def _what_differs(first: Evaluation, second: Evaluation, *, models: tuple[Evaluation, Evaluation]) -> str:
    """Architecture, micro-batch and placement, as far as they differ."""
    pairs = [
        *compared_parts(first.accelerator, second.accelerator),
        ("micro-batches of {}", str(first.micro_batch), str(second.micro_batch)),
    ]
    winner, loser = (model.placement for model in models)
    if winner is not None and loser is not None:
        pairs.append(("tensor x pipeline x data of {}", describe_degrees(winner), describe_degrees(loser)))
        stages, others = (counted(_num_recomputed(each), "stage") for each in (winner, loser))
        pairs.append(("{} recomputed", stages, others))
    parts = [f"{template.format(now)} in place of {before}" for template, before, now in pairs if now != before]
    return f"It has {'; '.join(parts)}." if parts else ""


def _num_recomputed(placement: PlacementResult) -> int:
    return sum(stage.is_recomputed for stage in placement.stages)


def _digits(seconds: float) -> str:
    """An iteration time with enough digits to tell two close ones apart."""
    return f"{1000.0 * seconds:.5g} ms" if seconds < 1.0 else f"{seconds:.5g} s"


def _listed(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
