"""Steps of models with experts: loads, launches, exchanges and schedules, each against a count by hand."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from kits.steps import serial_times

from phaze_opt.cost.compiled_step import BLOCK, CompiledStep, compile_step
from phaze_opt.cost.device_seconds import SerialSteps, device_seconds, roles_of
from phaze_opt.cost.price_step import price_step
from phaze_opt.cost.step_time import StepTime
from phaze_opt.cost.step_traffic import group_members, once_a_node
from phaze_opt.errors import InputError
from phaze_opt.estimate.operator_table import compile_operators
from phaze_opt.graph.mlp import is_expert_product, num_launches
from phaze_opt.graph.operator import CollectiveGroup
from phaze_opt.hardware.device import ComputePath
from phaze_opt.hardware.device_catalogue import load_device
from phaze_opt.hardware.fitted import FittedConstants
from phaze_opt.hardware.network import Network, NetworkDimension, Topology
from phaze_opt.plan.plan_search import step_memory
from phaze_opt.workload.block_spec import ExpertsSpec, MlpSpec
from phaze_opt.workload.config import load_model
from phaze_opt.workload.plan import ParallelPlan
from phaze_opt.workload.software import TrainingStack
from phaze_opt.workload.training import TrainingSpec

MIXTRAL = replace(load_model("mixtral-8x7b"), num_layers=4)
NODES = Network(
    "nodes", (NetworkDimension(Topology.SWITCH, 2, 3e11, 0.0), NetworkDimension(Topology.SWITCH, 64, 25e9, 0.0))
)
SHARED = ParallelPlan(data=8, expert=4, zero=1)
PIPED = ParallelPlan(pipeline=4, data=4, expert=4, zero=1)
PLAIN = TrainingStack(name="plain", k_ramp=0.0, exposed_traffic=0.0)


def compiled(plan: ParallelPlan = SHARED, *, stack: TrainingStack = PLAIN, **load: float) -> CompiledStep:
    return compile_step(MIXTRAL, TrainingSpec(1, 1000, 16, **load), plan, stack=stack)


def priced(step: CompiledStep, *, speed: float = 1.0) -> StepTime:
    return price_step(step, serial_times(step, made_up_s(step) / speed), NODES)


def made_up_s(step: CompiledStep) -> np.ndarray:
    """Times of its operators at made-up rates."""
    return np.array([3e-15 * each.macs + 5e-13 * each.traffic_bytes for each in step.operators])


@pytest.mark.parametrize("load", [{}, {"expert_imbalance": 1.37}, {"expert_capacity": 1.25}, {"expert_capacity": 0.8}])
def test_experts_have_the_load_that_is_stated(load: dict[str, float]) -> None:
    """Two of eight experts a device: 1,000 tokens with two experts each over 8 experts, of 4 devices."""
    balanced = 4 * 1000 * 2 / 8
    rows = int(np.ceil(max(load.values(), default=1.0) * balanced))
    step = compiled(**load)
    products = [each for each in step.parts[BLOCK].graph.layers[0].forward.operators if is_expert_product(each)]
    assert {(each.matmuls[0].batch, each.matmuls[0].m) for each in products} == {(2, rows)}
    sent = [each for each in step.parts[BLOCK].forward.collectives if each.group is CollectiveGroup.EXPERT]
    assert [each.payload_bytes for each in sent] == [2 * 4096 * max(2 * rows, 2 * 1000)] * 2


@pytest.mark.parametrize(
    ("load", "words"),
    [
        ({"expert_imbalance": 0.9}, "from 1"),
        ({"expert_capacity": -1.0}, "must be 0"),
        ({"expert_capacity": 1.0, "expert_imbalance": 2.0}, "all alike"),
    ],
)
def test_loads_that_cannot_be_are_refused(load: dict[str, float], words: str) -> None:
    with pytest.raises(InputError, match=words):
        TrainingSpec(1, 8, 8, **load)


def test_a_product_of_experts_takes_no_less_than_its_launches() -> None:
    """Twelve-norm of both; nothing of a fixed capacity, nothing of other operators, nothing where hosts take none."""
    fitted, device = FittedConstants({}), load_device("h100")
    step = compiled()
    operators = compile_operators(step.operators)

    def seconds(host_s: float, *, has_capacity: bool = False) -> np.ndarray:
        stack = replace(PLAIN, host_s_per_expert=host_s)
        roles = roles_of(operators, np.full(len(operators), has_capacity))
        return device_seconds(operators, device, roles, path=ComputePath.BF16, stack=stack, fitted=fitted)

    bare, slow = seconds(0.0), seconds(1e-3)
    launches = np.array([num_launches(each) for each in step.operators])
    # Gate with up, and down, of two experts, forward and twice backward; dispatch and combine, forward and backward.
    names = [each.name for each in step.operators if num_launches(each)]
    assert sum(launches) == 2 * 3 * 2 + 4
    assert all(name.startswith(("mlp_", "dispatch", "combine")) for name in names)
    assert np.array_equal(slow[launches == 0], bare[launches == 0])
    expected = (bare**12 + (1e-3 * launches) ** 12) ** (1 / 12)
    assert slow[launches > 0] == pytest.approx(expected[launches > 0], rel=1e-9)
    assert np.array_equal(seconds(1e-3, has_capacity=True), bare)


def test_steps_of_a_fixed_capacity_wait_for_no_launch() -> None:
    fitted, device, stack = FittedConstants({}), load_device("h100"), replace(PLAIN, host_s_per_expert=1e-2)
    both = [compiled(), compiled(expert_capacity=1.0)]
    classes, _ = SerialSteps(both).times(device, path=ComputePath.BF16, stack=stack, fitted=fitted)
    alone, _ = SerialSteps(both[1:]).times(device, path=ComputePath.BF16, stack=PLAIN, fitted=fitted)
    assert classes[0, BLOCK].sum() > 10 * classes[1, BLOCK].sum()
    assert classes[1] == pytest.approx(alone[0], rel=1e-12)


@pytest.mark.parametrize(("nodes", "met"), list(product((1, 2, 5, 8), (1, 2, 4))))
def test_nodes_that_have_a_tokens_experts_by_enumeration(nodes: int, met: int) -> None:
    spec = ExpertsSpec(MlpSpec(8, 8), 8 * nodes, met)
    draws = list(product(range(nodes), repeat=met))
    assert spec.routing.num_places(nodes) == pytest.approx(sum(len(set(draw)) for draw in draws) / len(draws))


def test_node_limited_routing_sends_to_no_more_nodes_than_groups() -> None:
    """DeepSeek-V3: 8 of 256 experts out of 4 of 8 groups, one a node where there are 8 nodes."""
    limited = replace(ExpertsSpec(MlpSpec(8, 8), 256, 8), num_groups=8, num_active_groups=4)
    assert limited.routing.num_places(8) == 4.0
    assert limited.routing.num_places(16) == pytest.approx(16 * (1 - (15 / 16) ** 8)), (
        "fewer than eight half groups by chance"
    )
    assert limited.routing.num_places(2) == pytest.approx(2 * (1 - 0.5**8))
    model = load_model("deepseek-v3")
    assert model.experts is not None
    assert (model.experts.num_groups, model.experts.num_active_groups) == (8, 4)
    with pytest.raises(InputError, match="no part of 256 experts"):
        replace(limited, num_groups=3)


def test_copies_of_tokens_cross_to_a_node_once() -> None:
    """Two nodes of two devices: a token with two experts has one on the other node in 3 of 4 cases, 1 copy on average.

    Sent once, it crosses 0.75 times; what stays on the node is as before.
    """
    members = group_members(compiled(), CollectiveGroup.EXPERT, NODES)
    assert [each.size for each in members] == [2, 2]
    assert once_a_node(MIXTRAL, members) == 0.75
    plain, once = (priced(compiled(stack=replace(PLAIN, sends_once_a_node=flag))).tensor_s for flag in (False, True))
    sent = compiled().parts[BLOCK]
    each_s = [each.payload_bytes / 2 for each in (*sent.forward.collectives, *sent.backward.collectives)]
    expected = 4 * 2 * sum(each_s) / 25e9
    assert plain - once == pytest.approx(0.25 * expected, rel=1e-9)


def test_exchanges_hide_behind_the_compute_of_their_pass() -> None:
    """All of the shorter of both at an overlap of 1, a share of it below; slower links show first."""
    steps = [compiled(stack=replace(PLAIN, expert_overlap=share)) for share in (0.0, 0.5, 1.0)]
    none, half, full = (priced(step).tensor_s for step in steps)
    assert none > 0 == full, "compute is longer here"
    assert half == pytest.approx(none / 2, rel=1e-12)
    quick = [priced(step, speed=1e3).tensor_s for step in steps]
    block, seconds = steps[0].parts[BLOCK], made_up_s(steps[0]) / 1e3
    compute_s = sum(seconds[columns].sum() for columns in (block.forward.columns, block.backward.columns))
    assert quick[0] == none
    assert quick[0] - quick[2] == pytest.approx(2 * 4 * compute_s, rel=1e-9), "two micro-batches, four blocks"
    assert quick[1] == pytest.approx((quick[0] + quick[2]) / 2, rel=1e-12)
    slower = priced(compiled(stack=replace(PLAIN, expert_efficiency=0.5))).tensor_s
    assert slower == pytest.approx(2 * none, rel=1e-12)


def test_schedules_that_put_off_gradients_of_weights_fill_as_more_chunks_do() -> None:
    """Zero bubble and DualPipe: a third of what the other stages take, which at 1F1B is all of it."""
    plain, three = (priced(compiled(PIPED, stack=replace(PLAIN, fill_chunks=chunks))) for chunks in (1, 3))
    assert three.bubble_s == pytest.approx(plain.bubble_s / 3, rel=1e-9)
    assert three.seconds - three.bubble_s == pytest.approx(plain.seconds - plain.bubble_s, rel=1e-12)


def test_kept_share_scales_what_blocks_keep_and_nothing_else() -> None:
    whole, half = (
        step_memory(compiled(PIPED, stack=replace(PLAIN, kept_share=share))).stages[1] for share in (1.0, 0.5)
    )
    assert half.activation_bytes == pytest.approx(whole.activation_bytes / 2, rel=1e-12)
    assert half.state_bytes == whole.state_bytes
