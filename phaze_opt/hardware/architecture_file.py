"""Architecture descriptions as users write them: TOML, JSON or inline; every fault is one sentence."""

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from phaze_opt.errors import InputError
from phaze_opt.hardware.accelerator import UNSAID
from phaze_opt.hardware.chip_template import AXIS, BYTES_PER_CYCLE, CHIP_AXES, CLOCK, MEMORY_RATE
from phaze_opt.record.document import Document, parse_json_object, parse_toml
from phaze_opt.record.input_files import Bounds, counts, read_text_file, shorten, shorten_path
from phaze_opt.record.suggestions import suggest
from phaze_opt.units import GIGA, KIBI

_FILE_KIND = "an architecture file (TOML or JSON)"


_KEYS: Mapping[str, Bounds] = MappingProxyType(
    {
        **{axis.key: axis.bounds for axis in CHIP_AXES},
        "hbm_gb_per_s": MEMORY_RATE,
        "clock_ghz": CLOCK,
        # Exact figures, as `search --json` and `evaluate --json` print them beside the friendly ones.
        **{axis.name: axis.bounds.times(axis.unit) for axis in CHIP_AXES if axis.unit},
        "clock_hz": CLOCK.times(GIGA),
        "hbm_bandwidth_bytes_per_s": MEMORY_RATE.times(GIGA),
        "glb_bytes_per_cycle": replace(BYTES_PER_CYCLE, is_whole=False),
        "glb_bandwidth_bytes_per_s": Bounds("", 1e6, 1e16),
        "dtype_bytes": counts(8),
    }
)
_REQUIRED = tuple(axis.key for axis in CHIP_AXES if not axis.is_optional)
_FRIENDLY: Mapping[str, tuple[str, float]] = MappingProxyType(
    {
        **{axis.name: (axis.key, axis.unit) for axis in CHIP_AXES if axis.unit},
        "l2_bytes": ("l2_kb", KIBI),
        "clock_hz": ("clock_ghz", GIGA),
        "hbm_bandwidth_bytes_per_s": ("hbm_gb_per_s", GIGA),
    }
)
"""Exact keys that have a friendly one, and its unit."""
_GENERATION = "hbm_generation"
_WORDS = ("name", "source", "note", _GENERATION)
_FOLLOWING = frozenset((*UNSAID, *(axis.key for axis in CHIP_AXES if axis.default == 0 and axis.unit is None)))
"""Keys that exact figures may hold at 0."""
_GIVEN_BY = {axis.key: axis.given_by for axis in CHIP_AXES if axis.given_by}
"""Keys that may be left out where another decides them."""
_KINDS = MappingProxyType({axis.key: axis for axis in CHIP_AXES if axis.choices})
"""Keys that hold the name of a kind."""
ARCHITECTURE_KEYS = frozenset((*_KEYS, *_WORDS))
"""All keys of a design; a file with keys of machines besides describes a machine (`hardware.device_catalogue`)."""


def read_architecture_file(path: Path, *, kind: str = _FILE_KIND) -> Document:
    """Values of an architecture file; of a result printed by ``--json``, those of its (best) architecture.

    Args:
        path: the file.
        kind: what it should be, for messages.

    Raises:
        InputError: the file cannot be read or parsed, or holds no object.
    """
    text = read_text_file(path, kind=kind)
    source = shorten_path(path)
    if path.suffix != ".json" and not text.lstrip().startswith("{"):
        return parse_toml(text, source=source)
    return Document(_unwrap(parse_json_object(text, source=source, kind=kind).values), "", source)


def _unwrap(values: dict[str, Any]) -> dict[str, Any]:
    """The architecture inside an evaluation or a search result, else the values as they are."""
    for key in ("best", "architecture"):
        inner = values.get(key)
        if isinstance(inner, dict) and CHIP_AXES[0].key not in values:
            values = inner
    return values


def parse_inline(text: str) -> dict[str, Any]:
    """Values of ``key=value,key=value``.

    Raises:
        InputError: a part is no pair, or a key is set twice.
    """
    values: dict[str, Any] = {}
    for part in text.split(","):
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not (key and equals and value):
            message = f"{shorten(part.strip())} must read key=value"
            raise InputError(message, source="architecture")
        if key in values:
            message = "is set twice"
            raise InputError(message, source="architecture", key=key)
        values[key] = value if key in _WORDS else _parse_number(value)
    return values


def _parse_number(text: str) -> int | float | str:
    for parse in (int, float):
        try:
            return parse(text)
        except ValueError:
            continue
    return text


def check_architecture(document: Document) -> dict[str, float]:
    """The numbers of an architecture, each within its rule; words are checked and left out.

    Every exact key that has a friendly one is filled in from it where absent.

    Raises:
        InputError: a key is unknown, missing or faulty, or a friendly and an exact figure disagree.
    """
    numbers: dict[str, float] = {}
    for key, value in document.values.items():
        fault = _find_fault(key, value)
        if fault:
            raise document.fault(fault, key)
        if key in _KEYS and not _is_unsaid(key, value):
            numbers[key] = _KINDS[key].parsed(value) if key in _KINDS else value
    for exact, (friendly, unit) in _FRIENDLY.items():
        if exact in numbers and friendly in numbers:
            _check_agreement(numbers, exact, document=document)
        elif friendly in numbers:
            scaled = numbers[friendly] * unit
            numbers[exact] = round(scaled) if exact in AXIS else scaled
        elif exact in numbers:
            numbers[friendly] = numbers[exact] / unit
    for key in _REQUIRED:
        if key not in numbers and _GIVEN_BY.get(key) not in numbers:
            named = (f"{each} or {_GIVEN_BY[each]}" if each in _GIVEN_BY else each for each in _REQUIRED)
            message = f"is missing; needed are {', '.join(named)}"
            raise document.fault(message, key)
    return numbers


def _check_agreement(numbers: Mapping[str, float], exact: str, *, document: Document) -> None:
    friendly, unit = _FRIENDLY[exact]
    if not math.isclose(numbers[exact], numbers[friendly] * unit, rel_tol=1e-6):
        message = f"value {numbers[exact]:.12g} contradicts {friendly} = {numbers[friendly]:.12g}; give one of them"
        raise document.fault(message, exact)


def _is_unsaid(key: str, value: object) -> bool:
    """Whether it is what exact figures say of a parameter that follows from others."""
    return key in _FOLLOWING and value == 0


def _find_fault(key: str, value: object) -> str:
    """The rule that a key or its value breaks; empty where there is none."""
    if key in _WORDS:
        return "" if isinstance(value, str) else f"value {shorten(value)} must be text"
    if key not in _KEYS:
        return f"is unknown; {suggest(key, (*_KEYS, *_WORDS))}"
    if _is_unsaid(key, value):
        return ""
    return _KINDS[key].fault(value) if key in _KINDS else _KEYS[key].fault(value)
