"""The MLP half of a block as a mixture of experts, the experts sharded over the tensor-parallel group.

Every device routes its own share of the tokens, sends each to its experts by all-to-all, runs its experts on a balanced
load (rounded up), and gets the results back by a second all-to-all. One device communicates nothing.
"""

from __future__ import annotations

from phaze_opt.graph.mlp import record_feed_forward
from phaze_opt.graph.operations import elementwise, matmul
from phaze_opt.graph.operator import CollectiveKind, Matmul
from phaze_opt.graph.program import Tensor
from phaze_opt.graph.regions import collective, gather_columns, view
from phaze_opt.graph.sharding import Sharding
from phaze_opt.graph.tape import Tape
from phaze_opt.graph.vector_rules import copy_rule, softmax_rule, weighted_sum_rule


def record_experts(tape: Tape, sharding: Sharding, normed: Tensor) -> Tensor:
    """From the normalised input, as one device holds it outside the regions, to the output held likewise."""
    model, hidden = sharding.model, sharding.model.hidden_size
    is_replicated = sharding.degree > 1 and not sharding.has_sequence_shards
    rows = sharding.split(sharding.tokens)
    own = normed
    if is_replicated:
        own = view(tape, "own_tokens", normed, elements=rows * hidden, adjoint=CollectiveKind.ALL_GATHER)
    probabilities = _record_router(tape, sharding, own, rows=rows)
    copies = rows * model.num_active_experts
    load = -(-sharding.tokens * model.num_active_experts // model.num_experts)
    batch = model.num_experts // sharding.degree
    # On one device dispatch fills the experts' padded buffers itself.
    num_sent = copies if sharding.degree > 1 else batch * load
    rule = copy_rule(copies * hidden)
    sent = elementwise(tape, "dispatch", (own,), elements=num_sent * hidden, rule=rule)
    arrived = _exchange(tape, sharding, "dispatch_all_to_all", sent, elements=batch * load * hidden)
    shared = tape.num_parameters
    done = record_feed_forward(
        tape, sharding, arrived, batch=batch, rows=load, width=model.ffn_size, has_bias=model.has_mlp_bias
    )
    tape.count_experts(tape.num_parameters - shared)
    back = _exchange(tape, sharding, "combine_all_to_all", done, elements=copies * hidden)
    rule = weighted_sum_rule(copies * hidden)
    combined = elementwise(tape, "combine", (back, probabilities), elements=rows * hidden, rule=rule)
    if is_replicated:
        return gather_columns(tape, "gather_tokens", combined, elements=sharding.tokens * hidden)
    return combined


def _record_router(tape: Tape, sharding: Sharding, own: Tensor, *, rows: int) -> Tensor:
    """Router matmul and softmax over the experts."""
    model = sharding.model
    weight = tape.weight("router.weight", model.router_parameters)
    shape = Matmul(1, m=rows, n=model.num_experts, k=model.hidden_size)
    logits = matmul(tape, "router", own, weight, shape=shape, output="router")
    rule = softmax_rule(logits.elements)
    return elementwise(tape, "router_softmax", (logits,), elements=logits.elements, rule=rule)


def _exchange(tape: Tape, sharding: Sharding, name: str, tensor: Tensor, *, elements: int) -> Tensor:
    if sharding.degree == 1:
        return tensor
    return collective(tape, name, tensor, kind=CollectiveKind.ALL_TO_ALL, elements=elements)
