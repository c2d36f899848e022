"""Measured collectives, predicted by the network model: three constants a fabric (docs/networks.md)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from phaze_opt.errors import InputError
from phaze_opt.estimate.collectives import AffineCost, collective_coefficients, collective_s, collective_seconds
from phaze_opt.graph.operator import CollectiveKind
from phaze_opt.hardware.device_catalogue import find_device
from phaze_opt.hardware.fabrics import Fabric, find_fabric
from phaze_opt.hardware.fitted import FittedConstants
from phaze_opt.hardware.network import MeasuredDimension, Topology
from phaze_opt.units import KIBI, MEBI, MICRO
from phaze_opt.validation.family import Family, FitParameter, Part
from phaze_opt.validation.fit import fit_towards_starts
from phaze_opt.validation.measured_row import Row, read_rows

Floats = NDArray[np.float64]
LATENCY_UP_TO_BYTES = 256 * KIBI
RAMP_UP_TO_BYTES = 64 * MEBI
_NO_LATENCY_S = 0.0
"""Curves carry the latency; the links' own is not used."""


@dataclass(frozen=True, slots=True)
class CollectiveCase:
    """What rows with one curve share: the collective, the group's fabrics and its sizes in them, innermost first."""

    kind: CollectiveKind
    levels: tuple[tuple[Fabric, int], ...]

    def dimensions(self, fitted: FittedConstants) -> tuple[MeasuredDimension, ...]:
        """The group on the network model."""
        return tuple(
            MeasuredDimension(
                Topology.SWITCH, size, fabric.bandwidth_bytes_per_s, _NO_LATENCY_S, curve=fabric.curve(fitted)
            )
            for fabric, size in self.levels
        )


class CompiledCollectives:
    """Rows grouped by the curve they lie on.

    Attributes:
        measured_s: measured time of every row, shape (num_rows,), s.
        unscored: why a row is not predicted, by its index.
    """

    def __init__(self, rows: Sequence[Row]) -> None:
        """Read the rows; those of machines with unknown links are unscored.

        Raises:
            InputError: a malformed value, by file, line and column.
        """
        self.measured_s = np.array([row.number("latency_us") * MICRO for row in rows])
        self._bytes = np.array([row.number("bytes") for row in rows])
        self._cases, self.unscored = read_rows(read_case, rows)
        members: dict[CollectiveCase, list[int]] = {}
        for index, case in self._cases.items():
            members.setdefault(case, []).append(index)
        self._members = {case: np.array(indices, np.intp) for case, indices in members.items()}

    def seconds(self, fitted: FittedConstants) -> Floats:
        """Predicted time of every row, s; nan where unscored."""
        predicted = np.full(len(self._bytes), np.nan)
        for case, indices in self._members.items():
            predicted[indices] = collective_seconds(case.kind, self._bytes[indices], case.dimensions(fitted))
        return predicted

    def explain(self, fitted: FittedConstants, index: int) -> tuple[Part, ...]:
        """Latency, transfer at full bandwidth and what is lost before bandwidth is reached."""
        case = self._cases[index]
        dimensions = case.dimensions(fitted)
        payload = float(self._bytes[index])
        cost: AffineCost = collective_coefficients(case.kind, dimensions)
        transfer_s = payload * cost.s_per_byte
        whole_s = collective_s(case.kind, payload, dimensions)
        latency_s = cost.latency_s if case.kind is not CollectiveKind.ALL_TO_ALL else _NO_LATENCY_S
        parts = [Part("latency", latency_s), Part("transfer", transfer_s)]
        return (*parts, Part("bandwidth ramp", whole_s - latency_s - transfer_s))


def read_case(row: Row) -> CollectiveCase | str:
    """Which curve a row lies on, or why there is none."""
    device, words = row.find_device(), row.text("fabric", "")
    hardware = row.text("hardware") if device is None else device.name
    if device is not None and find_device(device.name) is not device:
        return f"the links of {hardware} are unknown: collectives are fitted on links of the package's machines"
    devices = row.integer("n_devices")
    nodes = row.integer("n_nodes", 1)
    name = row.text("collective", CollectiveKind.ALL_REDUCE.value)
    kind = _KINDS.get(_letters(name))
    if kind is None:
        return f"collective {name} is not modelled"
    if nodes < 1 or devices < 2 or devices % nodes:
        return f"{devices} devices on {nodes} nodes are no group of equal nodes"
    inner = find_fabric(hardware, words)
    outer = find_fabric(hardware, words, is_between_nodes=True)
    levels = [(inner, devices // nodes), (outer, nodes)]
    missing = [size for fabric, size in levels if fabric is None and size > 1]
    if missing:
        return f"the links of {hardware} are unknown"
    known = tuple((fabric, size) for fabric, size in levels if fabric is not None and size > 1)
    return CollectiveCase(kind, known)


def _letters(name: str) -> str:
    """A collective's name without marks between words: ``AllReduce``, ``all-reduce`` and ``all_reduce`` are one."""
    return "".join(letter for letter in name.lower() if letter.isalpha())


_KINDS = MappingProxyType({_letters(kind.value): kind for kind in CollectiveKind})


def _rows_by_fabric(rows: Sequence[Row]) -> dict[Fabric, list[Row]]:
    """Rows by the fabric that they tell of: the adapters, of rows across nodes, whose nodes' links hardly show."""
    found: dict[Fabric, list[Row]] = {}
    for index, case in read_rows(read_case, rows)[0].items():
        found.setdefault(case.levels[-1][0], []).append(rows[index])
    return found


def _parameters(rows: Sequence[Row]) -> tuple[FitParameter, ...]:
    """Bandwidth, latency of a doubling and ramp time of every fabric in the rows."""
    fabrics = sorted(_rows_by_fabric(rows), key=lambda fabric: fabric.name)
    return tuple(parameter for fabric in fabrics for parameter in _of_fabric(fabric))


def _fit(rows: Sequence[Row], start: FittedConstants) -> FittedConstants:
    """Fabric by fabric, links within a node before the adapters between nodes: no row has two to fit.

    Weakly pulled to the specified bandwidth and to usual latencies: two fabrics have ten rows or fewer.
    """
    own = _rows_by_fabric(rows)
    fitted = start
    for fabric in sorted(own, key=lambda fabric: (fabric.is_between_nodes, fabric.name)):
        fitted = fit_towards_starts(CompiledCollectives(own[fabric]), _of_fabric(fabric), fitted)
    return fitted


def _regime(row: Row) -> str:
    """Latency up to 256 KiB, bandwidth beyond 64 MiB, ramp between; across nodes apart."""
    size = row.number("bytes")
    part = "latency" if size <= LATENCY_UP_TO_BYTES else "ramp" if size <= RAMP_UP_TO_BYTES else "bandwidth"
    return f"{part}, across nodes" if row.integer("n_nodes", 1) > 1 else part


def _cell(row: Row) -> str:
    """Machine, fabric and power of two of the size: every number of devices at a size is kept out together."""
    return f"{row.joined('hardware', 'fabric')}|{int(math.log2(max(1.0, row.number('bytes'))))}"


def _fabric_of(row: Row) -> str:
    try:
        case = read_case(row)
    except InputError:
        return ""
    return "" if isinstance(case, str) else " and ".join(fabric.name for fabric, _ in case.levels)


def _of_fabric(fabric: Fabric) -> tuple[FitParameter, ...]:
    specified = fabric.bandwidth_bytes_per_s
    # Reduction in the switch halves the traffic, which shows as up to twice the links' bandwidth.
    return (
        FitParameter(
            fabric.group,
            "bandwidth_bytes_per_s",
            "bytes/s",
            0.2 * specified,
            2.0 * specified,
            specified,
            "bandwidth of a device on large payloads, one way, in ring-equivalent traffic",
            is_log=True,
        ),
        FitParameter(
            fabric.group, "doubling_s", "s", 1e-7, 1e-3, 7e-6, "latency of a pass for each doubling of the group", True
        ),
        FitParameter(fabric.group, "ramp_s", "s", 1e-8, 1e-2, 2e-5, "time scale on which bandwidth builds up", True),
    )


COLLECTIVES = Family(
    name="collectives",
    datasets=("collective_all_reduce",),
    parameters=_parameters,
    compile=CompiledCollectives,
    fit=_fit,
    regime=_regime,
    cell=_cell,
    splits=MappingProxyType(
        {"configuration": lambda row: f"{_fabric_of(row)}, {row.integer('n_devices')} devices", "fabric": _fabric_of}
    ),
)
"""All-reduces (and other collectives) by size, number of devices and fabric; tested on configurations (machine, fabric,
devices) and fabrics that no constant was fitted to."""
