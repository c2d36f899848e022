"""Measured collectives, predicted by the network model: few constants a fabric and kind (docs/networks.md)."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np

from phaze_opt.errors import InputError
from phaze_opt.estimate.collectives import collective_coefficients, collective_s, collective_seconds, group_dimensions
from phaze_opt.hardware.device import Device
from phaze_opt.hardware.device_catalogue import find_device
from phaze_opt.hardware.fabrics import CURVE_PRIOR, CollectiveSoftware, Fabric, find_fabric, load_fabric
from phaze_opt.hardware.fitted import FittedConstants
from phaze_opt.hardware.network import CollectiveKind, MeasuredDimension, NetworkDimension, Topology
from phaze_opt.hardware.networks import load_network
from phaze_opt.hardware.spreads import BETWEEN_NODES, octave
from phaze_opt.record.arrays import Floats
from phaze_opt.units import KIBI, MEBI
from phaze_opt.validation.collective_parameters import (
    SERVED,
    earlier_parameters,
    has_recent_kernels,
    kind_parameters,
    protocol_parameters,
    recent_parameter,
    reduction_parameter,
    served_all_reduce,
    served_parameters,
)
from phaze_opt.validation.family import BlockedRows, Family, FitParameter, Part, compile_blocks
from phaze_opt.validation.fit import fit_towards_starts
from phaze_opt.validation.measured_row import Row, latency_s, read_rows

LATENCY_UP_TO_BYTES = 256 * KIBI
RAMP_UP_TO_BYTES = 64 * MEBI
_NO_LATENCY_S = 0.0
"""Curves carry the latency; the links' own is not used."""
EARLIER_SET = "collective_all_reduce"
LEAST_ROWS = 8
"""To which a group of constants is fitted."""


@dataclass(frozen=True, slots=True)
class CollectiveCase:
    """What rows with one curve share.

    Attributes:
        kind: of collective.
        software: that runs it.
        levels: the group's fabrics and its sizes in them, innermost first; empty on a network of a user's own.
        network: name or file of a user's network.
        devices, nodes: size of the group on it, and the nodes that it spans.
        is_recent: of a serving framework, whether its kernels are those that wait less.
        memory_bytes_per_s: bandwidth of a device's memory; 0 where it is unknown.
    """

    kind: CollectiveKind
    software: CollectiveSoftware
    levels: tuple[tuple[Fabric, int], ...]
    network: str = ""
    devices: int = 0
    nodes: int = 1
    is_recent: bool = False
    memory_bytes_per_s: float = 0.0

    @property
    def is_served(self) -> bool:
        """Whether a serving framework runs it."""
        return self.software in SERVED

    def seconds(self, payload_bytes: Floats, fitted: FittedConstants) -> Floats:
        """Time of payloads, same shape, s."""
        library_s = collective_seconds(self.kind, payload_bytes, self.dimensions(fitted))
        if not self.is_served:
            return library_s
        ((fabric, size),) = self.levels
        served = served_all_reduce(
            fabric,
            fitted,
            is_launched=self.software is CollectiveSoftware.EAGER,
            is_recent=self.is_recent,
            memory_bytes_per_s=self.memory_bytes_per_s,
        )
        return served.seconds(payload_bytes, size, library_s)

    def dimensions(self, fitted: FittedConstants) -> tuple[NetworkDimension, ...]:
        """The group on the network model, as the library runs it beside a framework's kernels."""
        if self.network:
            return self._on_network(fitted)
        software = CollectiveSoftware.LIBRARY if self.is_served else self.software
        return tuple(
            MeasuredDimension(
                Topology.SWITCH,
                size,
                fabric.bandwidth_bytes_per_s,
                _NO_LATENCY_S,
                curve=fabric.kind_curve(self.kind, software, fitted),
            )
            for fabric, size in self.levels
        )

    @property
    def shares_protocols(self) -> bool:
        """Whether its rows tell of protocols, which all fabrics share: rings of libraries on one level within nodes."""
        is_library = not self.is_served and self.software is not CollectiveSoftware.EARLIER
        return is_library and len(self.levels) == 1 and self.levels[0][0].runs_protocols(self.kind)

    @property
    def group(self) -> str:
        """Group of constants that its rows tell of: the adapters', across nodes, whose nodes' links hardly show."""
        if not self.levels:
            return ""
        fabric = self.levels[-1][0]
        is_earlier = self.software is CollectiveSoftware.EARLIER
        return fabric.group if is_earlier else fabric.group_of(self.kind, self.software)

    def _on_network(self, fitted: FittedConstants) -> tuple[NetworkDimension, ...]:
        network = load_network(self.network, num_devices=self.devices, fitted=fitted)
        island = network.dimensions[0].size
        inside = self.devices // self.nodes
        if self.nodes > 1 and inside < island:
            # Some devices of every node: each node's first ones.
            inner, *_, outer = network.dimensions
            return _sized(inner, inside), _sized(outer, self.nodes)
        return group_dimensions(network, size=self.devices, stride=1)


@dataclass(frozen=True, slots=True, eq=False)
class CollectiveBlock:
    """Payloads, shape (num_rows,), that lie on one curve."""

    case: CollectiveCase
    payload_bytes: Floats

    def seconds(self, fitted: FittedConstants) -> Floats:
        """Predicted times, shape (num_rows,), s."""
        return self.case.seconds(self.payload_bytes, fitted)

    def explain(self, fitted: FittedConstants, index: int) -> tuple[Part, ...]:
        """Latency, transfer at full bandwidth and what is lost before bandwidth is reached; of frameworks the whole."""
        case, payload = self.case, float(self.payload_bytes[index])
        if case.is_served:
            return (Part("all-reduce of a framework", float(case.seconds(np.array([payload]), fitted)[0])),)
        dimensions = case.dimensions(fitted)
        cost = collective_coefficients(case.kind, dimensions)
        transfer_s = payload * cost.s_per_byte
        ramp_s = collective_s(case.kind, payload, dimensions) - cost.latency_s - transfer_s
        return Part("latency", cost.latency_s), Part("transfer", transfer_s), Part("bandwidth ramp", ramp_s)


def compile_collectives(rows: Sequence[Row]) -> BlockedRows[CollectiveBlock]:
    """Rows by the curve they lie on; those of machines with unknown links are unscored."""
    return compile_blocks(
        rows,
        read=read_case,
        measured=latency_s,
        build=lambda cases, own: CollectiveBlock(cases[0], np.array([row.number("bytes") for row in own])),
        key=lambda case: case,
    )


def read_case(row: Row) -> CollectiveCase | str:
    """Which curve a row lies on, or why there is none."""
    device = row.find_device()
    devices, nodes = row.integer("n_devices"), row.integer("n_nodes", 1)
    name = row.text("collective", CollectiveKind.ALL_REDUCE.value)
    kind = _KINDS.get(_letters(name))
    if kind is None:
        return f"collective {name} is not modelled"
    if nodes < 1 or devices < 2 or devices % nodes:
        return f"{devices} devices on {nodes} nodes are no group of equal nodes"
    hardware, words = row.text("hardware") if device is None else device.name, row.text("fabric", "")
    inner = find_fabric(hardware, words)
    if device is not None and find_device(device.name) is not device:
        is_rack = inner is not None and devices <= inner.domain
        return _case_on_network(kind, device, devices, 1 if is_rack else nodes)
    if inner is not None and devices <= inner.domain:
        return _as_it_is_run(row, CollectiveCase(kind, software_of(row), ((inner, devices),)), device)
    outer = find_fabric(hardware, words, is_between_nodes=True)
    levels = [(inner, devices // nodes), (outer, nodes)]
    missing = [size for fabric, size in levels if fabric is None and size > 1]
    if missing:
        return f"the links of {hardware} are unknown"
    known = tuple((fabric, size) for fabric, size in levels if fabric is not None and size > 1)
    return _as_it_is_run(row, CollectiveCase(kind, software_of(row), known), device)


def _as_it_is_run(row: Row, case: CollectiveCase, device: Device | None) -> CollectiveCase:
    """The case with what frameworks' kernels depend on: all-reduces of one level; else they run the library's."""
    if not case.is_served:
        return case
    if case.kind is not CollectiveKind.ALL_REDUCE or len(case.levels) > 1:
        return replace(case, software=CollectiveSoftware.LIBRARY)
    memory = 0.0 if device is None else device.hbm_bandwidth_bytes_per_s
    return replace(case, is_recent=has_recent_kernels(_text(row)), memory_bytes_per_s=memory)


def _case_on_network(kind: CollectiveKind, device: Device, devices: int, nodes: int) -> CollectiveCase | str:
    """A group of a user's own machine, on the network that its file names."""
    if not device.network:
        return f"the machine file of {device.name} names no network; add network, a name or a file beside it"
    return CollectiveCase(kind, CollectiveSoftware.LIBRARY, (), device.network, devices, nodes)


def software_of(row: Row) -> CollectiveSoftware:
    """Whose collectives a row timed, by what its software, timing, source and note say; a library's own tests else."""
    if row.dataset == EARLIER_SET:
        return CollectiveSoftware.EARLIER
    text = _text(row)
    return next((software for word, software in _SOFTWARE_WORDS if word in text), CollectiveSoftware.LIBRARY)


def _text(row: Row) -> str:
    """What a row says of its software, in lower case."""
    return " ".join(row.text(column, "") for column in ("software", "timing", "source", "note")).lower()


_SOFTWARE_WORDS = (
    ("eager", CollectiveSoftware.EAGER),
    ("custom", CollectiveSoftware.GRAPH),
    ("xla", CollectiveSoftware.XLA),
    ("torch", CollectiveSoftware.EARLIER),
    ("host", CollectiveSoftware.EARLIER),
)
"""The first word that stands there decides."""


def _sized(level: NetworkDimension, size: int) -> NetworkDimension:
    return replace(level, size=size)


def _letters(name: str) -> str:
    """A collective's name without marks between words: ``AllReduce``, ``all-reduce`` and ``all_reduce`` are one."""
    return "".join(letter for letter in name.lower() if letter.isalpha())


_KINDS = MappingProxyType({_letters(kind.value): kind for kind in CollectiveKind})


def _rows_by_group(rows: Sequence[Row]) -> dict[str, tuple[CollectiveCase, list[Row]]]:
    """Rows by the group of constants that they tell of, those within nodes first; too few tell nothing."""
    found: dict[str, tuple[CollectiveCase, list[Row]]] = {}
    for index, case in read_rows(read_case, rows)[0].items():
        if case.group:
            found.setdefault(case.group, (case, []))[1].append(rows[index])
    enough = {name: each for name, each in found.items() if len(each[1]) >= LEAST_ROWS}
    return dict(sorted(enough.items(), key=lambda item: (item[1][0].levels[-1][0].is_between_nodes, item[0])))


def _parameters(rows: Sequence[Row]) -> tuple[FitParameter, ...]:
    """Constants of every fabric, kind and software in the rows, and those that they share."""
    groups = _rows_by_group(rows)
    own = [parameter for name in sorted(groups) for parameter in _of_case(*groups[name])]
    recent = [recent_parameter(software) for software in SERVED if _recent_rows(software, rows)]
    return (*own, *_shared(groups, _sharing(groups)), *recent)


def _fit(rows: Sequence[Row], start: FittedConstants) -> FittedConstants:
    """Links within a node before the adapters between nodes: no row has two to fit.

    Weakly pulled to the specified bandwidth and to usual latencies: some groups have few rows.
    """
    fitted = start
    groups = _rows_by_group(rows)
    sharing = _sharing(groups)
    # All groups that share protocols at once.
    together = [row for name in sharing for row in groups[name][1]]
    ends = np.cumsum([len(groups[name][1]) for name in sharing])
    rows_of = {name: range(end - len(groups[name][1]), end) for name, end in zip(sharing, ends, strict=True)}
    parameters = [each for name in sharing for each in _of_case(*groups[name])] + _shared(groups, sharing)
    fitted = fit_towards_starts(compile_collectives(together), parameters, fitted, rows_of=rows_of)
    for name, (case, own) in groups.items():
        if not case.is_served and name not in sharing:
            fitted = fit_towards_starts(compile_collectives(own), _of_case(case, own), fitted)
    # Frameworks' kernels of all fabrics at once, as recent ones have a constant in common.
    for software in SERVED:
        theirs = [each for each in groups.values() if each[0].software is software]
        own = [row for _, rows_of_group in theirs for row in rows_of_group]
        parameters = [parameter for each in theirs for parameter in _of_case(*each)]
        common = [recent_parameter(software)] if _recent_rows(software, rows) else []
        fitted = fit_towards_starts(compile_collectives(own), parameters + common, fitted)
    return fitted


_Groups = Mapping[str, tuple[CollectiveCase, Sequence[Row]]]


def _sharing(groups: _Groups) -> list[str]:
    """Names of the groups that share the constants of protocols; none if they are one fabric's, which tells nothing."""
    found = [name for name, (case, _) in groups.items() if case.shares_protocols]
    return found if len({groups[name][0].levels[0][0].group for name in found}) > 1 else []


def _shared(groups: _Groups, members: Sequence[str]) -> list[FitParameter]:
    """Constants of protocols, and where switches reduce across nodes those that all software has in common."""
    racks: dict[str, int] = {}
    for case, rows in (groups[name] for name in members):
        fabric = case.levels[0][0]
        if case.kind is CollectiveKind.ALL_REDUCE and fabric.domain:
            many = [row for row in rows if row.integer("n_devices") > CURVE_PRIOR.most_hops]
            racks[fabric.reduction_group] = racks.get(fabric.reduction_group, 0) + len(many)
    enough = sorted(name for name, count in racks.items() if count >= LEAST_ROWS)
    return (protocol_parameters() if members else []) + [reduction_parameter(name) for name in enough]


def _recent_rows(software: CollectiveSoftware, rows: Sequence[Row]) -> list[Row]:
    """Rows of frameworks' recent kernels; none where they are too few."""
    found = [row for row in rows if _is_recent(row, software)]
    return found if len(found) >= LEAST_ROWS else []


def _is_recent(row: Row, software: CollectiveSoftware) -> bool:
    case = read_case(row)
    return not isinstance(case, str) and case.software is software and case.is_recent


def _regime(row: Row) -> str:
    """Latency up to 256 KiB, bandwidth beyond 64 MiB, ramp between; across nodes and by software apart.

    XLA's and frameworks' collectives scatter twice as much as a library's own tests, whose ranges they would widen.
    """
    size = row.number("bytes")
    part = "latency" if size <= LATENCY_UP_TO_BYTES else "ramp" if size <= RAMP_UP_TO_BYTES else "bandwidth"
    part = f"{part}, across nodes" if row.integer("n_nodes", 1) > 1 else part
    software = software_of(row)
    return part if software in _PLAIN else f"{part}, {software.value}"


_PLAIN = (CollectiveSoftware.LIBRARY, CollectiveSoftware.EARLIER)
"""Software that a regime does not name."""


def _apart(row: Row) -> str:
    """Ranges of collectives between nodes: three sources tell of adapters, which differ more than sizes do."""
    case = read_case(row)
    if isinstance(case, str):
        return ""
    crosses = case.levels[-1][0].is_between_nodes if case.levels else case.nodes > 1
    return BETWEEN_NODES if crosses else ""


def _cell(row: Row) -> str:
    """Machine, fabric and power of two of the size: every number of devices at a size is kept out together."""
    return f"{row.joined('hardware', 'fabric')}|{int(math.log2(max(1.0, row.number('bytes'))))}"


def _fabric_of(row: Row) -> str:
    try:
        case = read_case(row)
    except InputError:
        return ""
    return "" if isinstance(case, str) else " and ".join(fabric.name for fabric, _ in case.levels)


def _of_case(case: CollectiveCase, rows: Sequence[Row]) -> tuple[FitParameter, ...]:
    """Constants of the group of a case and of the rows that tell of it."""
    fabric = case.levels[-1][0]
    own = load_fabric(fabric.like) if fabric.like else fabric
    if case.software is CollectiveSoftware.EARLIER:
        return earlier_parameters(own)
    if case.is_served:
        return served_parameters(own, case.group, case.software)
    is_told = any(row.number("bytes") <= LATENCY_UP_TO_BYTES for row in rows)
    return kind_parameters(own, case.kind, case.group, is_latency_told=is_told)


SCALED_BY = ("machine", "regime, bytes", "regime, nodes", "machine, regime", "kind, bytes", "machine, devices")
"""What errors of collectives differ by; a regime knows the software."""


def _facts(row: Row) -> Mapping[str, str]:
    """Kind, octave of the payload and size of the group."""
    kind = _letters(row.text("collective", CollectiveKind.ALL_REDUCE.value))
    sizes = {"devices": str(row.integer("n_devices")), "nodes": str(row.integer("n_nodes", 1))}
    return {"kind": kind, "bytes": octave(max(1.0, row.number("bytes"))), **sizes}


COLLECTIVES = Family(
    name="collectives",
    datasets=(EARLIER_SET,),
    parameters=_parameters,
    compile=compile_collectives,
    fit=_fit,
    regime=_regime,
    cell=_cell,
    splits=MappingProxyType(
        {"configuration": lambda row: f"{_fabric_of(row)}, {row.integer('n_devices')} devices", "fabric": _fabric_of}
    ),
    apart=_apart,
    facts=_facts,
    scaled_by=SCALED_BY,
)
"""All-reduces (and other collectives) by size, number of devices and fabric; tested on configurations (machine, fabric,
devices) and fabrics that no constant was fitted to."""


def _machine(row: Row) -> str:
    """Machine whose library's collectives a row timed; what others run is fitted, never kept out."""
    if software_of(row) is not CollectiveSoftware.LIBRARY:
        return ""
    device = row.find_device()
    return row.text("hardware") if device is None else device.name


COLLECTIVE_KINDS = Family(
    name="collective-kinds",
    datasets=("collective_kinds",),
    parameters=_parameters,
    compile=compile_collectives,
    fit=_fit,
    regime=_regime,
    cell=_cell,
    splits=MappingProxyType({"machine": _machine}),
    apart=_apart,
    facts=_facts,
    scaled_by=SCALED_BY,
)
"""Collectives of every kind on modern machines, by libraries, XLA and kernels of serving frameworks."""
