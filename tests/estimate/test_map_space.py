"""Map spaces of loop nests: sizes and minima equal counting and trying every mapping one by one; classes nest."""

import math
from dataclasses import replace
from itertools import permutations, product

import pytest
from flexibility.map_space import LoopNest, NestChip, NestMapping, best_mapping, class_of, find_flexion
from hypothesis import given, settings
from hypothesis import strategies as st

from phaze_opt.errors import InputError
from phaze_opt.hardware.flexibility import Freedom

FIXED, PART, FULL = Freedom
RIGID, FREE = (FIXED,) * 4, (FULL,) * 4
OWN = NestMapping((2, 2, 2, 1, 1, 1), (0, 1, 2, 3, 4, 5), (0, 1), (2, 3))
small = st.integers(1, 3)
nests = st.one_of(
    st.builds(LoopNest, st.tuples(small, small, small, small, st.integers(1, 2), st.integers(1, 3)), st.integers(1, 2)),
    st.builds(
        LoopNest, st.tuples(st.just(1), small, small, small, st.integers(1, 2), st.integers(1, 3)), st.integers(1, 2),
        st.just(True),
    ),
)  # fmt: skip
freedoms = st.tuples(*[st.sampled_from(Freedom)] * 4)


def chip_of(freedom, *, room=40, rate=1.5):
    return NestChip(6, room, rate, OWN, freedom)


def cuts(extent, size):
    """Starts and lengths of the tiles of a loop."""
    return [(start, min(size, extent - start)) for start in range(0, extent, size)]


def fits(nest, tile, room, freedom):
    k, c, y, x, r, s = tile
    parts = (
        k * c * r * s,
        c * ((y - 1) * nest.stride + r) * ((x - 1) * nest.stride + s),
        (c if nest.is_depthwise else k) * y * x,
    )
    return max(parts) <= room // 3 if freedom is PART else sum(parts) <= room


def replayed(nest, tile, order, pair, shape, rate):
    """Cycles of one mapping: its tiles walked in order, each tensor fetched where the tile that it needs changes."""
    grid = [cuts(extent, size) for extent, size in zip(nest.extents, tile, strict=True)]
    channel = 1 if nest.is_depthwise else 0
    needed = {"weights": {channel, 1, 4, 5}, "inputs": {1, 2, 3, 4, 5}, "results": {channel, 2, 3}}
    held, written, moved, steps = {}, set(), 0, 0
    for places in product(*(range(len(grid[loop])) for loop in order)):
        at = dict(zip(order, places, strict=True))
        length = [grid[loop][at[loop]][1] for loop in range(6)]
        k, c, y, x, r, s = length
        patch = c * ((y - 1) * nest.stride + r) * ((x - 1) * nest.stride + s)
        size = {"weights": k * c * r * s, "inputs": patch, "results": (c if nest.is_depthwise else k) * y * x}
        for name, loops in needed.items():
            where = tuple(at[loop] for loop in sorted(loops))
            if held.get(name) != where:
                held[name] = where
                moved += size[name]
                if name == "results":
                    moved += size[name] * (where in written)
                    written.add(where)
        edges = [math.ceil(length[loop] / across) for loop, across in zip(pair, shape, strict=True)]
        steps += math.prod(edges) * math.prod(length[loop] for loop in range(6) if loop not in pair)
    return max(steps, moved / rate)


def halvings(extent):
    return {math.ceil(extent / 2**step) for step in range(extent.bit_length())}


def supported(nest, chip):
    """Every mapping of the search, from what is said of freedoms."""
    tiles, orders, pairs, shapes = chip.freedoms
    own = tuple(min(each) for each in zip(OWN.tile, nest.extents, strict=True))
    sizes = [halvings(extent) | {mine} for extent, mine in zip(nest.extents, own, strict=True)]
    every = [own] + [t for t in product(*sizes) if tiles and fits(nest, t, chip.buffer_elements, tiles)]
    a, b, c, d, e, f = OWN.order
    turned = [OWN.order, (c, b, a, d, e, f), (a, b, c, f, e, d)]
    return product(
        every,
        {FIXED: [OWN.order], PART: turned, FULL: list(permutations(range(6)))}[orders],
        {FIXED: [OWN.pair], PART: [(0, 1), (1, 0)], FULL: list(permutations(range(6), 2))}[pairs],
        [(1, 6), (2, 3), (3, 2), (6, 1)] if shapes is FULL else [OWN.shape],
    )


@settings(max_examples=4, deadline=None)
@given(nests, freedoms.filter(lambda each: each[1] is not FULL), st.sampled_from([10, 40]), st.sampled_from([0.5, 4.0]))
def test_the_best_mapping_is_the_best_of_all_replayed(nest, freedom, room, rate):
    chip = chip_of(freedom, room=room, rate=rate)
    cycles, mapping = best_mapping(chip, nest)
    least = min(replayed(nest, *each, rate) for each in supported(nest, chip))
    assert cycles == pytest.approx(least)
    assert replayed(nest, mapping.tile, mapping.order, mapping.pair, mapping.shape, rate) == pytest.approx(cycles)


def test_all_orders_replayed():
    """720 orders on a nest whose loops all have several tiles, at a rate that only memory counts."""
    nest, rate = LoopNest((2, 2, 2, 2, 2, 1)), 0.1
    chip = chip_of((FIXED, FULL, FIXED, FIXED), rate=rate)
    chip = replace(chip, own=replace(OWN, tile=(1, 1, 1, 1, 1, 1)))
    replays = [replayed(nest, (1,) * 6, order, OWN.pair, OWN.shape, rate) for order in permutations(range(6))]
    assert best_mapping(chip, nest)[0] == pytest.approx(min(replays))
    assert max(replays) > 1.3 * min(replays)


@settings(max_examples=25, deadline=None)
@given(nests, st.sampled_from([8, 21, 60]))
def test_counts_are_those_of_trying_every_tile(nest, room):
    for freedom in (PART, FULL):
        chip = chip_of((freedom, FIXED, FIXED, FIXED), room=room)
        tiles = product(*(range(1, extent + 1) for extent in nest.extents))
        assert chip.count_tiles(nest) == sum(fits(nest, tile, room, freedom) for tile in tiles)


@settings(max_examples=25, deadline=None)
@given(nests, freedoms, st.integers(0, 3))
def test_more_freedom_is_never_slower(nest, freedom, axis):
    """Sets nest, so that full <= every class <= fixed."""
    levels = [tuple(level if at == axis else each for at, each in enumerate(freedom)) for level in Freedom]
    times = [best_mapping(chip_of(each), nest)[0] for each in levels]
    assert times == sorted(times, reverse=True)
    counts = [chip_of(each).count_mappings(nest) for each in levels]
    assert all(counts) or axis == 0
    rigid, free = (best_mapping(chip_of(each), nest)[0] for each in (RIGID, FREE))
    assert free <= min(times)
    assert max(times) <= rigid
    assert free >= nest.macs / 6


def test_sixteen_classes_and_their_shares():
    nest = LoopNest((8, 4, 6, 6, 3, 3))
    classes = {
        class_of(each): find_flexion(chip_of(each, room=10**6), nest) for each in product((FIXED, FULL), repeat=4)
    }
    assert len(classes) == 16
    assert classes["1111"].workload == classes["1111"].hardware == (1.0, 1.0, 1.0, 1.0)
    assert classes["1111"].of_mappings == 1.0
    assert all(0.0 < each.of_mappings < 1.0 for name, each in classes.items() if name != "1111")
    assert classes["0000"].workload == pytest.approx((1 / (8 * 4 * 6 * 6 * 9), 1 / 720, 1 / 30, 1 / 4))
    part = find_flexion(chip_of((PART,) * 4, room=30_000), nest)
    assert part.hardware == pytest.approx((2 / 9, 3 / 720, 2 / 30, 1 / 4), rel=1e-3)
    assert chip_of(FREE, room=10**6).count_mappings(nest) == 8 * 4 * 6 * 6 * 9 * 720 * 30 * 4


def test_what_cannot_be_is_refused():
    with pytest.raises(InputError, match="extents must be positive, and K is 1"):
        LoopNest((2, 2, 2, 2, 1, 1), is_depthwise=True)
    with pytest.raises(InputError, match="w d = 7"):
        NestChip(7, 40, 1.0, OWN, RIGID)
