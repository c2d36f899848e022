"""Operators that may be exchanged in any completion of a partial schedule: heads of attention, experts, copies.

Two operators not yet placed are interchangeable where swapping them, together with what belongs to each of them alone,
changes nothing: latencies and cores agree, what follows agrees, and so does what else it waits for. A successor belongs
to an operator alone where all else that it waits for has no copy in the block, as the softmax of a head belongs to its
scores, and the context of a head, which waits for the values of all heads as well, to its softmax.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from phaze_opt.record.arrays import Ints
from phaze_opt.schedule.block_data import BlockProblem


@dataclass(frozen=True, slots=True)
class _Trees:
    """What belongs to each operator alone, for one rule of belonging.

    Attributes:
        classes: (n,) operators whose trees have the same shape, latencies, and other predecessors and successors.
        owned: operators of the tree of each, itself included.
        outside: other predecessors and successors of each tree, by which trees of a class agree.
    """

    classes: tuple[int, ...]
    owned: tuple[frozenset[int], ...]
    outside: tuple[frozenset[int], ...]


def interchangeable_classes(problem: BlockProblem) -> Ints:
    """(n,) classes of operators that may be exchanged once both may start."""
    predecessors, successors = _neighbours(problem)
    colours = refined_colours(problem)
    sizes = Counter(colours)

    def has_no_copy_beside(operator: int, successor: int) -> bool:
        return all(sizes[colours[other]] == 1 for other in predecessors[successor] if other != operator)

    def is_sole(operator: int, successor: int) -> bool:
        return predecessors[successor] == [operator]

    trees = _trees(problem, predecessors, successors, has_no_copy_beside)
    plain = _trees(problem, predecessors, successors, is_sole)
    sound = _sound_classes(trees)
    names = [(is_ok, trees.classes[i] if is_ok else plain.classes[i]) for i, is_ok in enumerate(sound)]
    known: dict[tuple[bool, int], int] = {}
    return np.array([known.setdefault(name, len(known)) for name in names], dtype=np.int64)


def refined_colours(problem: BlockProblem) -> list[int]:
    """Colours such that operators of one colour have the same latencies and the same colours before and after them."""
    predecessors, successors = _neighbours(problem)
    operators = range(len(problem))
    keys: list[Hashable] = [(problem.block.masks[i], problem.one_core[i], problem.spread[i]) for i in operators]
    colours = _numbered(keys)
    while True:
        keys = [
            (
                colours[i],
                tuple(sorted(colours[j] for j in predecessors[i])),
                tuple(sorted(colours[j] for j in successors[i])),
            )
            for i in operators
        ]
        refined = _numbered(keys)
        if len(set(refined)) == len(set(colours)):
            return refined
        colours = refined


def _numbered(keys: Sequence[Hashable]) -> list[int]:
    known: dict[Hashable, int] = {}
    return [known.setdefault(key, len(known)) for key in keys]


def _neighbours(problem: BlockProblem) -> tuple[list[list[int]], list[list[int]]]:
    predecessors: list[list[int]] = [[] for _ in range(len(problem))]
    successors: list[list[int]] = [[] for _ in range(len(problem))]
    for before, after in problem.block.edges:
        predecessors[after].append(before)
        successors[before].append(after)
    return predecessors, successors


def _trees(
    problem: BlockProblem,
    predecessors: Sequence[Sequence[int]],
    successors: Sequence[Sequence[int]],
    is_own: Callable[[int, int], bool],
) -> _Trees:
    """Trees from the last operator to the first; ``is_own`` tells whether a successor belongs to an operator alone."""
    count = len(problem)
    known: dict[Hashable, int] = {}
    classes = [0] * count
    owned: list[frozenset[int]] = [frozenset()] * count
    outside: list[frozenset[int]] = [frozenset()] * count
    for i in range(count - 1, -1, -1):
        follow: list[tuple[bool, int, tuple[int, ...]]] = []
        mine, others = {i}, set[int]()
        for j in successors[i]:
            if is_own(i, j):
                beside = tuple(sorted(k for k in predecessors[j] if k != i))
                follow.append((True, classes[j], beside))
                mine |= owned[j]
                others |= outside[j] | set(beside)
            else:
                follow.append((False, j, ()))
                others.add(j)
        key = (problem.block.masks[i], problem.one_core[i], problem.spread[i], tuple(sorted(follow)))
        classes[i] = known.setdefault(key, len(known))
        owned[i], outside[i] = frozenset(mine), frozenset(others)
    return _Trees(tuple(classes), tuple(owned), tuple(outside))


def _sound_classes(trees: _Trees) -> list[bool]:
    """Whether the trees of each operator's class share nothing, and nothing beside them is in one of them.

    Then a swap of two of them moves each operator once and leaves all else where it was.
    """
    members: dict[int, list[int]] = {}
    for i, name in enumerate(trees.classes):
        members.setdefault(name, []).append(i)
    sound = [True] * len(trees.classes)
    for group in members.values():
        moved = frozenset[int]().union(*(trees.owned[i] for i in group))
        is_sound = len(moved) == sum(len(trees.owned[i]) for i in group)
        is_sound = is_sound and not any(trees.outside[i] & moved for i in group)
        for i in group:
            sound[i] = is_sound
    return sound
