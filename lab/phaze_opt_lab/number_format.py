"""Number formats of operands: their bytes with scales, and the units that multiply them.

A format is what libraries call a recipe's data type. Scales for blocks count as bytes: one of 8 bits for 16 or 32
operands of 4 bits, one of 32 bits for 128 of 8. Formats of weights alone are unpacked and multiplied in 16 bits.
"""

from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from phaze_opt.errors import InputError
from phaze_opt.hardware.device import ComputePath, Device
from phaze_opt.record.suggestions import suggest


class NumberFormat(StrEnum):
    """How operands of a matmul are written; the value names them in files."""

    FP32 = "fp32"
    TF32 = "tf32"
    BF16 = "bf16"
    FP8 = "fp8"
    FP8_BLOCK = "fp8_block"
    MXFP8 = "mxfp8"
    NVFP4 = "nvfp4"
    MXFP4 = "mxfp4"
    INT8 = "int8"
    INT8_WEIGHTS = "int8_wo"
    INT4_WEIGHTS = "int4_wo"


class Width(StrEnum):
    """Bits of operands as units multiply them: what constants of a machine differ by."""

    WIDE = "16"
    EIGHT = "8"
    FOUR = "4"


@dataclass(frozen=True, slots=True)
class FormatFacts:
    """What a format says of a matmul.

    Attributes:
        left_bytes, right_bytes: of an element of activations and of weights, scales included.
        width: of the operands that are multiplied.
        path: units that multiply them; of 4 bits those of `Device.fp4_peak_flops_per_s`.
    """

    left_bytes: float
    right_bytes: float
    width: Width
    path: ComputePath


_FACTS = MappingProxyType(
    {
        NumberFormat.FP32: FormatFacts(4.0, 4.0, Width.WIDE, ComputePath.FP32),
        NumberFormat.TF32: FormatFacts(4.0, 4.0, Width.WIDE, ComputePath.TF32),
        NumberFormat.BF16: FormatFacts(2.0, 2.0, Width.WIDE, ComputePath.BF16),
        NumberFormat.FP8: FormatFacts(1.0, 1.0, Width.EIGHT, ComputePath.FP8),
        NumberFormat.FP8_BLOCK: FormatFacts(1.03125, 1.0, Width.EIGHT, ComputePath.FP8),
        NumberFormat.MXFP8: FormatFacts(1.03125, 1.03125, Width.EIGHT, ComputePath.FP8),
        NumberFormat.NVFP4: FormatFacts(0.5625, 0.5625, Width.FOUR, ComputePath.FP8),
        NumberFormat.MXFP4: FormatFacts(0.53125, 0.53125, Width.FOUR, ComputePath.FP8),
        NumberFormat.INT8: FormatFacts(1.0, 1.0, Width.EIGHT, ComputePath.INT8),
        NumberFormat.INT8_WEIGHTS: FormatFacts(2.0, 1.0, Width.WIDE, ComputePath.BF16),
        NumberFormat.INT4_WEIGHTS: FormatFacts(2.0, 0.53125, Width.WIDE, ComputePath.BF16),
    }
)
_OTHER_NAMES = MappingProxyType(
    {
        **dict.fromkeys(("fp16", "float16", "half", "bfloat16", "amp_bf16", "amp_fp16"), NumberFormat.BF16),
        **dict.fromkeys(("float8", "fp8_e4m3", "fp8_e4m3fn", "fp8_e5m2", "amp_fp8"), NumberFormat.FP8),
        "float32": NumberFormat.FP32,
        "sq": NumberFormat.INT8,
        "int4": NumberFormat.INT4_WEIGHTS,
    }
)
"""Other names, in lower case; ``sq`` is SmoothQuant: int8 of both operands."""


def format_of(dtype: str) -> NumberFormat:
    """The format of a name, in any case.

    Raises:
        InputError: an unknown name, with a near miss.
    """
    name = dtype.lower()
    if name in _OTHER_NAMES:
        return _OTHER_NAMES[name]
    if name not in list(NumberFormat):
        message = f"dtype '{dtype}' is unknown; {suggest(dtype, [*NumberFormat, *_OTHER_NAMES])}"
        raise InputError(message, key="dtype")
    return NumberFormat(name)


def facts_of(number_format: NumberFormat) -> FormatFacts:
    """Bytes and units of a format."""
    return _FACTS[number_format]


def format_peak(device: Device, number_format: NumberFormat) -> float:
    """Rate at which a machine multiplies a format, FLOP/s; one that it has no units for is unpacked and goes wider."""
    facts = facts_of(number_format)
    if facts.width is Width.FOUR and device.fp4_peak_flops_per_s:
        return device.fp4_peak_flops_per_s
    return device.peak_flops_per_s.get(facts.path, 0.0) or device.peak(ComputePath.BF16)


def has_units(device: Device, number_format: NumberFormat) -> bool:
    """Whether a machine multiplies a format as it is."""
    facts = facts_of(number_format)
    return bool(device.fp4_peak_flops_per_s) if facts.width is Width.FOUR else facts.path in device.peak_flops_per_s
