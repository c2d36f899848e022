"""Constants of collectives that can be fitted: of libraries by fabric and kind, and of serving frameworks' kernels."""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from types import MappingProxyType

from phaze_opt.estimate.collective_curves import ServedAllReduce
from phaze_opt.hardware.fabrics import (
    CURVE_PRIOR,
    GROUP_PREFIX,
    PROTOCOL_GROUP,
    PROTOCOL_PRIOR,
    CollectiveSoftware,
    Fabric,
    mean_constants,
)
from phaze_opt.hardware.fitted import FittedConstants
from phaze_opt.hardware.network import CollectiveKind
from phaze_opt.validation.family import FitParameter

SERVED = (CollectiveSoftware.GRAPH, CollectiveSoftware.EAGER)
"""What serving frameworks run: their own kernels within a node, and the library's where those would be slower."""
_RELEASE = re.compile(r"sglang\W*v?(\d+)\.(\d+)\.(\d+)")
_RECENT_SGLANG = (0, 5, 14)
_ALWAYS_RECENT = re.compile(r"trt\W*llm|tensorrt\W*llm")


def has_recent_kernels(text: str) -> bool:
    """Whether kernels are those that wait less: TensorRT-LLM's, and SGLang's from 0.5.14 on.

    Args:
        text: what a row says of its software, in lower case.
    """
    found = _RELEASE.search(text)
    is_recent = found is not None and tuple(map(int, found.groups())) >= _RECENT_SGLANG
    return is_recent or _ALWAYS_RECENT.search(text) is not None


@dataclass(frozen=True, slots=True)
class _Prior:
    """Constants before anything was fitted; bandwidths as shares of the specified ones."""

    start_s: float = 4e-6
    hop_s: float = 2e-7
    second_share: float = 0.6
    share: float = 0.4
    host_s: float = 2.5e-5
    host_hop_s: float = 5e-7
    copy_share: float = 0.8


_PRIOR = _Prior()


def served_all_reduce(
    fabric: Fabric, fitted: FittedConstants, *, is_launched: bool, is_recent: bool, memory_bytes_per_s: float
) -> ServedAllReduce:
    """A framework's all-reduces on a fabric; constants that were not fitted to it are means over fabrics.

    Args:
        fabric: links of the node.
        fitted: constants.
        is_launched: one by one by a host, which copies the payload besides, rather than in a graph.
        is_recent: see `has_recent_kernels`.
        memory_bytes_per_s: bandwidth of a device's memory; 0 where it is unknown, and nothing is copied.
    """
    own, host = (_constants(software, fabric, fitted) for software in SERVED)
    wait, launch = (_recent_share(software, fitted) if is_recent else 1.0 for software in SERVED)
    return ServedAllReduce(
        start_s=own["start_s"] * wait,
        hop_s=own["hop_s"] * wait,
        second_share=own["second_share"],
        bandwidth_bytes_per_s=own["share"] * fabric.bandwidth_bytes_per_s,
        host_s=host["host_s"] * launch if is_launched else 0.0,
        host_hop_s=host["host_hop_s"] * launch if is_launched else 0.0,
        copied_bytes_per_s=host["copy_share"] * memory_bytes_per_s if is_launched else 0.0,
    )


def _constants(software: CollectiveSoftware, fabric: Fabric, fitted: FittedConstants) -> Mapping[str, float]:
    group = f"{GROUP_PREFIX}{{}}/{CollectiveKind.ALL_REDUCE.value}/{software.value}"
    return mean_constants(group, asdict(_PRIOR), fitted, fabric)


def _recent_share(software: CollectiveSoftware, fitted: FittedConstants) -> float:
    return fitted.groups.get(_recent_group(software), {}).get("share", 1.0)


def _recent_group(software: CollectiveSoftware) -> str:
    return f"{GROUP_PREFIX}recent/{software.value}"


def recent_parameter(software: CollectiveSoftware) -> FitParameter:
    """What recent kernels, or their launch, take of the time of others: one constant for all fabrics."""
    meaning, low, high, start = _RECENT[software]
    return FitParameter(_recent_group(software), "share", "share", low, high, start, meaning, is_log=True)


_RECENT = MappingProxyType(
    {
        CollectiveSoftware.GRAPH: ("wait of kernels that wait less, over the others'", 0.2, 1.0, 0.7),
        CollectiveSoftware.EAGER: ("a host's launch of such kernels, over the others'", 0.5, 3.0, 1.2),
    }
)
"""Meaning, bounds and start."""


def served_parameters(fabric: Fabric, group: str, software: CollectiveSoftware) -> tuple[FitParameter, ...]:
    """Constants of frameworks' kernels on a fabric, or of their launch by a host."""
    specified = fabric.bandwidth_bytes_per_s
    kernel = (
        ("start_s", "s", 1e-7, 5e-4, _PRIOR.start_s, "wait for all devices whatever the group's size"),
        ("hop_s", "s", 1e-8, 1e-4, _PRIOR.hop_s, "wait for each device beyond the first"),
        ("second_share", "share", 0.02, 5.0, _PRIOR.second_share, "second wait of two shots over the first"),
        (
            "bandwidth_bytes_per_s",
            "bytes/s",
            0.01 * specified,
            2.0 * specified,
            _PRIOR.share * specified,
            "bandwidth at which a device reads others' memory",
        ),
    )
    host = (
        ("host_s", "s", 1e-6, 5e-4, _PRIOR.host_s, "what a host takes to launch one, at least"),
        ("host_hop_s", "s", 1e-8, 1e-4, _PRIOR.host_hop_s, "the same for each device beyond the first"),
        (
            "copy_share",
            "share",
            0.2,
            5.0,
            _PRIOR.copy_share,
            "share of the memory's bandwidth that copies of payloads reach",
        ),
    )
    return tuple(
        FitParameter(group, name, unit, low, high, start, meaning, is_log=True)
        for name, unit, low, high, start, meaning in (host if software is CollectiveSoftware.EAGER else kernel)
    )


def earlier_parameters(fabric: Fabric) -> tuple[FitParameter, ...]:
    """Constants of all-reduces of earlier libraries on a fabric."""
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


def kind_parameters(
    fabric: Fabric, kind: CollectiveKind, group: str, *, is_latency_told: bool
) -> tuple[FitParameter, ...]:
    """Constants of one kind of collective on a fabric: up to five, one more where switches reduce or share a bridge.

    Rows of many bytes alone say nothing of what few take: of them the usual latency stays.
    """
    specified, prior = fabric.bandwidth_bytes_per_s, CURVE_PRIOR
    rows = [
        ("start_s", "s", 1e-7, 5e-4, prior.start_s, "latency of a pass whatever the group's size"),
        ("doubling_s", "s", 1e-7, 1e-3, prior.doubling_s, "latency of a pass for each doubling of the group")
        if fabric.grows_by_doubling(kind)
        else ("hop_s", "s", 1e-8, 1e-4, prior.hop_s, "latency of a pass for each device beyond the first"),
        (
            "bandwidth_bytes_per_s",
            "bytes/s",
            0.01 * specified,
            10.0 * specified,
            prior.share * specified,
            "bandwidth of a device on large payloads, one way, in ring-equivalent traffic",
        ),
    ]
    if fabric.runs_protocols(kind):
        rows.append(
            ("setup", "latencies", 0.05, 100.0, prior.setup, "latency that full rate adds, over that of a pass")
        )
    elif fabric.has_protocols:
        rows.append(("ramp_s", "s", 1e-8, 1e-2, prior.ramp_s, "time scale on which bandwidth builds up"))
    if not kind.is_pairwise:
        meaning = "passes over the payload at the devices' ends"
        rows.append(("endpoint_share", "passes", 0.005, 20.0, prior.endpoint_share, meaning))
    if fabric.reduces_from and kind is CollectiveKind.ALL_REDUCE:
        rows.append(
            (
                "small_share",
                "share",
                0.4,
                1.0,
                prior.small_share,
                "bandwidth of groups too small for the switch to reduce",
            )
        )
    if fabric.shares_bridge and not kind.is_pairwise:
        rows.append(
            ("crowding", "power", 0.05, 3.0, prior.crowding, "power with which bandwidth falls with the group's size")
        )
    untold = () if is_latency_told else ("start_s", "hop_s") if kind.is_pairwise else ("start_s",)
    return tuple(
        FitParameter(group, name, unit, low, high, start, meaning, is_log=True)
        for name, unit, low, high, start, meaning in rows
        if name not in untold
    )


def protocol_parameters() -> list[FitParameter]:
    """Constants of protocols, which all fabrics and all software share."""
    prior, rates = PROTOCOL_PRIOR, "rate of a protocol of lower latency over the next one's"
    named = (
        ("ll_rate", 1e-3, 1.0, prior.ll_rate, f"{rates}, LL over LL128"),
        ("ll128_rate", 0.02, 1.0, prior.ll128_rate, f"{rates}, LL128 over Simple"),
        ("ll128_setup", 5e-3, 0.8, prior.ll128_setup, "latency that LL128 adds over what Simple adds"),
    )
    return [
        FitParameter(PROTOCOL_GROUP, name, "share", low, high, start, meaning, is_log=True)
        for name, low, high, start, meaning in named
    ]


def reduction_parameter(group: str) -> FitParameter:
    """What all-reduces of all software have in common where switches reduce across nodes.

    Args:
        group: see `Fabric.reduction_group`.
    """
    meaning = "hops beyond which latency of all-reduces grows with the group no more"
    return FitParameter(group, "most_hops", "hops", 4.0, 71.0, CURVE_PRIOR.most_hops, meaning, is_log=True)
