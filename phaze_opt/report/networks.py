"""Networks as tables: levels and curves, times of all-reduces by size, and bandwidths before and after allocation."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from phaze_opt.estimate.chunk_schedule import schedule_chunks
from phaze_opt.estimate.collectives import collective_s
from phaze_opt.graph.operator import CollectiveKind
from phaze_opt.hardware.network import Chunking, MeasuredDimension, Network, NetworkDimension
from phaze_opt.objective.step.network_design import NetworkDesign
from phaze_opt.report.content import Column, TableContent
from phaze_opt.units import GIBI, GIGA, KIBI, MEBI, MICRO

SHOWN_BYTES = (
    KIBI,
    64 * KIBI,
    MEBI,
    16 * MEBI,
    256 * MEBI,
    GIBI,
    8 * GIBI,
)
"""Payloads of the table of times."""
_CHUNKS_NOTE = "level after level; fixed, themis: in 64 chunks through all levels, in one order or balanced"
_CURVE_NOTE = (
    "curve: bandwidth that collectives reach, latency of each doubling of the group and time over which bandwidth "
    "builds up; fitted where such links were measured, else the mean of those that were"
)


@dataclass(frozen=True, slots=True)
class AllReduceTimes:
    """Times of an all-reduce of one payload, s, by what it runs over and how."""

    payload_bytes: int
    seconds: tuple[tuple[str, float], ...]


def network_list(networks: Iterable[tuple[Network, str]]) -> TableContent:
    """Networks by name, with levels and sources."""
    rows = tuple((network.name, _level_words(network.dimensions), source) for network, source in networks)
    columns = (Column("network"), Column("levels, innermost first, GB/s"), Column("source"))
    return TableContent("Networks", columns, rows, "the outermost level grows to hold the cluster")


def level_table(network: Network, *, source: str) -> TableContent:
    """Levels of one network."""
    rows = tuple(_level_row(number, level) for number, level in enumerate(network.dimensions, start=1))
    has_curves = any(isinstance(level, MeasuredDimension) for level in network.dimensions)
    notes = ([source] if source else []) + ([_CURVE_NOTE] if has_curves else [])
    columns = (
        Column("level"),
        Column("topology"),
        Column("devices", is_number=True),
        Column("GB/s", is_number=True),
        Column("hop us", is_number=True),
        Column("curve GB/s", is_number=True),
        Column("doubling us", is_number=True),
        Column("ramp us", is_number=True),
    )
    return TableContent(f"Network {network.name}", columns, rows, "; ".join(notes))


def all_reduce_times(network: Network) -> tuple[AllReduceTimes, ...]:
    """All-reduces over the devices of the first level, the first two levels and so on, and over all in chunks.

    Measured levels run as one ring instead of in chunks, so networks that have some show none.
    """
    return tuple(AllReduceTimes(size, tuple(_times(network, size))) for size in SHOWN_BYTES)


def time_table(times: Sequence[AllReduceTimes]) -> TableContent:
    """Times by payload."""
    names = [name.removesuffix(" devices").removesuffix(" chunks") for name, _ in times[0].seconds]
    columns = (Column("payload"), *(Column(name, is_number=True) for name in names))
    rows = tuple((_bytes(row.payload_bytes), *(_time(seconds) for _, seconds in row.seconds)) for row in times)
    is_chunked = any(name.endswith(" chunks") for name, _ in times[0].seconds)
    return TableContent("All-reduce by number of devices", columns, rows, _CHUNKS_NOTE if is_chunked else "")


def design_table(design: NetworkDesign) -> TableContent:
    """Bandwidth of each level as given, split equally and allocated."""
    cases = (design.given, design.equal, design.best)
    rows = [
        (f"{number}: {level.size} {_words(level)}", *(_gb(case.network.dimensions[number - 1]) for case in cases))
        for number, level in enumerate(design.given.network.dimensions, start=1)
    ]
    rows.append(("collectives of a step", *(_time(case.seconds) for case in cases)))
    columns = (Column("level"), *(Column(name, is_number=True) for name in ("as given", "equal", "allocated")))
    return TableContent("Bandwidth of a device, GB/s", columns, tuple(rows), emphasised=frozenset({len(rows) - 1}))


def collective_table(design: NetworkDesign) -> TableContent:
    """Each collective of the step, as given and as allocated."""
    way = design.chunking
    pairs = zip(design.given.collectives, design.best.collectives, strict=True)
    rows = tuple(
        (
            before.name,
            " x ".join(str(dimension.size) for dimension in before.dimensions),
            _bytes(before.payload_bytes),
            f"{before.count:,.0f}",
            _time(before.seconds(way)),
            _time(after.seconds(way)),
        )
        for before, after in pairs
    )
    headings = ("group", "payload", "times a step", "as given", "allocated")
    columns = (Column("collective"), *(Column(name, is_number=True) for name in headings))
    return TableContent(f"Collectives of the stage with the most blocks, chunking {way.value}", columns, rows)


def design_sentence(design: NetworkDesign) -> str:
    """What the allocation gains, and what is proven of it."""
    best = design.best.seconds
    return (
        f"Allocated, the collectives take {_time(best)}: {design.equal.seconds / best:.2f} times faster than an equal "
        f"split and {design.given.seconds / best:.2f} times faster than the network's own proportions; no split moves "
        f"the bytes alone in less than {_time(design.allocation.bound_s)} (gap {100 * design.allocation.gap:.4f} %); "
        "the rest is latency, and whole chunks that fill the levels."
    )


def _times(network: Network, payload_bytes: int) -> Iterable[tuple[str, float]]:
    levels = network.dimensions
    for count in range(1, len(levels) + 1):
        group = tuple(level if number < count else replace(level, size=1) for number, level in enumerate(levels))
        size = math.prod(level.size for level in group)
        if count == 1 or levels[count - 1].size > 1:
            yield f"{size:,} devices", collective_s(CollectiveKind.ALL_REDUCE, payload_bytes, group)
    if sum(level.size > 1 for level in levels) > 1 and not network.is_measured:
        for chunking in (Chunking.FIXED, Chunking.THEMIS):
            schedule = schedule_chunks(CollectiveKind.ALL_REDUCE, payload_bytes, levels, chunking=chunking)
            yield f"all, {chunking.value} chunks", schedule.seconds


def _level_row(number: int, level: NetworkDimension) -> tuple[str, ...]:
    plain = (str(number), _words(level), f"{level.size:,}", _gb(level), f"{level.latency_s / MICRO:.3g}")
    if not isinstance(level, MeasuredDimension):
        return (*plain, "", "", "")
    curve = level.curve
    measured = f"{curve.bandwidth_bytes_per_s / GIGA:.4g}"
    return (*plain, measured, f"{curve.doubling_s / MICRO:.3g}", f"{curve.ramp_s / MICRO:.3g}")


def _level_words(levels: Sequence[NetworkDimension]) -> str:
    *inner, outer = levels
    words = [f"{level.size} {_words(level)} {_gb(level)}" for level in inner]
    return ", ".join([*words, f"{_words(outer)} {_gb(outer)}"])


def _words(level: NetworkDimension) -> str:
    return level.topology.value.replace("_", " ")


def _gb(level: NetworkDimension) -> str:
    return f"{level.bandwidth_bytes_per_s / GIGA:.4g}"


def _bytes(count: float) -> str:
    for unit, name in ((GIBI, "GiB"), (MEBI, "MiB"), (KIBI, "KiB")):
        if count >= unit:
            return f"{count / unit:.4g} {name}"
    return f"{count:.4g} B"


def _time(seconds: float) -> str:
    for unit, name in ((1.0, "s"), (1e-3, "ms")):
        if seconds >= unit:
            return f"{seconds / unit:.3f} {name}"
    return f"{seconds / MICRO:.1f} us"
