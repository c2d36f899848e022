"""Layer fusion: runs of layers whose border tensors stay in the chip's buffer, cut by an exact dynamic program.

A group of layers is gone through once for every part of the micro-batch. Between two of its layers the border tensor of
one part lies in a reserve of the buffer, with the group's weights where these stay for all parts; operators have the
rest. The best groups of layers 0..j-1 are those of some layers 0..i-1 and one group i..j-1 (DNNFuser, arXiv 2201.11218,
searches the same space with a genetic algorithm): O(N^2) groups a choice.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Protocol, runtime_checkable

import numpy as np

from phaze_opt.errors import InputError
from phaze_opt.record.arrays import Floats, Ints
from phaze_opt.record.near_ties import comparable

ALONE, FIRST, LAST, INNER = range(4)
"""Places of a layer in its group; an axis of arrays. FIRST has its output in the reserve, LAST its input."""
NUM_PLACES = 4


@dataclass(frozen=True, slots=True)
class FusionChoice:
    """How a group runs.

    Attributes:
        num_parts: of the micro-batch, one after the other.
        holds_weights: whether the weights of all its layers stay in the buffer from the first part to the last.
    """

    num_parts: int = 1
    holds_weights: bool = False


@dataclass(frozen=True, slots=True)
class FusionGroup:
    """Layers ``first`` up to but not including ``stop`` run as one group, by a choice of the problem."""

    first: int
    stop: int
    choice: int


@dataclass(frozen=True)
class FusionProblem:
    """A chain of layers to be cut into groups.

    Attributes:
        kinds: of every layer, shape (layers,).
        border_bytes: between layer l and l + 1 for the whole micro-batch, shape (layers - 1,); negative where nothing
            may stay, so that a group ends.
        weight_bytes: of every layer, shape (layers,).
        choices: how groups may run; the first is the whole micro-batch at once.
        capacity_bytes: of the buffer.
        seconds: of every kind of layer for the whole micro-batch, by choice, place and so many of equal slices of the
            buffer as are reserved: shape (kinds, choices, `NUM_PLACES`, slices); infinite where it cannot run so.
    """

    kinds: Ints
    border_bytes: Ints
    weight_bytes: Ints
    choices: tuple[FusionChoice, ...]
    capacity_bytes: int
    seconds: Floats

    def __post_init__(self) -> None:
        """Refuse arrays that do not go together."""
        num_layers = len(self.kinds)
        shape = (len(self.choices), NUM_PLACES)
        if not num_layers or len(self.border_bytes) != num_layers - 1 or len(self.weight_bytes) != num_layers:
            message = f"{num_layers} layers need as many weights and one border less, and at least one layer"
            raise InputError(message)
        if self.seconds.ndim != 4 or self.seconds.shape[1:3] != shape or self.kinds.max() >= len(self.seconds):
            message = f"seconds of shape {self.seconds.shape} must have kinds x {shape[0]} choices x 4 places x slices"
            raise InputError(message)

    @property
    def num_layers(self) -> int:
        """Layers of the chain."""
        return len(self.kinds)

    @property
    def num_slices(self) -> int:
        """Into how many slices the buffer is divided."""
        return int(self.seconds.shape[-1])

    @cached_property
    def slices(self) -> Ints:
        """Slices that every group reserves, `num_slices` where it cannot be: shape (layers, layers + 1, choices)."""
        return reserved_slices(
            self.border_bytes, self.weight_bytes, self.choices, self.capacity_bytes, num_slices=self.num_slices
        )

    @cached_property
    def group_s(self) -> Floats:
        """What layers i..j-1 take as one group by every choice, infinite where they cannot, s; shape as ``slices``."""
        num_layers, num_choices = self.num_layers, len(self.choices)
        taken = np.full((num_layers, num_layers + 1, num_choices), np.inf)
        own = np.concatenate([self.seconds[self.kinds], np.full((num_layers, num_choices, NUM_PLACES, 1), np.inf)], -1)
        choices = np.arange(num_choices)
        for first in range(num_layers):
            taken[first, first + 1] = own[first, choices, ALONE, self.slices[first, first + 1]]
            for stop in range(first + 2, num_layers + 1):
                # A longer group reserves no less, so where this one cannot be no longer one can.
                slices = self.slices[first, stop]
                if (slices == self.num_slices).all():
                    break
                inner = own[first + 1 : stop - 1, choices, INNER, slices].sum(axis=0)
                taken[first, stop] = own[first, choices, FIRST, slices] + own[stop - 1, choices, LAST, slices] + inner
        return taken


def reserved_slices(
    border_bytes: Ints, weight_bytes: Ints, choices: Sequence[FusionChoice], capacity_bytes: int, *, num_slices: int
) -> Ints:
    """Slices of the buffer that every group reserves: shape (layers, layers + 1, choices).

    While a layer runs, its input and its output lie there as far as they are inside the group, of one part each, and
    all weights that stay. The reserve is as large as its fullest layer needs, rounded up to whole slices; a group that
    would take all of them, or has a border that nothing may cross, has ``num_slices``. A layer alone, whose weights do
    not stay, reserves nothing.

    Args:
        border_bytes: as of a `FusionProblem`, like the next three.
        weight_bytes: likewise.
        choices: likewise.
        capacity_bytes: likewise.
        num_slices: slices of the buffer.
    """
    num_layers = len(weight_bytes)
    slices = np.full((num_layers, num_layers + 1, len(choices)), num_slices, np.int64)
    parts = np.array([each.num_parts for each in choices])
    stays = np.array([each.holds_weights for each in choices])
    for first in range(num_layers):
        weights, fullest, previous = 0, 0, 0
        for stop in range(first + 1, num_layers + 1):
            weights += int(weight_bytes[stop - 1])
            if stop - 1 > first:
                border = int(border_bytes[stop - 2])
                if border < 0:
                    break
                fullest, previous = max(fullest, previous + border), border
            needed = -(-fullest // parts) + stays * weights
            slices[first, stop] = np.minimum(num_slices, -(-needed * num_slices // max(capacity_bytes, 1)))
    return slices


@runtime_checkable
class Fuser(Protocol):
    """Cuts chains into groups; the same groups for the same problem and seed, and no other effect."""

    @property
    def name(self) -> str:
        """Name it is registered under."""
        ...

    @property
    def is_exact(self) -> bool:
        """Whether no other groups take less time."""
        ...

    def fuse(self, problem: FusionProblem, *, seed: int = 0) -> tuple[FusionGroup, ...]:
        """Groups of all layers, first to last; every one of finite time.

        Args:
            problem: in which each layer can run alone by the first choice.
            seed: of whatever is drawn.
        """
        ...


def groups_s(problem: FusionProblem, groups: Sequence[FusionGroup]) -> float:
    """What groups take together, s.

    Raises:
        InputError: they do not follow one another from the first layer to the last.
    """
    borders = [0, *(each.stop for each in groups)]
    if [each.first for each in groups] != borders[:-1] or borders[-1] != problem.num_layers:
        message = f"groups that end before layers {borders[1:]} must follow one another through {problem.num_layers}"
        raise InputError(message)
    return float(sum(problem.group_s[each.first, each.stop, each.choice] for each in groups))


def group_layers_s(problem: FusionProblem, groups: Sequence[FusionGroup]) -> Floats:
    """What every layer takes in its group, shape (layers,), s."""
    taken = np.empty(problem.num_layers)
    for each in groups:
        slices = problem.slices[each.first, each.stop, each.choice]
        for layer in range(each.first, each.stop):
            place = FIRST * (layer < each.stop - 1) + LAST * (layer > each.first)
            taken[layer] = problem.seconds[problem.kinds[layer], each.choice, place, slices]
    return taken


def no_groups(problem: FusionProblem) -> tuple[FusionGroup, ...]:
    """Every layer alone, the whole micro-batch at once: what there is without fusion."""
    return tuple(FusionGroup(first, stop, 0) for first, stop in pairwise(range(problem.num_layers + 1)))


class ExactFuser:
    """The dynamic program: f[j] = min over i and choices of f[i] + group_s[i, j].

    Of sums that rounding alone tells apart the shortest last group is taken, and the first choice.
    """

    name = "exact"
    is_exact = True

    def fuse(self, problem: FusionProblem, *, seed: int = 0) -> tuple[FusionGroup, ...]:
        """The groups that take least time; nothing is drawn."""
        del seed
        choice = comparable(problem.group_s).argmin(axis=-1)
        taken = np.take_along_axis(problem.group_s, choice[..., None], axis=-1)[..., 0]
        least = np.full(problem.num_layers + 1, np.inf)
        before = np.zeros(problem.num_layers + 1, np.int64)
        least[0] = 0.0
        for stop in range(1, problem.num_layers + 1):
            sums = least[:stop] + taken[:stop, stop]
            before[stop] = stop - 1 - int(comparable(sums[::-1]).argmin())
            least[stop] = sums[before[stop]]
        groups: list[FusionGroup] = []
        stop = problem.num_layers
        while stop:
            first = int(before[stop])
            groups.append(FusionGroup(first, stop, int(choice[first, stop])))
            stop = first
        return tuple(reversed(groups))
