"""`Objective.evaluate`: identities that every evaluation obeys, and what must not change it."""

import dataclasses
import json
import math

import pytest
from kits.scenarios import make_point, make_scenario

from phaze_opt import make_scenario as price_as_all_do
from phaze_opt.errors import InputError, PluginError
from phaze_opt.estimate.analytic import AnalyticEstimator
from phaze_opt.hardware.accelerator import AcceleratorTable
from phaze_opt.hardware.constants import load_constants
from phaze_opt.hardware.presets import load_architecture
from phaze_opt.objective.best_placement import OptionTimes, bound_option, place_model, placement_problem, solve_option
from phaze_opt.objective.evaluate import Objective
from phaze_opt.objective.evaluation import EvaluationStatus, evaluation_from_json, evaluation_to_json
from phaze_opt.objective.scenario import CommonMean
from phaze_opt.placement.solve import solve_placement
from phaze_opt.placement.verify import verify_placement
from phaze_opt.workload.training import AttentionForm, Optimizer

CASES = [
    ("tiny", {}, {}),
    ("tiny", {"attention": AttentionForm.UNFUSED, "optimizer": Optimizer.SGD}, {"num_tc": 2, "num_vc": 1}),
    ("bert-large", {"devices": 64, "global_batch": 512}, {"micro_batch": 8}),
    ("bert-large", {"devices": 64, "network": "phaze", "tensor_parallel": (1, 2, 4, 8)}, {"num_tc": 1, "num_vc": 2}),
    ("llama-2-7b", {"devices": 32, "tensor_parallel": (1, 4, 8)}, {"micro_batch": 1}),
    ("mixtral-8x7b", {"devices": 64, "tensor_parallel": (8,)}, {"micro_batch": 1}),
]


@pytest.mark.parametrize(("model", "scenario", "point"), CASES)
def test_identities(model, scenario, point):
    setting = make_scenario(model, **scenario)
    evaluation = Objective(setting).evaluate(make_point(**point))
    assert evaluation.status is EvaluationStatus.FEASIBLE
    causes = dataclasses.astuple(evaluation.breakdown)
    assert min(causes) >= 0
    assert math.fsum(causes) == pytest.approx(evaluation.iteration_time_s, rel=1e-9)
    assert evaluation.throughput_samples_per_s == setting.global_batch / evaluation.iteration_time_s
    assert evaluation.throughput_tokens_per_s == evaluation.throughput_samples_per_s * evaluation.sequence_length
    assert evaluation.throughput_bound_samples_per_s >= evaluation.throughput_samples_per_s * (1 - 1e-12)
    assert 0 < evaluation.mfu < 1
    assert evaluation.mfu <= evaluation.tc_utilisation * (1 + 1e-2)
    assert 0 < evaluation.vc_utilisation <= 1
    assert evaluation.placement.devices_used <= setting.cluster.num_devices
    assert evaluation.average_power_w > 0
    watts = setting.cluster.num_devices * evaluation.tdp_w
    assert evaluation.throughput_per_tdp == pytest.approx(evaluation.throughput_samples_per_s / watts, rel=1e-12)


@pytest.mark.parametrize(("model", "scenario", "point"), CASES)
def test_json_round_trip_is_exact(model, scenario, point):
    evaluation = Objective(make_scenario(model, **scenario)).evaluate(make_point(**point))
    assert evaluation_from_json(json.loads(json.dumps(evaluation_to_json(evaluation)))) == evaluation


@pytest.mark.parametrize(
    "change",
    [
        {"status": "unknown"},
        {"area_mm2": "large"},
        {"micro_batch": 1.5},
        {"breakdown": {}},
        {"breakdown": None},
        {"placement": []},
        {"schedule": {"block": {"repeats": 1}}},
        {"architecture": {"num_tc": "many"}},
        {"constraints": [1]},
        {"members": [None]},
    ],
    ids=str,
)
def test_what_is_no_evaluation_is_one_error(change):
    data = evaluation_to_json(Objective(make_scenario("tiny")).evaluate(make_point()))
    with pytest.raises(ValueError, match="not an evaluation"):
        evaluation_from_json({**data, **change})


def test_a_fresh_objective_and_a_used_one_agree_to_the_bit():
    scenario = make_scenario("bert-large", devices=64)
    used = Objective(scenario)
    first = used.evaluate(make_point())
    used.evaluate(make_point(num_tc=2))
    assert used.evaluate(make_point()) == first == Objective(scenario).evaluate(make_point())


@pytest.mark.parametrize("point", [{}, {"num_tc": 1, "num_vc": 1}, {"num_tc": 2, "num_vc": 64}])
def test_lazy_schedules_equal_solving_every_tensor_degree(point):
    """Decision 0002: scheduling only the degrees that can win changes nothing."""
    scenario = make_scenario("bert-large", devices=64, tensor_parallel=(1, 2, 4, 8), attention=AttentionForm.UNFUSED)
    objective = Objective(scenario)
    evaluation = objective.evaluate(make_point(**point))
    accelerator = evaluation.accelerator
    compiled = objective.compiled(0, 4)
    table = AcceleratorTable.from_accelerators([accelerator])
    estimates = AnalyticEstimator().estimate(compiled.operators, table)
    makespans = []
    for option in compiled.options:
        times: OptionTimes = bound_option(option, estimates, accelerator, scenario=scenario)
        lower = times.lower_s.copy()
        solve_option(option, times, estimates, accelerator, scenario=scenario)
        assert (times.upper_s >= lower * (1 - 1e-12)).all()
        makespans.append(times.upper_s)
    problem = placement_problem(compiled, makespans, accelerator.hbm_bytes, scenario=scenario)
    assert evaluation.iteration_time_s == pytest.approx(solve_placement(problem).batch_time_s, rel=1e-9)
    placed = place_model(compiled, estimates, accelerator, scenario=scenario)
    verify_placement(problem, placed.placement)


def test_budgets_are_constraints_with_reasons():
    free = Objective(make_scenario()).evaluate(make_point())
    over = Objective(make_scenario(max_area_mm2=free.area_mm2 / 2)).evaluate(make_point())
    assert over.status is EvaluationStatus.OVER_AREA
    assert "exceeds the budget" in over.reason
    assert dict(over.constraints)["area"] == pytest.approx(1.0)
    hot = Objective(make_scenario(max_tdp_w=free.tdp_w / 4)).evaluate(make_point())
    assert hot.status is EvaluationStatus.OVER_TDP
    assert dict(hot.constraints)["tdp"] == pytest.approx(3.0)
    exact = Objective(make_scenario(max_area_mm2=free.area_mm2, max_tdp_w=free.tdp_w)).evaluate(make_point())
    assert exact.throughput_samples_per_s == free.throughput_samples_per_s


def test_out_of_memory_says_what_does_not_fit():
    scenario = make_scenario("gpt3-175b", devices=2, tensor_parallel=(1,))
    evaluation = Objective(scenario).evaluate(make_point())
    assert evaluation.status is EvaluationStatus.OUT_OF_MEMORY
    assert evaluation.reason
    assert dict(evaluation.constraints)["memory"] > 0
    assert evaluation.throughput_samples_per_s == 0
    assert evaluation.placement is None


def test_presets_are_evaluated_as_they_are():
    accelerator = load_architecture("h100", constants=load_constants())
    evaluation = Objective(make_scenario("llama-2-7b", devices=8)).evaluate_accelerator(accelerator, 1)
    assert evaluation.accelerator == accelerator
    assert 0.05 < evaluation.mfu < 0.95


class TestSeveralModels:
    def test_means(self):
        alone = [Objective(make_scenario(name)).evaluate(make_point()) for name in ("tiny", "bert-large")]
        rates = [evaluation.throughput_samples_per_s for evaluation in alone]
        both = ("tiny", "bert-large")
        arithmetic = Objective(make_scenario(*both)).evaluate(make_point())
        assert arithmetic.throughput_samples_per_s == pytest.approx(sum(rates) / 2)
        assert arithmetic.members == tuple(
            dataclasses.replace(entry, provenance=arithmetic.members[0].provenance) for entry in alone
        )
        geometric = Objective(make_scenario(*both, common=CommonMean.GEOMETRIC)).evaluate(make_point())
        assert geometric.throughput_samples_per_s == pytest.approx(math.sqrt(rates[0] * rates[1]))
        worst = Objective(make_scenario(*both, common=CommonMean.WORST)).evaluate(make_point())
        flops = [entry.mfu / entry.throughput_samples_per_s for entry in alone]
        slowest = min(entry.mfu for entry in alone)
        assert worst.throughput_samples_per_s == pytest.approx(slowest / math.sqrt(flops[0] * flops[1]))

    @pytest.mark.parametrize("common", CommonMean)
    def test_tokens_follow_the_same_mean(self, common):
        """The sequences differ, so tokens are no multiple of samples."""
        both = ("tiny", "gpt2-xl")
        combined = Objective(make_scenario(*both, devices=64, common=common)).evaluate(make_point())
        members = combined.members
        assert members[0].sequence_length != members[1].sequence_length
        rates = [entry.throughput_tokens_per_s for entry in members]
        flops = [entry.mfu / entry.throughput_tokens_per_s for entry in members]
        expected = {
            CommonMean.ARITHMETIC: sum(rates) / 2,
            CommonMean.GEOMETRIC: math.sqrt(rates[0] * rates[1]),
            CommonMean.WORST: min(entry.mfu for entry in members) / math.sqrt(flops[0] * flops[1]),
        }
        assert combined.throughput_tokens_per_s == pytest.approx(expected[common], rel=1e-12)

    def test_one_infeasible_model_makes_the_design_infeasible(self):
        evaluation = Objective(make_scenario("tiny", "gpt3-175b", devices=2)).evaluate(make_point())
        assert evaluation.status is EvaluationStatus.OUT_OF_MEMORY
        assert evaluation.reason.startswith("gpt3-175b: ")

    def test_json_round_trip(self):
        evaluation = Objective(make_scenario("tiny", "bert-large")).evaluate(make_point())
        assert evaluation_from_json(json.loads(json.dumps(evaluation_to_json(evaluation)))) == evaluation


def test_sequence_beyond_the_positions_is_refused():
    with pytest.raises(InputError, match="positions of bert-large"):
        make_scenario("bert-large", sequence_length=4096)


@pytest.mark.parametrize("global_batch", [0, -1, 2**31 + 1, 10**20])
def test_batches_that_cannot_be_are_refused(global_batch):
    with pytest.raises(InputError, match="positive integer up to 2147483648"):
        make_scenario(global_batch=global_batch)


def test_micro_batches_that_cannot_be_are_refused():
    with pytest.raises(InputError, match="micro_batch = 10{20} must be"):
        Objective(make_scenario()).evaluate(make_point(micro_batch=10**20))


def test_elements_other_than_the_trainings_are_refused():
    """Graphs are in 16-bit elements; pricing their matmuls alone in others would mix the two."""
    objective = Objective(make_scenario())
    chip = objective.evaluate(make_point()).accelerator
    with pytest.raises(InputError, match="4 bytes an element"):
        objective.evaluate_accelerator(dataclasses.replace(chip, dtype_bytes=4), 4)


def test_unknown_estimator_is_fatal():
    with pytest.raises(PluginError, match="analytic"):
        Objective(make_scenario(estimator="analitic"))


def test_digests_tell_scenarios_apart():
    assert make_scenario().digest == make_scenario().digest
    assert make_scenario().digest != make_scenario(global_batch=65).digest


def test_a_die_larger_than_the_reticle_is_refused_before_all_else_and_machines_that_exist_are_not():
    """As a whole die: split into chiplets that are each smaller it is priced; a name alone makes no machine."""
    text = "num_tc=64,num_vc=64,tc_width=128,tc_depth=128,glb_mb=24,glb_bytes_per_cycle=4096,hbm_stacks=5"
    scenario = price_as_all_do("bert-large", devices=64, global_batch=512, max_area_mm2=600.0)
    objective = Objective(scenario)
    chip, machine = (load_architecture(each, constants=objective.constants) for each in (text, "h100"))
    die = objective.evaluate_accelerator(chip)
    reason = f"this die could not be built: a die of {die.area_mm2:,.0f} mm^2 is larger than the reticle's 858 mm^2"
    assert (die.status, die.reason, die.throughput_samples_per_s) == (EvaluationStatus.UNBUILDABLE, reason, 0.0)
    assert die.constraints[0] == ("reticle", pytest.approx(die.area_mm2 / 858 - 1))
    assert objective.evaluate_accelerator(machine).status is EvaluationStatus.OVER_AREA
    free = Objective(scenario.without_budgets())
    several = Objective(dataclasses.replace(free.scenario, models=free.scenario.models * 2))
    assert several.evaluate_accelerator(chip).reason == f"bert-large: {reason}"
    assert free.evaluate_accelerator(chip, is_built=True).is_feasible
    split = load_architecture(f"{text},chiplets=4", constants=free.constants)
    assert split.chiplets == 4
    assert free.evaluate_accelerator(split).is_feasible
    exists = free.evaluate_accelerator(machine)
    assert exists.is_feasible
    assert exists.area_mm2 > 858
    named = dataclasses.replace(chip, name="h100")
    assert free.evaluate_accelerator(named).status is EvaluationStatus.UNBUILDABLE
