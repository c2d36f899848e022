"""The accelerator: tensor cores, vector cores, buffers and HBM, as one value and as a table of many."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any

import numpy as np

from phaze_opt.errors import InputError
from phaze_opt.hardware.chip_template import MOST_CHIPLETS
from phaze_opt.hardware.flexibility import SWITCHES, check_switches
from phaze_opt.hardware.pipelining import pipelining_of
from phaze_opt.hardware.sparse_array import sparse_array_of
from phaze_opt.record.arrays import Floats, Ints


@dataclass(frozen=True, slots=True)
class Accelerator:
    """One chip. Counts are cores and lanes; sizes bytes; rates per second; all per device.

    ``hbm_stacks`` and ``hbm_generation`` are those of a die (`hardware.silicon`); 0 and empty of other chips.
    ``vc_l2_bytes`` is of a vector core, 0 for what its lanes make it (`area.vc_l2_bytes_of`); ``link_bytes_per_s`` one
    way, all dimensions of the network together, 0 for the network's. ``pipelining`` numbers a `pipelining.Pipelining`,
    0 for ``base``, ``sparse_array`` a `sparse_array.SPARSE_ARRAYS`, 0 for dense, from ``tiling`` on values of switches
    (`flexibility.SWITCHES`), 0 for what is usual. ``chiplets`` are equal ones of a die that is split
    (`silicon.chiplets`), 0 for one die.
    """

    num_tc: int
    num_vc: int
    tc_width: int
    tc_depth: int
    vc_width: int
    glb_bytes: int
    glb_bandwidth_bytes_per_s: float
    l2_bytes: int
    hbm_bytes: int
    hbm_bandwidth_bytes_per_s: float
    clock_hz: float
    dtype_bytes: int = 2
    name: str = ""
    hbm_stacks: int = 0
    hbm_generation: str = ""
    vc_l2_bytes: int = 0
    link_bytes_per_s: float = 0.0
    pipelining: int = 0
    sparse_array: int = 0
    tiling: int = 0
    loop_order: int = 0
    core_split: int = 0
    array_shape: int = 0
    chiplets: int = 0

    def __post_init__(self) -> None:
        """Refuse zero, negative and non-finite sizes, naming the field."""
        for field in fields(self):
            if field.name in _LABELS:
                continue
            value = getattr(self, field.name)
            if value == 0 and field.name in UNSAID:
                continue
            if not (math.isfinite(value) and value > 0):
                message = f"{field.name} = {value} must be positive and finite"
                raise InputError(message, key=field.name)
        pipelining_of(self.pipelining)
        sparse_array_of(self.sparse_array)
        check_switches(self)
        if self.chiplets > MOST_CHIPLETS:
            message = f"chiplets = {self.chiplets} must be from 1 to {MOST_CHIPLETS}, or 0 for a whole die"
            raise InputError(message, key="chiplets")

    @property
    def stated(self) -> tuple[str, ...]:
        """Those of the fields that may be unsaid which it states."""
        return tuple(name for name in UNSAID if getattr(self, name))

    @property
    def num_macs(self) -> int:
        """Multiply-accumulate units of all tensor cores."""
        return self.num_tc * self.tc_width * self.tc_depth

    @property
    def num_lanes(self) -> int:
        """Vector lanes of all vector cores."""
        return self.num_vc * self.vc_width

    @property
    def peak_flops_per_s(self) -> float:
        """Two FLOPs a multiply-accumulate and cycle."""
        return 2.0 * self.num_macs * self.clock_hz


_LABELS = ("name", "hbm_stacks", "hbm_generation")
UNSAID = ("vc_l2_bytes", "link_bytes_per_s", "pipelining", "sparse_array", *SWITCHES, "chiplets")
"""Fields that are 0 where something else says them."""


@dataclass(frozen=True, slots=True)
class AcceleratorTable:
    """Many accelerators as columns, each of shape (num_accelerators,); units as in `Accelerator`.

    ``hbm_stacks`` are the stacks that a chip states, 0 where its capacity and rate say how many it has.
    """

    num_tc: Ints
    num_vc: Ints
    tc_width: Ints
    tc_depth: Ints
    vc_width: Ints
    glb_bytes: Ints
    glb_bandwidth_bytes_per_s: Floats
    l2_bytes: Ints
    hbm_bytes: Ints
    hbm_bandwidth_bytes_per_s: Floats
    clock_hz: Floats
    dtype_bytes: Ints
    hbm_stacks: Ints
    vc_l2_bytes: Ints
    link_bytes_per_s: Floats
    pipelining: Ints
    sparse_array: Ints
    tiling: Ints
    loop_order: Ints
    core_split: Ints
    array_shape: Ints
    chiplets: Ints

    def __post_init__(self) -> None:
        """Check that all columns are as long as the first, where they are columns: a mesh broadcasts."""
        lengths = {field.name: len(getattr(self, field.name)) for field in fields(self)}
        if np.ndim(self.num_tc) == 1 and len(set(lengths.values())) != 1:
            message = f"columns of an accelerator table must be equally long, got {lengths}"
            raise InputError(message)

    def __len__(self) -> int:
        """Number of accelerators."""
        return len(self.num_tc)

    @classmethod
    def from_accelerators(cls, accelerators: Sequence[Accelerator]) -> "AcceleratorTable":
        """Columns of a sequence of accelerators, in its order."""
        columns: dict[str, Any] = {}
        for field in fields(cls):
            is_rate = field.name.endswith(("_per_s", "_hz"))
            dtype = np.float64 if is_rate else np.int64
            columns[field.name] = np.array([getattr(a, field.name) for a in accelerators], dtype=dtype)
        return cls(**columns)

    def row(self, index: int, *, name: str = "") -> Accelerator:
        """One chip of the table, under a name."""
        return Accelerator(**{field.name: getattr(self, field.name)[index].item() for field in fields(self)}, name=name)

    def take(self, rows: Ints) -> "AcceleratorTable":
        """The table of the given rows, in the given order."""
        return AcceleratorTable(**{field.name: getattr(self, field.name)[rows] for field in fields(self)})


@lru_cache(maxsize=64)
def table_of(accelerator: Accelerator) -> AcceleratorTable:
    """The table of one chip, built once for all that price it: area, power and estimates. Not to be written to."""
    return AcceleratorTable.from_accelerators([accelerator])
