"""References: hand placements priced against a recomputation that shares nothing with the placement kernels."""

import json
import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from kits.scenarios import make_scenario

from phaze_opt.cost.compiled_step import compile_step, split_blocks
from phaze_opt.cost.price_step import price_step
from phaze_opt.errors import InputError
from phaze_opt.hardware.constants import load_constants
from phaze_opt.hardware.presets import load_architecture
from phaze_opt.objective.evaluate import Objective
from phaze_opt.objective.evaluation import Evaluation, EvaluationStatus, evaluation_from_json, evaluation_to_json
from phaze_opt.objective.reference_machines import (
    REFERENCES,
    ExpertPlacement,
    evaluate_experts,
    evaluate_machines,
    evaluate_references,
    is_expert,
    load_expert_book,
)
from phaze_opt.objective.scenario import Scenario
from phaze_opt.objective.scenario import make_scenario as planned_scenario
from phaze_opt.placement.problem import PlacementResult
from phaze_opt.workload.config import load_model
from phaze_opt.workload.plan import ParallelPlan, Recompute

CONSTANTS = load_constants()
# Evidence: (pipeline, data, tensor) on 1,024 devices.
PUBLISHED = {
    "opt-1.3b": (12, 85, 1),
    "bert-large": (8, 128, 1),
    "gpt2-xl": (32, 32, 1),
    "megatron-bert": (8, 128, 1),
    "megatron-gpt2-54": (8, 32, 4),
    "megatron-gpt2-72": (8, 16, 8),
    "gpt3-175b": (32, 8, 4),
    "llama-2-7b": (8, 128, 1),
}


def scenario_of(*models: str, devices: int = 1024, global_batch: int = 4096, **changes: object) -> Scenario:
    defaults: dict[str, object] = {"tensor_parallel": (1, 2, 4, 8)}
    return make_scenario(*models, devices=devices, global_batch=global_batch, **(defaults | changes))


def placed(scenario: Scenario, micro_batch: int = 1) -> PlacementResult:
    """The expert's placement on TPUv4."""
    placement = evaluate_experts(scenario, (micro_batch,), constants=CONSTANTS)["expert on phaze-tpu-v4"].placement
    assert placement is not None
    return placement


@pytest.mark.parametrize("name", sorted(PUBLISHED))
def test_placements_are_the_published_ones(name: str) -> None:
    model = load_model(name)
    expert = load_expert_book().placement_of(model)
    assert (expert.pipeline, expert.data, expert.tensor) == PUBLISHED[name]
    assert expert.num_layers == model.num_layers
    assert expert.data_parallel(num_devices=1024, global_batch=4096, micro_batch=8) == expert.data
    assert len(load_expert_book().placements) == len(PUBLISHED)


@pytest.mark.parametrize("name", sorted(PUBLISHED))
def test_the_split_is_as_even_as_can_be(name: str) -> None:
    """Every block once; shares differ by one at most (the original gave the last stage of four of BERT's blocks)."""
    expert = load_expert_book().placements[name]
    bounds = [1, *expert.cuts(), expert.num_layers + 1]
    blocks = np.diff(bounds).tolist()
    assert len(blocks) == expert.pipeline
    assert sum(blocks) == expert.num_layers
    assert max(blocks) - min(blocks) == (1 if expert.num_layers % expert.pipeline else 0)
    assert blocks == sorted(blocks, reverse=True)


def test_bert_has_three_blocks_a_stage() -> None:
    assert load_expert_book().placements["bert-large"].cuts() == (4, 7, 10, 13, 16, 19, 22)
    assert split_blocks(7, 3) == (3, 2, 2)


def independent_batch_time_s(scenario: Scenario, evaluation: Evaluation) -> float:
    """1F1B by hand, s: slowest stage x (micro-batches + stages - 1) + slowest synchronisation.

    For eight stages of one device, a node each replica: boundaries lie inside a node, the gradients of a stage are
    all-reduced between nodes by halving and doubling. Nothing of the placement's kernels or tables takes part.
    """
    placement = evaluation.placement
    inner, outer = scenario.cluster.network.dimensions
    assert (placement.tensor_parallel, len(placement.stages), inner.size) == (1, 8, 8)
    objective = Objective(replace(scenario, tensor_parallel=(1,)), constants=CONSTANTS)
    layers = {each.name: each for each in objective.compiled(0, evaluation.micro_batch).options[0].graph.layers}
    makespan_s = {(each.layer, each.phase): each.makespan_s for each in evaluation.schedules}
    replicas = placement.data_parallel
    times_s, syncs_s = [], []
    for stage in range(8):
        names = (
            ["embedding"] * (stage == 0) + ["block"] * (scenario.models[0].num_layers // 8) + ["head"] * (stage == 7)
        )
        transfer_s = inner.latency_s + layers["block"].output_bytes / inner.bandwidth_bytes_per_s
        num_boundaries = (stage > 0) + (stage < 7)
        compute_s = sum(makespan_s[name, "forward"] + makespan_s[name, "backward"] for name in names)
        times_s.append(compute_s + num_boundaries * transfer_s)
        gradient_bytes = 2.0 * sum(layers[name].num_parameters for name in names)
        reduce_s = 2 * math.log2(replicas) * outer.latency_s
        reduce_s += 2 * (replicas - 1) / replicas * gradient_bytes / outer.bandwidth_bytes_per_s
        syncs_s.append(reduce_s + sum(makespan_s[name, "update"] for name in names))
    num_micro = math.ceil(scenario.global_batch / (evaluation.micro_batch * replicas))
    return max(times_s) * (num_micro + 7) + max(syncs_s)


@pytest.fixture(scope="module")
def bert() -> tuple[Scenario, Mapping[str, Evaluation]]:
    scenario = scenario_of("bert-large")
    return scenario, evaluate_experts(scenario, (1, 2, 4, 8), constants=CONSTANTS)


def test_time_equals_a_recomputation_by_hand(bert: tuple[Scenario, Mapping[str, Evaluation]]) -> None:
    scenario, experts = bert
    for evaluation in experts.values():
        assert evaluation.is_feasible
        assert evaluation.iteration_time_s == pytest.approx(independent_batch_time_s(scenario, evaluation), rel=1e-9)
        assert evaluation.throughput_samples_per_s == pytest.approx(4096 / evaluation.iteration_time_s)


def test_an_expert_never_beats_the_optimal_placement_of_its_machine(
    bert: tuple[Scenario, Mapping[str, Evaluation]],
) -> None:
    scenario, experts = bert
    objective = Objective(scenario, constants=CONSTANTS)
    machine = load_architecture("phaze-tpu-v4", constants=CONSTANTS)
    best = max(objective.evaluate_accelerator(machine, size).throughput_samples_per_s for size in (1, 2, 4, 8))
    assert 0 < experts["expert on phaze-tpu-v4"].throughput_samples_per_s <= best


def test_the_best_micro_batch_is_taken(bert: tuple[Scenario, Mapping[str, Evaluation]]) -> None:
    scenario, experts = bert
    alone = [evaluate_experts(scenario, (size,), constants=CONSTANTS) for size in (1, 2, 4, 8)]
    for name, evaluation in experts.items():
        rates = [single[name].throughput_samples_per_s for single in alone]
        assert evaluation.throughput_samples_per_s == max(rates)
        assert evaluation.micro_batch == (1, 2, 4, 8)[int(np.argmax(rates))]


def test_references_hold_machines_then_experts() -> None:
    scenario = scenario_of("bert-large", max_area_mm2=1.0, max_tdp_w=1.0)
    references = evaluate_references(scenario, (1,), constants=CONSTANTS)
    assert tuple(references) == (*REFERENCES, "expert on phaze-tpu-v4", "expert on nvdla-like")
    assert [is_expert(name) for name in references] == [False, False, True, True]
    assert all(reference.is_feasible for reference in references.values())


def test_what_does_not_fit_is_a_value_with_its_reason() -> None:
    """GPT-3 in 32 stages needs more than the 16 GB of the small machine; nothing is raised."""
    experts = evaluate_experts(scenario_of("gpt3-175b"), (1,), constants=CONSTANTS)
    small = experts["expert on nvdla-like"]
    assert small.status is EvaluationStatus.OUT_OF_MEMORY
    assert "more than a device has (16.00 GiB)" in small.reason
    assert experts["expert on phaze-tpu-v4"].is_feasible


@pytest.mark.parametrize(("devices", "replicas"), [(512, 64), (8, 1), (1030, 128), (2048, 256)])
def test_replicas_follow_the_devices(devices: int, replicas: int) -> None:
    placement = placed(scenario_of("bert-large", devices=devices))
    assert (len(placement.stages), placement.tensor_parallel, placement.data_parallel) == (8, 1, replicas)


def test_no_replica_is_left_without_a_micro_batch() -> None:
    placement = placed(scenario_of("bert-large", global_batch=40), 4)
    assert (placement.data_parallel, placement.num_micro_batches) == (10, 1)


@pytest.mark.parametrize("devices", [1, 2, 7])
def test_too_few_devices_are_said(devices: int) -> None:
    experts = evaluate_experts(scenario_of("megatron-gpt2-72", devices=devices), (1,), constants=CONSTANTS)
    for expert in experts.values():
        assert expert.status is EvaluationStatus.TOO_FEW_DEVICES
        assert f"does not fit {devices} devices" in expert.reason
        assert expert.placement is None
        again = evaluation_from_json(json.loads(json.dumps(evaluation_to_json(expert))))
        assert again.status is expert.status


def test_the_experts_degree_is_its_own() -> None:
    """A search restricted to other tensor degrees is still compared with the hand placement."""
    assert placed(scenario_of("megatron-gpt2-54", tensor_parallel=(1, 2))).tensor_parallel == 4


def test_models_without_a_hand_placement_have_none() -> None:
    assert evaluate_experts(scenario_of("tiny", devices=16), (1,), constants=CONSTANTS) == {}
    assert evaluate_experts(scenario_of("bert-large", "tiny"), (1,), constants=CONSTANTS) == {}
    namesake = replace(load_model("bert-large"), num_layers=12)
    assert load_expert_book().placement_of(namesake) is None


def test_a_common_design_has_each_models_own_hand_placement() -> None:
    scenario = scenario_of("bert-large", "llama-2-7b")
    common = evaluate_experts(scenario, (1, 2), constants=CONSTANTS)["expert on phaze-tpu-v4"]
    by_size = [
        [
            evaluate_experts(scenario_of(name), (size,), constants=CONSTANTS)["expert on phaze-tpu-v4"]
            for name in ("bert-large", "llama-2-7b")
        ]
        for size in (1, 2)
    ]
    means = [sum(member.throughput_samples_per_s for member in members) / 2 for members in by_size]
    assert common.throughput_samples_per_s == pytest.approx(max(means))
    assert [len(member.placement.stages) for member in common.members if member.placement] == [8, 8]


@pytest.mark.parametrize("degrees", [(0, 1, 1), (25, 1, 1), (8, 0, 1), (8, 1, 0)])
def test_impossible_hand_placements_are_refused(degrees: tuple[int, int, int]) -> None:
    with pytest.raises(InputError, match="hand placement"):
        ExpertPlacement(24, *degrees)


def planned_of(name: str, **options: object) -> Scenario:
    return planned_scenario(name, **({"devices": 1024, "global_batch": 4096, "micro_batch": (1, 4)} | options))


@pytest.mark.parametrize("name", ["bert-large", pytest.param("opt-1.3b", marks=pytest.mark.slow)])
def test_under_full_plans_it_is_the_plan_of_its_degrees_and_cuts(name: str) -> None:
    """The least of all its micro-batches and recomputations, each priced alone; never above the best plan there is."""
    scenario = planned_of(name, recompute="none", schedule_gap=0)
    references = evaluate_references(scenario, (1,), constants=CONSTANTS)
    found = references["expert on phaze-tpu-v4"]
    pipeline, data, tensor = PUBLISHED[name]
    # 85 replicas do not share 4,096 samples: the most that do take their place.
    data = {85: 64}.get(data, data)
    objective = Objective(scenario, constants=CONSTANTS)
    model, chip = scenario.models[0], load_architecture("phaze-tpu-v4", constants=objective.constants)
    clock, seconds = objective._clock(chip), []
    for micro_batch in (1, 4):
        plan = ParallelPlan(tensor, pipeline, data, micro_batch=micro_batch)
        step = compile_step(model, scenario.training_of(model, micro_batch), plan, stack=scenario.stack)
        seconds.append(price_step(step, clock.times(step), scenario.cluster.network).seconds)
    assert found.iteration_time_s == pytest.approx(min(seconds), rel=1e-9)
    assert found.placement is not None
    assert found.placement.plan is not None
    assert replace(found.placement.plan, micro_batch=1) == ParallelPlan(tensor, pipeline, data)
    assert found.throughput_samples_per_s <= references["phaze-tpu-v4"].throughput_samples_per_s
    assert tuple(references) == (*REFERENCES, "expert on phaze-tpu-v4", "expert on nvdla-like")


def test_under_full_plans_too_stages_recompute_where_they_must() -> None:
    found = evaluate_experts(planned_of("gpt3-175b"), (1,), constants=CONSTANTS)
    large, small = found["expert on phaze-tpu-v4"], found["expert on nvdla-like"]
    assert large.placement is not None
    plan = large.placement.plan
    assert plan is not None
    assert (plan.tensor, plan.pipeline, plan.data, plan.zero, plan.interleave) == (4, 32, 8, 0, 1)
    assert plan.blocks == ()
    assert Recompute.FULL in plan.recomputes
    assert small.status is EvaluationStatus.OUT_OF_MEMORY
    few = evaluate_experts(planned_of("gpt3-175b", devices=64), (1,), constants=CONSTANTS)
    assert {each.status for each in few.values()} == {EvaluationStatus.TOO_FEW_DEVICES}


def test_under_full_plans_common_designs_have_each_models_own() -> None:
    models = tuple(load_model(name) for name in ("bert-large", "llama-2-7b"))
    scenario = replace(planned_of("bert-large"), models=models)
    (common, _), alone = (
        evaluate_experts(scenario, (1,), constants=CONSTANTS).values(),
        [
            evaluate_experts(replace(scenario, models=(each,)), (1,), constants=CONSTANTS)["expert on phaze-tpu-v4"]
            for each in models
        ],
    )
    assert common.throughput_samples_per_s == pytest.approx(sum(each.throughput_samples_per_s for each in alone) / 2)


def test_a_machine_of_a_file_goes_by_its_name_unless_another_has_it(tmp_path) -> None:
    sizes = (
        'num_tc = 4\nnum_vc = 8\ntc_width = 64\ntc_depth = 64\nvc_width = 64\nglb_mb = 4\nhbm_gb = 32\nname = "{}"\n'
    )
    names = {"own": "zeus-2", "again": "zeus-2", "taken": "h100", "published": "phaze-tpu-v4"}
    files = {key: tmp_path / f"{key}.toml" for key in names}
    for key, path in files.items():
        path.write_text(sizes.format(names[key]))
    inline = "num_tc=4,num_vc=8,tc_width=64,tc_depth=64,glb_mb=4,hbm_gb=32"
    given = [*map(str, files.values()), inline, "H100"]
    found = evaluate_machines(make_scenario("tiny", devices=8, global_batch=16), (1,), given, constants=CONSTANTS)
    _, *rest = given
    assert list(found) == ["zeus-2", *rest[:-1], "h100"]
