"""Operators against published measurements: the goals on the package's rows, and how rows are read."""

from dataclasses import replace

import numpy as np
import pytest
from kits.measured_rows import public_rows

from phaze_opt.estimate.machine import BEST_GROUP
from phaze_opt.hardware.fitted import FittedConstants, load_fitted
from phaze_opt.validation.measured_row import Row
from phaze_opt.validation.operators import OPERATORS
from phaze_opt.validation.predict import cells_of, fold_by_cell, leave_one_out, predict_held_out, predict_rows

FAMILY = OPERATORS
ROW_OPERATORS = ("softmax", "layernorm", "gelu")


@pytest.fixture(scope="module")
def rows():
    return public_rows(*FAMILY.datasets)


@pytest.fixture(scope="module")
def errors(rows):
    """Absolute errors with the package's constants, and of predictions by folds of configurations, per cent."""
    predictions = predict_rows([FAMILY], rows, load_fitted())
    held_out = predict_held_out(FAMILY, rows, fold_by_cell(cells_of(FAMILY, rows)), load_fitted())
    measured = predictions.measured_s
    return tuple(100 * np.abs(times / measured - 1) for times in (predictions.predicted_s, held_out))


def chosen(rows, name):
    """Rows of one goal."""
    return np.array(
        [
            {
                "A100 matmul": row.dataset == "op_llmcompass" and row.text("hardware") == "A100-SXM-80GB",
                "MI210 matmul": row.dataset == "op_llmcompass" and row.text("hardware") == "MI210",
                "row operators": row.dataset == "op_llmcompass",
            }.get(name, row.dataset == name)
            and (("matmul" in name) == (row.text("op") == "matmul") or row.dataset == name)
            for row in rows
        ]
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "num_rows", "fitted_goal", "kept_out_goal"),
    [
        ("A100 matmul", 15, 2.5, 2.5),
        ("MI210 matmul", 11, 4.0, 4.0),
        ("row operators", 64, 7.0, 7.0),
        ("op_tpu_gemm", 88, 8.0, 9.0),
        ("op_gpt3_layer_llmcompass", 12, 10.0, 10.0),
        ("op_best_matmul", 10, 12.0, 12.0),
    ],
)
def test_goals_are_met_fitted_and_by_cross_validation(rows, errors, name, num_rows, fitted_goal, kept_out_goal):
    is_chosen = chosen(rows, name)
    assert is_chosen.sum() == num_rows
    for error, goal in zip(errors, (fitted_goal, kept_out_goal), strict=True):
        assert np.isfinite(error[is_chosen]).all()
        assert error[is_chosen].mean() <= goal


def test_a_generation_of_tpus_kept_out_is_predicted_by_the_other():
    rows = public_rows("op_tpu_gemm")
    folds = leave_one_out([row.text("hardware") for row in rows])
    assert [fold.label for fold in folds] == ["TPUv6e", "TPUv7-chiplet"]
    predicted = predict_held_out(FAMILY, rows, folds, load_fitted())
    measured = predict_rows([FAMILY], rows, load_fitted()).measured_s
    assert 100 * np.abs(predicted / measured - 1).mean() <= 14.0


def test_generations_of_tpus_share_all_constants_but_the_time_of_their_hosts():
    parameters = FAMILY.parameters(public_rows("op_tpu_gemm"))
    own = [one for one in parameters if not one.group.startswith("operators/systolic")]
    assert {one.name for one in own} == {"launch_s"}
    assert [one.group for one in own] == ["operators/tpu-v6e/host", "operators/tpu-v7-chiplet/host"]
    assert len(parameters) - len(own) == 4


def test_what_an_awaited_tpu_row_is_made_of_adds_up():
    rows = public_rows("op_tpu_gemm")
    predictions = predict_rows([FAMILY], rows, load_fitted())
    for index in (0, len(rows) - 1):
        parts = {part.name: part.seconds for part in predictions.explain(load_fitted(), index)}
        assert sum(parts.values()) == pytest.approx(predictions.predicted_s[index], rel=1e-12)
        assert parts["launch"] > 0
        assert parts["filling and draining"] > 0


def test_few_constants(rows):
    parameters = FAMILY.parameters(rows)
    assert len(parameters) == 36
    assert len({(one.group, one.name) for one in parameters}) == 36
    assert sum(one.group == BEST_GROUP for one in parameters) == 4


def test_a_fit_is_deterministic_and_finds_what_made_the_rows(rows):
    own = [row for row in rows if row.dataset == "op_llmcompass" and row.text("op") == "matmul"]
    truth = load_fitted()
    made = FAMILY.compile(own).seconds(truth)
    synthetic = [
        replace(row, values=dict(row.values) | {"latency_us": str(1e6 * seconds)})
        for row, seconds in zip(own, made, strict=True)
    ]
    found = FAMILY.fit(synthetic, FittedConstants({}))
    assert found == FAMILY.fit(synthetic, FittedConstants({}))
    for name in ("launch_s", "matmul_efficiency", "matmul_memory_efficiency"):
        for group in ("operators/a100-80g/host", "operators/mi210/host"):
            assert found.value(group, name) == pytest.approx(truth.value(group, name), rel=0.05)


def make_row(dataset="op_best_matmul", **values):
    given = {"hardware": "H100-SXM", "op": "matmul", "m": "4096", "n": "4096", "k": "4096", "dtype": "bf16"}
    given |= {"latency_us": "100"} | values
    return Row(dataset, "x.csv", 2, given)


@pytest.mark.parametrize(
    "hardware", ["MI300X", "MI250X", "Gaudi3", "B200-SXM", "A100-SXM-80GB", "H200-SXM", "V100-SXM"]
)
def test_other_accelerators_of_the_best_matmuls_are_predicted(hardware):
    row = make_row(hardware=hardware)
    predictions = predict_rows([FAMILY], [row], load_fitted())
    assert not predictions.unscored
    assert 0 < predictions.predicted_s[0] < 0.1


@pytest.mark.parametrize("dataset", ["op_llmcompass", "op_tpu_gemm"])
@pytest.mark.parametrize("hardware", ["H100-SXM", "TPUv5e"])
def test_devices_never_measured_are_predicted_by_their_kin(dataset, hardware):
    predictions = predict_rows([FAMILY], [make_row(dataset, hardware=hardware, timing="")], load_fitted())
    assert not predictions.unscored
    assert predictions.predicted_s[0] > 1e-5


@pytest.mark.parametrize(
    ("values", "regime"),
    [
        ({}, "matmul compute-bound"),
        ({"m": "8", "n": "12288", "k": "12288"}, "matmul memory-bound"),
        ({"m": "8", "n": "8", "k": "8"}, "matmul launch-bound"),
        ({"op": "gelu", "m": "268435456", "n": "1", "k": ""}, "gelu memory-bound"),
        ({"op": "allreduce_ffn", "k": "", "n_devices": "4", "hardware": "A100-SXM-80GB"}, "all-reduce"),
    ],
)
def test_regimes(values, regime):
    assert FAMILY.regime(make_row("op_gpt3_layer_llmcompass", **values)) == regime


def test_rows_that_repeat_a_shape_are_one_cell(rows):
    cells = {}
    for row in rows:
        cells.setdefault(row.id, set()).add(FAMILY.cell(row))
    assert all(len(values) == 1 for values in cells.values())
    assert len(cells) < len(rows)


def test_a_missing_device_constant_falls_back_before_it_fails(rows):
    own = [row for row in rows if row.text("hardware") == "MI210"]
    without = FittedConstants({name: values for name, values in load_fitted().groups.items() if "mi210" not in name})
    predictions = predict_rows([FAMILY], own, without)
    assert predictions.is_scored.all()
