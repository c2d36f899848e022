"""How far predictions are from measurements: errors in per cent and rank correlations."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from phaze_opt.record.arrays import Floats
from phaze_opt.record.near_ties import comparable

PER_CENT = 100.0


@dataclass(frozen=True, slots=True)
class Scores:
    """Figures of a set of rows; nan where there are too few rows.

    Attributes:
        num_rows: rows scored.
        mape: mean of |predicted / measured - 1|, per cent.
        median_ape, p90_ape: median and 90th percentile of the same, per cent.
        bias: mean of predicted / measured - 1, per cent: below 0 is too fast.
        spearman, kendall: rank correlations of predicted with measured; nan below 3 rows or if either is constant.
    """

    num_rows: int
    mape: float
    median_ape: float
    p90_ape: float
    bias: float
    spearman: float
    kendall: float


def relative_errors(predicted: Floats, measured: Floats) -> Floats:
    """Predicted / measured - 1, shape (num_rows,)."""
    return np.asarray(predicted / measured - 1.0)


def score(predicted: Floats, measured: Floats) -> Scores:
    """Score predictions.

    Args:
        predicted: positive times, shape (num_rows,), s.
        measured: positive times, shape (num_rows,), s.
    """
    if len(predicted) == 0:
        return Scores(0, *[math.nan] * 6)
    errors = relative_errors(predicted, measured)
    absolute = np.abs(errors)
    spearman, kendall = rank_correlations(predicted, measured)
    return Scores(
        num_rows=len(predicted),
        mape=float(absolute.mean()) * PER_CENT,
        median_ape=float(np.median(absolute)) * PER_CENT,
        p90_ape=float(np.quantile(absolute, 0.9)) * PER_CENT,
        bias=float(errors.mean()) * PER_CENT,
        spearman=spearman,
        kendall=kendall,
    )


def rank_correlations(predicted: Floats, measured: Floats) -> tuple[float, float]:
    """Spearman's and Kendall's (tau-b); nan below 3 rows or where one side is constant."""
    from scipy.stats import kendalltau, spearmanr

    if len(predicted) < 3 or np.ptp(predicted) == 0 or np.ptp(measured) == 0:
        return math.nan, math.nan
    # Predictions that rounding alone tells apart are ties, on every CPU.
    ranked = comparable(predicted), comparable(measured)
    return float(spearmanr(*ranked).statistic), float(kendalltau(*ranked).statistic)


def mape(predicted: Floats, measured: Floats) -> float:
    """Mean absolute percentage error, per cent; nan of nothing."""
    if len(predicted) == 0:
        return math.nan
    return float(np.abs(relative_errors(predicted, measured)).mean()) * PER_CENT


def mape_by_cell(predicted: Floats, measured: Floats, cells: Sequence[str]) -> float:
    """Mean over cells of the mean absolute percentage error within each: every cell counts once, per cent."""
    if len(predicted) == 0:
        return math.nan
    absolute = np.abs(relative_errors(predicted, measured))
    groups: dict[str, list[float]] = {}
    for cell, value in zip(cells, absolute.tolist(), strict=True):
        groups.setdefault(cell, []).append(value)
    return float(np.mean([np.mean(values) for values in groups.values()])) * PER_CENT
