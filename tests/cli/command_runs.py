"""Runs a command in this process and gives what it leaves behind."""

import json

import pytest

from phaze_opt.cli.main import main


def run(arguments, capsys):
    """Exit code, standard output, standard error."""
    with pytest.raises(SystemExit) as stop:
        main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return stop.value.code, captured.out, captured.err


def run_json(arguments, capsys):
    """What the one line says that a command prints with --json."""
    code, out, err = run([*arguments, "--json"], capsys)
    assert code == 0, err
    assert out.count("\n") == 1
    assert len(out.splitlines()) == 1
    return json.loads(out)
