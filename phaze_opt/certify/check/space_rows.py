"""The whole space, enumerated by brute force over its axes, and the rows compared with it."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
from numpy.typing import NDArray

from phaze_opt.certify.certificate import POINTS_FILE, Infeasibility
from phaze_opt.certify.check.points_table import PointsTable
from phaze_opt.certify.check.report import demand, refuse
from phaze_opt.hardware.area import area_um2_table
from phaze_opt.hardware.constants import Constants
from phaze_opt.hardware.design import chips_of
from phaze_opt.hardware.power import tdp_w_table
from phaze_opt.hardware.template import AXES, AXIS, JOINED_AXES, SIZE_AXES, PointColumns
from phaze_opt.objective.scenario import Scenario
from phaze_opt.space.search_space import SearchSpace
from phaze_opt.units import UM2_PER_MM2

CHUNK_ROWS = 1 << 16
"""Rows priced at once."""
EXACT = 1e-9
"""Relative difference that rounding explains; more is another number."""

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


def enumerate_architectures(space: SearchSpace, constants: Constants) -> PointColumns:
    """Every combination of the axes that the budget and the band admit: GLB slowest, vector cores fastest.

    Kept: area <= budget and cap, and (area >= fraction x budget, or one tensor core, or one vector core). Axes that
    enter no area stand at their first value.
    """
    stated = {name: np.array(getattr(space.axes, name), dtype=np.int64) for name in space.axes.stated}
    sizes = [name for name in SIZE_AXES if name in stated]
    num_tc, num_vc = (grid.ravel() for grid in np.meshgrid(stated["num_tc"], stated["num_vc"], indexing="ij"))
    parts = []
    for values in product(*(stated[name] for name in sizes)):
        first = {name: stated[name][0] for name in JOINED_AXES if name in stated}
        first |= dict(zip(sizes, values, strict=True))
        block = {"num_tc": num_tc, "num_vc": num_vc, **{name: np.full(len(num_tc), first[name]) for name in first}}
        columns = PointColumns(**_followed(block))
        area_um2 = area_um2_table(chips_of(columns, constants), constants=constants)
        in_band = (area_um2 >= space.min_area_fraction * space.area_budget_um2) | (num_tc == 1) | (num_vc == 1)
        fits = area_um2 <= min(space.area_budget_um2, space.max_area_um2)
        parts.append(columns.take(np.flatnonzero(in_band & fits)))
    return PointColumns(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in AXIS})


def _followed(columns: dict[str, Ints]) -> dict[str, Ints]:
    """The columns with those that are equal to another."""
    follow = {axis.name: axis.default for axis in AXES if isinstance(axis.default, str)}
    return {name: columns[other] for name, other in follow.items()} | columns


def joined_points(space: SearchSpace, architectures: PointColumns) -> PointColumns:
    """Every point of the space in index order: the last joined axis varies fastest, architectures slowest."""
    count = math.prod(len(getattr(space.axes, name)) for name in JOINED_AXES if name in space.axes.stated)
    points = {name: np.repeat(getattr(architectures, name), count) for name in AXIS}
    inner = count
    for name in (name for name in JOINED_AXES if name in space.axes.stated):
        values = np.array(getattr(space.axes, name), dtype=np.int64)
        inner //= len(values)
        points[name] = np.tile(np.repeat(values, inner), len(points[name]) // (inner * len(values)))
    return PointColumns(**points)


def check_space(table: PointsTable, space: PointColumns) -> None:
    """The rows are the whole space: each point once, in index order.

    Raises:
        CertificateError: names the first row that is another point, or the number of rows.
    """
    count = min(len(table), len(space))
    demand(table.index[:count] == np.arange(count), lambda row: f"index is {table.index[row]}, not {row}")
    matches = np.stack([getattr(table.points, name)[:count] == getattr(space, name)[:count] for name in AXIS])
    demand(matches.all(axis=0), lambda row: _describe_other_point(table.points, space, row))
    if len(table) != len(space):
        message = f"holds {len(table)} rows but the space has {len(space)} points"
        refuse(message, file=POINTS_FILE, row=count)


def _describe_other_point(points: PointColumns, expected: PointColumns, row: int) -> str:
    """Which column of a row is another point's."""
    for name in AXIS:
        found, wanted = getattr(points, name)[row], getattr(expected, name)[row]
        if found != wanted:
            return f"{name} is {found} but the space has {wanted} there"
    return "is another point"


def check_budgets(table: PointsTable, space: PointColumns, *, scenario: Scenario, constants: Constants) -> None:
    """Area and TDP of every row, and the rows that break a budget.

    Raises:
        CertificateError: names the row.
    """
    for first in range(0, len(space), CHUNK_ROWS):
        here = slice(first, first + CHUNK_ROWS)
        chips = chips_of(space.take(here), constants)
        area = area_um2_table(chips, constants=constants) / UM2_PER_MM2
        power = tdp_w_table(chips, scenario.cluster.network, constants)
        _check_column(table.area_mm2[here], area, "area_mm2", first=first)
        _check_column(table.tdp_w[here], power, "tdp_w", first=first)
        _check_budget(table.reason[here], area, power, scenario=scenario, first=first)


def _check_column(found: Floats, expected: Floats, name: str, *, first: int) -> None:
    """One column of the rows from ``first`` on."""
    demand(
        np.abs(found - expected) <= EXACT * np.abs(expected),
        lambda at: f"{name} is {found[at]:.6g} but the architecture gives {expected[at]:.6g}",
        rows=first + np.arange(len(found)),
    )


def _check_budget(reason: NDArray[np.object_], area: Floats, power: Floats, *, scenario: Scenario, first: int) -> None:
    """A row is over a budget if and only if it says so; area comes first."""
    budgets = (
        (Infeasibility.OVER_AREA, area, scenario.max_area_mm2),
        (Infeasibility.OVER_TDP, power, scenario.max_tdp_w),
    )
    is_settled = np.zeros(len(reason), dtype=np.bool_)
    for word, value, budget in budgets:
        says = reason == word.value
        # A design that takes its budget to the last bit keeps it: rounding may only count in favour of a design.
        surely_over = np.zeros_like(is_settled) if budget is None else value > budget * (1.0 + EXACT)
        may_be_over = np.zeros_like(is_settled) if budget is None else value > budget
        demand(
            np.where(says, may_be_over & ~is_settled, is_settled | ~surely_over),
            lambda at, v=value, b=budget: (
                f"reason is '{reason[at]}' but the design takes {v[at]:.6g} of a budget of {b}"
            ),
            rows=first + np.arange(len(reason)),
        )
        is_settled |= says
