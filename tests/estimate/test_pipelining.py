"""Sub-stages of arrays against a simulation of every register, every cycle, and against loops over splits."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kits.plain_estimator import priced_splits, run_cycles

from phaze_opt.errors import InputError
from phaze_opt.estimate.analytic import AnalyticEstimator
from phaze_opt.estimate.operator_table import MatmulShapes
from phaze_opt.estimate.pricing import ArrayRows, price_matmuls
from phaze_opt.estimate.protocol import EstimatorOptions, FillAndDrain
from phaze_opt.graph.operator import Matmul
from phaze_opt.hardware.constants import load_constants
from phaze_opt.hardware.pipelining import Pipelining, fold_cycles, mac_area, pipelining_of

small = st.integers(1, 5)
ORDERED = (Pipelining.BASE, Pipelining.PIPE, Pipelining.WLBP, Pipelining.DB_WLS, Pipelining.DMDB_WLS)
PAIRED = (Pipelining.WLBP, Pipelining.DM_WLBP, Pipelining.DMDB_WLS)


class Controller:
    """Starts loads and feeds by what sub-stages have ended; knows nothing of how long they take."""

    def __init__(self, kind, is_loaded):
        self.kind, self.loads = kind, [fold for fold, needed in enumerate(is_loaded) if needed]
        self.ended = {name: -1 for name in ("load", "feed", "skew", "drain")}
        self.started_load = self.started_feed = -1

    def next_load(self):
        """The next load, if it may begin."""
        place = self.started_load + 1
        if place == len(self.loads) or self.ended["load"] < self.started_load:
            return None
        before = self.loads[place] - 1
        if self.kind.is_buffered:
            is_free = place == 0 or self.started_feed >= self.loads[place - 1]
        else:
            is_free = self.ended["drain" if self.kind is Pipelining.BASE else "skew"] >= before
        return place if is_free else None

    def next_feed(self):
        """The next fold, if its feed may begin."""
        fold = self.started_feed + 1
        needed = sum(load <= fold for load in self.loads)
        is_before_ended = self.ended["feed" if self.kind.is_buffered else "skew"] >= fold - 1
        return fold if self.ended["load"] >= needed - 1 and is_before_ended else None


def simulate(kind, standing, streams):
    """Cycles until the last result has left an array, and all results; registers move by one element a cycle.

    ``standing`` are d x w matrices, one a fold, the same object where it is the same operand; ``streams`` are S x d.
    """
    depth, width = standing[0].shape
    rows, pair = kind.rows(depth), 2 if kind.has_pairs else 1
    is_new = [fold == 0 or standing[fold] is not standing[fold - 1] for fold in range(len(standing))]
    is_loaded = [each or kind < Pipelining.WLBP for each in is_new]
    control = Controller(kind, is_loaded)
    weight, shadow, moving, sums = ({} for _ in range(4))
    results = [np.zeros((len(stream), width), dtype=int) for stream in streams]
    left = [stream.shape[0] * width for stream in streams]
    load_at, feed_at, cycle = {}, {}, 0

    def part(matrix, row):
        return matrix[pair * row : pair * (row + 1)]

    while any(left):
        if (fold := control.next_feed()) is not None and fold < len(streams):
            control.started_feed, feed_at[fold] = fold, cycle
        if (load := control.next_load()) is not None:
            control.started_load, load_at[load] = load, cycle
        fed = {}
        for fold, start in feed_at.items():
            for row in range(rows):
                if 0 <= (step := cycle - start - row) < len(streams[fold]):
                    assert row not in fed, "two rows of a stream enter at once"
                    fed[row] = (fold, step, part(streams[fold][step], row))
        before, above = moving, sums
        moving, sums = {}, {}
        for row, column in product(range(rows), range(width)):
            taken = fed.get(row) if column == 0 else before.get((row, column - 1))
            if taken is None:
                continue
            fold, step, numbers = taken
            moving[row, column] = taken
            if kind.is_buffered and step == 0 and is_loaded[fold]:
                weight[row, column] = shadow[row, column]
            total = 0 if row == 0 else above[row - 1, column][1]
            assert row == 0 or above[row - 1, column][0] == (fold, step), "sums of two folds meet"
            total += int(numbers @ weight[row, column])
            sums[row, column] = ((fold, step), total)
            if row == rows - 1:
                results[fold][step, column], left[fold] = total, left[fold] - 1
        for load, start in load_at.items():
            for row, column in product(range(rows), range(width)):
                if start + row + column == cycle:
                    matrix = standing[control.loads[load]]
                    (shadow if kind.is_buffered else weight)[row, column] = part(matrix, row)[:, column]
            if cycle == start + rows - 1:
                control.ended["load"] = load
        for fold, start in feed_at.items():
            for name, end in (("feed", 0), ("skew", rows - 1)):
                if cycle == start + len(streams[fold]) - 1 + end:
                    control.ended[name] = fold
            if not left[fold]:
                control.ended["drain"] = max(control.ended["drain"], fold)
        cycle += 1
    return cycle, results


@settings(max_examples=120, deadline=None)
@given(
    st.sampled_from(Pipelining),
    st.integers(1, 12),
    st.integers(1, 7),
    small,
    small,
    st.integers(1, 3),
    st.integers(0, 99),
)
def test_cycles_are_those_of_a_simulation_that_multiplies_right(kind, folds, stream, width, depth, uses, seed):
    rng = np.random.default_rng(seed)
    operands = [rng.integers(-9, 10, (depth, width)) for _ in range(folds)]
    standing = [operands[fold // uses] for fold in range(folds)]
    streams = [rng.integers(-9, 10, (stream, depth)) for _ in range(folds)]
    cycles, results = simulate(kind, standing, streams)
    assert all((found == a @ b).all() for found, a, b in zip(results, streams, standing, strict=True))
    assert cycles == run_cycles(kind, folds=folds, stream=stream, width=width, depth=depth, uses=uses)
    if uses == 1:
        costs = fold_cycles(np.array([width]), np.array([depth]), np.array([kind]))
        beyond = folds * costs.each + costs.once + (folds - 1) * np.maximum(0.0, costs.least - stream)
        assert cycles == folds * stream + beyond[0]


@pytest.mark.parametrize(
    ("kind", "saved_pct"),
    [
        (Pipelining.PIPE, 16.0), (Pipelining.WLBP, 33.0), (Pipelining.DM_WLBP, 58.5), (Pipelining.DB_WLS, 83.0),
        (Pipelining.DMDB_WLS, 83.0),
    ],
)  # fmt: skip
def test_instructions_of_rasa_take_what_its_sub_stages_say(kind, saved_pct):
    """Tiles of 16 x 32 x 16, every second with the weights of the one before; published are 79.2 % for the last."""

    def cycles(kind):
        return run_cycles(kind, folds=4000, stream=16, width=16, depth=32, uses=2)

    found = 100.0 * (1.0 - cycles(kind) / cycles(Pipelining.BASE))
    assert found == pytest.approx(saved_pct, abs=0.06)
    if kind is Pipelining.DMDB_WLS:
        assert abs(found - 79.2) < 6.0


def priced(size, kind, num_tc=4, width=8, depth=12, bytes_per_cycle=64.0, **options):
    columns = (np.array([x]) for x in (num_tc, width, depth, 4096, 2))
    rows = ArrayRows(*columns, np.array([1.0 / bytes_per_cycle]), np.array([kind]), *(np.array([0]) for _ in range(5)))
    return price_matmuls(MatmulShapes.of([Matmul(*size)]), rows, EstimatorOptions(**options))


extents = st.integers(1, 90)


@settings(max_examples=80, deadline=None)
@given(
    st.tuples(st.integers(1, 5), extents, extents, extents), st.sampled_from(Pipelining), st.integers(1, 9),
    st.sampled_from([2, 8, 12]), st.sampled_from([1, 8, 13]), st.sampled_from([4.0, 1e9]),
)  # fmt: skip
def test_a_matmul_takes_the_least_over_splits_of_its_folds(size, kind, num_tc, width, depth, bytes_per_cycle):
    """Splits and dataflows by loops, folds by `run_cycles`, which the simulation bears out."""
    loops = priced_splits(size, num_tc, width, depth, 16384, bytes_per_cycle, FillAndDrain.PER_FOLD, False, False, kind)
    found = priced(size, kind, num_tc, width, depth, bytes_per_cycle)
    assert found.cycles[0, 0] == pytest.approx(min(loops)[0], rel=1e-12)


@settings(max_examples=60, deadline=None)
@given(st.tuples(st.integers(1, 5), extents, extents, extents), st.integers(1, 9), st.sampled_from(FillAndDrain))
def test_no_matmul_is_slower_where_more_overlaps(size, num_tc, option):
    for order in (ORDERED, PAIRED):
        figures = [priced(size, kind, num_tc, fill_and_drain=option) for kind in order]
        for name in ("cycles", "one_core_cycles"):
            taken = [getattr(figure, name)[0, 0] for figure in figures]
            assert taken == sorted(taken, reverse=True)


def test_what_is_not_said_is_base():
    for option in FillAndDrain:
        unsaid, said = (priced((3, 70, 80, 90), kind, fill_and_drain=option) for kind in (0, 1))
        assert all(np.array_equal(getattr(unsaid, name), getattr(said, name)) for name in unsaid.__dataclass_fields__)
    assert pipelining_of(0) is Pipelining.BASE
    with pytest.raises(InputError, match="must be from 1 to 6"):
        pipelining_of(7)


def test_registers_and_second_multipliers_are_paid_for():
    areas = mac_area(np.arange(7), load_constants())
    assert list(areas[:4]) == [1.0] * 4
    assert list(areas[4:]) == pytest.approx([1.03] * 2 + [1.06])
    assert AnalyticEstimator().options.fill_and_drain is FillAndDrain.PER_FOLD
