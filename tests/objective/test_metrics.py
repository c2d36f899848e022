"""Where time and energy go (semantics 7), recomputed in plain Python from the graphs and the placement."""

import math

import pytest
from kits.scenarios import make_point, make_scenario

from phaze_opt.estimate.collectives import transfer_s
from phaze_opt.graph.build import build_model_graph
from phaze_opt.graph.operator import PUBLISHED_SHARDING, CollectiveKind
from phaze_opt.objective.evaluate import Objective
from phaze_opt.placement.problem import RecomputePolicy
from phaze_opt.workload.training import Optimizer

CASES = [
    ("bert-large", {"devices": 32, "tensor_parallel": (2,)}, {}),
    ("bert-large", {"devices": 32, "network": "phaze", "optimizer": Optimizer.SGD}, {"num_tc": 2}),
    ("llama-2-7b", {"devices": 32, "tensor_parallel": (4,), "recompute": RecomputePolicy.ALWAYS}, {"micro_batch": 1}),
    ("mixtral-8x7b", {"devices": 64, "tensor_parallel": (8,)}, {"micro_batch": 1}),
    ("tiny", {"devices": 8, "is_sequence_parallel": False, "tensor_parallel": (2,)}, {}),
]
LINK_J_PER_BYTE = 8 * 10e-12
STATIC_W_PER_MM2 = 0.05


class Replayed:
    """One evaluation and what its replica runs: (layer graph, phase graph, executions of one tensor rank)."""

    def __init__(self, model, scenario, point):
        self.scenario = make_scenario(model, **scenario)
        self.objective = Objective(self.scenario)
        self.evaluation = self.objective.evaluate(make_point(**point))
        self.placement = self.evaluation.placement
        self.training = self.scenario.training_of(self.scenario.models[0], self.evaluation.micro_batch)
        degree = self.placement.tensor_parallel
        model = self.scenario.models[0]
        self.graph = build_model_graph(model, self.training, tensor_parallel=degree, options=PUBLISHED_SHARDING)

    def layers(self, stage):
        return [self.graph.layers[self.graph.chain[i]] for i in range(stage.first, stage.last + 1)]

    def runs(self):
        micro = self.placement.num_micro_batches
        for stage in self.placement.stages:
            for layer in self.layers(stage):
                yield layer.forward, micro * (2 if stage.is_recomputed else 1)
                yield layer.backward, micro
                yield layer.update, self.update_share(layer)

    def update_share(self, layer):
        """A head tied to the embedding beside it in the only stage updates what is its own alone."""
        is_tied = len(self.placement.stages) == 1
        return 1 - layer.num_tied_parameters / layer.num_parameters if is_tied else 1

    def boundary_s(self, number):
        """Both transfers of a stage, s."""
        stages, degree = self.placement.stages, self.placement.tensor_parallel
        network, seconds = self.scenario.cluster.network, 0.0
        for side in (number, number + 1):
            if 0 < side < len(stages):
                leaving = self.layers(stages[side - 1])[-1].output_bytes
                seconds += transfer_s(network, position=(len(stages) - side) * degree, payload_bytes=leaving)
        return seconds


def sent(collective, degree):
    share = (degree - 1) / degree * collective.payload_bytes
    return 2 * share if collective.kind is CollectiveKind.ALL_REDUCE else share


@pytest.fixture(scope="module", params=CASES, ids=lambda case: f"{case[0]}-{case[1]['devices']}")
def replayed(request):
    return Replayed(*request.param)


def test_boundary_transfers_and_bubble(replayed):
    evaluation, placement = replayed.evaluation, replayed.placement
    bottleneck = max(range(len(placement.stages)), key=lambda i: placement.stages[i].time_s)
    expected = replayed.boundary_s(bottleneck) * placement.num_micro_batches
    assert evaluation.breakdown.boundary_transfers_s == pytest.approx(expected, rel=1e-6, abs=1e-12)
    idle = placement.stages[bottleneck].time_s * (len(placement.stages) - 1)
    assert evaluation.breakdown.bubble_s == pytest.approx(idle, rel=1e-12)


def test_update_and_gradient_all_reduce(replayed):
    """The stage that synchronises longest: every parameter updated once, tied ones too; the rest is the all-reduce."""
    evaluation, placement = replayed.evaluation, replayed.placement
    longest = max(placement.stages, key=lambda stage: stage.sync_s)
    makespans = {entry.layer: entry.makespan_s for entry in evaluation.schedules if entry.phase == "update"}
    update = sum(makespans[layer.name] * replayed.update_share(layer) for layer in replayed.layers(longest))
    assert evaluation.breakdown.update_s == pytest.approx(update, rel=1e-9)
    assert evaluation.breakdown.gradient_all_reduce_s == pytest.approx(longest.sync_s - update, rel=1e-6)
    if len(placement.stages) == 1 and replayed.scenario.models[0].name == "bert-large":
        degree, chip = placement.tensor_parallel, evaluation.accelerator
        cycles, moved = (12, 28) if replayed.scenario.optimizer is Optimizer.ADAM else (2, 6)
        lanes_s = cycles / (chip.num_vc * chip.vc_width * chip.clock_hz)
        bytes_s = moved / chip.hbm_bandwidth_bytes_per_s
        replicated = degree * update / max(lanes_s, bytes_s) / replayed.evaluation.num_parameters
        assert 1 <= replicated < 1.006


def test_link_energy(replayed):
    """Energy is operators + links + static; the links' part from what every collective, boundary and gradient sends."""
    evaluation, placement = replayed.evaluation, replayed.placement
    degree, replicas = placement.tensor_parallel, placement.data_parallel
    collectives = sum(
        runs * sent(operator.collective, degree)
        for graph, runs in replayed.runs()
        for operator in graph.operators
        if operator.collective is not None
    )
    ends = [replayed.layers(stage)[-1].output_bytes for stage in placement.stages[:-1]]
    boundaries = 2 * placement.num_micro_batches * sum(ends)
    parameters = sum(layer.num_parameters for stage in placement.stages for layer in replayed.layers(stage))
    if len(placement.stages) == 1:
        parameters -= replayed.graph.layers[replayed.graph.chain[-1]].num_tied_parameters
    gradients = 2 * (replicas - 1) / replicas * 2 * parameters
    links = degree * replicas * (collectives + boundaries + gradients) * LINK_J_PER_BYTE
    static = placement.devices_used * STATIC_W_PER_MM2 * evaluation.area_mm2 * evaluation.iteration_time_s
    free = replayed.objective.constants.with_overrides({"energy.link_pj_per_bit": 1e-9})
    point = make_point(num_tc=evaluation.accelerator.num_tc, micro_batch=evaluation.micro_batch)
    without = Objective(replayed.scenario, constants=free).evaluate(point)
    assert evaluation.energy_per_iteration_j - without.energy_per_iteration_j == pytest.approx(links, rel=1e-6)
    leakless = replayed.objective.constants.with_overrides({"energy.static_w_per_mm2": 1e-12})
    without = Objective(replayed.scenario, constants=leakless).evaluate(point)
    assert evaluation.energy_per_iteration_j - without.energy_per_iteration_j == pytest.approx(static, rel=1e-6)
    watts = evaluation.energy_per_iteration_j / evaluation.iteration_time_s / placement.devices_used
    assert evaluation.average_power_w == pytest.approx(watts, rel=1e-12)
    assert evaluation.average_power_w < evaluation.tdp_w


def test_utilisations(replayed):
    evaluation, placement = replayed.evaluation, replayed.placement
    chip, constants = evaluation.accelerator, replayed.objective.constants
    macs = sum(runs * operator.macs for graph, runs in replayed.runs() for operator in graph.operators)
    lanes = sum(
        runs * work.elements * constants.value(f"vector_cycles.{work.kind}")
        for graph, runs in replayed.runs()
        for operator in graph.operators
        for work in operator.vector_works
    )
    cycles = evaluation.iteration_time_s * chip.clock_hz * len(placement.stages)
    macs_of_chip = chip.num_tc * chip.tc_width * chip.tc_depth
    assert evaluation.tc_utilisation == pytest.approx(macs / (cycles * macs_of_chip), rel=1e-9)
    assert evaluation.vc_utilisation == pytest.approx(lanes / (cycles * chip.num_vc * chip.vc_width), rel=1e-9)


def test_mfu_counts_all_devices_and_no_recomputation(replayed):
    evaluation, model = replayed.evaluation, replayed.scenario.models[0]
    tokens, chip = evaluation.sequence_length, evaluation.accelerator
    mlp = (3 if model.is_mlp_gated else 2) * model.hidden_size * model.ffn_size * model.num_active_experts
    router = model.hidden_size * model.num_experts if model.has_experts else 0
    blocks = model.num_layers * (
        2 * model.hidden_size * (model.hidden_size + model.num_kv_heads * model.head_size) + mlp + router
    )
    head = model.hidden_size * (model.vocab_size + (model.hidden_size if model.has_pretraining_heads else 0))
    flops = 6 * (blocks + head) * tokens + 12 * model.num_layers * model.num_heads * model.head_size * tokens**2
    if model.has_pretraining_heads:
        flops += 6 * model.hidden_size * (model.hidden_size + 2)
    peak = 2 * chip.num_tc * chip.tc_width * chip.tc_depth * chip.clock_hz * replayed.scenario.cluster.num_devices
    expected = replayed.scenario.global_batch * flops / evaluation.iteration_time_s / peak
    assert evaluation.mfu == pytest.approx(expected, rel=1e-12)
    assert math.isfinite(evaluation.mfu)
