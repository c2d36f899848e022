"""Pipelines of several designs under full plans: the least price of all, never above the best design, ties by TDP."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from kits.mixed_pipelines import price_everything
from kits.scenarios import make_point

from phaze_opt.cost.compiled_step import compile_step
from phaze_opt.cost.price_step import LayerTimes, StageDevices, price_step
from phaze_opt.cost.stacks import load_stack
from phaze_opt.cost.step_traffic import plan_network
from phaze_opt.errors import InputError
from phaze_opt.hardware.accelerator import table_of
from phaze_opt.hardware.fitted import load_fitted
from phaze_opt.hardware.network import Cluster
from phaze_opt.hardware.networks import load_network
from phaze_opt.objective.best_placement import bound_option, solve_option
from phaze_opt.objective.evaluate import Objective
from phaze_opt.objective.heterogeneous import evaluate_heterogeneous
from phaze_opt.objective.plan_refinement import layer_classes
from phaze_opt.objective.scenario import PLANNED, Scenario
from phaze_opt.units import gib_to_bytes
from phaze_opt.workload.config import load_model
from phaze_opt.workload.plan import PlanChoices, Recompute

PLANS = PlanChoices(tensor=(1, 2), interleave=(), micro_batch=(1, 2), zero=(0, 1))


def design(num_tc, num_vc, width=128, depth=128, **changes):
    """A chip of little memory."""
    sizes = {"num_tc": num_tc, "num_vc": num_vc, "tc_width": width, "tc_depth": depth}
    return make_point(**(sizes | {"hbm_bytes": gib_to_bytes(16), "micro_batch": PLANNED} | changes))


POINTS = (design(2, 128), design(2, 8), design(8, 32, 16, 64))
"""Strong in vectors, weak, and strong in small matrices."""


def objective_of(num_layers=3, software="maxtext", devices=4, **choices):
    """A chain of few blocks on few devices."""
    model = replace(load_model("tiny"), num_layers=num_layers, vocab_size=8192)
    plans, stack = replace(PLANS, **choices), load_stack(software, load_fitted())
    network = load_network("two-level", num_devices=devices)
    given = {"schedule_gap": 0.0, "sequence_length": 256, "plans": plans, "stack": stack}
    return Objective(Scenario((model,), Cluster(devices, network), 16, **given))


def solved_times(objective, point, layers):
    """Layer times with every schedule solved."""
    planned, chip = objective.planned(0), objective.accelerator(point)
    estimates, option = objective.estimate(chip, PLANNED), planned.compiled.options[layers]
    bounds = objective._pools_of(0).bounds_and_choices(planned.compiled, estimates, table_of(chip))
    times = bound_option(option, estimates, chip, scenario=objective.scenario)
    solve_option(option, times, estimates, chip, scenario=objective.scenario)
    return LayerTimes(layer_classes(times.upper_s, option.graph), bounds.attention_s[0, layers])


def least_of_all(objective, points):
    """The least price over degrees, cuts, recomputations and the design of every stage."""
    degrees = objective.planned(0).degrees
    memories = [float(point.hbm_bytes) for point in points]
    known, least_s = {}, np.inf
    for number, layers in enumerate(degrees.layers_of.tolist()):
        if layers not in known:
            known[layers] = [solved_times(objective, point, layers) for point in points]
        _, seconds = price_everything(degrees, number, known[layers], memories)
        least_s = min(least_s, seconds.min(initial=np.inf))
    return least_s


@pytest.mark.parametrize(
    ("software", "num_layers", "choices"),
    [
        pytest.param("maxtext", 3, {}, marks=pytest.mark.slow),
        ("megatron-core", 4, {"pipeline": (2,)}),
        ("maxtext", 4, {"pipeline": (2,), "interleave": (2,)}),
        ("megatron-core", 3, {"pipeline": (4,), "tensor": (1,), "recompute": (Recompute.NONE, Recompute.FULL)}),
    ],
)
def test_the_step_is_the_least_over_degrees_cuts_recomputations_and_designs(software, num_layers, choices):
    objective = objective_of(num_layers, software, **choices)
    found, uniform = evaluate_heterogeneous(objective, POINTS), [objective.evaluate(point) for point in POINTS]
    assert found.iteration_time_s == pytest.approx(least_of_all(objective, POINTS), rel=1e-9)
    assert found.iteration_time_s <= min(each.iteration_time_s for each in uniform) * (1 + 1e-9)
    assert found.uniform.throughput_samples_per_s == max(each.throughput_samples_per_s for each in uniform)
    assert found.gain >= 0.0


def repriced(objective, found, points):
    """The step of a pipeline with these designs, stage by stage, from graphs and schedules of its own."""
    scenario, plan = objective.scenario, found.placement.plan
    degrees = objective.planned(0).degrees
    layers = next(
        int(own)
        for number, own in enumerate(degrees.layers_of)
        if replace(degrees.step(number).plan, recompute=Recompute.NONE)
        == replace(plan, recompute=Recompute.NONE, blocks=(), stage_recompute=())
    )
    step = compile_step(scenario.models[0], degrees.prices.training, plan, stack=scenario.stack)
    distinct = sorted(set(points))
    devices = StageDevices(
        [solved_times(objective, point, layers) for point in distinct], [distinct.index(each) for each in points]
    )
    return price_step(step, devices, plan_network(scenario.cluster.network, plan)).seconds


def test_stages_differ_where_it_pays_and_are_repriced_alone():
    """Figures are means over stages."""
    objective = objective_of(5, pipeline=(2,), data=(1, 2))
    found = evaluate_heterogeneous(objective, POINTS)
    points = [each.point for each in found.stages]
    assert repriced(objective, found, points) == pytest.approx(found.iteration_time_s, rel=1e-9)
    assert found.num_designs > 1
    assert found.gain > 0.0
    assert found.placement.plan.pipeline == len(found.stages) == len(found.placement.stages)
    assert found.micro_batch == found.placement.plan.micro_batch
    assert sum(count for stage in found.stages for _, count in stage.layers) == 7
    assert [found.stages[0].layers[0], found.stages[-1].layers[-1]] == [("embedding", 1), ("head", 1)]
    for stage in found.stages:
        assert stage.stage.memory_bytes <= stage.point.hbm_bytes
    assert found.mean_tdp_w == pytest.approx(np.mean([each.tdp_w for each in found.stages]))


def test_one_candidate_is_its_uniform_evaluation():
    objective = objective_of(4)
    for point in POINTS:
        uniform, found = objective.evaluate(point), evaluate_heterogeneous(objective, [point])
        assert found.placement.plan == uniform.placement.plan
        assert found.placement == uniform.placement
        assert found.throughput_samples_per_s == uniform.throughput_samples_per_s
        assert found.throughput_per_tdp == pytest.approx(uniform.throughput_per_tdp, rel=1e-12)
        assert (found.num_designs, found.gain) == (1, 0.0)


def test_of_equal_pipelines_each_stage_has_the_least_tdp():
    """Buffers that nobody needs are left out; and no stage can take a chip of less TDP and the step stay."""
    objective = objective_of(5, pipeline=(4,), data=(1, 2))
    cheap = design(8, 8), design(16, 8), design(16, 8, 16, 64)
    costly = tuple(replace(point, glb_bytes=2 * point.glb_bytes) for point in cheap)
    for one, other in zip(cheap, costly, strict=True):
        small, large = objective.evaluate(one), objective.evaluate(other)
        assert small.iteration_time_s == large.iteration_time_s
        assert small.tdp_w < large.tdp_w
    found, plain = evaluate_heterogeneous(objective, costly + cheap), evaluate_heterogeneous(objective, cheap)
    assert {stage.point for stage in found.stages} <= set(cheap)
    assert found.stages == plain.stages
    assert (found.gain, found.num_designs) == (0.0, 2)
    assert found.gain_per_tdp > 0.05
    assert found.iteration_time_s == plain.iteration_time_s
    points = [each.point for each in found.stages]
    tdp = {point: objective.evaluate(point).tdp_w for point in cheap}
    for stage, point in product(range(len(points)), cheap):
        if tdp[point] < tdp[points[stage]]:
            other = [*points[:stage], point, *points[stage + 1 :]]
            assert repriced(objective, found, other) > found.iteration_time_s * (1 + 1e-10)


def test_candidates_in_any_order_give_one_answer():
    objective = objective_of(4, pipeline=(2, 4))
    first, last = (evaluate_heterogeneous(objective, points) for points in (POINTS, POINTS[::-1] + POINTS))
    assert first == last


def test_a_small_memory_holds_a_stage_where_it_holds_no_replica():
    """A chip on which no plan fits may run a stage."""
    objective = objective_of(
        5, pipeline=(2,), data=(2,), tensor=(1,), micro_batch=(1,), zero=(0,), recompute=(Recompute.NONE,)
    )
    plain = evaluate_heterogeneous(objective, POINTS)
    light = min(plain.stages, key=lambda each: each.stage.memory_bytes)
    small = replace(light.point, hbm_bytes=int(light.stage.memory_bytes) + 1)
    found = evaluate_heterogeneous(objective, (small, *(point for point in POINTS if point != light.point)))
    assert not objective.evaluate(small).is_feasible
    assert evaluate_heterogeneous(objective, [small]) is None
    assert found.iteration_time_s == plain.iteration_time_s
    assert small in {stage.point for stage in found.stages}


def test_designs_over_a_budget_are_no_candidates():
    objective = objective_of()
    powers = sorted(objective.evaluate(point).tdp_w for point in POINTS)
    limited = Objective(replace(objective.scenario, max_tdp_w=powers[1]))
    assert evaluate_heterogeneous(limited, POINTS).num_candidates == 2
    none = Objective(replace(objective.scenario, max_tdp_w=powers[0] / 2))
    assert evaluate_heterogeneous(none, POINTS) is None


def test_micro_batches_are_the_plans():
    with pytest.raises(InputError) as caught:
        evaluate_heterogeneous(objective_of(), POINTS, micro_batches=(1,))
    assert caught.value.key == "micro_batches"
