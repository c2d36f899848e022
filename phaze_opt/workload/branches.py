"""Units of a model that run beside one another, and the sets of them that the first stages of a pipeline may hold.

The first k stages of a pipeline hold a down-set: units with all that these are made of. So stages are differences of
down-sets, and where every unit reads the one before it, spans of a chain. Sets are integers, a bit for each unit.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from phaze_opt.errors import InputError

MAX_DOWN_SETS = 256
"""Down-sets up to which pipelines are cut between all of them; with more they are cut in one order of the units."""
Sets = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Branches:
    """Which tensors the blocks of a model give to which: of the front, of every unit in order, and of the back.

    Attributes:
        reads: numbers of the tensors that each block reads of others, in the order it lists them.
        makes: numbers of those that it makes and others read, likewise; each tensor is made once.
    """

    reads: tuple[tuple[int, ...], ...]
    makes: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        """Check that every tensor is made once, by a block before all that read it."""
        made: set[int] = set()
        for place, (read, own) in enumerate(zip(self.reads, self.makes, strict=True)):
            if not made.issuperset(read) or not made.isdisjoint(own) or len(set(own)) < len(own):
                message = (
                    f"block {place} reads {list(read)} and makes {list(own)}, where {sorted(made)} are made; each "
                    "tensor must be made once, before it is read"
                )
                raise InputError(message)
            made.update(own)

    @property
    def num_units(self) -> int:
        """Units between front and back."""
        return len(self.reads) - 2

    def in_order(self, sequence: Sequence[int]) -> "Branches":
        """The same with units in another order.

        Args:
            sequence: numbers of all units, none before one that it reads.

        Raises:
            InputError: it is no such order.
        """
        if sorted(sequence) != list(range(self.num_units)):
            message = f"order {list(sequence)} must name each of the {self.num_units} units of the model once"
            raise InputError(message, key="unit_order")
        places = (0, *(1 + unit for unit in sequence), self.num_units + 1)
        try:
            return Branches(*(tuple(each[place] for place in places) for each in (self.reads, self.makes)))
        except InputError as error:
            message = f"order {list(sequence)} has a unit before one that it reads; give an order of the model's units"
            raise InputError(message, key="unit_order") from error

    @property
    def needs(self) -> Sets:
        """Units that each unit reads, as sets."""
        maker = {tensor: unit for unit, made in enumerate(self.makes[1:-1]) for tensor in made}
        units = ({maker[tensor] for tensor in read if tensor in maker} for read in self.reads[1:-1])
        return tuple(sum(1 << each for each in read) for read in units)


@lru_cache(maxsize=64)
def down_sets(branches: Branches, limit: int = MAX_DOWN_SETS) -> Sets:
    """All down-sets, smaller ones first, from none of the units to all; nothing where there are more than the limit."""
    needs = branches.needs
    found, level = [0], [0]
    while level:
        larger = {each | (1 << unit) for each in level for unit in _ready(each, needs)}
        level = sorted(larger)
        found += level
        if len(found) > limit:
            return ()
    return tuple(found)


def prefixes(branches: Branches) -> Sets:
    """The down-sets of units in their order."""
    return tuple((1 << count) - 1 for count in range(branches.num_units + 1))


def narrowest_order(branches: Branches) -> tuple[int, ...]:
    """The units in an order in which few tensors cross from one to the next.

    It is their own order, or the one that takes next, of all units that may come, the one that leaves the fewest
    tensors to be read; whichever has fewer crossing in all.
    """
    own = tuple(range(branches.num_units))
    taken, greedy = 0, list[int]()
    for _ in own:
        behind = {unit: _num_crossing(branches, taken | (1 << unit)) for unit in _ready(taken, branches.needs)}
        unit = min(behind, key=lambda each: (behind[each], each))
        greedy.append(unit)
        taken |= 1 << unit
    return min((own, tuple(greedy)), key=lambda order: _num_crossing_all(branches, order))


def order_of(sets: Sequence[int]) -> tuple[int, ...]:
    """Units in the order in which a rising row of down-sets takes them in; those of one step in their own order."""
    order: list[int] = []
    for before, behind in zip(sets, sets[1:], strict=False):
        added = behind & ~before
        order += [unit for unit in range(added.bit_length()) if added >> unit & 1]
    return tuple(order)


def _ready(held: int, needs: Sets) -> list[int]:
    """Units that a down-set may take in."""
    return [unit for unit, read in enumerate(needs) if not held >> unit & 1 and not read & ~held]


def _num_crossing(branches: Branches, held: int) -> int:
    """Tensors made by the front or a down-set and read behind it."""
    inside = [True, *(bool(held >> unit & 1) for unit in range(branches.num_units)), False]
    made = {each for own, makes in zip(inside, branches.makes, strict=True) if own for each in makes}
    return len(made & {each for own, reads in zip(inside, branches.reads, strict=True) if not own for each in reads})


def _num_crossing_all(branches: Branches, order: Sequence[int]) -> int:
    held, total = 0, 0
    for unit in order:
        held |= 1 << unit
        total += _num_crossing(branches, held)
    return total
