"""The measured time of a row, and what the simplest formulas say of it: rooflines, counted FLOPs; no constants."""

import math
from types import MappingProxyType

from phaze_opt.errors import InputError
from phaze_opt.hardware.device import ComputePath, Device, element_bytes, path_of
from phaze_opt.units import MICRO, MILLI
from phaze_opt.validation.measured_row import Row
from phaze_opt.validation.packs import Roofline, pack_roofline

MEASURED = MappingProxyType(
    {
        "operators": ("latency_us", MICRO),
        "attention": ("latency_us", MICRO),
        "experts": ("latency_us", MICRO),
        "collectives": ("latency_us", MICRO),
        "expert exchanges": ("latency_us", MICRO),
        "training": ("iter_time_s", 1.0),
        "layer": ("forward_ms", MILLI),
        "whole model": ("e2e_ms", MILLI),
    }
)
"""Column of the measured time by kind of file, and its unit in seconds."""
AMOUNTS = MappingProxyType({"memory": "measured_gib"})
"""Column of what was measured by kind of file whose rows have no time."""


def measured_seconds(row: Row, kind: str) -> float:
    """Measured time of a row, s; forward and backward together for a layer; of memory GiB."""
    if kind in AMOUNTS:
        return row.number(AMOUNTS[kind])
    column, unit = MEASURED[kind]
    total = row.number(column)
    if kind == "layer":
        total += row.number("backward_ms", 0.0)
    return total * unit


def ideal_seconds(row: Row, kind: str) -> float:
    """Time of a row at the device's specification; nan where its device is not known.

    Operators: roofline of peak and memory rate. Training, layers, whole models: FLOPs of the model at the peak of all
    devices, so that a constant times it is a constant utilisation. Collectives: bytes that a ring sends. Exchanges: a
    copy of every token for each of its experts. Memory: 1, so that a constant times it is one amount for all.
    """
    if kind in AMOUNTS:
        return 1.0
    try:
        if kind in SENT_BYTES:
            return SENT_BYTES[kind](row)
        device = row.device()
        roofline = roofline_of(row, kind)
        return MODEL_SECONDS[kind](row, device) if roofline is None else max(roofline(row, device))
    except (InputError, KeyError):
        return math.nan


def ring_bytes(row: Row) -> float:
    """Bytes that each device sends in a ring all-reduce: 2 (n - 1) / n times the payload."""
    devices = row.number("n_devices")
    return 2.0 * (devices - 1.0) / devices * row.number("bytes")


def exchange_bytes(row: Row) -> float:
    """Bytes that each device sends if a copy of every token goes to each of its experts."""
    size = element_bytes(path_of(row.text("dtype", "bf16")))
    return row.number("tokens") * row.number("experts_per_token", 1.0) * row.number("hidden") * size


SENT_BYTES = MappingProxyType({"collectives": ring_bytes, "expert exchanges": exchange_bytes})
"""Bytes of a row by kind of file, where devices do nothing but send."""


def roofline_of(row: Row, kind: str) -> Roofline | None:
    """Roofline of a row: of the pack that predicts its set, else of its kind of file; None where neither has one."""
    return pack_roofline(row.dataset) or (roofline_parts if kind == "operators" else None)


def roofline_parts(row: Row, device: Device) -> tuple[float, float]:
    """Time of one operator at the peak and at the memory rate of the data sheet, s; without ``k`` nothing multiplies.

    A type that the device has no path for is multiplied as bf16 is.

    Raises:
        InputError: a malformed value, or the device lacks bf16 too.
    """
    path = path_of(row.text("dtype"))
    size, batch, m, n = element_bytes(path), row.number("b", 1.0), row.number("m"), row.number("n")
    k = row.number("k", 0.0)
    if k == 0.0:
        tensors = 3.0 if row.text("op").rpartition(":")[2].lower() in TWO_INPUTS else 2.0
        return 0.0, tensors * size * batch * m * n / device.hbm_bandwidth_bytes_per_s
    peak = device.peak_flops_per_s.get(path, 0.0) or device.peak(ComputePath.BF16)
    moved = size * batch * (m * k + m * n + k * n)
    return 2.0 * batch * m * n * k / peak, moved / device.hbm_bandwidth_bytes_per_s


TWO_INPUTS = ("add", "silu")
"""Operators that read two tensors and write one; others read and write one."""


def _training_seconds(row: Row, device: Device, *, scores_share: float = 1.0) -> float:
    """FLOPs of forward and backward of all tokens at the peak of all devices; of a share of attention's scores."""
    tokens = row.number("global_batch") * row.number("seq")
    flops = 3.0 * tokens * _token_flops(row, row.number("layers"), scores_share)
    return flops / (row.number("n_devices") * device.peak(path_of(row.text("dtype", "bf16"))))


def _layer_seconds(row: Row, device: Device, *, scores_share: float = 1.0) -> float:
    """FLOPs of forward and backward of one layer's micro-batch, without the head, at the peak of all devices."""
    tokens = row.number("micro_batch") * row.number("seq")
    flops = 3.0 * tokens * _layer_token_flops(row, scores_share)
    return flops / (row.number("tp") * device.peak(path_of(row.text("dtype", "fp16"))))


def _whole_model_seconds(row: Row, device: Device, *, scores_share: float = 1.0) -> float:
    """FLOPs of forward, and of backward in training, at the peak of all devices."""
    passes = 3.0 if row.text("mode") == "train" else 1.0
    tokens = row.number("batch") * row.number("seq")
    peak = row.number("n_devices", 1.0) * device.peak(path_of(row.text("dtype", "fp32")))
    return passes * tokens * _token_flops(row, row.number("layers"), scores_share) / peak


MODEL_SECONDS = MappingProxyType(
    {"training": _training_seconds, "layer": _layer_seconds, "whole model": _whole_model_seconds}
)
"""FLOPs of a row at the peak of all its devices by kind of file, s; ``scores_share`` counts a share of attention."""


def _token_flops(row: Row, layers: float, scores_share: float) -> float:
    """FLOPs of the forward pass for one token: layers and head."""
    return layers * _layer_token_flops(row, scores_share) + 2.0 * row.number("hidden") * row.number("vocab", 0.0)


def _layer_token_flops(row: Row, scores_share: float) -> float:
    """FLOPs of one layer's forward pass for one token; a share of 1 counts attention over the whole sequence."""
    hidden, heads = row.number("hidden"), row.number("heads")
    head_size = row.number("head_dim", hidden / heads)
    projections = hidden * head_size * (2.0 * heads + 2.0 * row.number("kv_heads", heads))
    mlp = row.number("mlp_matrices", 2.0) * hidden * row.number("ffn", 4.0 * hidden)
    return 2.0 * (projections + mlp) + 4.0 * scores_share * row.number("seq") * heads * head_size
