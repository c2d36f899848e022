"""Areas of dies and times of small chips against what was published.

Nothing here is fitted: the package's area and energy tables are at 22 nm, published ratios take them to the process of
a row. Power and traffic are worked out by experiments/validation/silicon.py.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from phaze_opt.errors import InputError
from phaze_opt.estimate.analytic import AnalyticEstimator
from phaze_opt.estimate.operator_table import compile_operators
from phaze_opt.estimate.pricing import build_array_rows, price_matmuls
from phaze_opt.graph.operator import CoreType, Matmul, Operator, OperatorKind, Phase
from phaze_opt.hardware.accelerator import Accelerator, table_of
from phaze_opt.hardware.area import glb_area_um2, tc_area_um2, vc_area_um2
from phaze_opt.hardware.device_catalogue import load_device
from phaze_opt.hardware.fitted import FittedConstants
from phaze_opt.record.arrays import Floats
from phaze_opt.record.suggestions import suggest
from phaze_opt.units import GIBI, GIGA, KIBI, MEBI, MEGA, MILLI, um2_to_mm2
from phaze_opt.validation.family import BlockedRows, Family, Part
from phaze_opt.validation.measured_row import Row, read_rows

BASE_PROCESS = "22 nm"
"""Process of the package's area and energy tables."""


@dataclass(frozen=True, slots=True)
class Process:
    """A process: its name in nanometres, and the area of its high-density six-transistor SRAM cell."""

    nanometres: float
    bitcell_um2: float


_PROCESSES: Mapping[str, Process] = MappingProxyType(
    {
        "65 nm": Process(65, 0.525),
        "28 nm": Process(28, 0.127),
        "22 nm": Process(22, 0.092),
        "16 nm": Process(16, 0.070),
        "TSMC 16FF": Process(16, 0.070),
        "TSMC 16FF+": Process(16, 0.070),
        "TSMC 12FFN": Process(16, 0.070),
        "Samsung 8N": Process(8, 0.040),
        "7 nm": Process(7, 0.027),
        "TSMC N7": Process(7, 0.027),
        "TSMC N6": Process(7, 0.027),
        "TSMC N5 and N6": Process(5, 0.021),
        "TSMC 4N": Process(5, 0.021),
        "TSMC 4NP": Process(5, 0.021),
        "TSMC N5": Process(5, 0.021),
        "TSMC N3P and N6": Process(3, 0.021),
    }
)
"""Cells as published at IEDM and ISSCC for TSMC's 65, 28, 16, 7 and 5 nm, Intel's 22 nm and Samsung's 8 nm (recalled).
12FFN is a 16 nm, N6 a 7 nm and 4N a 5 nm process; N3E's cell is as large as N5's. Contacted gate pitch times metal
pitch falls alike: 7,200 nm2 at 22 nm, 2,280 at 7 nm, a factor of 3.2 against 3.4 of the cells."""

ENERGY_RATIO_45_TO_7 = 2.6
"""Energy of an operation at 45 nm over that at 7 nm: geometric mean of adders, multipliers and SRAM reads, Jouppi et
al., Ten lessons from three generations (ISCA 2021), table 2 (recalled)."""
_ENERGY_EXPONENT = math.log(ENERGY_RATIO_45_TO_7) / math.log(45 / 7)


def area_factor(process: str) -> float:
    """Area in this process over that at 22 nm: the ratio of SRAM cells, for logic too.

    Raises:
        InputError: a process that is not listed, with a near miss.
    """
    return _find(process).bitcell_um2 / _find(BASE_PROCESS).bitcell_um2


def energy_factor(process: str) -> float:
    """Energy of an on-chip operation in this process over that at 22 nm: (nanometres / 22)**0.51.

    The exponent is that of a power law through the published ratio of 45 to 7 nm.

    Raises:
        InputError: a process that is not listed, with a near miss.
    """
    ratio: float = (_find(process).nanometres / _find(BASE_PROCESS).nanometres) ** _ENERGY_EXPONENT
    return ratio


def is_known_process(process: str) -> bool:
    """Whether factors for this process are known."""
    return process in _PROCESSES


def _find(process: str) -> Process:
    if process not in _PROCESSES:
        message = f"no scaling to process '{process}' is known; {suggest(process, _PROCESSES)}"
        raise InputError(message, key="process")
    return _PROCESSES[process]


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


@dataclass(frozen=True, slots=True)
class _Die:
    """A whole die: the machine made of it, the multiprocessors and cache on it, some of which machines disable."""

    device: str
    num_multiprocessors: int
    cache_bytes: int


_DIES: Mapping[str, _Die] = MappingProxyType(
    {"GA100": _Die("a100-80g", 128, 48 * MEBI), "Aldebaran": _Die("mi210", 112, 8 * MEBI)}
)
"""NVIDIA A100 and AMD CDNA2 white papers."""


def predict_component_mm2(row: Row) -> float | str:
    """Area of a component, mm^2, or why the model has none.

    Raises:
        InputError: a malformed value.
    """
    die = next((known for name, known in _DIES.items() if row.text("die").startswith(name)), None)
    process = row.text("process", "")
    if die is None:
        return f"no layout of die '{row.text('die')}' is known"
    if not is_known_process(process):
        return f"no scaling to process '{process}' is known"
    component = row.text("component").lower()
    if component.startswith("one core"):
        area = multiprocessor_mm2(die.device)
    elif component == "cores":
        area = die.num_multiprocessors * multiprocessor_mm2(die.device)
    elif component == "global buffer":
        area = um2_to_mm2(float(glb_area_um2(np.array([die.cache_bytes]))[0]))
    else:
        return f"the area model counts arrays, lanes and buffers, not '{row.text('component')}'"
    return area * area_factor(process)


def multiprocessor_mm2(device: str) -> float:
    """One multiprocessor of a machine at 22 nm, mm^2: its arrays with their local memory, and its lanes."""
    layout = load_device(device).layout
    assert layout is not None
    arrays = tc_area_um2(np.array([layout.tc_width * layout.tc_depth]), np.array([layout.local_bytes]))
    lanes = vc_area_um2(np.array([layout.vc_width]))
    return um2_to_mm2(float(layout.arrays_per_vector_unit * arrays[0] + lanes[0]))


@dataclass(frozen=True, slots=True, eq=False)
class _Figures:
    """Predictions that no fitted constant enters, shape (num_rows,): s of time, s a frame, or mm2 of areas."""

    predicted: Floats

    def seconds(self, _: FittedConstants) -> Floats:
        """The predictions."""
        return self.predicted

    def explain(self, _: FittedConstants, index: int) -> tuple[Part, ...]:
        """One part: the model's own figure."""
        return (Part("model", float(self.predicted[index])),)


def _die_area(row: Row) -> tuple[float, float] | str:
    predicted = predict_component_mm2(row)
    return predicted if isinstance(predicted, str) else (row.number("area_mm2"), predicted)


def _frame_time(row: Row) -> tuple[float, float] | str:
    """One image through ResNet-50, layer after layer."""
    if not row.values.get("resnet50_frames_per_s"):
        return "no frame rate is published"
    frame_s = float(price_layers(resnet50(), nvdla_chip(row)).latency_s.sum())
    return 1.0 / row.number("resnet50_frames_per_s"), frame_s


def _layer_time(row: Row) -> tuple[float, float]:
    latency_s = float(price_layers([eyeriss_layer(row)], eyeriss_chip()).latency_s[0])
    return row.number("total_latency_ms") * MILLI, latency_s


_FIGURE_OF: Mapping[str, Callable[[Row], tuple[float, float] | str]] = MappingProxyType(
    {"die_area": _die_area, "nvdla_estimates": _frame_time, "eyeriss_alexnet": _layer_time}
)
"""Published and predicted value of a row by set, or why there is none."""


def _compile(rows: Sequence[Row]) -> BlockedRows[_Figures]:
    """The published quantity of every row."""
    found, unscored = read_rows(lambda row: _FIGURE_OF[row.dataset](row), rows)
    measured, values = np.full(len(rows), np.nan), np.array([*found.values()]).reshape(-1, 2)
    measured[list(found)] = values[:, 0]
    return BlockedRows(measured, unscored, ((list(found), _Figures(values[:, 1])),))


SILICON = Family(
    name="silicon",
    datasets=tuple(_FIGURE_OF),
    parameters=lambda rows: (),
    compile=_compile,
    regime=lambda row: next(filter(None, map(row.values.get, ("component", "macs_int8", "layer"))), row.dataset),
    cell=lambda row: row.id,
)
"""Die areas, NVDLA's frame times and Eyeriss's latencies by component, configuration or layer."""
