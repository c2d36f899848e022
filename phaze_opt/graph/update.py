"""The optimizer update of one layer as one vector operator."""

from __future__ import annotations

from phaze_opt.graph.operator import CoreType, Operator, OperatorGraph, OperatorKind, Phase, VectorKind, VectorWork
from phaze_opt.workload.training import Optimizer

_KINDS = {Optimizer.ADAM: VectorKind.ADAM, Optimizer.SGD: VectorKind.SGD}


def build_update_graph(num_parameters: int, *, optimizer: Optimizer) -> OperatorGraph:
    """Update every parameter once.

    Adam in mixed precision reads gradient, master weight and both moments and writes the latter three and the working
    weight: 14 bytes each way. SGD reads weight and gradient and writes the weight.
    """
    state = optimizer.state_bytes
    read = optimizer.gradient_bytes + (state if state else optimizer.weight_bytes)
    written = optimizer.weight_bytes + state
    operator = Operator(
        name="update",
        phase=Phase.UPDATE,
        kind=OperatorKind.VECTOR,
        core_type=CoreType.VC,
        vector_works=(VectorWork(_KINDS[optimizer], num_parameters),),
        bytes_read=float(read * num_parameters),
        bytes_written=float(written * num_parameters),
        parameter_bytes=float(optimizer.weight_bytes * num_parameters),
    )
    return OperatorGraph((operator,), ())
