"""Features of design points: Spotlight's hardware features restated for training, and raw parameters."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from phaze_opt.graph.operator import CoreType, Phase
from phaze_opt.hardware.accelerator import AcceleratorTable
from phaze_opt.hardware.area import area_um2_table, vc_l2_bytes_of
from phaze_opt.hardware.chip_template import AXES, DesignPoint, PointColumns
from phaze_opt.hardware.constants import Constants, load_constants
from phaze_opt.hardware.designed_chip import build_accelerator, chips_of
from phaze_opt.hardware.networks import load_network
from phaze_opt.hardware.silicon.chip_silicon import chip_area_mm2, chip_power_w
from phaze_opt.hardware.silicon.silicon import has_die
from phaze_opt.record.arrays import Floats
from phaze_opt.search.probe import PhaseView, Probe


@dataclass(frozen=True, slots=True)
class OperatorTotals:
    """Sums over the operators of all models at the smallest tensor degree, per sample.

    Attributes:
        mac_seconds: time of tensor-core operators x multiply-accumulate units of the probed chip.
        lane_seconds: time of vector operators x its lanes.
        traffic_bytes: HBM traffic of the forward and backward passes.
        update_bytes: HBM traffic of the optimizer's update of the whole model, per iteration: weights, gradients and
            moments are read and written once, so it stands for the bytes that must be held.
    """

    mac_seconds: float
    lane_seconds: float
    traffic_bytes: float
    update_bytes: float


def probe_totals(probe: Probe | None, point: DesignPoint, constants: Constants) -> OperatorTotals | None:
    """The totals, by one counted probe; None where there is none left or nothing to probe."""
    if probe is None or probe.num_left < 1:
        return None
    return sum_phases(probe.phases(point), point, constants)


def sum_phases(phases: Sequence[PhaseView], point: DesignPoint, constants: Constants) -> OperatorTotals:
    """Add up the phases of an architecture, models together.

    Args:
        phases: all of its phases.
        point: the point that they are of.
        constants: of its space.
    """
    smallest = min((view.tensor_parallel for view in phases), default=1)
    bandwidth = build_accelerator(point, constants=constants).hbm_bandwidth_bytes_per_s
    macs = point.num_tc * point.tc_width * point.tc_depth
    lanes = point.num_vc * point.vc_width
    mac_seconds = lane_seconds = traffic_bytes = update_bytes = 0.0
    for view in phases:
        if view.tensor_parallel != smallest:
            continue
        moved = view.repeats * view.floor_s * bandwidth
        if view.phase is Phase.UPDATE:
            update_bytes += moved
            continue
        traffic_bytes += moved / point.micro_batch
        for core_type, spread_s in zip(view.core_types, view.spread_s, strict=True):
            share_s = view.repeats * float(spread_s) / point.micro_batch
            if core_type in (CoreType.TC, CoreType.TC_AND_VC):
                mac_seconds += share_s * macs
            elif core_type is CoreType.VC:
                lane_seconds += share_s * lanes
    return OperatorTotals(mac_seconds, lane_seconds, traffic_bytes, update_bytes)


_MIDDLE = 6.0
"""Log2 of an array's edge from which deviations are squared; where it lies hardly matters, as linear terms shift it."""
_GLB_BYTES_PER_MAC = 2.0
"""A square L2 tile of edge t feeds t x t products from 2 t elements of 2 bytes: 2 x 2 / t bytes a product."""


def raw_features(columns: PointColumns) -> Floats:
    """Log2 of every parameter that points state, shape (num_points, num_axes)."""
    stated = [getattr(columns, axis.name) for axis in AXES if axis.default != 0 or getattr(columns, axis.name).all()]
    return np.log2(np.column_stack(stated).astype(np.float64))


@dataclass(frozen=True, slots=True)
class DomainFeatures:
    """Spotlight's features in terms of what decides the time of a training iteration.

    Attributes:
        totals: of the workload; None leaves out the features that need it.
        constants: of the space.
    """

    totals: OperatorTotals | None
    constants: Constants = field(default_factory=load_constants)

    def __call__(self, columns: PointColumns) -> Floats:
        """Features of points, shape (num_points, num_features); logarithms, as time is a product of them."""
        table = chips_of(columns, self.constants)
        features = [*_hardware(columns, table, self.constants), *_training(columns)]
        if self.totals is not None:
            features += _weighted(self.totals, columns, table)
        return np.column_stack(features)


def effective_macs(table: AcceleratorTable) -> Floats:
    """Multiply-accumulate units that the GLB can feed, shape (num_points,).

    Weighted parallelism: an L2 of B bytes holds a tile of edge t = sqrt(B / 4), so a product costs 4 / t bytes of GLB
    traffic, and the GLB's bytes a cycle cap the products a cycle, whatever the number of units.
    """
    macs = (table.num_tc * table.tc_width * table.tc_depth).astype(np.float64)
    edge = np.sqrt(table.l2_bytes / 4.0)
    fed = table.glb_bandwidth_bytes_per_s / table.clock_hz * edge / (2.0 * _GLB_BYTES_PER_MAC)
    return np.minimum(macs, fed)


def _hardware(columns: PointColumns, table: AcceleratorTable, constants: Constants) -> list[Floats]:
    """SIMD, bandwidth, total buffer, PE product and first cluster factor, and what power follows from."""
    macs = columns.num_tc * columns.tc_width * columns.tc_depth
    lanes = columns.num_vc * columns.vc_width
    buffers = columns.glb_bytes + columns.num_tc * table.l2_bytes
    buffers = buffers + columns.num_vc * vc_l2_bytes_of(columns.vc_width, columns.vc_l2_bytes, constants=constants)
    # The power of the links is the same for every chip; that of the default network stands in for it.
    power_w = chip_power_w(table, load_network("two-level", num_devices=1), constants)
    return [
        np.log2(lanes),
        np.log2(table.hbm_bandwidth_bytes_per_s),
        np.log2(buffers),
        np.log2(macs),
        np.log2(effective_macs(table)),
        np.log2(columns.tc_width / columns.tc_depth),
        np.abs(np.log2(columns.tc_width / columns.tc_depth)),
        np.log2(columns.tc_width + 2.0 * columns.tc_depth),
        np.log2(columns.glb_bytes),
        np.log2(columns.num_tc),
        np.log2(chip_area_mm2(table, constants) if has_die(constants) else area_um2_table(table)),
        np.log2(power_w),
        # Utilisation falls on both sides of an array that suits the workload, which a linear model sees by squares.
        np.square(np.log2(columns.tc_width) - _MIDDLE),
        np.square(np.log2(columns.tc_depth) - _MIDDLE),
    ]


def _training(columns: PointColumns) -> list[Floats]:
    """Micro-batch: what pipeline bubbles grow with, and what the cost of every weight's tile is shared by."""
    micro_batch = columns.micro_batch.astype(np.float64)
    return [np.log2(micro_batch), micro_batch, 1.0 / micro_batch]


def _weighted(totals: OperatorTotals, columns: PointColumns, table: AcceleratorTable) -> list[Floats]:
    """Time of the workload if every unit were busy, and its pressure on the memory."""
    tensor_s = totals.mac_seconds / effective_macs(table)
    vector_s = totals.lane_seconds / (columns.num_vc * columns.vc_width)
    memory_s = totals.traffic_bytes / table.hbm_bandwidth_bytes_per_s
    devices = np.maximum(1.0, np.ceil(totals.update_bytes / columns.hbm_bytes))
    tiny = 1e-30
    return [
        np.log2(tensor_s + vector_s + tiny),
        np.log2(np.maximum(np.maximum(tensor_s, vector_s), memory_s) + tiny),
        np.log2(tensor_s + vector_s + memory_s + tiny),
        vector_s / (tensor_s + vector_s + tiny),
        np.log2(devices),
        (1.0 - 1.0 / devices) * columns.micro_batch,
    ]
