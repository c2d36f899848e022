"""Matmul FLOPs that graphs add up to, without what is recomputed: to compare with the closed form of `model_flops`."""

from phaze_opt.graph.layer import LayerGraph, ModelGraph
from phaze_opt.graph.operator import Operator, OperatorKind, Phase


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
