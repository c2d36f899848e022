"""Network files: dimensions in the units people use, read with faults by key, and written so that they read back."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from phaze_opt.hardware.fabrics import list_fabrics, load_fabric
from phaze_opt.hardware.fitted import FittedConstants
from phaze_opt.hardware.network import (
    MAX_DEVICES,
    Chunking,
    CollectiveCurve,
    MeasuredDimension,
    Network,
    NetworkDimension,
    Topology,
)
from phaze_opt.record.document import Document
from phaze_opt.record.input_files import is_number, shorten
from phaze_opt.record.places import KeyPath
from phaze_opt.record.spelling import suggest
from phaze_opt.units import GIGA, MICRO, gb_per_s_to_bytes_per_s

_FILE_KEYS = ("name", "chunking", "dimensions")
_DIMENSION_KEYS = ("topology", "size", "bandwidth_gb_per_s", "latency_us")
_CURVE_KEYS = ("bandwidth_gb_per_s", "doubling_us", "ramp_us", "endpoint_share", "ring_shares")


def parse_network(document: Document, fitted: FittedConstants) -> Network:
    """The network of a file.

    Raises:
        InputError: a fault, by file and key.
    """
    for key in document.values:
        if key not in _FILE_KEYS:
            message = f"is unknown; {suggest(key, _FILE_KEYS)}"
            raise document.fault(message, key)
    dimensions = parse_dimensions(document, fitted)
    network = Network(_parse_name(document), dimensions)
    return network.with_chunking(_parse_chunking(document, network))


def _parse_name(document: Document) -> str:
    value = document.values.get("name", Path(document.source).stem)
    if not isinstance(value, str):
        message = f"value {shorten(value)} must be a text in quotes"
        raise document.fault(message, "name")
    return value


def _parse_chunking(document: Document, network: Network) -> Chunking:
    value = document.values.get("chunking", Chunking.NONE.value)
    if value not in list(Chunking):
        message = f"value {shorten(value)} is unknown; {suggest(str(value), list(Chunking))}"
        raise document.fault(message, "chunking")
    if network.is_measured and value != Chunking.NONE:
        message = f"{value} does not go with levels that have a curve, which run as one ring; leave one of both away"
        raise document.fault(message, "chunking")
    return Chunking(value)


def parse_dimensions(document: Document, fitted: FittedConstants, *path: str) -> tuple[NetworkDimension, ...]:
    """The ``[[dimensions]]`` tables, innermost first.

    Args:
        document: the file.
        fitted: what the curves of fabrics are made of.
        path: of the table that holds them.

    Raises:
        InputError: a fault, by file, line and key.
    """
    values: Any = document.values
    for part in path:
        values = values[part]
    tables = values.get("dimensions")
    if not (isinstance(tables, list) and tables and all(isinstance(table, dict) for table in tables)):
        message = "must be one or more [[dimensions]] tables, innermost first"
        raise document.fault(message, *path, "dimensions")
    for index, table in enumerate(tables):
        for key, rule in _find_faults(table):
            raise document.fault(rule, *path, "dimensions", index, *key)
    return tuple(_build_dimension(table, fitted) for table in tables)


def network_text(network: Network) -> str:
    """The network as the text of a file that `parse_network` reads back to the same network."""
    lines = [f"name = {_quoted(network.name)}"]
    if network.chunking is not Chunking.NONE:
        lines.append(f'chunking = "{network.chunking}"')
    for dimension in network.dimensions:
        lines += [
            "",
            "[[dimensions]]",
            f'topology = "{dimension.topology}"',
            f"size = {dimension.size}",
            f"bandwidth_gb_per_s = {_scaled(dimension.bandwidth_bytes_per_s, GIGA)}",
            f"latency_us = {_scaled(dimension.latency_s, MICRO)}",
        ]
        if isinstance(dimension, MeasuredDimension):
            lines += _curve_lines(dimension.curve)
    return "\n".join(lines) + "\n"


def _curve_lines(curve: CollectiveCurve) -> Iterator[str]:
    yield "[dimensions.curve]"
    yield f"bandwidth_gb_per_s = {_scaled(curve.bandwidth_bytes_per_s, GIGA)}"
    yield f"doubling_us = {_scaled(curve.doubling_s, MICRO)}"
    yield f"ramp_us = {_scaled(curve.ramp_s, MICRO)}"
    yield f"endpoint_share = {curve.endpoint_share!r}"
    yield f"ring_shares = [{', '.join(repr(share) for share in curve.ring_shares)}]"


def _scaled(value: float, unit: float) -> str:
    """``value`` in a unit, as the number that gives exactly ``value`` when multiplied by it again, if there is one."""
    number = value / unit
    for candidate in (number, math.nextafter(number, math.inf), math.nextafter(number, -math.inf)):
        if candidate * unit == value:
            return repr(candidate)
    return repr(number)


def _quoted(text: str) -> str:
    """A TOML string: as in JSON, and DEL, which TOML does not take as it is."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _build_dimension(table: dict[str, Any], fitted: FittedConstants) -> NetworkDimension:
    plain = NetworkDimension(
        Topology(table["topology"]),
        table["size"],
        gb_per_s_to_bytes_per_s(float(table["bandwidth_gb_per_s"])),
        float(table["latency_us"]) * MICRO,
    )
    if "curve" not in table:
        return plain
    curve = _build_curve(table["curve"], fitted, bandwidth_bytes_per_s=plain.bandwidth_bytes_per_s)
    return MeasuredDimension(plain.topology, plain.size, plain.bandwidth_bytes_per_s, plain.latency_s, curve)


def _build_curve(
    value: str | dict[str, Any], fitted: FittedConstants, *, bandwidth_bytes_per_s: float
) -> CollectiveCurve:
    if isinstance(value, str):
        return load_fabric(value).curve(fitted, bandwidth_bytes_per_s=bandwidth_bytes_per_s)
    return CollectiveCurve(
        bandwidth_bytes_per_s=gb_per_s_to_bytes_per_s(float(value["bandwidth_gb_per_s"])),
        doubling_s=float(value["doubling_us"]) * MICRO,
        ramp_s=float(value.get("ramp_us", 0.0)) * MICRO,
        endpoint_share=float(value.get("endpoint_share", 0.0)),
        ring_shares=tuple(float(share) for share in value.get("ring_shares", ())),
    )


def _find_faults(table: dict[str, Any]) -> Iterator[tuple[KeyPath, str]]:
    """Path and broken rule of every fault of a dimension's table, most basic first."""
    known = (*_DIMENSION_KEYS, "curve")
    for key in table:
        if key not in known:
            yield (key,), f"is unknown; {suggest(key, known)}"
    for key in _DIMENSION_KEYS:
        if key not in table:
            yield (key,), "is missing"
    topology, size = table["topology"], table["size"]
    if topology not in list(Topology):
        yield ("topology",), f"value {shorten(topology)} is unknown; {suggest(str(topology), list(Topology))}"
    if isinstance(size, bool) or not isinstance(size, int) or not 1 <= size <= MAX_DEVICES:
        yield ("size",), f"value {shorten(size)} must be an integer from 1 to {MAX_DEVICES}"
    yield from _number_faults(table, positive=("bandwidth_gb_per_s",), non_negative=("latency_us",))
    if "curve" in table:
        yield from _curve_faults(table["curve"])


def _curve_faults(value: object) -> Iterator[tuple[KeyPath, str]]:
    """Faults of a curve: the name of a fabric, or a table of its own."""
    if isinstance(value, str):
        if value not in list_fabrics():
            yield ("curve",), f"value {shorten(value)} is no fabric; {suggest(value, list_fabrics())}, or give a table"
        return
    if not isinstance(value, dict):
        yield (
            ("curve",),
            f"value {shorten(value)} must be the name of a fabric or a table with {', '.join(_CURVE_KEYS)}",
        )
        return
    for key in value:
        if key not in _CURVE_KEYS:
            yield ("curve", key), f"is unknown; {suggest(key, _CURVE_KEYS)}"
    for key in ("bandwidth_gb_per_s", "doubling_us"):
        if key not in value:
            yield ("curve", key), "is missing"
    faults = _number_faults(
        value, positive=("bandwidth_gb_per_s",), non_negative=("doubling_us", "ramp_us", "endpoint_share")
    )
    yield from ((("curve", *key), rule) for key, rule in faults)
    shares = value.get("ring_shares", [])
    if not (isinstance(shares, list) and all(is_number(share) and 0 < share <= 1 for share in shares)):
        yield ("curve", "ring_shares"), f"value {shorten(shares)} must be a list of numbers above 0 and at most 1"


def _number_faults(
    table: dict[str, Any], *, positive: tuple[str, ...], non_negative: tuple[str, ...]
) -> Iterator[tuple[KeyPath, str]]:
    for key in (*positive, *non_negative):
        if key not in table:
            continue
        value, rule = table[key], "positive" if key in positive else "non-negative"
        if not (is_number(value) and (value > 0 or (rule == "non-negative" and value == 0))):
            yield (key,), f"value {shorten(value)} must be a finite {rule} number"
