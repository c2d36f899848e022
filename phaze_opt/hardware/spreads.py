"""How far measurements lay from predictions that no constant was fitted to, by kind of row (spreads.json).

A prediction alone says nothing of its error. Rows are kept out of the fits, by cells or a whole source or machine at a
time, and predicted; the quotients of measured over predicted give the range that 90 of 100 such rows lie in.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from types import MappingProxyType

from pydantic import BaseModel, ConfigDict

from phaze_opt.record.document import parse_json_object

LEVEL = 0.9
"""Share of kept-out rows that lie in a range."""
UNSEEN = "steps, source kept out"
"""Kind of training steps whose publication was kept out of every fit, and whose software counts as unknown."""
NAMED = "steps, source kept out, software named"
"""The same of steps whose software is known by name, with constants that other publications say."""

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
        low, high: quotients that 5 % of the rows are below and 5 % above.
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

    def around(self, predicted: float) -> tuple[float, float]:
        """The range of a prediction, in its unit."""
        return predicted * self.low, predicted * self.high

    @property
    def half_width(self) -> float:
        """Half of the range, as a share of the prediction."""
        return (self.high - self.low) / 2.0


class SpreadFile(BaseModel):
    """The file as written by experiments/validation/spreads.py."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: int
    spreads: dict[str, Spread]


@dataclass(frozen=True, slots=True, eq=False)
class Spreads:
    """Spreads by name of a kind of rows."""

    entries: Mapping[str, Spread]

    def find(self, names: Sequence[str]) -> Spread | None:
        """The spread of the first name that is known; names go from the narrowest kind of rows to the widest."""
        return next((self.entries[name] for name in names if name in self.entries), None)


@cache
def load_spreads() -> Spreads:
    """The package's spreads."""
    text = resources.files("phaze_opt.hardware").joinpath("spreads.json").read_text(encoding="utf-8")
    file = parse_json_object(text, source="spreads.json", kind="the package's spreads").validate(SpreadFile)
    return Spreads(MappingProxyType(file.spreads))
