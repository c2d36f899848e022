"""The answer is printed before any page: one that cannot be written is a warning, not an exit code."""

import json

import pytest
from command_runs import printed, run, run_json
from sample_files import space_text

from phaze_opt.errors import InputError
from phaze_opt.report import page
from phaze_opt.track.protocol import NullSession

pytestmark = pytest.mark.usefixtures("undrawn")

SPACE = space_text(min_area_fraction=0.0, num_tc=[1, 2], num_vc=[1, 2], tc_width=[8], tc_depth=[8], glb_mb=[4])


def warned_once(err):
    assert err.count("warning: ") == 1, err
    assert "the answer stands without it" in " ".join(err.split())
    assert "Traceback" not in err


@pytest.fixture
def space(tmp_path):
    path = tmp_path / "space.toml"
    path.write_text(SPACE)
    return path


def test_search_with_a_file_in_the_way_of_its_page(space, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(NullSession, "tracking_uri", "sqlite:///record.db")  # a page is for what keeps a record
    arguments = ["search", "--model", "tiny", "--devices", "8", "--global-batch", "16", "--trials", "2"]
    arguments += ["--tensor-parallel", "1", "--no-range", "--strategy", "random", "--no-tracking"]
    arguments += ["--space", space, "--work-dir", tmp_path]
    (tmp_path / "phaze-opt-runs").mkdir()
    (tmp_path / "phaze-opt-runs" / "tiny-8").write_text("in the way")
    shows = {"": lambda out: "This design again" in out, "--resume --json": lambda out: json.loads(out)["best"]}
    for more, is_shown in shows.items():
        code, out, err = run([*arguments, *more.split()], capsys)
        assert code == 0, err
        assert is_shown(out)
        warned_once(err)


@pytest.mark.parametrize("is_json", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_certify_with_a_page_that_cannot_be_written(is_json, space, tmp_path, capsys, monkeypatch):
    fail_pages(monkeypatch)
    arguments = ["certify", "--model", "tiny", "--devices", "8", "--global-batch", "16", "--no-tracking"]
    arguments += ["--tensor-parallel", "1", "--no-range"]
    arguments += ["--space", space, "--work-dir", tmp_path, "--report", tmp_path / "c.html"]
    code, out, err = run([*arguments, *(["--json"] if is_json else [])], capsys)
    assert code == 0, err
    assert json.loads(out)["report"] is None if is_json else "The best design again" in out
    warned_once(err)


def test_validate_with_a_page_that_cannot_be_written(tmp_path, capsys, monkeypatch):
    fail_pages(monkeypatch)
    code, out, err = run(["validate", "op_tpu_gemm", "--report", tmp_path / "v.html", "--json"], capsys)
    assert code == 0, err
    assert json.loads(out)["datasets"]
    warned_once(err)


def test_schedule_with_a_figure_that_cannot_be_written(tmp_path, capsys, monkeypatch):
    fail_pages(monkeypatch)
    file = tmp_path / "s.json"
    node = {"id": 0, "core_type": "TC", "latency": 10.0, "intra_op_latency": 6.0}
    file.write_text(json.dumps({"name": "[/red]", "num_tc": 2, "num_vc": 2, "nodes": [node], "edges": []}))
    code, out, err = run(["schedule", file, "--figure", tmp_path / "f.html"], capsys)
    assert code == 0, err
    assert "[/red]: makespan" in out
    warned_once(err)


def fail_pages(monkeypatch):
    """A disk that is full when pages are written."""

    def write_text(path, text):
        message = "cannot be written: No space left on device; choose another place"
        raise InputError(message, source=str(path))

    monkeypatch.setattr(page, "write_text", write_text)


def test_all_figures_are_of_the_plan_to_run_and_the_fastest_stands_beside(capsys):
    job = (
        "evaluate --model llama-2-7b --arch h100 --devices 64 --gbs 512 --tp 1 --pp 1 --mbs 2,4 --zero 1,3 --tokens 1T"
    )
    line = run_json([*job.split(), "--baseline", "h200", "--top", "1"], capsys)
    run, fastest, (first,) = line["plan_to_run"], line["fastest"], line["plans"]
    assert first.items() <= fastest.items()
    assert fastest["peak_memory_bytes"] > line["setting"]["memory_bytes"] > run["peak_memory_bytes"]
    assert fastest["gain"] == pytest.approx(run["iteration_time_s"] / fastest["iteration_time_s"] - 1.0)
    assert fastest["gain"] > 0.0
    other = line["baselines"][0]
    for each in (line, other):
        assert each["iteration_time_s"] == each["plan_to_run"]["iteration_time_s"]
        assert each["placement"]["plan"]["micro_batch"] == each["plan_to_run"]["micro_batch"]
    rate = 512 / run["iteration_time_s"]
    assert other["throughput_ratio"] == pytest.approx(512 / other["plan_to_run"]["iteration_time_s"] / rate)
    part = next(part for part in line["range"]["parts"] if part["name"] == "model error")
    assert part["low"] == pytest.approx(rate / line["setting"]["spread"]["high"])
    days = line["cost"]["training_run"]["days"]
    assert days == pytest.approx(1e12 / (rate * 4096) / 86400)
    text = " ".join(printed([*job.split(), "--baseline", "h200"], capsys).split())
    assert fastest["why_not"] in text
    assert f"would train {100 * fastest['gain']:.2g} % more" in fastest["why_not"]
    assert "takes more memory than a device has unless" in fastest["why_not"]
    low, high = (days * rate / line["range"][end] for end in ("high", "low"))
    assert f"takes {days:.1f} days ({low:#.3g} to {high:#.3g} over the range of throughput)" in text
    assert f"{512 / other['plan_to_run']['iteration_time_s']:.0f}" in text.partition("The same job")[2]
