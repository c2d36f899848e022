"""NVDLA and Eyeriss as accelerators of the package, and what the estimator says of convolutions on them (im2col)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from phaze_opt.estimate.analytic import AnalyticEstimator
from phaze_opt.estimate.operator_table import compile_operators
from phaze_opt.estimate.pricing import build_array_rows, price_matmuls
from phaze_opt.graph.operator import CoreType, Matmul, Operator, OperatorKind, Phase
from phaze_opt.hardware.accelerator import Accelerator, table_of
from phaze_opt.record.arrays import Floats
from phaze_opt.units import GIBI, GIGA, KIBI, MEGA
from phaze_opt.validation.measured_row import Row

_UNLIMITED_BYTES_PER_S = 1e15
_EYERISS_LINK_HZ = 60 * MEGA
_EYERISS_LINK_BYTES = 8
"""Off-chip link of Eyeriss: 64 bits at 60 MHz (Chen et al., JSSC 2017; recalled)."""


@dataclass(frozen=True, slots=True)
class Convolution:
    """One layer; ``in_size`` and ``out_size`` are edges of square images, padding included in ``in_size``."""

    name: str
    batch: int
    in_channels: int
    out_channels: int
    in_size: int
    out_size: int
    kernel: int
    groups: int = 1

    @property
    def matmul(self) -> Matmul:
        """Filters by patches: one product a group, the images of the batch side by side."""
        return Matmul(
            batch=self.groups,
            m=self.out_channels // self.groups,
            n=self.batch * self.out_size**2,
            k=self.in_channels // self.groups * self.kernel**2,
        )

    @property
    def elements(self) -> int:
        """Inputs, filters and outputs, each once."""
        inputs = self.batch * self.in_channels * self.in_size**2
        filters = self.out_channels * (self.in_channels // self.groups) * self.kernel**2
        return inputs + filters + self.batch * self.out_channels * self.out_size**2


@dataclass(frozen=True, slots=True)
class ConvolutionCosts:
    """What layers take one by one, each of shape (num_layers,): s, J, and bytes through the buffer and from DRAM."""

    latency_s: Floats
    energy_j: Floats
    glb_bytes: Floats
    dram_bytes: Floats


def price_layers(layers: Sequence[Convolution], chip: Accelerator) -> ConvolutionCosts:
    """Costs of each layer alone on the whole chip.

    The patches are made on the way into the array, so DRAM sees inputs, filters and outputs once each.
    """
    estimator = AnalyticEstimator()
    operators = [_operator(layer, chip.dtype_bytes) for layer in layers]
    table = table_of(chip)
    compiled = compile_operators(operators)
    estimates = estimator.estimate(compiled, table)
    rows, _ = build_array_rows(table, estimator.options.glb_limit, reference_glb_bytes=chip.glb_bytes)
    prices = price_matmuls(compiled.shapes, rows, estimator.options)
    return ConvolutionCosts(
        latency_s=estimates.spread_s[0],
        energy_j=estimates.energy_j[0],
        glb_bytes=compiled.add_up(prices.glb_bytes)[0],
        dram_bytes=estimates.traffic_bytes[0],
    )


def resnet50(batch: int = 1) -> tuple[Convolution, ...]:
    """The 53 convolutions of ResNet-50 (He et al., 2016; stride in the first 1x1 of a stage) and its last layer."""
    return tuple(_resnet50(batch))


def _resnet50(batch: int) -> Iterator[Convolution]:
    yield Convolution("conv1", batch, 3, 64, 230, 112, 7)
    channels, size = 64, 56
    for stage, (width, blocks) in enumerate(((64, 3), (128, 4), (256, 6), (512, 3)), 2):
        for block in range(blocks):
            out_size = size // 2 if stage > 2 and block == 0 else size  # noqa: PLR2004
            name = f"conv{stage}_{block + 1}"
            yield Convolution(f"{name}a", batch, channels, width, size, out_size, 1)
            yield Convolution(f"{name}b", batch, width, width, out_size + 2, out_size, 3)
            yield Convolution(f"{name}c", batch, width, 4 * width, out_size, out_size, 1)
            if block == 0:
                yield Convolution(f"{name}d", batch, channels, 4 * width, size, out_size, 1)
            channels, size = 4 * width, out_size
    yield Convolution("fc", batch, 2048, 1000, 1, 1, 1)


def _operator(layer: Convolution, dtype_bytes: int) -> Operator:
    """The layer as an operator with exact DRAM traffic; ATTENTION is the kind whose traffic is not tiled."""
    return Operator(
        name=layer.name,
        phase=Phase.FORWARD,
        kind=OperatorKind.ATTENTION,
        core_type=CoreType.TC,
        matmuls=(layer.matmul,),
        bytes_read=float(layer.elements * dtype_bytes),
    )


def nvdla_chip(row: Row) -> Accelerator:
    """An NVDLA configuration: one array as square as powers of two allow, 8-bit operands, a buffer that feeds it.

    Raises:
        InputError: a malformed value.
    """
    macs = row.integer("macs_int8")
    width = 1 << ((macs.bit_length() - 1) // 2)
    return Accelerator(
        num_tc=1,
        num_vc=1,
        tc_width=width,
        tc_depth=max(1, macs // width),
        vc_width=16,
        glb_bytes=row.integer("conv_buffer_kb", 512) * KIBI,
        glb_bandwidth_bytes_per_s=_UNLIMITED_BYTES_PER_S,
        l2_bytes=KIBI,
        hbm_bytes=GIBI,
        hbm_bandwidth_bytes_per_s=row.number("dram_gbytes_per_s", 20.0) * GIGA,
        clock_hz=row.number("clock_ghz", 1.0) * GIGA,
        dtype_bytes=1,
        name="nvdla",
    )


def eyeriss_chip() -> Accelerator:
    """Eyeriss: 12 x 14 elements of 16 bits and 0.5 KiB each, 108 KiB of buffer, 200 MHz; its buffer is no limit."""
    return Accelerator(
        num_tc=1,
        num_vc=1,
        tc_width=14,
        tc_depth=12,
        vc_width=14,
        glb_bytes=108 * KIBI,
        glb_bandwidth_bytes_per_s=_UNLIMITED_BYTES_PER_S,
        l2_bytes=168 * KIBI // 2,
        hbm_bytes=GIBI,
        hbm_bandwidth_bytes_per_s=float(_EYERISS_LINK_HZ * _EYERISS_LINK_BYTES),
        clock_hz=200 * MEGA,
        name="eyeriss",
    )


def eyeriss_layer(row: Row) -> Convolution:
    """The convolution of a row.

    Raises:
        InputError: a malformed value.
    """
    groups = row.integer("groups", 1)
    return Convolution(
        name=row.text("layer"),
        batch=row.integer("batch"),
        in_channels=row.integer("in_ch_per_group") * groups,
        out_channels=row.integer("out_ch"),
        in_size=row.integer("in_hw_padded"),
        out_size=row.integer("out_hw"),
        kernel=row.integer("kernel"),
        groups=groups,
    )
