"""Fabrics whose all-reduces were measured (fabrics.toml): their links, and the curve of their fitted constants."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from types import MappingProxyType

from pydantic import BaseModel, ConfigDict

from phaze_opt.errors import InputError
from phaze_opt.hardware.fitted import FittedConstants
from phaze_opt.hardware.link_rings import Links, ring_shares
from phaze_opt.hardware.network import CollectiveCurve
from phaze_opt.hardware.suggestion import suggest
from phaze_opt.hardware.toml_file import parse_toml
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
        endpoint_share, links: see `CollectiveCurve` and `ring_shares`; no links where a switch joins all.
        source: where the figures come from.
    """

    name: str
    hardware: tuple[str, ...]
    words: tuple[str, ...]
    bandwidth_bytes_per_s: float
    endpoint_share: float
    links: Links
    source: str

    @property
    def group(self) -> str:
        """Group of its fitted constants."""
        return f"{GROUP_PREFIX}{self.name}"

    def curve(self, fitted: FittedConstants) -> CollectiveCurve:
        """Its curve under some constants; what was not fitted is typical."""
        known = fitted.groups.get(self.group, {})
        typical = typical_curve(self.bandwidth_bytes_per_s, fitted)
        return CollectiveCurve(
            bandwidth_bytes_per_s=known.get("bandwidth_bytes_per_s", typical.bandwidth_bytes_per_s),
            doubling_s=known.get("doubling_s", typical.doubling_s),
            ramp_s=known.get("ramp_s", typical.ramp_s),
            endpoint_share=self.endpoint_share,
            ring_shares=ring_shares(self.links) if self.links else (),
        )


class _FabricTable(BaseModel):
    """One ``[name]`` table of fabrics.toml."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    hardware: list[str]
    words: list[str]
    bandwidth_gb_per_s: float
    endpoint_share: float = 0.0
    links: list[list[int]] = []
    source: str


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


def find_fabric(hardware: str, description: str) -> Fabric | None:
    """The fabric of a machine that a data set describes in words; None if no such one was measured."""
    candidates = [f for f in _fabrics().values() if any(hardware.startswith(prefix) for prefix in f.hardware)]
    text = description.lower()
    ranked = [(f.words.index(word), f.name, f) for f in candidates for word in f.words if word.lower() in text]
    return min(ranked)[2] if ranked else None


def typical_curve(bandwidth_bytes_per_s: float, fitted: FittedConstants) -> CollectiveCurve:
    """Curve of links nobody measured: the geometric means of the fitted fabrics within a node, at their bandwidth."""
    groups = [
        (fabric, fitted.group(fabric.group))
        for fabric in _fabrics().values()
        if fitted.has(fabric.group) and "NVLink" in fabric.words
    ]
    if not groups:
        return CollectiveCurve(bandwidth_bytes_per_s * TYPICAL_EFFICIENCY, TYPICAL_DOUBLING_S, TYPICAL_RAMP_S)
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
    return MappingProxyType({name: _build(name, _FabricTable.model_validate(table)) for name, table in tables.items()})


def _build(name: str, table: _FabricTable) -> Fabric:
    return Fabric(
        name=name,
        hardware=tuple(table.hardware),
        words=tuple(table.words),
        bandwidth_bytes_per_s=gb_per_s_to_bytes_per_s(table.bandwidth_gb_per_s),
        endpoint_share=table.endpoint_share,
        links=tuple(tuple(row) for row in table.links),
        source=table.source,
    )
