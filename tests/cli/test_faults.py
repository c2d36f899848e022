"""What nobody foresaw: one sentence, the right exit code, and the traceback only where it is asked for."""

import errno
import os
import subprocess
import sys

import pytest
from command_runs import refused, run

from phaze_opt.cli import catalogue


def fail_with(monkeypatch, error):
    def raise_it(*_, **__):
        raise error

    monkeypatch.setattr(catalogue, "_show", raise_it)


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (ZeroDivisionError("by zero"), 1, ["fault of phaze-opt", "ZeroDivisionError", "by zero", "_TRACEBACK=1"]),
        (MemoryError(), 1, ["memory"]),
        (OSError(errno.ENOSPC, "No space left on device", "x.json"), 2, ["x.json", "No space left", "make room"]),
        (OSError(errno.EMFILE, "Too many open files"), 2, ["Too many open files", "ulimit -n"]),
        (PermissionError(errno.EACCES, "Permission denied", "x"), 2, ["x: Permission denied"]),
        (OSError(errno.ENOTTY, "odd"), 1, ["fault of phaze-opt"]),
    ],
)
def test_an_unforeseen_error_is_one_sentence(error, code, words, capsys, monkeypatch):
    fail_with(monkeypatch, error)
    refused(["models"], capsys, *words, code=code)


def test_the_traceback_is_shown_where_it_is_asked_for(capsys, monkeypatch, caplog):
    monkeypatch.setenv("PHAZE_OPT_TRACEBACK", "1")
    fail_with(monkeypatch, ZeroDivisionError("by zero"))
    run(["models"], capsys)
    assert "raise_it" in caplog.text


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")  # noqa: PTH110
def test_a_full_disk_under_standard_output_is_one_sentence():
    with open("/dev/full", "w") as full:  # noqa: PTH123
        ended = subprocess.run(
            [sys.executable, "-m", "phaze_opt", "models"], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert ended.returncode == 2
    assert "No space left on device" in ended.stderr
    assert ended.stderr.count("\n") == 1
