"""How far measurements lay from predictions that no constant was fitted to, by kind of row (spreads.json).

A prediction alone says nothing of its error. Rows are kept out of the fits, by cells or a whole source or machine at a
time, and predicted; the quotients of measured over predicted give the range that 90 of 100 such rows lie in. Errors of
one kind are uneven: a range is as wide as the scale of the row, which is a product of what the prediction knows of it.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from types import MappingProxyType

from pydantic import BaseModel, ConfigDict

from phaze_opt.record.document import parse_json_object

Scale = Mapping[str, Mapping[str, float]]
"""Logarithms of factors by trait and level. A trait is the name of a fact of a row, or of several (``recipe, term``),
and its levels are their values, joined alike."""
OTHER = "other"
"""Level of rows whose own level too few others have."""
LEVEL = 0.9
"""Share of kept-out rows that lie in a range."""
UNSEEN = "steps, source kept out"
"""Kind of training steps whose publication was kept out of every fit, and whose software counts as unknown."""
NAMED = "steps, source kept out, software named"
"""The same of steps whose software is known by name, with constants that other publications say."""

ERROR_ELSEWHERE, HELD_ELSEWHERE = 0.17, 0.65
"""Mean error of steps of 29 publications that are not here, and the share in the range of `UNSEEN`, as outsiders
measured on 28 November 2026 (docs/validation.md)."""

BETWEEN_NODES = "collectives between nodes, source kept out"
"""Kind of collectives that cross adapters of which no constant was fitted to the source."""
SOURCE = "source"
"""What was kept out where it was publications whole."""


@dataclass(frozen=True, slots=True)
class HeldGroup:
    """Rows of one publication that was kept out whole.

    Attributes:
        num_rows: how many.
        mape, bias: mean error of the prediction, without and with its sign, per cent of what was measured.
        held: share of them in the range that the other publications make.
    """

    num_rows: int
    mape: float
    bias: float
    held: float


@dataclass(frozen=True, slots=True)
class Spread:
    """Quotients of measured over predicted of rows kept out.

    Attributes:
        low, high: quotients that 5 % of the rows are below and 5 % above; of rows with a scale, those whose scale is 1.
        apart: of two rows that one would choose among, such as plans of one model on one cluster, what the quotient of
            their quotients stays below in 90 % of pairs: what two predictions must differ by to be told apart.
        num_rows, num_groups: rows, and cells, sources or machines that were kept out in turn.
        kept_out: what was: ``cells``, ``source``, ``machine`` ...
        mape: mean over groups of the mean absolute error within each, per cent.
        groups: of kept-out publications, each by name; of other kinds none.
    """

    low: float
    high: float
    apart: float
    num_rows: int
    num_groups: int
    kept_out: str
    mape: float = 0.0
    groups: Mapping[str, HeldGroup] = field(default_factory=dict)

    def around(self, predicted: float, scale: float = 1.0) -> tuple[float, float]:
        """The range of a prediction, in its unit; it holds the prediction."""
        return predicted * min(1.0, self.low**scale), predicted * max(1.0, self.high**scale)

    @property
    def half_width(self) -> float:
        """Half of the range, as a share of the prediction."""
        return (self.high - self.low) / 2.0


class SpreadFile(BaseModel):
    """The file as written by experiments/validation/spreads.py."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: int
    spreads: dict[str, Spread]
    scales: dict[str, dict[str, dict[str, float]]]


@dataclass(frozen=True, slots=True, eq=False)
class Spreads:
    """Spreads by name of a kind of rows, and the scales of those whose errors are uneven."""

    entries: Mapping[str, Spread]
    scales: Mapping[str, Scale] = field(default_factory=dict)

    def find(self, names: Sequence[str]) -> Spread | None:
        """The spread of the first name that is known; names go from the narrowest kind of rows to the widest."""
        return next((self.entries[name] for name in names if name in self.entries), None)

    def around(self, names: Sequence[str], predicted: float, facts: Mapping[str, str]) -> tuple[float, float]:
        """The range of a prediction by the first name that is known, for a row of such facts; nan of none."""
        known = next((name for name in names if name in self.entries), "")
        if not known:
            return math.nan, math.nan
        return self.entries[known].around(predicted, scale_of(self.scales.get(known, {}), facts))

    def knows(self, name: str, machine: str) -> bool:
        """Whether rows of a machine told of the scale of a kind."""
        return machine in self.scales.get(name, {}).get("machine", {})


def level_of(trait: str, facts: Mapping[str, str]) -> str:
    """A row's level of a trait; empty where one of its facts is unknown."""
    found = [facts.get(name, "") for name in trait.split(", ")]
    return ", ".join(found) if all(found) else ""


def octave(value: float, width: int = 1) -> str:
    """The power of two that a number lies at or above, in steps of so many: a level of a size."""
    # Digits that differ between CPUs do not tell one octave from the next.
    return f"2^{math.floor(math.log2(float(f'{value:.6g}')) / width) * width}"


def scale_of(scale: Scale, facts: Mapping[str, str]) -> float:
    """How wide errors of a row of such facts are, beside those of the kind; an unknown level is as other ones."""
    own = ((levels, level_of(trait, facts)) for trait, levels in scale.items())
    return math.exp(sum(levels.get(level, levels.get(OTHER, 0.0)) for levels, level in own if level))


@cache
def load_spreads() -> Spreads:
    """The package's spreads."""
    text = resources.files("phaze_opt.hardware").joinpath("spreads.json").read_text(encoding="utf-8")
    return read_spreads(text, source="spreads.json")


def read_spreads(text: str, *, source: str) -> Spreads:
    """Spreads of a file's text.

    Raises:
        InputError: the text is faulty; names the source.
    """
    file = parse_json_object(text, source=source, kind="a file of spreads").validate(SpreadFile)
    return Spreads(MappingProxyType(file.spreads), MappingProxyType(file.scales))
