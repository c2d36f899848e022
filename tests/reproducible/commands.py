"""Runs commands, in this process or in one under another environment, and keeps what they print and write."""

import contextlib
import io
import json
import os
import subprocess
import sys
from dataclasses import dataclass

from environments import KERNELS, PLAIN, SURROUNDINGS
from file_contents import READERS

_CLEARED = {name for each in (*KERNELS.values(), *SURROUNDINGS.values()) for name in each}


@dataclass(frozen=True, slots=True)
class Said:
    """What a command left behind.

    Attributes:
        code: exit code.
        line: the line of JSON, read.
        files: what the files of its folder hold, by path.
    """

    code: int
    line: object
    files: dict[str, object]


def run_commands(commands, folder, environment):
    """Outcome of each command line, all run one after the other in one new process with ``folder`` to write in."""
    folder.mkdir(parents=True, exist_ok=True)
    kept = {name: value for name, value in os.environ.items() if name not in _CLEARED}
    done = subprocess.run(
        [sys.executable, __file__, json.dumps(commands)],
        cwd=folder, env={**kept, **PLAIN, **environment}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{done.returncode}: {done.stderr}"
    return _read(commands, json.loads(done.stdout.splitlines()[-1]), folder, done.stderr)


def run_here(commands, folder):
    """The same in this process, under the environment that it has."""
    with contextlib.chdir(folder):
        return _read(commands, _print(commands), folder, "")


def _read(commands, printed, folder, words):
    said = []
    for command, (code, out) in zip(commands, printed, strict=True):
        assert code == 0, f"{command}: {out}{words}"
        said.append(Said(code, json.loads(out.replace(str(folder), ".")), _files(folder)))
    return said


def _files(folder):
    return {
        str(path.relative_to(folder)): READERS[path.suffix](path)
        for path in sorted(folder.rglob("*"))
        if path.suffix in READERS
    }


def _print(commands):
    """Exit code and standard output of each."""
    from phaze_opt.cli.main import main

    printed = []
    for command in commands:
        out, code = io.StringIO(), 0
        with contextlib.redirect_stdout(out):
            try:
                main([*command, "--json"])
            except SystemExit as stop:
                code = stop.code or 0
        printed.append((code, out.getvalue()))
    return printed


if __name__ == "__main__":
    sys.stdout.write(json.dumps(_print(json.loads(sys.argv[1]))))
