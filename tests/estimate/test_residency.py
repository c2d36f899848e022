"""Prices where the buffer holds tensors between operators: against a replay, and monotone in every rate and size."""

from collections.abc import Sequence
from dataclasses import fields, replace
from functools import cache

import numpy as np
import pytest
from kits.residency import ReplayedOperator, needed_after, replay
from kits.tape_layers import record

from phaze_opt.estimate import analytic, calibrated
from phaze_opt.estimate.analytic import AnalyticEstimator
from phaze_opt.estimate.calibrated import CalibratedEstimator, DesignTerms, SystolicOperators, systolic_terms
from phaze_opt.estimate.operator_table import compile_operators
from phaze_opt.estimate.protocol import Bound, Estimates, EstimatorOptions, GlbLimit, Residency
from phaze_opt.graph import operations as ops
from phaze_opt.graph.build import build_programs
from phaze_opt.graph.convolution_shape import ConvolutionShape
from phaze_opt.graph.convolutions import batch_norm, convolution
from phaze_opt.graph.fusion import fuse
from phaze_opt.graph.layer import LayerGraph
from phaze_opt.graph.lowering import lower
from phaze_opt.graph.operator import (
    BufferUse,
    CoreType,
    HeldOperand,
    Matmul,
    Operand,
    Operator,
    OperatorKind,
    Phase,
    VectorKind,
    VectorWork,
)
from phaze_opt.graph.program import Node, Program, Tape, Tensor
from phaze_opt.graph.residency import place_holds
from phaze_opt.graph.traced.rules.recurrent import RecurrentShape, lstm
from phaze_opt.hardware.accelerator import AcceleratorTable
from phaze_opt.hardware.area import access_energies
from phaze_opt.hardware.constants import load_constants
from phaze_opt.hardware.device import ComputePath
from phaze_opt.hardware.device_catalogue import load_device
from phaze_opt.hardware.fitted import load_fitted
from phaze_opt.testing.problems import random_accelerators
from phaze_opt.units import MEBI
from phaze_opt.workload.config import load_model
from phaze_opt.workload.software import FusionLevel
from phaze_opt.workload.training import AttentionForm, Optimizer, TrainingSpec

NONE, PLANNED = (load_constants().with_options({"residency": choice}) for choice in ("none", "planned"))
CHIP = random_accelerators(0, count=1)[0]
TILE_BYTES = int(PLANNED.value("glb.tile_bytes"))
CASES = {
    "fused": ("bert-large", 1, FusionLevel.EPILOGUE, AttentionForm.FUSED),
    "unfused": ("gpt2-xl", 1, FusionLevel.NONE, AttentionForm.UNFUSED),
    "sharded": ("llama-3-8b", 4, FusionLevel.EPILOGUE, AttentionForm.UNFUSED),
    "experts": ("mixtral-8x7b", 2, FusionLevel.ELEMENTWISE, AttentionForm.FUSED),
}
TAPES = "tapes"
"""Case of layers that no model of the zoo has."""


def convolutional(tape: Tape, tensor: Tensor) -> Tensor:
    """A residual block, then a depthwise convolution."""
    wide = ConvolutionShape(4, 64, 64, (112, 112), (3, 3), padding=(1, 1))
    apart = ConvolutionShape(4, 64, 64, (112, 112), (5, 5), (2, 2), (2, 2), groups=64)
    end = batch_norm(tape, "norm", convolution(tape, "one", tensor, wide), channels=64)
    end = ops.elementwise(tape, "relu", (ops.add(tape, "sum", end, tensor),), ops.RELU)
    return convolution(tape, "apart", end, apart, has_bias=True)


def recurrent(tape: Tape, tensor: Tensor) -> Tensor:
    return lstm(tape, "lstm", tensor, RecurrentShape(20, 64, 1024, 1024))


def record_tapes() -> tuple[Program, ...]:
    elements = {convolutional: 4 * 64 * 112 * 112, recurrent: 20 * 64 * 1024}
    return tuple(fuse(record(count, layer)) for layer, count in elements.items())


@cache
def layers_of(case: str, micro_batch: int = 2) -> tuple[tuple[Program, LayerGraph], ...]:
    if case == TAPES:
        return tuple((program, lower(program, optimizer=Optimizer.ADAM)) for program in record_tapes())
    name, t, fusion, form = CASES[case]
    training = TrainingSpec(micro_batch, 512, 8, attention=form)
    programs = [fuse(one, fusion) for one in build_programs(load_model(name), training, tensor_parallel=t)]
    return tuple((program, lower(program, optimizer=Optimizer.ADAM)) for program in programs)


def operators_of(case: str) -> list[Operator]:
    return [each for _, layer in layers_of(case) for graph in layer.phases for each in graph.operators]


def table_of(num_chips: int, seed: int = 3) -> AcceleratorTable:
    """Random chips with buffers of any whole number of bytes."""
    table = AcceleratorTable.from_accelerators(random_accelerators(seed, count=num_chips))
    rng = np.random.default_rng(seed)
    sizes = np.exp(rng.uniform(np.log(MEBI), np.log(600 * MEBI), num_chips)).astype(np.int64)
    return replace(table, glb_bytes=sizes)


def assert_same(one: Estimates, other: Estimates) -> None:
    for field in fields(Estimates):
        assert np.array_equal(getattr(one, field.name), getattr(other, field.name)), field.name


@pytest.mark.parametrize("case", [*CASES, TAPES])
@pytest.mark.parametrize("kind", [AnalyticEstimator, CalibratedEstimator])
def test_where_tiles_take_all_of_the_buffer_nothing_changes(case: str, kind: type[AnalyticEstimator]) -> None:
    """To the bit, figures and explanations."""
    table, operators = table_of(12), operators_of(case)
    without = kind(NONE)
    full = kind(PLANNED.with_overrides({"glb.tile_bytes": 600.0 * MEBI}))
    assert_same(full.estimate(operators, table), without.estimate(operators, table))
    assert full.explain(operators, table.row(0, name="x")) == without.explain(operators, table.row(0, name="x"))


def least_elements(matmul: Matmul, room: int, left: float, right: float) -> float:
    """All numbers of column strips, one by one."""
    m, n, k = matmul.m, matmul.n, matmul.k
    behind = matmul.left_elements or m * k
    if min(behind, k * n, m * n) <= room:
        return left * behind + right * k * n
    strips = np.arange(1, n + 1)
    rows = room // -(-n // strips)
    strips, rows = strips[rows > 0], rows[rows > 0]
    tall = -(-m // rows)
    patches = np.minimum(m * k, behind + (tall - 1) * matmul.left_overlap)
    return float((strips * left * patches + tall * right * k * n).min())


def expected_bytes(operator: Operator, node: Node, moved: ReplayedOperator, *, glb_bytes: int) -> float:
    """HBM bytes of an operator by what a replay found in the buffer."""
    if operator.kind is OperatorKind.RECURRENT:
        weights = sum(2 * each.k * each.n for each in operator.matmuls)
        missing = max(0, weights - 2 * ((glb_bytes - moved.occupied) // 4))
        return moved.total + (operator.serial_steps - 1) * missing
    if operator.kind is not OperatorKind.MATMUL:
        return moved.total
    matmul, size = operator.matmuls[0], 2
    shares, operands, beyond = [], 0.0, 0.0
    matrices = (matmul.distinct_left, matmul.k * matmul.n)
    for operand, elements in zip((node.left, node.right), matrices, strict=True):
        names = {each.name: each.num_bytes for each in operand}
        # What a tensor has beyond its matrix (the last state of a recurrence) is moved, held or not.
        beyond += max(0, sum(names.values()) - matmul.batch * elements * size)
        read = sum(moved.reads[name] for name in names)
        shares.append(read / sum(names.values()))
        operands += read
    room = max(1, (glb_bytes - moved.occupied) // (2 * size))
    tiled = least_elements(matmul, room, *shares) * matmul.batch * size
    # What exceeds the operands' compulsory bytes is moved once: the result, an epilogue's operands and results.
    result = matmul.batch * matmul.m * matmul.n * size
    rest = operator.traffic_bytes - sum(each.num_bytes for each in (*node.left, *node.right))
    saved = rest - (moved.total - operands)
    return tiled + max(result, rest) - saved + beyond


@pytest.mark.parametrize("case", [*CASES, TAPES])
def test_traffic_is_what_a_replay_moves(case: str) -> None:
    """Operator by operator, with every number of strips tried."""
    estimator = AnalyticEstimator(PLANNED)
    for glb_bytes in (8 * MEBI + 1, 10 * MEBI, 24 * MEBI + 77, 90 * MEBI, 1 << 32):
        table = replace(table_of(1), glb_bytes=np.array([glb_bytes]))
        capacity = glb_bytes - TILE_BYTES
        for program, layer in layers_of(case):
            for graph, phase in ((layer.forward, Phase.FORWARD), (layer.backward, Phase.BACKWARD)):
                nodes = [each for each in program.nodes if each.phase is phase]
                on_core = [each.core_type not in (CoreType.NETWORK, CoreType.NONE) for each in graph.operators]
                addresses = place_holds(graph.holds, on_core)
                found = replay(nodes, needed_after(program, nodes), graph.holds, addresses, capacity)
                expected = [
                    expected_bytes(operator, node, moved, glb_bytes=glb_bytes) if counts else 0.0
                    for operator, node, moved, counts in zip(graph.operators, nodes, found, on_core, strict=True)
                ]
                actual = estimator.estimate(graph.operators, table).traffic_bytes[0]
                np.testing.assert_allclose(actual, expected, rtol=1e-12, atol=1e-6)


def raised(table: AcceleratorTable, column: str, factors: np.ndarray) -> AcceleratorTable:
    before = getattr(table, column)
    return replace(table, **{column: (before * factors).astype(before.dtype)})


@pytest.mark.parametrize("column", ["glb_bytes", "glb_bandwidth_bytes_per_s", "hbm_bandwidth_bytes_per_s"])
@pytest.mark.parametrize("kind", [AnalyticEstimator, CalibratedEstimator])
def test_more_of_anything_never_takes_longer(column: str, kind: type[AnalyticEstimator]) -> None:
    """Capacity and rates of buffer and memory; exactly, without a tolerance."""
    operators = [each for case in (*CASES, TAPES) for each in operators_of(case)]
    table = table_of(150, seed=11)
    factors = np.exp(np.random.default_rng(5).uniform(0.0, 1.5, len(table)))
    estimator = kind(PLANNED)
    before, after = (estimator.estimate(operators, each) for each in (table, raised(table, column, factors)))
    for name in ("one_core_s", "spread_s", "traffic_bytes"):
        assert (getattr(after, name) <= getattr(before, name)).all(), name
    assert (after.spread_s <= after.one_core_s).all()
    assert (after.spread_s < before.spread_s).any()


@pytest.mark.parametrize("limit", GlbLimit)
def test_holding_never_takes_longer_than_not(limit: GlbLimit) -> None:
    operators = [each for case in (*CASES, TAPES) for each in operators_of(case) if each.phase is not Phase.UPDATE]
    table = table_of(40, seed=2)
    with_it, without = (
        AnalyticEstimator(PLANNED, EstimatorOptions(glb_limit=limit, residency=each)).estimate(operators, table)
        for each in (Residency.PLANNED, Residency.NONE)
    )
    # Some products have less room for their tiles than alone; on the whole less is moved.
    for name in ("traffic_bytes", "spread_s"):
        assert (getattr(with_it, name).sum(axis=1) <= getattr(without, name).sum(axis=1)).all(), name
    big = table.glb_bytes > 64 * MEBI
    assert (with_it.traffic_bytes.sum(axis=1) < 0.9 * without.traffic_bytes.sum(axis=1))[big].all()


def norm(held: int) -> Operator:
    """A vector operator of 4 MiB in and out, of which so many bytes are found at address 0."""
    use = BufferUse(held=(HeldOperand(0, held, held, Operand.REST),) if held else (), taken=((0, held),))
    works = (VectorWork(VectorKind.ADD, 2 * MEBI),)
    kind, cores = OperatorKind.VECTOR, CoreType.VC
    return Operator("norm", Phase.FORWARD, kind, cores, (), works, 4.0 * MEBI, 4.0 * MEBI, buffer=use)


def test_what_is_held_passes_the_buffer() -> None:
    """A vector operator takes its bytes from HBM, or all of them at the buffer's rate if that is slower."""
    chip = replace(CHIP, num_vc=512, vc_width=512, glb_bytes=32 * MEBI)
    total, rate = 8.0 * MEBI, chip.hbm_bandwidth_bytes_per_s
    for held in (0, 3 * MEBI, 8 * MEBI):
        for factor in (0.5, 1.5, 64.0):
            chip = replace(chip, glb_bandwidth_bytes_per_s=factor * rate)
            one = AnalyticEstimator(PLANNED).explain([norm(held)], chip)[0]
            from_hbm, through = (total - held) / rate, total / (rate * max(factor, 1.0))
            assert one.latency_s == pytest.approx(max(from_hbm, through), rel=1e-12)
            assert one.bound is (Bound.HBM if from_hbm >= through else Bound.GLB)
            assert one.traffic_bytes == total - held
            assert sum(seconds for _, seconds in one.parts_s) == pytest.approx(one.latency_s, rel=1e-12)
            found = AnalyticEstimator(PLANNED).estimate([norm(held)], AcceleratorTable.from_accelerators([chip]))
            assert found.spread_s[0, 0] == one.latency_s
            assert found.one_core_s[0, 0] == pytest.approx(chip.num_vc * one.latency_s, rel=1e-12)


def test_energy_of_what_is_held_is_the_buffers() -> None:
    table = AcceleratorTable.from_accelerators([replace(CHIP, glb_bytes=32 * MEBI)])
    held = 3 * MEBI
    energies = access_energies(table, PLANNED)
    before, after = (AnalyticEstimator(PLANNED).estimate([norm(each)], table).energy_j[0, 0] for each in (0, held))
    assert after - before == pytest.approx(held * (energies.glb_j_per_byte[0] - energies.hbm_j_per_byte[0]), rel=1e-9)


@pytest.mark.parametrize("case", CASES)
def test_explanations_are_of_the_latencies(case: str) -> None:
    operators, table = operators_of(case), table_of(4, seed=8)
    for estimator in (AnalyticEstimator(PLANNED), CalibratedEstimator(PLANNED)):
        found = estimator.estimate(operators, table)
        for row in range(len(table)):
            explained = estimator.explain(operators, table.row(row, name="x"))
            np.testing.assert_allclose([one.latency_s for one in explained], found.spread_s[row], rtol=1e-12)
            parts = [sum(seconds for _, seconds in one.parts_s) for one in explained]
            np.testing.assert_allclose(parts, found.spread_s[row], rtol=1e-9)
            assert [one.traffic_bytes for one in explained] == found.traffic_bytes[row].tolist()


def test_an_operator_alone_costs_what_it_costs_in_company() -> None:
    """One without anything held as well, which alone takes the way of estimates without residency."""
    operators, table = operators_of("fused"), table_of(5, seed=4)
    together = AnalyticEstimator(PLANNED).estimate(operators, table)
    for column in range(0, len(operators), 3):
        alone = AnalyticEstimator(PLANNED).estimate([operators[column]], table)
        for field in fields(Estimates):
            assert np.array_equal(getattr(alone, field.name)[:, 0], getattr(together, field.name)[:, column])


def test_machines_that_exist_hold_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the package's choice: their constants were fitted so."""
    device, fitted = load_device("tpu-v4"), load_fitted()
    terms = systolic_terms(device, fitted=fitted, setting="device")
    compiled = compile_operators(operators_of("fused"))
    found = []
    for constants in (NONE, PLANNED):
        for module in (analytic, calibrated):
            monkeypatch.setattr(module, "load_constants", lambda constants=constants: constants)
        assert AnalyticEstimator().options.residency.value == constants.option("residency")
        found.append(SystolicOperators(compiled, device, ComputePath.BF16))
    before, after = found
    assert np.array_equal(before.seconds(terms), after.seconds(terms))
    assert before.explain(terms) == after.explain(terms)
    chip = AcceleratorTable.from_accelerators([replace(CHIP, glb_bytes=128 * MEBI)])
    ideal: Sequence[Estimates] = [
        CalibratedEstimator(each, terms=DesignTerms()).estimate(compiled, chip) for each in (NONE, PLANNED)
    ]
    assert not np.array_equal(ideal[0].traffic_bytes, ideal[1].traffic_bytes)
