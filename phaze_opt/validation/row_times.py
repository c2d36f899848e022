"""The measured time of a row, and what the simplest formulas say of it: rooflines, counted FLOPs; no constants."""

import math
from types import MappingProxyType

from phaze_opt.errors import InputError
from phaze_opt.estimate.expert_load import expert_load, exponent_of
from phaze_opt.estimate.fused_attention import attention_roofline
from phaze_opt.hardware.device import Device, element_bytes, path_of
from phaze_opt.hardware.number_format import facts_of, format_peak
from phaze_opt.units import MICRO, MILLI
from phaze_opt.validation.measured_row import Row
from phaze_opt.validation.modern.shapes import (
    attention_shape,
    matmul_repeats,
    matmul_sizes,
    operator_name,
    row_format,
    stream_bytes,
)

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
        return max(ROOFLINES[kind](row, device)) if kind in ROOFLINES else MODEL_SECONDS[kind](row, device)
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


def roofline_parts(row: Row, device: Device) -> tuple[float, float]:
    """Time of one operator at the peak and at the memory rate of the data sheet, s; without ``k`` nothing multiplies.

    Raises:
        InputError: a malformed value, or the device lacks the path of the type.
    """
    number_format = row_format(row)
    facts = facts_of(number_format)
    if row.number("k", 0.0) == 0.0:
        elements = row.number("b", 1.0) * row.number("m") * row.number("n")
        moved = stream_bytes(operator_name(row)) / 2.0 * elements * facts.left_bytes
        return 0.0, moved / device.hbm_bandwidth_bytes_per_s
    batch, m, n, k = matmul_sizes(row)
    repeats = matmul_repeats(row)
    moved = batch * ((m * k + m * n) * facts.left_bytes + k * n * facts.right_bytes)
    compute_s = repeats * 2.0 * batch * m * n * k / format_peak(device, number_format)
    return compute_s, repeats * moved / device.hbm_bandwidth_bytes_per_s


def _attention_parts(row: Row, device: Device) -> tuple[float, float]:
    """Products of the scores that the mask leaves at the peak, and queries, keys, values and result once."""
    number_format = row_format(row)
    flops, moved = attention_roofline(attention_shape(row), element_bytes=facts_of(number_format).left_bytes)
    return flops / format_peak(device, number_format), moved / device.hbm_bandwidth_bytes_per_s


def _expert_parts(row: Row, device: Device) -> tuple[float, float]:
    """Products of the busiest rank's rows at the peak, and the weights of its experts once."""
    number_format = row_format(row)
    sizes = (
        row.integer("tokens"),
        max(1, row.integer("experts_per_token")),
        row.integer("experts"),
        row.integer("ep", 1),
    )
    load = expert_load(*sizes, exponent_of(row.text("distribution", "")))
    expert = row.number("mlp_matrices", 3.0) * row.number("hidden") * row.number("ffn") / row.number("tp", 1.0)
    compute_s = 2.0 * load.rows * expert / format_peak(device, number_format)
    return compute_s, load.active * expert * facts_of(number_format).right_bytes / device.hbm_bandwidth_bytes_per_s


ROOFLINES = MappingProxyType({"operators": roofline_parts, "attention": _attention_parts, "experts": _expert_parts})
"""Time of one operator at the peak and at the memory rate by kind of file, s."""


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
