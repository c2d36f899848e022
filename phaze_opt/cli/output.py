"""Where words and results go: results to standard output, words and progress to standard error."""

from __future__ import annotations

import json
import math
import sys
from typing import Any

from rich.console import Console


def out() -> Console:
    """Console for results that people read (standard output)."""
    return Console(file=sys.stdout, highlight=False)


def console() -> Console:
    """Console for words, warnings and progress (standard error)."""
    return Console(file=sys.stderr, highlight=False)


def print_json(value: Any) -> None:
    """Print exactly one line of strict JSON on standard output (non-finite numbers become null)."""
    sys.stdout.write(json.dumps(_strict(value), separators=(", ", ": "), allow_nan=False) + "\n")
    sys.stdout.flush()


def _strict(value: Any) -> Any:
    """Replace what JSON cannot hold."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {str(key): _strict(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_strict(item) for item in value]
    return value
