"""Networks by name or from a TOML file, with the outermost dimension grown to hold the cluster."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from importlib import resources
from pathlib import Path
from types import MappingProxyType
from typing import Any

from phaze_opt.errors import InputError
from phaze_opt.hardware.constants import Constants, load_constants
from phaze_opt.hardware.network import Network, NetworkDimension, Topology
from phaze_opt.hardware.suggestion import suggest
from phaze_opt.hardware.toml_file import TomlDocument, is_number, parse_toml, read_toml, shorten
from phaze_opt.units import MICRO, gb_per_s_to_bytes_per_s

MAX_DEVICES = 1 << 18
"""Largest cluster accepted: beyond any built; the time and memory of a placement grow with it."""
_FILE_KEYS = frozenset({"name", "dimensions"})
_DIMENSION_KEYS = ("topology", "size", "bandwidth_gb_per_s", "latency_us")


def list_networks() -> tuple[str, ...]:
    """Names that `load_network` knows: two of assumed clusters, then those of real ones (networks.toml)."""
    return (*_BUILDERS, *_real_networks())


def load_network(name_or_path: str, *, num_devices: int, constants: Constants | None = None) -> Network:
    """A network that holds ``num_devices``.

    A file has ``name`` and ``[[dimensions]]`` from the innermost outwards, each with topology (ring, switch,
    fully_connected), size, bandwidth_gb_per_s (10**9 bytes/s per device, one way) and latency_us. The outermost size
    is grown, never shrunk, until all devices fit.

    Args:
        name_or_path: ``two-level``, ``phaze``, a real cluster's name (`list_networks`) or a TOML file.
        num_devices: devices of the cluster.
        constants: bandwidths and latencies of the named networks; the package's own unless given.

    Raises:
        InputError: an unknown name (with a near miss), a faulty file, or a device count that is no positive integer.
    """
    if isinstance(num_devices, bool) or not isinstance(num_devices, int) or not 1 <= num_devices <= MAX_DEVICES:
        message = f"devices = {shorten(num_devices)} must be an integer from 1 to {MAX_DEVICES}"
        raise InputError(message, key="devices")
    if name_or_path in _BUILDERS:
        network = _BUILDERS[name_or_path](constants if constants is not None else load_constants())
    elif name_or_path in _real_networks():
        network = _real_networks()[name_or_path]
    elif _looks_like_file(name_or_path):
        network = _parse_network(read_toml(Path(name_or_path), kind="a network file (TOML)"))
    else:
        message = (
            f"no network is named {shorten(name_or_path)}; {suggest(name_or_path, list_networks())} or give a TOML file"
        )
        raise InputError(message)
    return _grow(network, num_devices=num_devices)


def _looks_like_file(text: str) -> bool:
    return text.endswith(".toml") or "/" in text or "\\" in text or Path(text).exists()


def _build_two_level(constants: Constants) -> Network:
    """A node of switched links, then switched adapters; both levels take the switch's halving-doubling."""
    prefix = "network.two_level."
    inner = NetworkDimension(
        Topology.SWITCH,
        int(constants.value(f"{prefix}inner_size")),
        constants.value(f"{prefix}inner_bandwidth_bytes_per_s"),
        constants.value(f"{prefix}inner_latency_s"),
    )
    outer = NetworkDimension(
        Topology.SWITCH,
        1,
        constants.value(f"{prefix}outer_bandwidth_bytes_per_s"),
        constants.value(f"{prefix}outer_latency_s"),
    )
    return Network("two-level", (inner, outer))


def _build_phaze(constants: Constants) -> Network:
    bandwidth = constants.value("network.phaze.bandwidth_bytes_per_s")
    return Network(
        "phaze", (NetworkDimension(Topology.RING, 1, bandwidth, constants.value("network.phaze.latency_s")),)
    )


_BUILDERS = MappingProxyType({"two-level": _build_two_level, "phaze": _build_phaze})


@cache
def _real_networks() -> MappingProxyType[str, Network]:
    """Networks of real clusters, from the package's own file."""
    text = resources.files("phaze_opt.hardware").joinpath("networks.toml").read_text(encoding="utf-8")
    source = "networks.toml"
    tables = parse_toml(text, source=source).values
    return MappingProxyType(
        {name: Network(name, _parse_dimensions(table, source=source)) for name, table in tables.items()}
    )


def _grow(network: Network, *, num_devices: int) -> Network:
    *inner, outermost = network.dimensions
    islands = math.ceil(num_devices / math.prod(dimension.size for dimension in inner))
    grown = replace(outermost, size=max(outermost.size, islands))
    return Network(network.name, (*inner, grown))


def _parse_network(document: TomlDocument) -> Network:
    for key in document.values:
        if key not in _FILE_KEYS:
            message = f"is unknown; {suggest(key, _FILE_KEYS)}"
            raise InputError(message, source=document.source, line=document.line_of((key,)), key=key)
    dimensions = _parse_dimensions(document.values, source=document.source)
    return Network(str(document.values.get("name", Path(document.source).stem)), dimensions)


def _parse_dimensions(values: dict[str, Any], *, source: str) -> tuple[NetworkDimension, ...]:
    tables = values.get("dimensions")
    if not (isinstance(tables, list) and tables and all(isinstance(table, dict) for table in tables)):
        message = "must be one or more [[dimensions]] tables, innermost first"
        raise InputError(message, source=source, key="dimensions")
    return tuple(_parse_dimension(table, index, source=source) for index, table in enumerate(tables))


def _parse_dimension(table: dict[str, Any], index: int, *, source: str) -> NetworkDimension:
    for key, rule in _find_faults(table):
        raise InputError(rule, source=source, key=f"dimensions[{index}].{key}")
    return NetworkDimension(
        Topology(table["topology"]),
        table["size"],
        gb_per_s_to_bytes_per_s(float(table["bandwidth_gb_per_s"])),
        float(table["latency_us"]) * MICRO,
    )


def _find_faults(table: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Key and broken rule of every fault of a dimension's table, most basic first."""
    for key in table:
        if key not in _DIMENSION_KEYS:
            yield key, f"is unknown; {suggest(key, _DIMENSION_KEYS)}"
    for key in _DIMENSION_KEYS:
        if key not in table:
            yield key, "is missing"
    topology, size = table["topology"], table["size"]
    if topology not in list(Topology):
        yield "topology", f"value {shorten(topology)} is unknown; {suggest(str(topology), list(Topology))}"
    if isinstance(size, bool) or not isinstance(size, int) or not 1 <= size <= MAX_DEVICES:
        yield "size", f"value {shorten(size)} must be an integer from 1 to {MAX_DEVICES}"
    for key, rule in (("bandwidth_gb_per_s", "positive"), ("latency_us", "non-negative")):
        value = table[key]
        if not (is_number(value) and (value > 0 or (key == "latency_us" and value == 0))):
            yield key, f"value {shorten(value)} must be a finite {rule} number"
