"""What a run shows: names of the command line, only finite figures, nothing of an infeasible design but its size."""

import math
from dataclasses import fields, replace

import pytest

from phaze_opt.objective.evaluation import TimeBreakdown
from phaze_opt.search.events import SearchFinished, SearchStarted, TrialFinished
from phaze_opt.testing.events import example_search
from phaze_opt.track.records import finished_record, started_record, trial_record
from phaze_opt.track.writers import BestSoFar

TRIALS = tuple(event.trial for event in example_search(20) if isinstance(event, TrialFinished))
FEASIBLE = next(trial for trial in TRIALS if trial.evaluation.is_feasible)
INFEASIBLE = next(trial for trial in TRIALS if not trial.evaluation.is_feasible)


def test_a_trial_has_the_params_that_a_user_types() -> None:
    record = trial_record(FEASIBLE, context={"strategy": "tpe", "seed": "3"}, time_ms=1)
    point = FEASIBLE.point
    assert record["params"]["num_tc"] == str(point.num_tc)
    assert record["params"]["glb_mb"] == f"{point.glb_bytes / 2**20:g}"
    assert record["params"]["hbm_gb"] == f"{point.hbm_bytes / 2**30:g}"
    assert record["params"]["micro_batch"] == str(point.micro_batch)
    assert record["params"]["strategy"] == "tpe"


def test_the_breakdown_of_a_trial_sums_to_its_iteration_time() -> None:
    metrics = trial_record(FEASIBLE, context={}, time_ms=1)["metrics"]
    parts = [value for name, value in metrics.items() if name.startswith("breakdown.")]
    assert {item.name for item in fields(TimeBreakdown)} >= {
        name.removeprefix("breakdown.") for name in metrics if name.startswith("breakdown.")
    }
    assert math.fsum(parts) == pytest.approx(metrics["iteration_time_s"], rel=1e-12)


def test_a_common_design_shows_no_zeros_for_what_only_its_models_have() -> None:
    one = FEASIBLE.evaluation
    common = replace(
        one, members=(one, replace(one, model="other")), breakdown=TimeBreakdown(),
        energy_per_iteration_j=0.0, average_power_w=0.0,
    )  # fmt: skip
    metrics = trial_record(replace(FEASIBLE, evaluation=common), context={}, time_ms=1)["metrics"]
    assert not [name for name in metrics if "breakdown" in name or "energy" in name or "power_w" in name]
    assert metrics["throughput_samples_per_s.other"] == metrics["throughput_samples_per_s"]


def test_an_infeasible_trial_says_why_and_claims_no_rate() -> None:
    record = trial_record(INFEASIBLE, context={}, time_ms=1)
    assert record["tags"]["status"] == "over_area"
    assert "budget" in record["tags"]["reason"]
    assert not [name for name in record["metrics"] if "throughput" in name or "breakdown" in name]
    assert record["metrics"]["area_mm2"] == INFEASIBLE.evaluation.area_mm2


def test_figures_that_are_not_finite_are_left_out() -> None:
    evaluation = replace(FEASIBLE.evaluation, mfu=math.nan, average_power_w=math.inf)
    metrics = trial_record(replace(FEASIBLE, evaluation=evaluation), context={}, time_ms=1)["metrics"]
    assert "mfu" not in metrics
    assert "average_power_w" not in metrics


def test_the_configuration_becomes_flat_params() -> None:
    config = {
        "name": "",
        "none": None,
        "models": [{"name": "a", "layers": 3}, {"name": "b"}],
        "scenario": {"net": {"size": 8}},
    }
    event = SearchStarted("id", "name", "tpe", "throughput", 3, 60, config)
    params = started_record(event, target="t", experiment="e", time_ms=1)["params"]
    assert params == {
        "strategy": "tpe",
        "goal": "throughput",
        "seed": "3",
        "num_trials": "60",
        "models": "a, b",
        "net.size": "8",
    }


def test_the_end_of_a_search_carries_its_best_design() -> None:
    best = FEASIBLE.evaluation
    record = finished_record(SearchFinished("id", best, 4, is_interrupted=False, wall_s=2.0), time_ms=1)
    assert record["metrics"]["throughput_samples_per_s"] == best.throughput_samples_per_s
    assert record["tags"]["best_trial"] == "4"
    assert f"{best.accelerator.num_tc} TC" in record["tags"]["best_architecture"]
    empty = finished_record(SearchFinished("id", None, -1, is_interrupted=True, wall_s=2.0), time_ms=1)
    assert empty["metrics"] == {"wall_s": 2.0}


def test_best_so_far_is_the_running_maximum_of_feasible_trials() -> None:
    best = BestSoFar()
    records = [trial_record(trial, context={}, time_ms=1) for trial in TRIALS]
    for count, record in enumerate(records, start=1):
        best.update(record)
        seen = [trial.evaluation.throughput_samples_per_s for trial in TRIALS[:count] if trial.values]
        metrics = best.metrics()
        assert metrics.get("best_throughput_samples_per_s", 0.0) == max(seen, default=0.0)
        assert metrics["num_trials_feasible"] == len(seen)
    before = best.metrics()
    best.update(records[-1])
    assert best.metrics() == before
