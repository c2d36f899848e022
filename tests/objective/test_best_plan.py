"""The best full plan of designed chips equals that of pricing every plan with every schedule solved; bounds hold."""

import numpy as np
import pytest
from kits.scenarios import make_point, make_scenario

from phaze_opt.cost.clocks import ScheduleClock
from phaze_opt.cost.stacks import load_stack
from phaze_opt.hardware.fitted import load_fitted
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
