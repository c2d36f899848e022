"""Two studies side by side in sentences, and as the JSON that the command line prints."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from phaze_opt.report.study.wording import counted, figure, listed, percent
from phaze_opt.study.compare import Change, Difference, OneStudy, StudyComparison


def comparison_to_json(comparison: StudyComparison) -> dict[str, Any]:
    """A comparison as JSON values."""
    rows = [asdict(row) for row in comparison.rows]
    for row, shown in zip(comparison.rows, rows, strict=True):
        del shown["differences"]
        shown["note"] = describe_differences(row.differences)
    return {
        "first": comparison.first.study_id,
        "second": comparison.second.study_id,
        "rows": rows,
        "unmatched": describe_unmatched(comparison),
        "findings": describe_changes(comparison),
    }


def describe_differences(differences: Iterable[Difference]) -> str:
    """How a contender was not run alike; empty if it was."""
    return "; ".join(f"{one.what} {_shown(one.first)} against {_shown(one.second)}" for one in differences)


def _shown(value: object) -> str:
    return "none" if value in ("", None, {}) else str(value)


def describe_changes(comparison: StudyComparison) -> list[str]:
    """What the rows say, contender by contender."""
    if not comparison.num_problems:
        return ["The studies share no problem (scenario, constants, space and goal): nothing to compare."]
    if not comparison.rows:
        return ["No contender has finished searches of a shared problem in both studies: nothing to compare."]
    sentences = []
    for change in comparison.changes:
        name = change.contender
        notes = (describe_differences(row.differences) for row in comparison.rows if row.contender == name)
        sentences.append(_change(change))
        sentences += [f"{name} was not run alike: {note}." for note in dict.fromkeys(notes) if note]
    return sentences


def _change(change: Change) -> str:
    better, worse, claimed = change.num_better, change.num_worse, change.num_claimed
    claims = f"{claimed} of them beyond chance (Holm)" if claimed else "none of them beyond chance"
    moved = f"better in {better}, worse in {worse}, {claims}" if better + worse else "no difference"
    return (
        f"{change.contender}: mean regret {percent(change.first_regret)} in the first study and "
        f"{percent(change.second_regret)} in the second over {counted(change.num_problems, 'shared problem')} "
        f"({moved}), with {figure(change.first_evaluations)} and {figure(change.second_evaluations)} distinct "
        "evaluations a search."
    )


def describe_unmatched(comparison: StudyComparison) -> list[str]:
    """What only one study has, what is unfinished, and what only shares a name."""
    sentences = [*_only_in(comparison.first), *_only_in(comparison.second)]
    if comparison.namesakes:
        sentences.append(f"{listed(comparison.namesakes)}: the name is in both studies, but the problems differ.")
    return sentences


def _only_in(study: OneStudy) -> list[str]:
    sentences = [
        f"Only {study.study_id} has the {noun}{'s' * (len(names) > 1)} {listed(names)}."
        for noun, names in (("problem", study.conditions), ("contender", study.contenders))
        if names
    ]
    if study.unranked:
        sentences.append(f"{study.study_id} ranks no {listed(study.unranked)}: searches of it failed.")
    if not study.has_ended:
        sentences.append(f"{study.study_id} is not finished: {study.num_finished} of {study.num_planned} searches are.")
    return sentences
