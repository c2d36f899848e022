"""Products with N:M sparse weights: shorter folds against a search by hand, and what must hold on any array."""

import itertools
from dataclasses import replace
from math import ceil

import numpy as np
import pytest

from phaze_opt.estimate.analytic import AnalyticEstimator
from phaze_opt.estimate.operator_table import compile_operators
from phaze_opt.estimate.sparse_products import sparse_work
from phaze_opt.graph.operator import CoreType, Matmul, Operator, OperatorKind, Phase
from phaze_opt.hardware.accelerator import Accelerator, AcceleratorTable
from phaze_opt.hardware.sparse_array import KEYS, SPARSE_ARRAYS, SparseArray, sparse_array_of
from phaze_opt.workload.sparsity import Pattern

CHIP = Accelerator(
    num_tc=1, num_vc=1, tc_width=16, tc_depth=16, vc_width=16, glb_bytes=1 << 22, glb_bandwidth_bytes_per_s=1e15,
    l2_bytes=4096, hbm_bytes=1 << 34, hbm_bandwidth_bytes_per_s=1e15, clock_hz=1e9,
)  # fmt: skip


def operator(m: int, n: int, k: int, pattern: Pattern | None) -> Operator:
    return Operator(
        name="product",
        phase=Phase.FORWARD,
        kind=OperatorKind.MATMUL,
        core_type=CoreType.TC,
        matmuls=(Matmul(1, m, n, k, pattern=pattern),),
        bytes_read=2.0 * (m * k + k * n),
        bytes_written=2.0 * m * n,
    )


def chip(key: str, **changes: object) -> Accelerator:
    return replace(CHIP, sparse_array=KEYS.index(key) + 1, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("array", SPARSE_ARRAYS, ids=KEYS)
@pytest.mark.parametrize("pattern", [(2, 4), (1, 4), (1, 8), (3, 4), (5, 12), (1, 3), (4, 8)])
def test_kept_inputs_hold_every_placement_of_the_weights(array: SparseArray, pattern: tuple[int, int]) -> None:
    """The fullest block of the array over blocks of weights placed as badly as may be, tried one by one."""
    kept, of = pattern
    fullest = 0
    for start in range(0, of * array.of, array.of):
        inside = [
            min(start + array.of, b * of + of) - max(start, b * of)
            for b in range(start // of, (start + array.of - 1) // of + 1)
        ]
        fullest = max(fullest, sum(min(kept, width) for width in inside))
    fullest = min(fullest, array.of)
    found = array.kept_of(kept, of)
    if array.kept:
        assert found == (array.kept if fullest <= array.kept and found != array.of else array.of)
        assert found == array.of or fullest <= found
    else:
        assert fullest <= found <= array.of
    exact = array.of % of == 0 or of % array.of == 0
    if exact:
        assert found == (fullest if not array.kept else array.kept if fullest <= array.kept else array.of)


@pytest.mark.parametrize(("m", "n", "k"), [(64, 64, 256), (5, 33, 70), (128, 16, 17), (1, 100, 64)])
@pytest.mark.parametrize("key", ["2:4", "1:8", "any:8"])
def test_cycles_are_the_best_dataflow_counted_by_hand(m: int, n: int, k: int, key: str) -> None:
    """Folds of 16 x 16 with k cut to what is kept, weight- or output-stationary; or dense, of all three."""
    pattern = Pattern(1, 8)
    kept = {"2:4": None, "1:8": 1, "any:8": 1}[key]
    block = 4 if key == "2:4" else 8
    kept = 2 if kept is None else kept
    steps = sum(min(kept, block, k - start) for start in range(0, k, block))
    ramp = 2 * 16 + 16 - 2
    down = ceil(steps / 16)
    sparse = min(down * ceil(n / 16) * (m + ramp), ceil(m / 16) * ceil(n / 16) * (steps + ramp))
    full = ceil(k / 16)
    dense = min(
        full * ceil(n / 16) * (m + ramp), ceil(m / 16) * ceil(n / 16) * (k + ramp), full * ceil(m / 16) * (n + ramp)
    )
    table = AcceleratorTable.from_accelerators([chip(key)])
    found = AnalyticEstimator().estimate([operator(m, n, k, pattern)], table)
    assert found.spread_s[0, 0] == pytest.approx(min(sparse, dense) * 1e-9, rel=1e-12)


def test_dense_weights_cost_the_same_on_every_array() -> None:
    table = AcceleratorTable.from_accelerators([CHIP, *(chip(key) for key in KEYS)])
    found = AnalyticEstimator().estimate([operator(64, 128, 256, None)], table)
    assert (
        np.unique(found.spread_s).size == np.unique(found.one_core_s).size == np.unique(found.traffic_bytes).size == 1
    )


def test_sparse_weights_cost_the_same_as_dense_ones_on_dense_arrays() -> None:
    table = AcceleratorTable.from_accelerators([CHIP, chip("dense")])
    found = AnalyticEstimator().estimate([operator(64, 128, 256, p) for p in (None, Pattern(2, 4))], table)
    for values in (found.spread_s, found.one_core_s, found.energy_j, found.traffic_bytes):
        assert np.unique(values).size == 1


def test_nothing_takes_longer_for_skipping_zeros() -> None:
    """Times and traffic over shapes, arrays, bandwidths; and each table equals its rows alone, to the bit."""
    random = np.random.default_rng(19)
    operators, dense = [], []
    for _ in range(40):
        m, n, k = (int(2 ** random.uniform(0, 11)) for _ in range(3))
        of = int(2 ** random.integers(1, 6))
        operators.append(operator(m, n, k, Pattern(int(random.integers(1, of)), of)))
        dense.append(operator(m, n, k, None))
    chips = [
        chip(
            key,
            num_tc=tc,
            tc_width=width,
            tc_depth=depth,
            glb_bandwidth_bytes_per_s=glb,
            hbm_bandwidth_bytes_per_s=1e11,
        )
        for key, tc, (width, depth), glb in itertools.product(KEYS, (1, 3, 8), ((8, 32), (64, 16)), (1e11, 1e13))
    ]
    estimator = AnalyticEstimator()
    table = AcceleratorTable.from_accelerators(chips)
    found, full = estimator.estimate(operators, table), estimator.estimate(dense, table)
    for name in ("spread_s", "one_core_s", "traffic_bytes"):
        assert (getattr(found, name) <= getattr(full, name)).all()
    assert (found.spread_s < full.spread_s).mean() > 0.1
    compulsory = np.array([each.traffic_bytes for each in operators])
    assert (found.traffic_bytes > 0.3 * compulsory).all()
    for row in range(0, len(chips), 17):
        alone = estimator.estimate(operators, table.take(np.array([row])))
        for name in ("spread_s", "one_core_s", "energy_j", "traffic_bytes"):
            assert np.array_equal(getattr(alone, name)[0], getattr(found, name)[row])


def test_only_products_that_skip_zeros_save_their_energy() -> None:
    """One that is as fast with its zeros multiplied multiplies them."""
    shapes = [(16, 512, 64), (4096, 4096, 16), (4096, 8, 16), (4096, 4096, 4096)]
    sparse = compile_operators([operator(*shape, Pattern(2, 4)) for shape in shapes])
    small = {"tc_width": 16, "tc_depth": 16}
    table = AcceleratorTable.from_accelerators([chip("2:4", **small)])
    estimator = AnalyticEstimator()
    found = estimator.price(sparse, table)
    full = estimator.price(compile_operators([operator(*shape, None) for shape in shapes]), table)
    skips = found.matmuls.cycles[0] < full.matmuls.cycles[0]
    assert skips.tolist() == [False, False, False, True]
    assert np.array_equal(found.skipped_macs[0], np.where(skips, sparse.macs / 2, 0.0))


def test_2_to_4_doubles_the_peak_and_stores_nine_sixteenths() -> None:
    """As the data sheets of A100 and H100 state it; 16 + 2 bits for each of 2 weights of 4."""
    compiled = compile_operators([operator(4096, 4096, 4096, Pattern(2, 4))])
    work = sparse_work(compiled, sparse_array_of(KEYS.index("2:4") + 1))
    assert work.skipped_macs[0] * 2 == compiled.macs[0]
    assert work.spared_elements[0] == (1 - 0.5625) * 4096 * 4096
    table = AcceleratorTable.from_accelerators([CHIP, chip("2:4")])
    seconds = AnalyticEstimator().estimate(compiled, table).spread_s[:, 0]
    assert seconds[0] / seconds[1] == pytest.approx(2.0, rel=1e-9)


@pytest.mark.parametrize("key", ["dense", "2:4", "any:16"])
def test_explained_parts_sum_to_the_estimate(key: str) -> None:
    operators = [operator(300, 500, 700, Pattern(1, 8)), operator(8, 4096, 64, Pattern(2, 4))]
    one = chip(key, hbm_bandwidth_bytes_per_s=1e12, glb_bandwidth_bytes_per_s=1e12)
    found = AnalyticEstimator().estimate(operators, AcceleratorTable.from_accelerators([one]))
    for column, each in enumerate(AnalyticEstimator().explain(operators, one)):
        assert each.latency_s == pytest.approx(found.spread_s[0, column], rel=1e-12)
        assert sum(seconds for _, seconds in each.parts_s) == pytest.approx(each.latency_s, rel=1e-12)
        assert all(seconds >= 0 for _, seconds in each.parts_s)
