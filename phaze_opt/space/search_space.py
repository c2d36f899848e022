"""Search spaces: kept architectures joined with HBM capacities and micro-batches."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields, replace
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from phaze_opt.errors import InputError
from phaze_opt.hardware.accelerator import AcceleratorTable
from phaze_opt.hardware.area import area_um2_table
from phaze_opt.hardware.constants import Constants, load_constants
from phaze_opt.hardware.coverage import refusal_of, uncovered_axes
from phaze_opt.hardware.design import HbmForm, build_accelerator, build_accelerator_table
from phaze_opt.space.axes import Axes, powers_of_two
from phaze_opt.space.kept import KeptRows, compile_kept_rows
from phaze_opt.space.point import DesignPoint
from phaze_opt.space.space_file import read_space_file
from phaze_opt.units import GIBI, MEBI, UM2_PER_MM2, bytes_to_gib, bytes_to_mib, um2_to_mm2

DEFAULT_HBM_BYTES = (32 * GIBI, 64 * GIBI, 80 * GIBI)
"""HBM capacities searched by default."""
DEFAULT_MICRO_BATCHES = (1, 2, 4, 8)
"""Micro-batches searched by default."""
_MAX_LISTED_VALUES = 64


@dataclass(frozen=True, slots=True)
class ArchitectureColumns:
    """Kept architectures as columns in index order, each of shape (num_architectures,) and read-only."""

    num_tc: NDArray[np.int64]
    num_vc: NDArray[np.int64]
    tc_width: NDArray[np.int64]
    tc_depth: NDArray[np.int64]
    glb_bytes: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class SearchSpace:
    """Kept architectures x HBM capacities x micro-batches; what is kept is worked out on first use.

    An architecture is kept if area <= budget and (area >= min_area_fraction x budget, or it has one tensor core or
    one vector core), and it does not exceed ``max_area_um2`` if that is set.

    Attributes:
        name: name to report.
        axes: the values of every parameter.
        area_budget_um2: A_max of semantics 2.
        min_area_fraction: lower end of the band as a share of the budget.
        max_area_um2: cap set by `restrict`; infinite by default.
    """

    name: str
    axes: Axes
    area_budget_um2: float
    min_area_fraction: float
    max_area_um2: float = math.inf

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

    @property
    def kept(self) -> KeptRows:
        """The kept architectures by row."""
        return _compile(self)

    @property
    def num_candidates(self) -> int:
        """Architectures before any constraint."""
        return self.axes.num_candidates

    @property
    def num_architectures(self) -> int:
        """Kept architectures."""
        return self.kept.num_architectures

    @property
    def size(self) -> int:
        """Points: kept architectures x HBM capacities x micro-batches."""
        return self.num_architectures * len(self.axes.hbm_bytes) * len(self.axes.micro_batch)

    @property
    def digest(self) -> str:
        """sha256 of what decides the points: axes, budget, band and cap; the name does not."""
        what = asdict(self)
        del what["name"]
        what["max_area_um2"] = None if math.isinf(self.max_area_um2) else self.max_area_um2
        return hashlib.sha256(json.dumps(what, sort_keys=True, allow_nan=False).encode()).hexdigest()

    @property
    def architecture_columns(self) -> ArchitectureColumns:
        """The kept architectures, written out on first use."""
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
        capacity = self.axes.hbm_bytes[-1] if hbm_bytes is None else hbm_bytes
        return build_accelerator_table(
            columns.num_tc,
            columns.num_vc,
            tc_width=columns.tc_width,
            tc_depth=columns.tc_depth,
            glb_bytes=columns.glb_bytes,
            hbm_bytes=np.full(len(columns.num_tc), capacity, dtype=np.int64),
            constants=constants,
            hbm_form=hbm_form,
        )

    def largest_chips(self, constants: Constants) -> AcceleratorTable:
        """Of every row of `kept` the chip with the most vector cores, at the largest HBM.

        No chip of the space has a larger area or TDP than all of these: both grow with vector cores and with HBM.
        """
        kept = self.kept
        rows = np.flatnonzero(np.diff(kept.starts))
        glb, width, depth, tc = np.unravel_index(rows, self.axes.shape)
        most = np.maximum(kept.high[rows] - 1, 0)
        return build_accelerator_table(
            np.array(self.axes.num_tc, dtype=np.int64)[tc],
            np.array(self.axes.num_vc, dtype=np.int64)[np.where(kept.high[rows] > kept.low[rows], most, 0)],
            tc_width=np.array(self.axes.tc_width, dtype=np.int64)[width],
            tc_depth=np.array(self.axes.tc_depth, dtype=np.int64)[depth],
            glb_bytes=np.array(self.axes.glb_bytes, dtype=np.int64)[glb],
            hbm_bytes=np.full(len(rows), self.axes.hbm_bytes[-1], dtype=np.int64),
            constants=constants,
        )

    def point(self, index: int) -> DesignPoint:
        """The point with this index, 0..size-1: micro-batch varies fastest, then HBM, then the architecture.

        Raises:
            InputError: no such index.
        """
        if not 0 <= index < self.size:
            message = f"point {index} of a space with {self.size} points must lie in 0..{self.size - 1}"
            raise InputError(message)
        rest, micro_batch = divmod(index, len(self.axes.micro_batch))
        architecture, hbm = divmod(rest, len(self.axes.hbm_bytes))
        row, vc = self.kept.row_and_vc(np.array([architecture]))
        return self.point_at(int(row[0]), int(vc[0]), hbm=hbm, micro_batch=micro_batch)

    def point_at(self, row: int, vc: int, *, hbm: int, micro_batch: int) -> DesignPoint:
        """The point at a row of `kept` and indices on the num_vc, HBM and micro-batch axes."""
        glb, width, depth, tc = (int(position) for position in np.unravel_index(row, self.axes.shape))
        return DesignPoint(
            num_tc=self.axes.num_tc[tc],
            num_vc=self.axes.num_vc[vc],
            tc_width=self.axes.tc_width[width],
            tc_depth=self.axes.tc_depth[depth],
            vc_width=self.axes.tc_width[width],
            glb_bytes=self.axes.glb_bytes[glb],
            hbm_bytes=self.axes.hbm_bytes[hbm],
            micro_batch=self.axes.micro_batch[micro_batch],
        )

    def index(self, point: DesignPoint) -> int:
        """Index of a point; the inverse of `point`.

        Raises:
            InputError: the point is not in the space; says which axis or bound it breaks.
        """
        positions = self.positions(point)
        row = np.ravel_multi_index(positions[:4], self.axes.shape)
        architecture = int(self.kept.index_of(np.array([row]), np.array([positions[4]]))[0])
        if architecture < 0:
            message = f"{point} breaks the area bounds of the space {self.name}: {self._describe_bounds()}"
            raise InputError(message)
        return (architecture * len(self.axes.hbm_bytes) + positions[5]) * len(self.axes.micro_batch) + positions[6]

    def contains(self, point: DesignPoint) -> bool:
        """Whether the point is one of the space's."""
        try:
            self.index(point)
        except InputError:
            return False
        return True

    def positions(self, point: DesignPoint) -> tuple[int, ...]:
        """Indices of a point on the axes GLB, width, depth, num_tc, num_vc, HBM, micro-batch.

        Raises:
            InputError: a value is not on its axis.
        """
        if point.vc_width != point.tc_width:
            message = f"vc_width = {point.vc_width} must equal tc_width = {point.tc_width} in a designed space"
            raise InputError(message, key="vc_width")
        names = ("glb_bytes", "tc_width", "tc_depth", "num_tc", "num_vc", "hbm_bytes", "micro_batch")
        found = []
        for name in names:
            axis, value = getattr(self.axes, name), getattr(point, name)
            if value not in axis:
                message = f"{name} = {value} is not on its axis in the space {self.name}, {axis[0]}..{axis[-1]}"
                raise InputError(message, key=name)
            found.append(axis.index(value))
        return tuple(found)

    def points(self) -> Iterator[DesignPoint]:
        """All points in index order."""
        return (self.point(index) for index in range(self.size))

    def restrict(self, *, max_area_mm2: float) -> SearchSpace:
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
        for field in fields(self.axes):
            name, values = _printed(field.name, getattr(self.axes, field.name))
            listed = list(values) if len(values) <= _MAX_LISTED_VALUES else None
            described[name] = {"low": values[0], "high": values[-1], "num_values": len(values), "values": listed}
        return described

    def _describe_bounds(self) -> str:
        low = um2_to_mm2(self.min_area_fraction * self.area_budget_um2)
        high = um2_to_mm2(min(self.area_budget_um2, self.max_area_um2))
        return f"{low:.6g} to {high:.6g} mm^2, the lower bound waived for one tensor core or one vector core"


def phaze_space(*, hbm_bytes: tuple[int, ...], micro_batches: tuple[int, ...]) -> SearchSpace:
    """The Phaze space (semantics 2): 75,712 candidate architectures of which 29,360 are kept.

    Args:
        hbm_bytes: HBM capacities to join, in any order.
        micro_batches: micro-batches to join, in any order.
    """
    axes = Axes(
        num_tc=powers_of_two(1, 4096),
        num_vc=powers_of_two(1, 4096),
        tc_width=powers_of_two(2, 256),
        tc_depth=powers_of_two(2, 256),
        glb_bytes=powers_of_two(2 * MEBI, 128 * MEBI),
        hbm_bytes=tuple(sorted(set(hbm_bytes))),
        micro_batch=tuple(sorted(set(micro_batches))),
    )
    fraction = load_constants().value("space.min_area_fraction")
    return SearchSpace("phaze", axes, area_budget_um2=phaze_area_budget_um2(), min_area_fraction=fraction)


def phaze_area_budget_um2() -> float:
    """A_max of the Phaze space: the area of its TPUv4-like point, 278,826,676.31216 um^2."""
    reference = build_accelerator(
        8, 2, tc_width=128, tc_depth=128, glb_bytes=128 * MEBI, hbm_bytes=32 * GIBI, constants=load_constants()
    )
    return float(area_um2_table(AcceleratorTable.from_accelerators([reference]))[0])


def load_space(
    path: str | Path, *, hbm_bytes: tuple[int, ...] | None = None, micro_batches: tuple[int, ...] | None = None
) -> SearchSpace:
    """A space from a TOML file; see `space_file.read_space_file` for its form.

    Args:
        path: the file.
        hbm_bytes: replaces the file's HBM capacities (``--hbm``).
        micro_batches: replaces the file's micro-batches (``--micro-batch``).

    Raises:
        InputError: the file is faulty, or no architecture of it is kept.
    """
    described = read_space_file(Path(path))
    capacities = hbm_bytes or described.hbm_bytes or DEFAULT_HBM_BYTES
    batches = micro_batches or described.micro_batch or DEFAULT_MICRO_BATCHES
    axes = Axes(
        num_tc=described.num_tc,
        num_vc=described.num_vc,
        tc_width=described.tc_width,
        tc_depth=described.tc_depth,
        glb_bytes=described.glb_bytes,
        hbm_bytes=tuple(sorted(set(capacities))),
        micro_batch=tuple(sorted(set(batches))),
    )
    _check_covered(axes, source=str(path))
    budget_mm2, fraction = described.area_budget_mm2, described.min_area_fraction
    space = SearchSpace(
        described.name,
        axes,
        area_budget_um2=phaze_area_budget_um2() if budget_mm2 is None else budget_mm2 * UM2_PER_MM2,
        min_area_fraction=load_constants().value("space.min_area_fraction") if fraction is None else fraction,
    )
    if space.num_architectures == 0:
        message = f"none of its {space.num_candidates} architectures has an area in {space._describe_bounds()}"
        raise InputError(message, source=str(path))
    return space


def _check_covered(axes: Axes, *, source: str) -> None:
    """Refuse axes that reach beyond what areas and energies are known for."""
    largest = {name: max(getattr(axes, name)) for name in ("glb_bytes", "tc_width", "tc_depth")}
    for buffer in uncovered_axes(largest, load_constants()):
        raise InputError(refusal_of(buffer), source=source, key=buffer.key)


@lru_cache(maxsize=8)
def _compile(space: SearchSpace) -> KeptRows:
    cap_um2 = min(space.area_budget_um2, space.max_area_um2)
    return compile_kept_rows(space.axes, band_um2=space.min_area_fraction * space.area_budget_um2, cap_um2=cap_um2)


@lru_cache(maxsize=4)
def _write_out(space: SearchSpace) -> ArchitectureColumns:
    axes, kept = space.axes, space.kept
    row, vc = kept.row_and_vc(np.arange(kept.num_architectures, dtype=np.int64))
    glb, width, depth, tc = np.unravel_index(row, axes.shape)
    columns = ArchitectureColumns(
        num_tc=np.array(axes.num_tc, dtype=np.int64)[tc],
        num_vc=np.array(axes.num_vc, dtype=np.int64)[vc],
        tc_width=np.array(axes.tc_width, dtype=np.int64)[width],
        tc_depth=np.array(axes.tc_depth, dtype=np.int64)[depth],
        glb_bytes=np.array(axes.glb_bytes, dtype=np.int64)[glb],
    )
    for field in fields(columns):
        getattr(columns, field.name).setflags(write=False)
    return columns


def _printed(name: str, values: tuple[int, ...]) -> tuple[str, tuple[float, ...]]:
    """An axis in the units users give: GLB in MiB, HBM in GiB; whole numbers stay integers."""
    if name == "glb_bytes":
        return "glb_mb", tuple(_whole(bytes_to_mib(value)) for value in values)
    if name == "hbm_bytes":
        return "hbm_gb", tuple(_whole(bytes_to_gib(value)) for value in values)
    return name, values


def _whole(value: float) -> float:
    return int(value) if value == int(value) else value
