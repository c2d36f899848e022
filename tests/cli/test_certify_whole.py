"""The whole way with the real prover and checker: prove, check, forge, resume, and a search told its regret."""

import json
import shutil

import pytest

from phaze_opt.cli.main import main

SPACE = """\
area_budget_mm2 = 279
min_area_fraction = 0.0
[axes]
num_tc = [4, 16]
num_vc = [16, 64]
tc_width = [64, 128]
tc_depth = [64]
glb_mb = [8, 16]
hbm_gb = [80]
micro_batch = [1, 4]
"""
TASK = ["--model", "tiny", "--devices", "16", "--global-batch", "64", "--json", "--no-tracking"]


def run(arguments, capsys, *, code=0):
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    captured = capsys.readouterr()
    assert stop.value.code == code, captured.err
    return captured


def test_prove_check_search_and_resume(capsys, tmp_path):
    (tmp_path / "space.toml").write_text(SPACE)
    task = [*TASK, "--space", str(tmp_path / "space.toml"), "--work-dir", str(tmp_path)]
    data = json.loads(run(["certify", *task], capsys).out)
    assert data["is_proved"] is True
    assert 0.0 <= data["gap"] <= data["tolerance"] == 0.001
    assert data["points"] == 32

    report = json.loads(run(["certify", "--check", data["file"], "--json"], capsys).out)
    assert report["valid"] is True
    assert (report["claim"]["value"], report["claim"]["num_points"]) == (data["value"], 32)

    again = json.loads(run(["certify", *task, "--resume"], capsys).out)
    assert (again["value"], again["file"]) == (data["value"], data["file"])
    assert [design["architecture"] for design in again["designs"]] == [
        design["architecture"] for design in data["designs"]
    ]

    found = json.loads(run(["search", *task, "--strategy", "exhaustive", "--trials", "32"], capsys).out)
    assert found["regret"] == pytest.approx(0.0, abs=1e-9)
    assert found["best"]["throughput_samples_per_s"] == pytest.approx(data["throughput_samples_per_s"])
    poor = json.loads(run(["search", *task, "--strategy", "random", "--trials", "1"], capsys).out)
    expected = 1 - poor["best"]["throughput_samples_per_s"] / data["value"]
    assert poor["regret"] == pytest.approx(max(0.0, expected))
    other = [*task, "--strategy", "random", "--trials", "1", "--micro-batch", "1"]
    assert json.loads(run(["search", *other], capsys).out)["regret"] is None

    forged = tmp_path / "forged"
    shutil.copytree(data["file"], forged)
    text = (forged / "certificate.json").read_text()
    value = repr(data["value"])
    assert value in text
    (forged / "certificate.json").write_text(text.replace(value, repr(data["value"] * 1.01)))
    captured = run(["certify", "--check", str(forged), "--json"], capsys, code=2)
    assert json.loads(captured.out)["valid"] is False
    assert captured.err.count("\n") == 1
