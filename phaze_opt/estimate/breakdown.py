"""What bounds each operator: the seconds of its latency, by cause."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from phaze_opt.estimate.operator_table import CompiledOperators
from phaze_opt.estimate.pricing import DATAFLOWS, MatmulPrices
from phaze_opt.estimate.protocol import Bound, OperatorBreakdown

Floats = NDArray[np.float64]
_PARTS = (Bound.COMPUTE, Bound.FILL_AND_DRAIN, Bound.EDGE_WASTE, Bound.GLB, Bound.VECTOR, Bound.HBM)


@dataclass(frozen=True, slots=True)
class Resources:
    """One chip's rates and its other resources' times; arrays of shape (num_operators,).

    ``buffer_s`` is what an operator's bytes take to pass the buffer, 0 where the buffer holds none between operators.
    """

    cycle_s: float
    num_macs: int
    vector_s: Floats
    hbm_s: Floats
    traffic_bytes: Floats
    buffer_s: Floats


def explain_operators(
    compiled: CompiledOperators, prices: MatmulPrices, resources: Resources
) -> tuple[OperatorBreakdown, ...]:
    """Break the spread latency of every operator into `Bound` parts that sum to it.

    The tensor cores' time is ideal compute (all multiply-accumulate units busy), fill and drain, edge waste (ceilings
    and idle arrays) and what the GLB adds to them; vector lanes, HBM or the bytes that pass the GLB take the excess
    where they bind.

    Args:
        compiled: the operators.
        prices: of their matmuls on the one chip, one row.
        resources: the chip's rates and other times.
    """
    cycles, stream, fill = (
        compiled.add_up(table)[0] for table in (prices.cycles, prices.stream_cycles, prices.fill_cycles)
    )
    ideal = compiled.macs / resources.num_macs
    tensor_s = cycles * resources.cycle_s
    vector_s, hbm_s, buffer_s = resources.vector_s, resources.hbm_s, resources.buffer_s
    latency_s = np.maximum.reduce((tensor_s, vector_s, hbm_s, buffer_s))
    is_buffer = buffer_s > np.maximum.reduce((tensor_s, vector_s, hbm_s))
    is_vector = (vector_s > tensor_s) & (vector_s >= hbm_s) & ~is_buffer
    is_hbm = (hbm_s > tensor_s) & ~is_vector & ~is_buffer
    excess_s = latency_s - tensor_s
    parts = np.stack(
        [
            ideal * resources.cycle_s,
            fill * resources.cycle_s,
            (stream - ideal) * resources.cycle_s,
            (cycles - stream - fill) * resources.cycle_s + excess_s * is_buffer,
            excess_s * is_vector,
            excess_s * is_hbm,
        ],
        axis=1,
    )
    bounds = _bounds(parts, is_vector, is_hbm)
    flows = _dataflows(compiled, prices)
    return tuple(
        OperatorBreakdown(
            operator=operator.name,
            latency_s=float(latency_s[column]),
            bound=bounds[column],
            parts_s=tuple(zip(_PARTS, map(float, parts[column]), strict=True)),
            dataflow=flows[column],
            traffic_bytes=float(resources.traffic_bytes[column]),
        )
        for column, operator in enumerate(compiled.operators)
    )


def _bounds(parts: Floats, is_vector: NDArray[np.bool_], is_hbm: NDArray[np.bool_]) -> list[Bound]:
    """VECTOR or HBM where they bind; else GLB where it adds time; else the largest of the three compute parts."""
    compute = parts[:, :3].argmax(axis=1)
    index = np.where(parts[:, 3] > 0, 3, compute)
    index = np.where(is_vector, 4, np.where(is_hbm, 5, index))
    return [_PARTS[position] for position in index]


def _dataflows(compiled: CompiledOperators, prices: MatmulPrices) -> list[str]:
    """Dataflow of each operator's matmuls, ``+`` between several, empty without any."""
    names: list[list[str]] = [[] for _ in range(len(compiled))]
    for owners, matmuls in compiled.terms:
        for owner, matmul in zip(owners, matmuls, strict=True):
            names[owner].append(DATAFLOWS[prices.dataflow[0, matmul]])
    return ["+".join(flows) for flows in names]
