"""Runs commands in a process of their own, under an environment, and keeps what they print and write."""

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
    said = []
    for command, (code, out) in zip(commands, json.loads(done.stdout.splitlines()[-1]), strict=True):
        assert code == 0, f"{command}: {out}{done.stderr}"
        said.append(Said(code, json.loads(out.replace(str(folder), ".")), _files(folder)))
    return said


def _files(folder):
    return {
        str(path.relative_to(folder)): READERS[path.suffix](path)
        for path in sorted(folder.rglob("*"))
        if path.suffix in READERS
    }


def _main():
    from phaze_opt.cli.main import main

    said = []
    for command in json.loads(sys.argv[1]):
        out, code = io.StringIO(), 0
        with contextlib.redirect_stdout(out):
            try:
                main([*command, "--json"])
            except SystemExit as stop:
                code = stop.code or 0
        said.append((code, out.getvalue()))
    sys.stdout.write(json.dumps(said))


if __name__ == "__main__":
    _main()
