"""Conformance suite of estimators: what every implementation of `estimate.protocol.Estimator` must satisfy.

A plug-in author derives a test class and overrides one fixture::

    class TestMine(EstimatorConformance):
        @pytest.fixture
        def estimator(self):
            return MyEstimator()

and, where the estimator has them, ``closed_forms`` with cases whose latency is known exactly. One-core latency is
exempt from monotonicity in the number of cores: a core's share of the memory shrinks with it (semantics 3).
"""

import copy
import pickle
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
import pytest

from phaze_opt.estimate.protocol import Estimates, Estimator
from phaze_opt.graph.convolution_shape import ConvolutionShape
from phaze_opt.graph.operator import (
    Collective,
    CollectiveKind,
    CoreType,
    Matmul,
    Operator,
    OperatorKind,
    Phase,
    VectorKind,
    VectorWork,
)
from phaze_opt.hardware.accelerator import Accelerator, AcceleratorTable
from phaze_opt.hardware.constants import load_constants
from phaze_opt.testing.isolation import assert_imports_cheaply, global_generators, in_spawned_process
from phaze_opt.testing.problems import CORE_COUNTS, random_accelerators

RELATIVE_TOLERANCE = 1e-9
"""Rounding that a monotone estimator is allowed."""
NUM_OPERATORS = 24
Operators = tuple[Operator, ...]
Chips = tuple[Accelerator, ...]


@dataclass(frozen=True, slots=True)
class ClosedForm:
    """An operator whose spread latency on an accelerator is known exactly, s."""

    operator: Operator
    accelerator: Accelerator
    spread_s: float


def random_operators(seed: int, *, count: int = NUM_OPERATORS) -> Operators:
    """Matmuls, convolutions, attention, recurrences and vector operators, and one that costs nothing."""
    rng = np.random.default_rng(seed)
    makers = (
        *(_matmul_operator, _fused_operator, _attention_operator, _vector_operator),
        *(_convolution_operator, _recurrent_operator, _scan_operator),
    )
    priced = [makers[number % len(makers)](rng, f"{number}") for number in range(count - 1)]
    collective = Collective(CollectiveKind.ALL_REDUCE, 1e6)
    free = Operator("free", Phase.FORWARD, OperatorKind.COLLECTIVE, CoreType.NETWORK, collective=collective)
    return (*priced, free)


def _random_matmul(rng: np.random.Generator) -> Matmul:
    """A shape with both round and ragged edges."""
    edges = [int(rng.choice([int(rng.integers(1, 40)), 64, 128, 500, 512, 1000, 1024, 4096])) for _ in range(3)]
    return Matmul(int(rng.choice([1, 1, 3, 16])), *edges)


def _vector_work(rng: np.random.Generator) -> VectorWork:
    """Work of any kind, from none to 10^8 elements."""
    return VectorWork(list(VectorKind)[int(rng.integers(len(VectorKind)))], int(10 ** rng.uniform(0, 8)))


def _matmul_operator(rng: np.random.Generator, name: str) -> Operator:
    """A plain matmul moving its operands and a little more."""
    matmul = _random_matmul(rng)
    read = 2.0 * matmul.operand_elements() + float(rng.integers(0, 10**6))
    return Operator(name, Phase.FORWARD, OperatorKind.MATMUL, CoreType.TC, (matmul,), bytes_read=read)


def _fused_operator(rng: np.random.Generator, name: str) -> Operator:
    """A matmul with an epilogue."""
    plain = _matmul_operator(rng, name)
    return replace(plain, core_type=CoreType.TC_AND_VC, vector_works=(_vector_work(rng),))


def _convolution_operator(rng: np.random.Generator, name: str) -> Operator:
    """A product of a convolution, depthwise, grouped or neither."""
    groups, width = (int(rng.choice(choices)) for choices in ([1, 4, 64], [1, 3, 16]))
    edge = int(rng.choice([7, 28, 56]))
    channels = groups * width
    padding, stride = (1, 1), (int(rng.choice([1, 2])),) * 2
    shape = ConvolutionShape(2, channels, channels, (edge, edge), (3, 3), stride, padding, groups=groups)
    matmul = (shape.forward, shape.input_gradient, shape.weight_gradient)[int(rng.integers(3))]
    core = CoreType.TC_AND_VC if matmul.is_grouped else CoreType.TC
    read = 2.0 * matmul.operand_elements()
    return Operator(name, Phase.FORWARD, OperatorKind.MATMUL, core, (matmul,), bytes_read=read)


def _recurrent_operator(rng: np.random.Generator, name: str) -> Operator:
    """Steps of a product and the gates behind it."""
    steps, rows, hidden = (int(rng.choice(choices)) for choices in ([1, 3, 50], [1, 16, 128], [48, 300, 1024]))
    gates = VectorWork(VectorKind.ACTIVATION_FORWARD, 5 * steps * rows * hidden)
    return Operator(
        name,
        Phase.FORWARD,
        OperatorKind.RECURRENT,
        CoreType.TC_AND_VC,
        (Matmul(1, rows, 4 * hidden, hidden),),
        (gates,),
        bytes_read=2.0 * (4 * steps * rows * hidden + 4 * hidden * hidden),
        bytes_written=2.0 * steps * rows * hidden,
        serial_steps=steps,
    )


def _scan_operator(rng: np.random.Generator, name: str) -> Operator:
    """Vector work in steps."""
    return replace(_vector_operator(rng, name), serial_steps=int(rng.choice([1, 10, 1000])))


def _attention_operator(rng: np.random.Generator, name: str) -> Operator:
    """Fused attention: two matmuls, a softmax, and only its operands in HBM."""
    heads, sequence, width = int(rng.choice([4, 16])), int(rng.choice([128, 512, 1000])), 64
    matmuls = (Matmul(heads, sequence, sequence, width), Matmul(heads, sequence, width, sequence))
    softmax = VectorWork(VectorKind.SOFTMAX_FORWARD, heads * sequence * sequence)
    return Operator(
        name,
        Phase.FORWARD,
        OperatorKind.ATTENTION,
        CoreType.TC_AND_VC,
        matmuls,
        (softmax,),
        bytes_read=6.0 * heads * sequence * width,
        bytes_written=2.0 * heads * sequence * width,
    )


def _vector_operator(rng: np.random.Generator, name: str) -> Operator:
    """Elementwise work from HBM to HBM."""
    work = _vector_work(rng)
    return Operator(
        name, Phase.FORWARD, OperatorKind.VECTOR, CoreType.VC, (), (work,), 2.0 * work.elements, 2.0 * work.elements
    )


def estimate_fresh(
    estimator: Estimator, operators: Sequence[Operator], accelerators: Sequence[Accelerator]
) -> Estimates:
    """Estimates of accelerators given as values; at module level so that a spawned process can run it."""
    return estimator.estimate(operators, AcceleratorTable.from_accelerators(accelerators))


def _same(one: Estimates, other: Estimates) -> bool:
    """Bit for bit."""
    return all(np.array_equal(getattr(one, f.name), getattr(other, f.name)) for f in fields(Estimates))


def _never_above(small: object, large: object) -> bool:
    """Elementwise ``small <= large`` up to rounding."""
    return bool(np.all(np.asarray(small) <= np.asarray(large) * (1 + RELATIVE_TOLERANCE)))


class EstimatorConformance:
    """Derive from it and override ``estimator``."""

    @pytest.fixture
    def estimator(self) -> Estimator:
        """The estimator under test."""
        message = "override the fixture 'estimator'"
        raise NotImplementedError(message)

    @pytest.fixture
    def closed_forms(self) -> tuple[ClosedForm, ...]:
        """Cases known exactly; none unless overridden."""
        return ()

    @pytest.fixture(params=[0, 1])
    def accelerators(self, request: pytest.FixtureRequest) -> Chips:
        """Random chips."""
        return random_accelerators(request.param)

    @pytest.fixture
    def operators(self) -> Operators:
        """Random operators of every kind."""
        return random_operators(0)

    def test_implements_the_protocol(self, estimator: Estimator) -> None:
        """It has every member, a name, and stays itself under its own constants."""
        assert isinstance(estimator, Estimator)
        assert estimator.name
        assert estimator.with_constants(load_constants()).name == estimator.name

    def test_finite_and_not_negative(self, estimator: Estimator, operators: Operators, accelerators: Chips) -> None:
        """Every figure is a number of the right shape; operators off the cores cost nothing."""
        result = estimate_fresh(estimator, operators, accelerators)
        for field in fields(Estimates):
            table = getattr(result, field.name)
            assert table.shape == (len(accelerators), len(operators))
            assert np.isfinite(table).all()
            assert (table >= 0).all()
            assert not table[:, -1].any()

    def test_never_below_the_roofline(self, estimator: Estimator, operators: Operators, accelerators: Chips) -> None:
        """At least FLOPs at peak and compulsory bytes at full bandwidth; one core is no faster than all.

        Groups of a convolution have the peak of the lanes too, a multiply-accumulate a cycle.
        """
        result = estimate_fresh(estimator, operators, accelerators)
        peak = np.array([a.peak_flops_per_s for a in accelerators])[:, None]
        lanes = np.array([2.0 * a.num_lanes * a.clock_hz for a in accelerators])[:, None]
        is_grouped = np.array([any(m.is_grouped for m in operator.matmuls) for operator in operators])
        peak = np.where(is_grouped, np.maximum(peak, lanes), peak)
        bandwidth = np.array([a.hbm_bandwidth_bytes_per_s for a in accelerators])[:, None]
        flops = np.array([float(operator.matmul_flops) for operator in operators])
        num_bytes = np.array([operator.traffic_bytes for operator in operators])
        assert _never_above(np.maximum(flops / peak, num_bytes / bandwidth), result.spread_s)
        assert _never_above(result.spread_s, result.one_core_s)
        assert _never_above(num_bytes, result.traffic_bytes)

    @pytest.mark.parametrize("edge", ["batch", "m", "n", "k"])
    @pytest.mark.parametrize("factor", [1, 2])
    def test_monotone_in_flops(self, estimator: Estimator, accelerators: Chips, edge: str, factor: int) -> None:
        """A matmul with one edge longer, by one or doubled, never takes less time."""
        rng = np.random.default_rng(3)
        small = [_matmul_operator(rng, f"{number}") for number in range(NUM_OPERATORS)]
        large = []
        for operator in small:
            matmul = operator.matmuls[0]
            longer = replace(matmul, **{edge: factor * getattr(matmul, edge) + (factor == 1)})
            more = 2.0 * (longer.operand_elements() - matmul.operand_elements())
            large.append(replace(operator, matmuls=(longer,), bytes_read=operator.bytes_read + more))
        before, after = (estimate_fresh(estimator, work, accelerators) for work in (small, large))
        assert _never_above(before.spread_s, after.spread_s)
        assert _never_above(before.one_core_s, after.one_core_s)

    def test_monotone_in_vector_work_and_bytes(
        self, estimator: Estimator, operators: Operators, accelerators: Chips
    ) -> None:
        """More elements, or more bytes, never take less time."""
        before = estimate_fresh(estimator, operators, accelerators)
        more_bytes = [
            operator if operator.collective else replace(operator, bytes_read=1.5 * operator.bytes_read + 1)
            for operator in operators
        ]
        more_work = [
            replace(operator, vector_works=tuple(VectorWork(w.kind, 2 * w.elements + 1) for w in operator.vector_works))
            for operator in operators
        ]
        for changed in (more_bytes, more_work):
            after = estimate_fresh(estimator, changed, accelerators)
            assert _never_above(before.spread_s, after.spread_s)
            assert _never_above(before.one_core_s, after.one_core_s)

    @pytest.mark.parametrize("field", ["hbm_bandwidth_bytes_per_s", "glb_bandwidth_bytes_per_s", "clock_hz"])
    def test_never_slower_with_faster_parts(
        self, estimator: Estimator, operators: Operators, accelerators: Chips, field: str
    ) -> None:
        """More bandwidth or a higher clock, and nothing else, never costs time."""
        faster = [replace(chip, **{field: 1.7 * getattr(chip, field)}) for chip in accelerators]
        before, after = (estimate_fresh(estimator, operators, chips) for chips in (accelerators, faster))
        assert _never_above(after.spread_s, before.spread_s)
        assert _never_above(after.one_core_s, before.one_core_s)

    @pytest.mark.parametrize("field", CORE_COUNTS)
    @pytest.mark.parametrize("factor", [1, 2])
    def test_spread_never_slower_with_more_cores(
        self, estimator: Estimator, operators: Operators, accelerators: Chips, field: str, factor: int
    ) -> None:
        """One more core, or twice as many, never slows an operator that is spread over all of them."""
        larger = [replace(chip, **{field: factor * getattr(chip, field) + (factor == 1)}) for chip in accelerators]
        before, after = (estimate_fresh(estimator, operators, chips) for chips in (accelerators, larger))
        assert _never_above(after.spread_s, before.spread_s)

    def test_double_clock_halves_compute_bound_time(self, estimator: Estimator, accelerators: Chips) -> None:
        """With memory out of the way and a GLB that follows the clock, as on designed chips."""
        operator = Operator("c", Phase.FORWARD, OperatorKind.MATMUL, CoreType.TC, (Matmul(2, 1000, 777, 512),))
        free_memory = [replace(chip, hbm_bandwidth_bytes_per_s=1e30) for chip in accelerators]
        doubled = [
            replace(chip, clock_hz=2 * chip.clock_hz, glb_bandwidth_bytes_per_s=2 * chip.glb_bandwidth_bytes_per_s)
            for chip in free_memory
        ]
        before, after = (estimate_fresh(estimator, [operator], chips) for chips in (free_memory, doubled))
        np.testing.assert_allclose(after.spread_s, before.spread_s / 2, rtol=RELATIVE_TOLERANCE)

    def test_exact_on_closed_forms(self, estimator: Estimator, closed_forms: tuple[ClosedForm, ...]) -> None:
        """Cases that the author knows exactly."""
        for case in closed_forms:
            result = estimate_fresh(estimator, [case.operator], [case.accelerator])
            assert result.spread_s[0, 0] == pytest.approx(case.spread_s, rel=RELATIVE_TOLERANCE)

    def test_explains_what_it_estimates(self, estimator: Estimator, operators: Operators, accelerators: Chips) -> None:
        """Breakdowns are of the spread latency, and their parts sum to it."""
        for chip in accelerators[:8]:
            result = estimate_fresh(estimator, operators, [chip])
            breakdowns = estimator.explain(operators, chip)
            assert [breakdown.operator for breakdown in breakdowns] == [operator.name for operator in operators]
            latencies = [breakdown.latency_s for breakdown in breakdowns]
            np.testing.assert_allclose(latencies, result.spread_s[0], rtol=RELATIVE_TOLERANCE)
            sums = [sum(seconds for _, seconds in breakdown.parts_s) for breakdown in breakdowns]
            np.testing.assert_allclose(sums, latencies, rtol=RELATIVE_TOLERANCE)

    def test_a_second_time_is_the_same(self, estimator: Estimator, operators: Operators, accelerators: Chips) -> None:
        """Whatever is cached: a hit equals a miss, and a chip or operator alone equals itself in company."""
        first, again = (estimate_fresh(estimator, operators, accelerators) for _ in range(2))
        assert _same(first, again)
        for row, column in ((0, 0), (7, 3), (-1, -2)):
            alone = estimate_fresh(estimator, [operators[column]], [accelerators[row]])
            for field in fields(Estimates):
                together = getattr(first, field.name)[row, column]
                assert getattr(alone, field.name)[0, 0] == pytest.approx(together, rel=1e-12)

    def test_inputs_are_left_alone(self, estimator: Estimator, operators: Operators, accelerators: Chips) -> None:
        """Operators, table and global generators are as before, and writing into a result changes no later one."""
        table = AcceleratorTable.from_accelerators(accelerators)
        before = copy.deepcopy((operators, table))
        generators = global_generators()
        first = estimator.estimate(operators, table)
        kept = copy.deepcopy(first)
        first.spread_s[:] = -1.0
        first.traffic_bytes[:] = -1.0
        assert _same(estimator.estimate(operators, table), kept)
        assert operators == before[0]
        for field in fields(AcceleratorTable):
            assert np.array_equal(getattr(table, field.name), getattr(before[1], field.name))
        assert global_generators() == generators

    def test_other_constants_make_another_estimator(
        self, estimator: Estimator, operators: Operators, accelerators: Chips
    ) -> None:
        """`with_constants` leaves the original as it was."""
        before = estimate_fresh(estimator, operators, accelerators)
        changed = load_constants().with_options({"vector_cycles": "doubled"})
        estimate_fresh(estimator.with_constants(changed), operators, accelerators)
        assert _same(estimate_fresh(estimator, operators, accelerators), before)

    def test_pickles(self, estimator: Estimator, operators: Operators, accelerators: Chips) -> None:
        """A copy through pickle gives the same figures."""
        twin = pickle.loads(pickle.dumps(estimator))
        assert _same(estimate_fresh(estimator, operators, accelerators), estimate_fresh(twin, operators, accelerators))

    def test_same_in_a_spawned_process(self, estimator: Estimator, operators: Operators) -> None:
        """Nothing depends on this process."""
        chips = random_accelerators(0, count=4)
        here = estimate_fresh(estimator, operators, chips)
        assert _same(here, in_spawned_process(estimate_fresh, estimator, operators, chips))

    def test_import_is_cheap(self, estimator: Estimator) -> None:
        """Importing its module pulls in nothing heavy."""
        assert_imports_cheaply(estimator, "numba")
