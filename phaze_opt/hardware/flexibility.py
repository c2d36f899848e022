"""Freedom of a chip's dataflow: four switches that say which mappings of a product it can run (docs/decisions/0310).

Kao et al. (arXiv 2206.02987) class accelerators by four axes: tile sizes, loop orders, dimensions run in parallel and
shapes of the array, each fixed, in part or in full. Here they are

    tiling       tiles of a result in the L2: ``fixed`` squares, ``part`` squares that stretch where an edge is short,
                 ``full`` any tile that fits
    loop_order   which operand stands in an array: one of them, ``weight-output`` either of two, ``full`` any of three
    core_split   along which dimension arrays share a product: one of them, ``rows-columns`` two, ``full`` all four
    array_shape  ``fixed`` as built; ``part`` also every shape of as many multipliers in blocks of 16 x 16, ``full``
                 every shape of as many

The first of each is what a design has that does not state it. HBM strips are cut by software on every chip.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from types import MappingProxyType

import numpy as np

from phaze_opt.errors import InputError
from phaze_opt.hardware.constants import Constants
from phaze_opt.record.arrays import Floats, Ints

_IN_BLOCKS, _IN_LINES = 2, 3
"""Values of ``array_shape`` that have longer shapes than as built."""
BLOCK = 16
"""Edge of the blocks that arrays of ``part`` shapes are joined of, as the paper's."""


class Freedom(IntEnum):
    """How much of an axis a chip supports; ``FIXED`` is a 0 of the paper's classes, the others a 1."""

    FIXED = 0
    PART = 1
    FULL = 2


class Tiling(IntEnum):
    """Tiles of results in the L2."""

    STRETCHED = 0
    SQUARE = 1
    ANY = 2


@dataclass(frozen=True, slots=True)
class SwitchKind:
    """A value of a switch: its name in files, how free it is, and what it allows, a bit each."""

    key: str
    freedom: Freedom
    allowed: int


@dataclass(frozen=True, slots=True)
class Switch:
    """One of the four axes.

    Attributes:
        name: of the field of a design.
        kinds: what its values 1, 2 ... are; the first is what is unsaid.
    """

    name: str
    kinds: tuple[SwitchKind, ...]

    @property
    def share_key(self) -> str:
        """Constant: what full freedom adds to the area of a multiply-accumulate over fixed, half of it in part."""
        return f"arrays.{self.name}_share"

    @property
    def keys(self) -> tuple[str, ...]:
        """Names of its values in files."""
        return tuple(kind.key for kind in self.kinds)

    def freedom(self, code: int) -> Freedom:
        """Of a value; 0 is what a design does not state."""
        return self.kinds[max(1, code) - 1].freedom

    @property
    def masks(self) -> Ints:
        """What each value allows, a bit each; that of what is unsaid first."""
        return np.array([self.kinds[0].allowed, *(kind.allowed for kind in self.kinds)])

    @property
    def no_slower(self) -> tuple[tuple[int, int], ...]:
        """Values, and others that allow all that they do, so that nothing takes longer with these."""
        codes = range(1, len(self.kinds) + 1)
        masks = self.masks.tolist()
        return tuple(
            (one, other) for one in codes for other in codes if one != other and masks[one] & masks[other] == masks[one]
        )


_FIXED, _PART, _FULL = Freedom
TILING = Switch(
    "tiling", (SwitchKind("part", _PART, 0b011), SwitchKind("fixed", _FIXED, 0b001), SwitchKind("full", _FULL, 0b111))
)
LOOP_ORDER = Switch(
    "loop_order",
    (
        SwitchKind("full", _FULL, 0b111), SwitchKind("weight", _FIXED, 0b001), SwitchKind("output", _FIXED, 0b010),
        SwitchKind("input", _FIXED, 0b100), SwitchKind("weight-output", _PART, 0b011),
    ),
)  # fmt: skip
"""Bits are dataflows: weight, output and input stationary."""
CORE_SPLIT = Switch(
    "core_split",
    (
        SwitchKind("full", _FULL, 0b1111),
        SwitchKind("batch", _FIXED, 0b0001),
        SwitchKind("rows", _FIXED, 0b0010),
        SwitchKind("columns", _FIXED, 0b0100),
        SwitchKind("inner", _FIXED, 0b1000),
        SwitchKind("rows-columns", _PART, 0b0110),
    ),
)
"""Bits are dimensions: batch, m, n and k of a product."""
ARRAY_SHAPE = Switch(
    "array_shape",
    (SwitchKind("fixed", _FIXED, 0b001), SwitchKind("part", _PART, 0b011), SwitchKind("full", _FULL, 0b111)),
)
SWITCHES: Mapping[str, Switch] = MappingProxyType(
    {each.name: each for each in (TILING, LOOP_ORDER, CORE_SPLIT, ARRAY_SHAPE)}
)
"""In the order of the paper: T, O, P, S."""

TILINGS = np.array([0, 0, 1, 2])
"""`Tiling` by the value of a design."""


def check_switches(chip: object) -> None:
    """Refuse numbers that no switch has.

    Raises:
        InputError: naming the switch and its values.
    """
    for name, switch in SWITCHES.items():
        code = getattr(chip, name)
        if not 0 <= code <= len(switch.kinds):
            message = (
                f"{name} = {code} must be from 0 to {len(switch.kinds)}, for what a design does not state, "
                f"{', '.join(switch.keys)}"
            )
            raise InputError(message, key=name)


def stated_switches(chip: object) -> dict[str, str]:
    """Names of what a chip states, by switch."""
    codes = {name: getattr(chip, name) for name in SWITCHES}
    return {name: SWITCHES[name].keys[code - 1] for name, code in codes.items() if code}


def flexibility_class(chip: object) -> str:
    """The paper's class: T, O, P and S, 0 where fixed, 1 where a chip has part or full freedom."""
    return "".join(str(int(each.freedom(getattr(chip, name)) > _FIXED)) for name, each in SWITCHES.items())


def freedom_scale(chips: object, constants: Constants) -> Floats:
    """Area of a multiply-accumulate over that with what is unsaid; of the columns' shape."""
    scale: Floats = np.ones(())
    for name, switch in SWITCHES.items():
        unsaid = switch.freedom(0)
        steps = [0.5 * (switch.freedom(code) - unsaid) for code in range(len(switch.kinds) + 1)]
        scale = scale * (1.0 + constants.value(switch.share_key) * np.array(steps))[getattr(chips, name)]
    return scale


def longest_edges(width: Ints, depth: Ints, array_shape: Ints, inputs: Ints) -> Ints:
    """Inputs that an array takes in a cycle in its longest shape, of ``inputs`` as built; grows with both edges."""
    macs = np.asarray(width * depth)
    in_blocks = np.where(array_shape == _IN_BLOCKS, macs // BLOCK + BLOCK, 0)
    in_lines = np.where(array_shape == _IN_LINES, macs + 1, 0)
    return np.maximum(inputs, np.maximum(in_blocks, in_lines))


@cache
def shapes_of(width: int, depth: int, array_shape: int) -> tuple[tuple[int, int], ...]:
    """Shapes (width, depth) that an array can take, as built first, then by width."""
    freedom = ARRAY_SHAPE.freedom(array_shape)
    if freedom is _FIXED:
        return ((width, depth),)
    macs, unit = width * depth, BLOCK if freedom is _PART else 1
    edges = [edge for edge in range(unit, macs + 1, unit) if macs % edge == 0 and macs // edge % unit == 0]
    return ((width, depth), *((edge, macs // edge) for edge in edges if edge != width))
