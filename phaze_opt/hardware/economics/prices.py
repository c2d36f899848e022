"""Prices, grids and processes, read from economics.toml: each with a range and a source, or why it was assumed."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import resources
from pathlib import Path
from typing import Any

from phaze_opt.errors import InputError
from phaze_opt.hardware.constants import Constants, parse_constants
from phaze_opt.hardware.economics.wafer import Wafer
from phaze_opt.record.document import parse_toml, read_toml
from phaze_opt.record.suggestions import suggest

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
        InputError: the file cannot be read, a key is unknown, or a value is no positive number; with file and line.
    """
    document = read_toml(path, kind="a file of prices (TOML)")
    known = load_prices()
    for keys, value in _leaves(document.values):
        try:
            known = known.with_overrides({".".join(keys): value})
        except InputError as error:
            rule = str(error).removeprefix(f"'{error.key}': ").replace("no constant is", "no price is")
            raise document.fault(rule, *keys) from None
    return known


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
