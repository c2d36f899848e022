"""Steps of models whose layers differ: as placements of the same chain, and as what equal layers come to."""

from dataclasses import fields, replace
from itertools import accumulate
from math import prod
from pathlib import Path

import numpy as np
import pytest
from kits.mixed_models import HEAD, OWN, SMALLER, TWIN, ReluChain, VisionLike, mixed_model, understand_mixed_models
from kits.steps import serial_times

from phaze_opt.cost.compiled_step import StepCompiler, compile_step
from phaze_opt.cost.price_step import price_stages, price_step
from phaze_opt.cost.stacks import load_stack
from phaze_opt.cost.step_traffic import border_bytes
from phaze_opt.errors import InputError
from phaze_opt.estimate.collectives import collective_s, group_dimensions
from phaze_opt.graph.any_model import load_any_model
from phaze_opt.graph.build import build_model_graph
from phaze_opt.graph.layer import shared_bytes
from phaze_opt.graph.model_graph import ModelGraph
from phaze_opt.graph.operator import OperatorGraph
from phaze_opt.graph.sharding import model_flops, sharding_obstacle
from phaze_opt.hardware.fitted import load_fitted
from phaze_opt.hardware.network import Cluster
from phaze_opt.hardware.networks import load_network
from phaze_opt.placement.problem import LayerCosts, PlacementProblem, RecomputePolicy
from phaze_opt.placement.solve import evaluate_placement
from phaze_opt.plan.plan_search import step_memory
from phaze_opt.plan.plan_space import list_plans
from phaze_opt.workload.config import load_model
from phaze_opt.workload.plan import ParallelPlan, PlanChoices, Recompute
from phaze_opt.workload.software import IDEAL_STACK
from phaze_opt.workload.training import TrainingSpec
from phaze_opt.workload.workload import Workload, sequence_length_of

NETWORK = load_network("two-level", num_devices=64)
TRACED = Path(__file__).parents[1] / "traced_models"
TRAINING = TrainingSpec(1, 256, 32, is_sequence_parallel=False)
CHAIN = (0, SMALLER, OWN, *(OWN, SMALLER) * 4, HEAD)
"""Front of the embedding and two layers, four units of an own and a smaller block, and the head."""


@pytest.fixture(autouse=True)
def _understood(monkeypatch):
    understand_mixed_models(monkeypatch)


def operator_seconds(operators):
    """Any times will do: here FLOPs and bytes at made-up rates."""
    return np.array([2e-14 * each.macs + 5e-13 * each.traffic_bytes for each in operators])


def priced(step):
    return price_step(step, serial_times(step, operator_seconds(step.operators)), NETWORK)


def layer_seconds(graph: OperatorGraph, t: int) -> float:
    group = group_dimensions(NETWORK, size=t, stride=1)
    busy = operator_seconds([each for each in graph.operators if each.collective is None]).sum()
    sent = [each.collective for each in graph.operators if each.collective and not each.collective.is_overlapped]
    return busy + sum(collective_s(each.kind, each.payload_bytes, group) for each in sent)


def layer_costs(graph: ModelGraph, t: int, recompute: Recompute) -> LayerCosts:
    """The chain, layer by layer; all but the first and the last run again."""
    layers = [graph.layers[kind] for kind in graph.chain]
    seconds = np.array([[layer_seconds(phase, t) for phase in layer.phases] for layer in layers])
    if recompute is Recompute.FULL:
        seconds[1:-1, 1] += seconds[1:-1, 0]

    def column(name: str) -> np.ndarray:
        return np.array([getattr(layer, name) for layer in layers], float)

    sizes = (column(name) for name in ("stash_bytes", "input_bytes", "working_set_bytes", "output_bytes"))
    return LayerCosts(t, *seconds.T.copy(), 16 * column("num_parameters"), 2 * column("num_parameters"), *sizes)


@pytest.mark.parametrize("recompute", [Recompute.NONE, Recompute.FULL])
@pytest.mark.parametrize(("t", "p", "d"), [(1, 1, 1), (1, 1, 8), (2, 4, 2), (1, 2, 4), (4, 4, 1)])
def test_a_mixed_chain_takes_what_placement_says(t, p, d, recompute):
    """Placement knows nothing of parts: it adds up layers between the cuts. Its model has an untied head."""
    model = mixed_model(CHAIN, is_tied=False)
    graph = build_model_graph(model, TRAINING, tensor_parallel=t)
    problem = PlacementProblem(
        (layer_costs(graph, t, recompute),), Cluster(64, NETWORK), 1e18, 32, 1, RecomputePolicy.NEVER
    )
    cuts = [3 + 8 // p * stage for stage in range(1, p)]
    placed = evaluate_placement(problem, tensor_parallel=t, data_parallel=d, cuts=cuts)
    plan = ParallelPlan(tensor=t, pipeline=p, data=d, recompute=recompute)
    step = compile_step(model, TRAINING, plan, stack=IDEAL_STACK)
    assert step.blocks == (4 // p,) * p
    stages = price_stages(step, serial_times(step, operator_seconds(step.operators)), NETWORK)
    expected = [stage.time_s for stage in placed.stages]
    assert stages.micro_batch_s[0].tolist() == pytest.approx(expected, rel=1e-9)
    assert stages.sync_s[0].max() == pytest.approx(placed.sync_s, rel=1e-9)
    # A pipeline waits less than placement has it where stages differ, and never more.
    assert priced(step).seconds <= placed.batch_time_s * (1 + 1e-12)


UNEVEN = (0, SMALLER, OWN, TWIN, SMALLER, SMALLER, OWN, HEAD)
"""Six layers between the ends, of which no two that follow one another repeat often."""


@pytest.mark.parametrize("recompute", [Recompute.NONE, Recompute.FULL])
@pytest.mark.parametrize("blocks", [(2, 3, 1), (1, 1, 4), (0, 6, 0), (3, 2, 1), (0, 1, 5), (5, 1, 0)])
@pytest.mark.parametrize("t", [1, 2])
def test_cuts_between_layers_take_what_placement_says(t, blocks, recompute):
    """The same where stages are any runs of layers, and what crosses a border is what the layer before it sends."""
    model = mixed_model(UNEVEN, is_tied=False).transformer.cut_by_layers()
    assert (model.num_units, len(model.cut.units)) == (6, 5)
    graph = build_model_graph(model, TRAINING, tensor_parallel=t)
    problem = PlacementProblem(
        (layer_costs(graph, t, recompute),), Cluster(64, NETWORK), 1e18, 32, 1, RecomputePolicy.NEVER
    )
    cuts = [1 + sum(blocks[:stage]) for stage in (1, 2)]
    placed = evaluate_placement(problem, tensor_parallel=t, data_parallel=4, cuts=cuts)
    plan = ParallelPlan(tensor=t, pipeline=3, data=4, recompute=recompute, blocks=blocks)
    step = compile_step(model, TRAINING, plan, stack=IDEAL_STACK)
    stages = price_stages(step, serial_times(step, operator_seconds(step.operators)), NETWORK)
    expected = [stage.time_s for stage in placed.stages]
    assert stages.micro_batch_s[0].tolist() == pytest.approx(expected, rel=1e-9)
    assert stages.sync_s[0].max() == pytest.approx(placed.sync_s, rel=1e-9)
    layers, bounds = [step.graph.layers[kind] for kind in step.graph.chain], (0, *cuts, 8)
    held = [
        2 * sum(layer.num_parameters for layer in layers[one:other])
        for one, other in zip(bounds, bounds[1:], strict=False)
    ]
    assert [stage.weight_bytes for stage in step_memory(step).stages] == held


@pytest.mark.parametrize("name", ["resnet18", "gnmt4", "t5-large", "vgg16"])
def test_every_tensor_that_crosses_a_border_is_sent(name):
    """Counted from the operations: all that is made before a border, and read behind it."""
    model = load_any_model(str(TRACED / f"{name}.json"))
    cut = model.cut_by_layers()
    assert cut.cut.num_units == len(cut.cut.chain) - 2 > cut.cut.order.count(0)
    training = replace(TRAINING, sequence_length=sequence_length_of(cut, None), micro_batch=1)
    step = compile_step(cut, training, ParallelPlan(), stack=IDEAL_STACK)
    layered, values = cut.layered, {"b": 1, "s": training.sequence_length}
    ends = list(accumulate(len(layered.folded.layers[kind].nodes) for kind in layered.folded.chain))
    nodes = layered.graph.nodes
    assert ends[-1] == len(nodes)
    for border, sent in zip(ends[:-1], border_bytes(step).tolist(), strict=True):
        made = {name for node in nodes[:border] for name in node.outputs}
        read = {name for node in nodes[border:] for name in node.tensor_ids()}
        crossing = [layered.graph.tensors[name] for name in made & read]
        assert sent == 2 * sum(prod(size.evaluate(values) for size in tensor.shape) for tensor in crossing)


@pytest.mark.parametrize("software", ["ideal", "megatron-core", "maxtext-offload", "llm-foundry"])
@pytest.mark.parametrize(
    ("plan", "base"),
    [
        (ParallelPlan(data=4, zero=3), "tiny"),
        (ParallelPlan(tensor=2, pipeline=3, data=2, zero=1, recompute=Recompute.SELECTIVE), "tiny"),
        (ParallelPlan(pipeline=3, data=2, zero=2, recompute=Recompute.FULL, interleave=1), "tiny"),
        (ParallelPlan(tensor=2, data=4, expert=4, zero=3), "mixtral-8x7b"),
    ],
)
def test_units_of_two_equal_layers_are_two_units(plan, base, software):
    """Six own blocks, and three pairs of an own block and its twin: same cuts, same step, same memory."""
    small = {"vocab_size": 8192} if base == "tiny" else {"vocab_size": 4096, "hidden_size": 512, "num_heads": 8}
    small |= {} if base == "tiny" else {"num_kv_heads": 8, "head_size": 64, "ffn_size": 512, "embedding_size": 512}
    stack = load_stack(software, load_fitted())
    models = (mixed_model((0, *(OWN,) * 6, 2), base, **small), mixed_model((0, *(OWN, TWIN) * 3, 2), base, **small))
    single, pair = (compile_step(model, TRAINING, plan, stack=stack) for model in models)
    assert single.blocks == tuple(2 * each for each in pair.blocks)
    for part in fields(priced(single)):
        one, other = getattr(priced(single), part.name), getattr(priced(pair), part.name)
        assert one == pytest.approx(other, rel=1e-12, abs=1e-15), part.name
    memories = [[stage.total_bytes for stage in step_memory(step).stages] for step in (single, pair)]
    assert memories[0] == pytest.approx(memories[1], rel=1e-12)


def test_memory_of_parts_is_that_of_their_layers():
    """One stage without recomputation: state and stash of every layer of the chain, and nothing else."""
    model = mixed_model(CHAIN, is_tied=False)
    step = compile_step(model, TRAINING, ParallelPlan(), stack=IDEAL_STACK)
    layers = [step.graph.layers[kind] for kind in step.graph.chain]
    (stage,) = step_memory(step).stages
    assert stage.weight_bytes == 2 * sum(layer.num_parameters for layer in layers)
    assert stage.activation_bytes == pytest.approx(sum(layer.stash_bytes for layer in layers), rel=1e-12)
    full = compile_step(model, TRAINING, ParallelPlan(recompute=Recompute.FULL), stack=IDEAL_STACK)
    (stage,) = step_memory(full).stages
    anew = max(layer.working_set_bytes for layer in layers[1:-1])
    kept = sum(layer.input_bytes for layer in layers[1:-1]) + layers[0].stash_bytes + layers[-1].stash_bytes
    assert stage.activation_bytes == pytest.approx(kept + anew, rel=1e-12)


def test_boundaries_carry_the_output_of_the_last_layer_of_a_unit():
    step = compile_step(mixed_model(CHAIN), TRAINING, ParallelPlan(pipeline=4), stack=IDEAL_STACK)
    assert step.parts[1].graph.output_bytes == step.graph.layers[SMALLER].output_bytes > 0


def test_a_compiler_tells_models_of_other_parts_apart():
    compiler, plan = StepCompiler(), ParallelPlan()
    models = [mixed_model(chain) for chain in ((0, 1, 1, 1, 2), (0, 1, 1, 2), (0, *(OWN, TWIN) * 2, 2), CHAIN)]
    models = [replace(model, num_layers=4) for model in models]
    for model in models:
        known, own = compiler.compile(model, TRAINING, plan, stack=IDEAL_STACK), model.cut.parts
        assert known.graph.cut.parts == own
        assert known.graph.chain == model.cut.chain
        assert priced(known) == priced(compile_step(model, TRAINING, plan, stack=IDEAL_STACK))


VISION = VisionLike(load_model("tiny"), 197, (0, 1, 1, 1, 1, 2))


def test_a_model_may_state_its_own_layers():
    """What is asked of any model is answered, and its graphs and prices are those of the layers it states."""
    model: Workload = VISION
    training = replace(TRAINING, sequence_length=sequence_length_of(model, None))
    assert training.sequence_length == 197
    with pytest.raises(InputError, match="not the 197 patches"):
        sequence_length_of(model, 256)
    assert sharding_obstacle(model, 3) == sharding_obstacle(VISION.spec, 3)
    assert model_flops(model, 197) == model_flops(VISION.spec, 197)
    own = build_model_graph(model, training, tensor_parallel=2)
    assert own.layers == build_model_graph(VISION.spec, training, tensor_parallel=2).layers
    choices = PlanChoices(tensor=(1, 2), zero=(0,), micro_batch=(1,))
    plans = [list(list_plans(each, training, num_devices=4, choices=choices)) for each in (model, VISION.spec)]
    assert plans[0] == plans[1]
    assert plans[0]
    for plan in plans[0]:
        steps = [compile_step(each, training, plan, stack=IDEAL_STACK) for each in (model, VISION.spec)]
        assert priced(steps[0]) == priced(steps[1])


def test_a_model_that_states_nothing_is_a_bug():
    with pytest.raises(TypeError, match="states no layers"):
        model_flops(object(), 1)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "t"),
    [("bert-large", 2), ("gpt2-xl", 1), ("llama-3-8b", 2), ("mixtral-8x7b", 1), ("opt-350m", 2), ("opt-1.3b", 1)],
)
def test_blocks_of_transformers_keep_nothing_twice(name, t):
    """Their blocks end with a residual or a norm, which keep no output: figures of before stand."""
    graph = build_model_graph(load_model(name), TRAINING, tensor_parallel=t)
    assert [layer.kept_output_bytes for layer in graph.layers] == [0.0, 0.0, 0.0]
    assert graph.layers[1].kept_input_bytes > 0.0


RELUS = ReluChain(load_model("tiny"), 64, (0, 1, 2, 1, 2, 1, 2, 1, 2, 3))
TENSOR_BYTES = 64 * 256 * 2
"""Every activation of the chain."""


def kept_tensors(chain: tuple[int, ...]) -> int:
    """Tensors that a run of layers keeps, each once: its input, and what every product and ReLU makes and needs."""
    inside = {0: 1, 1: 2, 2: 1, 3: 1}  # The last layer makes logits, which the loss needs.
    return 1 + sum(inside[kind] for kind in chain)


@pytest.mark.parametrize(
    ("plan", "counts"),
    [
        # Units hold 13 tensors; the ends hold what lies between them and the units themselves.
        (ParallelPlan(), [(kept_tensors((1, 2) * 4), 1, kept_tensors((0,)), kept_tensors((3,)))]),
        (
            ParallelPlan(pipeline=2),
            [(kept_tensors((1, 2) * 2), 2, 2 * kept_tensors((0,)), 0), (kept_tensors((1, 2) * 2), 1, 0, 2)],
        ),
        (
            ParallelPlan(pipeline=2, interleave=2),
            [(kept_tensors((1, 2)), 5, 4 * kept_tensors((0,)), 0), (kept_tensors((1, 2)), 3, 0, 2)],
        ),
    ],
)
def test_what_two_neighbours_keep_is_held_once(plan, counts):
    """Tensors counted one by one: of a chunk of units, as often as chunks are under way, and of the ends."""
    training = replace(TRAINING, sequence_length=64)
    step = compile_step(RELUS, training, plan, stack=IDEAL_STACK)
    for stage, (chunk, flights, front, back) in zip(step_memory(step).stages, counts, strict=True):
        expected = (chunk * flights + front + back) * TENSOR_BYTES
        assert stage.activation_bytes == pytest.approx(expected, rel=1e-12)


def test_recomputed_layers_keep_their_inputs_alone():
    training = replace(TRAINING, sequence_length=64)
    plan = ParallelPlan(recompute=Recompute.FULL)
    step = compile_step(RELUS, training, plan, stack=IDEAL_STACK)
    (stage,) = step_memory(step).stages
    ends = kept_tensors((0,)) + kept_tensors((3,))
    assert stage.activation_bytes == (8 + ends) * TENSOR_BYTES + step.parts[1].graph.working_set_bytes


UNEVEN_RELUS = ReluChain(load_model("tiny"), 64, (0, 1, 2, 2, 1, 1, 2, 3), is_cut_by_layers=True)


@pytest.mark.parametrize("blocks", [(6,), (2, 4), (0, 6), (6, 0), (1, 2, 3), (0, 6, 0), (2, 2, 2)])
def test_stages_of_layers_that_differ_hold_each_tensor_once(blocks):
    """Counted one by one: a stage keeps its input and what its layers keep, as often as micro-batches are under way."""
    plan = ParallelPlan(pipeline=len(blocks), blocks=blocks if len(blocks) > 1 else ())
    step = compile_step(UNEVEN_RELUS, replace(TRAINING, sequence_length=64), plan, stack=IDEAL_STACK)
    ends = [0, *(1 + sum(blocks[: stage + 1]) for stage in range(len(blocks) - 1)), len(step.graph.chain)]
    for stage, memory in enumerate(step_memory(step).stages):
        flights = min(len(blocks) - stage, step.num_micro_batches)
        expected = flights * kept_tensors(step.graph.chain[ends[stage] : ends[stage + 1]])
        assert memory.activation_bytes == pytest.approx(expected * TENSOR_BYTES, rel=1e-12)


@pytest.mark.parametrize("name", ["resnet18", "gnmt4", "t5-large", "vgg16"])
def test_one_stage_holds_what_it_held(name):
    """Cuts between layers change no plan without a pipeline; a table that several layers read counts once."""
    model = load_any_model(str(TRACED / f"{name}.json"))
    training = replace(TRAINING, sequence_length=sequence_length_of(model, None))
    for recompute in Recompute:
        plan = ParallelPlan(data=4, recompute=recompute)
        coarse, fine = (
            compile_step(each, training, plan, stack=IDEAL_STACK) for each in (model, model.cut_by_layers())
        )
        ((one,), (other,)) = (step_memory(step).stages for step in (coarse, fine))
        assert other.weight_bytes == 2 * model.num_parameters
        front, unit, back = (part.graph.layers for part in coarse.parts)
        # Between its front, its units and its back the coarse cut counts twice what both sides keep.
        twice = shared_bytes(front[-1], unit[0]) + shared_bytes(unit[-1], back[0])
        once = one.activation_bytes - twice * (recompute is not Recompute.FULL)
        assert other.activation_bytes == pytest.approx(once, rel=1e-12)
        assert priced(fine).seconds == pytest.approx(priced(coarse).seconds, rel=1e-3)
