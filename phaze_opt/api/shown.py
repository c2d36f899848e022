"""What all results of functions have in common: a short text, a table for notebooks, a frame, a figure."""

from __future__ import annotations

import html
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

    from phaze_opt.report.picture import Picture

Fact = str | float | int | bool | None
MAX_CHARACTERS = 600
"""Of a result's text, less than."""
MAX_FACT_CHARACTERS = 90
MAX_ROWS_SHOWN = 10
"""Of the table in a notebook."""


@dataclass(frozen=True, slots=True)
class Plot:
    """A picture to look at."""

    picture: Picture

    def save(self, path: str | Path) -> Path:
        """Write it as the file's ending says: ``.svg``, ``.png``, ``.pdf``.

        Raises:
            InputError: the file cannot be written, or its ending is of no kind of picture.
        """
        from phaze_opt.record.whole_file import replace_file
        from phaze_opt.report.drawing import picture_file

        replace_file(Path(path), picture_file(self.picture, Path(path)))
        return Path(path)

    def _repr_html_(self) -> str:
        """The picture, as a notebook shows it."""
        from phaze_opt.report.drawing import svg_element

        return svg_element("picture", self.picture, is_on_page=False)


class Result(ABC):
    """A result: what it says in a few lines, its rows, its figure.

    Numbers are floats and integers of Python, in SI units that their names end in, and None where nothing is known.
    """

    __slots__ = ()

    @property
    @abstractmethod
    def facts(self) -> Mapping[str, Fact]:
        """What it comes to, most important first."""

    @abstractmethod
    def rows(self) -> Iterable[Mapping[str, Fact]]:
        """What the frame holds, row by row."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """All of it, as the command's ``--json`` prints it."""

    @abstractmethod
    def picture(self) -> Picture:
        """What `plot` draws."""

    def plot(self) -> Plot:
        """A picture that a notebook shows and `Plot.save` writes."""
        return Plot(self.picture())

    def to_frame(self) -> pd.DataFrame:
        """Its rows as a frame of pandas."""
        import pandas as pd

        return pd.DataFrame(list(self.rows()))

    def __repr__(self) -> str:
        """The facts, a line each, as many as there is room for."""
        text = f"{type(self).__name__}("
        for name, value in self.facts.items():
            line = f"\n  {name}={_short(value)},"
            if len(text) + len(line) > MAX_CHARACTERS - len("\n  ...\n)"):
                text += "\n  ..."
                break
            text += line
        return f"{text}\n)"

    def _repr_html_(self) -> str:
        """The facts and the first rows, as tables that a notebook shows; names from files are escaped."""
        facts = "".join(
            f"<tr><th style='text-align:left'>{html.escape(name)}</th><td>{html.escape(_plain(value))}</td></tr>"
            for name, value in self.facts.items()
        )
        import pandas as pd

        rows = list(islice(self.rows(), MAX_ROWS_SHOWN + 1))
        first = pd.DataFrame(rows[:MAX_ROWS_SHOWN])
        shown = first.to_html(index=False, border=0, na_rep="", float_format=lambda value: f"{value:.6g}")
        more = "<p>There are more rows: .to_frame() has all of them.</p>" if len(rows) > MAX_ROWS_SHOWN else ""
        return f"<table>{facts}</table>{shown if rows else ''}{more}"


def _short(value: Fact) -> str:
    text = f"{value:.6g}" if isinstance(value, float) else repr(value)
    return text if len(text) <= MAX_FACT_CHARACTERS else f"{text[: MAX_FACT_CHARACTERS - 4]}...{text[-1]}"


def _plain(value: Fact) -> str:
    return value if isinstance(value, str) else _short(value)


def known_or_none(value: float | None) -> float | None:
    """A number of Python; None for none and for what is no number."""
    if value is None or math.isnan(value):
        return None
    return float(value)
