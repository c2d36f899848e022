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


ONE_AFTER_THE_OTHER = """
import contextlib, io, json, sys
from phaze_opt.cli.main import main
ended = []
for words in json.loads(sys.argv[1]):
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        try:
            main(words)
        except SystemExit as stop:
            ended.append((stop.code or 0, out.getvalue(), err.getvalue()))
print(json.dumps(ended))
"""


def run_limited(commands, folder, *, limit=None, value=0):
    """Exit code, output and errors of commands in a process under a limit."""
    (folder / "space.toml").write_text(SPACE)
    (folder / "study.toml").write_text(STUDY)
    work = folder / "work"
    work.mkdir()
    if limit is None:
        work.chmod(0o555)
    prepare = None if limit is None else lambda: resource.setrlimit(limit, (value, value))
    words = json.dumps([[part.format(folder) for part in command] for command in commands])
    ran = run_python("-c", ONE_AFTER_THE_OTHER, words, cwd=work, preexec_fn=prepare, timeout=280, check=True)
    ended = json.loads(ran.stdout)
    assert ran.stderr == ""
    assert not [err for _, _, err in ended if "Traceback" in err]
    return ended


@pytest.fixture(scope="module")
def ended_without_room(tmp_path_factory):
    """How each command ends that must keep something, and one that keeps nothing."""
    commands = {"evaluate": ["evaluate", *WORK, "--arch", "phaze-tpu-v4"], **KEEPERS}
    ended = run_limited(commands.values(), tmp_path_factory.mktemp("full"), limit=resource.RLIMIT_FSIZE)
    return dict(zip(commands, ended, strict=True))


@pytest.mark.parametrize("command", KEEPERS)
def test_what_must_be_kept_and_cannot_be_is_one_sentence(command, ended_without_room):
    code, out, err = ended_without_room[command]
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert "File too large" in err


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
@pytest.mark.parametrize("command", KEEPERS)
def test_a_directory_that_may_not_be_written_is_one_sentence(command, tmp_path):
    ((code, out, err),) = run_limited([KEEPERS[command]], tmp_path)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1


def test_nothing_is_written_by_a_command_that_keeps_nothing(ended_without_room):
    code, out, err = ended_without_room["evaluate"]
    assert code == 0, err
    assert json.loads(out)["status"] == "feasible"


@pytest.mark.slow
@pytest.mark.parametrize("command", KEEPERS)
def test_a_dozen_file_descriptors_are_enough(command, tmp_path):
    ((code, out, err),) = run_limited([KEEPERS[command]], tmp_path, limit=resource.RLIMIT_NOFILE, value=12)
    assert code == 0, err
    assert json.loads(out)


@pytest.mark.slow
@pytest.mark.parametrize("size", [4096, 300_000])
def test_a_disk_that_fills_costs_a_search_its_pages_and_records_not_its_answer(size, tmp_path):
    arguments = [part for part in KEEPERS["search"] if part != "--no-tracking"]
    ((code, out, err),) = run_limited([arguments], tmp_path, limit=resource.RLIMIT_FSIZE, value=size)
    assert code == 0, err
    assert json.loads(out)["best"]
    assert "warning: the page of this search is missing" in " ".join(err.split())
