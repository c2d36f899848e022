"""The best full plan of designed chips equals that of pricing every plan with every schedule solved; bounds hold."""

import numpy as np
import pytest
from kits.plain_steps import plain_batch
from kits.scenarios import make_point, make_scenario

from phaze_opt.cost.clocks import ScheduleClock
from phaze_opt.cost.price_step import StackColumns, lower_batch
from phaze_opt.cost.stacks import load_stack
from phaze_opt.cost.step_traffic import plan_network
from phaze_opt.hardware.fitted import load_fitted
from phaze_opt.objective.best_plan import layer_classes, least_steps_s
from phaze_opt.objective.bounds import ThroughputBounder
from phaze_opt.objective.evaluate import Objective, load_estimator
from phaze_opt.objective.scenario import Scenario
from phaze_opt.plan.plan_search import Machine, rank_plans
from phaze_opt.schedule.options import ScheduleOptions
from phaze_opt.workload.plan import PlanChoices

FULL = PlanChoices(tensor=(1, 2), expert=(), interleave=(), micro_batch=(1, 2, 4), zero=(0, 1, 2, 3))
CHIPS = (
    make_point(micro_batch=1),
    make_point(micro_batch=1, num_tc=64, num_vc=8, tc_width=16, tc_depth=32, vc_width=16),
    make_point(micro_batch=1, num_tc=2, num_vc=4, tc_width=256, tc_depth=256, vc_width=256, glb_bytes=1 << 22),
)
CASES = [
    ("tiny", "ideal", "two-level"),
    ("tiny", "maxtext", "phaze"),
    ("tiny", "megatron-core", "two-level"),
    ("tiny", "deepspeed-zero3-2021", "two-level"),
]


def full_scenario(model: str, software: str, network: str = "two-level") -> Scenario:
    return make_scenario(model, network=network, plans=FULL, stack=load_stack(software, load_fitted()))


@pytest.mark.parametrize(("model", "software", "network"), CASES)
def test_the_best_plan_is_that_of_all_plans_with_all_schedules(model: str, software: str, network: str) -> None:
    scenario = full_scenario(model, software, network)
    objective = Objective(scenario)
    for point in CHIPS:
        chip = objective.accelerator(point)
        found = objective.plan(chip)
        clock = ScheduleClock(
            chip,
            estimator=load_estimator(scenario.estimator),
            exclusivity=scenario.exclusivity,
            options=ScheduleOptions(mip_gap=scenario.schedule_gap, mip_nodes=scenario.schedule_nodes),
        )
        machine = Machine(clock, chip.hbm_bytes, scenario.cluster.network, scenario.stack)
        training = scenario.training_of(scenario.models[0], 1)
        ranking = rank_plans(scenario.models[0], training, objective.planned(0).prices.plans, machine=machine)
        assert found is not None
        assert found.step.seconds == pytest.approx(ranking.ranked[0].time.seconds, rel=1e-12)
        assert found.bound_s <= found.step.seconds * (1 + 1e-12)
        assert found.bound_s == pytest.approx(found.step.seconds, rel=0.05)


@pytest.mark.parametrize(("model", "software", "network"), CASES)
def test_bounds_are_not_below_what_is_attained(model: str, software: str, network: str) -> None:
    objective = Objective(full_scenario(model, software, network))
    bounds = ThroughputBounder(objective).bound_points(CHIPS)
    for point, bound in zip(CHIPS, bounds, strict=True):
        found = objective.plan(objective.accelerator(point))
        assert found is not None
        attained = objective.scenario.global_batch / found.step.seconds
        assert attained <= bound.throughput_samples_per_s * (1 + 1e-9)
        assert attained >= 0.5 * bound.throughput_samples_per_s


@pytest.mark.parametrize("software", ["megatron-core", "llm-foundry"])
def test_chips_are_bounded_together_as_each_alone(software: str) -> None:
    """Of two memories and one that nothing fits, by what all plans' bounds are on each chip."""
    planned = Objective(full_scenario("tiny", software)).planned(0)
    prices, rng = planned.prices, np.random.default_rng(0)
    memory_bytes = np.array([np.inf, 0.0, np.quantile(prices.peak_bytes, 0.3)])[rng.integers(0, 3, 12)]
    makespan_s = rng.uniform(1e-4, 1e-3, (12, len(prices.sets), 3, planned.compiled.options[0].num_phases))
    attention_s = rng.uniform(1e-5, 1e-4, makespan_s.shape[:3])
    found = least_steps_s(planned, makespan_s, attention_s, memory_bytes=memory_bytes)
    steps = [prices.step(plan) for plan in range(len(prices.plans))]
    batch = plain_batch(steps, [plan_network(prices.network, step.plan) for step in steps])
    stacks, sets = StackColumns([prices.stack] * len(steps)), prices.set_of
    for chip, capacity in enumerate(memory_bytes):
        alone = lower_batch(batch, layer_classes(makespan_s[chip])[sets], attention_s[chip][sets], stacks)
        least = alone[prices.peak_bytes <= capacity].min(initial=np.inf)
        assert found[chip] == pytest.approx(least, rel=1e-12)
    assert len(set(found)) > 8


def test_nothing_fits_a_memory_too_small() -> None:
    objective = Objective(full_scenario("bert-large", "ideal"))
    chip = objective.accelerator(make_point(hbm_bytes=1 << 20))
    assert objective.plan(chip) is None
    assert objective.planned(0).prices.peak_bytes.min() > chip.hbm_bytes


def test_layers_are_timed_once_a_set() -> None:
    """Degrees that decide graphs make a set; all else only puts layers together."""
    prices = Objective(full_scenario("tiny", "ideal")).planned(0).prices
    sets = {(plan.tensor, plan.micro_batch) for plan in prices.plans}
    assert len(prices.sets) == len(sets)
    assert np.unique(prices.set_of).tolist() == list(range(len(sets)))
