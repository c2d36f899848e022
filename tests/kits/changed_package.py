"""The package as it would be with a change to a few lines: what documents say takes one line is tried with one."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import phaze_opt

UNCHANGED = Path(phaze_opt.__file__).parents[1]
"""The folder that holds the package as it is."""


def copy_package(folder: Path, changes: dict[str, tuple[tuple[str, str], ...]]) -> Path:
    """A copy of the package in a folder, with texts that stand once in a file replaced by others."""
    shutil.copytree(UNCHANGED / "phaze_opt", folder / "phaze_opt")
    for name, pairs in changes.items():
        path = folder / "phaze_opt" / name
        text = path.read_text()
        for old, new in pairs:
            assert text.count(old) == 1, (name, old)
            text = text.replace(old, new)
        path.write_text(text)
    return folder


def run(package: Path, folder: Path, commands: list[list[str]]) -> list[dict]:
    """What commands print as JSON, one after the other in one process; a word with a star is the one file it names."""
    script = "import glob, json, sys\nfrom phaze_opt.cli.main import main\n" + (
        "for command in json.loads(sys.argv[1]):\n    try:\n"
        "        main([file for word in command for file in (glob.glob(word) if '*' in word else [word])])\n"
        "    except SystemExit as end:\n"
        "        assert not end.code, (command, end.code)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, json.dumps([[*command, "--json"] for command in commands])],
        cwd=folder, env={**os.environ, "PYTHONPATH": str(package)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]
