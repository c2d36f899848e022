"""The best full plan of designed chips equals that of every plan with every schedule solved; bounds hold."""

import numpy as np
import pytest
from kits.scenarios import make_point, make_scenario

from phaze_opt.cost.clocks import ScheduleClock
from phaze_opt.cost.stacks import load_stack
from phaze_opt.hardware.fitted import load_fitted
from phaze_opt.objective.bounds import ThroughputBounder
from phaze_opt.objective.evaluate import Objective, load_estimator
from phaze_opt.objective.scenario import Scenario
from phaze_opt.plan.optimum import optimal_plan
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
    ("tiny", "ideal", "two-level", {}),
    ("tiny", "maxtext", "phaze", {"pipeline": (2, 4)}),
    ("tiny", "megatron-core", "two-level", {"pipeline": (2,)}),
    ("tiny", "deepspeed-zero3-2021", "two-level", {}),
]


def full_scenario(model: str, software: str, network: str = "two-level", **choices: tuple[int, ...]) -> Scenario:
    plans = PlanChoices(**({name: getattr(FULL, name) for name in FULL.__dataclass_fields__} | choices))
    return make_scenario(model, network=network, plans=plans, stack=load_stack(software, load_fitted()))


def machine_of(objective: Objective, chip) -> Machine:
    scenario = objective.scenario
    clock = ScheduleClock(
        chip,
        estimator=load_estimator(scenario.estimator),
        exclusivity=scenario.exclusivity,
        options=ScheduleOptions(mip_gap=scenario.schedule_gap, mip_nodes=scenario.schedule_nodes),
    )
    return Machine(clock, chip.hbm_bytes, scenario.cluster.network, scenario.stack)


@pytest.mark.parametrize(("model", "software", "network", "choices"), CASES)
def test_the_best_plan_is_that_of_all_plans_with_all_schedules(model, software, network, choices) -> None:
    scenario = full_scenario(model, software, network, **choices)
    objective = Objective(scenario)
    training = scenario.training_of(scenario.models[0], 1)
    for point in CHIPS:
        chip = objective.accelerator(point)
        found, machine = objective.plan(chip), machine_of(objective, chip)
        best = optimal_plan(scenario.models[0], training, num_devices=16, choices=scenario.plans, machine=machine).best
        even = rank_plans(scenario.models[0], training, objective.planned(0).prices.plans, machine=machine)
        assert found is not None
        assert best is not None
        assert found.ranked.time.seconds == pytest.approx(best.time.seconds, rel=1e-9)
        assert found.ranked.time.seconds <= even.ranked[0].time.seconds * (1 + 1e-9)
        assert found.bound_s <= found.ranked.time.seconds * (1 + 1e-12)
        assert found.bound_s == pytest.approx(found.ranked.time.seconds, rel=0.05)


@pytest.mark.parametrize(("model", "software", "network", "choices"), CASES)
def test_bounds_are_not_below_what_is_attained(model, software, network, choices) -> None:
    objective = Objective(full_scenario(model, software, network, **choices))
    bounds = ThroughputBounder(objective).bound_points(CHIPS)
    for point, bound in zip(CHIPS, bounds, strict=True):
        found = objective.evaluate(point)
        assert found.is_feasible
        assert found.throughput_samples_per_s <= bound.throughput_samples_per_s * (1 + 1e-9)
        assert found.throughput_samples_per_s >= 0.3 * bound.throughput_samples_per_s


def test_an_evaluation_is_of_its_plan() -> None:
    objective = Objective(full_scenario("tiny", "maxtext"))
    found = objective.evaluate(CHIPS[0])
    plan = found.placement.plan
    assert sum(found.breakdown.parts.values()) == pytest.approx(found.iteration_time_s, rel=1e-12)
    assert found.micro_batch == plan.micro_batch
    assert found.placement.devices_used == plan.num_devices <= 16
    assert {entry.phase for entry in found.schedules} == {"forward", "backward", "update", "again"}


def test_nothing_fits_a_memory_too_small() -> None:
    objective = Objective(full_scenario("bert-large", "ideal"))
    point = make_point(hbm_bytes=1 << 20)
    assert objective.plan(objective.accelerator(point)) is None
    evaluation = objective.evaluate(point)
    assert evaluation.status == "out_of_memory"
    assert "GiB" in evaluation.reason
    (bound,) = ThroughputBounder(objective).bound_points([point])
    assert bound.reason


def test_layers_are_timed_once_a_set() -> None:
    """Degrees that decide graphs make a set; all else only puts layers together."""
    prices = Objective(full_scenario("tiny", "ideal")).planned(0).prices
    sets = {(plan.tensor, plan.micro_batch) for plan in prices.plans}
    assert len(prices.sets) == len(sets)
    assert np.unique(prices.set_of).tolist() == list(range(len(sets)))
