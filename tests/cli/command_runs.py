"""Runs a command in this process and gives what it leaves behind."""

import json
from contextlib import ExitStack
from unittest.mock import patch

import pytest

from phaze_opt.cli import output, progress
from phaze_opt.cli.main import main

SLOW_LINES = ((output, "LINE_PERIOD_S"), (progress, "PERIOD_S"))
"""After how long a line says what takes so long: on a busy machine of any command; `test_progress` looks at them."""
LONG_S = 86400.0


def run(arguments, capsys):
    """Exit code, standard output, standard error without lines about slow work."""
    with ExitStack() as stack, pytest.raises(SystemExit) as stop:
        for module, name in SLOW_LINES:
            stack.enter_context(patch.object(module, name, LONG_S))
        main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return stop.value.code, captured.out, captured.err


def printed(arguments, capsys, *, code=0):
    """Standard output of a command that ends as it should."""
    ended, out, err = run(arguments, capsys)
    assert ended == code, err
    return out


def run_json(arguments, capsys, *, code=0):
    """What the one line says that a command prints with --json."""
    out = printed([*arguments, "--json"], capsys, code=code)
    assert out.count("\n") == len(out.splitlines()) == 1
    return json.loads(out, parse_constant=_refuse)


def _refuse(constant):
    raise AssertionError(constant)


def refused(arguments, capsys, *words, code=2, longest=1500):
    """The one sentence of a command that ends without an answer; the words are in it."""
    ended, out, err = run(arguments, capsys)
    assert (ended, out) == (code, ""), err
    assert "Traceback" not in err
    assert len(err) < longest
    assert len(err.strip().splitlines()) == 1, err
    assert [word for word in words if word not in err] == [], err
    return err
