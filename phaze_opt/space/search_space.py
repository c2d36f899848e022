"""Search spaces: kept architectures joined with HBM capacities and micro-batches."""

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from phaze_opt.errors import InputError
from phaze_opt.hardware.accelerator import AcceleratorTable
from phaze_opt.hardware.chip_template import (
    AXES,
    AXIS,
    JOINED_AXES,
    Axis,
    Design,
    DesignPoint,
    PointColumns,
    bind_fields,
)
from phaze_opt.hardware.constants import Constants
from phaze_opt.hardware.designed_chip import HbmForm, chips_of
from phaze_opt.hardware.economics.device_cost import chip_cost
from phaze_opt.hardware.economics.prices import prices_with
from phaze_opt.hardware.silicon.chip_silicon import Dies, chip_area_mm2, die_power_w
from phaze_opt.hardware.silicon.silicon import Silicon, constants_with
from phaze_opt.record.arrays import Flags, Floats, Ints
from phaze_opt.record.plain_data import to_plain
from phaze_opt.space.axes import ROW_AXES, Axes
from phaze_opt.space.frontier import FrontierRows, compile_frontier, mask_of
from phaze_opt.space.kept_architectures import KeptRows, compile_die_rows, compile_kept_rows
from phaze_opt.units import UM2_PER_MM2, um2_to_mm2

_MAX_LISTED_VALUES = 64
_CHUNK = 4096
_CHUNK_PRICED = 1 << 17


@bind_fields(int)
@dataclass(frozen=True, slots=True)
class Positions(Design[int]):
    """Where a point stands on every axis; 0 on those without values of their own."""

    def __post_init__(self) -> None:
        """Fill in positions that are not given."""
        for axis in AXES:
            if getattr(self, axis.name) is None:
                object.__setattr__(self, axis.name, 0)


@dataclass(frozen=True, slots=True)
class CapexBudget:
    """What dies of a cluster may cost, USD; ``prices`` are those other than the package's."""

    max_capex_usd: float
    num_devices: int
    prices: tuple[tuple[str, float], ...] = ()

    def keeps(self, device_usd: Floats) -> Flags:
        """Which devices keep to it, by what each costs; the comparison of `Objective`."""
        return np.asarray(self.num_devices * device_usd / self.max_capex_usd - 1.0 <= 0.0)


@dataclass(frozen=True, slots=True)
class Frontier:
    """Of the chips within budgets of power and capex those beside which none has more (`frontier`), and some more."""

    max_tdp_w: float | None = None
    also: tuple[DesignPoint, ...] = ()
    capex: CapexBudget | None = None


@dataclass(frozen=True, slots=True)
class SearchSpace:
    """Kept architectures x HBM capacities x micro-batches; what is kept is worked out on first use.

    By the 22 nm tables an architecture is kept if area <= budget and (area >= min_area_fraction x budget, or it has one
    tensor core or one vector core), and it does not exceed ``max_area_um2`` if that is set. A die is kept if its area
    lies within these bounds and it could be built and run: reticle, edge, interposer, banks and cooling
    (`hardware.silicon`).

    Attributes:
        name: name to report.
        axes: the values of every parameter.
        area_budget_um2: A_max of semantics 2.
        min_area_fraction: lower end of the band as a share of the budget.
        max_area_um2: cap set by `restrict`; infinite by default.
        silicon: what dies are built of; None for the 22 nm tables.
        frontier: leaves only the frontier of the space (`frontier`).
        band_silicon: whose areas the lower end of the band counts by; None for ``silicon`` itself.
    """

    name: str
    axes: Axes
    area_budget_um2: float
    min_area_fraction: float
    max_area_um2: float = math.inf
    silicon: Silicon | None = None
    frontier: Frontier | None = None
    band_silicon: Silicon | None = None

    def __post_init__(self) -> None:
        """Refuse a budget that is not positive and a fraction outside 0..1."""
        if not (math.isfinite(self.area_budget_um2) and self.area_budget_um2 > 0):
            message = f"area budget of {um2_to_mm2(self.area_budget_um2)} mm^2 must be positive and finite"
            raise InputError(message)
        if not 0 <= self.min_area_fraction <= 1:
            message = f"min_area_fraction = {self.min_area_fraction} must lie between 0 and 1"
            raise InputError(message)
        if not self.max_area_um2 > 0:
            message = f"maximum area of {um2_to_mm2(self.max_area_um2)} mm^2 must be positive"
            raise InputError(message)
        if self.silicon is None and self.axes.hbm_stacks:
            message = "stacks of HBM are of dies; give hbm_gb in place of hbm_stacks, or leave out --silicon phaze"
            raise InputError(message, key="hbm_stacks")
        self._check_limits()
        if self.silicon is not None and not self.axes.hbm_stacks:
            message = "dies are searched by their stacks of HBM; give hbm_stacks"
            raise InputError(message, key="hbm_gb")
        if self.silicon is not None and self.axes.hbm_bytes:
            message = "the HBM of dies is that of their stacks; give hbm_stacks or hbm_gb, not both"
            raise InputError(message, key="hbm_gb")

    def _check_limits(self) -> None:
        """What only dies have, and what chips are known to run at."""
        for axis in (AXIS[name] for name in self.axes.stated):
            if axis.needs_die and self.silicon is None:
                message = f"{axis.plural} are of dies, as the 22 nm tables do not price them; leave out --silicon phaze"
                raise InputError(message, key=axis.key)
            values = getattr(self.axes, axis.name)
            for value in (values[0], values[-1]):
                # Other sizes have their bounds in files: what Python makes may be smaller.
                if (axis.needs_die or axis.choices) and (rule := axis.bounds.fault(axis.amount(value))):
                    raise InputError(rule, key=axis.key)

    @property
    def constants(self) -> Constants:
        """The package's constants with the space's silicon: they decide what is kept."""
        return constants_with(self.silicon)

    @property
    def kept(self) -> KeptRows:
        """The kept architectures by row, those off the frontier included."""
        return _kept(self)

    @property
    def members(self) -> KeptRows | FrontierRows:
        """What the space's indices count."""
        return self.kept if self.frontier is None else _compile_frontier(self)

    def frontier_within(
        self, max_tdp_w: float | None = None, *, capex: CapexBudget | None = None, also: Sequence[DesignPoint] = ()
    ) -> "SearchSpace":
        """The frontier of the chips that keep to budgets of power and capex, and some more chips of the space."""
        return replace(self, frontier=Frontier(max_tdp_w, tuple(also), capex))

    @property
    def num_candidates(self) -> int:
        """Architectures before any constraint."""
        return self.axes.num_candidates

    @property
    def num_architectures(self) -> int:
        """Kept architectures."""
        return self.members.num_architectures

    @property
    def size(self) -> int:
        """Points: kept architectures x HBM capacities x micro-batches."""
        return self.num_architectures * math.prod(self.axes.joined_shape)

    @property
    def num_chips(self) -> int:
        """Chips: points at one micro-batch."""
        return self.size // len(self.axes.micro_batch)

    @property
    def digest(self) -> str:
        """sha256 of what decides the points: axes, budget, band and cap; the name does not."""
        what = to_plain(SearchSpace, self)
        del what["name"]
        what["max_area_um2"] = None if math.isinf(self.max_area_um2) else self.max_area_um2
        return hashlib.sha256(json.dumps(what, sort_keys=True, allow_nan=False).encode()).hexdigest()

    @property
    def architecture_columns(self) -> PointColumns:
        """The kept architectures in index order, at the largest value of every other axis; read-only."""
        return _write_out(self)

    def accelerator_table(
        self, constants: Constants, *, hbm_bytes: int | None = None, hbm_form: HbmForm | None = None
    ) -> AcceleratorTable:
        """The kept architectures as accelerators with one HBM capacity.

        Args:
            constants: clock, bandwidths and L2 sizing.
            hbm_bytes: the capacity; the largest of the space by default.
            hbm_form: how HBM bandwidth follows from it; the estimator option by default.
        """
        columns = self.architecture_columns
        if hbm_bytes is not None:
            columns = replace(columns, hbm_bytes=np.full(len(columns), hbm_bytes, dtype=np.int64))
        return chips_of(columns, constants, hbm_form=hbm_form)

    def largest_chips(self, constants: Constants) -> AcceleratorTable:
        """Of every row of `kept_architectures` the chip with the most vector cores, at the largest HBM.

        No chip of the space has a larger area or TDP than all of these: both grow with every axis but those that say
        they are not monotone, of which every value is taken.
        """
        kept = self.kept
        rows = np.flatnonzero(np.diff(kept.starts))
        most = np.where(kept.high[rows] > kept.low[rows], np.maximum(kept.high[rows] - 1, 0), 0)
        joined = [np.arange(n) if not AXIS[name].is_monotone else np.array([n - 1]) for name, n in self._joined_sizes()]
        grid = np.meshgrid(np.arange(len(rows)), *joined, indexing="ij")
        chosen, *places = (index.ravel() for index in grid)
        return chips_of(self.columns_at(rows[chosen], most[chosen], places), constants)

    def columns(self, indices: Ints) -> PointColumns:
        """The points with these indices, in their order, unchecked; each equals `point`."""
        architecture, *joined = np.unravel_index(indices, (max(1, self.num_architectures), *self.axes.joined_shape))
        return self.columns_at(*self.members.row_and_vc(architecture), joined)

    def varying_axes(self) -> tuple[str, ...]:
        """Axes on which the points differ."""
        every = self.columns(np.arange(self.size))
        return tuple(name for name in self.axes.stated if len(np.unique(getattr(every, name))) > 1)

    def draw(self, count: int, rng: np.random.Generator) -> PointColumns:
        """Points of the space, each equally likely, with replacement."""
        return self.columns(rng.integers(self.size, size=count))

    def points_at(self, indices: Ints) -> tuple[DesignPoint, ...]:
        """The points with these indices, in their order.

        Raises:
            InputError: an index is none of the space's.
        """
        if len(indices) and (indices.min() < 0 or indices.max() >= self.size):
            message = f"points {indices.min()}..{indices.max()} of a space with {self.size} points do not all exist"
            raise InputError(message)
        return tuple(self.columns(indices)) if len(indices) else ()

    def point(self, index: int) -> DesignPoint:
        """The point with this index, 0..size-1: micro-batch varies fastest, then HBM, then the architecture.

        Raises:
            InputError: no such index.
        """
        if not 0 <= index < self.size:
            message = f"point {index} of a space with {self.size} points must lie in 0..{self.size - 1}"
            raise InputError(message)
        # In whole numbers of Python: arrays of one entry take three times as long.
        places, rest = {}, index
        for name, count in reversed(list(self._joined_sizes())):
            rest, places[name] = divmod(rest, count)
        row, vc = self.members.row_and_vc(np.array([rest]))
        rest, places["num_vc"] = int(row[0]), int(vc[0])
        for name, count in zip(reversed(ROW_AXES), reversed(self.axes.shape), strict=True):
            rest, places[name] = divmod(rest, count)
        return self._point(places)

    def point_at(self, positions: Positions) -> DesignPoint:
        """The point at indices on the axes, kept or not."""
        return self._point({name: getattr(positions, name) for name in AXIS})

    def row_of(self, positions: Positions) -> int:
        """Row of `kept_architectures` of indices on the axes."""
        return int(np.ravel_multi_index([getattr(positions, name) for name in ROW_AXES], self.axes.shape))

    def keeps(self, positions: Positions) -> bool:
        """Whether the architecture at indices on the axes is kept."""
        return self._architecture(positions) >= 0

    def builds(self, points: PointColumns) -> Flags:
        """Which dies at places of the axes are kept, worked out for these alone; of the shape of the points.

        Of spaces that have a silicon: those of the 22 nm tables look it up (`contains`).
        """
        dies, (low, high) = Dies.of(chips_of(points, self.constants), self.constants), self.area_bounds_mm2
        area_mm2 = banded_mm2 = dies.area_mm2
        if self.band_silicon is not None:
            known = constants_with(self.band_silicon)
            banded_mm2 = chip_area_mm2(chips_of(points, known), known)
        return np.asarray(dies.is_buildable & (banded_mm2 >= low) & (area_mm2 <= high))

    @property
    def area_bounds_mm2(self) -> tuple[float, float]:
        """Least and largest area of what is kept, mm^2."""
        low, high = self.min_area_fraction * self.area_budget_um2, min(self.area_budget_um2, self.max_area_um2)
        return um2_to_mm2(low), um2_to_mm2(high)

    def under(self, silicon: Silicon) -> "SearchSpace":
        """The space where dies turn out to be of another silicon.

        Which dies are searched is the space's to say, so the lower end of the band stays that of its own areas; what
        can be built and fits the budget is the other silicon's.
        """
        if silicon == self.silicon:
            return self
        banded = self.band_silicon or self.silicon
        return replace(self, silicon=silicon, band_silicon=banded if self.min_area_fraction > 0.0 else None)

    def within(self, max_area_mm2: float | None) -> "SearchSpace":
        """The space capped at an area, whether that leaves anything or not."""
        limit = math.inf if max_area_mm2 is None else max_area_mm2 * UM2_PER_MM2
        return replace(self, max_area_um2=limit) if limit < self.max_area_um2 else self

    def allowed(self, max_tdp_w: float | None, *, capex: CapexBudget | None = None) -> Flags:
        """Which architectures are kept and keep to budgets of power and capex, shape (num_rows, len(axes.num_vc))."""
        whole, within = replace(self, frontier=None), Frontier(max_tdp_w, capex=capex)
        is_allowed = None if within == Frontier() else _within_budgets(whole, within)
        return mask_of(whole.axes, whole.kept, is_allowed)

    def index(self, point: DesignPoint) -> int:
        """Index of a point; the inverse of `point`.

        Raises:
            InputError: the point is not in the space; says which axis or bound it breaks.
        """
        positions = self.positions(point)
        architecture = self._architecture(positions)
        if architecture < 0:
            message = f"{point} breaks the area bounds of the space {self.name}: {self.describe_bounds()}"
            raise InputError(message)
        for name, count in self._joined_sizes():
            architecture = architecture * count + getattr(positions, name)
        return architecture

    def _architecture(self, positions: Positions) -> int:
        """Index of the architecture at indices on the axes; -1 if it is not kept."""
        return int(self.members.index_of(np.array([self.row_of(positions)]), np.array([positions.num_vc]))[0])

    def _point(self, places: Mapping[str, int]) -> DesignPoint:
        values = {name: getattr(self.axes, name)[places[name]] for name in self.axes.stated}
        return DesignPoint(**self._complete(self.axes.complete(values)))

    def _joined_sizes(self) -> Iterator[tuple[str, int]]:
        return zip(JOINED_AXES, self.axes.joined_shape, strict=True)

    def columns_at(self, row: Ints, vc: Ints, joined: Sequence[Ints]) -> PointColumns:
        """Points by row of `kept_architectures` and positions on the other axes, each of shape (num_points,)."""
        places = dict(zip(ROW_AXES, np.unravel_index(row, self.axes.shape), strict=True))
        places |= {"num_vc": vc, **dict(zip(JOINED_AXES, joined, strict=True))}
        return self._take(places)

    def _take(self, places: Mapping[str, Ints]) -> PointColumns:
        """Points at places on the axes, whose shapes broadcast."""
        return PointColumns(**self._complete(self.axes.take(places)))

    def _complete(self, values: dict[str, Any]) -> dict[str, Any]:
        """Values of points with the capacity that their stacks of HBM have, where the space gives none."""
        if self.silicon is not None and not self.axes.hbm_bytes:
            values["hbm_bytes"] = values["hbm_stacks"] * self.silicon.stack.capacity_bytes
        return values

    def contains(self, point: DesignPoint) -> bool:
        """Whether the point is one of the space's."""
        try:
            self.index(point)
        except InputError:
            return False
        return True

    def positions(self, point: DesignPoint) -> Positions:
        """Indices of a point on the axes.

        Raises:
            InputError: a value is not on its axis.
        """
        found = {}
        for axis in AXES:
            values, value = getattr(self.axes, axis.name), getattr(point, axis.name)
            if not values:
                other = axis.follows or axis.given_by or "its default"
                followed = self._followed(axis, point)
                if value != followed:
                    message = f"{axis.name} = {value} must equal {other} = {followed} in the space {self.name}"
                    raise InputError(message, key=axis.name)
                values = (value,)
            if value not in values:
                ends = f"{values[0]}..{values[-1]}"
                message = f"{axis.name} = {value} is not on its axis in the space {self.name}, {ends}"
                raise InputError(message, key=axis.name)
            found[axis.name] = values.index(value)
        return Positions(**found)

    def _followed(self, axis: Axis, point: DesignPoint) -> int | None:
        """The value of an axis that the space gives none of its own."""
        if axis.given_by and self.silicon is not None:
            return int(getattr(point, axis.given_by) * self.silicon.stack.capacity_bytes)
        return getattr(point, axis.follows) if axis.follows else axis.default

    def points(self) -> Iterator[DesignPoint]:
        """All points in index order."""
        chunks = (np.arange(first, min(first + _CHUNK, self.size)) for first in range(0, self.size, _CHUNK))
        return (point for chunk in chunks for point in self.columns(chunk))

    def restrict(self, *, max_area_mm2: float) -> "SearchSpace":
        """The points of this space whose area does not exceed ``max_area_mm2``.

        Filters only: the budget, and with it the band's lower end, stay. A cap under the band leaves just the designs
        with one tensor core or one vector core; a larger budget needs a space file.

        Raises:
            InputError: the cap is not positive or leaves nothing.
        """
        if not (math.isfinite(max_area_mm2) and max_area_mm2 > 0):
            message = f"maximum area of {max_area_mm2} mm^2 must be positive and finite"
            raise InputError(message)
        restricted = replace(self, max_area_um2=min(self.max_area_um2, max_area_mm2 * UM2_PER_MM2))
        if restricted.num_architectures == 0:
            message = f"no architecture of the space {self.name} fits {max_area_mm2} mm^2; allow more area"
            raise InputError(message)
        return restricted

    def ranges(self) -> dict[str, dict[str, object]]:
        """Low, high, number of values and (up to 64) the values of every axis, in printed units; ready for JSON."""
        described: dict[str, dict[str, object]] = {}
        for axis in (AXIS[name] for name in self.axes.stated):
            values = [axis.printed(value) for value in getattr(self.axes, axis.name)]
            listed = values if len(values) <= _MAX_LISTED_VALUES else None
            described[axis.key] = {"low": values[0], "high": values[-1], "num_values": len(values), "values": listed}
        return described

    def describe_bounds(self) -> str:
        """What an architecture has to keep to be in the space."""
        low = um2_to_mm2(self.min_area_fraction * self.area_budget_um2)
        high = um2_to_mm2(min(self.area_budget_um2, self.max_area_um2))
        if self.silicon is not None:
            return (
                f"{low:.6g} to {high:.6g} mm^2, with banks for its buffer, edge for its stacks and links, and cooling"
            )
        return f"{low:.6g} to {high:.6g} mm^2, the lower bound waived for one tensor core or one vector core"


@lru_cache(maxsize=8)
def _kept(space: SearchSpace) -> KeptRows:
    return _compile(replace(space, name="", frontier=None))


@lru_cache(maxsize=8)
def _compile(space: SearchSpace) -> KeptRows:
    if space.silicon is None:
        cap_um2 = min(space.area_budget_um2, space.max_area_um2)
        band_um2 = space.min_area_fraction * space.area_budget_um2
        return compile_kept_rows(space.axes, band_um2=band_um2, cap_um2=cap_um2)
    first = {name: np.zeros(1, dtype=np.int64) for name in space.axes.stated}

    return compile_die_rows(space.axes, lambda places: space.builds(space._take(first | dict(places))))


@lru_cache(maxsize=4)
def _compile_frontier(space: SearchSpace) -> FrontierRows:
    assert space.frontier is not None
    whole, within = replace(space, frontier=None), replace(space.frontier, also=())
    joined = math.prod(space.axes.joined_shape)
    also = np.array([whole.index(point) // joined for point in space.frontier.also], dtype=np.int64)
    is_allowed = None if within == Frontier() or space.silicon is None else _within_budgets(whole, within)
    mask = mask_of(space.axes, whole.kept, is_allowed)
    return compile_frontier(space.axes, mask, also=whole.kept.row_and_vc(also))


@lru_cache(maxsize=2)
def _within_budgets(whole: SearchSpace, within: Frontier) -> Flags:
    """Which kept dies keep to budgets of power and capex, by index."""
    is_allowed = np.ones(whole.num_architectures, dtype=np.bool_)
    last = [np.array([count - 1]) for count in whole.axes.joined_shape]
    for start in range(0, whole.num_architectures, _CHUNK_PRICED):
        here = np.arange(start, min(start + _CHUNK_PRICED, whole.num_architectures), dtype=np.int64)
        others = [np.repeat(place, len(here)) for place in last]
        chips = chips_of(whole.columns_at(*whole.kept.row_and_vc(here), others), whole.constants)
        if within.max_tdp_w is not None:
            is_allowed[here] &= die_power_w(chips, whole.constants) / within.max_tdp_w - 1.0 <= 0.0
        if within.capex is not None:
            assert whole.silicon is not None
            prices, links = prices_with(within.capex.prices), whole.silicon.link_bytes_per_s
            is_allowed[here] &= within.capex.keeps(
                chip_cost(chips, whole.constants, link_bytes_per_s=links, prices=prices).usd
            )
    return is_allowed


@lru_cache(maxsize=4)
def _write_out(space: SearchSpace) -> PointColumns:
    row, vc = space.kept.row_and_vc(np.arange(space.kept.num_architectures, dtype=np.int64))
    last = [np.full(len(row), count - 1) for count in space.axes.joined_shape]
    columns = space.columns_at(row, vc, last)
    for axis in AXES:
        getattr(columns, axis.name).setflags(write=False)
    return columns
