"""The evaluation of a parallel plan: whole, consistent, and that of a placement where the plan is a placement."""

import json
from dataclasses import replace

import pytest

from phaze_opt.cost.clocks import MachineClock, ScheduleClock
from phaze_opt.cost.compiled_step import compile_step
from phaze_opt.cost.stacks import load_stack
from phaze_opt.estimate.protocol import load_estimator
from phaze_opt.graph.sharding import model_flops
from phaze_opt.hardware.constants import load_constants
from phaze_opt.hardware.designed_chip import described_chip
from phaze_opt.hardware.device import ComputePath
from phaze_opt.hardware.device_catalogue import load_device
from phaze_opt.hardware.fitted import load_fitted
from phaze_opt.hardware.network import Cluster
from phaze_opt.hardware.networks import load_network
from phaze_opt.hardware.presets import load_architecture
from phaze_opt.objective.evaluate import Objective
from phaze_opt.objective.evaluation import EvaluationStatus, evaluation_from_json, evaluation_to_json
from phaze_opt.objective.metrics import plan_runs
from phaze_opt.objective.plan_evaluation import PlannedJob, evaluate_plan, evaluate_ranking, stage_chunks
from phaze_opt.objective.scenario import Scenario, make_scenario
from phaze_opt.placement.problem import RecomputePolicy
from phaze_opt.plan.plan_search import Machine, rank_plans
from phaze_opt.plan.plan_space import list_plans
from phaze_opt.schedule.problem import Exclusivity, ScheduleOptions
from phaze_opt.workload.config import load_model
from phaze_opt.workload.plan import ParallelPlan, PlanChoices, Recompute
from phaze_opt.workload.software import IDEAL_STACK
from phaze_opt.workload.training import TrainingSpec

FITTED = load_fitted()
MODEL = load_model("gpt2-xl")
H100 = load_device("h100")


def real_job(*, num_devices=32, memory_bytes=1e15, software="megatron-core", **more):
    """gpt2-xl on H100 machines."""
    machine = Machine(
        MachineClock(H100, ComputePath.BF16, FITTED),
        memory_bytes,
        load_network("dgx-h100", num_devices=num_devices),
        load_stack(software, FITTED),
    )
    facts = {
        "model": MODEL,
        "training": TrainingSpec(micro_batch=1, sequence_length=1024, global_batch=64),
        "accelerator": described_chip(H100, load_constants()),
        "area_mm2": H100.die_mm2,
        "tdp_w": H100.tdp_w,
        "flops_per_sample": model_flops(MODEL, 1024),
        "peak_flops_per_s": H100.peak(ComputePath.BF16),
    }
    return PlannedJob(machine=machine, num_devices=num_devices, **facts | more)


def chip_job(*, micro_batch, num_devices, global_batch, gap=0.01, stack=IDEAL_STACK):
    """bert-large on designed chips."""
    chip = load_architecture("phaze-tpu-v4")
    clock = ScheduleClock(
        chip, estimator=load_estimator("analytic"), exclusivity=Exclusivity.CHIP, options=ScheduleOptions(mip_gap=gap)
    )
    network, model = load_network("two-level", num_devices=num_devices), load_model("bert-large")
    return PlannedJob(
        model=model,
        training=TrainingSpec(micro_batch=micro_batch, sequence_length=512, global_batch=global_batch),
        machine=Machine(clock, float(chip.hbm_bytes), network, stack),
        accelerator=chip,
        area_mm2=300.0,
        tdp_w=500.0,
        num_devices=num_devices,
        flops_per_sample=model_flops(model, 512),
        peak_flops_per_s=chip.peak_flops_per_s,
    )


PLANS = (
    ParallelPlan(tensor=5, pipeline=2, data=2, micro_batch=2, is_sequence_parallel=True),
    ParallelPlan(pipeline=5, data=6, micro_batch=1, zero=1),
    ParallelPlan(pipeline=4, data=8, interleave=3, micro_batch=2, zero=2, recompute=Recompute.FULL),
    ParallelPlan(context=2, pipeline=2, data=8, micro_batch=1, zero=3, recompute=Recompute.SELECTIVE),
    ParallelPlan(pipeline=7, data=4, micro_batch=4),
    ParallelPlan(data=32, micro_batch=2, zero=3, state_shards=8),
)


@pytest.mark.parametrize("software", ["megatron-core", "llm-foundry-h100", "ideal"])
@pytest.mark.parametrize("plan", PLANS)
def test_all_that_an_evaluation_says_of_a_plan_adds_up(plan, software) -> None:
    job = real_job(software=software)
    (ranked,) = rank_plans(MODEL, job.training, [plan], machine=job.machine).ranked
    found = evaluate_plan(job, ranked, bound_s=0.0)
    seconds = ranked.time.seconds
    assert found.iteration_time_s == seconds
    assert sum(found.breakdown.parts.values()) == pytest.approx(seconds, rel=1e-12)
    assert found.throughput_samples_per_s == pytest.approx(64 / seconds)
    assert found.throughput_tokens_per_s == pytest.approx(64 * 1024 / seconds)
    stages = found.placement.stages
    assert [stage.memory_bytes for stage in stages] == [each.total_bytes for each in ranked.memory.stages]
    # The slowest stage's micro-batches, the pipeline's fill, and the longest synchronisation are the step.
    parts = ranked.time
    whole_s = found.placement.num_micro_batches * max(stage.time_s for stage in stages)
    whole_s += max(stage.sync_s for stage in stages) + parts.bubble_s + parts.overhead_s + parts.waiting_s
    assert whole_s == pytest.approx(seconds, rel=1e-12)
    assert found.placement.devices_used == plan.num_devices
    assert {stage.is_recomputed for stage in stages} == {plan.recompute is not Recompute.NONE}
    layers = sorted(
        layer for stage in stages for span in stage.chunks or (stage,) for layer in range(span.first, span.last + 1)
    )
    assert layers == list(range(MODEL.num_layers + 2))
    text = json.dumps(evaluation_to_json(found))
    assert evaluation_from_json(json.loads(text)) == found


def test_chunks_take_turns() -> None:
    """Eight blocks on two stages of two chunks: the first has blocks 1, 2 and 5, 6 with the embedding."""
    first, second = stage_chunks(ParallelPlan(pipeline=2, interleave=2), (4, 4))
    assert [(span.first, span.last) for span in first] == [(0, 2), (5, 6)]
    assert [(span.first, span.last) for span in second] == [(3, 4), (7, 9)]


@pytest.mark.parametrize("tensor", [1, 2])
def test_a_plan_that_is_a_placement_is_worth_what_the_placement_is(tensor) -> None:
    """One stage, no ZeRO, ideal software: the objective of searches says the same, and so do the schedules."""
    job = chip_job(micro_batch=4, num_devices=8, global_batch=32)
    plan = ParallelPlan(tensor=tensor, data=8 // tensor, micro_batch=4, is_sequence_parallel=tensor > 1)
    (ranked,) = rank_plans(job.model, job.training, [plan], machine=job.machine).ranked
    found = evaluate_plan(job, ranked, bound_s=0.0)
    scenario = Scenario(
        models=(job.model,),
        cluster=Cluster(8, job.machine.network),
        global_batch=32,
        tensor_parallel=(tensor,),
        recompute=RecomputePolicy.NEVER,
    )
    known = Objective(scenario).evaluate_accelerator(job.accelerator, 4)
    assert len(known.placement.stages) == 1
    for name in ("throughput_samples_per_s", "iteration_time_s", "mfu", "throughput_tokens_per_s"):
        assert getattr(found, name) == pytest.approx(getattr(known, name), rel=1e-9), name
    assert found.schedules == known.schedules
    assert found.num_parameters == known.num_parameters
    assert found.throughput_bound_samples_per_s >= found.throughput_samples_per_s * (1 - 1e-12)


def test_a_bound_below_the_step_is_a_gap_of_the_throughput() -> None:
    job = chip_job(micro_batch=4, num_devices=8, global_batch=32)
    plan = ParallelPlan(tensor=2, data=4, micro_batch=4)
    (ranked,) = rank_plans(job.model, job.training, [plan], machine=job.machine).ranked
    for share in (0.9, 1.0):
        told = evaluate_plan(job, ranked, bound_s=share * ranked.time.seconds)
        assert told.throughput_bound_samples_per_s == pytest.approx(told.throughput_samples_per_s / share)
        assert told.rate_gap == pytest.approx(1.0 - share)
        assert told.schedule_gap >= told.rate_gap


def test_what_does_not_fit_or_exceeds_a_budget_is_a_value() -> None:
    job = real_job(memory_bytes=2**30)
    plans = list(list_plans(MODEL, job.training, num_devices=32, choices=PlanChoices(micro_batch=(1,))))
    nothing = evaluate_ranking(job, rank_plans(MODEL, job.training, plans, machine=job.machine))
    assert nothing.status is EvaluationStatus.OUT_OF_MEMORY
    assert f"none of {len(plans)} plans fits" in nothing.reason
    assert (nothing.throughput_samples_per_s, nothing.placement) == (0.0, None)
    assert dict(nothing.constraints)["memory"] > 0
    assert evaluation_from_json(json.loads(json.dumps(evaluation_to_json(nothing)))) == nothing
    for budget, status in (
        ({"max_area_mm2": 800.0}, EvaluationStatus.OVER_AREA),
        ({"max_tdp_w": 699.0}, EvaluationStatus.OVER_TDP),
        ({"max_area_mm2": 814.0, "max_tdp_w": 700.0}, EvaluationStatus.FEASIBLE),
    ):
        strict = real_job(**budget)
        ranking = rank_plans(MODEL, strict.training, plans[:1], machine=strict.machine)
        assert evaluate_ranking(strict, ranking).status is status


def test_figures_that_are_not_published_are_null_and_come_back() -> None:
    job = replace(real_job(), area_mm2=None, tdp_w=None)
    ranking = rank_plans(MODEL, job.training, PLANS[1:2], machine=job.machine)
    found = evaluate_ranking(job, ranking)
    line = evaluation_to_json(found)
    assert [line[name] for name in ("area_mm2", "tdp_w", "throughput_per_tdp", "energy_per_iteration_j")] == [None] * 4
    assert found.known("area_mm2") is None
    assert found.known("mfu") == found.mfu
    assert evaluation_from_json(json.loads(json.dumps(line))) == found


def test_an_evaluation_of_a_placement_has_no_more_than_it_had() -> None:
    """Files of before are read and written as they were."""
    scenario = Scenario(
        models=(load_model("tiny"),), cluster=Cluster(8, load_network("two-level", num_devices=8)), global_batch=16
    )
    line = evaluation_to_json(Objective(scenario).evaluate_accelerator(load_architecture("phaze-tpu-v4"), 2))
    assert set(line["breakdown"]) == {
        "tensor_cores_s", "vector_cores_s", "memory_bound_s", "tensor_parallel_collectives_s", "boundary_transfers_s",
        "gradient_all_reduce_s", "bubble_s", "update_s",
    }  # fmt: skip
    assert "plan" not in line["placement"]
    assert all("chunks" not in stage for stage in line["placement"]["stages"])
    assert None not in line.values()
    assert evaluation_to_json(evaluation_from_json(line)) == line


@pytest.mark.parametrize(("has_shards", "tensor"), [(False, 2), (True, 2), (False, 4), (False, 1)])
def test_a_plan_that_is_a_placement_has_its_causes_utilisations_and_energy(has_shards, tensor):
    """One stage under ideal software: both engines count the same work, each by code of its own.

    Sequence shards gather more in backward, which placements leave out: it costs energy and no time.
    """
    job = {"devices": 16, "global_batch": 64, "tensor_parallel": (tensor,), "is_sequence_parallel": has_shards}
    placed = make_scenario("bert-large", **job, published_form="phaze", recompute="never")
    free = {"pipeline": (1,), "zero": (0,), "micro_batch": (4,), "gradient_bits": "16", "recompute": "none"}
    planned = make_scenario("bert-large", **job, **free, software="ideal", estimator="analytic", silicon="phaze")
    chip = load_architecture("phaze-tpu-v4")
    old, new = Objective(placed).evaluate_accelerator(chip, 4), Objective(planned).evaluate_accelerator(chip)
    assert len(old.placement.stages) == 1
    for name in ("iteration_time_s", "tc_utilisation", "vc_utilisation"):
        assert getattr(new, name) == pytest.approx(getattr(old, name), rel=1e-12), name
    for name, seconds in old.breakdown.parts.items():
        assert getattr(new.breakdown, name) == pytest.approx(seconds, rel=1e-9, abs=1e-15), name
    # Two gathers of a block and one of the head, of 4 x 512 tokens of 1,024 numbers of two bytes, half of it by each.
    gathered = 2 * (24 * 2 + 1) * 4 * 512 * 1024 * 2 / 2
    more_j = has_shards * 16 * gathered * 8e-12 * load_constants().value("energy.link_pj_per_bit")
    assert new.energy_per_iteration_j == pytest.approx(old.energy_per_iteration_j + more_j, rel=1e-12)


def test_experts_update_on_fewer_replicas_than_all_else():
    """As the price has it: of mixtral's blocks nearly all is experts, which an eighth of the replicas hold."""
    degrees = {"pipeline": (2,), "tensor_parallel": (1,), "data": (32,), "zero": (1,), "interleave": (1,)}
    scenario = make_scenario(
        "mixtral-8x7b", devices=64, global_batch=64, **degrees, expert_parallel=(8,), micro_batch=(1,)
    )
    plan = ParallelPlan(pipeline=2, data=32, expert=8, zero=1)
    step = compile_step(scenario.models[0], scenario.training_of(scenario.models[0], 1), plan, stack=scenario.stack)
    block = step.layers[1].graph
    share = block.num_expert_parameters / block.num_parameters
    expected = (1 - share) / 32 + share / 4
    assert plan_runs(step)[0, 1, 2] == pytest.approx(16 * expected)
    assert expected > 6 / 32


def test_figures_of_a_plan_hold_together():
    """Causes sum to the step, nothing is busier than all the time, sharded updates take less, recomputation more."""
    chip = load_architecture("phaze-tpu-v4")
    job = {"devices": 16, "global_batch": 64, "tensor_parallel": (2,), "pipeline": (2,), "interleave": (1,)}
    by = {
        (zero, recompute): Objective(
            make_scenario("bert-large", **job, micro_batch=(1,), zero=(zero,), recompute=recompute, attention="unfused",
                          software="ideal", sequence_length=256, is_sequence_parallel=False, silicon="phaze")
        ).evaluate_accelerator(replace(chip, hbm_bytes=1 << 37))
        for zero in (0, 1, 3) for recompute in ("none", "selective", "full")
    }  # fmt: skip
    for found in by.values():
        assert sum(found.breakdown.parts.values()) == pytest.approx(found.iteration_time_s, rel=1e-9)
        assert 0 < found.tc_utilisation < 1
        assert 0 < found.vc_utilisation < 1
        assert found.average_power_w * 16 * found.iteration_time_s == pytest.approx(found.energy_per_iteration_j)
        assert found.unknown == ()
    for zero in (0, 1, 3):
        none, some, full = (by[zero, recompute] for recompute in ("none", "selective", "full"))
        work = [found.tc_utilisation * found.iteration_time_s for found in (none, some, full)]
        assert work[0] < work[1] < work[2] < 1.4 * work[0]
        assert none.energy_per_iteration_j < full.energy_per_iteration_j
    lanes = [by[zero, "none"].vc_utilisation * by[zero, "none"].iteration_time_s for zero in (0, 1)]
    assert lanes[1] < lanes[0]
