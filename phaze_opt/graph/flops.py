"""Model FLOPs: what training one sample takes, whatever the sharding, fusion and recomputation (semantics 1 and 7)."""

from phaze_opt.graph.recorded import as_recorded
from phaze_opt.workload.model import NEXT_SENTENCE_CLASSES, ModelSpec
from phaze_opt.workload.workload import Workload


def model_flops(model: Workload, sequence_length: int) -> float:
    """Matmul FLOPs of forward and backward of one sample, attention in full (no causal halving).

    Of a transformer 6 x matmul weights + 12 x layers x query channels x sequence for each token, and 6 x the weights of
    the heads that run once a sequence. Query channels are the hidden size for most models.
    """
    if not isinstance(model, ModelSpec):
        return as_recorded(model).model_flops(sequence_length)
    weights = 6.0 * model.matmul_parameters * sequence_length
    attention = 12.0 * model.num_layers * model.query_size * sequence_length**2
    return weights + attention + sequence_head_flops(model)


def sequence_head_flops(model: ModelSpec) -> float:
    """Matmul FLOPs of BERT's pooler and next-sentence head for one sample."""
    if not model.has_pretraining_heads:
        return 0.0
    return 6.0 * model.hidden_size * (model.hidden_size + NEXT_SENTENCE_CLASSES)
