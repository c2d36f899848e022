"""Architectures by preset name, from a file, or inline; every fault is one sentence."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from types import MappingProxyType
from typing import Any

from phaze_opt.errors import InputError
from phaze_opt.hardware.accelerator import Accelerator
from phaze_opt.hardware.constants import Constants
from phaze_opt.hardware.design import DTYPE_BYTES, HbmForm, build_accelerator
from phaze_opt.hardware.suggestion import suggest
from phaze_opt.hardware.toml_file import TomlDocument, is_number, parse_toml, read_text_file, shorten, shorten_path
from phaze_opt.units import GIGA, KIBI, gb_per_s_to_bytes_per_s, gib_to_bytes, mib_to_bytes

_FILE_KIND = "an architecture file (TOML or JSON)"


@dataclass(frozen=True, slots=True)
class _Key:
    """What one key of an architecture may hold: an integer or any positive number, up to ``most``."""

    is_required: bool
    is_integer: bool
    most: float


# The ceilings keep num_tc * tc_width * tc_depth and 16 * tc_width * tc_depth inside 64-bit integers.
_KEYS: Mapping[str, _Key] = MappingProxyType(
    {
        "num_tc": _Key(is_required=True, is_integer=True, most=1 << 20),
        "num_vc": _Key(is_required=True, is_integer=True, most=1 << 20),
        "tc_width": _Key(is_required=True, is_integer=True, most=1 << 16),
        "tc_depth": _Key(is_required=True, is_integer=True, most=1 << 16),
        "vc_width": _Key(is_required=False, is_integer=True, most=1 << 16),
        "glb_mb": _Key(is_required=True, is_integer=False, most=1 << 20),
        "hbm_gb": _Key(is_required=True, is_integer=False, most=1 << 20),
        "hbm_gb_per_s": _Key(is_required=False, is_integer=False, most=1e9),
        "clock_ghz": _Key(is_required=False, is_integer=False, most=1e3),
        "glb_bytes_per_cycle": _Key(is_required=False, is_integer=False, most=1e9),
        "l2_kb": _Key(is_required=False, is_integer=False, most=1 << 30),
        "dtype_bytes": _Key(is_required=False, is_integer=True, most=8),
    }
)
_WORDS = ("name", "source", "note")


def list_architectures() -> tuple[str, ...]:
    """Names of the presets, sorted."""
    files = resources.files("phaze_opt.hardware").joinpath("presets").iterdir()
    return tuple(sorted(file.name.removesuffix(".toml") for file in files if file.name.endswith(".toml")))


def architecture_source(name: str) -> str:
    """Where a preset's figures come from, with the note on how the machine was mapped."""
    values = _read_preset(name).values
    return "; ".join(str(values[key]) for key in ("source", "note") if key in values)


def load_architecture(text: str, *, constants: Constants, hbm_form: HbmForm | None = None) -> Accelerator:
    """An accelerator from a preset name, a file or an inline description.

    Inline and in files: num_tc, num_vc, tc_width, tc_depth, glb_mb (MiB), hbm_gb (GiB); optionally vc_width
    (tc_width by default), hbm_gb_per_s (10**9 bytes/s; else from the capacity), clock_ghz, glb_bytes_per_cycle,
    l2_kb (KiB per tensor core; else max(1024 bytes, 16 w d)), dtype_bytes; in files also name, source and note.

    Args:
        text: ``tpu-v4``, ``chip.toml``, ``chip.json`` or ``num_tc=4,num_vc=8,...``.
        constants: what the description leaves open.
        hbm_form: how HBM bandwidth follows from the capacity where it is not given.

    Raises:
        InputError: an unknown preset (with a near miss), a faulty file, or a faulty, missing, unknown or repeated key.
    """
    if text in list_architectures():
        document = _read_preset(text)
        default_name = text
    elif _looks_like_file(text):
        document = _read_file(Path(text))
        default_name = Path(text).stem
    elif "=" in text:
        document = TomlDocument(values=_parse_inline(text), text="", source="architecture")
        default_name = ""
    else:
        hint = suggest(text, list_architectures())
        message = f"no architecture is named {shorten(text)}; {hint} or give a file or num_tc=...,num_vc=..."
        raise InputError(message)
    return _build(document, constants=constants, hbm_form=hbm_form, default_name=default_name)


def _looks_like_file(text: str) -> bool:
    if text.endswith((".toml", ".json")):
        return True
    try:
        return bool(text) and ("=" not in text and ("/" in text or "\\" in text) or Path(text).exists())
    except (OSError, ValueError):
        return False


def _read_preset(name: str) -> TomlDocument:
    if name not in list_architectures():
        message = f"no architecture is named {shorten(name)}; {suggest(name, list_architectures())}"
        raise InputError(message)
    file = resources.files("phaze_opt.hardware").joinpath("presets", f"{name}.toml")
    return parse_toml(file.read_text(encoding="utf-8"), source=name)


def _read_file(path: Path) -> TomlDocument:
    text = read_text_file(path, kind=_FILE_KIND)
    source = shorten_path(path)
    if path.suffix != ".json" and not text.lstrip().startswith("{"):
        return parse_toml(text, source=source)
    try:
        values = json.loads(text, object_pairs_hook=_unique_pairs)
    except json.JSONDecodeError as error:
        message = f"is not valid JSON: {error.msg}"
        raise InputError(message, source=source, line=error.lineno) from error
    except InputError as error:
        raise InputError(str(error), source=source) from error
    except (ValueError, RecursionError) as error:
        message = f"is not usable JSON: {str(error)[:120]}"
        raise InputError(message, source=source) from error
    if not isinstance(values, dict):
        message = "must hold one object with num_tc, num_vc, tc_width, ..."
        raise InputError(message, source=source)
    return TomlDocument(values=values, text="", source=source)


def _unique_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for key, value in pairs:
        if key in values:
            message = f"key '{key[:40]}' is set twice"
            raise InputError(message)
        values[key] = value
    return values


def _parse_inline(text: str) -> dict[str, Any]:
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


def _build(document: TomlDocument, *, constants: Constants, hbm_form: HbmForm | None, default_name: str) -> Accelerator:
    numbers = _check_values(document)
    clock_ghz, hbm_rate, l2_kb = numbers.get("clock_ghz"), numbers.get("hbm_gb_per_s"), numbers.get("l2_kb")
    vc_width = numbers.get("vc_width")
    return build_accelerator(
        int(numbers["num_tc"]),
        int(numbers["num_vc"]),
        tc_width=int(numbers["tc_width"]),
        tc_depth=int(numbers["tc_depth"]),
        vc_width=None if vc_width is None else int(vc_width),
        glb_bytes=mib_to_bytes(numbers["glb_mb"]),
        hbm_bytes=gib_to_bytes(numbers["hbm_gb"]),
        constants=constants,
        hbm_form=hbm_form,
        name=str(document.values.get("name") or default_name),
        clock_hz=None if clock_ghz is None else clock_ghz * GIGA,
        hbm_bandwidth_bytes_per_s=None if hbm_rate is None else gb_per_s_to_bytes_per_s(hbm_rate),
        glb_bytes_per_cycle=numbers.get("glb_bytes_per_cycle"),
        l2_bytes=None if l2_kb is None else round(l2_kb * KIBI),
        dtype_bytes=int(numbers.get("dtype_bytes", DTYPE_BYTES)),
    )


def _check_values(document: TomlDocument) -> dict[str, float]:
    """The numbers of an architecture, each within its rule; words are checked and left out."""
    numbers: dict[str, float] = {}
    for key, value in document.values.items():
        fault = _find_fault(key, value)
        if fault is not None:
            raise InputError(fault, source=document.source, line=document.line_of((key,)), key=key[:40])
        if key in _KEYS:
            numbers[key] = value
    required = [key for key, rule in _KEYS.items() if rule.is_required]
    for key in required:
        if key not in numbers:
            message = f"is missing; needed are {', '.join(required)}"
            raise InputError(message, source=document.source, key=key)
    return numbers


def _find_fault(key: str, value: object) -> str | None:
    """The rule that a key or its value breaks, if any."""
    if key in _WORDS:
        return None if isinstance(value, str) else f"value {shorten(value)} must be text"
    rule = _KEYS.get(key)
    if rule is None:
        return f"is unknown; {suggest(key, (*_KEYS, *_WORDS))}"
    is_right_kind = isinstance(value, int) or not rule.is_integer
    # The lower limit keeps a size from rounding to no byte at all.
    if is_number(value) and is_right_kind and 1e-6 <= value <= rule.most:
        return None
    kind = "integer" if rule.is_integer else "number"
    return f"value {shorten(value)} must be a positive {kind} up to {rule.most:.10g}"
