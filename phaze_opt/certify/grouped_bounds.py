"""Bounds of a frontier by groups: dies of equal cores are bounded by one chip with the most that any of them has.

That chip need not be a die: with at least as much buffer, rate and HBM it slows nothing down (docs/certificate.md), so
its bound holds for all of its group. Only groups whose bound could matter are then bounded die by die. A proof's end is
the same; its bounds of dies far from the optimum are higher.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from phaze_opt.certify.bounding import BoundRows, SpaceBounder
from phaze_opt.certify.exact_solution import solve_point
from phaze_opt.certify.point_table import ProofState
from phaze_opt.hardware.chip_template import AXIS, NEVER_SLOWS, DesignPoint, PointColumns
from phaze_opt.hardware.designed_chip import chips_of
from phaze_opt.record.arrays import Floats, Ints

CHUNK_PRICED = 65536
"""Points priced at once."""
CHUNK_GROUPS = 64
"""Groups looked into before the best of their points are solved."""
NUM_TRIED, NUM_TRIED_AGAIN = 6, 2
"""Groups of a chunk of which a point is solved, and points that are once the optimal plan bounds them: the better the
incumbent, the fewer groups are looked into."""
_CORES = tuple(name for name in AXIS if name not in NEVER_SLOWS)


@dataclass(frozen=True, slots=True, eq=False)
class Groups:
    """Points of equal cores.

    Attributes:
        of_point: group of each point, shape (num_points,).
        chips: of each group one that has the most of all, as a design.
    """

    of_point: Ints
    chips: PointColumns

    @classmethod
    def of(cls, points: PointColumns) -> "Groups":
        """The groups of some points."""
        cores = np.stack([np.broadcast_to(getattr(points, name), (len(points),)) for name in _CORES])
        distinct, group = np.unique(cores, axis=1, return_inverse=True)
        group = group.reshape(-1).astype(np.int64)
        columns = dict(zip(_CORES, distinct, strict=True))
        for name in NEVER_SLOWS:
            most = np.zeros(distinct.shape[1], dtype=np.int64)
            np.maximum.at(most, group, getattr(points, name))
            columns[name] = most
        return cls(group, PointColumns(**columns))


def bound_by_groups(state: ProofState, bounder: SpaceBounder, *, seeds: Sequence[DesignPoint], slack: float) -> None:
    """Bound every point of a proof whose problem has a frontier, and find a first incumbent.

    Args:
        state: of a proof without bounds.
        bounder: of its problem.
        seeds: designs whose cores are looked into first.
        slack: points whose bound exceeds the incumbent by no more than this, relative, keep that of their group.
    """
    points = state.problem.rows.columns(np.arange(state.problem.rows.size, dtype=np.int64))
    groups = Groups.of(points)
    free, (area_mm2, tdp_w) = _free(bounder), _amounts(bounder, points)
    shared = free.bound_columns(groups.chips)
    rates, reasons = shared.rate_upper[groups.of_point], shared.reason[groups.of_point]
    state.fill(0, BoundRows(rates, reasons, area_mm2, tdp_w, shared.entries), groups.of_point)
    state.is_shared[:] = True
    for rows in _rows_of_seeds(points, seeds):
        _look_into(state, bounder, rows, groups.of_point[rows], slack=slack)
    while True:
        limit = _limit(state, slack)
        open_rows = np.flatnonzero(state.is_shared & (state.values_upper > limit))
        if not len(open_rows):
            return
        order = open_rows[np.argsort(-state.values_upper[open_rows], kind="stable")]
        _, first = np.unique(groups.of_point[order], return_index=True)
        leading = groups.of_point[order[np.sort(first)]][:CHUNK_GROUPS]
        # The optimal plan of a group's chip often rules out all of it where the relaxed one is far off.
        rates = free.rates_exactly(groups.chips.take(leading), enough_rate=limit)
        for group, rate in zip(leading.tolist(), rates.tolist(), strict=True):
            mine = np.flatnonzero(groups.of_point == group)
            state.cap(mine, np.full(len(mine), rate))
        is_left = np.isin(groups.of_point, leading[rates > limit])
        rest = np.flatnonzero(is_left & state.is_shared)
        if len(rest):
            _look_into(state, bounder, rest, groups.of_point[rest], slack=slack)


def _amounts(bounder: SpaceBounder, points: PointColumns) -> tuple[Floats, Floats]:
    """Area, mm2, and TDP, W, of points."""
    parts = []
    for start in range(0, len(points), CHUNK_PRICED):
        chips = chips_of(points.take(slice(start, start + CHUNK_PRICED)), bounder.objective.constants)
        parts.append(bounder.bounder.broken_budgets(chips)[:2])
    area_mm2, tdp_w = zip(*parts, strict=True)
    return np.concatenate(area_mm2), np.concatenate(tdp_w)


def _free(bounder: SpaceBounder) -> SpaceBounder:
    """A bounder of designs whatever the budgets, by the same vectors."""
    objective = bounder.objective
    scenario = objective.scenario.without_budgets()
    if scenario == objective.scenario:
        return bounder
    return SpaceBounder(objective.under(objective.constants, scenario=scenario), bounder.space, pools=bounder.pools)


def _rows_of_seeds(points: PointColumns, seeds: Sequence[DesignPoint]) -> list[Ints]:
    """Rows with the cores of each seed that has any; each group once."""
    found: dict[tuple[int, ...], Ints] = {}
    for seed in seeds:
        key = tuple(int(getattr(seed, name)) for name in _CORES)
        is_alike = np.ones(len(points), dtype=np.bool_)
        for name, value in zip(_CORES, key, strict=True):
            is_alike &= getattr(points, name) == value
        if is_alike.any():
            found.setdefault(key, np.flatnonzero(is_alike))
    return list(found.values())


def _limit(state: ProofState, slack: float) -> float:
    """Bounds up to this matter no more."""
    return 0.0 if state.best is None else state.best.value * (1.0 + slack)


def _look_into(state: ProofState, bounder: SpaceBounder, rows: Ints, groups: Ints, *, slack: float) -> None:
    """Bound points each by itself, by the optimal plan too where that matters, and solve the most promising ones."""
    own = bounder.bound(rows)
    state.lower(rows, own, is_exact=False)
    # The group's bound, where it is the lower one, follows from these all the more.
    state.enter(rows, own.entries)
    order = np.lexsort((rows, -own.rate_upper, -state.values_upper[rows]))
    _, first = np.unique(groups[order], return_index=True)
    _solve(state, bounder, rows[order[np.sort(first)]][:NUM_TRIED])
    left = rows[state.values_upper[rows] > _limit(state, slack)]
    if len(left):
        points = state.problem.rows.columns(left)
        rates = bounder.rates_exactly(points, enough_rate=_limit(state, slack))
        state.cap(left, rates)
        _solve(state, bounder, left[np.argsort(-state.values_upper[left], kind="stable")][:NUM_TRIED_AGAIN])


def _solve(state: ProofState, bounder: SpaceBounder, rows: Ints) -> None:
    """Solve points that could beat the incumbent."""
    for index in rows.tolist():
        if state.values_upper[index] > (0.0 if state.best is None else state.best.value):
            state.solve(index, solve_point(bounder.objective, bounder.space, index))
