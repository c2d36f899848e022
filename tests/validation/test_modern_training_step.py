"""What FSDP, fp8, recomputation and TPU tori add to a step, against closed forms."""

from dataclasses import replace

import numpy as np
import pytest
from kits.steps import SMALL_MODEL, estimate_step

from phaze_opt.cost.compiled_step import compile_step
from phaze_opt.cost.device_seconds import device_seconds, roles_of
from phaze_opt.cost.stacks import load_stack
from phaze_opt.errors import InputError
from phaze_opt.estimate.operator_table import compile_operators
from phaze_opt.hardware.device import ComputePath
from phaze_opt.hardware.device_catalogue import load_device
from phaze_opt.hardware.fitted import FittedConstants
from phaze_opt.hardware.network import Network, NetworkDimension, Topology
from phaze_opt.hardware.networks import load_network
from phaze_opt.hardware.torus_mapping import SLICE_BANDWIDTH_BYTES_PER_S, map_torus
from phaze_opt.validation.family import FitParameter
from phaze_opt.validation.fit import fit_towards_starts
from phaze_opt.workload.plan import ParallelPlan, Recompute
from phaze_opt.workload.software import FusionLevel, TrainingStack
from phaze_opt.workload.training import TrainingSpec

NOTHING = FittedConstants({})
MODEL = replace(
    SMALL_MODEL, num_heads=8, num_kv_heads=8, head_size=128, max_sequence_length=2048, num_position_rows=2048
)
BARE = TrainingStack(name="bare", fusion=FusionLevel.NONE, gradient_bytes=4, k_ramp=0.0, exposed_traffic=0.0)


NODES = Network(
    "nodes", (NetworkDimension(Topology.SWITCH, 8, 300e9, 2e-6), NetworkDimension(Topology.SWITCH, 64, 25e9, 5e-6))
)
"""As DGX A100, at specified rates only."""
NODE_LATENCY_S = 3 * (MODEL.num_layers + 1) * 3 * 2e-6
"""Of two gathers and a reduction of every block, and of the model's two ends as one, in 3 steps of halving a node."""


def step(plan, *, stack=BARE, network=NODES, device="a100-80g", path=ComputePath.BF16, global_batch=None):
    training = TrainingSpec(plan.micro_batch, 2048, global_batch or plan.data * plan.micro_batch)
    return estimate_step(
        MODEL, training, plan, device=load_device(device), network=network, stack=stack, fitted=NOTHING, path=path
    )


def test_fsdp_gathers_twice_and_reduces_once_a_micro_batch():
    # One node of 8, nothing hidden: two gathers in 16 bits and one reduction in 32, 8 bytes a parameter, over NVLink.
    plan = ParallelPlan(data=8, micro_batch=1, zero=3)
    traffic = 8 * MODEL.num_parameters * 7 / 8 / 300e9
    assert step(plan, global_batch=24).parameter_s == pytest.approx(3 * (traffic + NODE_LATENCY_S), rel=1e-9)


def test_hidden_traffic_shows_only_where_it_is_longer_than_the_compute():
    plan = ParallelPlan(data=8, micro_batch=1, zero=3)
    bare = step(plan)
    slow = step(plan, stack=replace(BARE, parameter_overlap=1.0, collective_efficiency=0.05))
    assert step(plan, stack=replace(BARE, parameter_overlap=1.0)).parameter_s == pytest.approx(
        max(0.0, bare.parameter_s - bare.compute_s), abs=1e-12
    )
    moved = (bare.parameter_s - NODE_LATENCY_S) / 0.05 + NODE_LATENCY_S
    assert slow.parameter_s == pytest.approx(moved - bare.compute_s, rel=1e-9)


def test_hybrid_sharding_gathers_inside_a_node_and_adds_up_between_nodes():
    plan = ParallelPlan(data=32, micro_batch=1, zero=3, state_shards=8)
    priced, inside = step(plan), step(ParallelPlan(data=8, micro_batch=1, zero=3))
    assert priced.parameter_s == pytest.approx(inside.parameter_s, rel=1e-9)
    # Four copies of an eighth of the gradients, ring of 2 (4 - 1)/4 S over one adapter of 25 GB/s a device.
    gradients = 2 * 3 / 4 * MODEL.num_parameters / 8 * 4 / 25e9
    assert priced.gradient_s == pytest.approx(gradients, rel=1e-2)


def test_full_recomputation_that_stops_early_spares_the_last_matmul():
    plan = ParallelPlan(micro_batch=8, recompute=Recompute.FULL)
    whole, spared = step(plan), step(plan, stack=replace(BARE, kept_operators=("mlp_down",)))
    one = 2 * 8 * 2048 * 4096 * 1024 / 312e12
    difference = (whole.matmul_s - spared.matmul_s) / MODEL.num_layers
    assert one <= difference <= 1.3 * one  # tiles stick out of a wave
    assert whole.attention_s == pytest.approx(spared.attention_s)
    assert step(replace(plan, recompute=Recompute.NONE), stack=replace(BARE, kept_operators=("mlp_down",))) == step(
        replace(plan, recompute=Recompute.NONE)
    )


def test_waiting_grows_with_the_logarithm_of_the_nodes():
    stack = replace(BARE, waiting_share=0.01)
    assert step(ParallelPlan(data=8), stack=stack).waiting_s == 0.0
    for nodes, doublings in ((2, 1), (64, 6)):
        priced = step(ParallelPlan(data=8 * nodes), stack=stack)
        assert priced.waiting_s == pytest.approx(0.01 * doublings * (priced.seconds - priced.waiting_s))


def operator_times(path, stack=BARE, device="h100"):
    compiled_step = compile_step(MODEL, TrainingSpec(8, 2048, 8), ParallelPlan(micro_batch=8), stack=stack)
    compiled = compile_operators(compiled_step.operators)
    roles = roles_of(compiled)
    seconds = device_seconds(compiled, load_device(device), roles, path=path, stack=stack, fitted=NOTHING)
    return compiled, roles, seconds


def test_fp8_halves_block_matmuls_and_leaves_attention_and_output_in_bf16():
    compiled, roles, wide = operator_times(ComputePath.BF16)
    _, _, narrow = operator_times(ComputePath.FP8)
    same = roles.is_attention | roles.is_output | (compiled.macs == 0)
    np.testing.assert_allclose(narrow[same], wide[same])
    assert roles.is_output.sum() == 3
    block = (compiled.macs > 0) & ~same
    assert block.sum() == 18
    # Half the compute, and one byte an element more to move than fp8 alone would: the rest of the 16-bit tensors.
    casts = compiled.tiled_elements[block] / 3350e9
    np.testing.assert_allclose(narrow[block], wide[block] / 2 + casts, rtol=2e-4)


def test_casts_cost_their_traffic():
    compiled, roles, plain = operator_times(ComputePath.FP8)
    _, _, cast = operator_times(ComputePath.FP8, replace(BARE, cast_bytes=2.0))
    block = (compiled.macs > 0) & ~roles.is_attention & ~roles.is_output
    np.testing.assert_allclose((cast - plain)[block], 2.0 * compiled.tiled_elements[block] / 3350e9, rtol=1e-9)
    np.testing.assert_allclose(cast[~block], plain[~block])


def test_backward_attention_at_two_thirds_of_the_rate():
    _, roles, plain = operator_times(ComputePath.BF16)
    _, _, slower = operator_times(ComputePath.BF16, replace(BARE, attention_backward=2 / 3))
    backward = roles.is_attention & roles.is_backward
    assert backward.sum() == 1
    np.testing.assert_allclose(slower[backward], 1.5 * plain[backward])
    np.testing.assert_allclose(slower[~backward], plain[~backward])


def test_attention_on_a_tpu_adds_products_on_half_an_array_and_softmax_on_vector_units():
    stack = replace(BARE, softmax_flops=5.0, scores_share=0.5)
    compiled, roles, seconds = operator_times(ComputePath.BF16, stack, device="tpu-v6e")
    forward = roles.is_attention & ~roles.is_backward
    scores = 8 * 8 * 2048 * 2048  # sequences, heads, tokens squared
    device = load_device("tpu-v6e")
    softmax = 5.0 * scores / device.vector_flops_per_s
    # 128 channels fill half of a 256 x 256 array. Four arrays share 64 heads; each product of a head is eight folds,
    # past which 2,048 rows stream, with 2 x 256 + 256 - 2 cycles of filling and draining.
    products = 2 * 16 * 8 * (2048 + 766) / device.clock_hz
    assert seconds[forward] == pytest.approx(0.5 * (products + softmax), rel=2e-3)
    assert (compiled.macs[forward] == 2 * scores * 128).all()


def test_matmuls_of_a_tpu_read_their_tiles():
    stack = replace(BARE, matmul_efficiency=1.0)
    compiled, roles, plain = operator_times(ComputePath.BF16, stack, device="tpu-v5p")
    _, _, reading = operator_times(ComputePath.BF16, replace(stack, tile_intensity=1000.0), device="tpu-v5p")
    products = (compiled.macs > 0) & ~roles.is_attention
    np.testing.assert_allclose((reading - plain)[products], 2 * compiled.macs[products] / 1000 / 2765e9, rtol=1e-9)


def test_a_torus_gives_shards_all_axes_or_one_beside_a_tensor_group():
    torus = load_network("tpu-v5p-torus", num_devices=128)
    alone = map_torus(torus, tensor=1, shards=128, slices=1)
    assert [(each.size, each.bandwidth_bytes_per_s) for each in alone.dimensions] == [(128, 3 * 180e9)]
    both = map_torus(torus, tensor=8, shards=16, slices=2)
    assert [each.size for each in both.dimensions] == [8, 16, 2]
    assert [each.bandwidth_bytes_per_s for each in both.dimensions] == [360e9, 180e9, SLICE_BANDWIDTH_BYTES_PER_S]
    assert [each.topology for each in both.dimensions] == [Topology.RING, Topology.RING, Topology.SWITCH]


def test_sharded_state_on_a_torus_moves_at_the_rate_of_its_axes():
    network = map_torus(load_network("tpu-v5e-torus", num_devices=64), tensor=1, shards=64, slices=1)
    stack = replace(BARE, gradient_bytes=2)
    priced = step(ParallelPlan(data=64, zero=3), stack=stack, network=network, device="tpu-v5e")
    # Blocks and the model's ends each gather twice and scatter once, over 7 hops on either axis.
    latency = 3 * (MODEL.num_layers + 1) * 2 * 7 * 1e-6
    assert priced.parameter_s == pytest.approx(6 * MODEL.num_parameters * 63 / 64 / 180e9 + latency, rel=1e-2)
    assert priced.waiting_s == 0.0


def test_switched_networks_are_no_torus():
    with pytest.raises(InputError, match="rings of equal bandwidth"):
        map_torus(load_network("dgx-a100", num_devices=64), tensor=1, shards=64, slices=1)


@pytest.mark.parametrize(
    "name", ["megatron-core", "llm-foundry-h100", "llm-foundry-pure", "maxtext-unfused", "maxtext-offload"]
)
def test_stacks_take_their_parents_constants(name):
    parents = {"stack/llm-foundry": {"vector_efficiency": 0.4}, "stack/maxtext": {"vector_efficiency": 0.4}}
    stack = load_stack(name, FittedConstants({**parents, f"stack/{name}": {"waiting_share": 0.02}}))
    assert stack.waiting_share == 0.02
    assert stack.vector_efficiency == (0.8 if name == "megatron-core" else 0.4)


class Line:
    """Rows of a line a + b x measured where x is 0: nothing is said of b."""

    measured_s = np.array([2.0, 2.0, 2.0])
    unscored = {}

    def seconds(self, fitted):
        return np.full(3, fitted.value("line", "a")) + 0.0 * fitted.value("line", "b")


def test_a_constant_that_no_row_shows_stays_at_its_start():
    shown = FitParameter("line", "a", "s", 0.1, 10.0, 1.0, "shown", is_log=True)
    hidden = FitParameter("line", "b", "1", 0.0, 1.0, 0.3, "hidden")
    fitted = fit_towards_starts(Line(), (shown, hidden), NOTHING)
    assert fitted.value("line", "b") == pytest.approx(0.3)
    assert fitted.value("line", "a") == pytest.approx(2.0, rel=0.02)
