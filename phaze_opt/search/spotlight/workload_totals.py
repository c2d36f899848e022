"""`WorkloadTotals`: what one probe of one architecture says of the workload, rid of the architecture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from phaze_opt.graph.operator import CoreType, Phase
from phaze_opt.hardware.constants import load_constants
from phaze_opt.hardware.design import hbm_bandwidth_table
from phaze_opt.hardware.template import DesignPoint
from phaze_opt.search.probe import PhaseView, Probe


@dataclass(frozen=True, slots=True)
class WorkloadTotals:
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


def probe_totals(probe: Probe | None, point: DesignPoint) -> WorkloadTotals | None:
    """The totals, by one counted probe; None where there is none left or nothing to probe."""
    if probe is None or probe.num_left < 1:
        return None
    return sum_phases(probe.phases(point), point)


def sum_phases(phases: Sequence[PhaseView], point: DesignPoint) -> WorkloadTotals:
    """Add up the phases of an architecture, models together.

    Args:
        phases: all of its phases.
        point: the point that they are of.
    """
    smallest = min((view.tensor_parallel for view in phases), default=1)
    bandwidth = float(hbm_bandwidth_table(np.array([point.hbm_bytes]), constants=load_constants(), hbm_form=None)[0])
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
    return WorkloadTotals(mac_seconds, lane_seconds, traffic_bytes, update_bytes)
