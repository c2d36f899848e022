"""A record of this folder: what a script measured, with the machine and versions it was taken on."""

import argparse
import json
import platform
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any


def parser_of(description: str | None) -> argparse.ArgumentParser:
    """What every script of the folder takes: whether to write its record."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--write", action="store_true", help="write the JSON file beside the script")
    return parser


def finish(script: str, figures: Mapping[str, Any], *, write: bool) -> None:
    """Print the record of a script, and maybe write it beside it."""
    versions = {"python": platform.python_version(), "numpy": version("numpy"), "phaze-opt": version("phaze-opt")}
    text = json.dumps({"machine": platform.machine(), "versions": versions, **figures}, indent=1)
    print(text)
    if write:
        Path(script).with_suffix(".json").write_text(text + "\n")
