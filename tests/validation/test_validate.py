"""Validation: every row is scored or has a reason, and groups, goals and worst rows follow from the rows."""

import numpy as np
import pytest
from kits.toy_family import TOY, UNKNOWN_OP

from phaze_opt.hardware.fitted import FittedConstants
from phaze_opt.validation.baselines import fit_baselines, measured_seconds
from phaze_opt.validation.dataset import read_dataset, read_datasets
from phaze_opt.validation.predict import NO_FAMILY
from phaze_opt.validation.result import ERROR_GOALS
from phaze_opt.validation.row_times import ideal_seconds
from phaze_opt.validation.schema import DATASET_SCHEMAS, LABORATORY
from phaze_opt.validation.validate import validate

KNOWN = FittedConstants({"toy/A": {"launch_s": 20e-6, "rate": 2e9}, "toy/B": {"launch_s": 5e-6, "rate": 5e10}})


def run(path, families=(TOY,)):
    return validate([read_dataset(path)], families, KNOWN, baselines={})


def test_rows_are_scored_or_have_a_reason(write_csv):
    lines = ["A,gelu,100,20,fp16,21", "A,mystery,8,8,fp16,1", "A,refused,8,8,fp16,1", "C,gelu,8,8,fp16,1"]
    (entry,) = run(write_csv(lines[:3])).sets
    assert [result.reason for result in entry.rows] == ["", UNKNOWN_OP, "column 'op': the toy refuses this"]
    assert entry.scores.num_rows == 1
    assert entry.scores.mape == pytest.approx(0.0, abs=1e-9)
    assert entry.unscored_reasons == {UNKNOWN_OP: 1, "column 'op': the toy refuses this": 1}


def test_a_set_without_a_family_is_unscored(write_csv):
    result = run(write_csv(["A,gelu,8,8,fp16,1"]), families=())
    assert result.sets[0].unscored_reasons == {NO_FAMILY: 1}
    figures = result.to_json()["datasets"]["op_llmcompass"]
    assert figures["scored"] == 0
    assert np.isnan(figures["mape"])


def test_groups_regimes_and_worst_rows(write_csv):
    # Predicted: 20 us launch and 2e9/s, so 1000 us for 1.96e6 elements; measured 10 % and 50 % off.
    lines = [f"A,matmul,1400,1400,fp16,{1000 / 1.1}", "A,gelu,1,1,fp16,40.001", "A,gelu,1,1,fp16,20.0005"]
    (entry,) = run(write_csv(lines)).sets
    groups = {group.label: group.scores.mape for group in entry.groups}
    assert groups["A matmul"] == pytest.approx(10.0)
    assert groups["softmax/layernorm/gelu"] == pytest.approx(25.0, abs=1e-3)
    regimes = {group.label: group.scores.num_rows for group in entry.regimes}
    assert regimes == {"large": 1, "small": 2}
    # Cells are values of m: {1400} with 10 % and {1} with 50 % and 0 %.
    assert entry.mape_by_cell == pytest.approx((10 + 25) / 2, abs=1e-3)
    assert [worst.result.row.line for worst in entry.worst] == [3, 2, 4]
    parts = {part.name: part.seconds for part in entry.worst[1].parts}
    assert parts == pytest.approx({"launch": 20e-6, "work": 980e-6})
    assert sum(parts.values()) == pytest.approx(entry.worst[1].result.predicted_s)


def test_goals_are_of_published_names_only(write_csv):
    lines = ["A,gelu,1,1,fp16,20.0005"]
    goals = run(write_csv(lines)).goals
    assert [(goal.group, goal.is_met) for goal in goals] == [
        ("A100 matmul", False),
        ("MI210 matmul", False),
        ("softmax/layernorm/gelu", True),
    ]
    assert run(write_csv(lines, name="mine.csv")).goals == ()
    assert {goal.dataset for goal in ERROR_GOALS} <= set(DATASET_SCHEMAS)


@pytest.fixture(scope="module")
def public():
    return read_datasets(None)[0]


@pytest.fixture(scope="module")
def baselines(public):
    return fit_baselines(public)


def test_a_constant_utilisation_is_the_best_of_all_constants(public, baselines):
    dataset = next(item for item in public if item.name == "train_llmfoundry_fsdp")
    rows = [row for row in dataset.rows if row.text("hardware") == "H100-SXM"]
    ideal = np.array([ideal_seconds(row, "training") for row in rows])
    measured = np.array([measured_seconds(row, "training") for row in rows])

    def error(factor):
        return np.abs(factor * ideal / measured - 1).mean()

    found = baselines["train_llmfoundry_fsdp"].seconds(rows) / ideal
    assert np.ptp(found) < 1e-9
    assert error(found[0]) <= min(error(factor) for factor in np.linspace(1, 6, 2001)) + 1e-12


def test_ideal_times_by_hand(public):
    rows = next(item for item in public if item.name == "op_llmcompass").rows
    matmul = next(row for row in rows if row.text("op") == "matmul")
    # A100, 128 x 12288 x 12288 in fp16 at 312 TFLOP/s and 2039 GB/s: 124 us of FLOPs, 151 us of bytes.
    assert matmul.text("m") == "128"
    assert ideal_seconds(matmul, "operators") == pytest.approx(2 * (12288**2 + 2 * 128 * 12288) / 2039e9, rel=1e-3)
    sc21 = next(row for item in public if item.name == "train_megatron_sc21" for row in item.rows)
    # The set's own figure: 33.4594 % of the peak, counted by the paper's formula of model FLOPs.
    assert ideal_seconds(sc21, "training") / sc21.number("iter_time_s") == pytest.approx(sc21.number("mfu"), rel=0.01)


def test_every_row_has_a_baseline_but_for_context(public, baselines):
    for dataset in public:
        if dataset.name in baselines:
            assert np.isfinite(baselines[dataset.name].seconds(dataset.rows)).all(), dataset.name
    assert set(DATASET_SCHEMAS) - set(LABORATORY) - set(baselines) == {
        "die_area",
        "dies",
        "nvdla_estimates",
        "eyeriss_alexnet",
        "mlperf_gpt3",
    }


def test_unknown_devices_have_no_operator_baseline(write_csv, baselines):
    dataset = read_dataset(write_csv(["Z9000,gelu,8,8,fp16,1"]))
    assert np.isnan(baselines["op_llmcompass"].seconds(dataset.rows)).all()
