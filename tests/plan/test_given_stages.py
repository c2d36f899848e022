"""Stages that a user states: the plans are those of that cut, the best one is the least of them, others are refused."""

from dataclasses import replace

import pytest

from phaze_opt.certify.problem import CertifyProblem
from phaze_opt.cost.compiled_step import compile_step
from phaze_opt.cost.price_step import price_step
from phaze_opt.errors import InputError
from phaze_opt.hardware.constants import load_constants
from phaze_opt.objective.evaluate import Objective
from phaze_opt.objective.plan_options import given_stages
from phaze_opt.objective.scenario import PLANNED, make_scenario
from phaze_opt.objective.scenario_options import ScenarioOptions
from phaze_opt.plan.plan_search import step_memory
from phaze_opt.plan.plan_space import explain_no_plan, list_plans
from phaze_opt.space.known_spaces import phaze_space
from phaze_opt.units import gib_to_bytes
from phaze_opt.workload.config import load_model
from phaze_opt.workload.plan import PlanChoices, Recompute, chunked_cuts
from phaze_opt.workload.training import TrainingSpec

MODEL = replace(load_model("tiny"), num_layers=6)
TRAINING = TrainingSpec(micro_batch=1, sequence_length=256, global_batch=16)
FREE = PlanChoices(tensor=(1, 2), interleave=(), micro_batch=(1, 2), zero=(0, 1))


def plans_of(**choices):
    return list(list_plans(MODEL, TRAINING, num_devices=8, choices=replace(FREE, **choices)))


@pytest.mark.parametrize("blocks", [(1, 3, 1, 1), (2, 2, 1, 1), (3, 3), (2, 4), (6,), (0, 3, 2, 1), (0, 6)])
def test_plans_are_those_of_the_free_degrees_with_this_cut(blocks):
    given = plans_of(blocks=blocks)
    allowed = [plan for plan in plans_of(pipeline=(len(blocks),), has_cuts=True) if plan.recompute is Recompute.NONE]
    expected = {
        replace(plan, blocks=()).with_stages(blocks, (way,) * len(blocks))
        for plan in allowed
        if plan.interleave == 1 or blocks in chunked_cuts(6, len(blocks), plan.interleave)
        for way in Recompute
    }
    assert set(given) == expected
    assert len(given) == len(expected)
    assert given


def test_what_stages_recompute_may_be_given_too():
    ways = (Recompute.FULL, Recompute.NONE)
    mixed = plans_of(blocks=(2, 4), stage_recompute=ways)
    assert {(plan.blocks, plan.recomputes) for plan in mixed} == {((2, 4), ways)}
    alike = plans_of(blocks=(3, 3), stage_recompute=(Recompute.FULL,) * 2)
    assert {(plan.stage_recompute, plan.recompute) for plan in alike} == {((), Recompute.FULL)}
    # Two chunks a stage are equal if the embedding and the head count as blocks.
    assert {(plan.interleave, plan.blocks) for plan in alike} == {(1, ()), (2, (3, 3)), (3, ())}
    assert {plan.interleave for plan in mixed} == {1}
    degrees = {replace(plan, blocks=(), stage_recompute=()) for plan in mixed}
    assert degrees == {replace(plan, recompute=Recompute.NONE) for plan in alike if plan.interleave == 1}


@pytest.mark.parametrize(
    ("choices", "words"),
    [
        ({"blocks": (3, 2)}, "have 5, not the 6 of tiny"),
        ({"blocks": (3, 3), "pipeline": (4,)}, "are 2 of a pipeline of 4"),
        ({"blocks": (3, 0, 3)}, "at least 1 in every stage"),
    ],
)
def test_stages_of_another_model_or_pipeline_leave_no_plan(choices, words):
    assert plans_of(**choices) == []
    assert words in explain_no_plan(MODEL, TRAINING, num_devices=8, choices=replace(FREE, **choices)).sentence


def scenario_of(**options):
    given = {"devices": 8, "global_batch": 16, "sequence_length": 256, "schedule_gap": 0.0, "tensor_parallel": (1, 2)}
    scenario = make_scenario("tiny", **(given | {"micro_batch": (1, 2), "zero": (0, 1)} | options))
    return replace(scenario, models=(MODEL,))


def least_of_given(objective, point):
    """Every plan of the given stages, with every recomputation alike or as given, each priced alone."""
    scenario, found = objective.scenario, []
    network, capacity = scenario.cluster.network, objective.accelerator(point).hbm_bytes
    clock = objective._clock(objective.accelerator(point))
    for plan in list_plans(MODEL, TRAINING, num_devices=8, choices=scenario.plans):
        step = compile_step(MODEL, TRAINING, plan, stack=scenario.stack)
        if step_memory(step).peak_bytes <= capacity:
            found.append(price_step(step, clock.times(step), network).seconds)
    return min(found)


@pytest.mark.parametrize(
    ("blocks", "recompute"),
    [
        ("2,2x1,2", "none,2xfull,none"),
        pytest.param("1,5", "2xselective", marks=pytest.mark.slow),
        ("2x3", ""),
        pytest.param("4,2", "full,none", marks=pytest.mark.slow),
    ],
)
def test_the_best_design_plan_is_the_least_of_the_given_stages(blocks, recompute):
    options = {"stage_blocks": blocks} | ({"stage_recompute": recompute} if recompute else {"recompute": "none"})
    objective = Objective(scenario_of(**options))
    for number in (7, 40_000):
        point = replace(phaze_space().point(number), micro_batch=PLANNED, hbm_bytes=gib_to_bytes(32))
        evaluation = objective.evaluate(point)
        assert evaluation.iteration_time_s == pytest.approx(least_of_given(objective, point), rel=1e-9)
        plan = evaluation.placement.plan
        assert (plan.blocks or (3, 3)) == objective.scenario.plans.blocks
        if recompute:
            assert plan.recomputes == objective.scenario.plans.stage_recompute
        free = Objective(scenario_of(pipeline=(plan.pipeline,))).evaluate(point)
        assert free.iteration_time_s <= evaluation.iteration_time_s * (1 + 1e-9)


def test_a_chip_without_room_for_the_stages_says_what_they_need():
    point = replace(phaze_space().point(7), micro_batch=PLANNED, hbm_bytes=1 << 20)
    given, free = (Objective(scenario_of(pipeline=(2,), **each)) for each in ({"stage_blocks": "1,5"}, {}))
    assert not given.evaluate(point).is_feasible
    assert given.planned(0).degrees.least_bytes > free.planned(0).degrees.least_bytes


@pytest.mark.parametrize(
    ("options", "source"),
    [
        ({"stage_blocks": "3,,3"}, "--stage-blocks"),
        ({"stage_blocks": "0x3,3"}, "--stage-blocks"),
        ({"stage_blocks": "99999x1"}, "--stage-blocks"),
        ({"stage_blocks": "3,three"}, "--stage-blocks"),
        ({"stage_blocks": "3,3", "pipeline": (4,)}, "--stage-blocks"),
        ({"stage_recompute": "full"}, "--stage-recompute"),
        ({"stage_blocks": "3,3", "stage_recompute": "full"}, "--stage-recompute"),
        ({"stage_blocks": "3,3", "stage_recompute": "2xfull", "recompute": "none"}, "--stage-recompute"),
        ({"stage_blocks": "3,3", "stage_recompute": "full,some"}, "--stage-recompute"),
    ],
)
def test_stages_that_are_none_are_refused(options, source):
    with pytest.raises(InputError) as caught:
        given_stages(ScenarioOptions(**options))
    assert caught.value.source == source


def test_a_count_stands_for_as_many_stages():
    blocks, recomputes = given_stages(ScenarioOptions(stage_blocks="7, 8 x 14,7", stage_recompute="full,9xnone"))
    assert blocks == (7, *[14] * 8, 7)
    assert recomputes == (Recompute.FULL, *[Recompute.NONE] * 9)
    assert given_stages(ScenarioOptions()) == ((), ())


def test_certificates_are_over_every_cut():
    with pytest.raises(InputError) as caught:
        CertifyProblem(scenario_of(stage_blocks="3,3", silicon="phaze"), phaze_space(), load_constants())
    assert caught.value.source == "--stage-blocks"


def test_recomputation_of_stages_goes_with_their_blocks():
    with pytest.raises(InputError, match="names 1 stages, blocks 0"):
        PlanChoices(stage_recompute=(Recompute.FULL,))
    with pytest.raises(InputError, match="names 1 stages, blocks 2"):
        PlanChoices(blocks=(1, 1), stage_recompute=(Recompute.FULL,))


def test_given_stages_are_of_one_of_the_pipelines_listed():
    options = ScenarioOptions(devices=8, global_batch=8, pipeline=(2, 4), stage_blocks="12,12")
    assert given_stages(options) == ((12, 12), ())
    with pytest.raises(InputError, match="not the 3 or 4"):
        given_stages(replace(options, pipeline=(3, 4)))


@pytest.mark.parametrize(
    ("text", "said"), [("8*12", "is no stage"), ("4X24", "is no stage"), ("10001x1", "must name 1 to 10,000")]
)
def test_a_text_that_is_no_list_of_stages_is_refused_for_what_it_is(text, said):
    with pytest.raises(InputError, match=said):
        given_stages(ScenarioOptions(devices=8, global_batch=8, stage_blocks=text))
