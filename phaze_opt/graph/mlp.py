"""The MLP half of a block: dense, or a mixture of experts.

The dense MLP is column-parallel up and row-parallel down. Experts are sharded over the tensor-parallel group or over
devices of the stage: every device routes its own share of the tokens, sends each to its experts by all-to-all, runs its
experts on a balanced load (rounded up), and gets the results back by a second all-to-all. One device communicates
nothing.

Over devices of the stage (`ShardingOptions.expert`) a tensor group, or parts of it (`ShardingOptions.expert_tensor`),
shares its experts by channels: its devices gather the tokens that arrived at each and scatter the sums, between the two
all-to-alls, as Megatron-LM does. Parts of one device hold whole experts: there is nothing to gather.

The share of a device is its sequence shard. Without sequence parallelism it keeps as many of its group's tokens, and
the group gathers the results. DeepSpeed drops duplicates likewise, behind the router (Singh et al. 2023); Megatron-LM
refuses to train so.
"""

from dataclasses import dataclass

from phaze_opt.graph import operations as ops
from phaze_opt.graph.operator import CollectiveGroup, CollectiveKind
from phaze_opt.graph.program import Tape, Tensor
from phaze_opt.graph.sharding import Sharding


def record_mlp(tape: Tape, sharding: Sharding, entered: Tensor) -> Tensor:
    """From the (gathered) input of the MLP to its output before the row-parallel reduction."""
    width = sharding.model.ffn_size // sharding.degree
    return _record_feed_forward(tape, sharding, entered, batch=1, rows=sharding.tokens, width=width)


def _record_feed_forward(
    tape: Tape, sharding: Sharding, entered: Tensor, *, batch: int, rows: int, width: int
) -> Tensor:
    """``batch`` MLPs of ``width`` channels, each on ``rows`` tokens (experts are such a batch)."""
    model, hidden = sharding.model, sharding.model.hidden_size
    names = ("mlp_gate", "mlp_up") if model.is_mlp_gated else ("mlp_up",)
    parts = [
        ops.linear(tape, name, entered, rows=rows, inner=hidden, width=width, batch=batch, has_bias=model.has_mlp_bias)
        for name in names
    ]
    activation = ops.RELU if model.has_relu else ops.SMOOTH_ACTIVATION
    active = ops.elementwise(tape, "mlp_activation", parts, ops.GATED_ACTIVATION if len(parts) > 1 else activation)
    return ops.linear(tape, "mlp_down", active, rows=rows, inner=width, width=hidden, batch=batch)


def record_experts(tape: Tape, sharding: Sharding, normed: Tensor) -> Tensor:
    """From the normalised input, as one device holds it outside the regions, to the output held likewise."""
    model, hidden = sharding.model, sharding.model.hidden_size
    is_replicated = sharding.degree > 1 and not sharding.has_sequence_shards
    rows = sharding.split(sharding.tokens)
    own = normed
    if is_replicated:
        own = ops.view(tape, "own_tokens", normed, elements=rows * hidden, adjoint=CollectiveKind.ALL_GATHER)
    probabilities = _record_router(tape, sharding, own, rows=rows)
    copies = rows * model.num_active_experts
    share = _Share.of(sharding)
    # On one device dispatch fills the experts' padded buffers itself.
    num_sent = copies if share.is_exchanged or share.is_split else share.batch * share.load
    size = copies * hidden
    sent = ops.elementwise(tape, "dispatch", (own,), ops.COPY, elements=num_sent * hidden, work_elements=size)
    done = _record_share(tape, sharding, sent, share)
    back = share.exchange(tape, "combine_all_to_all", done, elements=size)
    combined = ops.elementwise(
        tape, "combine", (back, probabilities), ops.WEIGHTED_SUM, elements=rows * hidden, work_elements=size
    )
    if is_replicated:
        return ops.gather_columns(tape, "gather_tokens", combined, elements=sharding.tokens * hidden)
    return combined


def _record_router(tape: Tape, sharding: Sharding, own: Tensor, *, rows: int) -> Tensor:
    """Router matmul and softmax over the experts."""
    model = sharding.model
    logits = ops.linear(tape, "router", own, rows=rows, inner=model.hidden_size, width=model.num_experts)
    return ops.elementwise(tape, "router_softmax", (logits,), ops.SOFTMAX)


@dataclass(frozen=True, slots=True)
class _Share:
    """What one device does of the experts.

    Attributes:
        batch: its experts.
        load: tokens of each, balanced and rounded up.
        width: channels of each that it has.
        group: with whom tokens are exchanged.
        is_exchanged: whether that group has more than one device.
        num_splits: devices that share these experts by channels.
        splitters: these devices.
    """

    batch: int
    load: int
    width: int
    group: CollectiveGroup
    is_exchanged: bool
    num_splits: int
    splitters: CollectiveGroup = CollectiveGroup.TENSOR

    @classmethod
    def of(cls, sharding: Sharding) -> "_Share":
        """Over the tensor group, or over devices of the stage if the options say so."""
        model, degree, expert = sharding.model, sharding.degree, sharding.options.expert
        copies = sharding.tokens * model.num_active_experts
        if expert is None:
            load = -(-copies // model.num_experts)
            return cls(model.num_experts // degree, load, model.ffn_size, CollectiveGroup.TENSOR, degree > 1, 1)
        splits = sharding.options.expert_tensor or degree
        # All devices that exchange or split route 1/degree of their group's tokens each.
        load = -(-expert * splits * copies // (degree * model.num_experts))
        batch, width = model.num_experts // expert, model.ffn_size // splits
        splitters = CollectiveGroup.TENSOR if splits == degree else CollectiveGroup.EXPERT_TENSOR
        return cls(batch, load, width, CollectiveGroup.EXPERT, expert > 1, splits, splitters)

    @property
    def is_split(self) -> bool:
        """Whether several devices share the experts by channels."""
        return self.num_splits > 1

    def exchange(self, tape: Tape, name: str, tensor: Tensor, *, elements: int) -> Tensor:
        """All-to-all, if there is anyone to exchange with."""
        if not self.is_exchanged:
            return tensor
        return ops.collective(tape, name, tensor, kind=CollectiveKind.ALL_TO_ALL, elements=elements, group=self.group)


def _record_share(tape: Tape, sharding: Sharding, sent: Tensor, share: _Share) -> Tensor:
    """From the tokens this device sends to the results that arrive for others, before they are sent back."""
    hidden = sharding.model.hidden_size
    rows = share.batch * share.load
    own = -(-rows // share.num_splits)
    arrived = share.exchange(tape, "dispatch_all_to_all", sent, elements=own * hidden)
    if share.is_split:
        arrived = ops.collective(
            tape,
            "experts_gather",
            arrived,
            kind=CollectiveKind.ALL_GATHER,
            elements=rows * hidden,
            group=share.splitters,
            has_regather=sharding.options.has_regathers,
        )
    shared = tape.num_parameters
    done = _record_feed_forward(tape, sharding, arrived, batch=share.batch, rows=share.load, width=share.width)
    tape.num_expert_parameters += tape.num_parameters - shared
    if not share.is_split:
        return done
    kind, group = CollectiveKind.REDUCE_SCATTER, share.splitters
    return ops.collective(tape, "experts_scatter", done, kind=kind, elements=own * hidden, group=group)
