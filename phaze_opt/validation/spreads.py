"""Ranges of predictions from rows kept out of the fits: measured over predicted, and how often a range holds."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from phaze_opt.cost.stacks import find_software, measured_rows
from phaze_opt.hardware.fitted import FittedConstants
from phaze_opt.hardware.spreads import LEVEL, NAMED, SOURCE, HeldGroup, Spread
from phaze_opt.validation.family import Family
from phaze_opt.validation.held_out import Fold, cells_of, fold_by_cell, leave_one_out, predict_held_out
from phaze_opt.validation.measured_row import Row

Floats = NDArray[np.float64]
WHOLE = ("source", "machine", "device", "chip", "fabric")
"""Tests of a family whose labels are kept out whole: what a range of something never seen rests on."""
CELLS = "cells"
MIN_ROWS = 19
"""Fewer rows have no 5 % of them at an end: a wider kind is taken."""
MIN_GROUPS = 3
"""Of sources, machines or fabrics kept out whole; fewer say nothing of another."""
MIN_CELLS = 8
"""Fewer cells are near copies of few rows: ranges made of three to seven held 0.4 to 0.9 of the rows of another."""
MAX_PAIRS = 4000


@dataclass(frozen=True, slots=True)
class Residual:
    """A row that was kept out: the kinds it tells of, its cell or source, and log(measured / predicted).

    ``rivals`` names the rows that one would choose among, such as plans of one model on one cluster; its group unless
    given.
    """

    kinds: tuple[str, ...]
    group: str
    kept_out: str
    log_quotient: float
    rivals: str = ""


def kept_out_residuals(family: Family, rows: Sequence[Row], start: FittedConstants) -> Iterator[Residual]:
    """Residuals of rows with their cells kept out, then with a source or machine kept out whole."""
    own = [row for row in rows if row.dataset in family.datasets and family.is_fitted(row)]
    measured = family.compile(own).measured_s
    cells = cells_of(family, own)
    tests: dict[str, tuple[Sequence[str], Sequence[Fold]]] = {CELLS: (cells, fold_by_cell(cells))}
    for name in WHOLE:
        if name in family.splits:
            labels = [family.splits[name](row) for row in own]
            tests[name] = (labels, leave_one_out(labels))
    for name, (groups, folds) in tests.items():
        predicted = predict_held_out(family, own, folds, start)
        for row, group, quotient in zip(own, groups, np.log(measured / predicted).tolist(), strict=True):
            if math.isfinite(quotient):
                kinds = family.kinds(row) if name == CELLS else whole_kinds(family, row, name)
                yield Residual(kinds, group, name, quotient)


def whole_kinds(family: Family, row: Row, test: str) -> tuple[str, ...]:
    """Names of the spreads of rows of which a source or machine was kept out whole: of a row's regime, and of all.

    Where the family knows how near other machines are, those of machines as near come first.
    """
    kinds = (f"{family.name}, {test} kept out, {family.regime(row)}", f"{family.name}, {test} kept out")
    near = family.nearness(row)
    return (*(f"{kind}, {near}" for kind in kinds), *kinds) if near else kinds


def sized(kind: str, predicted: float) -> str:
    """A kind among rows whose predictions are of one size: half a decade of seconds, or of GiB."""
    return f"{kind}, 10^{math.floor(2.0 * math.log10(_rounded(predicted))) / 2.0:g}"


def kinds_of(family: Family, row: Row, predicted: float, *, is_published: bool) -> tuple[str, ...]:
    """Kinds of ranges that suit a row, the first that is known to be taken.

    A row that no fit can have seen has those of its machine, else those of machines or sources kept out whole; a user's
    step has those of steps whose source was kept out, with or without its software, and a collective between nodes
    those of such whose source was.
    """
    known = family.kinds(row)
    known = (sized(known[0], predicted), *known)
    if is_published:
        return known
    if family.apart(row):
        return (family.apart(row),)
    whole = tuple(kind for test in WHOLE if test in family.splits for kind in whole_kinds(family, row, test))
    if family.unseen and row.is_guessed:
        name = find_software(row.text("software", ""))
        return (NAMED, family.unseen) if name and measured_rows(name) is not None else (family.unseen,)
    return (*known[:3], *whole, *known[3:])


def fit_spreads(residuals: Sequence[Residual]) -> Mapping[str, Spread]:
    """The spread of every kind with enough rows; groups kept out whole weigh alike, however many rows they have."""
    by_kind: dict[str, list[Residual]] = {}
    for each in residuals:
        for kind in each.kinds:
            by_kind.setdefault(kind, []).append(each)
    return {
        kind: replace(_spread(own), groups=_groups(own) if own[0].kept_out == SOURCE else {})
        for kind, own in sorted(by_kind.items())
        if _is_enough(own)
    }


def _groups(own: Sequence[Residual]) -> dict[str, HeldGroup]:
    """Every publication, with how its rows lie in the range of the others."""
    held = _held(own)
    found = {}
    for name in sorted(held):
        errors = np.array([math.expm1(-each.log_quotient) for each in own if each.group == name])
        found[name] = HeldGroup(
            num_rows=len(errors),
            mape=_rounded(100.0 * float(np.abs(errors).mean())),
            bias=_rounded(100.0 * float(errors.mean())),
            held=_rounded(float(np.mean(held[name]))),
        )
    return found


def _is_enough(own: Sequence[Residual]) -> bool:
    least = MIN_CELLS if own[0].kept_out == CELLS else MIN_GROUPS
    return len(own) >= MIN_ROWS and len({each.group for each in own}) >= least


def _spread(own: Sequence[Residual]) -> Spread:
    values = np.array([each.log_quotient for each in own])
    groups = [each.group for each in own]
    counts = {name: groups.count(name) for name in set(groups)}
    is_whole = own[0].kept_out != CELLS
    weights = np.array([1.0 / counts[name] if is_whole else 1.0 for name in groups])
    tail = (1.0 - LEVEL) / 2.0
    return Spread(
        low=_rounded(math.exp(quantile(values, weights, tail))),
        high=_rounded(math.exp(quantile(values, weights, 1.0 - tail))),
        apart=_rounded(math.exp(_pair_quantile(own))),
        num_rows=len(own),
        num_groups=len(counts),
        kept_out=own[0].kept_out,
        mape=_rounded(_mean_over_groups(own)),
    )


def _mean_over_groups(own: Sequence[Residual]) -> float:
    """Mean over groups of the mean absolute error of the prediction within each, per cent."""
    by_group: dict[str, list[float]] = {}
    for each in own:
        by_group.setdefault(each.group, []).append(abs(math.exp(-each.log_quotient) - 1.0))
    return 100.0 * float(np.mean([np.mean(values) for values in by_group.values()]))


def quantile(values: Floats, weights: Floats, share: float) -> float:
    """Weighted quantile that holds for one more draw: the sample has n + 1 places, the new one among them.

    Args:
        values: shape (num_rows,).
        weights: of each, shape (num_rows,), positive.
        share: between 0 and 1.
    """
    order = np.argsort(values, kind="stable")
    cumulative = np.cumsum(weights[order]) / weights.sum()
    count = weights.sum() ** 2 / (weights**2).sum()
    wanted = (share * (count + 1.0) - 0.5) / count
    middle = cumulative - weights[order] / (2.0 * weights.sum())
    return float(np.interp(min(max(wanted, 0.0), 1.0), middle, values[order]))


def _pair_quantile(own: Sequence[Residual]) -> float:
    """What the difference of two rivals stays below in most pairs; of all rows where groups are single."""
    by_group: dict[str, list[float]] = {}
    for each in own:
        whole = each.group if each.kept_out != CELLS else ""
        by_group.setdefault(each.rivals or whole, []).append(each.log_quotient)
    differences = [
        abs(first - second) for values in by_group.values() for first, second in list(combinations(_thinned(values), 2))
    ]
    return float(np.quantile(differences, LEVEL)) if differences else 0.0


def _thinned(values: Sequence[float]) -> Sequence[float]:
    """Every so many of them, so that pairs stay few."""
    step = max(1, math.ceil(len(values) / math.sqrt(2 * MAX_PAIRS)))
    return values[::step]


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")


def coverage(spread: Spread, quotients: Floats) -> float:
    """Share of quotients of measured over predicted within a range."""
    return float(((quotients >= spread.low) & (quotients <= spread.high)).mean())


def cross_coverage(residuals: Sequence[Residual]) -> Mapping[str, float]:
    """Share of rows that lie in a range made without their own group, by kind: the check of the ranges themselves."""
    by_kind: dict[str, list[Residual]] = {}
    for each in residuals:
        for kind in each.kinds:
            by_kind.setdefault(kind, []).append(each)
    return {kind: _cross_coverage(own) for kind, own in sorted(by_kind.items()) if _is_enough(own)}


def _cross_coverage(own: Sequence[Residual]) -> float:
    """Over rows; of groups kept out whole over groups, as these weigh alike."""
    return float(np.mean([np.mean(values) for values in _held(own).values()]))


def _held(own: Sequence[Residual]) -> dict[str, list[bool]]:
    """Whether each row lies in a range made without its own group, by what was kept out whole."""
    held: dict[str, list[bool]] = {}
    for fold in _deal(own):
        out = {id(each) for each in fold}
        spread = _spread([each for each in own if id(each) not in out])
        for each in fold:
            name = "" if each.kept_out == CELLS else each.group
            held.setdefault(name, []).append(spread.low <= math.exp(each.log_quotient) <= spread.high)
    return held


def _deal(own: Sequence[Residual]) -> Iterator[list[Residual]]:
    """Groups in turn; many cells in ten parts."""
    names = sorted({each.group for each in own})
    parts = min(len(names), 10 if own[0].kept_out == CELLS else len(names))
    place = {name: index % parts for index, name in enumerate(names)}
    for part in range(parts):
        yield [each for each in own if place[each.group] == part]
