"""What a study found, in sentences: who wins, where, by how much, at which cost, and what cannot be claimed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from phaze_opt.study.judging.findings.costs import cost_findings
from phaze_opt.study.judging.findings.limits import (
    failure_finding,
    limit_findings,
    standing_findings,
    unfinished_findings,
)
from phaze_opt.study.judging.findings.prices import price_findings
from phaze_opt.study.judging.findings.winners import winner_findings
from phaze_opt.study.judging.judged_condition import JudgedCondition
from phaze_opt.study.result import StudyResult
from phaze_opt.study.scores import StudySummary

FOR_USE = "For use, not a claim: "


def write_findings(summary: StudySummary, judged: Sequence[JudgedCondition], result: StudyResult) -> StudySummary:
    """The summary with its findings.

    Args:
        summary: all but the findings.
        judged: its conditions.
        result: the study.
    """
    if not summary.cells:
        nothing = (
            "No strategy is ranked: nothing is found."
            if result.cells
            else f"None of the {result.num_cells} searches is finished: nothing is found yet."
        )
        failed = (failure_finding(result, name) for name in result.unranked)
        return replace(summary, findings=(*failed, nothing))
    outcome = [*winner_findings(summary, judged, result), *cost_findings(summary, result)]
    if result.config.budget.seconds is not None:
        outcome = [FOR_USE + sentence for sentence in outcome]
    # Who wins comes first, what its regret is against right after it; only failed and unfinished searches go before.
    findings = [
        *unfinished_findings(summary, result),
        outcome[0],
        *standing_findings(summary, judged, result),
        *outcome[1:],
        *price_findings(summary, result),
        *limit_findings(summary, judged, result),
    ]
    return replace(summary, findings=tuple(findings))
