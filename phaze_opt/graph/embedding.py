"""The layer before the blocks: vocabulary-parallel lookup, OPT's projection in, positions, token types, norm."""

from phaze_opt.graph import operations as ops
from phaze_opt.graph.block import record_norm
from phaze_opt.graph.operator import CollectiveKind
from phaze_opt.graph.program import Program, Tape, Tensor
from phaze_opt.graph.sharding import Sharding
from phaze_opt.workload.model import ModelFamily

TOKEN_ID_BYTES = 8
"""Token ids are 64-bit integers."""


def record_embedding(sharding: Sharding) -> Program:
    """Forward and backward of the embedding on one device."""
    model = sharding.model
    tape = Tape(dtype_bytes=sharding.training.dtype_bytes)
    ids = tape.tensor("token_ids", sharding.tokens, element_bytes=TOKEN_ID_BYTES)
    end = _record_lookup(tape, sharding, ids)
    if model.num_position_rows:
        size = model.num_position_rows * model.hidden_size
        num_read = min(sharding.own_sequence * model.hidden_size, size)
        end = ops.bias(tape, "positions", (end,), size=size, num_read=num_read)[0]
    if model.num_token_types:
        end = ops.bias(tape, "token_types", (end,), size=model.num_token_types * model.hidden_size)[0]
    if model.has_embedding_norm:
        end = record_norm(tape, sharding, "embedding_norm", end)
    if model.has_hidden_dropout and model.family is not ModelFamily.OPT:
        end = ops.dropout(tape, "embedding_dropout", end)
    tape.run_backward(end)
    return Program("embedding", tape.nodes, ids, (end,), end.num_bytes, tape.num_parameters, 0)


def _record_lookup(tape: Tape, sharding: Sharding, ids: Tensor) -> Tensor:
    """Rows of the token table that this device holds, reduced over the group, projected to the hidden size."""
    model, tokens, width = sharding.model, sharding.tokens, sharding.model.embedding_size
    table = tape.weight(
        "token_table", sharding.split(model.vocab_size) * width, num_read=sharding.split(tokens) * width
    )
    rows = ops.elementwise(
        tape, "lookup", (ids,), ops.LOOKUP, elements=tokens * width, weights=(table,), is_differentiable=False
    )
    if not model.has_embedding_projection:
        return sharding.leave(tape, "lookup_leave", rows, channels=model.hidden_size)
    own = width // sharding.degree
    if sharding.degree > 1:
        rows = ops.collective(tape, "lookup_scatter", rows, kind=CollectiveKind.REDUCE_SCATTER, elements=tokens * own)
    projected = ops.linear(tape, "project_in", rows, rows=tokens, inner=own, width=model.hidden_size)
    return sharding.leave(tape, "project_in_leave", projected, channels=model.hidden_size)
