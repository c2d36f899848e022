"""Ranking plans: the same times as pricing each alone, memory respected, order right."""

from dataclasses import replace

import numpy as np
import pytest
from kits.plain_plans import plain_ranking
from kits.steps import estimate_step

from phaze_opt.cost.clocks import MachineClock
from phaze_opt.cost.stacks import load_stack
from phaze_opt.cost.step_traffic import plan_network
from phaze_opt.errors import InputError
from phaze_opt.hardware.device import ComputePath
from phaze_opt.hardware.device_catalogue import load_device
from phaze_opt.hardware.fitted import load_fitted
from phaze_opt.hardware.networks import load_network
from phaze_opt.plan.plan_search import Machine, PlanRanking, rank_plans, without_beaten
from phaze_opt.plan.plan_space import list_plans
from phaze_opt.workload.config import load_model
from phaze_opt.workload.plan import ParallelPlan, PlanChoices, Recompute
from phaze_opt.workload.training import TrainingSpec

MODEL = load_model("gpt2-xl")
TRAINING = TrainingSpec(micro_batch=1, sequence_length=1024, global_batch=64)
FITTED = load_fitted()
DEVICE = load_device("a100-80g")
NETWORK = load_network("dgx-a100", num_devices=32)
STACK = load_stack("megatron-2021", FITTED)
CHOICES = PlanChoices(tensor=(1, 5), interleave=(1, 2), zero=(0, 1), micro_batch=(1, 2))
PLANS = tuple(list_plans(MODEL, TRAINING, num_devices=30, choices=CHOICES))


def _rank(memory_bytes: float) -> PlanRanking:
    machine = Machine(MachineClock(DEVICE, ComputePath.BF16, FITTED), memory_bytes, NETWORK, STACK)
    return rank_plans(MODEL, TRAINING, PLANS, machine=machine)


def test_every_plan_is_priced_as_if_alone() -> None:
    """Shared layer times and batches change nothing."""
    ranking = _rank(1e15)
    assert len(ranking.ranked) == len(PLANS)
    assert ranking.num_misfits == 0
    for ranked in ranking.ranked[:: max(1, len(PLANS) // 12)]:
        alone = estimate_step(MODEL, TRAINING, ranked.plan, device=DEVICE, network=NETWORK, stack=STACK, fitted=FITTED)
        assert ranked.time.seconds == pytest.approx(alone.seconds, rel=1e-12)


@pytest.mark.parametrize("order", [tuple(Recompute), tuple(Recompute)[::-1]])
def test_software_that_spares_recomputation_is_priced_as_if_alone(order: tuple[Recompute, ...]) -> None:
    """llm-foundry does not run the last matmul of a block again: times of layers are not shared across that."""
    stack = load_stack("llm-foundry", FITTED)
    assert stack.kept_operators
    plans = [ParallelPlan(data=16, micro_batch=2, zero=3, recompute=each) for each in order]
    machine = Machine(MachineClock(DEVICE, ComputePath.BF16, FITTED), 1e15, NETWORK, stack)
    for ranked in rank_plans(MODEL, TRAINING, plans, machine=machine).ranked:
        alone = estimate_step(MODEL, TRAINING, ranked.plan, device=DEVICE, network=NETWORK, stack=stack, fitted=FITTED)
        assert ranked.time.seconds == pytest.approx(alone.seconds, rel=1e-12)


@pytest.mark.parametrize("software", ["megatron-2021", "llm-foundry", "ideal"])
def test_ranks_as_plans_compiled_and_built_one_by_one_do(software: str) -> None:
    """Order, misfits and memory exactly, times to rounding; half of the plans fit."""
    stack = load_stack(software, FITTED)
    machine = Machine(MachineClock(DEVICE, ComputePath.BF16, FITTED), 1e15, NETWORK, stack)
    peaks = sorted(plain_ranking(MODEL, TRAINING, PLANS, machine=machine).peak_bytes)
    machine = replace(machine, memory_bytes=peaks[len(peaks) // 2])
    plain, found = (rank(MODEL, TRAINING, PLANS, machine=machine) for rank in (plain_ranking, rank_plans))
    assert list(found.ranked.plans) == [each.plan for each in found.ranked] == plain.plans
    assert found.ranked.peak_bytes.tolist() == [each.memory.peak_bytes for each in found.ranked] == plain.peak_bytes
    assert (found.num_misfits, found.least_bytes) == (plain.num_misfits, plain.least_bytes)
    assert [each.time.seconds for each in found.ranked] == pytest.approx(plain.seconds, rel=1e-12)


def test_some_of_a_ranking_are_told_as_all_are() -> None:
    ranked = _rank(1e15).ranked
    everything = list(ranked)
    assert list(ranked[3:20:4]) == everything[3:20:4]
    assert ranked[-1] == everything[-1]
    assert list(ranked.take(np.array([5, 2]))) == [everything[5], everything[2]]
    with pytest.raises(IndexError):
        ranked[len(ranked)]


def test_sorted_by_time() -> None:
    seconds = [each.time.seconds for each in _rank(1e15).ranked]
    assert len(set(seconds)) > 1
    assert seconds == sorted(seconds)


def test_what_does_not_fit_is_counted() -> None:
    """The memory budget splits the plans exactly at their own peaks."""
    peaks = sorted(each.memory.peak_bytes for each in _rank(1e15).ranked)
    middle = peaks[len(peaks) // 2]
    ranking = _rank(middle)
    fitting = sum(peak <= middle for peak in peaks)
    assert (len(ranking.ranked), ranking.num_misfits) == (fitting, len(peaks) - fitting)
    assert ranking.least_bytes == min(peak for peak in peaks if peak > middle)
    assert all(each.memory.peak_bytes <= middle for each in ranking.ranked)


def test_full_recomputation_costs_time_and_saves_memory() -> None:
    by_plan = {each.plan: each for each in _rank(1e15).ranked}
    pairs = [
        (each, by_plan[replace(plan, recompute=Recompute.FULL)])
        for plan, each in by_plan.items()
        if plan.recompute is Recompute.NONE
    ]
    assert pairs
    for without, full in pairs:
        assert full.time.seconds > without.time.seconds
        assert full.memory.peak_bytes < without.memory.peak_bytes


def test_plans_that_others_of_their_degrees_beat_are_left_out() -> None:
    """By brute force over pairs: gone is what another recomputation or ZeRO stage beats; softmax of 2021 keeps scores.

    Each that is gone is told with one that beats it and is there.
    """
    plans = list(dict.fromkeys(replace(plan, zero=stage) for plan in PLANS for stage in (0, 1, 2, 3)))
    for software in ("megatron-2021", "megatron-core"):
        machine = Machine(MachineClock(DEVICE, ComputePath.BF16, FITTED), 1e15, NETWORK, load_stack(software, FITTED))
        ranking = rank_plans(MODEL, TRAINING, plans, machine=machine)
        kept = without_beaten(ranking)
        every = list(ranking.ranked)
        beaten = {
            one.plan
            for place, one in enumerate(every)
            for other in every[:place]
            if replace(one.plan, recompute=other.plan.recompute, zero=other.plan.zero) == other.plan
            and other.memory.peak_bytes <= one.memory.peak_bytes
        }
        assert [each.plan for each in kept.ranked] == [each.plan for each in ranking.ranked if each.plan not in beaten]
        assert set(kept.beaten) == beaten
        by_plan = {each.plan: each for each in every}
        for plan, other in zip(kept.beaten, kept.beaten_by, strict=True):
            assert other not in beaten
            assert by_plan[other].time.seconds <= by_plan[plan].time.seconds * (1 + 1e-12)
            assert by_plan[other].memory.peak_bytes <= by_plan[plan].memory.peak_bytes
        in_vain = {plan for plan in beaten if plan.recompute is Recompute.SELECTIVE}
        everything = [plan for plan in plans if plan.recompute is Recompute.SELECTIVE]
        assert (len(in_vain) == len(everything)) == (software == "megatron-core")


def test_no_plan_is_refused() -> None:
    machine = Machine(MachineClock(DEVICE, ComputePath.BF16, FITTED), 1e15, NETWORK, STACK)
    with pytest.raises(InputError, match="no parallel plan of gpt2-xl"):
        rank_plans(MODEL, TRAINING, (), machine=machine)


def test_a_torus_is_mapped_to_every_plan() -> None:
    """Tensor groups and shards lie on axes of the torus, plan by plan, as validation prices them."""
    device = load_device("tpu-v5p")
    torus = load_network(device.network, num_devices=64)
    stack = load_stack("maxtext", FITTED)
    model = load_model("llama-2-7b")
    training = TrainingSpec(micro_batch=1, sequence_length=2048, global_batch=64)
    choices = PlanChoices(tensor=(1, 4), pipeline=(1,), zero=(3,), micro_batch=(1,), recompute=(Recompute.FULL,))
    plans = tuple(list_plans(model, training, num_devices=64, choices=choices))
    machine = Machine(MachineClock(device, ComputePath.BF16, FITTED), 1e15, torus, stack)
    ranking = rank_plans(model, training, plans, machine=machine)
    assert len(ranking.ranked) == 2
    for ranked in ranking.ranked:
        mapped = plan_network(torus, ranked.plan)
        assert [each.size for each in mapped.dimensions] == ([4, 16] if ranked.plan.tensor == 4 else [64])
        alone = estimate_step(model, training, ranked.plan, device=device, network=mapped, stack=stack, fitted=FITTED)
        assert ranked.time.seconds == pytest.approx(alone.seconds, rel=1e-12)
    assert plan_network(NETWORK, ranking.ranked[0].plan) is NETWORK
