"""Model FLOPs: what training one sample takes, whatever the sharding, fusion and recomputation (semantics 1 and 7)."""

from phaze_opt.graph.recorded import as_recorded
from phaze_opt.workload.block_spec import BlockSpec
from phaze_opt.workload.model import transformer_of
from phaze_opt.workload.model_classes import ENCODERS
from phaze_opt.workload.transformer import Stack, TransformerSpec
from phaze_opt.workload.workload import Workload


def model_flops(model: Workload, sequence_length: int) -> float:
    """Matmul FLOPs of forward and backward of one sample, attention in full (no causal halving).

    Of a plain transformer 6 x matmul weights + 12 x layers x query channels x sequence for each token, and 6 x the
    weights of the heads that run once a sequence. A query meets no more keys than its window has; keys and values of a
    cross-attention are made once a position of the encoder. Nothing needs the gradient of images and sound.
    """
    spec = transformer_of(model)
    if spec is None:
        return as_recorded(model).model_flops(sequence_length)
    source = 0 if spec.encoder is None else spec.encoder.length_beside(sequence_length)
    forward, unneeded = _stack_macs(spec.stack, sequence_length, source)
    if spec.encoder is not None:
        of_encoder = _stack_macs(spec.encoder.stack, source, 0)
        forward, unneeded = forward + of_encoder[0], unneeded + of_encoder[1]
    forward += sequence_length * spec.head.token_matmul_parameters
    return 2.0 * (3 * forward - unneeded) + sequence_head_flops(spec)


def sequence_head_flops(spec: TransformerSpec) -> float:
    """Matmul FLOPs of what runs once a sequence, such as BERT's pooler and next-sentence head, for one sample."""
    return 6.0 * spec.head.sequence_matmul_parameters


def unmasked_share(spec: TransformerSpec, sequence_length: int) -> float:
    """Share of the products of attention that no causal mask halves: encoders', and those across."""
    source = 0 if spec.encoder is None else spec.encoder.length_beside(sequence_length)
    of_encoder = () if spec.encoder is None else spec.encoder.stack.blocks
    unmasked = sum(each.attention.product_macs(source, each.attention.num_keys(source)) for each in of_encoder)
    total, is_encoder = unmasked, spec.family in ENCODERS
    for attention in (each for block in spec.stack.blocks for each in block.attentions):
        keys = source if attention.is_cross else sequence_length
        macs = attention.product_macs(sequence_length, attention.num_keys(keys))
        total, unmasked = total + macs, unmasked + macs * (attention.is_cross or is_encoder)
    return unmasked / total


def _stack_macs(stack: Stack, tokens: int, source: int) -> tuple[int, int]:
    """Multiply-accumulates forward, and those of the gradient of the input that backward spares."""
    by_kind = [_block_macs(kind, tokens, source) for kind in stack.kinds]
    front = stack.front
    return front.forward_macs(tokens) + sum(by_kind[index] for index in stack.pattern), front.input_macs(tokens)


def _block_macs(block: BlockSpec, tokens: int, source: int) -> int:
    """Multiply-accumulates of one block forward."""
    count = tokens * block.mlp.active_parameters
    for attention in block.attentions:
        others = source if attention.is_cross else tokens
        own = attention.matmul_parameters - attention.kv_parameters
        count += tokens * own + others * attention.kv_parameters
        count += attention.product_macs(tokens, attention.num_keys(others))
    return count
