"""Network files: dimensions in the units people use, read with faults by key, and written so that they read back."""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Discriminator, Field, Tag

from phaze_opt.hardware.chip_template import LINK_RATE
from phaze_opt.hardware.fabrics import list_fabrics, load_fabric
from phaze_opt.hardware.fitted import FittedConstants
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
from phaze_opt.record.document import Document
from phaze_opt.record.input_files import Bounds, counts, shorten
from phaze_opt.record.suggestions import suggest
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
