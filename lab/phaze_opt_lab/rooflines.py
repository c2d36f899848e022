"""Times of kernels at the peak and at the memory rate of the data sheet; no constants."""

from collections.abc import Mapping
from types import MappingProxyType

from phaze_opt.hardware.device import Device
from phaze_opt.validation.measured_row import Row
from phaze_opt.validation.packs import Roofline
from phaze_opt_lab.estimate.expert_load import expert_load, exponent_of
from phaze_opt_lab.estimate.fused_attention import attention_roofline
from phaze_opt_lab.modern.cases import ATTENTION, EXPERTS, OPERATORS
from phaze_opt_lab.modern.shapes import (
    attention_shape,
    matmul_repeats,
    matmul_sizes,
    operator_name,
    row_format,
    stream_bytes,
)
from phaze_opt_lab.number_format import facts_of, format_peak


def operator_parts(row: Row, device: Device) -> tuple[float, float]:
    """Time of one operator, s; without ``k`` nothing multiplies.

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


def attention_parts(row: Row, device: Device) -> tuple[float, float]:
    """Products of the scores that the mask leaves at the peak, and queries, keys, values and result once."""
    number_format = row_format(row)
    flops, moved = attention_roofline(attention_shape(row), element_bytes=facts_of(number_format).left_bytes)
    return flops / format_peak(device, number_format), moved / device.hbm_bandwidth_bytes_per_s


def expert_parts(row: Row, device: Device) -> tuple[float, float]:
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


ROOFLINES: Mapping[str, Roofline] = MappingProxyType(
    {OPERATORS: operator_parts, ATTENTION: attention_parts, EXPERTS: expert_parts}
)
"""By data set."""
