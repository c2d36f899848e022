"""The measured time of a row, and what the simplest formulas say of it: rooflines, counted FLOPs; no constants."""

import math
from types import MappingProxyType

from phaze_opt.errors import InputError
from phaze_opt.hardware.device import Device, element_bytes, path_of
from phaze_opt.units import MICRO, MILLI
from phaze_opt.validation.measured_row import Row

MEASURED = MappingProxyType(
    {
        "operators": ("latency_us", MICRO),
        "collectives": ("latency_us", MICRO),
        "training": ("iter_time_s", 1.0),
        "layer": ("forward_ms", MILLI),
        "whole model": ("e2e_ms", MILLI),
    }
)
"""Column of the measured time by kind of file, and its unit in seconds."""
AMOUNTS = MappingProxyType({"memory": "measured_gib"})
"""Column of what was measured by kind of file whose rows have no time."""

_PASSES = MappingProxyType({"add": 3.0})
"""Tensors that an operator on vectors moves; all others read one and write one."""


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
    devices, so that a constant times it is a constant utilisation. Collectives: bytes that a ring sends. Memory: 1, so
    that a constant times it is one amount for all.
    """
    if kind in AMOUNTS:
        return 1.0
    try:
        if kind == "collectives":
            return ring_bytes(row)
        device = row.device()
        return max(roofline_parts(row, device)) if kind == "operators" else MODEL_SECONDS[kind](row, device)
    except (InputError, KeyError):
        return math.nan


def ring_bytes(row: Row) -> float:
    """Bytes that each device sends in a ring all-reduce: 2 (n - 1) / n times the payload."""
    devices = row.number("n_devices")
    return 2.0 * (devices - 1.0) / devices * row.number("bytes")


def roofline_parts(row: Row, device: Device) -> tuple[float, float]:
    """Time of one operator at the peak and at the memory rate of the data sheet, s; without ``k`` nothing multiplies.

    Raises:
        InputError: a malformed value, or the device lacks the path of the type.
    """
    path = path_of(row.text("dtype"))
    size, batch = element_bytes(path), row.number("b", 1.0)
    m, n, k = row.number("m"), row.number("n"), row.number("k", 0.0)
    if k == 0.0:
        moved = _PASSES.get(row.text("op"), 2.0) * batch * m * n * size
        return 0.0, moved / device.hbm_bandwidth_bytes_per_s
    moved = batch * (m * k + k * n + m * n) * size
    return 2.0 * batch * m * n * k / device.peak(path), moved / device.hbm_bandwidth_bytes_per_s


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
