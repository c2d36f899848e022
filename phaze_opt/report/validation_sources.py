"""What was measured in each published set and by whom, from the table beside the measurements."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from types import MappingProxyType

_NUM_COLUMNS = 5


@dataclass(frozen=True, slots=True)
class MeasuredSet:
    """One line of that table, in its words."""

    measured: str
    source: str
    licence: str

    @property
    def sentence(self) -> str:
        """All of it as two sentences."""
        first, *rest = self.measured.split(" ")
        # A type such as fp32 keeps its small letters.
        words = [first.capitalize() if first.rstrip(",").isalpha() and first.islower() else first, *rest]
        return f"{' '.join(words)}. Source: {self.source} ({self.licence})."


def read_sources() -> Mapping[str, MeasuredSet]:
    """Published sets by name, as `validation/data/README.md` describes them."""
    text = files("phaze_opt.validation").joinpath("data", "README.md").read_text(encoding="utf-8")
    found: dict[str, MeasuredSet] = {}
    for line in text.splitlines():
        cells = [cell.strip().replace("`", "") for cell in line.strip("| ").split("|")]
        if len(cells) == _NUM_COLUMNS and cells[0].endswith(".csv"):
            found[cells[0].removesuffix(".csv")] = MeasuredSet(cells[2], cells[3], cells[4])
    return MappingProxyType(found)
