"""Sub-stages of a systolic array: how far one fold runs while the next begins (RASA, DAC 2021).

A fold on d rows and w columns loads what stands in the array (WL, d cycles), feeds S rows of the other operand (FF, S),
feeds the rest of their skew (FS, d - 1) and drains (DR, w - 1): S + 2d + w - 2 cycles, which is SCALE-Sim's fold.

    base      one stage after the other
    pipe      the next load begins when all is fed, beside the drain
    wlbp      so too, and no load where the operand stands there already (weight load bypass)
    dm-wlbp   so too, with two multipliers in each element: half the rows
    db-wls    a second register in each element takes the next load meanwhile (weight load skip)
    dmdb-wls  so too, with two multipliers in each element

Folds of one matmul stream the whole operand, so none of them meets its standing operand again: there ``wlbp`` is
``pipe``. RASA's own instructions stream 16 rows and meet every second one again.
"""

from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from phaze_opt.errors import InputError
from phaze_opt.hardware.constants import Constants
from phaze_opt.record.arrays import Floats, Ints

STAGE_SHARE = "arrays.stage_share"
"""Key of what a second register, or a second multiplier's wires and adder, adds to the area of an array's element."""


class Pipelining(IntEnum):
    """How sub-stages overlap; 0 in place of one is what no design states, ``base``."""

    BASE = 1
    PIPE = 2
    WLBP = 3
    DM_WLBP = 4
    DB_WLS = 5
    DMDB_WLS = 6

    @property
    def key(self) -> str:
        """What files call it."""
        return self.name.lower().replace("_", "-")

    @property
    def has_pairs(self) -> bool:
        """Whether two multipliers stand in each element."""
        return self in (Pipelining.DM_WLBP, Pipelining.DMDB_WLS)

    @property
    def is_buffered(self) -> bool:
        """Whether a second register takes the next load."""
        return self in (Pipelining.DB_WLS, Pipelining.DMDB_WLS)

    def rows(self, depth: int) -> int:
        """Rows of elements of an array so many multipliers deep."""
        return -(-depth // 2) if self.has_pairs else depth


KEYS = tuple(each.key for each in Pipelining)
_UNORDERED = {Pipelining.DM_WLBP, Pipelining.DB_WLS}
NO_SLOWER = tuple(
    (int(kind), int(other))
    for kind in Pipelining
    for other in Pipelining
    if kind < other and {kind, other} != _UNORDERED
)
"""Kinds, and others by which no fold takes longer on an array of the same size; of half the rows or a second register
neither is always the quicker one."""


def pipelining_of(code: int) -> Pipelining:
    """What a design's number means; 0 is ``base``.

    Raises:
        InputError: there is none of that number.
    """
    if not 0 <= code <= len(KEYS):
        message = f"pipelining = {code} must be from 1 to {len(KEYS)} ({', '.join(KEYS)}), or 0 where it is not stated"
        raise InputError(message, key="pipelining")
    return Pipelining(max(1, code))


def mac_area(pipelining: Ints, constants: Constants) -> Floats:
    """Area of a multiply-accumulate over that of one without sub-stages, by `Pipelining`; of the same shape."""
    share = constants.value(STAGE_SHARE)
    each = [1.0 + share * (kind.has_pairs + kind.is_buffered) for kind in Pipelining]
    return np.array([1.0, *each])[pipelining]


@dataclass(frozen=True, slots=True, eq=False)
class FoldCycles:
    """What F folds of S rows take beyond F S cycles: F each + once + (F - 1) max(0, least - S).

    Attributes:
        each: of every fold.
        once: of all of them together.
        least: cycles between the beginnings of two folds, at least.
        ramp: of filling and draining once, 2 rows + columns - 2.
    """

    each: Floats
    once: Floats
    least: Floats
    ramp: Floats


def fold_cycles(width: Ints, depth: Ints, pipelining: Ints) -> FoldCycles:
    """What folds on arrays take, none of which meets its standing operand again; arrays of one shape."""
    kinds = [Pipelining.BASE, *Pipelining]
    has_pairs, is_buffered = (
        np.array([getattr(kind, name) for kind in kinds])[pipelining] for name in ("has_pairs", "is_buffered")
    )
    is_serial = np.asarray(pipelining) <= Pipelining.BASE
    rows = np.where(has_pairs, -(-depth // 2), depth).astype(np.float64)
    ramp, drain = 2.0 * rows + width - 2.0, width - 1.0
    return FoldCycles(
        each=np.where(is_serial, ramp, np.where(is_buffered, 0.0, 2.0 * rows - 1.0)),
        once=np.where(is_serial, 0.0, np.where(is_buffered, ramp, drain)),
        least=np.where(is_buffered, rows, 0.0),
        ramp=ramp,
    )
