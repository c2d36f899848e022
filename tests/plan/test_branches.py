"""Pipelines of blocks that stand beside one another: equal to pricing every partition into stages that do not wait."""

from dataclasses import dataclass, fields, replace
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kits.mixed_models import VisionLike
from kits.steps import serial_times

from phaze_opt.cost.compiled_step import CompiledStep, StepCompiler, compile_step
from phaze_opt.cost.price_step import LayerTimes, StackColumns, batch_loads, price_step
from phaze_opt.cost.step_table import build_batch
from phaze_opt.cost.step_time import StageLoads, StepRules, step_times
from phaze_opt.cost.step_traffic import border_bytes
from phaze_opt.errors import InputError
from phaze_opt.graph import operations as ops
from phaze_opt.graph.program import Program, Tape, TensorRole
from phaze_opt.graph.sharding_options import ShardingOptions
from phaze_opt.hardware.network import Network, NetworkDimension, Topology
from phaze_opt.plan.optimum import optimal_plan
from phaze_opt.plan.plan_search import Machine, step_memory
from phaze_opt.workload.branches import Branches, down_sets, narrowest_order, order_of, prefixes
from phaze_opt.workload.chain import ChainCut, cut_branches
from phaze_opt.workload.config import load_model
from phaze_opt.workload.plan import ParallelPlan, PlanChoices, Recompute
from phaze_opt.workload.software import IDEAL_STACK, TrainingStack
from phaze_opt.workload.training import AttentionForm, TrainingSpec

NETWORK = Network(
    "nodes", (NetworkDimension(Topology.SWITCH, 4, 100e9, 1e-6), NetworkDimension(Topology.SWITCH, 4, 10e9, 5e-6))
)
TRAINING = TrainingSpec(micro_batch=1, sequence_length=64, global_batch=16)
WIDTH = 64
TENSOR_BYTES = 2 * 64 * WIDTH
NAMES = [each.name for each in fields(StageLoads)]


@dataclass(frozen=True)
class Dag(VisionLike):
    """Blocks of products and a ReLU that keeps its output; a block has as many products as ``products`` says."""

    name: str = "dag"
    branches: Branches = Branches(((), ()), ((), ()))
    products: tuple[int, ...] = ()

    @property
    def kinds(self) -> dict[tuple[int, ...], int]:
        places = range(len(self.products))
        ends = [(place if place in (0, len(places) - 1) else 0) for place in places]
        keys = zip(ends, self.products, map(len, self.branches.reads), map(len, self.branches.makes), strict=True)
        return {key: number for number, key in enumerate(dict.fromkeys((place == 0, *key) for place, key in enumerate(keys)))}

    @property
    def blocks(self) -> tuple[int, ...]:
        last, kinds = len(self.products) - 1, self.kinds
        return tuple(
            kinds[place == 0, place if place == last else 0, products, len(reads), len(makes)]
            for place, (products, reads, makes) in enumerate(
                zip(self.products, self.branches.reads, self.branches.makes, strict=True)
            )
        )

    @property
    def cut(self) -> ChainCut:
        return cut_branches(self.blocks, self.branches)

    def sharding_obstacle(self, tensor_parallel: int, options: ShardingOptions) -> str | None:
        return None if tensor_parallel == 1 else f"{self.name} runs on one device"

    def record_layers(
        self, training: TrainingSpec, *, tensor_parallel: int, options: ShardingOptions
    ) -> tuple[Program, ...]:
        rows = training.micro_batch * training.sequence_length
        return tuple(self._record(kind, rows) for kind in self.kinds)

    def _record(self, key: tuple[int, ...], rows: int) -> Program:
        """A product for each tensor read, their sum, more products, and a ReLU for each tensor made; or the loss."""
        _, _, products, num_reads, num_makes = key
        tape = Tape(dtype_bytes=2)
        reads = [tape.tensor(f"read{number}", rows * WIDTH) for number in range(max(1, num_reads))]
        sizes = {"rows": rows, "inner": WIDTH, "width": WIDTH}
        terms = [ops.linear(tape, f"in{number}", read, **sizes) for number, read in enumerate(reads)]
        middle = terms[0]
        for number, term in enumerate(terms[1:]):
            middle = ops.add(tape, f"sum{number}", middle, term)
        for number in range(products):
            middle = ops.linear(tape, f"linear{number}", middle, **sizes)
        makes = tuple(ops.elementwise(tape, f"relu{number}", (middle,), ops.RELU) for number in range(num_makes))
        for each in makes:
            tape.pass_gradient(each, replace(each, name=f"d_{each.name}.given", role=TensorRole.GRADIENT))
        if not makes:
            ops.loss(tape, "loss", middle)
        tape.run_backward(None)
        gradients = tuple(tape.gradient(each) for each in reads)
        own = f"kind{self.kinds[key]}"
        outputs, sent = (*makes, *gradients), sum(each.num_bytes for each in makes)
        taken = replace(reads[0], name="inputs", elements=max(1, num_reads) * rows * WIDTH)
        read = tuple(reads[:num_reads])
        return Program(own, tape.nodes, taken, outputs, sent, tape.num_parameters, 0, reads=read, makes=makes)


def dag(reads: list[list[int]], makes: list[int], products: list[int]) -> Dag:
    """A model of blocks that read numbered tensors and make so many of the next numbers."""
    stops = np.cumsum(makes).tolist()
    made = tuple(tuple(range(stop - own, stop)) for stop, own in zip(stops, makes, strict=True))
    branches = Branches(tuple(map(tuple, reads)), made)
    return Dag(load_model("tiny"), 64, (0, 1, 2), branches=branches, products=tuple(products))


SHAPES = {
    "towers": dag([[], [0], [1], [], [3], [2, 4]], [1, 1, 1, 1, 1, 0], [1, 3, 1, 2, 2, 1]),
    "encoder and decoder": dag([[], [0], [1], [], [3, 2], [4, 2], [5]], [1, 1, 1, 1, 1, 1, 0], [1, 2, 1, 1, 2, 2, 1]),
    "skips": dag([[], [0], [1], [2, 1], [3, 0], [4]], [1, 1, 1, 1, 1, 0], [0, 2, 1, 1, 2, 1]),
    "inception": dag([[], [0], [0], [0], [1, 2, 3], [4]], [1, 1, 1, 1, 1, 0], [1, 1, 3, 2, 0, 1]),
    "two outputs": dag([[], [0], [1], [0], [2, 3], [4, 5]], [1, 2, 1, 1, 1, 0], [1, 1, 2, 3, 1, 0]),
}


@st.composite
def drawn(draw) -> Dag:
    """Four units at most that read one or two tensors each; the back reads what nobody else does."""
    reads, makes, num_made = [[]], [draw(st.integers(1, 2))], 0
    for _ in range(draw(st.integers(3, 4))):
        num_made = sum(makes)
        reads.append(draw(st.lists(st.integers(0, num_made - 1), min_size=0, max_size=2, unique=True)))
        makes.append(draw(st.integers(1, 2)))
    taken = {each for own in reads for each in own}
    reads.append([each for each in range(sum(makes)) if each not in taken])
    products = [draw(st.integers(0, 3)) for _ in reads]
    products[1:3] = [1, 3]
    return dag(reads, [*makes, 0], products)


class MadeUpClock:
    """Rates that need not be true."""

    def times(self, step: CompiledStep) -> LayerTimes:
        return serial_times(step, np.array([3e-13 * each.macs + 5e-12 * each.traffic_bytes for each in step.operators]))


def machine_of(memory_bytes: float, **software) -> Machine:
    defaults = {"attention": AttentionForm.UNFUSED, "k_ramp": 0.0, "exposed_traffic": 0.0}
    return Machine(MadeUpClock(), memory_bytes, NETWORK, TrainingStack(**{**defaults, **software}))


def unit_edges(branches: Branches) -> list[tuple[int, int]]:
    """Pairs of units the second of which reads the first."""
    makers = {tensor: block for block, made in enumerate(branches.makes) for tensor in made}
    every = [(makers[tensor] - 1, block - 1) for block, read in enumerate(branches.reads) for tensor in read]
    return [(one, two) for one, two in every if one >= 0 and two < branches.num_units]


def all_partitions(branches: Branches, stages: int) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Every way to give units to stages that none reads a later one: units of stages, and their order."""
    edges, found = unit_edges(branches), []
    for stage_of in product(range(stages), repeat=branches.num_units):
        held = [[unit for unit, own in enumerate(stage_of) if own == stage] for stage in range(stages)]
        if all(stage_of[one] <= stage_of[two] for one, two in edges) and all(held[1:-1]):
            found.append((tuple(map(len, held)), tuple(unit for units in held for unit in units)))
    return found


def price_all(model: Dag, machine: Machine, plan: ParallelPlan, recomputes) -> tuple[np.ndarray, np.ndarray]:
    """Times and peaks of memory of every partition and recomputation of one set of degrees."""
    compiler, chosen, peaks = StepCompiler(), [], []
    for cuts, order in all_partitions(model.branches, plan.pipeline):
        plans = [replace(plan, blocks=cuts, unit_order=order, recompute=each) for each in recomputes]
        steps = [compiler.compile(model, TRAINING, each, stack=machine.stack) for each in plans]
        times = [machine.clock.times(step) for step in steps]
        arrays = (np.array([getattr(each, name) for each in times]) for name in ("classes_s", "attention_s"))
        batch = build_batch(steps, [machine.network] * len(steps))
        loads, rules = batch_loads(batch, *arrays, StackColumns([step.stack for step in steps]))
        memory = np.array([[stage.total_bytes for stage in step_memory(step).stages] for step in steps])
        stages = np.arange(plan.pipeline)
        for choice in product(range(len(recomputes)), repeat=plan.pipeline):
            chosen.append({name: getattr(loads, name)[list(choice), stages] for name in NAMES})
            peaks.append(memory[list(choice), stages].max())
    together = StageLoads(**{name: np.array([each[name] for each in chosen]) for name in NAMES})
    many = StepRules(**{each.name: np.repeat(getattr(rules, each.name)[:1], len(peaks)) for each in fields(StepRules)})
    return step_times(together, many).seconds, np.array(peaks)


def compare_with_every_partition(model: Dag, pipeline: int, zero: int, software, quantile: float) -> None:
    choices = PlanChoices((1,), (pipeline,), data=(2,), micro_batch=(1,), zero=(zero,))
    choices = replace(choices, recompute=(Recompute.NONE, Recompute.FULL))
    plan = ParallelPlan(pipeline=pipeline, data=2, zero=zero)
    seconds, peaks = price_all(model, machine_of(1e15, **software), plan, choices.recompute)
    for capacity in (float(np.quantile(peaks, quantile, method="lower")), peaks.min() * 0.999):
        machine, fitting = machine_of(capacity, **software), seconds[peaks <= capacity]
        optimum = optimal_plan(model, TRAINING, num_devices=2 * pipeline, choices=choices, machine=machine)
        if not len(fitting):
            assert optimum.best is None
            assert optimum.least_bytes == pytest.approx(peaks.min())
            continue
        assert optimum.best.time.seconds == pytest.approx(fitting.min(), rel=1e-9)
        assert optimum.best.memory.fits(capacity)
        step = compile_step(model, TRAINING, optimum.best.plan, stack=machine.stack)
        again = price_step(step, machine.clock.times(step), NETWORK)
        assert optimum.best.time.seconds == pytest.approx(again.seconds, rel=1e-12), "as if priced alone"


SOFTWARE = [
    {},
    {"data_overlap": 0.7, "parameter_overlap": 0.5, "transfer_overlap": 0.3, "step_overhead_s": 1e-3},
    {"kept_operators": ("linear0",), "prefetches_forward": True, "kept_share": 0.5, "host_s_per_operator": 1e-5},
]


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize(("pipeline", "zero", "software"), [(2, 3, 0), (3, 0, 1), (3, 2, 2)])
def test_equals_pricing_every_partition(name, pipeline, zero, software):
    compare_with_every_partition(SHAPES[name], pipeline, zero, SOFTWARE[software], quantile=0.3)


@settings(max_examples=8, deadline=None)
@given(
    model=drawn(),
    pipeline=st.sampled_from([2, 3, 4]),
    zero=st.integers(0, 3),
    software=st.sampled_from(SOFTWARE),
    quantile=st.sampled_from([0.02, 0.3, 1.0]),
)
def test_drawn_blocks_are_cut_at_the_best_of_all_partitions(model, pipeline, zero, software, quantile):
    compare_with_every_partition(model, pipeline, zero, software, quantile)
