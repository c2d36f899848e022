"""The rows of a certificate of dies: each a die that could be built, and every other die no faster than one of them.

Lemma (docs/certificate.md): with the same cores and links, more buffer, more rate of the buffer, more stacks of HBM, a
faster clock or larger L2s lengthen no step, nor do arrays of a kind that is never slower. So a row's bound holds for
every die with cores and links that are the same but for that, and at most as much of each.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np

from phaze_opt.certify.certificate import CERTIFICATE_FILE, POINTS_FILE, Certificate
from phaze_opt.certify.check.front import Matches, check_gap, counted, excess_of_rows, excess_over, minimised
from phaze_opt.certify.check.points_table import EXACT, PointsTable
from phaze_opt.certify.check.problem_data import costs_of, goal_value
from phaze_opt.certify.check.report import demand, refuse
from phaze_opt.hardware.chip_template import (
    AXES,
    AXIS,
    JOINED_AXES,
    NEVER_SLOWS,
    ORDERED_KINDS,
    SIZE_AXES,
    PointColumns,
)
from phaze_opt.hardware.constants import Constants
from phaze_opt.hardware.designed_chip import BANK_RULE, chips_of
from phaze_opt.hardware.silicon.chip_silicon import Dies
from phaze_opt.hardware.silicon.silicon import DIE_PREFIX, constants_with
from phaze_opt.objective.goals import FrontAxis, Goal
from phaze_opt.objective.scenario import OWN_ESTIMATORS
from phaze_opt.record.arrays import Flags, Floats, Ints
from phaze_opt.space.search_space import SearchSpace
from phaze_opt.units import BITS_PER_BYTE, GIGA, UM2_PER_MM2

_CORES = ("num_tc", "num_vc")
ROUNDING = 1e-10
"""What rounding may add to either side of a limit: sizes are integers and rates round, so no die is so near to one."""


@dataclass(frozen=True, slots=True, eq=False)
class _Judged:
    """Points as dies: whether each is one of the space, whether it keeps to the budgets too, power and area."""

    is_kept: Flags
    is_within: Flags
    power_w: Floats
    area_mm2: Floats


@dataclass(frozen=True, slots=True)
class _Block:
    """Dies of a block, and the largest excess of their bounds over what solved rows attain for them."""

    num_dies: int
    excess: float


@dataclass(frozen=True, slots=True)
class DieRows:
    """Holds the rows of a certificate against the dies of its space.

    Attributes:
        certificate: what is stated; its space has silicon.
        constants: in force.
    """

    certificate: Certificate
    constants: Constants

    def check(self, table: PointsTable) -> PointColumns:
        """The points of the rows, in their order.

        Raises:
            CertificateError: a row is no die of the space or out of order, or a die is bounded by no row.
        """
        demand(table.index == np.arange(len(table)), lambda row: f"index is {table.index[row]}, not {row}")
        places = {name: self._place(table, name) for name in self._space.axes.stated}
        self._check_followed(table.points)
        order = [*SIZE_AXES, *_CORES, *JOINED_AXES]
        shape = [len(getattr(self._space.axes, name)) for name in order if name in places]
        code = np.ravel_multi_index([places[name] for name in order if name in places], shape)
        demand(np.diff(code, prepend=-1) > 0, "is not behind the row before it in the order of the space")
        is_kept = self._judge(table.points).is_kept
        demand(is_kept, "is no die that could be built within the space's area")
        matches = Matches(self.certificate, table) if self.certificate.axes else None
        num_dies, excess = 0, 1.0
        for block in self._blocks():
            checked = self._check_block(block, places, table, matches)
            num_dies, excess = num_dies + checked.num_dies, max(excess, checked.excess)
        stated = self.certificate.claim.num_left_out
        if stated != num_dies - len(table):
            refuse(f"claim: num_left_out is {stated}, not {num_dies - len(table)}", file=CERTIFICATE_FILE)
        if matches is not None and stated:
            rows = excess_of_rows(self.certificate, table, matches)
            check_gap(self.certificate.claim, np.append(rows, excess))
        return table.points

    def are_within(self, points: PointColumns) -> Flags:
        """Which points surely are dies of the space that keep to the budgets."""
        return self._judge(points).is_within

    def num_within(self) -> int:
        """Dies of the space that surely keep to the budgets."""
        return sum(int(self.are_within(self._completed(self._columns_of(block))).sum()) for block in self._blocks())

    @property
    def _space(self) -> SearchSpace:
        return self.certificate.space

    def _place(self, table: PointsTable, name: str) -> Ints:
        """Positions of the rows on one axis."""
        values = np.array(getattr(self._space.axes, name), dtype=np.int64)
        found = getattr(table.points, name)
        place: Ints = np.minimum(np.searchsorted(values, found), len(values) - 1)
        demand(values[place] == found, lambda row: f"{name} is {found[row]}, which is not on its axis")
        return place

    def _check_followed(self, points: PointColumns) -> None:
        """Parameters without values of their own are what the others make them."""
        stated = {name: getattr(points, name) for name in self._space.axes.stated}
        expected = self._completed(stated)
        for name in (name for name in AXIS if name not in stated):
            found = getattr(points, name)
            demand(
                found == getattr(expected, name), lambda row, n=name, f=found: f"{n} is {f[row]}, which does not follow"
            )

    def _judge(self, points: PointColumns) -> "_Judged":
        """Which points are dies of the space, which of these surely keep to the scenario's budgets too, and watts."""
        scenario, space = self.certificate.scenario, self._space
        chips = chips_of(points, self.constants)
        dies = Dies.of(chips, self.constants)
        area_mm2 = dies.area.total
        cap_mm2 = min(space.area_budget_um2, space.max_area_um2) / UM2_PER_MM2
        least_mm2 = space.min_area_fraction * space.area_budget_um2 / UM2_PER_MM2
        is_kept = could_be_built(dies) & (area_mm2 <= cap_mm2) & (self._banded_mm2(points, area_mm2) >= least_mm2)
        is_within = is_kept.copy()
        if scenario.max_area_mm2 is not None:
            is_within &= area_mm2 / scenario.max_area_mm2 - 1.0 <= -EXACT
        if scenario.max_tdp_w is not None:
            # `check_problem` has held the links against the network's.
            is_within &= dies.power.total / scenario.max_tdp_w - 1.0 <= -EXACT
        if scenario.max_capex_usd is not None:
            capex_usd = scenario.cluster.num_devices * self._costs(points)
            is_within &= capex_usd / scenario.max_capex_usd - 1.0 <= -EXACT
        return _Judged(is_kept, is_within, dies.power.total, area_mm2)

    def _banded_mm2(self, points: PointColumns, area_mm2: Floats) -> Floats:
        """Areas that a space's least area counts by: those of its band's silicon, which may be none of its own."""
        silicon = self._space.band_silicon
        if silicon is None:
            return area_mm2
        known = constants_with(silicon)
        return Dies.of(chips_of(points, known), known).area.total

    def _blocks(self) -> Iterator[dict[str, int]]:
        """Places on all axes but numbers of cores and what never slows."""
        names = [name for name in self._space.axes.stated if name not in (*_CORES, *NEVER_SLOWS)]
        for places in product(*(range(len(getattr(self._space.axes, name))) for name in names)):
            yield dict(zip(names, places, strict=True))

    def _check_block(
        self, block: dict[str, int], places: dict[str, Ints], table: PointsTable, matches: Matches | None
    ) -> _Block:
        """Every die of a block is bounded by a row."""
        axes = self._space.axes
        inner = self._inner
        shape = tuple(len(getattr(axes, name)) for name in inner)
        columns = self._columns_of(block)
        points = self._completed(columns)
        judged = self._judge(points)
        has_row, rate_upper = np.zeros(shape, dtype=np.bool_), np.full(shape, np.inf)
        for kinds in self._no_slower(block):
            mine = table.has_bound.copy()
            for name, place in (block | kinds).items():
                mine &= places[name] == place
            where = tuple(places[name][mine] for name in inner)
            rate_upper[where] = np.minimum(rate_upper[where], table.throughput_upper_samples_per_s[mine])
            if block | kinds == block:
                has_row[where] = True
        if self.certificate.scenario.estimator not in OWN_ESTIMATORS:
            # By just any estimator more of what never slows might be slower.
            rate_upper[~has_row] = np.inf
        else:
            rate_upper = _least_of_more(rate_upper, num_cores=len(_CORES))
        least, excess = rate_upper.ravel(), np.ones(0)
        if matches is None:
            is_bounded = self._is_bounded(has_row.ravel(), least, judged, points)
        else:
            excess = self._excess(has_row.ravel(), least, judged, points, matches)
            is_bounded = excess <= (1.0 + self.certificate.claim.gap) * (1.0 + EXACT)
        missing = np.flatnonzero(judged.is_within & ~is_bounded)
        if len(missing):
            die = ", ".join(f"{name} {columns[name][missing[0]]}" for name in axes.stated)
            refuse(f"has no row that bounds the die of {die}", file=POINTS_FILE)
        return _Block(int(judged.is_kept.sum()), float(excess.max(initial=1.0)))

    @property
    def _inner(self) -> list[str]:
        """Axes along which a block's dies differ."""
        return [name for name in (*_CORES, *NEVER_SLOWS) if name in self._space.axes.stated]

    def _columns_of(self, block: dict[str, int]) -> dict[str, Ints]:
        """Stated parameters of every die of a block, built or not, flat."""
        axes, inner = self._space.axes, self._inner
        sizes = (np.arange(len(getattr(axes, name))) for name in inner)
        mesh = [grid.ravel() for grid in np.meshgrid(*sizes, indexing="ij")]
        at = dict(zip(inner, mesh, strict=True)) | {name: np.full(len(mesh[0]), at) for name, at in block.items()}
        return {name: np.array(getattr(axes, name), dtype=np.int64)[at[name]] for name in axes.stated}

    def _no_slower(self, block: dict[str, int]) -> Iterator[dict[str, int]]:
        """Places on the axes of kinds that no die of a block is faster at, its own among them."""
        names, choices = [name for name in ORDERED_KINDS if name in block], []
        for name in names:
            values, own = getattr(self._space.axes, name), getattr(self._space.axes, name)[block[name]]
            quicker = {other for slower, other in AXIS[name].no_slower if slower == own} | {own}
            choices.append([place for place, value in enumerate(values) if value in quicker])
        for kinds in product(*choices):
            yield dict(zip(names, kinds, strict=True))

    def _is_bounded(self, has_row: Flags, least: Floats, judged: _Judged, points: PointColumns) -> Flags:
        """Which dies of a block have a row, or are bounded by the rows of dies that are no slower; all flat.

        Over power or USD a die has the bound of what is no slower, over its own; it must be within the claim's.
        """
        certificate = self.certificate
        if certificate.goal is Goal.THROUGHPUT:
            return np.isfinite(least)
        is_of_money = certificate.goal is Goal.THROUGHPUT_PER_USD
        device_usd = self._costs(points) if is_of_money else np.zeros(0)
        value = goal_value(certificate, least, tdp_w=judged.power_w, device_usd=device_usd)
        return np.asarray(has_row | (value <= certificate.claim.value_upper * (1.0 + EXACT)))

    def _excess(self, has_row: Flags, least: Floats, judged: _Judged, points: PointColumns, matches: Matches) -> Floats:
        """Of each die of a block of a front without a row its bound over what solved rows attain for it; all flat.

        A die without a row has the bound of what is no slower, and watts, area and cost of its own.
        """
        certificate = self.certificate
        others = np.flatnonzero(judged.is_within & ~has_row)
        excess = np.ones(len(has_row))
        if len(others):
            columns = {"tdp_w": judged.power_w[others], "area_mm2": judged.area_mm2[others]}
            if FrontAxis.COST in certificate.axes:
                columns["cost_usd"] = self._costs(points.take(others))
            upper = counted(certificate, least[others])
            excess[others] = excess_over(matches.of(minimised(certificate, columns)), upper)
        return excess

    def _costs(self, points: PointColumns) -> Floats:
        """What a device of each point costs, USD."""
        return costs_of(chips_of(points, self.constants), self.certificate.scenario, self.constants)

    def _completed(self, stated: dict[str, Ints]) -> PointColumns:
        """Columns of the stated axes with those that follow; what is left has its default."""
        silicon, columns = self._space.silicon, dict(stated)
        for axis in (axis for axis in AXES if axis.name not in stated):
            if axis.given_by and silicon is not None:
                columns[axis.name] = stated[axis.given_by] * silicon.stack.capacity_bytes
            elif axis.follows:
                columns[axis.name] = stated[axis.follows]
        return PointColumns(**columns)


def could_be_built(dies: Dies) -> Flags:
    """Which dies keep to the rules of docs/certificate.md, by their areas and powers: `Dies.limits` stated again."""
    constants, columns, whole_mm2 = dies.model.limits, dies.columns, dies.area.total
    # Of a die that is split, reticle and edges are each chiplet's.
    count = columns.num_chiplets
    area_mm2 = whole_mm2 / count
    longest_mm, aspect = constants.value("edge.longest_mm"), constants.value("edge.aspect")
    is_long = aspect * area_mm2 >= longest_mm * longest_mm
    long_mm = np.where(is_long, longest_mm, np.sqrt(aspect * area_mm2))
    short_mm = np.where(is_long, area_mm2 / longest_mm, np.sqrt(area_mm2 / aspect))
    # Stacks on one long side: as many as have room there, whole ones.
    on_a_side = _no_more(np.ceil(np.ceil(columns.hbm_stacks / count) / 2.0) * constants.value("edge.stack_mm"), long_mm)
    lanes = BITS_PER_BYTE * columns.link_bytes_per_s / (GIGA * constants.value("edge.lane_gbit_per_s"))
    crossing_mm = columns.crossing_bytes_per_s / (GIGA * constants.value("edge.die_to_die_gb_per_s_per_mm"))
    package_mm2 = whole_mm2 + columns.hbm_stacks * constants.value("package.stack_mm2")
    bank_bytes = constants.value(BANK_RULE.removeprefix(DIE_PREFIX)) * columns.buffer_bytes_per_cycle
    return np.asarray(
        _no_more(area_mm2, constants.value("package.reticle_mm2"))
        & on_a_side
        & _no_more(lanes * constants.value("edge.lane_mm") + crossing_mm, 2.0 * short_mm * count)
        & _no_more(package_mm2, constants.value("package.interposer_mm2"))
        & _no_more(bank_bytes, columns.buffer_bytes)
        & _no_more(dies.power.total / whole_mm2, dies.model.power.most_w_per_mm2)
    )


def _no_more(values: Floats, limits: Floats | float) -> Flags:
    """Whether values are at most limits but for rounding."""
    return np.asarray(values <= np.asarray(limits) * (1.0 + ROUNDING))


def _least_of_more(rate_upper: Floats, *, num_cores: int) -> Floats:
    """The least bound at or above each place along every axis but the first ``num_cores``; infinite where none is."""
    least = rate_upper
    for axis in range(num_cores, least.ndim):
        least = np.flip(np.minimum.accumulate(np.flip(least, axis), axis=axis), axis)
    return least
