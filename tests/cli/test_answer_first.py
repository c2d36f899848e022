"""The answer is printed before any page: one that cannot be written is a warning, not an exit code."""

import json
import shutil

import pytest
from command_runs import printed, run
from sample_files import space_text

from phaze_opt.errors import InputError
from phaze_opt.report import page

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


def test_search_with_a_file_in_the_way_of_its_page(space, tmp_path, empty_store, capsys):
    shutil.copyfile(empty_store, tmp_path / "mlflow.db")
    arguments = ["search", "--model", "tiny", "--devices", "8", "--global-batch", "16", "--trials", "2"]
    arguments += ["--tensor-parallel", "1", "--no-range", "--strategy", "random"]
    arguments += ["--space", space, "--work-dir", tmp_path]
    printed([*arguments, "--no-tracking"], capsys)
    journal = next((tmp_path / "phaze-opt-runs").glob("*/trials.jsonl"))
    (journal.parent.parent / "tiny-8").write_text("in the way")
    shows = {"": lambda out: "This design again" in out, "--json": lambda out: json.loads(out)["best"]}
    for more, is_shown in shows.items():
        code, out, err = run([*arguments, "--resume", *more.split()], capsys)
        assert code == 0, err
        assert is_shown(out)
        warned_once(err)


@pytest.mark.parametrize("is_json", [False, True])
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
    code, out, err = run(["validate", "op_neusight_fp32", "--report", tmp_path / "v.html", "--json"], capsys)
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


def test_ratios_of_the_fastest_plan_are_said_to_be_of_it_where_another_is_named(capsys):
    job = "evaluate --model llama-2-7b --arch h100 --devices 64 --gbs 512 --tp 1 --pp 1 --mbs 2,4 --zero 1,3 --no-range"
    alone = " ".join(printed(job.split(), capsys).split())
    beside = " ".join(printed([*job.split(), "--baseline", "h200"], capsys).split())
    aside = "Ratios, costs and days that follow are of the fastest plan of each machine (here plan 1)."
    assert "; plan 1 is" in alone
    assert aside not in alone
    assert aside in beside.partition("The throughput of h100")[0]
