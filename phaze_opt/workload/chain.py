"""A model as a chain of layers, and the one rule that cuts it into a front, equal units and a back.

Parallel plans cut pipelines between units alone. The front goes with the first stage, the back with the last.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from phaze_opt.errors import InputError


@dataclass(frozen=True, slots=True)
class ChainCut:
    """A chain of layers that begins with a front, goes on with equal units and ends with a back.

    Attributes:
        front, unit, back: kinds of their layers, in order. The kinds of a chain are numbered from 0.
        num_units: how often the unit comes.
    """

    front: tuple[int, ...]
    unit: tuple[int, ...]
    back: tuple[int, ...]
    num_units: int

    def __post_init__(self) -> None:
        """Check that there is a unit."""
        if not self.unit or self.num_units < 1:
            message = f"{self.num_units} units of {len(self.unit)} layers must be at least one of at least one"
            raise InputError(message)

    @property
    def parts(self) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """Front, unit and back."""
        return self.front, self.unit, self.back

    @property
    def is_plain(self) -> bool:
        """Whether it is one layer, equal layers, one layer, as of a transformer with equal blocks."""
        return all(len(part) == 1 for part in self.parts)

    @property
    def roots(self) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """The first layer of the front and the last of the back, where they have any; none of the unit."""
        return self.front[:1], (), self.back[-1:]

    @property
    def inner(self) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """Front, unit and back without them: layers that software recomputes and shards one by one."""
        return self.front[1:], self.unit, self.back[:-1]

    @property
    def chain(self) -> tuple[int, ...]:
        """Kind of every layer, first to last."""
        return (*self.front, *self.unit * self.num_units, *self.back)

    @property
    def num_kinds(self) -> int:
        """Kinds of layers."""
        return 1 + max(self.front + self.unit + self.back)


_NUM_ENDS = 2
"""The first and the last layer."""


@cache
def cut_chain(chain: tuple[int, ...]) -> ChainCut:
    """Front, units and back of a chain: the units are its longest periodic run.

    The first and the last layer, which take the inputs and give the loss, are of no unit. Of all runs of equal pieces
    between them the one with the most layers is taken; of these the one with the most pieces, and of these the last, so
    that decoders, and not encoders as deep, are shared out. Where nothing repeats, all between the two is one unit. Of
    one or two layers the last is the unit, and there is no back.

    Args:
        chain: kind of every layer, first to last.

    Raises:
        InputError: there is no layer.
    """
    if not chain:
        message = "a model of no layers has no units; give at least one layer"
        raise InputError(message)
    if len(chain) <= _NUM_ENDS:
        return ChainCut(chain[:-1], chain[-1:], (), 1)
    start, period, count = _longest_run(chain[1:-1])
    first, stop = start + 1, start + 1 + period * count
    return ChainCut(chain[:first], chain[first : first + period], chain[stop:], count)


def _longest_run(chain: Sequence[int]) -> tuple[int, int, int]:
    """Start, layers of a piece and number of pieces of the longest run of equal pieces; all once if nothing repeats."""
    best, found = (0, 0, 0), (0, len(chain), 1)
    for period in range(1, len(chain) // 2 + 1):
        for first, last in _equal_stretches(chain, period):
            count = (last - first) // period
            start = last - count * period
            if (count * period, count, start) > best:
                best, found = (count * period, count, start), (start, period, count)
    return found


def _equal_stretches(chain: Sequence[int], period: int) -> list[tuple[int, int]]:
    """Longest stretches, as start and stop, whose every layer is that of ``period`` layers before."""
    found: list[tuple[int, int]] = []
    first = 0
    for at in range(period, len(chain) + 1):
        if at < len(chain) and chain[at] == chain[at - period]:
            continue
        if at - first >= 2 * period:
            found.append((first, at))
        first = at - period + 1
    return found
