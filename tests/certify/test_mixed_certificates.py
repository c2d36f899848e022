"""Models whose layers differ, through plans, searches, certificates and their check: two codes, one number."""

from dataclasses import replace

import numpy as np
import pytest
from kits.family_models import SMALL
from kits.fewer_cases import every
from kits.mixed_models import HEAD, OWN, SMALLER, TWIN, ReluChain, mixed_model, understand_mixed_models
from kits.planned import WIDE, checker, compiled, draw_times, least_of_all, prover_loads
from planned_certificate import PLANS, SPACE, planned_scenario, write_planned_certificate
from small_problems import brute_force

from phaze_opt.certify.check.check import check_certificate
from phaze_opt.certify.check.plans.cut_check import CutCheck
from phaze_opt.certify.check.plans.plan_check import StagedPlan
from phaze_opt.certify.problem import CertifyProblem
from phaze_opt.cost.price_step import LayerTimes
from phaze_opt.cost.step_time import lower_s, step_times
from phaze_opt.hardware.constants import load_constants
from phaze_opt.objective.evaluate import Objective
from phaze_opt.plan.plan_search import step_memory
from phaze_opt.search.config import SearchConfig
from phaze_opt.search.run import run_search
from phaze_opt.workload.config import load_model, parse_config
from phaze_opt.workload.plan import Recompute
from phaze_opt.workload.sparsity import Pattern, SparseWeights

EXACT = 1e-12
CHAIN = (0, SMALLER, OWN, OWN, SMALLER, OWN, SMALLER, OWN, SMALLER, HEAD)
"""Front of the embedding and two layers, three units of an own and a smaller block, and the head."""
UNEVEN = (0, SMALLER, OWN, TWIN, SMALLER, SMALLER, OWN, HEAD)
"""Layers of which no two that follow one another repeat often: pipelines are cut between all of them."""
WORDS = {**SMALL["encoder and decoder"], "num_layers": 2, "num_decoder_layers": 2}
"""Two blocks of an encoder, two of a decoder, and one table."""
EQUAL_UNITS = ("pairs", "experts", "no run", "a rest behind", "relus")
EXPERT_CHAIN = (0, SMALLER, OWN, OWN, OWN, OWN, HEAD)
"""A dense layer before four layers of experts."""
SMALL_EXPERTS = {
    "hidden_size": 512, "num_heads": 8, "num_kv_heads": 2, "head_size": 64, "ffn_size": 1024, "vocab_size": 4096,
    "embedding_size": 512, "max_sequence_length": 512,
}  # fmt: skip


@pytest.fixture(autouse=True)
def _understood(monkeypatch):
    understand_mixed_models(monkeypatch)


def models():
    return {
        "pairs": mixed_model(CHAIN),
        "experts": mixed_model(EXPERT_CHAIN, "mixtral-8x7b", **SMALL_EXPERTS),
        "no run": mixed_model((0, OWN, SMALLER, HEAD)),
        "relus": ReluChain(load_model("tiny"), 256, (0, 1, 2, 1, 2, 1, 2, 1, 2, 3)),
        "layers": mixed_model(UNEVEN).transformer.cut_by_layers(),
        "relu layers": ReluChain(load_model("tiny"), 256, (0, 1, 2, 2, 1, 1, 2, 3), is_cut_by_layers=True),
        "words": parse_config(WORDS, name="words", source="given.json").transformer.cut_by_layers(),
        "a rest behind": mixed_model((0, *(OWN, OWN, SMALLER) * 2, SMALLER, HEAD)),
    }


@pytest.mark.parametrize(
    ("name", "software"),
    every(
        2,
        [*EQUAL_UNITS, "layers", "relu layers", "words"],
        ["megatron-core", "maxtext-offload", "llm-foundry", "megatron-2022"],
    ),
)
def test_prices_bounds_and_memory_are_those_of_the_prover(name, software):
    rng = np.random.default_rng(len(name) + len(software))
    choices = replace(WIDE, tensor=(1, 2), context=(1,), micro_batch=(2,), state_shards=(0,))
    scenario = planned_scenario(software, models()[name], plans=choices, global_batch=64)
    check = checker(scenario)
    times, units = draw_times(check, rng), scenario.models[0].num_units
    for plan in [check.plans[at] for at in sorted(rng.choice(len(check.plans), size=6, replace=False))]:
        recompute = tuple(list(Recompute)[at] for at in rng.integers(0, 3, plan.pipeline))
        own = replace(check.staged(plan), recompute=recompute)
        staged = [check.staged(plan), own] if plan.interleave == 1 else [check.staged(plan)]
        if plan.interleave == 1 and 1 < plan.pipeline <= units:
            blocks = (units - plan.pipeline + 1, *[1] * (plan.pipeline - 1))
            staged += [StagedPlan(plan, each, recompute) for each in (blocks, blocks[::-1])]
        for each in staged:
            stages, rules = prover_loads(scenario, check, each, times, chip=0)
            given = each, times.makespan_s, times.attention_s
            assert check.price_s(*given)[0] == pytest.approx(step_times(stages, rules).seconds[0], rel=EXACT)
            assert check.lower_s(*given)[0] == pytest.approx(lower_s(stages, rules)[0], rel=EXACT)
            memory = step_memory(compiled(scenario, each))
            expected = [stage.total_bytes for stage in memory.stages]
            assert check.memory_bytes(each) == pytest.approx(expected, rel=EXACT)


@pytest.mark.parametrize("name", ["experts", "layers"])
def test_memory_with_copies_of_sparse_weights_is_that_of_the_prover(name):
    rng, weights = np.random.default_rng(7), SparseWeights(Pattern(2, 4), is_transposable=True)
    choices = replace(WIDE, tensor=(1, 2), context=(1,), micro_batch=(2,), state_shards=(0,))
    scenario = planned_scenario("ideal", models()[name], plans=choices, global_batch=64, sparsity=weights)
    check = checker(scenario)
    for plan in [check.plans[at] for at in sorted(rng.choice(len(check.plans), size=6, replace=False))]:
        staged = check.staged(plan)
        held, dense = (
            [stage.total_bytes for stage in step_memory(compiled(given, staged)).stages]
            for given in (scenario, replace(scenario, sparsity=None))
        )
        assert check.memory_bytes(staged) == pytest.approx(held, rel=EXACT)
        assert sum(held) > sum(dense)


@pytest.mark.parametrize("name", [pytest.param("pairs", marks=pytest.mark.slow), "experts", "layers"])
def test_the_proven_optimum_is_the_best_of_every_design(name, tmp_path):
    software = "ideal" if name == "experts" else "maxtext"
    changes = {"plans": replace(PLANS, expert=(), zero=(0, 3), micro_batch=(1,))} if name == "experts" else {}
    directory = write_planned_certificate(software, tmp_path / "proof", models()[name], **changes)
    report = check_certificate(directory)
    scenario = planned_scenario(software, models()[name], **changes)
    values, uppers = brute_force(CertifyProblem(scenario, SPACE, load_constants()))
    assert report.claim.value == pytest.approx(max(values), rel=EXACT)
    assert max(uppers) <= report.claim.value * (1 + report.claim.gap) * (1 + EXACT)
    assert report.num_out_of_memory == 12
    config = SearchConfig(strategy="wham", num_trials=24, work_dir=tmp_path)
    found = run_search(config, scenario=scenario, space=SPACE).best
    assert found.throughput_samples_per_s == pytest.approx(max(values), rel=1e-9)


@pytest.mark.parametrize("name", ["pairs", "layers"])
def test_the_plan_found_is_the_least_over_all_plans_cuts_and_recomputations(name):
    """Every set of degrees, with all schedules solved, by the checker's program."""
    scenario = planned_scenario("maxtext", models()[name])
    objective, check = Objective(scenario), CutCheck(scenario, scenario.models[0], PLANS)
    for point in list(SPACE.points())[1::8]:
        evaluation = objective.evaluate(point)
        if not evaluation.is_feasible:
            continue
        least_s = least_of_all(objective, point, check)
        assert evaluation.iteration_time_s == pytest.approx(least_s, rel=EXACT)
        assert sum(evaluation.breakdown.parts.values()) == pytest.approx(evaluation.iteration_time_s, rel=1e-9)
        repeats = {each.layer: each.repeats for each in evaluation.schedules}
        blocks = {"block": 4, "smaller": 4} if name == "pairs" else {"block": 2, "smaller": 3, "twin": 1}
        assert repeats == {"embedding": 1, "head": 1, **blocks}


@pytest.mark.parametrize("zero", [0, 1])
def test_one_stage_updates_a_table_once_that_units_have_copies_of(zero):
    """The closed bound of an encoder and decoder counted the decoder's copy again, and was above the step itself."""
    choices = replace(PLANS, tensor=(1,), pipeline=(1,), interleave=(1,), micro_batch=(2,), zero=(zero,))
    planned = Objective(planned_scenario("ideal", models()["words"], plans=choices)).planned(0)
    rng, parts = np.random.default_rng(zero), len(planned.compiled.graph.cut.units) + 2
    classes_s, attention_s = rng.uniform(1.0, 2.0, (1, 1, parts, 4, 3)), np.zeros((1, 1, parts))
    (closed,) = planned.degrees.bounds_s(planned.prices.layer_s(classes_s, attention_s))[0]
    least = planned.degrees.least_bound_s(0, LayerTimes(classes_s[0, 0], attention_s[0, 0]), np.inf)
    assert closed == pytest.approx(least, rel=1e-9), "of one stage it is the bound itself"
