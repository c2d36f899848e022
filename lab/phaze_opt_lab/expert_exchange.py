"""Measured exchanges of tokens with experts, predicted by `phaze_opt_lab.estimate.expert_exchange`."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from types import MappingProxyType

import numpy as np

from phaze_opt.errors import InputError
from phaze_opt.hardware.device import element_bytes, path_of
from phaze_opt.hardware.fabrics import Fabric, find_fabric
from phaze_opt.hardware.fitted import FittedConstants
from phaze_opt.record.arrays import Floats
from phaze_opt.units import MICRO
from phaze_opt.validation.collectives import LEAST_ROWS
from phaze_opt.validation.family import BlockedRows, Family, FitParameter, Part, compile_blocks
from phaze_opt.validation.fit import fit_towards_starts
from phaze_opt.validation.measured_row import Row, read_rows
from phaze_opt_lab.estimate.expert_exchange import (
    ADAPTER_START,
    START,
    ExchangeKernels,
    ExchangeKind,
    ExpertExchange,
    adapter_curve,
    exchange_curve,
    exchange_s,
    group_of,
)

USUAL_UNITS = 20
"""Multiprocessors that DeepEP's kernels take unless told."""
USUAL_EXPERTS = 256


@dataclass(frozen=True, slots=True)
class ExchangeCase:
    """What rows with the same constants share; ``adapters`` is None where no node is left."""

    kind: ExchangeKind
    kernels: ExchangeKernels
    links: Fabric
    adapters: Fabric | None

    @property
    def told_of(self) -> Fabric:
        """The fabric whose constants its rows tell of."""
        return self.links if self.adapters is None else self.adapters


@dataclass(frozen=True, slots=True, eq=False)
class ExchangeBlock:
    """Rows that the same constants predict."""

    case: ExchangeCase
    exchanges: ExpertExchange[Floats]

    def seconds(self, fitted: FittedConstants) -> Floats:
        """Predicted times, shape (num_rows,), s."""
        case = self.case
        links = exchange_curve(case.links, *_ways(case), fitted)
        adapters = None if case.adapters is None else adapter_curve(case.adapters, *_ways(case), fitted)
        return exchange_s(case.kernels, self.exchanges, links, adapters)

    def explain(self, fitted: FittedConstants, index: int) -> tuple[Part, ...]:
        """What an exchange takes before its first byte, and the bytes."""
        start_s = exchange_curve(self.case.links, *_ways(self.case), fitted).start_s
        return Part("start", start_s), Part("tokens", float(self.seconds(fitted)[index]) - start_s)


def compile_exchanges(rows: Sequence[Row]) -> BlockedRows[ExchangeBlock]:
    """Rows by the constants that predict them; a row without a time is unscored."""
    return compile_blocks(
        rows,
        read=read_case,
        measured=lambda row: row.number("latency_us", math.nan) * MICRO,
        build=lambda cases, own: ExchangeBlock(cases[0], _exchanges(own)),
        key=lambda case: case,
    )


def _ways(case: ExchangeCase) -> tuple[ExchangeKind, ExchangeKernels]:
    return case.kind, case.kernels


def read_case(row: Row) -> ExchangeCase | str:
    """Which constants predict a row, or why there are none."""
    name = row.text("collective")
    if name not in list(ExchangeKind):
        return f"exchange {name} is not modelled; known are {', '.join(ExchangeKind)}"
    if not row.text("latency_us", ""):
        return "no time is given, and a rate alone does not say which bytes it counts; give latency_us"
    devices, nodes = row.integer("n_devices"), row.integer("n_nodes", 1)
    if devices < 2 or devices % nodes:
        return f"{devices} devices on {nodes} nodes are no group of equal nodes"
    path_of(row.text("dtype", "bf16"))
    device = row.find_device()
    hardware, words = row.text("hardware") if device is None else device.name, row.text("fabric", "")
    links = find_fabric(hardware, words)
    adapters = find_fabric(hardware, words, is_between_nodes=True)
    if links is None or nodes > 1 and devices > links.domain and adapters is None:
        return f"the links of {hardware} are unknown"
    is_across = nodes > 1 and devices > links.domain
    return ExchangeCase(ExchangeKind(name), kernels_of(row), links, adapters if is_across else None)


def kernels_of(row: Row) -> ExchangeKernels:
    """Which kernels a row timed: of low latency where its software, timing, source or note says so."""
    text = " ".join(row.text(column, "") for column in ("software", "timing", "source", "note")).lower()
    is_quick = "low latency" in text.replace("-", " ").replace("_", " ")
    return ExchangeKernels.LOW_LATENCY if is_quick else ExchangeKernels.NORMAL


def _exchanges(rows: Sequence[Row]) -> ExpertExchange[Floats]:
    """Rows as arrays."""
    table = np.array([_numbers(row) for row in rows])
    return ExpertExchange(**{each.name: table[:, at] for at, each in enumerate(fields(ExpertExchange))})


def _numbers(row: Row) -> tuple[float, ...]:
    """The fields of `ExpertExchange` in order."""
    return (
        row.number("tokens"),
        row.number("hidden"),
        element_bytes(path_of(row.text("dtype", "bf16"))),
        row.number("experts", USUAL_EXPERTS),
        row.number("experts_per_token", 1),
        row.number("n_devices"),
        row.number("n_nodes", 1),
        row.number("sms", USUAL_UNITS),
    )


def _rows_by_group(rows: Sequence[Row]) -> dict[str, tuple[ExchangeCase, list[Row]]]:
    """Rows by the group of constants that they tell of, those within nodes first; too few tell nothing."""
    found: dict[str, tuple[ExchangeCase, list[Row]]] = {}
    for index, case in read_rows(read_case, rows)[0].items():
        found.setdefault(group_of(case.told_of, *_ways(case)), (case, []))[1].append(rows[index])
    enough = {name: each for name, each in found.items() if len(each[1]) >= LEAST_ROWS}
    return dict(sorted(enough.items(), key=lambda item: (item[1][0].adapters is not None, item[0])))


def _parameters(rows: Sequence[Row]) -> tuple[FitParameter, ...]:
    groups = _rows_by_group(rows)
    return tuple(parameter for name in sorted(groups) for parameter in _of_case(groups[name][0], name))


def _fit(rows: Sequence[Row], start: FittedConstants) -> FittedConstants:
    """Group by group, links within a node before adapters, weakly pulled to common starts."""
    fitted = start
    for name, (case, own) in _rows_by_group(rows).items():
        fitted = fit_towards_starts(compile_exchanges(own), _of_case(case, name), fitted)
    return fitted


def _of_case(case: ExchangeCase, group: str) -> tuple[FitParameter, ...]:
    """Two constants of adapters, three or four of links."""
    specified = case.told_of.bandwidth_bytes_per_s
    meaning = "bandwidth of a device, one way, that exchanges with experts reach"
    if case.adapters is not None:
        rows = [
            ("doubling_s", "s", 1e-7, 1e-3, ADAPTER_START.doubling_s, "latency for each doubling of the nodes"),
            ("bandwidth_bytes_per_s", "bytes/s", 0.1, 4.0, ADAPTER_START.bandwidth_bytes_per_s, meaning),
        ]
    else:
        is_quick = case.kernels is ExchangeKernels.LOW_LATENCY
        unit = "the block of one expert" if is_quick else "one multiprocessor"
        rows = [
            ("start_s", "s", 1e-6, 1e-3, START.start_s, "an exchange without tokens"),
            ("bandwidth_bytes_per_s", "bytes/s", 0.05, 8.0, START.bandwidth_bytes_per_s, meaning),
            ("unit_bytes_per_s", "bytes/s", 1e9, 1e12, START.unit_bytes_per_s, f"rate at which {unit} moves data"),
        ]
        if not is_quick:
            rows.append(("token_s", "s", 1e-10, 1e-6, START.token_s, "counting and placing a token"))
    return tuple(
        # Bounds and start of bandwidths are shares of the specified one.
        FitParameter(group, name, unit, low * scale, high * scale, begin * scale, text, is_log=True)
        for name, unit, low, high, begin, text in rows
        for scale in (specified if name == "bandwidth_bytes_per_s" else 1.0,)
    )


def _label(row: Row) -> str:
    """Machine of a row that can be kept out."""
    try:
        case = read_case(row)
    except InputError:
        return ""
    return "" if isinstance(case, str) or case.adapters is not None else row.text("hardware")


EXPERT_EXCHANGE = Family(
    name="expert-exchange",
    datasets=("expert_exchange",),
    parameters=_parameters,
    compile=compile_exchanges,
    fit=_fit,
    regime=lambda row: f"{kernels_of(row)}{', across nodes' if row.integer('n_nodes', 1) > 1 else ''}",
    cell=lambda row: row.joined("collective", "tokens", "hidden", "experts", "experts_per_token", "n_nodes"),
    splits=MappingProxyType({"machine": _label}),
    scaled_by=("machine", "regime", "size"),
)
"""Dispatch and combination of tokens; tested on machines that nothing was fitted to."""
