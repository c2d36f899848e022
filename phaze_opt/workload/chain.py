"""A model as a chain of layers, and the rules that cut it into a front, units and a back.

Parallel plans cut pipelines between units alone. The front goes with the first stage, the back with the last.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache
from itertools import pairwise

from phaze_opt.errors import InputError
from phaze_opt.workload.branches import Branches


class CutPlaces(StrEnum):
    """Where pipelines are cut: between equal units, any two layers in their order, or any two sets of blocks."""

    UNITS = "units"
    LAYERS = "layers"
    BRANCHES = "branches"


@dataclass(frozen=True, slots=True)
class ChainCut:
    """A chain of layers that begins with a front, goes on with units and ends with a back.

    Units of one kind are equal in all that a stage takes, holds and sends. Where there are several kinds, units of one
    kind stand behind layers of one kind; units and back are joined to what is before them: what both keep is held once.
    Equal units are joined to one another alone.

    Attributes:
        front, back: kinds of their layers, in order. The kinds of a chain are numbered from 0.
        units: kinds of the layers of every kind of unit, in order.
        order: kind of every unit, first to last.
        branches: what every block reads of others, where some run beside one another: front, units and back are of one
            layer each then, and what several of a stage keep is looked up tensor by tensor.
    """

    front: tuple[int, ...]
    units: tuple[tuple[int, ...], ...]
    back: tuple[int, ...]
    order: tuple[int, ...]
    branches: Branches | None = None

    def __post_init__(self) -> None:
        """Check that there is a unit, and that units are of the kinds there are."""
        if self.branches is not None and (self.branches.num_units != len(self.order) or len(self.units) == 1):
            message = f"branches of {self.branches.num_units} units must be of the {len(self.order)}, of several kinds"
            raise InputError(message)
        if not self.order or not all(self.units) or set(self.order) != set(range(len(self.units))):
            message = f"{len(self.order)} units of {len(self.units)} kinds must be at least one, each of some layers"
            raise InputError(message)

    @property
    def num_units(self) -> int:
        """How many units there are: pipelines are cut between them."""
        return len(self.order)

    @property
    def is_joined(self) -> bool:
        """Whether there are several kinds of units."""
        return len(self.units) > 1

    @property
    def parts(self) -> tuple[tuple[int, ...], ...]:
        """Front, every kind of unit, and back."""
        return self.front, *self.units, self.back

    @property
    def is_plain(self) -> bool:
        """Whether it is one layer, equal layers, one layer, as of a transformer with equal blocks."""
        return len(self.units) == 1 and all(len(part) == 1 for part in self.parts)

    @property
    def roots(self) -> tuple[tuple[int, ...], ...]:
        """Of each part the first layer of the front and the last of the back, where they have any; none of units."""
        return self.front[:1], *(() for _ in self.units), self.back[-1:]

    @property
    def inner(self) -> tuple[tuple[int, ...], ...]:
        """The parts without them: layers that software recomputes and shards one by one."""
        return self.front[1:], *self.units, self.back[:-1]

    @property
    def chain(self) -> tuple[int, ...]:
        """Kind of every layer, first to last."""
        return (*self.front, *(layer for kind in self.order for layer in self.units[kind]), *self.back)

    @property
    def graphs_key(self) -> tuple[object, ...]:
        """Equal for chains of as many kinds of layers whose parts are equal and joined to equal layers."""
        return self.parts, self.is_joined and self.chain[: -len(self.back)][-1:]

    def before(self, part: int) -> int | None:
        """Kind of the layer that a kind of unit, or the back, is joined to; none where units have branches."""
        if not self.is_joined or part == 0 or self.branches is not None:
            return None
        is_back = part > len(self.units)
        position = len(self.order) if is_back else self.order.index(part - 1)
        return self.units[self.order[position - 1]][-1] if position else self.front[-1]

    def in_order(self, sequence: Sequence[int]) -> "ChainCut":
        """The same with units in another order; itself without one.

        Raises:
            InputError: units are in one order only, or it is no order of them.
        """
        if not sequence:
            return self
        if self.branches is None:
            message = f"order {list(sequence)} of units is for cuts between branches; leave it out"
            raise InputError(message, key="unit_order")
        branches = self.branches.in_order(sequence)
        return replace(self, order=tuple(self.order[unit] for unit in sequence), branches=branches)

    @property
    def num_kinds(self) -> int:
        """Kinds of layers."""
        return 1 + max(kind for part in self.parts for kind in part)


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
        return ChainCut(chain[:-1], (chain[-1:],), (), (0,))
    start, period, count = _longest_run(chain[1:-1])
    first, stop = start + 1, start + 1 + period * count
    return ChainCut(chain[:first], (chain[first : first + period],), chain[stop:], (0,) * count)


@cache
def cut_between_layers(chain: tuple[int, ...]) -> ChainCut:
    """The cut of a chain in which little repeats: every layer but the first and the last is a unit.

    Where more than half of the layers between the two are equal units, it is `cut_chain`: those can be interleaved.

    Args:
        chain: as `cut_chain` takes it.

    Raises:
        InputError: there is no layer.
    """
    cut = cut_chain(chain)
    between = chain[1:-1]
    if len(between) <= 1 or (cut.num_units > 1 and 2 * len(cut.units[0]) * cut.num_units > len(between)):
        return cut
    kinds = {pair: number for number, pair in enumerate(dict.fromkeys(pairwise(chain[:-1])))}
    units = tuple((layer,) for _, layer in kinds)
    return ChainCut(chain[:1], units, chain[-1:], tuple(kinds[pair] for pair in pairwise(chain[:-1])))


def cut_branches(chain: tuple[int, ...], branches: Branches) -> ChainCut:
    """The cut of blocks some of which stand beside others: every one but the first and the last is a unit.

    Equal units of a chain are as large as there are of them. Beside one another they are not, as several may keep one
    tensor: where all are equal, the first is a kind of its own.

    Args:
        chain: kind of every block in an order in which none comes before one that it reads.
        branches: what they read of one another.
    """
    kinds = {kind: number for number, kind in enumerate(dict.fromkeys(chain[1:-1]))}
    order, units = tuple(kinds[kind] for kind in chain[1:-1]), tuple((kind,) for kind in kinds)
    if len(units) == 1 < len(order):
        order, units = (0, *(1 for _ in order[1:])), 2 * units
    return ChainCut(chain[:1], units, chain[-1:], order, branches)


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
