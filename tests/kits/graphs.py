"""Graphs of models for tests, and the matmul FLOPs they add up to, without what is recomputed."""

from phaze_opt.graph.build import build_model_graph
from phaze_opt.graph.layer import LayerGraph
from phaze_opt.graph.model_graph import ModelGraph
from phaze_opt.graph.operator import Operator, OperatorGraph, OperatorKind, Phase, ShardingOptions
from phaze_opt.workload.config import load_model
from phaze_opt.workload.model import ModelSpec
from phaze_opt.workload.software import FusionLevel
from phaze_opt.workload.training import TrainingSpec


def graph_of(
    model: ModelSpec | str,
    t: int = 1,
    *,
    batch: int = 1,
    tokens: int = 512,
    fusion: FusionLevel = FusionLevel.EPILOGUE,
    options: ShardingOptions | None = None,
    **training: object,
) -> ModelGraph:
    """A model, or one of the zoo by name, on one of ``t`` devices."""
    model = load_model(model) if isinstance(model, str) else model
    spec = TrainingSpec(batch, tokens, 8, **training)
    return build_model_graph(model, spec, tensor_parallel=t, fusion=fusion, options=options or ShardingOptions())


def shapes_of(graph: OperatorGraph) -> dict[str, tuple[int, int, int]]:
    """(m, n, k) of every operator that is one product, by the name of what it starts with."""
    single = {op.name.split("+")[0]: op.matmuls[0] for op in graph.operators if len(op.matmuls) == 1}
    return {name: (shape.m, shape.n, shape.k) for name, shape in single.items()}


def recomputed_macs(operator: Operator) -> int:
    """Multiply-accumulates that repeat earlier ones: fused attention's backward computes the scores again, first."""
    is_fused_backward = operator.kind is OperatorKind.ATTENTION and operator.phase is Phase.BACKWARD
    return operator.matmuls[0].macs if is_fused_backward else 0


def layer_model_flops(layer: LayerGraph) -> int:
    """Matmul FLOPs of one layer's forward and backward on one device, without what is recomputed."""
    return sum(
        operator.matmul_flops - 2 * recomputed_macs(operator)
        for graph in (layer.forward, layer.backward)
        for operator in graph.operators
    )


def graph_model_flops(graph: ModelGraph) -> int:
    """Matmul FLOPs of one micro-batch on one device, without what is recomputed."""
    of_layer = [layer_model_flops(layer) for layer in graph.layers]
    return sum(of_layer[index] for index in graph.chain)
