"""The chip template: every parameter of a design, declared once.

Points, columns, the axes of a space, its files, Optuna's parameters, certificates, MLflow's parameters and the tables
of reports follow from the fields of `Design`. A parameter is added by a field here and by what it means for the chip
in `designed_chip.chips_of`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from operator import attrgetter
from types import MappingProxyType
from typing import Any, Generic, TypeVar

import numpy as np

from phaze_opt.errors import InputError
from phaze_opt.hardware.flexibility import ARRAY_SHAPE, CORE_SPLIT, LOOP_ORDER, TILING
from phaze_opt.hardware.pipelining import KEYS as PIPELINING_KEYS
from phaze_opt.hardware.pipelining import NO_SLOWER as NO_SLOWER_PIPELINING
from phaze_opt.hardware.sparse_array import KEYS as SPARSE_KEYS
from phaze_opt.hardware.sparse_array import NO_SLOWER as NO_SLOWER_SPARSE
from phaze_opt.record.arrays import Indices, Ints
from phaze_opt.record.input_files import Bounds, counts, shorten
from phaze_opt.units import GIBI, KIBI, MEBI

T = TypeVar("T")
C = TypeVar("C")

CORES, EDGES, STACKS, BYTES_PER_CYCLE = counts(1 << 14), counts(1 << 12), counts(64), counts(1 << 20)
CACHE, LOCAL = Bounds("MB", 0.25, 2048.0), Bounds("KB", 0.25, 16_384.0)
MEMORY, MEMORY_RATE = Bounds("GB", 1.0, 2048.0), Bounds("GB/s", 10.0, 100_000.0)
LINK_RATE, CLOCK = Bounds("GB/s", 0.1, 100_000.0), Bounds("GHz", 0.1, 10.0)
PEAK = Bounds("TFLOP/s", 1.0, 40_000.0)
"""Bounds of what designs and machines have: those of devices.toml keep them with room."""
DIE_CLOCK = Bounds("GHz", 0.7, 2.1)
"""Clocks of the chips that voltages, memories and arrays of dies are known of (docs/silicon.md)."""
MOST_CHIPLETS = 16
"""Equal chiplets that a die may be split into."""


class AxisRole(StrEnum):
    """How a parameter enters a space.

    SIZE: sizes a core or a buffer, and with it the area. COUNT: tensor cores, whose number multiplies an area. RANGE:
    vector cores, of which a whole range fits the area. JOINED: enters no area; every kept chip takes every value.
    PLAN: so too, and is no part of the chip.
    """

    SIZE = "size"
    COUNT = "count"
    RANGE = "range"
    JOINED = "joined"
    PLAN = "plan"


@dataclass(frozen=True, slots=True)
class Axis:
    """One parameter of a design.

    Attributes:
        name: field of `Design`, in base units.
        role: how it enters a space.
        words: what a value of it is; ``{}`` stands for the value.
        plural: what its values are called in a list.
        key: what it is called in files and options.
        bounds: of its values in units of ``key``; they keep areas and counts inside 64-bit integers.
        unit: base units in one unit of ``key``; None where it is a whole number that has no unit.
        is_monotone: whether area and TDP never fall where it grows.
        never_slows: whether more of it makes no training step longer: no operator, no plan, no memory.
        needs_die: whether only dies have it: the 22 nm tables do not know what it costs.
        default_values: values that a space without any of its own takes.
        default: value of a design that does not state it, 0 for what its other parameters and the constants say; None:
            it must be stated, or follows another.
        follows: the axis whose value it takes where a space gives it none of its own.
        given_by: the axis that decides it in a space that has values of that axis and none of its own.
        parquet: its type in the points of a certificate.
        choices: what its values 1, 2 ... are called in files and options, where they are kinds and no amounts.
        no_slower: pairs of kinds, the second of which makes no training step longer than the first.
    """

    name: str
    role: AxisRole
    words: str
    plural: str
    key: str
    bounds: Bounds
    unit: int | None = None
    is_monotone: bool = True
    never_slows: bool = False
    needs_die: bool = False
    default_values: tuple[int, ...] = ()
    default: int | None = None
    follows: str = ""
    given_by: str = ""
    parquet: str = "int32"
    choices: tuple[str, ...] = ()
    no_slower: tuple[tuple[int, int], ...] = ()

    @property
    def is_optional(self) -> bool:
        """Whether a design need not state it."""
        return self.default is not None or bool(self.follows)

    def printed(self, value: float) -> float | str:
        """A value as files have it: in units of ``key``, or the name of a kind."""
        return self.choices[max(1, int(value)) - 1] if self.choices else self.amount(value)

    def amount(self, value: float) -> float:
        """A value in units of ``key``, of a kind its number; whole numbers stay integers."""
        scaled = value / (self.unit or 1)
        return int(scaled) if scaled == int(scaled) else scaled

    def parsed(self, value: float | str) -> int:
        """A value in base units, from one in units of ``key`` or the name of a kind."""
        if isinstance(value, str):
            return 1 + self.choices.index(value)
        return round(value * (self.unit or 1))

    def fault(self, value: object) -> str:
        """The rule that a value in units of ``key``, or the name of a kind, breaks; empty where it breaks none."""
        if not self.choices:
            return self.bounds.fault(value)
        return "" if value in self.choices else f"value {shorten(value)} must be one of {', '.join(self.choices)}"

    def describe(self, value: int) -> str:
        """A value in words: ``a GLB of 4 MB``."""
        text = str(self.printed(value)) if self.unit is None else f"{value / self.unit:g} {self.bounds.unit}"
        return self.phrase(text)

    def phrase(self, text: str) -> str:
        """A value as it is printed in its words, one or many: ``1 stack of HBM``."""
        return self.words.format(text, s="" if text == "1" else "s")


def axis(
    role: AxisRole, words: str, *, bounds: Bounds | None = None, default: int | None = None, **declared: Any
) -> Any:
    """A field of `Design` with its declaration; see `Axis`. Kinds are bounded by their number.

    An integer default makes the field optional, so it must come last: points kept as lists stay readable.
    """
    limits = bounds or counts(len(declared.get("choices", ())))
    metadata = {"axis": {"role": role, "words": words, "bounds": limits, "default": default, **declared}}
    if default is not None:
        return field(default=None, metadata=metadata)
    return field(metadata=metadata)


@dataclass(frozen=True, slots=True, order=True)
class Design(Generic[T]):
    """The parameters that a search varies: numbers of a point, columns of many, or the values of every axis."""

    num_tc: T = axis(AxisRole.COUNT, "{} tensor core{s}", plural="tensor cores", bounds=CORES)
    num_vc: T = axis(AxisRole.RANGE, "{} vector core{s}", plural="vector cores", bounds=CORES)
    tc_width: T = axis(AxisRole.SIZE, "an array width of {}", plural="widths", bounds=EDGES)
    tc_depth: T = axis(AxisRole.SIZE, "an array depth of {}", plural="depths", bounds=EDGES)
    vc_width: T = axis(AxisRole.SIZE, "{} lane{s} a vector core", plural="lanes", bounds=EDGES, follows="tc_width")
    glb_bytes: T = axis(
        AxisRole.SIZE, "a GLB of {}", plural="MiB of GLB", key="glb_mb", bounds=CACHE, unit=MEBI, parquet="int64",
        never_slows=True,
    )  # fmt: skip
    hbm_bytes: T = axis(
        AxisRole.JOINED, "an HBM of {}", plural="GiB of HBM", key="hbm_gb", bounds=MEMORY, unit=GIBI, parquet="int64",
        default_values=(32 * GIBI, 64 * GIBI, 80 * GIBI), given_by="hbm_stacks", never_slows=True,
    )  # fmt: skip
    micro_batch: T = axis(
        AxisRole.PLAN, "a micro-batch of {}", plural="micro-batches", bounds=counts(1 << 20),
        default_values=(1, 2, 4, 8),
    )  # fmt: skip
    glb_bytes_per_cycle: T = axis(
        AxisRole.SIZE, "a GLB of {} byte{s} a cycle", plural="bytes a cycle of GLB", bounds=BYTES_PER_CYCLE,
        default=0, never_slows=True,
    )  # fmt: skip
    hbm_stacks: T = axis(
        AxisRole.SIZE, "{} stack{s} of HBM", plural="stacks of HBM", bounds=STACKS, default=0, never_slows=True
    )
    clock_hz: T = axis(
        AxisRole.SIZE, "a clock of {}", plural="GHz", key="clock_ghz", unit=10**9, bounds=DIE_CLOCK, parquet="int64",
        default=0, never_slows=True, needs_die=True,
    )  # fmt: skip
    link_bytes_per_s: T = axis(
        AxisRole.SIZE, "links of {}", plural="GB/s of links", key="link_gb_per_s", unit=10**9, bounds=LINK_RATE,
        parquet="int64", default=0, needs_die=True,
    )  # fmt: skip
    l2_bytes: T = axis(
        AxisRole.SIZE, "an L2 of {} a tensor core", plural="KiB of L2 a tensor core", key="l2_kb", bounds=LOCAL,
        unit=KIBI, parquet="int64", default=0, never_slows=True,
    )  # fmt: skip
    vc_l2_bytes: T = axis(
        AxisRole.SIZE, "an L2 of {} a vector core", plural="KiB of L2 a vector core", key="vc_l2_kb", bounds=LOCAL,
        unit=KIBI, parquet="int64", default=0, never_slows=True,
    )  # fmt: skip
    pipelining: T = axis(
        AxisRole.SIZE,
        "{} arrays",
        plural="kinds of pipelining",
        choices=PIPELINING_KEYS,
        no_slower=NO_SLOWER_PIPELINING,
        default=0,
    )
    sparse_array: T = axis(
        AxisRole.SIZE,
        "{} arrays",
        plural="kinds of sparse arrays",
        choices=SPARSE_KEYS,
        no_slower=NO_SLOWER_SPARSE,
        default=0,
    )
    tiling: T = axis(
        AxisRole.SIZE, "{} tiling", plural="kinds of tiling", choices=TILING.keys, default=0,
        no_slower=TILING.no_slower,
        is_monotone=False,
    )  # fmt: skip
    loop_order: T = axis(
        AxisRole.SIZE, "{} loop order", plural="kinds of loop order", choices=LOOP_ORDER.keys, default=0,
        no_slower=LOOP_ORDER.no_slower, is_monotone=False,
    )  # fmt: skip
    core_split: T = axis(
        AxisRole.SIZE, "{} split over cores", plural="kinds of split over cores", choices=CORE_SPLIT.keys, default=0,
        no_slower=CORE_SPLIT.no_slower, is_monotone=False,
    )  # fmt: skip
    array_shape: T = axis(
        AxisRole.SIZE, "{} array shape", plural="kinds of array shape", choices=ARRAY_SHAPE.keys, default=0,
        no_slower=ARRAY_SHAPE.no_slower,
    )  # fmt: skip
    chiplets: T = axis(
        AxisRole.SIZE, "{} chiplet{s}", plural="chiplets", bounds=counts(MOST_CHIPLETS), default=0,
        is_monotone=False, needs_die=True,
    )  # fmt: skip


AXES = tuple(Axis(**{"name": known.name, "key": known.name, **known.metadata["axis"]}) for known in fields(Design))
"""The declarations, in the order of the fields."""
AXIS: Mapping[str, Axis] = MappingProxyType({known.name: known for known in AXES})
SIZE_AXES = tuple(sorted((a.name for a in AXES if a.role is AxisRole.SIZE), key=lambda name: name != "glb_bytes"))
"""What sizes cores and buffers; the global buffer varies slowest in the order of a space."""
JOINED_AXES = tuple(known.name for known in AXES if known.role in (AxisRole.JOINED, AxisRole.PLAN))
NEVER_SLOWS = tuple(known.name for known in AXES if known.never_slows)
ORDERED_KINDS = tuple(known.name for known in AXES if known.no_slower)
CHIP_AXES = tuple(known for known in AXES if known.role is not AxisRole.PLAN)


def bind_fields(kind: object) -> Callable[[type[C]], type[C]]:
    """States what the fields of a `Design` hold: pydantic does not follow generic bases of plain dataclasses."""

    def bind(cls: type[C]) -> type[C]:
        bound = {known.name: copy(known) for known in fields(cls)}  # type: ignore[arg-type]
        for known in bound.values():
            known.type = kind
        cls.__dataclass_fields__ = bound  # type: ignore[attr-defined]
        return cls

    return bind


@bind_fields(int)
@dataclass(frozen=True, slots=True, order=True)
class DesignPoint(Design[int]):
    """One point of a space: a chip and a micro-batch."""

    def __post_init__(self) -> None:
        """Refuse zero and negative values, naming the field."""
        for known in _OPTIONAL:
            if getattr(self, known.name) is None:
                object.__setattr__(self, known.name, known.default)
        # Enumerations make points by the hundred thousand: look for the culprit only when there is one.
        if min(_required_of(self)) >= 1 and min(_optional_of(self)) >= 0:
            return
        for known in AXES:
            value = getattr(self, known.name)
            if value < 1 and value != known.default:
                message = f"{known.name} = {value} must be a positive integer"
                raise InputError(message, key=known.name)

    def inline(self) -> str:
        """The chip as ``--arch`` takes it: ``key=value,key=value``, without what is at its default."""
        parts = []
        for known in CHIP_AXES:
            value = getattr(self, known.name)
            if value != (getattr(self, known.follows) if known.follows else known.default):
                parts.append(f"{known.key}={known.printed(value)}")
        return ",".join(parts)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        """As JSON: what stands at its default number is left out."""
        from pydantic_core import core_schema

        defaults = {(known.name, known.default) for known in _OPTIONAL}
        as_dict = core_schema.wrap_serializer_function_ser_schema(
            lambda point, write: {name: value for name, value in write(point).items() if (name, value) not in defaults}
        )
        return handler(source) | {"serialization": as_dict}


_OPTIONAL = tuple(known for known in AXES if known.default is not None)
_required_of = attrgetter(*(known.name for known in AXES if known.default != 0))
_optional_of = attrgetter(*(known.name for known in AXES if known.default == 0))
values_of: Callable[[Design[int]], tuple[int, ...]] = attrgetter(*(known.name for known in AXES))
"""The parameters of a point in the order of `AXES`; ten times as fast as `dataclasses.astuple`."""


@dataclass(frozen=True, slots=True, eq=False)
class PointColumns(Design[Ints]):
    """Design points as columns of one shape, mostly (num_points,)."""

    def __post_init__(self) -> None:
        """Fill in columns that are not given."""
        for known in _OPTIONAL:
            if getattr(self, known.name) is None:
                object.__setattr__(self, known.name, np.full(np.shape(self.num_tc), known.default, dtype=np.int64))

    def __len__(self) -> int:
        """Number of points."""
        return len(self.num_tc)

    def __iter__(self) -> Iterator[DesignPoint]:
        """The points, in order."""
        return map(DesignPoint, *(getattr(self, known.name).tolist() for known in AXES))

    def point(self, row: int) -> DesignPoint:
        """The point of one row."""
        return DesignPoint(**{known.name: int(getattr(self, known.name)[row]) for known in AXES})

    def take(self, rows: Indices | slice) -> "PointColumns":
        """Some of the rows, in the order given."""
        return replace(self, **{known.name: getattr(self, known.name)[rows] for known in AXES})

    @classmethod
    def of(cls, points: Sequence[DesignPoint]) -> "PointColumns":
        """Columns of points, in their order."""
        return cls(**{a.name: np.array([getattr(p, a.name) for p in points], dtype=np.int64) for a in AXES})
