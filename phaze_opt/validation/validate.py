"""Score models on measurements: every row predicted or with a reason why not, and compared with trivial models."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from phaze_opt.errors import InputError
from phaze_opt.hardware.fitted import FittedConstants
from phaze_opt.record.arrays import Floats
from phaze_opt.validation.baselines import Baseline, describe_baseline
from phaze_opt.validation.dataset import Dataset
from phaze_opt.validation.family import Family, Label
from phaze_opt.validation.goals import BY_CELL, ERROR_GOALS, RANK_GOALS, group_labels
from phaze_opt.validation.measured_row import Row
from phaze_opt.validation.packs import known_spreads
from phaze_opt.validation.predict import Predictions, predict_rows
from phaze_opt.validation.result import (
    ExplainedRow,
    GoalResult,
    GroupResult,
    RowResult,
    SetResult,
    Validation,
    range_scores,
)
from phaze_opt.validation.scores import mape, mape_by_cell, score
from phaze_opt.validation.spreads import kinds_of, row_facts

Tell = Callable[[str], None]
NUM_WORST = 10
UNTOLD = "columns blank"
"""Regime or cell of a row without the columns that tell it."""


def validate(
    datasets: Sequence[Dataset],
    families: Sequence[Family],
    fitted: FittedConstants,
    *,
    baselines: Mapping[str, Baseline],
    on_progress: Tell | None = None,
) -> Validation:
    """Score the models on data sets.

    Args:
        datasets: measurements.
        families: what predicts them; a set that none predicts is unscored.
        fitted: constants.
        baselines: trivial models by published set.
        on_progress: told the name of each set, and how far its rows are.
    """
    tell = on_progress or (lambda _: None)
    results = [_validate_set(dataset, families, fitted, baselines, tell) for dataset in datasets]
    goals = tuple(goal for result in results for goal in _goals(result))
    return Validation(fitted=fitted, sets=tuple(results), goals=goals)


def _validate_set(
    dataset: Dataset, families: Sequence[Family], fitted: FittedConstants, baselines: Mapping[str, Baseline], tell: Tell
) -> SetResult:
    tell(dataset.name)
    predictions = predict_rows(families, dataset.rows, fitted)
    rows = _row_results(dataset, predictions, fitted, tell)
    scored = np.flatnonzero(predictions.is_scored).tolist()
    predicted, measured = predictions.predicted_s, predictions.measured_s
    trivial = _trivial(dataset.rows, baselines)
    cells = [rows[index].cell for index in scored]

    is_mixed = len(dataset.likes) > 1

    def labels(result: RowResult) -> tuple[str, ...]:
        likeness = (f"as {result.row.dataset}",) if is_mixed else ()
        return (*likeness, *group_labels(result.row))

    def groups(labels: Callable[[RowResult], tuple[str, ...]]) -> tuple[GroupResult, ...]:
        found: dict[str, list[int]] = {}
        for index in scored:
            for label in labels(rows[index]):
                found.setdefault(label, []).append(index)
        return tuple(
            GroupResult(label, score(predicted[own], measured[own]), _known_mape(trivial, measured, own))
            for label, own in sorted(found.items())
        )

    # Largest absolute errors first: those that weigh most in the mean.
    worst = sorted(scored, key=lambda index: (-abs(rows[index].error), rows[index].row.line))[:NUM_WORST]
    return SetResult(
        dataset=dataset,
        family=", ".join(dict.fromkeys(family.name for family in predictions.families if family is not None)),
        rows=rows,
        scores=score(predicted[scored], measured[scored]),
        mape_by_cell=mape_by_cell(predicted[scored], measured[scored], cells),
        num_cells=len(set(cells)),
        baseline=describe_baseline(dataset.schema.kind) if not baselines.keys().isdisjoint(dataset.likes) else "",
        baseline_mape=_known_mape(trivial, measured, scored),
        groups=groups(labels),
        regimes=groups(lambda result: (result.regime,)),
        worst=tuple(ExplainedRow(rows[index], predictions.explain(fitted, index)) for index in worst),
        ranges=range_scores([rows[index] for index in scored]),
    )


def _row_results(
    dataset: Dataset, predictions: Predictions, fitted: FittedConstants, tell: Tell
) -> tuple[RowResult, ...]:
    results = []
    middles, terms = predictions.ranges(fitted), predictions.longest(fitted)
    for index, (row, family) in enumerate(zip(dataset.rows, predictions.families, strict=True)):
        tell(f"{dataset.name}, row {index + 1:,} of {len(dataset.rows):,}")
        reason = predictions.unscored.get(index, "")
        predicted_s = float(predictions.unmeasured.get(index, predictions.predicted_s[index]))
        low_s = high_s = math.nan
        if family is not None and not reason:
            is_own = row.dataset == dataset.name
            low_s, high_s = _range(family, row, predicted_s, terms.get(index, ""), is_published=is_own)
        results.append(
            RowResult(
                row=row,
                measured_s=float(predictions.measured_s[index]),
                predicted_s=predicted_s,
                low_s=low_s,
                high_s=high_s,
                regime="" if reason or family is None else _name(family.regime, row),
                cell="" if reason or family is None else _name(family.cell, row),
                reason=reason,
                least_s=middles.get(index, (math.nan, math.nan))[0],
                most_s=middles.get(index, (math.nan, math.nan))[1],
            )
        )
    return tuple(results)


def _name(name: Label, row: Row) -> str:
    """Regime or cell of a row; a blank column that the prediction can do without is no reason to fail here."""
    try:
        return name(row)
    except InputError:
        return UNTOLD


def _range(family: Family, row: Row, predicted_s: float, term: str, *, is_published: bool) -> tuple[float, float]:
    """Range of a row; a blank column that the prediction can do without is no reason to fail here."""
    try:
        facts = row_facts(family, row, predicted_s, term)
        kinds = kinds_of(family, row, facts, is_published=is_published)
    except InputError:
        facts, kinds = {}, (family.name,)
    return known_spreads().around(kinds, predicted_s, facts)


def _trivial(rows: Sequence[Row], baselines: Mapping[str, Baseline]) -> Floats:
    """Times of the trivial model of each row's published set, s; nan where there is none."""
    return np.array([baselines[row.dataset].row_seconds(row) if row.dataset in baselines else math.nan for row in rows])


def _known_mape(predicted: Floats, measured: Floats, indices: Sequence[int]) -> float:
    chosen = [index for index in indices if math.isfinite(predicted[index])]
    return mape(predicted[chosen], measured[chosen])


def _goals(result: SetResult) -> Iterator[GoalResult]:
    """Goals of a published set; nan where no row is scored."""
    values = {"": result.scores.mape, BY_CELL: result.mape_by_cell}
    values |= {group.label: group.scores.mape for group in result.groups}
    for goal in ERROR_GOALS:
        if goal.dataset == result.name:
            yield GoalResult(result.name, goal.group, "mape", goal.percent, values.get(goal.group, math.nan))
    if result.name in RANK_GOALS:
        yield GoalResult(result.name, "", "spearman", RANK_GOALS[result.name], result.scores.spearman)
