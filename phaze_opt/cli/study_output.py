"""What ``phaze-opt study`` prints: one line of JSON, or tables and sentences for a person."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from phaze_opt.cli.output import out, print_more, print_tables
from phaze_opt.objective.goals import Goal
from phaze_opt.report.study.findings import claim_findings, describe_changes, describe_findings, describe_unmatched
from phaze_opt.report.table import Column, TableContent
from phaze_opt.report.text import counted
from phaze_opt.study.compare import StudyComparison
from phaze_opt.study.result import StudyResult
from phaze_opt.study.scores import ContenderScore, StudySummary
from phaze_opt.study.summary import summarise
from phaze_opt.track.protocol import TrackingSession

FIRST_FINDINGS = 3
"""Findings that are said first: who wins, against what, and what is claimed."""


def print_study(result: StudyResult, *, is_detailed: bool) -> None:
    """Who wins, in sentences and in a table; every finding if it is asked for."""
    if result.cells:
        summary = summarise(result)
        findings = describe_findings(result, summary)
        print_findings(findings, is_detailed=False)
        print_tables(contenders_table(summary, result))
        claims = claim_findings(summary)
        print_findings(claims, is_detailed=True)
        for finding in findings[FIRST_FINDINGS : len(findings) - len(claims)] if is_detailed else ():
            out().print(finding)
    print_more(f"Study: {result.study_id} in {result.directory}")


def print_findings(findings: Sequence[str], *, is_detailed: bool) -> None:
    """The first findings, or all."""
    for finding in findings if is_detailed else findings[:FIRST_FINDINGS]:
        out().print(finding)


def print_record(files: Mapping[str, Path], session: TrackingSession[Any], *, is_detailed: bool) -> None:
    """Where the report and the runs are."""
    if files:
        print_more(f"Report: {next(iter(files.values()))}")
    if session.url_hint:
        print_more("Tracked; open it with:", f"  {session.url_hint}")
    print_more(is_detailed=is_detailed)


def contenders_table(summary: StudySummary, result: StudyResult) -> TableContent:
    """Contenders, best first: regret, evaluations to the targets, cost; made to fit 80 columns."""
    targets = result.config.judgement.targets
    headings = ["median regret", *(f"to {100 * target:g} %" for target in targets), "probes", "time"]
    rows = tuple(
        (
            score.contender,
            f"{100 * score.median_regret:.3g} %",
            *(_evaluations(score, target) for target in targets),
            f"{score.mean_probes:,.0f}",
            f"{score.mean_charged_s:.3g} s",
        )
        for score in summary.contenders
    )
    kinds = sorted({truth.kind.value for truth in summary.truths.values()})
    yardsticks = [f"against the {' or '.join(kinds)} optimum"] if kinds else []
    if any(setting.goal is Goal.PARETO for setting in result.config.settings):
        yardsticks.append("of the hypervolume, against the best known, where there are several objectives")
    against = ", or ".join(yardsticks) or "against nothing, as nothing was feasible"
    note = (
        f"Regret {against}; evaluations (median) until a regret was reached; probes and time of a search alone (means)."
    )
    columns = (Column("strategy"), *(Column(heading, is_number=True) for heading in headings))
    return TableContent(
        f"{result.config.name}: {counted(len(result.cells), 'search', 'searches')}", columns, rows, note
    )


def _evaluations(score: ContenderScore, target: float) -> str:
    """Evaluations to a target, if half of the searches reached it."""
    count = score.median_evaluations_to.get(target)
    return "-" if count is None else f"{count:g}"


def print_comparison(comparison: StudyComparison) -> None:
    """What both studies have, side by side, then what it says and what only one of them has."""
    screen = out()
    for sentence in describe_changes(comparison):
        screen.print(sentence)
    headings = ["first", "second", "difference", "p", "evaluations"]
    rows = tuple(
        (
            f"{row.contender} in {row.first.condition}",
            f"{100 * row.first.mean_regret:.3g} %",
            f"{100 * row.second.mean_regret:.3g} %",
            f"{100 * row.difference:+.3g} %" + (" *" if row.is_significant else ""),
            f"{row.p_value:.2g}",
            f"{row.first.mean_evaluations:g}, {row.second.mean_evaluations:g}",
        )
        for row in comparison.rows
    )
    if rows:
        note = "Mean regret in either study and its change (* significant); mean distinct evaluations of a search."
        columns = (Column("strategy"), *(Column(heading, is_number=True) for heading in headings))
        title = f"{comparison.first.result.study_id} against {comparison.second.result.study_id}"
        print_tables(TableContent(title, columns, rows, note))
    for sentence in describe_unmatched(comparison):
        screen.print(sentence)


def print_list(rows: Sequence[Mapping[str, Any]]) -> None:
    """The studies as a table."""
    columns = (Column("study"), Column("identifier"), Column("searches", is_number=True), Column("age", is_number=True))
    cells = tuple(
        (
            str(row["name"]),
            str(row["study_id"]),
            f"{row['finished_searches']} of {row['planned_searches'] or '?'}",
            describe_age(row["age_s"]),
        )
        for row in rows
    )
    done = sum(row["finished_searches"] >= (row["planned_searches"] or math.inf) for row in rows)
    out().print(f"{len(rows):,} studies, {done:,} of them finished; `phaze-opt report NAME` writes what one found.")
    print_tables(TableContent("Studies", columns, cells))


def describe_age(age_s: float) -> str:
    """An age in its largest whole unit."""
    for unit, seconds in (("d", 86400), ("h", 3600), ("min", 60)):
        if age_s >= seconds:
            return f"{age_s / seconds:.0f} {unit}"
    return f"{age_s:.0f} s"
