"""Ctrl-C: exit code 130 and one sentence that says what is kept and how to go on, whenever it comes."""

import importlib
import json
from pathlib import Path

import pytest
from child_process import run_python
from command_runs import run

from phaze_opt.cli.main import COMMANDS

DATA = Path(__file__).parents[2] / "phaze_opt" / "validation" / "data"
PLANS = (
    "evaluate --model gpt3-175b --arch phaze-tpu-v4 --devices 1024 --global-batch 1536 --pipeline 1,2,4,8,16 "
    "--zero 0,1,2,3 --interleave 1,2,3,4,6 --micro-batch 1,2,3,4,6,8,12,16 --context-parallel 1,2,4,8"
)
"""Takes ten seconds, of which the tests wait for two at most."""
SEARCH = "search --model tiny --devices 8 --global-batch 16 --tensor-parallel 1,2 --no-range --no-tracking"
CHILD = """
import os, signal, sys, threading
from phaze_opt.cli.main import main
from phaze_opt.cli.stop_signals import StopSignals
signals = StopSignals()
signals.listen()
signals.is_idle = False
# The arguments are read and the command loads; a kernel may be loading, compiling or running.
timer = threading.Timer(float(sys.argv[1]), os.kill, (os.getpid(), signal.SIGINT))
timer.daemon = True
timer.start()
main(sys.argv[2:], signals=signals)
"""


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_says_what_is_kept(command, capsys, monkeypatch):
    original = importlib.import_module

    def interrupt(name, package=None):
        if name.startswith("phaze_opt.cli."):
            raise KeyboardInterrupt
        return original(name, package)

    monkeypatch.setattr(importlib, "import_module", interrupt)
    code, out, err = run([command, "--help"], capsys)
    assert (code, out) == (130, "")
    assert err == f"phaze-opt: interrupted; {COMMANDS[command].kept}\n"
    assert "again" in err


@pytest.mark.parametrize(
    ("seconds", "arguments", "words"),
    [
        (0.2, PLANS, "nothing is kept"),
        (1.5, PLANS, "nothing is kept"),
        (1.0, f"calibrate --data {DATA / 'train_vtrain_singlenode.csv'} --out c.json", "the file of --out"),
        pytest.param(1.0, "validate", "nothing is kept", marks=pytest.mark.slow),
    ],
)
def test_ctrl_c_while_it_runs(seconds, arguments, words, tmp_path):
    ended = run_python("-c", CHILD, seconds, *arguments.split(), cwd=tmp_path, timeout=120)
    assert ended.returncode == 130, ended.stderr
    assert ended.stdout == ""
    assert ended.stderr.startswith("phaze-opt: interrupted; ")
    assert words in ended.stderr
    assert ended.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("is_json", [pytest.param(False, marks=pytest.mark.slow), True])
def test_an_interrupted_search_prints_its_best_and_says_how_to_go_on(is_json, tmp_path, capsys, monkeypatch):
    """Ctrl-C inside a kernel comes as a SystemError; the search ends as it does on a plain one."""
    work = [*SEARCH.split(), "--trials", "6", "--strategy", "random", "--work-dir", str(tmp_path)]
    work += ["--json"] if is_json else []

    def interrupt_after(count):
        def show(progress):
            if progress.num_done == count:
                try:
                    raise KeyboardInterrupt
                except KeyboardInterrupt as interrupt:
                    raise SystemError from interrupt

        return show

    whole = run_search_with(monkeypatch, None, work, capsys)
    code, out, err = run_search_with(monkeypatch, interrupt_after(5), work, capsys)
    assert code == 130
    assert "interrupted after 5 trials; trials that had ended are kept: run the same command again with --resume" in err
    if is_json:
        assert json.loads(out)["is_interrupted"]
    resumed = run_search_with(monkeypatch, None, [*work, "--resume"], capsys)
    assert (whole[0], resumed[0]) == (0, 0)
    if is_json:
        first, second = json.loads(whole[1]), json.loads(resumed[1])
        assert first["best"]["throughput_samples_per_s"] == second["best"]["throughput_samples_per_s"]


def run_search_with(monkeypatch, show, arguments, capsys):
    """The command with progress told to ``show`` too."""
    from phaze_opt.search import run as search_run

    original = search_run.run_search

    def wrapped(config, *, on_progress, **rest):
        def both(progress):
            on_progress(progress)
            if show is not None:
                show(progress)

        return original(config, on_progress=both, **rest)

    with monkeypatch.context() as patch:
        patch.setattr(search_run, "run_search", wrapped)
        return run(arguments, capsys)
