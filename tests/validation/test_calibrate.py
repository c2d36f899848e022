"""Calibration: known constants are found again, the file is written at once, and equal inputs give equal bytes."""

import json

import numpy as np
import pytest
from kits.toy_family import TOY, TRUE, toy_lines, toy_us

from phaze_opt.errors import InputError
from phaze_opt.hardware.fitted import (
    FittedConstants,
    FittedFile,
    FittedGroup,
    FittedValue,
    load_fitted,
    read_fitted_file,
    read_own_file,
)
from phaze_opt.validation.calibrate import calibrate
from phaze_opt.validation.dataset import read_dataset
from phaze_opt.validation.fit import FORMAT, fit_family, merged, without_groups, write_fitted_file
from phaze_opt.validation.predict import cells_of, fold_by_cell, predict_held_out

EMPTY = FittedConstants({})


def fit(dataset, start=EMPTY, **how):
    return calibrate([TOY], [dataset], start, source="test", **how)


def write_groups(path, groups, **changes):
    """Replace groups of a file, or begin one."""
    known = read_fitted_file(path) if path.exists() else FittedFile(format=FORMAT, groups={})
    write_fitted_file(path, merged(known, groups, **changes))


@pytest.fixture
def dataset(write_csv):
    return read_dataset(write_csv(toy_lines()))


def test_known_constants_are_found_again(dataset):
    found = fit(dataset)
    for device, (launch_s, rate) in TRUE.items():
        group = found.constants.group(f"toy/{device}")
        assert group["launch_s"] == pytest.approx(launch_s, rel=1e-4)
        assert group["rate"] == pytest.approx(rate, rel=1e-4)
    (family,) = found.families
    assert family.num_constants == 4
    assert family.sets[0].whole.fitted.mape < 0.01
    assert family.sets[0].cross_validated_mape < 0.01


def test_rows_used_and_residuals_are_of_the_group_s_own_rows(write_csv):
    # Device B's rows are 30 % slower than its constants can explain at every second size; A's are exact.
    lines = toy_lines(("A",))
    for index, line in enumerate(toy_lines(("B",))):
        start, _, time = line.rpartition(",")
        lines.append(f"{start},{float(time) * (1.3 if index % 2 else 1.0)}")
    dataset = read_dataset(write_csv(lines))
    groups = fit(dataset).groups
    assert groups["toy/A"].datasets == {"op_llmcompass": sorted(f"op_llmcompass:{line}" for line in range(2, 20))}
    assert groups["toy/B"].datasets == {"op_llmcompass": sorted(f"op_llmcompass:{line}" for line in range(20, 38))}
    assert groups["toy/A"].residuals["mape"] < 0.01
    assert groups["toy/B"].residuals["mape"] > 5.0
    assert groups["toy/B"].residuals["cross_validated_mape"] > 5.0


def test_a_device_kept_out_is_predicted_without_its_own_constants(dataset):
    (family,) = fit(dataset).families
    # Starts of the toy are 10 us and 1e10/s: device A takes 20 us and 2e9/s.
    rows = [(float(row.number("m") * row.number("n")), row.number("latency_us") * 1e-6) for row in dataset.rows]
    expected = 100 * np.mean([abs((1e-5 + work / 1e10) / measured - 1) for work, measured in rows])
    assert family.sets[0].others["device"] == pytest.approx(expected, rel=1e-6)


def test_rows_kept_out_do_not_reach_the_fit(dataset):
    family, rows = TOY, dataset.rows
    folds = fold_by_cell(cells_of(family, rows))
    predicted = predict_held_out(family, rows, folds, EMPTY)
    assert np.isfinite(predicted).all()
    first = folds[0]
    fitted = fit_family(family, [rows[index] for index in first.kept], EMPTY)
    again = family.compile([rows[index] for index in first.held_out]).seconds(fitted)
    assert predicted[list(first.held_out)] == pytest.approx(again)
    # Constants known from all rows must not serve as a start unless asked for.
    known = fit(dataset).constants
    assert predict_held_out(family, rows, folds, known) == pytest.approx(predicted, rel=0)


def test_progress_is_told(dataset):
    told = []
    fit(dataset, on_progress=told.append)
    assert told[0] == "toy: 4 constants to 36 rows"
    assert "toy: device, A kept out" in told
    assert "toy: cells, 5 of 5 kept out" in told


def test_without_held_out_rows_there_are_no_such_figures(dataset):
    (family,) = fit(dataset, has_held_out=False).families
    assert np.isnan(family.sets[0].cross_validated_mape)
    assert set(family.groups["toy/A"].residuals) == {"mape", "median_ape", "p90_ape"}


def test_families_without_rows_are_passed_over(write_csv):
    training = "hardware,n_devices,layers,hidden,heads,seq,global_batch,iter_time_s"
    dataset = read_dataset(write_csv(["A,8,24,1024,16,1024,8,1"], header=training, name="mine.csv"))
    assert fit(dataset).families == ()


def test_equal_rows_give_equal_bytes_whatever_was_known(dataset, tmp_path):
    texts = []
    for name, start in (("a", EMPTY), ("b", without_groups(fit(dataset).constants, {"toy/A", "toy/B"}))):
        write_groups(tmp_path / name, fit(dataset, start).groups)
        texts.append((tmp_path / name).read_bytes())
    assert texts[0] == texts[1]
    assert json.loads(texts[0])["groups"]["toy/A"]["constants"]["launch_s"]["unit"] == "s"


def group_of(value, *, low=0.0, high=1.0):
    constant = FittedValue(value=value, low=low, high=high, unit="", meaning="a share")
    return FittedGroup(constants={"share": constant}, datasets={}, residuals={}, source="test")


def test_writing_replaces_constants_and_keeps_the_others(tmp_path):
    path = tmp_path / "deep" / "constants.json"
    more = FittedValue(value=3.0, low=1.0, high=9.0, unit="s", meaning="a time that few rows show")
    known = group_of(0.5)
    write_groups(
        path, {"a": group_of(0.25), "b": known.model_copy(update={"constants": {**known.constants, "t": more}})}
    )
    write_groups(path, {"b": group_of(0.75), "c": group_of(1.0)})
    file = read_fitted_file(path)
    assert {name: group.constants["share"].value for name, group in file.groups.items()} == {
        "a": 0.25,
        "b": 0.75,
        "c": 1.0,
    }
    assert file.groups["b"].constants["t"] == more
    write_groups(path, {}, removed=["a"])
    assert set(read_fitted_file(path).groups) == {"b", "c"}


def test_figures_of_data_sets_are_kept_until_fitted_again(dataset, tmp_path):
    path = tmp_path / "constants.json"
    found = fit(dataset)
    write_groups(path, found.groups, sets=found.sets | {"other": {"mape": 1.23456789}})
    write_groups(path, {}, sets={"op_llmcompass": {"mape": 2.0}})
    assert read_fitted_file(path).sets == {"op_llmcompass": {"mape": 2.0}, "other": {"mape": 1.23457}}
    assert set(found.sets["op_llmcompass"]) == {"mape", "cross_validated_mape", "leave_one_device_out_mape"}


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -0.1, 1.1])
def test_values_outside_their_bounds_are_refused_and_the_file_stays(tmp_path, value):
    path = tmp_path / "constants.json"
    write_groups(path, {"a": group_of(0.25)})
    before = path.read_bytes()
    with pytest.raises(InputError, match=r"'a\.share'|'b\.share'"):
        write_groups(path, {"b": group_of(value)})
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_fit_takes_its_rows_from_all_sets_of_the_family(write_csv):
    first = read_dataset(write_csv(toy_lines(("A",)), name="op_llmcompass.csv"))
    lines = [f"B,gelu,1024,{n},fp16,{toy_us('B', 1024, n)}" for n in (8, 999, 4096)]
    second = read_dataset(write_csv(lines, name="mine.csv"))
    found = calibrate([TOY], [first, second], EMPTY, source="test")
    assert [item.name for item in found.families[0].sets] == ["op_llmcompass", "mine"]
    assert set(found.groups) == {"toy/A", "toy/B"}


def test_a_file_that_lacks_constants_is_refused(tmp_path):
    own = read_own_file()
    name, group = min(own.groups.items())
    path = tmp_path / "constants.json"
    write_fitted_file(path, own)
    assert load_fitted(path).groups == own.constants().groups
    lost, *rest = sorted(group.constants)
    kept = group.model_copy(update={"constants": {key: group.constants[key] for key in rest}})
    write_fitted_file(path, own.model_copy(update={"groups": {**own.groups, name: kept}}))
    with pytest.raises(InputError, match=f"lacks 1 constants that this version reads, such as {lost} of"):
        load_fitted(path)
