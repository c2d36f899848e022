"""The command line of both scripts beside, and the file of rows that each writes."""

import argparse
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import phaze_opt


@dataclass(frozen=True, slots=True)
class ModelRows:
    """Models that are asked for, and rows that are kept; each is printed once it is there."""

    models: tuple[str, ...]
    rows: list[dict[str, Any]] = field(default_factory=list)
    meta: dict[str, Any] = field(default_factory=lambda: {"version": phaze_opt.__version__})

    def add(self, row: Mapping[str, Any], **shown: float) -> None:
        """Keep a row, and print it with what is only shown."""
        self.rows.append(dict(row))
        print(json.dumps({**row, **shown}), flush=True)


@contextmanager
def written_rows(script: str, about: str | None, models: Iterable[str]) -> Iterator[ModelRows]:
    """Rows of the models of the command line, or all; written as the script's record, or where that says, at the end.

    Args:
        script: the file that is run.
        about: what it is, for help.
        models: measured unless some are given.
    """
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--model", action="append")
    parser.add_argument("--output", type=Path, default=Path(script).with_suffix(".json"))
    arguments = parser.parse_args()
    kept = ModelRows(tuple(arguments.model or models))
    yield kept
    arguments.output.write_text(json.dumps({"_meta": kept.meta, "rows": kept.rows}, indent=1) + "\n")
