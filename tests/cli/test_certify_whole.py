"""The whole way with the real prover and checker: prove, check, forge, resume, and a search told its regret."""

import shutil
from pathlib import Path

import pytest
from command_runs import printed, refused, run, run_json
from sample_files import space_text

pytestmark = pytest.mark.usefixtures("undrawn")

SPACE = space_text(
    min_area_fraction=0.0,
    num_tc=[4, 16],
    num_vc=[16, 64],
    tc_width=[64, 128],
    tc_depth=[64],
    glb_mb=[8, 16],
    hbm_gb=[80],
    micro_batch=[1, 4],
)
TASK = ["--model", "tiny", "--devices", "16", "--global-batch", "64", "--tensor-parallel", "1,2", "--no-tracking"]
TASK += ["--silicon", "phaze", "--no-range"]


def test_prove_check_search_and_resume(capsys, tmp_path):
    (tmp_path / "space.toml").write_text(SPACE)
    task = [*TASK, "--space", str(tmp_path / "space.toml"), "--work-dir", str(tmp_path)]
    data = run_json(["certify", *task], capsys)
    assert data["is_proved"] is True
    assert 0.0 <= data["gap"] <= data["tolerance"] == 0.001
    assert data["points"] == 16

    report = run_json(["certify", "--check", data["file"]], capsys)
    assert report["valid"] is True
    assert (report["claim"]["value"], report["claim"]["num_points"]) == (data["value"], 16)

    again = run_json(["certify", *task, "--resume"], capsys)
    assert (again["value"], again["file"]) == (data["value"], data["file"])
    assert [design["architecture"] for design in again["designs"]] == [
        design["architecture"] for design in data["designs"]
    ]

    found = run_json(["search", *task, "--strategy", "exhaustive", "--trials", "16"], capsys)
    assert found["regret"] == pytest.approx(0.0, abs=1e-9)
    assert found["best"]["throughput_samples_per_s"] == pytest.approx(data["throughput_samples_per_s"])
    poor = run_json(["search", *task, "--strategy", "random", "--trials", "1"], capsys)
    expected = 1 - poor["best"]["throughput_samples_per_s"] / data["value"]
    assert poor["regret"] == pytest.approx(max(0.0, expected))
    other = [*task, "--strategy", "random", "--trials", "1", "--micro-batch", "1"]
    assert run_json(["search", *other], capsys)["regret"] is None

    forged = tmp_path / "forged"
    shutil.copytree(data["file"], forged)
    text = (forged / "certificate.json").read_text()
    value = repr(data["value"])
    assert value in text
    (forged / "certificate.json").write_text(text.replace(value, repr(data["value"] * 1.01)))
    assert run_json(["certify", "--check", str(forged)], capsys, code=2)["valid"] is False


def test_a_front_is_proved_checked_and_what_searches_are_judged_by(capsys, tmp_path):
    (tmp_path / "space.toml").write_text(SPACE)
    task = [*TASK, "--space", str(tmp_path / "space.toml"), "--work-dir", str(tmp_path)]
    data = run_json(["certify", *task, "--objective", "pareto", "--report", str(tmp_path / "front.html")], capsys)
    assert (data["is_proved"], data["objective"]) == (True, "throughput,tdp,area")
    rates = [design["throughput_samples_per_s"] for design in data["front"]]
    assert rates == sorted(rates, reverse=True)
    assert len(rates) > 1
    assert "The front" in (tmp_path / "front.html").read_text()
    report = run_json(["certify", "--check", data["file"]], capsys)
    assert report["claim"]["front"] == sorted(design["index"] for design in data["front"])
    assert "on the front of throughput, TDP and area" in printed(["certify", "--check", data["file"]], capsys)
    assert "16 points" in printed(["certify", *task, "--objective", "area,throughput,tdp", "--resume"], capsys)

    search = ["search", *task, "--objective", "pareto", "--strategy"]
    assert run_json([*search, "exhaustive", "--trials", "16"], capsys)["regret"] == 0.0
    assert run_json([*search, "random", "--trials", "1"], capsys)["regret"] > 0.01

    refused(["certify", *task, "--objective", "throughput,cost"], capsys, "'cost' is of dies")
    refused(["certify", *task, "--objective", "cost"], capsys, "give throughput,cost")
    refused(["certify", *task, "--objective", "throughput,speed"], capsys, "'speed' is unknown")
    assert run_json(["certify", "--check", data["file"]], capsys)["valid"] is True
    forged = tmp_path / "forged"
    shutil.copytree(data["file"], forged)
    text = (forged / "certificate.json").read_text()
    (forged / "certificate.json").write_text(text.replace('"front": [', '"front": [0, 0, '))
    assert run_json(["certify", "--check", str(forged)], capsys, code=2)["valid"] is False


def test_a_budget_that_no_chip_keeps_to_is_named(capsys, tmp_path):
    (tmp_path / "space.toml").write_text(SPACE)
    task = [*TASK, "--space", str(tmp_path / "space.toml"), "--work-dir", str(tmp_path), "--max-tdp-w", "100"]
    for command in (["certify"], ["search", "--strategy", "random", "--trials", "2"]):
        code, _, said = run([*command, *task], capsys)
        assert code == 3
        assert "TDP budget of 100 W: the least that one takes is 211.0" in said


@pytest.mark.slow
def test_a_front_over_worlds_is_proved_and_checked(capsys, tmp_path):
    (tmp_path / "space.toml").write_text(SPACE)
    task = [*TASK, "--space", str(tmp_path / "space.toml"), "--work-dir", str(tmp_path), "--robust-samples", "0"]
    front = ["certify", "--no-check", *task, "--objective", "throughput,area", "--robust"]
    robust = run_json([*front, "--report", str(tmp_path / "page.html")], capsys)["robust"]
    assert robust["is_proved"]
    assert all(0.0 < design["share"] <= 1.0 for design in robust["designs"])
    assert "over worlds" in (tmp_path / "page.html").read_text()
    text = printed([*front, "--resume"], capsys)
    num_counted = sum(world["value"] > 0.0 for world in robust["worlds"])
    assert f"over {num_counted} worlds" in " ".join(text.split())
    checked = run_json(["certify", "--check", robust["file"]], capsys)
    assert (checked["valid"], checked["claim"]["designs"]) == (True, robust["designs"])
    assert "certificates of worlds" in " ".join(printed(["certify", "--check", robust["file"]], capsys).split())
    statement = Path(robust["file"])
    statement.write_text(statement.read_text().replace('"seed": 0', '"seed": 1'))
    assert run_json(["certify", "--check", robust["file"]], capsys, code=2)["valid"] is False
