"""Switches of mappings: minima over what is allowed, by loops; classes nest; what is unsaid changes nothing."""

import math
from dataclasses import fields, replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kits.plain_estimator import allowed_splits

from phaze_opt.errors import InputError
from phaze_opt.estimate.analytic import AnalyticEstimator
from phaze_opt.estimate.operator_table import MatmulShapes
from phaze_opt.estimate.pricing import ArrayRows, MatmulPrices, price_matmuls
from phaze_opt.estimate.protocol import EstimatorOptions, Multicast
from phaze_opt.graph.operator import CoreType, Matmul, Operator, OperatorKind, Phase
from phaze_opt.hardware.accelerator import Accelerator, AcceleratorTable
from phaze_opt.hardware.area import area_um2_table
from phaze_opt.hardware.chip_template import AXIS
from phaze_opt.hardware.constants import load_constants
from phaze_opt.hardware.flexibility import (
    SWITCHES,
    Freedom,
    flexibility_class,
    freedom_scale,
    longest_edges,
    shapes_of,
    stated_switches,
)

TILE = 40
CONSTANTS = load_constants()
CODES = {name: range(len(switch.kinds) + 1) for name, switch in SWITCHES.items()}
CHIP = Accelerator(4, 4, 32, 16, 32, 1 << 20, 1e12, 4096, 1 << 30, 1e11, 1e9)
extents = st.integers(1, 60)
sizes = st.tuples(st.integers(1, 4), extents, extents, extents)
switches = st.fixed_dictionaries({name: st.sampled_from(list(codes)) for name, codes in CODES.items()})


def rows_of(chips, *, num_tc=4, width=4, depth=6, bytes_per_cycle=32.0):
    count = len(chips)
    columns = (np.full(count, x) for x in (num_tc, width, depth, TILE, 2))
    zeros = np.zeros(count, dtype=np.int64)
    codes = {name: np.array([chip[name] for chip in chips]) for name in SWITCHES}
    return ArrayRows(*columns, np.full(count, 1.0 / bytes_per_cycle), zeros, zeros, **codes)


def priced(size, *chips, multicast=Multicast.NONE, **array):
    return price_matmuls(
        MatmulShapes.of([Matmul(*size)]), rows_of(chips, **array), EstimatorOptions(multicast=multicast)
    )


def tiles_of(kind, m, n):
    """Every tile of results (rows, columns) that a kind of tiling may take."""
    edge = math.isqrt(TILE)
    if kind == "fixed":
        return [(edge, edge)]
    if kind == "full":
        return [(rows, columns) for rows in range(1, TILE + 1) for columns in range(1, TILE // rows + 1)]
    return [(m, TILE // m) if m < edge else (TILE // n, n) if n < edge else (edge, edge)]


def least_cycles(size, chip, num_tc, width, depth, bytes_per_cycle, *, is_multicast):  # noqa: PLR0917
    """Least max(compute, GLB) over every mapping that is allowed, one by one."""
    key = {name: SWITCHES[name].keys[max(1, code) - 1] for name, code in chip.items()}
    dims = {"full": "bmnk", "batch": "b", "rows": "m", "columns": "n", "inner": "k", "rows-columns": "mn"}
    flows = {"full": (0, 1, 2), "weight": (0,), "output": (1,), "input": (2,), "weight-output": (0, 1)}
    best, macs = math.inf, width * depth
    unit = 16 if key["array_shape"] == "part" else 1
    pairs = [(w, macs // w) for w in range(unit, macs + 1, unit) if macs % w == 0 and macs // w % unit == 0]
    shapes = [(width, depth)] if key["array_shape"] == "fixed" else [(width, depth), *pairs]
    for split in allowed_splits(num_tc):
        if any(parts > 1 and name not in dims[key["core_split"]] for parts, name in zip(split, "bmnk", strict=True)):
            continue
        b, m, n, k = (-(-extent // parts) for extent, parts in zip(size, split, strict=True))
        share_m, share_n = (split[1], split[2]) if is_multicast else (1, 1)
        for t_m, t_n in tiles_of(key["tiling"], m, n):
            read = m * k * -(-n // t_n) / share_n + k * n * -(-m // t_m) / share_m
            glb = math.prod(split) * 2 * b * (read + m * n * (3 if split[3] > 1 else 1)) / bytes_per_cycle
            for (w, d), flow in product(shapes, flows[key["loop_order"]]):
                down, across, stream = ((k, n, m), (m, n, k), (k, m, n))[flow]
                folds = b * -(-down // d) * -(-across // w)
                best = min(best, max(folds * (stream + 2 * d + w - 2), glb))
    return best


@settings(max_examples=80, deadline=None)
@given(
    sizes, switches, st.sampled_from([1, 3, 4, 6]), st.sampled_from([(4, 6), (16, 32)]), st.sampled_from([4.0, 64.0]),
    st.sampled_from(Multicast),
)  # fmt: skip
def test_a_matmul_takes_the_least_over_allowed_mappings(size, chip, num_tc, shape, bytes_per_cycle, multicast):
    width, depth = shape
    array = {"num_tc": num_tc, "width": width, "depth": depth, "bytes_per_cycle": bytes_per_cycle}
    found = priced(size, chip, multicast=multicast, **array)
    least = least_cycles(size, chip, *array.values(), is_multicast=multicast is Multicast.IDEAL)
    assert found.cycles[0, 0] == pytest.approx(least, rel=1e-12)
    alone = least_cycles(size, chip, 1, width, depth, bytes_per_cycle / num_tc, is_multicast=False)
    assert found.one_core_cycles[0, 0] >= alone * (1 - 1e-12)


@settings(max_examples=60, deadline=None)
@given(sizes, switches, st.sampled_from([1, 3, 8]), st.sampled_from([4.0, 64.0]))
def test_more_freedom_is_never_slower(size, chip, num_tc, bytes_per_cycle):
    """Full <= part <= fixed of every switch, whatever the others are: so of all 16 classes where sets nest."""
    for name, (fixed, part, full) in {
        "tiling": (("fixed",), "part", "full"),
        "loop_order": (("weight", "output"), "weight-output", "full"),
        "core_split": (("rows", "columns"), "rows-columns", "full"),
        "array_shape": (("fixed",), "part", "full"),
    }.items():
        keys = [*fixed, part, full]
        codes = [1 + SWITCHES[name].keys.index(key) for key in keys]
        found = priced(size, *(chip | {name: code} for code in codes), num_tc=num_tc, bytes_per_cycle=bytes_per_cycle)
        *slow, middle, best = found.cycles[:, 0]
        assert best <= middle <= min(slow)
        assert found.one_core_cycles[-1, 0] <= found.one_core_cycles[-2, 0] <= found.one_core_cycles[:-2, 0].min()


@settings(max_examples=30, deadline=None)
@given(st.lists(sizes, min_size=1, max_size=3, unique=True), st.lists(switches, min_size=2, max_size=8))
def test_rows_priced_together_are_as_priced_alone(shapes, chips):
    matmuls = MatmulShapes.of([Matmul(*shape) for shape in shapes])
    together = price_matmuls(matmuls, rows_of(chips), EstimatorOptions())
    for row, chip in enumerate(chips):
        alone = price_matmuls(matmuls, rows_of([chip]), EstimatorOptions())
        for each in fields(MatmulPrices):
            assert np.array_equal(getattr(together, each.name)[row], getattr(alone, each.name)[0])


def test_what_is_not_said_is_what_is_usual():
    unsaid = dict.fromkeys(SWITCHES, 0)
    for name in SWITCHES:
        found = priced((3, 50, 41, 37), unsaid, unsaid | {name: 1})
        assert all(np.array_equal(*getattr(found, each.name)) for each in fields(MatmulPrices))
    assert flexibility_class(CHIP) == "1110"
    assert stated_switches(CHIP) == {}
    rigid = replace(CHIP, tiling=2, loop_order=2, core_split=3)
    assert flexibility_class(rigid) == "0000"
    assert stated_switches(rigid) == {"tiling": "fixed", "loop_order": "weight", "core_split": "rows"}
    chips = (replace(CHIP, **dict(zip(SWITCHES, codes, strict=True))) for codes in product(*CODES.values()))
    assert len({flexibility_class(chip) for chip in chips}) == 16


@settings(max_examples=30, deadline=None)
@given(sizes, switches, st.sampled_from(list(SWITCHES)), st.sampled_from([1, 6]), st.sampled_from(Multicast))
def test_kinds_that_are_said_to_be_no_slower_are_not(size, chip, name, num_tc, multicast):
    """What lets proofs take the rows of one kind for those of another."""
    pairs = SWITCHES[name].no_slower
    assert set(pairs) == set(AXIS[name].no_slower)
    full = 1 + SWITCHES[name].keys.index("full")
    assert {(code, full) for code in CODES[name] if code not in {0, full}} <= set(pairs)
    found = priced(size, *(chip | {name: code} for code in CODES[name]), num_tc=num_tc, multicast=multicast)
    for slower, other in pairs:
        assert found.cycles[other, 0] <= found.cycles[slower, 0] * (1 + 1e-15)
        assert found.one_core_cycles[other, 0] <= found.one_core_cycles[slower, 0] * (1 + 1e-15)


def test_shapes_keep_the_multipliers():
    assert shapes_of(32, 16, 0) == ((32, 16),)
    assert set(shapes_of(32, 16, 2)) == {(32, 16), (16, 32)}
    assert len(shapes_of(128, 128, 3)) == 15
    assert all(w * d == 128 * 64 and w % 16 == d % 16 == 0 for w, d in shapes_of(128, 64, 2))
    assert shapes_of(8, 8, 2) == ((8, 8),)


def test_freedom_takes_area_and_ports():
    """Full freedom adds 1 to 5 % of an array's multiply-accumulates a switch; long shapes need ports down an edge."""
    base = AcceleratorTable.from_accelerators([CHIP])
    for name, switch in SWITCHES.items():
        codes = list(CODES[name])
        table = AcceleratorTable.from_accelerators([replace(CHIP, **{name: code}) for code in codes])
        by_freedom = sorted(zip(map(switch.freedom, codes), area_um2_table(table), strict=True))
        assert [area for _, area in by_freedom] == sorted(area for _, area in by_freedom)
        assert area_um2_table(table)[0] == area_um2_table(base)[0]
        scale = freedom_scale(table, CONSTANTS)
        assert scale[0] == scale[1] == 1.0
        most = [each for each, code in zip(scale, codes, strict=True) if switch.freedom(code) is Freedom.FULL]
        least = [each for each, code in zip(scale, codes, strict=True) if switch.freedom(code) is Freedom.FIXED]
        assert max(most) - min(least) == pytest.approx(CONSTANTS.value(switch.share_key))
        known = CONSTANTS.entries[switch.share_key]
        assert 0.0 == known.low < known.value < known.high <= 0.15
        assert known.parameter == name
    edges = longest_edges(np.full(4, 32), np.full(4, 16), np.arange(4), np.full(4, 48))
    assert edges.tolist() == [48, 48, 48, 513]
    for code in (2, 3):
        longest = max(w + d for w, d in shapes_of(128, 128, code))
        assert longest_edges(np.array([128]), np.array([128]), np.array([code]), np.array([256]))[0] == longest


def test_an_operator_is_never_quicker_than_its_multipliers():
    shape = Matmul(3, 500, 300, 200)
    operator = Operator("product", Phase.FORWARD, OperatorKind.MATMUL, CoreType.TC, (shape,), bytes_read=1.0)
    chips = [replace(CHIP, array_shape=code, tiling=code) for code in (0, 2, 3)]
    times = AnalyticEstimator().estimate([operator], AcceleratorTable.from_accelerators(chips)).spread_s[:, 0]
    assert times[0] >= times[1] >= times[2] >= shape.macs / CHIP.num_macs / CHIP.clock_hz


def test_numbers_that_no_switch_has_are_refused():
    with pytest.raises(InputError, match="loop_order = 6 must be from 0 to 5, for what a design does not state, full"):
        replace(CHIP, loop_order=6)
