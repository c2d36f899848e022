"""A machine at its limits: no room, no file descriptors, a directory that may not be written."""

import json
import os
import resource

import pytest
from child_process import run_python
from sample_files import space_text, study_text

SPACE = space_text(min_area_fraction=0.0, num_tc=[1, 2], num_vc=[1, 2], tc_width=[8], tc_depth=[8], glb_mb=[4])
STUDY = study_text()
WORK = ["--model", "tiny", "--devices", "8", "--global-batch", "16", "--tensor-parallel", "1", "--no-range", "--json"]
KEEPERS = {
    "search": ["search", *WORK, "--trials", "2", "--strategy", "random", "--space", "{}/space.toml", "--no-tracking"],
    "certify": ["certify", *WORK, "--space", "{}/space.toml", "--no-tracking"],
    "study": ["study", "run", "{}/study.toml", "--json", "--no-tracking"],
}


def run_limited(arguments, folder, *, limit=None, value=0):
    """The command under a limit of its process."""
    (folder / "space.toml").write_text(SPACE)
    (folder / "study.toml").write_text(STUDY)
    work = folder / "work"
    work.mkdir()
    if limit is None:
        work.chmod(0o555)
    prepare = None if limit is None else lambda: resource.setrlimit(limit, (value, value))
    words = (part.format(folder) for part in arguments)
    ended = run_python("-m", "phaze_opt", *words, cwd=work, preexec_fn=prepare, timeout=280)
    assert "Traceback" not in ended.stderr
    return ended


@pytest.mark.parametrize("command", KEEPERS)
def test_what_must_be_kept_and_cannot_be_is_one_sentence(command, tmp_path):
    ended = run_limited(KEEPERS[command], tmp_path, limit=resource.RLIMIT_FSIZE)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.count("\n") == 1
    assert "File too large" in ended.stderr


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
@pytest.mark.parametrize("command", KEEPERS)
def test_a_directory_that_may_not_be_written_is_one_sentence(command, tmp_path):
    ended = run_limited(KEEPERS[command], tmp_path)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.count("\n") == 1


def test_nothing_is_written_by_a_command_that_keeps_nothing(tmp_path):
    arguments = ["evaluate", *WORK, "--arch", "tpu-v4"]
    ended = run_limited(arguments, tmp_path, limit=resource.RLIMIT_FSIZE)
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)["status"] == "feasible"


@pytest.mark.slow
@pytest.mark.parametrize("command", KEEPERS)
def test_a_dozen_file_descriptors_are_enough(command, tmp_path):
    ended = run_limited(KEEPERS[command], tmp_path, limit=resource.RLIMIT_NOFILE, value=12)
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)


@pytest.mark.slow
@pytest.mark.parametrize("size", [4096, 300_000])
def test_a_disk_that_fills_costs_a_search_its_pages_and_records_not_its_answer(size, tmp_path):
    arguments = [part for part in KEEPERS["search"] if part != "--no-tracking"]
    ended = run_limited(arguments, tmp_path, limit=resource.RLIMIT_FSIZE, value=size)
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)["best"]
    assert "warning: the page of this search is missing" in " ".join(ended.stderr.split())
