"""Designs with full plans: the plan found by refining is the least of all sets with every schedule solved."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from kits.planned import least_of_all

from phaze_opt.certify.check.plans.cut_check import CutCheck
from phaze_opt.cost.compiled_step import compile_step
from phaze_opt.cost.stacks import load_stack
from phaze_opt.errors import InputError
from phaze_opt.graph.traced import traced_workload
from phaze_opt.hardware.accelerator import table_of
from phaze_opt.hardware.chip_template import PointColumns
from phaze_opt.hardware.constants import load_constants
from phaze_opt.hardware.designed_chip import chips_of
from phaze_opt.hardware.fitted import load_fitted
from phaze_opt.hardware.network import Cluster
from phaze_opt.hardware.networks import load_network
from phaze_opt.objective import best_placement, scheduled_plan
from phaze_opt.objective.bound_phases import PhasePools
from phaze_opt.objective.evaluate import Objective
from phaze_opt.objective.evaluation import EvaluationStatus, evaluation_from_json, evaluation_to_json
from phaze_opt.objective.scenario import PLANNED, CommonMean, Scenario, build_scenario, make_scenario
from phaze_opt.objective.scenario_options import ScenarioOptions
from phaze_opt.objective.scheduled_plan import least_step, least_steps_s
from phaze_opt.schedule.solve import bound_compiled
from phaze_opt.space.known_spaces import phaze_space
from phaze_opt.workload.config import load_model
from phaze_opt.workload.plan import PlanChoices, Recompute
from phaze_opt.workload.software import IDEAL_STACK
from phaze_opt.workload.training import AttentionForm

EXACT = 1e-12
TRACED = str(Path(__file__).parents[1] / "traced_models" / "resnet18.json")
PLANS = PlanChoices(tensor=(1, 2), expert=(), interleave=(), micro_batch=(1, 2), zero=(0, 1, 3), expert_tensor=())
CASES = [
    ("tiny", "maxtext", 4),
    ("tiny", "megatron-core", 6),
    ("mixtral-8x7b", "maxtext", 3),
    ("mixtral-8x7b", "deepspeed-zero3-2021", 2),
]


def scenario_of(name, software, num_layers, **changes):
    """A chain of few blocks on eight devices."""
    model = replace(load_model(name), num_layers=num_layers)
    given = {"schedule_gap": 0.0, "sequence_length": 256, "plans": PLANS, "stack": load_stack(software, load_fitted())}
    return Scenario((model,), Cluster(8, load_network("two-level", num_devices=8)), 16, **(given | changes))


def points_of(rng, count, **axes):
    space = phaze_space()
    return [
        replace(space.point(int(at)), micro_batch=PLANNED, **axes)
        for at in rng.choice(space.size, count, replace=False)
    ]


@pytest.mark.parametrize(("name", "software", "num_layers"), CASES)
def test_the_plan_is_the_least_of_all_with_every_schedule_solved(name, software, num_layers):
    scenario = scenario_of(name, software, num_layers)
    objective, check = Objective(scenario), CutCheck(scenario, scenario.models[0], PLANS)
    for point in points_of(np.random.default_rng(num_layers), 3):
        evaluation = objective.evaluate(point)
        least_s = least_of_all(objective, point, check)
        if not evaluation.is_feasible:
            assert np.isinf(least_s)
            continue
        assert evaluation.iteration_time_s == pytest.approx(least_s, rel=EXACT)
        assert sum(evaluation.breakdown.parts.values()) == pytest.approx(evaluation.iteration_time_s, rel=1e-9)
        assert evaluation.throughput_bound_samples_per_s == evaluation.throughput_samples_per_s
        assert evaluation_from_json(evaluation_to_json(evaluation)) == evaluation
        assert evaluation.is_planned
        assert evaluation.placement.plan.micro_batch == evaluation.micro_batch


@pytest.mark.parametrize(("name", "software", "num_layers"), CASES[:3])
def test_bounds_of_many_chips_are_below_what_each_attains(name, software, num_layers):
    scenario = scenario_of(name, software, num_layers)
    objective = Objective(scenario)
    planned, pools = objective.planned(0), PhasePools(scenario.exclusivity)
    objective.grow_pools(pools, index=0)
    points = points_of(np.random.default_rng(1), 12)
    columns = PointColumns.of(points)
    chips = chips_of(columns, load_constants())
    bounds = pools.bounds_and_choices(planned.compiled, objective.estimate_table(chips, PLANNED), chips)
    least_s = least_steps_s(planned, bounds, memory_bytes=columns.hbm_bytes.astype(float))
    for row, point in enumerate(points):
        evaluation = objective.evaluate(point)
        attained_s = evaluation.iteration_time_s if evaluation.is_feasible else np.inf
        assert 0.25 * attained_s < least_s[row] <= attained_s * (1 + EXACT)


@pytest.mark.parametrize(("name", "software", "num_layers"), CASES[:3])
def test_the_least_bound_of_many_chips_is_that_of_every_plan(name, software, num_layers):
    """Sets of degrees that alike chips rule out together have no bound that is less, to the bit."""
    degrees = Objective(scenario_of(name, software, num_layers)).planned(0).degrees
    rng, shape = np.random.default_rng(num_layers), degrees.prices.layer_s(*_layers_of(degrees)).shape[1:]
    layer_s = rng.uniform(0.5, 1.0, shape) * rng.uniform(0.8, 1.2, (50, *shape)) * rng.uniform(1.0, 9.0, (50, 1, 1, 1))
    needs = degrees.prices.peak_bytes
    memory_bytes = rng.choice([needs.min() * 0.9, float(np.median(needs)), 1e15], 50)
    expected = [
        own[degrees.may_fit(capacity)].min(initial=np.inf)
        for own, capacity in zip(degrees.bounds_s(layer_s), memory_bytes.tolist(), strict=True)
    ]
    found = degrees.least_bounds_s(layer_s, memory_bytes)
    assert found.tolist() == expected
    assert 0 < np.isinf(found).sum() < len(found)


def _layers_of(degrees):
    """Times of one chip, as `layer_s` takes them."""
    sets = degrees.prices.sets
    layers = len(sets[0].parts)
    return np.ones((1, len(sets), layers, 4, 1)), np.ones((1, len(sets), layers))


def test_a_tighter_bound_of_one_chip_lies_between():
    scenario = scenario_of("tiny", "maxtext", 4)
    objective = Objective(scenario)
    planned, pools = objective.planned(0), PhasePools(scenario.exclusivity)
    objective.grow_pools(pools, index=0)
    for point in points_of(np.random.default_rng(2), 6, hbm_bytes=80 << 30):
        chip = objective.accelerator(point)
        estimates = objective.estimate(chip, PLANNED)
        bounds = pools.bounds_and_choices(planned.compiled, estimates, table_of(chip))
        closed_s = least_steps_s(planned, bounds, memory_bytes=np.array([float(chip.hbm_bytes)]))[0]
        _, least_s = least_step(planned, bounds, memory_bytes=float(chip.hbm_bytes))
        attained_s = objective.evaluate(point).iteration_time_s
        assert closed_s <= least_s * (1 + EXACT) <= attained_s * (1 + 2 * EXACT)


def test_a_chip_without_room_says_what_the_smallest_plan_needs():
    scenario = scenario_of("mixtral-8x7b", "maxtext", 3)
    (point,) = points_of(np.random.default_rng(3), 1, hbm_bytes=1 << 20)
    evaluation = Objective(scenario).evaluate(point)
    assert evaluation.status is EvaluationStatus.OUT_OF_MEMORY
    assert "plans fits; the smallest needs" in evaluation.reason


def built(**options):
    network = load_network("two-level", num_devices=8)
    given = ScenarioOptions(devices=8, global_batch=16, **options)
    return build_scenario(given, (load_model("tiny"),), network=network, common=CommonMean.ARITHMETIC)


def test_the_software_of_full_plans_is_the_one_named():
    assert built().stack == built(plans="full").stack == load_stack("maxtext", load_fitted())
    assert built(software="megatron-core").stack == load_stack("megatron-core", load_fitted())
    assert built(software="ideal", attention="unfused").stack.attention is AttentionForm.UNFUSED
    assert built(gradient_bits="32").stack == replace(built().stack, gradient_bytes=4)
    for placed in (built(plans="phaze"), built(published_form="phaze")):
        assert (placed.stack, placed.plans) == (IDEAL_STACK, None)
    assert [built(plans="phaze").estimator, built(published_form="phaze").estimator] == ["calibrated", "analytic"]


def test_degrees_that_are_named_are_the_only_ones():
    degrees = {"pipeline": (1, 2), "data": (2, 4), "interleave": (1, 2), "zero": (1, 3), "state_shards": (2,)}
    plans = built(**degrees, context_parallel=(1, 2), expert_parallel=(1,), recompute="selective").plans
    assert {name: getattr(plans, name) for name in degrees} == degrees
    assert (plans.context, plans.expert, plans.recompute) == ((1, 2), (1,), (Recompute.SELECTIVE,))
    free = built().plans
    assert (free.pipeline, free.data, free.interleave, free.expert, free.zero) == ((), (), (), (), (0, 1, 2, 3))
    assert (free.context, free.recompute) == ((1,), tuple(Recompute))
    # Sharding over some replicas is of the stages that shard.
    assert built(state_shards=(2,)).plans.zero == (1, 2, 3)


@pytest.mark.parametrize(
    "degrees",
    [
        {"pipeline": (2,), "zero": (1,)},
        {"data": (2,), "interleave": (1,)},
        {"data": (2,), "state_shards": (2,), "zero": (3,), "tensor_parallel": (2,)},
        {"context_parallel": (2,), "recompute": "full"},
    ],
)
def test_the_best_plan_of_named_degrees_is_the_best_of_them_all(degrees):
    """As the checker enumerates and prices them by code of its own."""
    scenario = replace(built(**degrees), sequence_length=256, schedule_gap=0.0)
    point = points_of(np.random.default_rng(5), 1)[0]
    objective = Objective(scenario)
    found = objective.plan(objective.accelerator(point))
    plan, choices = found.ranked.plan, scenario.plans
    for name in ("tensor", "pipeline", "data", "context", "interleave", "zero", "state_shards"):
        allowed = getattr(choices, name)
        assert not allowed or getattr(plan, name) in allowed, name
    assert set(plan.recomputes) <= set(choices.recompute)
    check = CutCheck(scenario, scenario.models[0], choices)
    assert least_of_all(objective, point, check) == pytest.approx(found.ranked.time.seconds, rel=EXACT)


def test_a_scenario_from_python_has_the_defaults_of_the_command_line():
    assert make_scenario("tiny", devices=8, global_batch=16) == built()
    narrow = make_scenario(["tiny"], devices=8, global_batch=16, micro_batch=(1,), zero=(1,))
    assert (narrow.plans.micro_batch, narrow.plans.zero) == ((1,), (1,))
    assert make_scenario("tiny", devices=8, global_batch=16, micro_batch=1, zero=[1], gradient_bits=16) == replace(
        narrow, stack=replace(narrow.stack, gradient_bytes=2)
    )
    with pytest.raises(TypeError):
        make_scenario("tiny", devises=8)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"zero": (7,)}, "'zero': .* from 0 to 3"),
        ({"data": (0,)}, "'data': .* from 1"),
        ({"micro_batch": (0,)}, "'micro_batch'"),
        ({"pipeline": ("2",)}, "'pipeline'"),
        ({"published_form": "phaze", "micro_batch": (4,)}, "'micro_batch': is the chip's"),
        ({"published_form": "phase"}, "did you mean phaze"),
    ],
)
def test_what_python_gives_is_held_to_the_rules_of_the_command_line(options, words):
    with pytest.raises(InputError, match=words):
        make_scenario("tiny", devices=8, global_batch=16, **options)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"plans": "phaze", "software": "maxtext"}, "--software: is of full plans"),
        ({"published_form": "phaze", "zero": (1,)}, "--zero: is of full plans"),
        ({"zero": (0,), "state_shards": (2,)}, "--state-shards: is for sharded state"),
        ({"plans": "phaze", "recompute": "selective"}, "--recompute: 'selective' is of full plans"),
        ({"gradient_bits": "8"}, "--gradient-bits: '8' is unknown"),
        ({"software": "maxtexd"}, "no training software is named 'maxtexd'.*maxtext"),
        ({"attention": "unfused"}, "--attention: is for ideal software; maxtext has fused"),
        ({"plans": "ful"}, "--plans: .*full"),
    ],
)
def test_software_that_cannot_be_is_refused(options, words):
    with pytest.raises(InputError, match=words):
        built(**options)


def test_passes_that_are_alike_are_scheduled_once():
    """Forward that runs again where the software keeps nothing is forward; answers are those of each by itself."""
    scenario = scenario_of("tiny", "maxtext", 4)
    objective = Objective(scenario)
    chip = objective.accelerator(points_of(np.random.default_rng(3), 1)[0])
    (option, *_), estimates = objective.planned(0).compiled.options, objective.estimate(chip, PLANNED)
    phases = tuple((*layer[:3], layer[0]) for layer in option.phases)
    shared, calls = (estimates, chip, scenario), []

    def counted(structure, *latencies, **given):
        calls.append(structure)
        return bound_compiled(structure, *latencies, **given)

    answers = best_placement._on_schedules(counted, replace(option, phases=phases), *shared)
    assert len(calls) < sum(len(layer) for layer in phases)
    for layer, found in zip(phases, answers, strict=True):
        assert found == tuple(best_placement._on_schedule(bound_compiled, phase, *shared) for phase in layer)


def test_a_second_die_finds_what_no_die_changes(monkeypatch):
    """Layers are recorded once a model and a plan's step is compiled once; the answer is that of a new objective."""
    scenario = make_scenario(TRACED, devices=8, global_batch=64)
    first, second = points_of(np.random.default_rng(5), 2, num_tc=2, num_vc=2)
    objective, fresh = Objective(scenario), Objective(scenario)
    objective.evaluate(first)
    alone = fresh.evaluate(second)
    with monkeypatch.context() as patched:
        patched.setattr(traced_workload, "record_layer", None)
        assert replace(objective.evaluate(second), accelerator=alone.accelerator) == alone
    planned, plan = fresh.planned(0), alone.placement.plan
    kept = planned.step_of(plan)
    assert planned.step_of(plan) is kept
    own = compile_step(planned.compiled.model, planned.prices.training, plan, stack=planned.prices.stack)
    assert tuple(kept.operators) == own.operators
    assert (kept.plan, kept.blocks) == (plan, own.blocks)


def test_chips_that_are_bounded_together_are_evaluated_as_each_alone(monkeypatch):
    scenario = scenario_of("tiny", "maxtext", 4)
    points = points_of(np.random.default_rng(9), 4)
    objective, fresh = Objective(scenario), Objective(scenario)
    alone = [fresh.evaluate(point) for point in points]
    objective.look_ahead([objective.accelerator(point) for point in points])
    with monkeypatch.context() as patched:
        patched.setattr(PhasePools, "bounds_and_choices", None)
        assert [objective.evaluate(point) for point in points] == alone


def test_few_steps_are_kept():
    planned = Objective(scenario_of("tiny", "maxtext", 4)).planned(0)
    plans = [planned.prices.plans.plan(row) for row in range(scheduled_plan.KEPT_STEPS + 2)]
    steps = [planned.step_of(plan) for plan in plans]
    assert len(planned._steps) == scheduled_plan.KEPT_STEPS
    assert planned.step_of(plans[-1]) is steps[-1]
    assert planned.step_of(plans[0]) is not steps[0]
