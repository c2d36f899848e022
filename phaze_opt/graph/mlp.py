"""The MLP half of a block, dense: column-parallel up, row-parallel down."""

from __future__ import annotations

from phaze_opt.graph.operations import bias, elementwise, matmul
from phaze_opt.graph.operator import Matmul
from phaze_opt.graph.program import Tensor
from phaze_opt.graph.sharding import Sharding
from phaze_opt.graph.tape import Tape
from phaze_opt.graph.vector_rules import activation_rule, gated_activation_rule


def record_mlp(tape: Tape, sharding: Sharding, entered: Tensor) -> Tensor:
    """From the (gathered) input of the MLP to its output before the row-parallel reduction."""
    model = sharding.model
    width = model.ffn_size // sharding.degree
    return record_feed_forward(
        tape, sharding, entered, batch=1, rows=sharding.tokens, width=width, has_bias=model.has_mlp_bias
    )


def record_feed_forward(
    tape: Tape, sharding: Sharding, entered: Tensor, *, batch: int, rows: int, width: int, has_bias: bool
) -> Tensor:
    """``batch`` MLPs of ``width`` channels, each on ``rows`` tokens (experts are such a batch)."""
    hidden = sharding.model.hidden_size
    names = ("mlp_gate", "mlp_up") if sharding.model.is_mlp_gated else ("mlp_up",)
    shape = Matmul(batch, m=rows, n=width, k=hidden)
    parts = []
    for name in names:
        weight = tape.weight(f"{name}.weight", batch * hidden * width)
        part = matmul(tape, name, entered, weight, shape=shape, output=name)
        parts.append(bias(tape, f"{name}_bias", (part,), size=batch * width)[0] if has_bias else part)
    elements = batch * rows * width
    is_relu = sharding.model.has_relu
    rule = gated_activation_rule(elements) if len(parts) > 1 else activation_rule(elements, is_relu=is_relu)
    active = elementwise(tape, "mlp_activation", parts, elements=elements, rule=rule)
    weight = tape.weight("mlp_down.weight", batch * hidden * width)
    shape = Matmul(batch, m=rows, n=hidden, k=width)
    return matmul(tape, "mlp_down", active, weight, shape=shape, output="mlp_down")
