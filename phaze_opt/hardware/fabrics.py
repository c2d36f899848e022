"""Fabrics whose collectives were measured (fabrics.toml): their links, and the curves of their fitted constants."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from functools import cache, lru_cache
from importlib import resources
from types import MappingProxyType

from pydantic import BaseModel, ConfigDict

from phaze_opt.errors import InputError
from phaze_opt.hardware.fitted import FittedConstants
from phaze_opt.hardware.network import CollectiveCurve, CollectiveKind, KindCurve, Protocol
from phaze_opt.hardware.torus_mapping import ring_shares, torus_shares
from phaze_opt.record.document import parse_toml
from phaze_opt.record.suggestions import suggest
from phaze_opt.units import gb_per_s_to_bytes_per_s

GROUP_PREFIX = "collectives/"
"""A fabric's fitted constants are the group of this prefix and its name, those of a kind of collective further down."""
PROTOCOL_GROUP = f"{GROUP_PREFIX}protocols"
"""Constants of protocols, which all fabrics and all software share."""
TYPICAL_EFFICIENCY = 0.8
TYPICAL_DOUBLING_S = 7e-6
TYPICAL_RAMP_S = 2e-5
"""Curve of a fabric before anything was fitted: about the mean of those that were."""


class CollectiveSoftware(StrEnum):
    """Whose collectives were timed, and by which clock: kernels and the cost of a launch differ.

    LIBRARY: NCCL, RCCL or oneCCL by their own tests, which training runs. EARLIER: their releases up to 2024, or the
    clock of a framework's host. XLA: as a compiled program runs them. GRAPH, EAGER: all-reduce kernels of serving
    frameworks, replayed in a graph or launched one by one.
    """

    LIBRARY = "library"
    EARLIER = "earlier"
    XLA = "xla"
    GRAPH = "graph"
    EAGER = "eager"


@dataclass(frozen=True, slots=True)
class CurvePrior:
    """Constants of a pass before anything was fitted; bandwidth as a share of the specified one."""

    share: float = 0.8
    start_s: float = 4e-6
    hop_s: float = 1e-6
    doubling_s: float = 1e-5
    ramp_s: float = 1e-5
    endpoint_share: float = 0.5
    small_share: float = 0.8
    crowding: float = 1.0
    setup: float = 3.0
    most_hops: float = 15.0


@dataclass(frozen=True, slots=True)
class ProtocolPrior:
    """Constants of NCCL's three protocols before anything was fitted, each against the next: LL, LL128, Simple."""

    ll_rate: float = 0.03
    ll128_rate: float = 0.45
    ll128_setup: float = 0.06


CURVE_PRIOR = CurvePrior()
PROTOCOL_PRIOR = ProtocolPrior()
_PRIOR_CONSTANTS: Mapping[str, float] = MappingProxyType(asdict(CURVE_PRIOR))


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
        like: fabric whose fitted constants it has; its own unless given.
        domain: devices that its switches join across nodes; 0 where it ends with the node.
        reduces_from: group from which on switches reduce for all-reduces; 0 where they never do.
        shares_bridge: whether all links of a node cross one bridge of the host.
        has_protocols: whether rates build up with size, by protocols or a ramp; taken to where nobody measured it.
    """

    name: str
    hardware: tuple[str, ...]
    words: tuple[str, ...]
    bandwidth_bytes_per_s: float
    endpoint_share: float
    ring_shares: tuple[float, ...]
    is_between_nodes: bool
    source: str
    like: str = ""
    domain: int = 0
    reduces_from: int = 0
    shares_bridge: bool = False
    has_protocols: bool = True

    @property
    def group(self) -> str:
        """Group of its fitted constants of all-reduces of earlier libraries."""
        return f"{GROUP_PREFIX}{self.like or self.name}"

    def group_of(self, kind: CollectiveKind, software: CollectiveSoftware) -> str:
        """Group of its fitted constants of one kind of collective."""
        own = f"{self.group}/{kind.value}"
        return own if software is CollectiveSoftware.LIBRARY else f"{own}/{software.value}"

    @property
    def reduction_group(self) -> str:
        """Group of what its switches' reduction across nodes has in common under all software."""
        return f"{self.group}/reduction"

    @property
    def _specified(self) -> float:
        """Bandwidth that its constants were fitted on."""
        return load_fabric(self.like).bandwidth_bytes_per_s if self.like else self.bandwidth_bytes_per_s

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
            share = known["bandwidth_bytes_per_s"] / self._specified
            curve = CollectiveCurve(share * specified, known["doubling_s"], known["ramp_s"])
        return replace(curve, endpoint_share=self.endpoint_share, ring_shares=self.ring_shares)

    def kind_curve(
        self,
        kind: CollectiveKind,
        software: CollectiveSoftware,
        fitted: FittedConstants,
        *,
        bandwidth_bytes_per_s: float | None = None,
    ) -> CollectiveCurve:
        """Curve of one kind of collective under some constants; of earlier libraries the one of all-reduces.

        What was not fitted with this software reaches the bandwidth of XLA's or the library's, with typical latencies;
        what no software was fitted with is typical throughout, adapters as other adapters are.

        Args:
            kind: of collective.
            software: that runs it.
            fitted: holds the group, or not.
            bandwidth_bytes_per_s: as in `curve`.
        """
        specified = self.bandwidth_bytes_per_s if bandwidth_bytes_per_s is None else bandwidth_bytes_per_s
        is_unknown = self.is_between_nodes and not self._has_kinds(fitted)
        if is_unknown and not fitted.has(self.group):
            return adapter_curve(kind, specified, fitted)
        if software is CollectiveSoftware.EARLIER or is_unknown:
            return self.curve(fitted, bandwidth_bytes_per_s=bandwidth_bytes_per_s)
        own = fitted.groups.get(self.group_of(kind, software))
        if own is None and kind.is_pairwise and self.shares_bridge:
            return _pair_of(
                self.kind_curve(CollectiveKind.ALL_GATHER, software, fitted, bandwidth_bytes_per_s=specified)
            )
        # What shapes a fitted curve is the group's own: no mean is worth working out at each step of a fit.
        values = dict(_PRIOR_CONSTANTS if own is not None else typical_constants(kind, software, fitted, self))
        if kind.is_pairwise and self.ring_shares and not self.like:
            # Two neighbours have their link to themselves: at once all of its bandwidth.
            values |= {"share": 1.0, "ramp_s": 0.0}
        if own is not None:
            values |= own
            values["share"] = own["bandwidth_bytes_per_s"] / self._specified
        else:
            others = (fitted.groups.get(self.group_of(kind, each)) for each in _STAND_INS)
            other = next((each for each in others if each is not None), None)
            if other is not None:
                names = (*_RATES, "hop_s") if kind.is_pairwise else _RATES
                rates = {name: other[name] for name in names if name in other}
                values |= rates | {"share": other["bandwidth_bytes_per_s"] / self._specified}
        return CollectiveCurve(
            bandwidth_bytes_per_s=values["share"] * specified,
            doubling_s=values["doubling_s"] if self.grows_by_doubling(kind) else 0.0,
            ramp_s=values["ramp_s"] if self.has_protocols and not self.runs_protocols(kind) else 0.0,
            endpoint_share=0.0 if kind.is_pairwise else values["endpoint_share"],
            ring_shares=self._shares(kind, values["small_share"]),
            start_s=values["start_s"],
            hop_s=0.0 if self.grows_by_doubling(kind) else values["hop_s"],
            crowding=values["crowding"] if self.shares_bridge else 0.0,
            protocols=protocols_of(values["setup"], fitted) if self.runs_protocols(kind) else (),
            most_hops=self._most_hops(fitted) if kind is CollectiveKind.ALL_REDUCE else 0.0,
        )

    def _most_hops(self, fitted: FittedConstants) -> float:
        """Hops beyond which all-reduces take no longer, where switches reduce across nodes; 0 elsewhere."""
        known = fitted.groups.get(self.reduction_group, {})
        return known.get("most_hops", CURVE_PRIOR.most_hops) if self.domain and self.reduces_from else 0.0

    def kind_curves(
        self, fitted: FittedConstants, *, bandwidth_bytes_per_s: float | None = None
    ) -> tuple[KindCurve, ...]:
        """Curves of the kinds of collectives that training runs.

        Links on which earlier libraries alone were measured keep the one curve of them, and adapters that nobody
        measured the mean of those: two clusters' adapters, of two makers, tell little of others.
        """
        library = CollectiveSoftware.LIBRARY
        if not self._has_kinds(fitted) and (fitted.has(self.group) or self.is_between_nodes):
            return ()
        own = bandwidth_bytes_per_s
        return tuple(
            KindCurve(kind, self.kind_curve(kind, library, fitted, bandwidth_bytes_per_s=own))
            for kind in CollectiveKind
        )

    def _has_kinds(self, fitted: FittedConstants) -> bool:
        """Whether any kind of collective was measured on it."""
        return any(fitted.has(self.group_of(kind, each)) for kind in CollectiveKind for each in _STAND_INS)

    def runs_protocols(self, kind: CollectiveKind) -> bool:
        """Whether a kind runs by protocols: rings within nodes; elsewhere a ramp tells as much."""
        return self.has_protocols and kind.is_ring and not self.is_between_nodes

    def grows_by_doubling(self, kind: CollectiveKind) -> bool:
        """Whether latency grows with each doubling of the group: between nodes, where libraries run trees."""
        return self.is_between_nodes and kind.is_ring

    def _shares(self, kind: CollectiveKind, small_share: float) -> tuple[float, ...]:
        """Shares of the bandwidth that small groups find."""
        if kind is CollectiveKind.ALL_REDUCE and self.reduces_from:
            return (small_share,) * (self.reduces_from - 2)
        if kind.is_pairwise and self.ring_shares:
            # A pair has the links between the two, however many devices pair up.
            return (self.ring_shares[0],) * (len(self.ring_shares) + 1)
        return self.ring_shares


def _pair_of(gather: CollectiveCurve) -> CollectiveCurve:
    """Transfers between pairs, of what two devices take for an all-gather of twice the payload."""
    bandwidth = gather.bandwidth_bytes_per_s / (1.0 + gather.endpoint_share)
    start_s = gather.latency_s(2)
    return replace(gather, bandwidth_bytes_per_s=bandwidth, endpoint_share=0.0, start_s=start_s, hop_s=0.0)


_STAND_INS = (CollectiveSoftware.LIBRARY, CollectiveSoftware.XLA)
_RATES = ("setup", "ramp_s", "endpoint_share", "small_share", "crowding")


def protocols_of(setup: float, fitted: FittedConstants) -> tuple[Protocol, ...]:
    """NCCL's protocols of rings: LL, LL128 and Simple, which adds ``setup`` latencies of a pass."""
    known = asdict(PROTOCOL_PRIOR) | dict(fitted.groups.get(PROTOCOL_GROUP, {}))
    rate = known["ll128_rate"]
    return Protocol(0.0, known["ll_rate"] * rate), Protocol(known["ll128_setup"] * setup, rate), Protocol(setup, 1.0)


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
    pairwise: int = 0
    shares: list[float] = []
    is_between_nodes: bool = False
    like: str = ""
    domain: int = 0
    reduces_from: int = 0
    shares_bridge: bool = False
    has_protocols: bool = True
    source: str

    def build(self, name: str) -> Fabric:
        links = tuple(tuple(row) for row in self.links)
        shares = tuple(self.shares)
        if self.torus is not None:
            shares = torus_shares(self.torus.axes, self.torus.full)
        elif links:
            shares = ring_shares(links)
        elif self.pairwise:
            # Every device sends to every other directly: a group of p has p-1 of its links.
            shares = tuple((size - 1) / (self.pairwise - 1) for size in range(2, self.pairwise))
        return Fabric(
            name=name,
            hardware=tuple(self.hardware),
            words=tuple(self.words),
            bandwidth_bytes_per_s=gb_per_s_to_bytes_per_s(self.bandwidth_gb_per_s),
            endpoint_share=self.endpoint_share,
            ring_shares=shares,
            is_between_nodes=self.is_between_nodes,
            source=self.source,
            like=self.like,
            domain=self.domain,
            reduces_from=self.reduces_from,
            shares_bridge=self.shares_bridge,
            has_protocols=self.has_protocols,
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


@lru_cache(maxsize=1024)
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
    """Letters and digits alone: ``TPU v4``, ``TPUv4`` and the preset ``tpu-v4`` begin alike."""
    return "".join(letter for letter in name.lower() if letter.isalnum())


def typical_curve(bandwidth_bytes_per_s: float, fitted: FittedConstants) -> CollectiveCurve:
    """Curve of links nobody measured: the geometric means of the fitted fabrics within a node, at their bandwidth."""
    groups = [
        (fabric, fitted.group(fabric.group))
        for fabric in _fabrics().values()
        if fitted.has(fabric.group) and not fabric.is_between_nodes and not fabric.like
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


def adapter_curve(kind: CollectiveKind, bandwidth_bytes_per_s: float, fitted: FittedConstants) -> CollectiveCurve:
    """Curve of adapters that nobody measured: as others', whose latency is ten times that of links within a node.

    The mean over adapters on which this kind was measured; else over those of earlier libraries; else as of links.

    Args:
        kind: of collective.
        bandwidth_bytes_per_s: specified, of a device.
        fitted: constants of the fabrics.
    """
    adapters = [fabric for fabric in _fabrics().values() if fabric.is_between_nodes and not fabric.like]
    library = CollectiveSoftware.LIBRARY
    if any(fitted.has(fabric.group_of(kind, library)) for fabric in adapters):
        mean = typical_constants(kind, library, fitted, adapters[0])
        is_doubling = adapters[0].grows_by_doubling(kind)
        return CollectiveCurve(
            bandwidth_bytes_per_s=mean["share"] * bandwidth_bytes_per_s,
            doubling_s=mean["doubling_s"] if is_doubling else 0.0,
            ramp_s=mean["ramp_s"],
            endpoint_share=0.0 if kind.is_pairwise else mean["endpoint_share"],
            start_s=mean["start_s"],
            hop_s=0.0 if is_doubling else mean["hop_s"],
        )
    known = [(fitted.group(fabric.group), fabric) for fabric in adapters if fitted.has(fabric.group)]
    if not known:
        return typical_curve(bandwidth_bytes_per_s, fitted)
    share = _mean([values["bandwidth_bytes_per_s"] / fabric.bandwidth_bytes_per_s for values, fabric in known])
    doubling, ramp = (_mean([values[name] for values, _ in known]) for name in ("doubling_s", "ramp_s"))
    return CollectiveCurve(min(1.0, share) * bandwidth_bytes_per_s, doubling, ramp)


@lru_cache(maxsize=256)
def typical_constants(
    kind: CollectiveKind, software: CollectiveSoftware, fitted: FittedConstants, fabric: Fabric
) -> Mapping[str, float]:
    """Constants of a pass on links nobody measured: geometric means over the fitted fabrics; priors where none is.

    Over links that are as these, through switches or a host's bridge and with as many protocols, as far as one of
    them was measured. Of hosts' bridges none is like another: theirs are over all links.

    Args:
        kind: of collective.
        software: that runs it.
        fitted: constants of the fabrics.
        fabric: whose constants are wanted.
    """
    every = [
        (other, fitted.group(other.group_of(kind, software)))
        for other in _fabrics().values()
        if other.is_between_nodes is fabric.is_between_nodes
        and not other.like
        and fitted.has(other.group_of(kind, software))
    ]
    ways = (fabric.shares_bridge, fabric.has_protocols)
    alike = [each for each in every if (each[0].shares_bridge, each[0].has_protocols) == ways]
    known = every if fabric.shares_bridge or not alike else alike
    if not known:
        return _PRIOR_CONSTANTS
    found = {
        name: _mean([values[name] for _, values in known if name in values] or [default])
        for name, default in _PRIOR_CONSTANTS.items()
    }
    # Of the rate of large groups: work at the ends and bandwidth were fitted together, and only their ratio is firm.
    rates = [
        values["bandwidth_bytes_per_s"] / fabric.bandwidth_bytes_per_s / (1.0 + 0.5 * values.get("endpoint_share", 0.0))
        for fabric, values in known
    ]
    ends = 0.0 if kind.is_pairwise else found["endpoint_share"]
    return MappingProxyType(found | {"share": min(1.0, _mean(rates)) * (1.0 + 0.5 * ends)})


def mean_constants(
    group: str, start: Mapping[str, float], fitted: FittedConstants, fabric: Fabric
) -> Mapping[str, float]:
    """Constants of a fabric's group; geometric means over the fabrics of its kind that have one; else ``start``.

    Args:
        group: name of the group with ``{}`` for the fabric's name.
        start: constants without any fit; ``share`` is of the specified bandwidth.
        fitted: constants of the fabrics.
        fabric: whose constants are wanted.
    """
    known = [
        (each, fitted.group(group.format(each.name)))
        for each in _fabrics().values()
        if each.is_between_nodes is fabric.is_between_nodes and fitted.has(group.format(each.name))
    ]
    own = [(each, values) for each, values in known if each.name == (fabric.like or fabric.name)]
    chosen = own or known
    rates = [(values.get("bandwidth_bytes_per_s", 0.0), each) for each, values in chosen]
    shares = [rate / each.bandwidth_bytes_per_s for rate, each in rates if rate]
    found = {
        name: _mean([values[name] for _, values in chosen if name in values] or [default])
        for name, default in start.items()
    }
    return MappingProxyType(found | ({"share": _mean(shares)} if shares else {}))


def _mean(values: list[float]) -> float:
    """Geometric mean; 0 if any is."""
    return math.exp(sum(math.log(value) for value in values) / len(values)) if all(values) else 0.0


@cache
def _fabrics() -> Mapping[str, Fabric]:
    text = resources.files("phaze_opt.hardware").joinpath("fabrics.toml").read_text(encoding="utf-8")
    tables = parse_toml(text, source="fabrics.toml").values
    return MappingProxyType({name: _FabricTable.model_validate(table).build(name) for name, table in tables.items()})
