"""``points.parquet`` as columns, what each row may hold by itself, and the whole space that the rows must be."""

import math
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from phaze_opt.certify.certificate import NO_MULTIPLIERS, POINTS_FILE, Infeasibility, PlacementBound, PointStatus
from phaze_opt.certify.check.problem_data import costs_of
from phaze_opt.certify.check.report import demand, refuse
from phaze_opt.errors import CertificateError
from phaze_opt.hardware.area import area_um2_table
from phaze_opt.hardware.chip_template import AXES, AXIS, JOINED_AXES, SIZE_AXES, PointColumns
from phaze_opt.hardware.constants import Constants
from phaze_opt.hardware.designed_chip import chips_of
from phaze_opt.hardware.silicon.chip_silicon import chip_area_mm2, chip_power_w
from phaze_opt.objective.scenario import Scenario
from phaze_opt.record.arrays import Flags, Floats, Ints
from phaze_opt.space.search_space import SearchSpace

Texts = NDArray[np.object_]

_ARROW_TYPES = {
    "index": "int64",
    **{axis.name: axis.parquet for axis in AXES},
    "area_mm2": "double",
    "tdp_w": "double",
    "cost_usd": "double",
    "throughput_samples_per_s": "double",
    "throughput_upper_samples_per_s": "double",
    "status": "string",
    "bound": "string",
    "reason": "string",
    "multipliers_index": "int32",
    "arch": "string",
}
_OF_MONEY = "cost_usd"
_OPTIONAL = {_OF_MONEY, "arch"}
"""Columns of fronts over cost and of goals and budgets of money alone, and of fronts."""
OVER_BUDGETS = (Infeasibility.OVER_AREA, Infeasibility.OVER_TDP, Infeasibility.OVER_CAPEX)
_COMPRESSIONS = ("SNAPPY", "UNCOMPRESSED")
"""Neither unpacks to much more than some twenty times its size."""
SPARE_ROWS = 10_000
"""Rows, beside twice as many as points, that are unpacked at most."""
CHUNK_ROWS = 1 << 16
"""Rows priced at once."""
EXACT = 1e-9
"""Relative difference that rounding explains; more is another number."""


@dataclass(frozen=True, slots=True)
class PointsTable:
    """Columns of ``points.parquet``, each of shape (num_rows,), named as in the file but for those of the point.

    ``cost_usd`` is empty where no goal is of it, ``arch`` where there is no front, or in files from before it.
    """

    index: Ints
    points: PointColumns
    area_mm2: Floats
    tdp_w: Floats
    throughput_samples_per_s: Floats
    throughput_upper_samples_per_s: Floats
    status: Texts
    bound: Texts
    reason: Texts
    multipliers_index: Ints
    cost_usd: Floats = field(default_factory=lambda: np.zeros(0))
    arch: Texts = field(default_factory=lambda: np.zeros(0, dtype=object))

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.index)

    @property
    def is_solved(self) -> Flags:
        """Rows that claim a solution, shape (num_rows,)."""
        return np.asarray(self.status == PointStatus.SOLVED.value, dtype=np.bool_)

    @property
    def has_bound(self) -> Flags:
        """Rows whose bound follows from multipliers, shape (num_rows,)."""
        return np.asarray(self.bound != PlacementBound.NONE.value, dtype=np.bool_)


def read_points(content: bytes, *, num_rows: int) -> PointsTable:
    """Read the table from the bytes of its file.

    The footer is judged first: columns, types and the number of rows, so that nothing larger than the space is
    unpacked. Text is unpacked as codes of the words that there are.

    Args:
        content: of the file.
        num_rows: points of the space; the table may have few more, so that the check can say which is too many.

    Raises:
        CertificateError: the file is truncated, or its columns, types or sizes are others.
    """
    import pyarrow
    from pyarrow import parquet

    try:
        there = parquet.read_schema(pyarrow.BufferReader(content)).names
        words = [name for name, kind in _ARROW_TYPES.items() if kind == "string" and name in there]
        file = parquet.ParquetFile(pyarrow.BufferReader(content), read_dictionary=words)
        _check_footer(file, num_rows)
        table = file.read(use_threads=False)
        table.validate(full=True)
        for name in table.column_names:
            if table[name].null_count:
                refuse(f"column {name} has empty cells", file=POINTS_FILE)
        columns = {name: _column(table, name) for name in table.column_names}
        points = PointColumns(**{name: columns.pop(name) for name in AXIS if name in columns})
        return PointsTable(points=points, **columns)
    except CertificateError:
        raise
    except (OSError, ValueError, pyarrow.ArrowException) as error:
        message = f"cannot be read as Parquet ({type(error).__name__})"
        refuse(message, file=POINTS_FILE, cause=error)


def _check_footer(file: Any, num_rows: int) -> None:
    """Columns, types, sizes and compression as they are written, and not many more rows than points."""
    metadata = file.metadata
    found = {field.name: str(getattr(field.type, "value_type", field.type)) for field in file.schema_arrow}
    missing = {name for name, axis in AXIS.items() if axis.default is not None and name not in found}
    missing |= _OPTIONAL - found.keys()
    for name, kind in _ARROW_TYPES.items():
        if found.get(name) != kind and name not in missing:
            message = f"column {name} is {found.get(name, 'missing')}, not {kind}"
            refuse(message, file=POINTS_FILE)
    unknown = [name for name in file.schema_arrow.names if name not in _ARROW_TYPES]
    if unknown or metadata.num_columns != len(_ARROW_TYPES) - len(missing):
        refuse(f"columns {unknown or file.schema_arrow.names} are unknown or double", file=POINTS_FILE)
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    if metadata.num_rows > 2 * num_rows + SPARE_ROWS or sum(group.num_rows for group in groups) != metadata.num_rows:
        message = f"states {metadata.num_rows:,} rows but the space has {num_rows:,} points"
        refuse(message, file=POINTS_FILE, row=min(num_rows, metadata.num_rows))
    for group in groups:
        for column in map(group.column, range(group.num_columns)):
            if column.compression not in _COMPRESSIONS or column.num_values != group.num_rows:
                message = f"column {column.path_in_schema} has {column.num_values:,} {column.compression} values"
                refuse(message, file=POINTS_FILE)


def _column(table: Any, name: str) -> Any:
    """One column as an array: whole numbers as int64, text as objects."""
    kind = _ARROW_TYPES[name]
    column = table[name]
    if kind != "string":
        return column.to_numpy().astype(np.float64 if kind == "double" else np.int64)
    parts = [np.array(chunk.dictionary.to_pylist(), dtype=object)[chunk.indices.to_numpy()] for chunk in column.chunks]
    return np.concatenate(parts) if parts else np.zeros(0, dtype=object)


def check_rows(points: PointsTable) -> None:
    """What every row must hold by itself, before anything is worked out again.

    Raises:
        CertificateError: a number is not finite or negative, a word is unknown, or words and numbers disagree.
    """
    costs = ("cost_usd",) if len(points.cost_usd) else ()
    for name in ("area_mm2", "tdp_w", "throughput_samples_per_s", "throughput_upper_samples_per_s", *costs):
        values = getattr(points, name)
        good = np.isfinite(values) & (values >= 0.0)
        demand(good, lambda row, n=name, v=values: f"{n} is {v[row]}, which is no finite number from 0 up")
    for name, words in (("status", PointStatus), ("bound", PlacementBound), ("reason", Infeasibility)):
        texts = getattr(points, name)
        known = np.isin(texts, [word.value for word in words])
        demand(known, lambda row, n=name, t=texts: f"{n} is '{t[row]:.40}', which is no {n} of a certificate")
    _check_agreement(points)


def _check_agreement(points: PointsTable) -> None:
    """Status, bound, reason, bounds and multipliers go together."""
    over_budget = np.isin(points.reason, [word.value for word in OVER_BUDGETS])
    is_feasible = points.reason == Infeasibility.FEASIBLE.value
    upper, attained = points.throughput_upper_samples_per_s, points.throughput_samples_per_s
    demand(over_budget == ~points.has_bound, "bound is none where, and only where, a budget is broken")
    demand(
        (points.multipliers_index == NO_MULTIPLIERS) == ~points.has_bound,
        f"multipliers_index is {NO_MULTIPLIERS} where, and only where, bound is none",
    )
    demand(is_feasible | (upper == 0.0), "throughput_upper_samples_per_s is not 0 though the row is infeasible")
    demand(~is_feasible | (upper > 0.0), "throughput_upper_samples_per_s is 0 though the row is not infeasible")
    demand(is_feasible | ~points.is_solved, "an infeasible row cannot be solved")
    demand(
        points.is_solved == (attained > 0.0),
        "throughput_samples_per_s is above 0 where, and only where, the row is solved",
    )


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
    follow = {axis.name: axis.follows for axis in AXES if axis.follows}
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
    """Area, TDP and cost of every row, and the rows that break a budget.

    Raises:
        CertificateError: names the row.
    """
    for first in range(0, len(space), CHUNK_ROWS):
        here = slice(first, first + CHUNK_ROWS)
        chips = chips_of(space.take(here), constants)
        area = chip_area_mm2(chips, constants)
        power = chip_power_w(chips, scenario.cluster.network, constants)
        _check_column(table.area_mm2[here], area, "area_mm2", first=first)
        _check_column(table.tdp_w[here], power, "tdp_w", first=first)
        capex = None
        if len(table.cost_usd):
            cost = costs_of(chips, scenario, constants)
            _check_column(table.cost_usd[here], cost, _OF_MONEY, first=first)
            capex = cost * scenario.cluster.num_devices
        takes = (area, power, area if capex is None else capex)
        _check_budget(table.reason[here], takes, scenario=scenario, first=first)


def _check_column(found: Floats, expected: Floats, name: str, *, first: int) -> None:
    """One column of the rows from ``first`` on."""
    demand(
        np.abs(found - expected) <= EXACT * np.abs(expected),
        lambda at: f"{name} is {found[at]:.6g} but the architecture gives {expected[at]:.6g}",
        rows=first + np.arange(len(found)),
    )


def _check_budget(reason: NDArray[np.object_], takes: tuple[Floats, ...], *, scenario: Scenario, first: int) -> None:
    """A row is over a budget if and only if it says so; area comes first, then power, then capex."""
    limits = (scenario.max_area_mm2, scenario.max_tdp_w, scenario.max_capex_usd)
    budgets = zip(OVER_BUDGETS, takes, limits, strict=True)
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
