"""Networks as tables: levels and curves, times of all-reduces by size, and bandwidths before and after allocation."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from phaze_opt.cost.network_design import NetworkDesign
from phaze_opt.estimate.bandwidth_allocation import GroupCollective
from phaze_opt.estimate.chunk_schedule import schedule_chunks
from phaze_opt.estimate.collectives import collective_coefficients, collective_s
from phaze_opt.graph.operator import CollectiveKind
from phaze_opt.hardware.network import Chunking, MeasuredDimension, Network, NetworkDimension
from phaze_opt.report.table import Column, Field, Fields, TableContent, number, numbers, table_of, words
from phaze_opt.units import GIBI, GIGA, KIBI, MEBI, MICRO

SHOWN_BYTES = (KIBI, 64 * KIBI, MEBI, 16 * MEBI, 256 * MEBI, GIBI, 8 * GIBI)
"""Payloads of the table of times."""
_CHUNKS_NOTE = "level after level; fixed, themis: in 64 chunks through all levels, in one order or balanced"
_CURVE_NOTE = (
    "by kind of collective: bandwidth that the level's devices reach on large payloads, as links count it, and time of "
    "an empty one; fitted where such links were measured, else the mean of those that were"
)
_SHOWN_KINDS = (CollectiveKind.ALL_REDUCE, CollectiveKind.ALL_GATHER, CollectiveKind.ALL_TO_ALL)


@dataclass(frozen=True, slots=True)
class AllReduceTimes:
    """Times of an all-reduce of one payload, s, by what it runs over and how."""

    payload_bytes: int
    seconds: tuple[tuple[str, float], ...]


def network_list(networks: Iterable[tuple[Network, str]]) -> TableContent:
    """Networks by name, with levels and sources."""
    fields: Fields[tuple[Network, str]] = (
        words("network", lambda item: item[0].name),
        words("levels, innermost first, GB/s", lambda item: _level_words(item[0].dimensions)),
        words("source", lambda item: item[1]),
    )
    return table_of("Networks", fields, networks, "the outermost level grows to hold the cluster")


def list_sentence(networks: Sequence[tuple[Network, str]]) -> str:
    """How many there are, how many of them were measured, and how one is named."""
    measured = sum(network.is_measured for network, _ in networks)
    return (
        f"{len(networks)} networks go by a name, {measured} of them with measured curves; a machine comes with its "
        "own, --network takes another or a file, and `phaze-opt network show NAME` has its rates."
    )


def reach_sentence(network: Network, times: Sequence[AllReduceTimes]) -> str:
    """What an all-reduce of a GiB takes on the smallest and on the largest group, level after level."""
    row = next(each for each in times if each.payload_bytes == GIBI)
    groups = [(name, seconds) for name, seconds in row.seconds if name.endswith(" devices")]
    parts = [
        f"{_time(seconds)} over {name} ({GIBI / seconds / GIGA:,.3g} GB/s of payload)"
        for name, seconds in dict.fromkeys((groups[0], groups[-1]))
    ]
    return f"An all-reduce of 1 GiB on {network.name} takes {' and '.join(parts)}."


def level_table(network: Network, *, source: str) -> TableContent:
    """Levels of one network."""
    fields: Fields[tuple[int, NetworkDimension]] = (
        words("level", lambda item: str(item[0])),
        words("topology", lambda item: _words(item[1])),
        number("devices", lambda item: f"{item[1].size:,}"),
        number("GB/s", lambda item: _gb(item[1])),
        number("hop us", lambda item: f"{item[1].latency_s / MICRO:.3g}"),
    )
    return table_of(f"Network {network.name}", fields, enumerate(network.dimensions, start=1), source)


def curve_tables(network: Network) -> tuple[TableContent, ...]:
    """What measured levels reach by kind of collective; nothing of a network without any."""
    if not any(isinstance(level, MeasuredDimension) for level in network.dimensions):
        return ()
    fields: Fields[tuple[int, NetworkDimension]] = (
        words("level", lambda item: str(item[0])),
        *(_curve_field(kind) for kind in _SHOWN_KINDS),
    )
    return (table_of("Measured, GB/s and us", fields, enumerate(network.dimensions, start=1), _CURVE_NOTE),)


def _curve_field(kind: CollectiveKind) -> Field[tuple[int, NetworkDimension]]:
    """Bandwidth and latency of a kind of collective on levels that have a curve; empty for others."""
    name = kind.value.replace("_", "-")
    return number(name, lambda item: _reached(kind, item[1]))


def _reached(kind: CollectiveKind, level: NetworkDimension) -> str:
    if not isinstance(level, MeasuredDimension):
        return ""
    # A level that grows with the cluster is shown for two of its devices.
    cost = collective_coefficients(kind, [replace(level, size=max(2, level.size))])
    passes = 2.0 if kind is CollectiveKind.ALL_REDUCE else 1.0
    size = max(2, level.size)
    rate = passes * (size - 1) / size / cost.s_per_byte
    return f"{rate / GIGA:.3g}, {cost.latency_s / MICRO:.3g}"


def all_reduce_times(network: Network) -> tuple[AllReduceTimes, ...]:
    """All-reduces over the devices of the first level, the first two levels and so on, and over all in chunks.

    Measured levels run as one ring instead of in chunks, so networks that have some show none.
    """
    return tuple(AllReduceTimes(size, tuple(_times(network, size))) for size in SHOWN_BYTES)


def time_table(times: Sequence[AllReduceTimes]) -> TableContent:
    """Times by payload."""
    names = [name.removesuffix(" devices").removesuffix(" chunks") for name, _ in times[0].seconds]
    columns = (Column("payload"), *numbers(*names))
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
    columns = (Column("level"), *numbers("as given", "equal", "allocated"))
    return TableContent("Bandwidth of a device, GB/s", columns, tuple(rows), emphasised=frozenset({len(rows) - 1}))


def collective_table(design: NetworkDesign) -> TableContent:
    """Each collective of the step, as given and as allocated."""
    way = design.chunking
    fields: Fields[tuple[GroupCollective, GroupCollective]] = (
        words("collective", lambda pair: pair[0].name),
        number("group", lambda pair: " x ".join(str(dimension.size) for dimension in pair[0].dimensions)),
        number("payload", lambda pair: _bytes(pair[0].payload_bytes)),
        number("times a step", lambda pair: f"{pair[0].count:,.0f}"),
        number("as given", lambda pair: _time(pair[0].seconds(way))),
        number("allocated", lambda pair: _time(pair[1].seconds(way))),
    )
    pairs = zip(design.given.collectives, design.best.collectives, strict=True)
    return table_of(f"Collectives of the stage with the most blocks, chunking {way.value}", fields, pairs)


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
