"""A roofline estimator: peak compute, peak vector rate or compulsory HBM traffic, whichever takes longest."""

from collections.abc import Sequence

import numpy as np

from phaze_opt.estimate.protocol import Bound, Estimates, OperatorBreakdown
from phaze_opt.graph.operator import CoreType, Operator
from phaze_opt.hardware.accelerator import Accelerator, AcceleratorTable
from phaze_opt.hardware.constants import Constants, load_constants
from phaze_opt.record.arrays import Floats

PICOJOULES_PER_MAC = 1.0
PICOJOULES_PER_HBM_BYTE = 40.0
_ON_CORES = (CoreType.TC, CoreType.VC, CoreType.TC_AND_VC)


class RooflineEstimator:
    """Never slower than any honest estimator, hence useful as a bound."""

    def __init__(self, constants: Constants | None = None) -> None:
        """Take the constants; only vector cycles are used."""
        self._constants = load_constants() if constants is None else constants

    @property
    def name(self) -> str:
        """Name it is registered under."""
        return "roofline"

    def with_constants(self, constants: Constants) -> "RooflineEstimator":
        """The same under other constants."""
        return RooflineEstimator(constants)

    def estimate(self, operators: Sequence[Operator], accelerators: AcceleratorTable) -> Estimates:
        """Latency and energy, shape (num_accelerators, num_operators)."""
        priced = [operator.core_type in _ON_CORES for operator in operators]
        macs, cycles, traffic = (column * np.array(priced) for column in self._columns(operators))
        is_tc = np.array([bool(operator.matmuls) for operator in operators])
        table = accelerators
        num_cores = np.where(is_tc, table.num_tc[:, None], table.num_vc[:, None])
        compute, vector, memory = _times(macs, cycles, traffic, table)
        one_core = np.maximum(
            np.maximum(compute * table.num_tc[:, None], vector * table.num_vc[:, None]), memory * num_cores
        )
        picojoules = PICOJOULES_PER_MAC * macs + PICOJOULES_PER_HBM_BYTE * traffic
        return Estimates(
            one_core_s=one_core,
            spread_s=np.maximum(np.maximum(compute, vector), memory),
            energy_j=np.broadcast_to(picojoules * 1e-12, one_core.shape).copy(),
            traffic_bytes=np.broadcast_to(traffic, one_core.shape).copy(),
        )

    def explain(self, operators: Sequence[Operator], accelerator: Accelerator) -> tuple[OperatorBreakdown, ...]:
        """The roof that each operator hits."""
        table = AcceleratorTable.from_accelerators([accelerator])
        roofs = (Bound.COMPUTE, Bound.VECTOR, Bound.HBM)
        columns = self._columns(operators)
        times = np.stack([time[0] for time in _times(*columns, table)], axis=1)
        explained = []
        for operator, row, traffic in zip(operators, times, columns[2], strict=True):
            is_priced = operator.core_type in _ON_CORES
            latency_s = float(row.max()) if is_priced else 0.0
            bound = roofs[int(row.argmax())]
            explained.append(
                OperatorBreakdown(operator.name, latency_s, bound, ((bound, latency_s),), "roofline", float(traffic))
            )
        return tuple(explained)

    def _columns(self, operators: Sequence[Operator]) -> tuple[Floats, Floats, Floats]:
        """MACs, lane cycles and HBM bytes, each of shape (num_operators,)."""
        macs = np.array([operator.macs for operator in operators], dtype=np.float64)
        traffic = np.array([operator.traffic_bytes for operator in operators], dtype=np.float64)
        cycles = np.array(
            [
                sum(
                    work.elements * self._constants.value(f"vector_cycles.{work.kind}")
                    for work in operator.vector_works
                )
                for operator in operators
            ],
            dtype=np.float64,
        )
        return macs, cycles, traffic


def _times(macs: Floats, cycles: Floats, traffic: Floats, table: AcceleratorTable) -> tuple[Floats, Floats, Floats]:
    """Compute, vector and HBM time over all cores, s, each of shape (num_accelerators, num_operators)."""
    num_macs = table.num_tc * table.tc_width * table.tc_depth
    num_lanes = table.num_vc * table.vc_width
    compute = macs / (num_macs * table.clock_hz)[:, None]
    vector = cycles / (num_lanes * table.clock_hz)[:, None]
    return compute, vector, traffic / table.hbm_bandwidth_bytes_per_s[:, None]
