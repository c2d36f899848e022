"""Fabrics whose all-reduces were measured (fabrics.toml): their links, and the curve of their fitted constants."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from types import MappingProxyType

from pydantic import BaseModel, ConfigDict

from phaze_opt.errors import InputError
from phaze_opt.hardware.fitted import FittedConstants
from phaze_opt.hardware.link_rings import ring_shares, torus_shares
from phaze_opt.hardware.network import CollectiveCurve
from phaze_opt.record.document import parse_toml
from phaze_opt.record.suggestions import suggest
from phaze_opt.units import gb_per_s_to_bytes_per_s

GROUP_PREFIX = "collectives/"
"""A fabric's fitted constants are the group of this prefix and its name."""
TYPICAL_EFFICIENCY = 0.8
TYPICAL_DOUBLING_S = 7e-6
TYPICAL_RAMP_S = 2e-5
"""Curve of a fabric before anything was fitted: about the mean of those that were."""


@dataclass(frozen=True, slots=True)
class Fabric:
    """Links of one kind within one dimension.

    Attributes:
        name: name, also of its group of constants.
        hardware: beginnings of the names of the machines that have it.
        words: how data sets tell it from others of the same machine, most telling first.
        bandwidth_bytes_per_s: specified, per device one way over all its links.
        endpoint_share: see `CollectiveCurve`.
        ring_shares: bandwidth of small groups where links join pairs of devices; empty where a switch joins all.
        is_between_nodes: adapters of a node rather than links inside it.
        source: where the figures come from.
    """

    name: str
    hardware: tuple[str, ...]
    words: tuple[str, ...]
    bandwidth_bytes_per_s: float
    endpoint_share: float
    ring_shares: tuple[float, ...]
    is_between_nodes: bool
    source: str

    @property
    def group(self) -> str:
        """Group of its fitted constants."""
        return f"{GROUP_PREFIX}{self.name}"

    def curve(self, fitted: FittedConstants, *, bandwidth_bytes_per_s: float | None = None) -> CollectiveCurve:
        """Its curve under some constants; what was not fitted is typical.

        Args:
            fitted: holds the fabric's group, or not.
            bandwidth_bytes_per_s: specified bandwidth of a dimension with such links; the fabric's own unless given.
                The curve reaches the same share of it.
        """
        specified = self.bandwidth_bytes_per_s if bandwidth_bytes_per_s is None else bandwidth_bytes_per_s
        known = fitted.groups.get(self.group)
        if known is None:
            curve = typical_curve(specified, fitted)
        else:
            share = known["bandwidth_bytes_per_s"] / self.bandwidth_bytes_per_s
            curve = CollectiveCurve(share * specified, known["doubling_s"], known["ramp_s"])
        return replace(curve, endpoint_share=self.endpoint_share, ring_shares=self.ring_shares)


class _Torus(BaseModel):
    """Axes of a torus, and how many devices close one."""

    axes: int
    full: int


class _FabricTable(BaseModel):
    """One ``[name]`` table of fabrics.toml."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    hardware: list[str]
    words: list[str]
    bandwidth_gb_per_s: float
    endpoint_share: float = 0.0
    links: list[list[int]] = []
    torus: _Torus | None = None
    is_between_nodes: bool = False
    source: str

    def build(self, name: str) -> Fabric:
        links = tuple(tuple(row) for row in self.links)
        shares = torus_shares(self.torus.axes, self.torus.full) if self.torus else ring_shares(links) if links else ()
        return Fabric(
            name=name,
            hardware=tuple(self.hardware),
            words=tuple(self.words),
            bandwidth_bytes_per_s=gb_per_s_to_bytes_per_s(self.bandwidth_gb_per_s),
            endpoint_share=self.endpoint_share,
            ring_shares=shares,
            is_between_nodes=self.is_between_nodes,
            source=self.source,
        )


def list_fabrics() -> tuple[str, ...]:
    """Names of the fabrics, sorted."""
    return tuple(sorted(_fabrics()))


def load_fabric(name: str) -> Fabric:
    """A fabric by name.

    Raises:
        InputError: an unknown name, with a near miss.
    """
    fabrics = _fabrics()
    if name not in fabrics:
        message = f"no fabric is named '{name}'; {suggest(name, fabrics)}"
        raise InputError(message, key="curve")
    return fabrics[name]


def find_fabric(hardware: str, description: str, *, is_between_nodes: bool = False) -> Fabric | None:
    """The links of a machine that a data set describes in words; None if the machine's are unknown.

    Args:
        hardware: name of the machine in the data or of a preset; the longest beginning that is known decides.
        description: words of the data set; the most telling word decides, and a fabric may take any.
        is_between_nodes: the adapters between nodes rather than the links within one.
    """
    text, name = description.lower(), _plain(hardware)
    ranked = [
        (-len(prefix), rank, fabric.name, fabric)
        for fabric in _fabrics().values()
        for prefix in fabric.hardware
        for rank, word in enumerate(fabric.words)
        if fabric.is_between_nodes is is_between_nodes and name.startswith(_plain(prefix)) and word.lower() in text
    ]
    return min(ranked)[-1] if ranked else None


def _plain(name: str) -> str:
    """Letters and digits alone: ``TPU v4``, ``TPUv4`` and the preset ``tpu-v4-published`` begin alike."""
    return "".join(letter for letter in name.lower() if letter.isalnum())


def typical_curve(bandwidth_bytes_per_s: float, fitted: FittedConstants) -> CollectiveCurve:
    """Curve of links nobody measured: the geometric means of the fitted fabrics within a node, at their bandwidth."""
    groups = [
        (fabric, fitted.group(fabric.group))
        for fabric in _fabrics().values()
        if fitted.has(fabric.group) and not fabric.is_between_nodes
    ]
    if not groups:
        return CollectiveCurve(bandwidth_bytes_per_s * TYPICAL_EFFICIENCY, TYPICAL_DOUBLING_S, TYPICAL_RAMP_S)
    # Geometric means, as fabrics differ by factors; no link is taken to be faster than it is specified.
    shares = [values["bandwidth_bytes_per_s"] / fabric.bandwidth_bytes_per_s for fabric, values in groups]
    return CollectiveCurve(
        bandwidth_bytes_per_s=bandwidth_bytes_per_s * min(1.0, _mean(shares)),
        doubling_s=_mean([values["doubling_s"] for _, values in groups]),
        ramp_s=_mean([values["ramp_s"] for _, values in groups]),
    )


def _mean(values: list[float]) -> float:
    """Geometric mean; 0 if any is."""
    return math.exp(sum(math.log(value) for value in values) / len(values)) if all(values) else 0.0


@cache
def _fabrics() -> Mapping[str, Fabric]:
    text = resources.files("phaze_opt.hardware").joinpath("fabrics.toml").read_text(encoding="utf-8")
    tables = parse_toml(text, source="fabrics.toml").values
    return MappingProxyType({name: _FabricTable.model_validate(table).build(name) for name, table in tables.items()})
