"""Prices, grids and processes, read from economics.toml: with ranges, and sources or why they were assumed; wafers."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from phaze_opt.errors import InputError
from phaze_opt.hardware.constants import Constant, Constants, parse_constants
from phaze_opt.record.arrays import Floats
from phaze_opt.record.document import parse_toml, read_toml
from phaze_opt.record.input_files import Bounds
from phaze_opt.record.suggestions import suggest

MM2_PER_CM2 = 100.0
PRICE_REACH = 100.0
"""How far beyond the range of the package a user's price may lie: further off it is in another unit."""


@dataclass(frozen=True, slots=True)
class Wafer:
    """A process as a foundry sells it.

    Attributes:
        usd: of a wafer.
        defects_per_cm2: their density.
        clusters: of the negative binomial yield: few where defects come in clusters, which spares dies.
        diameter_mm, scribe_mm, edge_mm: of the wafer, between dies, and lost at its edge.
    """

    usd: float
    defects_per_cm2: float
    clusters: float = 10.0
    diameter_mm: float = 300.0
    scribe_mm: float = 0.2
    edge_mm: float = 5.0

    def num_dies(self, area_mm2: Floats) -> Floats:
        """Square dies of a wafer, good and bad: a mean, not rounded; 0 where not one fits, shape (num_designs,)."""
        side = np.sqrt(area_mm2) + self.scribe_mm
        usable = self.diameter_mm - 2.0 * self.edge_mm
        dies = math.pi * (usable / 2.0) ** 2 / side**2 - math.pi * usable / (math.sqrt(2.0) * side)
        return np.asarray(np.where(dies >= 1.0, dies, 0.0))

    def share_good(self, area_mm2: Floats) -> Floats:
        """Yield: the share of dies without a defect, shape (num_designs,)."""
        return np.asarray((1.0 + self.defects_per_cm2 * area_mm2 / MM2_PER_CM2 / self.clusters) ** -self.clusters)

    def usd_of_good_die(self, area_mm2: Floats) -> Floats:
        """Cost of the wafer over its good dies, shape (num_designs,); inf where not one fits."""
        good = self.num_dies(area_mm2) * self.share_good(area_mm2)
        return np.asarray(np.divide(self.usd, good, out=np.full(np.shape(good), np.inf), where=good > 0.0))


_GRID, _OF_GRID = "grid.", ".g_per_kwh"
DEFAULT_GRID = "world"


@dataclass(frozen=True, slots=True)
class ProcessFigures:
    """What a process costs and emits.

    Attributes:
        wafer: its price and yield.
        design_usd: of designing one chip: masks, verification, software.
        kwh_per_cm2, gas_g_per_cm2: electricity and gases to make a square centimetre of wafer.
    """

    wafer: Wafer
    design_usd: float
    kwh_per_cm2: float
    gas_g_per_cm2: float


@cache
def load_prices() -> Constants:
    """All prices with ranges and sources."""
    text = resources.files("phaze_opt.hardware.economics").joinpath("economics.toml").read_text(encoding="utf-8")
    return parse_constants(parse_toml(text, source="economics.toml"))


def read_prices(path: Path) -> Constants:
    """All prices with a user's own in their place, read from TOML: ``memory.hbm_usd_per_gb = 14`` or tables of such.

    Raises:
        InputError: the file cannot be read, a key is unknown, or a value is beyond what a price may be; with file and
            line.
    """
    document = read_toml(path, kind="a file of prices (TOML)")
    known = load_prices()
    for keys, value in _leaves(document.values):
        key = ".".join(keys)
        try:
            known = known.with_overrides({key: value})
        except InputError as error:
            rule = str(error).removeprefix(f"'{error.key}': ").replace("no constant is", "no price is")
            raise document.fault(rule, *keys) from None
        if rule := price_bounds(known.entries[key]).fault(value):
            raise document.fault(rule, *keys)
    return known


def price_bounds(price: Constant) -> Bounds:
    """What a price may be: its range and `PRICE_REACH` times more at both ends; a share is at most 1."""
    if price.unit.startswith("share"):
        return Bounds("", price.low / PRICE_REACH, 1.0)
    return Bounds(price.unit, price.low / PRICE_REACH, PRICE_REACH * price.high)


def changed_prices(known: Constants) -> tuple[tuple[str, float], ...]:
    """Prices by key that are other than the package's: what a file of prices comes to."""
    own = load_prices().entries
    return tuple((key, each.value) for key, each in known.entries.items() if each.value != own[key].value)


@lru_cache(maxsize=16)
def prices_with(values: tuple[tuple[str, float], ...]) -> Constants:
    """All prices with some changed, of `changed_prices`."""
    return load_prices().with_overrides(dict(values))


def _leaves(table: Mapping[str, Any], *before: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Keys and values of nested tables; a key in quotes may hold dots."""
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _leaves(value, *before, key)
        else:
            yield (*before, key), value


def figures_of(process: str, known: Constants) -> ProcessFigures:
    """Figures of a process by its name in the die model, such as ``n7``."""
    usd, defects, design_usd, kwh, gas = (
        known.value(f"process.{process}.{name}")
        for name in ("wafer_usd", "defects_per_cm2", "design_usd", "kwh_per_cm2", "gas_g_per_cm2")
    )
    sizes = (known.value(f"wafer.{name}") for name in ("clusters", "diameter_mm", "scribe_mm", "edge_mm"))
    return ProcessFigures(Wafer(usd, defects, *sizes), design_usd, kwh, gas)


def list_grids(known: Constants | None = None) -> tuple[str, ...]:
    """Names of grids."""
    entries = (load_prices() if known is None else known).entries
    return tuple(key[len(_GRID) : -len(_OF_GRID)] for key in entries if key.startswith(_GRID))


def grid_g_per_kwh(name: str, known: Constants) -> float:
    """What a grid emits.

    Raises:
        InputError: no grid has this name, with a near miss.
    """
    if name not in list_grids(known):
        message = f"no grid is named '{name[:40]}'; {suggest(name, list_grids(known))}"
        raise InputError(message, key="grid")
    return known.value(f"{_GRID}{name}{_OF_GRID}")
