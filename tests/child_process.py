"""Runs Python in a process of its own."""

import subprocess
import sys
from typing import Any


def run_python(*arguments: object, check: bool = False, **options: Any) -> subprocess.CompletedProcess[str]:
    """What it printed and how it ended; the arguments are those of the interpreter."""
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=check, **options)
