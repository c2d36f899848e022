"""What is said while kernels compile: at once, only if they do, and one line where nobody watches."""

import os

from child_process import run_python

MAIN = """
import sys
sys.path.insert(0, {folder!r})
from phaze_opt.cli import main
from phaze_opt.cli import catalogue
def models():
    import kernels
    print([kernels.first(3), kernels.second(3), kernels.first(2.0)])
models.__doc__ = "Models."
catalogue.models = models
main.main(["models"])
"""
KERNELS = """
from phaze_opt.record.compiled import compiled
@compiled
def first(value):
    return value + 1
@compiled
def second(value):
    return first(value) * 2
"""


def run_with_kernels(folder, **environment):
    (folder / "kernels.py").write_text(KERNELS)
    known = {**os.environ, "NUMBA_CACHE_DIR": str(folder / "cache"), **environment}
    done = run_python("-c", MAIN.format(folder=str(folder)), check=True, env=known, cwd=folder)
    assert done.stdout == "[4, 8, 3.0]\n"
    return done.stderr


def test_it_is_said_once_where_kernels_are_compiled_and_never_where_they_are_found(tmp_path):
    said = run_with_kernels(tmp_path, PHAZE_OPT_QUIET="")
    assert said.startswith("compiling kernels that were not needed before: once")
    assert said.count("\n") == 1
    assert run_with_kernels(tmp_path, PHAZE_OPT_QUIET="") == ""


def test_who_asks_for_quiet_has_it(tmp_path):
    assert run_with_kernels(tmp_path, PHAZE_OPT_QUIET="1") == ""


def test_a_terminal_sees_how_many_there_are_so_far(monkeypatch, capsys):
    import logging

    from phaze_opt.cli.main import EVERY, KernelNotice

    monkeypatch.setenv("FORCE_COLOR", "1")  # rich takes it for a terminal
    monkeypatch.setenv("TERM", "dumb")
    notice = KernelNotice()
    for _ in range(2 * EVERY):
        notice.handle(logging.makeLogRecord({"msg": "compiling"}))
    err = capsys.readouterr().err
    assert err.count("compiling kernels") == 1
    assert f"{EVERY} kernels so far" in err
    assert f"{2 * EVERY} kernels so far" in err
