"""Layers recorded on a tape by a function, and what they lower to."""

from collections.abc import Callable

from phaze_opt.graph.fusion import fuse
from phaze_opt.graph.layer import LayerGraph
from phaze_opt.graph.lowering import lower
from phaze_opt.graph.program import Program, Tape, Tensor
from phaze_opt.workload.software import FusionLevel
from phaze_opt.workload.training import Optimizer

Record = Callable[[Tape, Tensor], Tensor]


def record(elements: int, layer: Record, *, dtype_bytes: int = 2, input_bytes: int | None = None) -> Program:
    """A layer of an input of so many elements, forward and backward."""
    tape = Tape(dtype_bytes=dtype_bytes)
    start = tape.tensor("x", elements, element_bytes=input_bytes)
    end = layer(tape, start)
    tape.run_backward(end)
    return Program("layer", tape.nodes, start, (end,), end.num_bytes, tape.num_parameters, 0)


def lowered(program: Program, level: FusionLevel = FusionLevel.EPILOGUE) -> LayerGraph:
    return lower(fuse(program, level), optimizer=Optimizer.SGD)


def flops(layer: LayerGraph) -> tuple[int, int]:
    """Of matmuls, forward and backward."""
    return tuple(sum(each.matmul_flops for each in graph.operators) for graph in (layer.forward, layer.backward))
