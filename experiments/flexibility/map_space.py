"""Map spaces of convolutions as loop nests: exact sizes by freedom of the chip, and the best mapping of each.

The model of Kao et al. (arXiv 2206.02987): loops K C Y X R S over output channels, input channels, rows and columns of
the result, and of the kernel; one buffer of tiles, memory behind it, P multipliers. A mapping is a tile (one size a
loop), an order of the loops over tiles, a pair of loops run in parallel, and the shape (w, d) with w d = P that they
run on. A chip supports one value of each axis (fixed), some (part) or all (full):

    tiles    any whose parts of weights, inputs and results fit the buffer together; part: each fits its third
    orders   all 720; part: the chip's own and those that turn its three outer, or its three inner, loops around
    pairs    all 30; part: the chip's own either way around
    shapes   all divisor pairs of P; part: the chip's own and those of blocks of 16 x 16

Cycles are the longer of compute and memory. A loop of extent D in tiles of t on w multipliers takes
floor(D / t) ceil(t / w) + ceil((D mod t) / w) steps, every other loop D. A tensor is read again once for each tile of
the loops that do not index it and stand outside the innermost loop over tiles that does; partial results are written
and read. The search looks at tiles of halved extents and at the chip's own; counts are of all.

Import this module lazily: it pulls in numba.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import permutations
from math import comb, prod

import numpy as np

from phaze_opt.errors import InputError
from phaze_opt.hardware.flexibility import BLOCK, SWITCHES, Freedom
from phaze_opt.record.arrays import Ints
from phaze_opt.record.compiled import compiled

LOOPS = "KCYXRS"
K, C, Y, X, R, S = range(6)
ORDERS = tuple(permutations(range(6)))
PAIRS = tuple(permutations(range(6), 2))
Freedoms = tuple[Freedom, Freedom, Freedom, Freedom]
"""Of tiles, orders, pairs and shapes."""


@dataclass(frozen=True, slots=True)
class LoopNest:
    """A convolution, or a product m x n x k with extents (n, k, m, 1, 1, 1).

    Attributes:
        extents: of the loops K C Y X R S.
        stride: between patches, both ways.
        is_depthwise: whether every channel C has a result of its own; K is 1.
        repeats: how often it runs, one after the other.
    """

    extents: tuple[int, int, int, int, int, int]
    stride: int = 1
    is_depthwise: bool = False
    repeats: int = 1

    def __post_init__(self) -> None:
        """Refuse empty loops, and output channels beside channels of their own."""
        if min(*self.extents, self.stride, self.repeats) < 1 or (self.is_depthwise and self.extents[K] > 1):
            message = f"loop nest {self.extents}: extents must be positive, and K is 1 where it is depthwise"
            raise InputError(message, key="extents")

    @property
    def macs(self) -> int:
        """Multiply-accumulates of all repeats."""
        return self.repeats * prod(self.extents)


@dataclass(frozen=True, slots=True)
class NestMapping:
    """How a loop nest runs: sizes of its tile, loops outermost first, loops across and down, multipliers of each."""

    tile: tuple[int, ...]
    order: tuple[int, ...]
    pair: tuple[int, int]
    shape: tuple[int, int]


@dataclass(frozen=True, slots=True)
class NestChip:
    """What maps loop nests.

    Attributes:
        multipliers: P.
        buffer_elements: of tiles, double buffering left out.
        elements_per_cycle: to and from memory.
        own: the mapping that it has where an axis is fixed; tiles are cut to the extents of a nest.
        freedoms: of its axes.
    """

    multipliers: int
    buffer_elements: int
    elements_per_cycle: float
    own: NestMapping
    freedoms: Freedoms

    def __post_init__(self) -> None:
        """Refuse a mapping of its own that it cannot run."""
        width, depth = self.own.shape
        is_whole = sorted(self.own.order) == list(range(6)) and len(set(self.own.pair)) == 2 and min(self.own.tile) > 0
        if not is_whole or width * depth != self.multipliers:
            message = f"{self.own} must have positive tiles, six loops, two in parallel, and w d = {self.multipliers}"
            raise InputError(message, key="own")

    def orders(self) -> tuple[tuple[int, ...], ...]:
        """Orders that it supports, its own first."""
        own, freedom = self.own.order, self.freedoms[1]
        if freedom is Freedom.FULL:
            return (own, *(order for order in ORDERS if order != own))
        turned = (own, own[2::-1] + own[3:], own[:3] + own[:2:-1])
        return turned if freedom is Freedom.PART else (own,)

    def pairs(self) -> tuple[tuple[int, int], ...]:
        """Pairs that it supports, its own first."""
        own, freedom = self.own.pair, self.freedoms[2]
        if freedom is Freedom.FULL:
            return (own, *(pair for pair in PAIRS if pair != own))
        return (own, own[::-1]) if freedom is Freedom.PART else (own,)

    def shapes(self) -> tuple[tuple[int, int], ...]:
        """Shapes that it supports, its own first."""
        own, freedom = self.own.shape, self.freedoms[3]
        if freedom is Freedom.FIXED:
            return (own,)
        unit = BLOCK if freedom is Freedom.PART else 1
        every = _divisor_pairs(self.multipliers)
        return (own, *(each for each in every if each != own and each[0] % unit == each[1] % unit == 0))

    def count_tiles(self, nest: LoopNest) -> int:
        """Tiles of a nest that it supports; its own counts as one, cut to the nest."""
        if self.freedoms[0] is Freedom.FIXED:
            return 1
        is_hard = self.freedoms[0] is Freedom.PART
        return int(_count_tiles(*_columns(nest), self.buffer_elements, is_hard))

    def count_mappings(self, nest: LoopNest) -> int:
        """Mappings of a nest that it supports: the axes do not restrict one another."""
        return self.count_tiles(nest) * len(self.orders()) * len(self.pairs()) * len(self.shapes())


@dataclass(frozen=True, slots=True)
class Flexion:
    """Shares of map spaces by axis, T, O, P and S.

    Attributes:
        hardware: of what the chip's buffer and multipliers could support (H-F). Tiles count by their three parts, any
            numbers of elements that fit the buffer: C(B, 3) where it is shared, (B / 3)^3 where each has its third.
        workload: of what a nest has (W-F): all tiles of its extents, orders, pairs and shapes.
        of_mappings: the same of whole mappings.
    """

    hardware: tuple[float, float, float, float]
    workload: tuple[float, float, float, float]
    of_mappings: float


def find_flexion(chip: NestChip, nest: LoopNest) -> Flexion:
    """Shares of the map space of a nest that a chip supports."""
    room = chip.buffer_elements
    parts = {Freedom.FIXED: 1, Freedom.PART: (room // 3) ** 3, Freedom.FULL: comb(room, 3)}
    kept = len(chip.orders()), len(chip.pairs()), len(chip.shapes())
    whole = len(ORDERS), len(PAIRS), len(_divisor_pairs(chip.multipliers))
    others = tuple(count / every for count, every in zip(kept, whole, strict=True))
    tiles = chip.count_tiles(nest) / prod(nest.extents)
    return Flexion((parts[chip.freedoms[0]] / parts[Freedom.FULL], *others), (tiles, *others), tiles * prod(others))  # type: ignore[arg-type]


def best_mapping(chip: NestChip, nest: LoopNest) -> tuple[float, NestMapping]:
    """Least cycles of all repeats over the mappings that a chip supports, with one that takes them."""
    own = tuple(min(pair) for pair in zip(chip.own.tile, nest.extents, strict=True))
    free = chip.freedoms[0] is not Freedom.FIXED
    tiles = [_tiles_of(extent, size, free=free) for extent, size in zip(nest.extents, own, strict=True)]
    starts = np.array([0, *np.cumsum([len(each) for each in tiles])], dtype=np.int64)
    pairs, shapes, orders = chip.pairs(), chip.shapes(), chip.orders()
    found = _search(
        *_columns(nest),
        np.concatenate(tiles),
        starts,
        np.array(own, dtype=np.int64),
        np.array(pairs, dtype=np.int64),
        np.array(shapes, dtype=np.int64),
        _order_masks(orders, nest.is_depthwise),
        chip.buffer_elements,
        chip.freedoms[0] is Freedom.PART,
        chip.elements_per_cycle,
    )
    cycles, tile, pair, shape, order = found
    sizes = tuple(map(int, tile))
    return nest.repeats * cycles, NestMapping(sizes, orders[order], pairs[pair], shapes[shape])


def class_of(freedoms: Sequence[Freedom]) -> str:
    """The paper's class: T, O, P and S, 1 where there is freedom."""
    return "".join(str(int(each > Freedom.FIXED)) for each, _ in zip(freedoms, SWITCHES, strict=True))


@cache
def _divisor_pairs(multipliers: int) -> tuple[tuple[int, int], ...]:
    return tuple((edge, multipliers // edge) for edge in range(1, multipliers + 1) if multipliers % edge == 0)


def _columns(nest: LoopNest) -> tuple[Ints, int, bool]:
    return np.array(nest.extents, dtype=np.int64), nest.stride, nest.is_depthwise


def _tiles_of(extent: int, own: int, *, free: bool) -> Ints:
    """Sizes that the search tries: halvings of an extent, rounded up, and the chip's own."""
    halved = {-(-extent >> step) for step in range(extent.bit_length())} if free else set()
    return np.array(sorted(halved | {own}), dtype=np.int64)


def indexed_by(*, is_depthwise: bool) -> tuple[frozenset[int], frozenset[int], frozenset[int]]:
    """Loops that index weights, inputs and results."""
    channel = C if is_depthwise else K
    return frozenset({channel, C, R, S}), frozenset({C, Y, X, R, S}), frozenset({channel, Y, X})


@cache
def _order_masks(orders: tuple[tuple[int, ...], ...], is_depthwise: bool) -> Ints:
    """For each set of loops with more than one tile: loops for whose tiles each tensor is read again, and the order.

    Shape (64, most, 4), -1 behind the last; of orders that read alike the first, none that reads more in all three.
    """
    tensors = indexed_by(is_depthwise=is_depthwise)
    found = []
    for pattern in range(64):
        seen: dict[tuple[int, ...], int] = {}
        for place, order in enumerate(orders):
            loops = [loop for loop in order if pattern >> loop & 1]
            masks = []
            for indexed in tensors:
                last = max((at for at, loop in enumerate(loops) if loop in indexed), default=-1)
                masks.append(sum(1 << loop for loop in loops[: last + 1] if loop not in indexed))
            seen.setdefault(tuple(masks), place)
        least = [
            (*masks, place)
            for masks, place in seen.items()
            if not any(other != masks and all(a & b == a for a, b in zip(other, masks, strict=True)) for other in seen)
        ]
        found.append(least)
    table = np.full((64, max(map(len, found)), 4), -1, dtype=np.int64)
    for pattern, least in enumerate(found):
        table[pattern, : len(least)] = least
    return table


@compiled
def _fits(tile: Ints, stride: int, is_depthwise: bool, room: int, is_hard: bool) -> bool:
    """Whether the parts of a tile fit the buffer, together or each its third."""
    weights = tile[0] * tile[1] * tile[4] * tile[5]
    inputs = tile[1] * ((tile[2] - 1) * stride + tile[4]) * ((tile[3] - 1) * stride + tile[5])
    results = (tile[1] if is_depthwise else tile[0]) * tile[2] * tile[3]
    if is_hard:
        return bool(max(weights, inputs, results) <= room // 3)
    return bool(weights + inputs + results <= room)


@compiled
def _count_tiles(extents: Ints, stride: int, is_depthwise: bool, room: int, is_hard: bool) -> int:
    """Tiles of any sizes that fit; of those alike but for K, the largest K says how many."""
    total, third = 0, room // 3
    for c in range(1, extents[1] + 1):
        for r in range(1, extents[4] + 1):
            for s in range(1, extents[5] + 1):
                for y in range(1, extents[2] + 1):
                    height = (y - 1) * stride + r
                    if c * height * s > room:
                        break
                    for x in range(1, extents[3] + 1):
                        inputs = c * height * ((x - 1) * stride + s)
                        weights, results, others = c * r * s, y * x, 0
                        if is_depthwise:
                            results, others = 0, c * y * x
                        if is_hard:
                            if max(inputs, others) > third:
                                break
                            most = min(third // weights, third // max(results, 1))
                        else:
                            if inputs + others > room:
                                break
                            most = (room - inputs - others) // (weights + results)
                        total += min(most, extents[0])
    return total


@compiled
def _steps(extent: int, tile: int, across: int) -> int:
    """Steps of a loop in tiles on so many multipliers."""
    whole, rest = extent // tile, extent % tile
    return whole * -(-tile // across) + -(-rest // across)


@compiled
def _least_steps(extents: Ints, tile: Ints, pairs: Ints, shapes: Ints, bound: float) -> tuple[float, int, int]:
    """Least steps over pairs and shapes, ``bound`` if none takes fewer."""
    least, at_pair, at_shape = bound, 0, 0
    for p in range(len(pairs)):
        one, other = pairs[p, 0], pairs[p, 1]
        rest = 1.0
        for loop in range(6):
            if loop not in (one, other):
                rest *= extents[loop]
        for q in range(len(shapes)):
            across = _steps(extents[one], tile[one], shapes[q, 0])
            steps = rest * across * _steps(extents[other], tile[other], shapes[q, 1])
            if steps < least:
                least, at_pair, at_shape = steps, p, q
    return least, at_pair, at_shape


@compiled
def _product_of(mask: int, counts: Ints) -> float:
    total = 1.0
    for loop in range(6):
        if mask >> loop & 1:
            total *= counts[loop]
    return total


@compiled
def _moved(extents: Ints, counts: Ints, stride: int, is_depthwise: bool, masks: Ints) -> float:
    """Elements to and from memory: each tensor as often as it is read again, patches with what they share."""
    weights = extents[0] * extents[1] * extents[4] * extents[5] * _product_of(masks[0], counts)
    tall = counts[4] * (extents[2] - counts[2]) * stride + counts[2] * extents[4]
    wide = counts[5] * (extents[3] - counts[3]) * stride + counts[3] * extents[5]
    inputs = extents[1] * tall * wide * _product_of(masks[1], counts)
    channels = extents[1] if is_depthwise else extents[0]
    results = channels * extents[2] * extents[3] * (2.0 * _product_of(masks[2], counts) - 1.0)
    return float(weights + inputs + results)


@compiled
def _search(  # noqa: PLR0917
    extents: Ints, stride: int, is_depthwise: bool, sizes: Ints, starts: Ints, own: Ints, pairs: Ints, shapes: Ints,
    orders: Ints, room: int, is_hard: bool, rate: float,
) -> tuple[float, Ints, int, int, int]:  # fmt: skip
    """Least cycles, and tile, pair, shape and order that take them; the chip's own tile always runs."""
    best, tile, counts = np.inf, own.copy(), np.empty(6, dtype=np.int64)
    found, at_pair, at_shape, at_order = own.copy(), 0, 0, 0
    total = 1
    for loop in range(6):
        total *= starts[loop + 1] - starts[loop]
    for number in range(-1, total):
        rest, pattern = number, 0
        for loop in range(6):
            if number >= 0:
                choices = starts[loop + 1] - starts[loop]
                tile[loop] = sizes[starts[loop] + rest % choices]
                rest //= choices
            counts[loop] = -(-extents[loop] // tile[loop])
            if counts[loop] > 1:
                pattern |= 1 << loop
        if number >= 0 and not _fits(tile, stride, is_depthwise, room, is_hard):
            continue
        moved, order = np.inf, 0
        for each in orders[pattern]:
            if each[0] < 0:
                break
            elements = _moved(extents, counts, stride, is_depthwise, each)
            if elements < moved:
                moved, order = elements, each[3]
        memory = moved / rate
        if memory >= best:
            continue
        steps, pair, shape = _least_steps(extents, tile, pairs, shapes, best)
        if max(steps, memory) < best:
            best, at_pair, at_shape, at_order = max(steps, memory), pair, shape, order
            found[:] = tile
    return best, found, at_pair, at_shape, at_order
