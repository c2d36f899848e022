"""Model FLOPs: what training one sample takes, whatever the sharding, fusion and recomputation (semantics 1 and 7)."""

from __future__ import annotations

from phaze_opt.graph.layer import LayerGraph, ModelGraph
from phaze_opt.graph.operator import Operator, OperatorKind, Phase
from phaze_opt.workload.model import NEXT_SENTENCE_CLASSES, ModelSpec


def model_flops(model: ModelSpec, sequence_length: int) -> float:
    """Matmul FLOPs of forward and backward of one sample, attention in full (no causal halving).

    6 x matmul weights + 12 x layers x query channels x sequence for each token, and 6 x the weights of the heads that
    run once a sequence. Query channels are the hidden size for most models.
    """
    weights = 6.0 * model.matmul_parameters * sequence_length
    attention = 12.0 * model.num_layers * model.query_size * sequence_length**2
    return weights + attention + sequence_head_flops(model)


def sequence_head_flops(model: ModelSpec) -> float:
    """Matmul FLOPs of BERT's pooler and next-sentence head for one sample."""
    if not model.has_pretraining_heads:
        return 0.0
    return 6.0 * model.hidden_size * (model.hidden_size + NEXT_SENTENCE_CLASSES)


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
