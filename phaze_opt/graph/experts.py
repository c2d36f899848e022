"""The MLP half of a block as a mixture of experts, sharded over the tensor-parallel group or over replicas.

Every device routes its own share of the tokens, sends each to its experts by all-to-all, runs its experts on a balanced
load (rounded up), and gets the results back by a second all-to-all. One device communicates nothing.

Over replicas (`ShardingOptions.expert`) a tensor group shares its experts by channels: its devices gather the tokens
that arrived at each and scatter the sums, between the two all-to-alls, as Megatron-LM does.
"""

from __future__ import annotations

from dataclasses import dataclass

from phaze_opt.graph.mlp import record_feed_forward
from phaze_opt.graph.operations import elementwise, matmul
from phaze_opt.graph.operator import CollectiveGroup, CollectiveKind, Matmul
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
    share = _Share.of(sharding)
    # On one device dispatch fills the experts' padded buffers itself.
    num_sent = copies if share.is_exchanged or share.is_split else share.batch * share.load
    rule = copy_rule(copies * hidden)
    sent = elementwise(tape, "dispatch", (own,), elements=num_sent * hidden, rule=rule)
    done = _record_share(tape, sharding, sent, share)
    back = share.exchange(tape, "combine_all_to_all", done, elements=copies * hidden)
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


@dataclass(frozen=True, slots=True)
class _Share:
    """What one device does of the experts.

    Attributes:
        batch: its experts.
        load: tokens of each, balanced and rounded up.
        width: channels of each that it has.
        group: with whom tokens are exchanged.
        is_exchanged: whether that group has more than one device.
        is_split: whether the tensor group shares the experts by channels.
    """

    batch: int
    load: int
    width: int
    group: CollectiveGroup
    is_exchanged: bool
    is_split: bool

    @classmethod
    def of(cls, sharding: Sharding) -> _Share:
        """Over the tensor group, or over replicas if the options say so."""
        model, degree, expert = sharding.model, sharding.degree, sharding.options.expert
        copies = sharding.tokens * model.num_active_experts
        if expert is None:
            load = -(-copies // model.num_experts)
            return cls(model.num_experts // degree, load, model.ffn_size, CollectiveGroup.TENSOR, degree > 1, False)
        load = -(-expert * copies // model.num_experts)
        batch, width = model.num_experts // expert, model.ffn_size // degree
        return cls(batch, load, width, CollectiveGroup.EXPERT, expert > 1, degree > 1)

    def exchange(self, tape: Tape, name: str, tensor: Tensor, *, elements: int) -> Tensor:
        """All-to-all, if there is anyone to exchange with."""
        if not self.is_exchanged:
            return tensor
        return collective(tape, name, tensor, kind=CollectiveKind.ALL_TO_ALL, elements=elements, group=self.group)


def _record_share(tape: Tape, sharding: Sharding, sent: Tensor, share: _Share) -> Tensor:
    """From the tokens this device sends to the results that arrive for others, before they are sent back."""
    model, hidden = sharding.model, sharding.model.hidden_size
    rows = share.batch * share.load
    own = sharding.split(rows) if share.is_split else rows
    arrived = share.exchange(tape, "dispatch_all_to_all", sent, elements=own * hidden)
    if share.is_split:
        kind, again = CollectiveKind.ALL_GATHER, sharding.options.has_regathers
        arrived = collective(tape, "experts_gather", arrived, kind=kind, elements=rows * hidden, has_regather=again)
    shared = tape.num_parameters
    done = record_feed_forward(
        tape, sharding, arrived, batch=share.batch, rows=share.load, width=share.width, has_bias=model.has_mlp_bias
    )
    tape.count_experts(tape.num_parameters - shared)
    if not share.is_split:
        return done
    return collective(tape, "experts_scatter", done, kind=CollectiveKind.REDUCE_SCATTER, elements=own * hidden)
