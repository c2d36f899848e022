"""Dispatch of tokens to experts and combination of what they return, as kernels made for it run them (DeepEP's).

An all-to-all moves what is given; these choose: a token goes once to every device that holds one of its experts, and
once to every node. Kernels of few tokens (low latency) send a copy to every expert instead and spare the counting.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

import numpy as np

from phaze_opt.hardware.fabrics import Fabric, mean_constants
from phaze_opt.hardware.fitted import FittedConstants
from phaze_opt.record.arrays import Floats

Amount = TypeVar("Amount", float, Floats)

GROUP_PREFIX = "exchange/"
"""Groups of fitted constants: this, the fabric, the kind and the kernels."""
SHARPNESS = 4
"""Of the change from units too few to fill the links to links that are full."""


class ExchangeKind(StrEnum):
    """Which way tokens go: to their experts, or back."""

    DISPATCH = "moe_dispatch"
    COMBINE = "moe_combine"


class ExchangeKernels(StrEnum):
    """Which kernels run: for throughput, or for few tokens."""

    NORMAL = "normal"
    LOW_LATENCY = "low_latency"


@dataclass(frozen=True, slots=True)
class ExpertExchange(Generic[Amount]):
    """One exchange, or many of one kind as arrays of one shape.

    Attributes:
        tokens: of every device.
        hidden: elements of a token.
        element_bytes: of an element.
        experts: of all devices.
        experts_per_token: that a token goes to.
        devices: that share the experts.
        nodes: that the devices are on.
        units: multiprocessors that move the data; low-latency kernels take one for every expert.
    """

    tokens: Amount
    hidden: Amount
    element_bytes: Amount
    experts: Amount
    experts_per_token: Amount
    devices: Amount
    nodes: Amount
    units: Amount


@dataclass(frozen=True, slots=True)
class ExchangeCurve:
    """Constants of exchanges on the links within a node.

    Attributes:
        start_s: of an exchange without tokens.
        bandwidth_bytes_per_s: of a device, one way.
        unit_bytes_per_s: that one multiprocessor moves, or the block of one expert of low-latency kernels.
        token_s: for each token whatever its size: counting and placing it.
    """

    start_s: float
    bandwidth_bytes_per_s: float
    unit_bytes_per_s: float
    token_s: float


@dataclass(frozen=True, slots=True)
class AdapterCurve:
    """Constants of exchanges on the adapters between nodes.

    Attributes:
        doubling_s: latency for each doubling of the nodes.
        bandwidth_bytes_per_s: of a device, one way.
    """

    doubling_s: float
    bandwidth_bytes_per_s: float


START = ExchangeCurve(2e-5, 0.7, 1.2e10, 1e-8)
ADAPTER_START = AdapterCurve(1e-5, 0.9)
"""Before anything was fitted; bandwidths as shares of the specified ones."""


def exchange_s(
    kernels: ExchangeKernels, exchange: ExpertExchange[Amount], links: ExchangeCurve, adapters: AdapterCurve | None
) -> Amount:
    """Time of an exchange, s.

    Args:
        kernels: that run it.
        exchange: one, or many.
        links: within a node.
        adapters: between nodes; None where all devices are on one.
    """
    token_bytes = exchange.hidden * exchange.element_bytes
    nodes = exchange.nodes
    fixed_s = links.start_s + links.token_s * exchange.tokens
    if adapters is not None:
        fixed_s = fixed_s + adapters.doubling_s * np.log2(nodes)
    if kernels is ExchangeKernels.LOW_LATENCY:
        sent = exchange.tokens * exchange.experts_per_token * token_bytes
        near_s = sent / nodes / _rate(exchange.experts, links)
        far_s = sent * (1.0 - 1.0 / nodes) / adapters.bandwidth_bytes_per_s if adapters is not None else 0.0
        return fixed_s + near_s + far_s
    devices_reached = reached(exchange.devices, exchange.experts_per_token)
    near_s = exchange.tokens * token_bytes * devices_reached / _rate(exchange.units, links)
    if adapters is None:
        return fixed_s + near_s
    nodes_reached = reached(nodes, exchange.experts_per_token)
    far_s = exchange.tokens * token_bytes * nodes_reached / adapters.bandwidth_bytes_per_s
    # Both go on at once: a token that arrives in a node is passed on while the next one comes.
    slower_s: Amount = np.maximum(near_s, far_s)
    return fixed_s + slower_s


def reached(places: Amount, choices: Amount) -> Amount:
    """Places other than its own that a token goes to: of ``places``, each choice is any of them alike."""
    missed: Amount = (1.0 - 1.0 / places) ** choices
    return (places - 1.0) * (1.0 - missed)


def exchange_curve(
    fabric: Fabric, kind: ExchangeKind, kernels: ExchangeKernels, fitted: FittedConstants
) -> ExchangeCurve:
    """Constants on the links of a fabric; means over the fitted fabrics where it was not measured."""
    start = {"start_s": START.start_s, "share": START.bandwidth_bytes_per_s, "unit_bytes_per_s": START.unit_bytes_per_s}
    values = mean_constants(f"{GROUP_PREFIX}{{}}/{kind}/{kernels}", start | {"token_s": START.token_s}, fitted, fabric)
    return ExchangeCurve(
        values["start_s"],
        values["share"] * fabric.bandwidth_bytes_per_s,
        values["unit_bytes_per_s"],
        0.0 if kernels is ExchangeKernels.LOW_LATENCY else values["token_s"],
    )


def adapter_curve(
    fabric: Fabric, kind: ExchangeKind, kernels: ExchangeKernels, fitted: FittedConstants
) -> AdapterCurve:
    """Constants on the adapters of a fabric; means over the fitted ones where it was not measured."""
    start = {"doubling_s": ADAPTER_START.doubling_s, "share": ADAPTER_START.bandwidth_bytes_per_s}
    values = mean_constants(f"{GROUP_PREFIX}{{}}/{kind}/{kernels}", start, fitted, fabric)
    return AdapterCurve(values["doubling_s"], values["share"] * fabric.bandwidth_bytes_per_s)


def group_of(fabric: Fabric, kind: ExchangeKind, kernels: ExchangeKernels) -> str:
    """Group of a fabric's fitted constants."""
    return f"{GROUP_PREFIX}{fabric.like or fabric.name}/{kind}/{kernels}"


def _rate(units: Amount, links: ExchangeCurve) -> Amount:
    """Bytes a second of so many units: theirs until the links are full."""
    own = units * links.unit_bytes_per_s
    rate: Amount = (own**-SHARPNESS + links.bandwidth_bytes_per_s**-SHARPNESS) ** (-1.0 / SHARPNESS)
    return rate
