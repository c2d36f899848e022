"""One transformer block, pre-norm or post-norm."""

from phaze_opt.graph import operations as ops
from phaze_opt.graph.attention import record_attention
from phaze_opt.graph.mlp import record_experts, record_mlp
from phaze_opt.graph.program import Program, Tape, Tensor
from phaze_opt.graph.sharding import Sharding


def record_block(sharding: Sharding) -> Program:
    """Forward and backward of one block on one device."""
    model = sharding.model
    tape = Tape(dtype_bytes=sharding.training.dtype_bytes)
    start = tape.tensor("block_input", sharding.outside_tokens * model.hidden_size)
    middle = _record_half(tape, sharding, start, half="attention")
    end = _record_half(tape, sharding, middle, half="mlp")
    tape.run_backward(end)
    outputs = (end, tape.gradient(start))
    return Program(
        "block", tape.nodes, start, outputs, end.num_bytes, tape.num_parameters, 0, tape.num_expert_parameters
    )


def record_norm(tape: Tape, sharding: Sharding, name: str, tensor: Tensor) -> Tensor:
    """Normalise over the hidden size."""
    count = sharding.model.norm_parameters
    weights = (tape.weight(f"{name}.weight", count),) if count else ()
    return ops.elementwise(tape, name, (tensor,), ops.NORM, weights=weights)


def _record_half(tape: Tape, sharding: Sharding, start: Tensor, *, half: str) -> Tensor:
    """Norm, attention or MLP, residual; post-norm models normalise last."""
    model, is_attention = sharding.model, half == "attention"
    norm = f"{half}_norm"
    inner = record_norm(tape, sharding, norm, start) if model.is_pre_norm else start
    if model.has_experts and not is_attention:
        inner = record_experts(tape, sharding, inner)
    else:
        inner = sharding.enter(tape, f"{half}_enter", inner, channels=model.hidden_size)
        inner = record_attention(tape, sharding, inner) if is_attention else record_mlp(tape, sharding, inner)
        inner = sharding.leave(tape, f"{half}_leave", inner, channels=model.hidden_size)
        # The bias of a row-parallel matmul comes after the reduction, else every device would add it.
        has_bias = model.has_attention_output_bias if is_attention else model.has_mlp_bias
        if has_bias:
            inner = ops.bias(tape, f"{half}_output_bias", (inner,), size=model.hidden_size)[0]
    if model.has_hidden_dropout:
        inner = ops.dropout(tape, f"{half}_dropout", inner)
    end = ops.add(tape, f"{half}_residual", inner, start)
    return end if model.is_pre_norm else record_norm(tape, sharding, norm, end)
