"""Networks by name or from a TOML file, with the outermost dimension grown to hold the cluster.

Network files: dimensions in the units people use, read with faults by key, and written so that they read back.
"""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from importlib import resources
from pathlib import Path
from types import MappingProxyType
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Discriminator, Field, Tag

from phaze_opt.errors import InputError
from phaze_opt.hardware.chip_template import LINK_RATE
from phaze_opt.hardware.constants import Constants, load_constants
from phaze_opt.hardware.fabrics import list_fabrics, load_fabric
from phaze_opt.hardware.fitted import FittedConstants, load_fitted
from phaze_opt.hardware.network import (
    MAX_DEVICES,
    MAX_DIMENSIONS,
    Chunking,
    CollectiveCurve,
    CollectiveKind,
    KindCurve,
    MeasuredDimension,
    Network,
    NetworkDimension,
    Protocol,
    Topology,
)
from phaze_opt.record.document import Document, parse_toml, read_toml
from phaze_opt.record.input_files import Bounds, counts, is_there, shorten
from phaze_opt.record.suggestions import known_as, suggest
from phaze_opt.units import GIGA, MICRO, gb_per_s_to_bytes_per_s


def _fabric(name: str) -> str:
    if name not in list_fabrics():
        message = f"value {shorten(name)} is no fabric; {suggest(name, list_fabrics())}, or give a table"
        raise ValueError(message)
    return name


_Rate = Annotated[float, LINK_RATE]
_Time = Annotated[float, Bounds("us", 0.0, 100_000.0)]
_Ratio = Annotated[float, Bounds("", 0.0, 1000.0)]
_Share = Annotated[float, Bounds("", 1e-6, 1.0)]


class _Table(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class _ProtocolTable(_Table):
    """Latency beyond a pass's own and rate of one protocol, as shares."""

    setup: _Ratio
    rate: _Share


class _PassTable(_Table):
    """One measured curve in the units people use."""

    bandwidth_gb_per_s: _Rate
    doubling_us: _Time
    ramp_us: _Time = 0.0
    endpoint_share: _Ratio = 0.0
    ring_shares: list[_Share] = []
    start_us: _Time = 0.0
    hop_us: _Time = 0.0
    crowding: _Ratio = 0.0
    protocols: list[_ProtocolTable] = []
    most_hops: Annotated[float, Bounds("", 0.0, MAX_DEVICES)] = 0.0

    def build(self) -> CollectiveCurve:
        return CollectiveCurve(
            bandwidth_bytes_per_s=gb_per_s_to_bytes_per_s(self.bandwidth_gb_per_s),
            doubling_s=self.doubling_us * MICRO,
            ramp_s=self.ramp_us * MICRO,
            endpoint_share=self.endpoint_share,
            ring_shares=tuple(self.ring_shares),
            start_s=self.start_us * MICRO,
            hop_s=self.hop_us * MICRO,
            crowding=self.crowding,
            protocols=tuple(Protocol(each.setup, each.rate) for each in self.protocols),
            most_hops=self.most_hops,
        )


class _CurveTable(_PassTable):
    """A curve of every kind of collective but those that have one of their own."""

    kinds: dict[Annotated[CollectiveKind, Field(strict=False)], _PassTable] = {}

    def build_kinds(self) -> tuple[KindCurve, ...]:
        return tuple(KindCurve(kind, table.build()) for kind, table in self.kinds.items())


class _DimensionTable(_Table):
    """One dimension; ``curve`` is the name of a fabric, or a table."""

    topology: Annotated[Topology, Field(strict=False)]
    size: Annotated[int, counts(MAX_DEVICES)]
    bandwidth_gb_per_s: _Rate
    latency_us: Annotated[float, Bounds("us", 0.05, 1000.0).or_none]
    curve: (
        Annotated[
            Annotated[str, AfterValidator(_fabric), Tag("fabric")] | Annotated[_CurveTable, Tag("table")],
            # Faults of the one that is meant, not of both.
            Discriminator(lambda value: "fabric" if isinstance(value, str) else "table"),
        ]
        | None
    ) = None

    def build(self, fitted: FittedConstants) -> NetworkDimension:
        bandwidth = gb_per_s_to_bytes_per_s(self.bandwidth_gb_per_s)
        links = (self.topology, self.size, bandwidth, self.latency_us * MICRO)
        if self.curve is None:
            return NetworkDimension(*links)
        if isinstance(self.curve, str):
            fabric = load_fabric(self.curve)
            curve = fabric.curve(fitted, bandwidth_bytes_per_s=bandwidth)
            return MeasuredDimension(*links, curve, fabric.kind_curves(fitted, bandwidth_bytes_per_s=bandwidth))
        return MeasuredDimension(*links, self.curve.build(), self.curve.build_kinds())


class NetworkTable(_Table):
    """A network of a file."""

    name: str | None = None
    chunking: Annotated[Chunking, Field(strict=False)] = Chunking.NONE
    dimensions: Annotated[list[_DimensionTable], Field(min_length=1, max_length=MAX_DIMENSIONS)]

    def build(self, name: str, fitted: FittedConstants) -> Network:
        """The network, with the curves of fabrics made of fitted constants.

        Raises:
            InputError: chunks do not go with its levels.
        """
        network = Network(name, tuple(dimension.build(fitted) for dimension in self.dimensions))
        return network.with_chunking(self.chunking)


class RealNetworkTable(NetworkTable):
    """One of the package's own, and where its figures come from."""

    source: str


def parse_network(document: Document, fitted: FittedConstants) -> Network:
    """The network of a file.

    Raises:
        InputError: a fault, by file and key.
    """
    table = document.validate(NetworkTable)
    if table.chunking is not Chunking.NONE and any(each.curve is not None for each in table.dimensions):
        rule = f"{table.chunking} does not go with levels that have a curve, which run as one ring; drop one of them"
        raise document.fault(rule, "chunking")
    num_devices = math.prod(each.size for each in table.dimensions)
    if num_devices > MAX_DEVICES:
        rule = f"{len(table.dimensions)} sizes join {num_devices:,} devices; at most {MAX_DEVICES:,} may be joined"
        raise document.fault(rule, "dimensions")
    name = Path(document.source).stem if table.name is None else table.name
    return table.build(name, fitted)


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
            lines += ["[dimensions.curve]", *_curve_lines(dimension.curve)]
            for each in dimension.kinds:
                lines += [f"[dimensions.curve.kinds.{each.kind}]", *_curve_lines(each.curve)]
    return "\n".join(lines) + "\n"


def _curve_lines(curve: CollectiveCurve) -> Iterator[str]:
    yield f"bandwidth_gb_per_s = {_scaled(curve.bandwidth_bytes_per_s, GIGA)}"
    yield f"doubling_us = {_scaled(curve.doubling_s, MICRO)}"
    yield f"ramp_us = {_scaled(curve.ramp_s, MICRO)}"
    yield f"endpoint_share = {curve.endpoint_share!r}"
    yield f"ring_shares = [{', '.join(repr(share) for share in curve.ring_shares)}]"
    if curve.start_s or curve.hop_s:
        yield f"start_us = {_scaled(curve.start_s, MICRO)}"
        yield f"hop_us = {_scaled(curve.hop_s, MICRO)}"
    if curve.crowding:
        yield f"crowding = {curve.crowding!r}"
    if curve.protocols:
        tables = (f"{{ setup = {each.setup!r}, rate = {each.rate!r} }}" for each in curve.protocols)
        yield f"protocols = [{', '.join(tables)}]"
    if curve.most_hops:
        yield f"most_hops = {curve.most_hops!r}"


def _scaled(value: float, unit: float) -> str:
    """``value`` in a unit, as the number that gives exactly ``value`` when multiplied by it again, if there is one."""
    # A quotient times its divisor need not give the number back; one of its neighbours mostly does.
    number = value / unit
    for candidate in (number, math.nextafter(number, math.inf), math.nextafter(number, -math.inf)):
        if candidate * unit == value:
            return repr(candidate)
    return repr(number)


def _quoted(text: str) -> str:
    """A TOML string: as in JSON, and DEL, which TOML does not take as it is."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


DEFAULT_NETWORK = "two-level"
"""Assumed where a machine's own network is not known."""
NETWORK_PREFIX = "network."
"""Of the keys of constants that assumed networks are built by."""
_REAL_SOURCE = "networks.toml"


def list_networks() -> tuple[str, ...]:
    """Names that `load_network` knows: two of assumed clusters, then those of real ones (networks.toml)."""
    return (*_BUILDERS, *_real_networks())


def load_network(
    name_or_path: str, *, num_devices: int, constants: Constants | None = None, fitted: FittedConstants | None = None
) -> Network:
    """A network that holds ``num_devices``.

    A file has ``name``, maybe ``chunking``, and ``[[dimensions]]`` from the innermost outwards, each with topology
    (ring, switch, fully_connected), size, bandwidth_gb_per_s (10**9 bytes/s per device, one way) and latency_us, and
    maybe a measured ``curve``. The outermost size is grown, never shrunk, until all devices fit.

    Args:
        name_or_path: ``two-level``, ``phaze``, a real cluster's name (`list_networks`) or a TOML file.
        num_devices: devices of the cluster.
        constants: bandwidths and latencies of the assumed networks; the package's own unless given.
        fitted: constants of curves that go by a fabric's name; the package's own unless given.

    Raises:
        InputError: an unknown name (with a near miss), a faulty file, or a device count that is no positive integer.
    """
    if isinstance(num_devices, bool) or not isinstance(num_devices, int) or not 1 <= num_devices <= MAX_DEVICES:
        message = f"devices = {shorten(num_devices)} must be an integer from 1 to {MAX_DEVICES}"
        raise InputError(message, key="devices")
    name_or_path = known_as(name_or_path, list_networks())
    if name_or_path in _BUILDERS:
        network = _BUILDERS[name_or_path](constants if constants is not None else load_constants())
    elif name_or_path in _real_networks():
        network = _real_networks()[name_or_path].build(name_or_path, fitted or load_fitted())
    elif _looks_like_file(name_or_path):
        document = read_toml(Path(name_or_path), kind="a network file (TOML)")
        network = parse_network(document, fitted or load_fitted())
    else:
        message = (
            f"no network is named {shorten(name_or_path)}; {suggest(name_or_path, list_networks())} or give a TOML file"
        )
        raise InputError(message)
    return grow_network(network, num_devices=num_devices)


def constants_of_network(name: str, constants: Constants, *, has_own_links: bool = False) -> tuple[str, ...]:
    """Keys of the constants that an assumed network is built by; none of other networks.

    Args:
        name: of the network.
        constants: that have them.
        has_own_links: whether chips state the rate of their links. It stands in place of the network's: a bandwidth
            that was otherwise would change nothing but its level's share, so those are left out.
    """
    keys = (key for key in constants.entries if key.startswith(f"{NETWORK_PREFIX}{name.replace('-', '_')}."))
    return tuple(key for key in keys if not (has_own_links and key.endswith("bandwidth_bytes_per_s")))


def network_source(name: str) -> str:
    """Where the figures of a real cluster's network come from; empty for others."""
    return _real_networks()[name].source if name in _real_networks() else ""


def grow_network(network: Network, *, num_devices: int) -> Network:
    """The network with its outermost dimension grown, never shrunk, until ``num_devices`` fit.

    Devices are spread evenly over islands whose size is no power of two, as jobs take 64 of the 72 of a rack.
    """
    *inner, outermost = network.dimensions
    if inner and num_devices > inner[0].size:
        inner[0] = replace(inner[0], size=_even_share(num_devices, inner[0].size))
    islands = math.ceil(num_devices / math.prod(dimension.size for dimension in inner))
    grown = replace(outermost, size=max(outermost.size, islands))
    return Network(network.name, (*inner, grown))


def _even_share(num_devices: int, size: int) -> int:
    """Devices of an island where all have as many; the whole island where it is a power of two, or half is too much."""
    if num_devices % size == 0 or size & (size - 1) == 0:
        return size
    return next((share for share in range(size, size // 2, -1) if num_devices % share == 0), size)


def _looks_like_file(text: str) -> bool:
    return text.endswith(".toml") or "/" in text or "\\" in text or is_there(text)


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
def _real_networks() -> Mapping[str, RealNetworkTable]:
    """The package's own file of the networks of real clusters, a table each."""
    text = resources.files("phaze_opt.hardware").joinpath(_REAL_SOURCE).read_text(encoding="utf-8")
    document = parse_toml(text, source=_REAL_SOURCE)
    return {name: document.validate(RealNetworkTable, name) for name in document.values}
