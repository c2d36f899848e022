"""``phaze-opt validate`` and ``calibrate`` as their users call them; the toy family stands in for the package's."""

import json
import re
import shlex

import pytest
from command_runs import printed, refused, run, run_json
from kits.toy_family import HEADER, TOY, TRUE, toy_lines

from phaze_opt.cli import calibrate as calibrate_command
from phaze_opt.cli import validate as validate_command
from phaze_opt.hardware.fitted import read_fitted_file
from phaze_opt.validation import calibrate as calibration
from phaze_opt.validation import predict

pytestmark = pytest.mark.usefixtures("undrawn")

FIGURES = {"mape", "median_ape", "p90_ape", "bias", "spearman", "kendall", "baseline_mape"}


@pytest.fixture(autouse=True)
def _toy(monkeypatch):
    monkeypatch.setattr(predict, "FAMILIES", (TOY,))


@pytest.fixture
def data(tmp_path):
    path = tmp_path / "mine.csv"
    path.write_text("\n".join([HEADER, *toy_lines()]) + "\n")
    return path


def test_a_user_calibrates_and_validates_in_one_command_each(data, tmp_path, capsys):
    out = tmp_path / "my_constants.json"
    found = run_json(["calibrate", "--data", data, "--out", out], capsys)
    group = found["families"]["toy"]["groups"]["toy/A"]
    assert (group["launch_s"], group["rate"]) == pytest.approx(TRUE["A"], rel=1e-4)
    assert found["families"]["toy"]["datasets"]["mine"]["cross_validated_mape"] < 0.1
    figures = run_json(["validate", "--data", data, "--constants", out], capsys)["datasets"]["mine"]
    assert figures["rows"] == figures["scored"] == 36
    assert figures["mape"] < 0.01
    assert figures["spearman"] == pytest.approx(1.0)


def test_the_last_line_says_how_to_use_the_constants(data, tmp_path, capsys, monkeypatch):
    """The command that it names runs as it stands, also where a path has blanks."""
    monkeypatch.setattr(calibrate_command, "OF_PLANS", ("toy/",))
    folder = tmp_path / "my machines"
    folder.mkdir()
    mine = data.rename(folder / "mine.csv")
    fit = ["calibrate", "op_llmcompass", "--data", mine, "--out", folder / "c.json", "--no-held-out", "--details"]
    out = printed(fit, capsys)
    commands = re.findall(r"`([^`]+)`", out.splitlines()[-1])
    assert len(commands) == 2
    assert "--dataset op_llmcompass " in commands[0]
    assert run_json(shlex.split(commands[0])[1:], capsys)["datasets"]["mine"]["mape"] < 0.01
    assert shlex.split(commands[1]) == ["evaluate", "--constants", str(folder / "c.json")]


def test_the_line_of_json_has_every_figure(data, tmp_path, capsys):
    out = tmp_path / "c.json"
    run_json(["calibrate", "--data", data, "--out", out, "--no-held-out"], capsys)
    data.write_text("\n".join([HEADER, *toy_lines(), "A,mystery,8,8,fp16,3"]) + "\n")
    result = run_json(["validate", "--data", data, "--dataset", "op_llmcompass", "--constants", out], capsys)
    figures = result["datasets"]["mine"]
    assert figures.keys() >= FIGURES | {"rows", "scored", "unscored_reasons", "groups", "regimes"}
    assert figures["unscored_reasons"] == {"no model of this operator": 1}
    assert (figures["rows"], figures["scored"]) == (37, 36)
    assert figures["groups"]["A gelu"].keys() >= FIGURES | {"rows"}
    assert figures["groups"]["by cell"].keys() == {"rows", "cells", "mape"}
    assert set(figures["regimes"]) == {"small", "large"}
    assert result["goals"] == []


def test_sets_are_chosen_by_name_in_any_spelling(capsys):
    spellings = (
        ["--dataset", "die_area", "--dataset", "mlperf_gpt3"],
        ["--dataset", "die_area,mlperf_gpt3"],
        ["--dataset", "die_area", "mlperf_gpt3"],
        ["mlperf_gpt3", "die_area"],
    )
    for spelling in spellings:
        result = run_json(["validate", *spelling], capsys)
        assert list(result["datasets"]) == ["die_area", "mlperf_gpt3"]
        assert result["datasets"]["die_area"]["mape"] is None


def test_missed_goals_change_no_exit_code(tmp_path, capsys):
    constants = {"launch_s": (1e-6, 1e-7, 1.0), "rate": (1e9, 1e6, 1e14)}
    entry = {
        "constants": {
            name: {"value": value, "low": low, "high": high, "unit": "", "meaning": ""}
            for name, (value, low, high) in constants.items()
        },
        "datasets": {},
        "residuals": {},
        "source": "test",
    }
    path = tmp_path / "c.json"
    path.write_text(json.dumps({"format": 1, "groups": {"toy/A100-SXM-80GB": entry, "toy/MI210": entry}}))
    out = printed(["validate", "op_llmcompass", "--constants", path], capsys)
    assert "0 of 3 goals met; missed: op_llmcompass (A100 matmul)" in out.replace("\n", " ")
    assert all(len(line) <= 80 for line in out.splitlines())


def test_nothing_to_fit_is_said(tmp_path, capsys):
    path = tmp_path / "mine.csv"
    path.write_text("hardware,n_devices,bytes,latency_us\nA100-SXM,8,1024,10\n")
    code, _, err = run(["calibrate", "--data", path, "--out", tmp_path / "c.json"], capsys)
    assert (code, "nothing to fit" in err) == (2, True)
    assert not (tmp_path / "c.json").exists()


def test_an_interrupted_calibration_writes_nothing(data, tmp_path, capsys, monkeypatch):
    out = tmp_path / "c.json"
    out.write_text("as it was")

    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(calibration, "predict_rows", interrupt)
    assert run(["calibrate", "--data", data, "--out", out], capsys)[:2] == (130, "")
    assert out.read_text() == "as it was"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c.json", "mine.csv"]


def test_groups_of_others_stay_in_the_file(data, tmp_path, capsys):
    first, second = tmp_path / "a.json", tmp_path / "b.json"
    run_json(["calibrate", "--data", data, "--out", first, "--no-held-out"], capsys)
    data.write_text("\n".join([HEADER, *toy_lines(("B",))]) + "\n")
    run_json(["calibrate", "--data", data, "--constants", first, "--out", second, "--no-held-out"], capsys)
    groups = read_fitted_file(second).groups
    assert groups["toy/A"] == read_fitted_file(first).groups["toy/A"]
    assert "toy/B" in groups


def test_more_constants_than_rows_is_warned_of(data, tmp_path, capsys):
    data.write_text("\n".join([HEADER, *toy_lines()[:2]]) + "\n")
    code, _, err = run(["calibrate", "--data", data, "--out", tmp_path / "c.json"], capsys)
    assert code == 0
    assert "warning: toy: 2 constants were fitted to 2 rows" in err


def test_tables_for_people(data, tmp_path, capsys):
    out = tmp_path / "c.json"
    code, text, err = run(["calibrate", "--data", data, "--out", out, "--details"], capsys)
    assert code == 0
    assert "launch_s" in text
    assert "price plans" not in text, "constants of operators alone enter no training step"
    assert "mine is predicted as op_llmcompass" in err
    assert "warning" not in err
    assert "mine" in printed(["validate", "--data", data, "--constants", out, "--report", tmp_path / "p.html"], capsys)
    assert "<table>" in (tmp_path / "p.html").read_text()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda _: [], "must be a JSON object, not a list; give a file of fitted constants"),
        (lambda d: {**d, "format": 7}, "key 'format': 7 is not the format that this version reads, 1"),
        (lambda d: _changed(d, -1.0), "rate.value': -1 is not within its bounds, 1e+06 to 1e+14"),
        (lambda d: _changed(d, float("nan")), "rate.value': nan is not within its bounds"),
        (lambda d: _changed(d, float("inf")), "rate.value': inf is not within its bounds"),
    ],
)
def test_files_of_constants_are_checked(change, message, data, tmp_path, capsys):
    constant = {"value": 1e9, "low": 1e6, "high": 1e14, "unit": "", "meaning": ""}
    group = {"constants": {"rate": constant}, "datasets": {}, "residuals": {}, "source": "test"}
    path = tmp_path / "c.json"
    path.write_text(json.dumps(change({"format": 1, "groups": {"toy/A": group}})))
    refused(["validate", "--data", data, "--constants", path], capsys, message)


def _changed(document, value):
    document["groups"]["toy/A"]["constants"]["rate"]["value"] = value
    return document


def test_rows_that_nothing_predicts_are_not_fitted(tmp_path, capsys):
    """Constants fitted to no row would be starting values that pass for measured ones."""
    out, path = tmp_path / "c.json", tmp_path / "mine.csv"
    path.write_text(f"{HEADER}\nA,mystery,8,8,fp16,3\nA,mystery,8,9,fp16,3\n")
    words = "nothing to fit: toy: none of 2 rows can be predicted; line 2: no model of this operator"
    code, text, err = run(["calibrate", "--data", path, "--out", out], capsys)
    assert (code, text, words in err) == (2, "", True)
    assert not out.exists()


def test_a_folder_that_will_be_made_is_said_before_anything_runs(data, tmp_path, capsys):
    out = tmp_path / "new" / "folder" / "c.json"
    code, _, err = run(["calibrate", "--data", data, "--out", out, "--no-held-out"], capsys)
    assert code == 0
    assert err.startswith(f"note: the folder {out.parent} will be made\n")
    assert read_fitted_file(out).groups


def test_devices_are_not_replaced_by_files(data, capsys):
    words = "'/dev/null' is no ordinary file; give one, such as my_constants.json"
    refused(["calibrate", "--data", data, "--out", "/dev/null"], capsys, words)


def test_the_measurements_that_are_read_are_not_written_over(data, capsys):
    text, again = data.read_text(), data.parent / "." / data.name
    refused(["calibrate", "--data", data, "--out", again], capsys, "--out: ", "is the file of --data")
    refused(["validate", "--data", data, "--predictions", again], capsys, "--predictions: ", "is the file of --data")
    assert data.read_text() == text


def test_files_are_written_though_nobody_reads_the_answer(data, tmp_path, capsys, monkeypatch):
    """As under `validate ... --predictions FILE | head`."""
    path, out = tmp_path / "p.csv", tmp_path / "c.json"
    run(["calibrate", "--data", data, "--out", out, "--no-held-out"], capsys)

    def closed(*_, **__):
        raise BrokenPipeError

    monkeypatch.setattr(validate_command, "_print", closed)
    with pytest.raises(BrokenPipeError):
        validate_command.validate(data=data, constants=out, predictions=path)
    assert len(path.read_text().splitlines()) == 37


@pytest.mark.parametrize(("factor", "is_said"), [(1.0, False), (3.0, False), (1e3, True), (1e-3, True)])
def test_times_in_another_unit_are_suspected_first(data, tmp_path, capsys, factor, is_said):
    path = tmp_path / "constants.json"
    printed(["calibrate", "--data", data, "--out", path, "--no-held-out"], capsys)
    rows = [line.rpartition(",") for line in toy_lines()]
    lines = [f"{start},{factor * float(value)!r}" for start, _, value in rows]
    data.write_text("\n".join([HEADER, *lines]) + "\n")
    said = printed(["validate", "--data", data, "--constants", path], capsys)
    assert ("about a power of 1,000" in " ".join(said.split("\n\n")[0].split())) == is_said
