"""What is expected of a GPU's operators before any was measured on it: stated values, each with where it comes from.

They serve twice. A GPU without fitted constants, and without measured kin of its maker, is priced by them; and fits are
pulled to them where rows say little (`validation.operators.parameters`). They hold for operators that PyTorch launches
one by one and the host awaits (`HOST`).
"""

from __future__ import annotations

from types import MappingProxyType

from phaze_opt.hardware.device import Device

HOST = "host"
"""Setting in which every call is awaited, under the host's clock: launch and the framework's overhead are inside."""

HOST_CALL_S = 3e-5
"""A call that PyTorch launches (assumption, 15 to 50 us; launches of fp32 matmuls on seven other cards, of another data
set: 22 to 44 us, median 34, but for the L4's 2)."""

STREAM_SHARE = 0.85
"""Of the data sheet's memory bandwidth (assumption, 0.75 to 0.92; fp32 streams of those cards: 0.78 to 0.90)."""

NARROW_LOADS = 0.5
"""Of that, what 16-bit operands reach on AMD (assumption, 0.4 to 1): PyTorch loaded four elements at a time whatever
their type, half of the widest load for 16 bits, and gained by eight there (pytorch/pytorch pull request 143269)."""

ROW_BLOCK_S = 4e-6
"""Latency of a layer norm's row on NVIDIA (assumption, 2 to 8 us; its fp32 rows: 4.3 us)."""

SOFTMAX_LOOP_S = 7e-6
"""Latency of a softmax's loop over 16-bit rows on NVIDIA (assumption, 3 to 15 us)."""

AMD_LATENCY = 2.0
"""Latencies of a row on AMD over those on NVIDIA (assumption, 1.5 to 3; fp32 rows: 8.1 over 4.3 us)."""

_COMMON = MappingProxyType(
    {
        "launch_s": HOST_CALL_S,
        "matmul_efficiency": 0.85,
        "matmul_memory_efficiency": STREAM_SHARE,
        "overlap_norm": 5.0,
        "exposed_store": 1.0,
        "vector_memory_efficiency": STREAM_SHARE,
        "softmax_start_s": HOST_CALL_S,
        "softmax_loop_s": SOFTMAX_LOOP_S,
        "layernorm_start_s": HOST_CALL_S,
        "layernorm_launch_s": HOST_CALL_S,
        "layernorm_block_s": ROW_BLOCK_S,
        "gelu_start_s": HOST_CALL_S,
        "gelu_launch_s": HOST_CALL_S,
    }
)
"""Names as of fitted constants; SI units."""

_AMD = MappingProxyType(
    {
        "matmul_memory_efficiency": STREAM_SHARE * NARROW_LOADS,
        "vector_memory_efficiency": STREAM_SHARE * NARROW_LOADS,
        "softmax_loop_s": SOFTMAX_LOOP_S * AMD_LATENCY,
        "layernorm_block_s": ROW_BLOCK_S * AMD_LATENCY,
    }
)


def maker_of(device: Device) -> str:
    """Who makes a machine; ``other`` where it does not say."""
    return device.maker or "other"


def expected_values(device: Device) -> dict[str, float]:
    """Constants of 16-bit operators that are expected of a GPU, by name; SI units."""
    return dict(_COMMON) | (dict(_AMD) if maker_of(device) == "amd" else {})
