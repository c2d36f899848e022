"""From a study's directory to the inputs of its report; the evaluations read are those of the best designs alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from phaze_opt.errors import InputError
from phaze_opt.report.study.inputs import ReportInputs
from phaze_opt.report.study.winners import best_of
from phaze_opt.study.load import open_evaluations
from phaze_opt.study.result import StudyResult
from phaze_opt.study.summary import summarise


def read_inputs(result: StudyResult, *, run_ids: Mapping[str, str] | None = None) -> ReportInputs:
    """Judge a study and read the evaluation of the best design of each condition, where it is kept.

    Args:
        result: of `load_study`.
        run_ids: runs of the tracker by key of the cell, where they are known.
    """
    inputs = ReportInputs(result, summarise(result), run_ids=run_ids or {})
    evaluations = {}
    for condition in result.conditions:
        best = best_of(inputs, condition)
        if best is None:
            continue
        read = open_evaluations(result, condition)
        try:
            evaluations[condition.key] = {best.point: read(best.point)}
        except InputError:  # kept elsewhere: the report says that it has no card
            continue
    return replace(inputs, evaluations=evaluations)
