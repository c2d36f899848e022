"""Bounds of a frontier by groups: dies of equal cores are bounded by one chip with the most that any of them has.

That chip need not be a die: with at least as much buffer, rate and HBM it slows nothing down (docs/certificate.md), so
its bound holds for all of its group. Only groups whose bound could matter are then bounded die by die. A proof's end is
the same; its bounds of dies far from the optimum are higher.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from phaze_opt.certify.bounding import BoundRows, SpaceBounder
from phaze_opt.certify.exact_solution import solve_point
from phaze_opt.certify.point_table import ProofState
from phaze_opt.hardware.chip_template import AXIS, NEVER_SLOWS, DesignPoint, PointColumns

Ints = NDArray[np.int64]
CHUNK_POINTS = 2048
"""Points bounded by themselves before the best of them are solved."""
NUM_TRIED = 4
"""Points of a chunk that are solved: the better the incumbent, the fewer groups are looked into."""
_MOST = (*NEVER_SLOWS, "hbm_bytes")
_CORES = tuple(name for name in AXIS if name not in _MOST)


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
        for name in _MOST:
            most = np.zeros(distinct.shape[1], dtype=np.int64)
            np.maximum.at(most, group, getattr(points, name))
            columns[name] = most
        return cls(group, PointColumns(**columns))


def bound_by_groups(state: ProofState, bounder: SpaceBounder, *, seeds: Sequence[DesignPoint], slack: float) -> None:
    """Bound every point of a proof whose problem has a frontier, and find a first incumbent.

    Args:
        state: of a proof without bounds. Its areas and powers stay zero: throughput does not ask for them.
        bounder: of its problem.
        seeds: designs whose cores are looked into first.
        slack: points whose bound exceeds the incumbent by no more than this, relative, keep that of their group.
    """
    points = state.problem.rows.columns(np.arange(state.problem.rows.size, dtype=np.int64))
    groups = Groups.of(points)
    shared, nothing = bound_freely(bounder, groups.chips), np.zeros(len(points))
    rates, reasons = shared.rate_upper[groups.of_point], shared.reason[groups.of_point]
    state.fill(0, BoundRows(rates, reasons, nothing, nothing, shared.entries), groups.of_point)
    state.is_shared[:] = True
    for rows in _rows_of_seeds(points, seeds):
        _look_into(state, bounder, rows, num_tried=1)
    while True:
        limit = 0.0 if state.best is None else state.best.value * (1.0 + slack)
        open_rows = np.flatnonzero(state.is_shared & (state.values_upper > limit))
        if not len(open_rows):
            return
        order = np.argsort(-state.values_upper[open_rows], kind="stable")
        _look_into(state, bounder, open_rows[order][:CHUNK_POINTS], num_tried=NUM_TRIED)


def bound_freely(bounder: SpaceBounder, designs: PointColumns) -> BoundRows:
    """Bounds of designs whatever the budgets."""
    objective = bounder.objective
    free = replace(objective.scenario, max_area_mm2=None, max_tdp_w=None)
    if free != objective.scenario:
        other = objective.under(objective.constants, scenario=free)
        bounder = SpaceBounder(other, bounder.space, pools=bounder.pools)
    return bounder.bound_columns(designs)


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


def _look_into(state: ProofState, bounder: SpaceBounder, rows: Ints, *, num_tried: int) -> None:
    """Bound points each by itself and solve the best of them."""
    state.lower(rows, bounder.bound(rows), is_exact=False)
    values = state.values_upper[rows]
    for place in np.argsort(-values, kind="stable")[:num_tried].tolist():
        if values[place] > (0.0 if state.best is None else state.best.value):
            index = int(rows[place])
            state.solve(index, solve_point(bounder.objective, bounder.space, index))
