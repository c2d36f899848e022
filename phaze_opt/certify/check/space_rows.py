"""The whole space, enumerated by brute force over its axes, and the rows compared with it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from phaze_opt.certify.certificate import POINTS_FILE, Infeasibility
from phaze_opt.certify.check.points_table import POINT_COLUMNS, PointsTable, demand
from phaze_opt.certify.check.refusal import refuse
from phaze_opt.hardware.accelerator import AcceleratorTable
from phaze_opt.hardware.area import area_um2_table
from phaze_opt.hardware.constants import Constants
from phaze_opt.hardware.design import build_accelerator_table
from phaze_opt.hardware.power import tdp_w_table
from phaze_opt.objective.scenario import Scenario
from phaze_opt.space.search_space import SearchSpace
from phaze_opt.units import UM2_PER_MM2

EXACT = 1e-9
"""Relative difference that rounding explains; more is another number."""

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Architectures:
    """The kept architectures in index order, each column of shape (num_architectures,)."""

    num_tc: Ints
    num_vc: Ints
    tc_width: Ints
    tc_depth: Ints
    glb_bytes: Ints

    def __len__(self) -> int:
        """Number of architectures."""
        return len(self.num_tc)

    def table(self, rows: slice, *, hbm_bytes: int, constants: Constants) -> AcceleratorTable:
        """Some of them as accelerators with one HBM capacity."""
        return build_accelerator_table(
            self.num_tc[rows],
            self.num_vc[rows],
            tc_width=self.tc_width[rows],
            tc_depth=self.tc_depth[rows],
            glb_bytes=self.glb_bytes[rows],
            hbm_bytes=np.full(len(self.num_tc[rows]), hbm_bytes, dtype=np.int64),
            constants=constants,
        )


def enumerate_architectures(space: SearchSpace, constants: Constants) -> Architectures:
    """Every combination of the axes that the budget and the band admit: GLB slowest, vector cores fastest.

    Kept: area <= budget and cap, and (area >= fraction x budget, or one tensor core, or one vector core).
    """
    axes = space.axes
    num_tc, num_vc = (grid.ravel() for grid in np.meshgrid(np.array(axes.num_tc), np.array(axes.num_vc), indexing="ij"))
    parts: list[list[Ints]] = []
    for glb, width, depth in product(axes.glb_bytes, axes.tc_width, axes.tc_depth):
        columns = [num_tc, num_vc, *(np.full(len(num_tc), value) for value in (width, depth, glb))]
        block = Architectures(*(column.astype(np.int64) for column in columns))
        chips = block.table(slice(None), hbm_bytes=axes.hbm_bytes[0], constants=constants)
        area_um2 = area_um2_table(chips, constants=constants)
        in_band = (area_um2 >= space.min_area_fraction * space.area_budget_um2) | (num_tc == 1) | (num_vc == 1)
        kept = in_band & (area_um2 <= min(space.area_budget_um2, space.max_area_um2))
        parts.append([column[kept].astype(np.int64) for column in columns])
    return Architectures(*(np.concatenate([part[column] for part in parts]) for column in range(5)))


def check_space(points: PointsTable, architectures: Architectures, space: SearchSpace) -> None:
    """The rows are the whole space: each point once, in index order.

    Raises:
        CertificateError: names the first row that is another point, or the number of rows.
    """
    capacities, batches = np.array(space.axes.hbm_bytes), np.array(space.axes.micro_batch)
    joined = len(capacities) * len(batches)
    size = len(architectures) * joined
    count = min(len(points), size)
    rows = np.arange(count)
    architecture = rows // joined
    width = architectures.tc_width[architecture]
    expected = {
        "num_tc": architectures.num_tc[architecture],
        "num_vc": architectures.num_vc[architecture],
        "tc_width": width,
        "tc_depth": architectures.tc_depth[architecture],
        "vc_width": width,
        "glb_bytes": architectures.glb_bytes[architecture],
        "hbm_bytes": capacities[rows // len(batches) % len(capacities)],
        "micro_batch": batches[rows % len(batches)],
    }
    demand(points.index[:count] == rows, lambda row: f"index is {points.index[row]}, not {row}")
    matches = np.stack([getattr(points, name)[:count] == expected[name] for name in POINT_COLUMNS])
    demand(matches.all(axis=0), lambda row: _describe_other_point(points, expected, row))
    if len(points) != size:
        message = f"holds {len(points)} rows but the space has {size} points"
        refuse(message, file=POINTS_FILE, row=count)


def _describe_other_point(points: PointsTable, expected: dict[str, Ints], row: int) -> str:
    """Which column of a row is another point's."""
    for name in POINT_COLUMNS:
        found, wanted = getattr(points, name)[row], expected[name][row]
        if found != wanted:
            return f"{name} is {found} but the space has {wanted} there"
    return "is another point"


def check_budgets(
    points: PointsTable, architectures: Architectures, *, space: SearchSpace, scenario: Scenario, constants: Constants
) -> None:
    """Area and TDP of every row, and the rows that break a budget.

    Raises:
        CertificateError: names the row.
    """
    joined = len(space.axes.hbm_bytes) * len(space.axes.micro_batch)
    for position, capacity in enumerate(space.axes.hbm_bytes):
        chips = architectures.table(slice(None), hbm_bytes=capacity, constants=constants)
        area = area_um2_table(chips, constants=constants) / UM2_PER_MM2
        power = tdp_w_table(chips, scenario.cluster.network, constants)
        for batch in range(len(space.axes.micro_batch)):
            first = position * len(space.axes.micro_batch) + batch
            _check_column(points.area_mm2[first::joined], area, "area_mm2", first=first, step=joined)
            _check_column(points.tdp_w[first::joined], power, "tdp_w", first=first, step=joined)
            reason = points.reason[first::joined]
            _check_budget(reason, area, power, scenario=scenario, first=first, step=joined)


def _check_column(found: Floats, expected: Floats, name: str, *, first: int, step: int) -> None:
    """One column of the rows first, first + step ..."""
    good = np.abs(found - expected) <= EXACT * np.abs(expected)
    if not good.all():
        at = int(np.argmin(good))
        message = f"{name} is {found[at]:.6g} but the architecture gives {expected[at]:.6g}"
        refuse(message, file=POINTS_FILE, row=first + at * step)


def _check_budget(
    reason: NDArray[np.object_], area: Floats, power: Floats, *, scenario: Scenario, first: int, step: int
) -> None:
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
        good = np.where(says, may_be_over & ~is_settled, is_settled | ~surely_over)
        if not good.all():
            at = int(np.argmin(good))
            message = f"reason is '{reason[at]}' but the design takes {value[at]:.6g} of a budget of {budget}"
            refuse(message, file=POINTS_FILE, row=first + at * step)
        is_settled |= says
