"""Pipelines of blocks that stand beside one another: equal to pricing every partition into stages that do not wait."""

from dataclasses import dataclass, fields, replace
from itertools import pairwise, product
from pathlib import Path

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
from phaze_opt.graph.any_model import load_any_model
from phaze_opt.graph.operator import ShardingOptions
from phaze_opt.graph.program import Program, Tape, TensorRole
from phaze_opt.graph.traced import folding, layered_model
from phaze_opt.hardware.network import Network, NetworkDimension, Topology
from phaze_opt.objective.plan_options import cut_places
from phaze_opt.objective.scenario import make_scenario
from phaze_opt.objective.scenario_options import ScenarioOptions
from phaze_opt.plan.optimum import optimal_plan
from phaze_opt.plan.plan_search import Machine, step_memory
from phaze_opt.report.plans import describe_plan
from phaze_opt.workload.branches import Branches, down_sets, narrowest_order, order_of, prefixes
from phaze_opt.workload.chain import ChainCut, CutPlaces, cut_branches
from phaze_opt.workload.config import load_model
from phaze_opt.workload.plan import ParallelPlan, PlanChoices, Recompute
from phaze_opt.workload.plan_columns import PlanColumns
from phaze_opt.workload.software import IDEAL_STACK, TrainingStack
from phaze_opt.workload.training import AttentionForm, TrainingSpec

NETWORK = Network(
    "nodes", (NetworkDimension(Topology.SWITCH, 4, 100e9, 1e-6), NetworkDimension(Topology.SWITCH, 4, 10e9, 5e-6))
)
TRAINING = TrainingSpec(micro_batch=1, sequence_length=64, global_batch=16)
WIDTH = 64
TENSOR_BYTES = 2 * 64 * WIDTH
TRACED = Path(__file__).parents[1] / "traced_models"
STUDIES = Path(__file__).parents[2] / "studies" / "models"
NAMES = [each.name for each in fields(StageLoads)]


@dataclass(frozen=True)
class Dag(VisionLike):
    """Blocks of products and a ReLU that keeps its output; a block has as many products as ``products`` says."""

    name: str = "dag"
    branches: Branches = Branches(((), ()), ((), ()))
    products: tuple[int, ...] = ()

    @property
    def keys(self) -> tuple[tuple[int, ...], ...]:
        """Of every block its products, what it reads and makes, and its place if that is the first or the last."""
        last = len(self.products) - 1
        of_blocks = zip(self.products, self.branches.reads, self.branches.makes, strict=True)
        return tuple(
            (products, len(reads), len(makes), place if place in (0, last) else 1)
            for place, (products, reads, makes) in enumerate(of_blocks)
        )

    @property
    def blocks(self) -> tuple[int, ...]:
        """Kind of every block."""
        kinds = list(dict.fromkeys(self.keys))
        return tuple(map(kinds.index, self.keys))

    @property
    def cut(self) -> ChainCut:
        return cut_branches(self.blocks, self.branches)

    def sharding_obstacle(self, tensor_parallel: int, options: ShardingOptions) -> str | None:
        return None if tensor_parallel == 1 else f"{self.name} runs on one device"

    def record_layers(
        self, training: TrainingSpec, *, tensor_parallel: int, options: ShardingOptions
    ) -> tuple[Program, ...]:
        rows = training.micro_batch * training.sequence_length
        kinds = dict.fromkeys(self.keys)
        return tuple(self._record(f"kind{number}", *key[:-1], rows) for number, key in enumerate(kinds))

    def _record(self, name: str, products: int, num_reads: int, num_makes: int, rows: int) -> Program:
        """A product for each tensor read, their sum, more products, and a ReLU for each tensor made; or the loss."""
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
        outputs, sent = (*makes, *gradients), sum(each.num_bytes for each in makes)
        taken = replace(reads[0], name="inputs", elements=max(1, num_reads) * rows * WIDTH)
        read = tuple(reads[:num_reads])
        return Program(name, tape.nodes, taken, outputs, sent, tape.num_parameters, 0, reads=read, makes=makes)


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
    "equal towers": dag([[], [0], [1], [0], [3], [2, 4]], [1, 1, 1, 1, 1, 0], [1, 1, 1, 1, 1, 1]),
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


@pytest.mark.parametrize(
    ("name", "pipeline", "zero", "software"),
    [
        pytest.param(name, *case, marks=pytest.mark.slow if case[0] == 3 and (place + case[2]) % 2 else ())
        for place, name in enumerate(SHAPES)
        for case in [(2, 3, 0), (3, 0, 1), (3, 2, 2)]
    ],
)
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


@given(model=drawn())
@settings(max_examples=30, deadline=None)
def test_down_sets_are_all_sets_that_hold_what_their_units_read(model):
    branches = model.branches
    edges, sets = unit_edges(branches), range(1 << branches.num_units)
    expected = {each for each in sets if all(each >> one & 1 or not each >> two & 1 for one, two in edges)}
    found = down_sets(branches)
    assert set(found) == expected
    assert len(found) == len(expected)
    assert all(one.bit_count() <= two.bit_count() for one, two in pairwise(found))
    assert set(prefixes(branches)) <= expected
    assert down_sets(branches, len(expected) - 1) == ()
    order = narrowest_order(branches)
    assert order_of(prefixes(branches.in_order(order))) == tuple(range(len(order))), "an order of the units"


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("recompute", [Recompute.NONE, Recompute.FULL])
def test_stages_hold_every_tensor_once(name, recompute):
    """Counted one by one, for every partition into three stages: what blocks read, make and need inside."""
    model = SHAPES[name]
    reads, makes, last = model.branches.reads, model.branches.makes, len(model.products) - 1

    def kept(block: int) -> set[object]:
        if recompute is Recompute.FULL and 0 < block < last:
            return {*(reads[block] or [("data", block)])}
        # Every product keeps its input; the loss keeps logits. A block that reads nothing keeps data.
        inside = {("inside", block, number) for number in range(model.products[block] + (block == last))}
        return {*reads[block], *makes[block], *inside, *({("data", block)} if not reads[block] else set())}

    compiler = StepCompiler()
    for cuts, order in all_partitions(model.branches, 3):
        plan = ParallelPlan(pipeline=3, blocks=cuts, unit_order=order, recompute=recompute)
        step = compiler.compile(model, TRAINING, plan, stack=IDEAL_STACK)
        ends = np.cumsum((0, *cuts)).tolist()
        for stage, memory in enumerate(step_memory(step).stages):
            units = [1 + unit for unit in order[ends[stage] : ends[stage + 1]]]
            blocks = [*[0] * (stage == 0), *units, *[last] * (stage == 2)]
            tensors = len(set().union(*map(kept, blocks)))
            own = [step.graph.layers[model.blocks[unit]].working_set_bytes for unit in units]
            again = max(own, default=0.0) if recompute is Recompute.FULL else 0.0
            assert memory.activation_bytes == pytest.approx((3 - stage) * tensors * TENSOR_BYTES + again, rel=1e-12)


@pytest.mark.parametrize("name", SHAPES)
def test_every_tensor_that_is_read_behind_a_border_crosses_it_once(name):
    model = SHAPES[name]
    step = compile_step(model, TRAINING, ParallelPlan(), stack=IDEAL_STACK)
    sets = down_sets(model.branches)
    for held, sent in zip(sets, border_bytes(step, sets), strict=True):
        inside = [place == 0 or bool(held >> place - 1 & 1) for place in range(len(model.products) - 1)] + [False]
        made = {each for own, makes in zip(inside, model.branches.makes, strict=True) if own for each in makes}
        read = {each for own, reads in zip(inside, model.branches.reads, strict=True) if not own for each in reads}
        assert sent == TENSOR_BYTES * len(made & read)


def test_a_chain_has_the_down_sets_of_its_order_alone():
    model = dag([[], [0], [1], [2], [3]], [1, 1, 1, 1, 0], [1, 1, 2, 1, 1])
    assert down_sets(model.branches) == prefixes(model.branches)


@pytest.mark.parametrize("name", ["resnet18", "t5-large", "vgg16", "llama-2-7b"])
def test_models_without_towers_are_cut_as_between_layers(name):
    model = load_any_model(str(TRACED / f"{name}.json"))
    one, other = model.cut_by_layers(), model.cut_by_branches()
    assert one.cut == other.cut
    assert one.layered.folded == other.layered.folded


@pytest.mark.parametrize("path", [TRACED / "gnmt4.json", STUDIES / "inception_v3.json"])
def test_towers_do_the_work_of_the_model(path):
    """Parameters, products and what one stage keeps do not depend on where the model is cut."""
    model = load_any_model(str(path))
    towers, length = model.cut_by_branches(), model.own_sequence_length
    assert towers.cut.branches is not None
    assert towers.num_units > model.cut_by_layers().num_units
    assert towers.model_flops(length) == model.model_flops(length)
    training = replace(TRAINING, sequence_length=length)
    one, other = (
        step_memory(compile_step(each, training, ParallelPlan(), stack=IDEAL_STACK)).stages[0]
        for each in (model.cut_by_layers(), towers)
    )
    assert other.weight_bytes == one.weight_bytes
    assert other.activation_bytes == pytest.approx(one.activation_bytes, rel=0.02)


def test_too_many_ways_are_cut_in_one_order_and_it_is_said(monkeypatch):
    monkeypatch.setattr(folding, "down_sets", lambda _: ())
    monkeypatch.setattr(layered_model, "down_sets", lambda *_: ())
    layered_model.layered_model_of.cache_clear()
    model = load_any_model(str(TRACED / "gnmt4.json")).cut_by_branches()
    try:
        assert any("more than 256 ways" in note for note in model.notes)
        assert model.cut.branches is not None
    finally:
        layered_model.layered_model_of.cache_clear()


def test_orders_that_units_cannot_have_are_refused():
    model, plan = SHAPES["towers"], ParallelPlan(pipeline=2, blocks=(2, 2), unit_order=(1, 0, 2, 3))
    with pytest.raises(InputError) as raised:
        compile_step(model, TRAINING, plan, stack=IDEAL_STACK)
    assert raised.value.key == "unit_order"
    with pytest.raises(InputError) as raised:
        ParallelPlan(pipeline=2, blocks=(2, 2), unit_order=(0, 1))
    assert raised.value.key == "unit_order"
    with pytest.raises(InputError) as raised:
        load_model("tiny").cut.in_order((1, 0, 2, 3))
    assert raised.value.key == "unit_order"


def test_plans_with_an_order_come_back_from_columns():
    plans = [ParallelPlan(pipeline=2, blocks=(2, 2), unit_order=(1, 0, 2, 3)), ParallelPlan(pipeline=2)]
    assert list(PlanColumns.of(plans)) == plans
    assert describe_plan(plans[0]).endswith("blocks a stage 2, in the order 1, 0, 2 to 3")


def test_searches_keep_a_chain():
    with pytest.raises(InputError) as raised:
        make_scenario("bert-large", cuts="branches", devices=8)
    assert raised.value.source == "--cuts"


def test_designs_keep_a_chain_and_machines_need_not():
    branches = ScenarioOptions(cuts="branches")
    with pytest.raises(InputError) as raised:
        cut_places(branches, is_design=True)
    assert raised.value.source == "--cuts"
    assert cut_places(branches, is_design=False) is CutPlaces.BRANCHES
