"""The MLP half of a block: dense, or a mixture of experts.

The dense MLP is column-parallel up and row-parallel down. Experts are sharded over the tensor-parallel group or over
devices of the stage: every device routes its own share of the tokens, sends each to its experts by all-to-all, runs its
experts, and gets the results back by a second all-to-all. The load is balanced (rounded up) unless the training states
that of the fullest device, or a capacity of the experts (`TrainingSpec.expert_load`). One device communicates nothing.

Over devices of the stage (`ShardingOptions.expert`) a tensor group, or parts of it (`ShardingOptions.expert_tensor`),
shares its experts by channels: its devices gather the tokens that arrived at each and scatter the sums, between the two
all-to-alls, as Megatron-LM does. Parts of one device hold whole experts: there is nothing to gather.

The share of a device is its sequence shard. Without sequence parallelism it keeps as many of its group's tokens, and
the group gathers the results. DeepSpeed drops duplicates likewise, behind the router (Singh et al. 2023); Megatron-LM
refuses to train so.
"""

from dataclasses import dataclass, replace

from phaze_opt.graph import operations as ops
from phaze_opt.graph.attention import is_attention_core
from phaze_opt.graph.operations import Elementwise
from phaze_opt.graph.operator import CollectiveGroup, CollectiveKind, Matmul, Operator, OperatorKind
from phaze_opt.graph.program import Tape, Tensor
from phaze_opt.graph.sharding import Sharding
from phaze_opt.workload.block_spec import ExpertsSpec, MlpSpec


def record_mlp(tape: Tape, sharding: Sharding, spec: MlpSpec, entered: Tensor, *, prefix: str = "mlp") -> Tensor:
    """From the (gathered) input of the MLP to its output before the row-parallel reduction."""
    shape = Matmul(1, m=sharding.tokens, n=spec.width // sharding.degree, k=spec.hidden_size)
    return _record_feed_forward(tape, sharding, spec, entered, shape=shape, prefix=prefix)


def activation_rule(sharding: Sharding, *, has_relu: bool) -> Elementwise:
    """An activation that is not gated."""
    if not has_relu:
        return ops.SMOOTH_ACTIVATION
    return ops.PUBLISHED_RELU if sharding.options.is_published else ops.RELU


def _record_feed_forward(
    tape: Tape, sharding: Sharding, spec: MlpSpec, entered: Tensor, *, shape: Matmul, prefix: str
) -> Tensor:
    """An MLP of the first product's ``shape``; experts are a batch of them."""
    parts = _record_up(tape, spec, entered, shape=shape, prefix=prefix)
    rule = ops.GATED_ACTIVATION if spec.is_gated else activation_rule(sharding, has_relu=spec.has_relu)
    active = ops.elementwise(tape, f"{prefix}_activation", parts, rule)
    if spec.has_dropout:
        active = ops.dropout(tape, f"{prefix}_inner_dropout", active)
    name, width = f"{prefix}_down", spec.hidden_size
    return ops.linear(tape, name, active, rows=shape.m, inner=shape.n, width=width, batch=shape.batch)


def _record_up(tape: Tape, spec: MlpSpec, entered: Tensor, *, shape: Matmul, prefix: str) -> list[Tensor]:
    """The matmuls into the MLP, with their biases: one, or one for the gate besides, which may be one together."""
    names = [f"{prefix}_gate", f"{prefix}_up"] if spec.is_gated else [f"{prefix}_up"]
    columns = shape.batch * shape.n
    if not spec.is_gate_combined:
        rows, inner, batch = shape.m, shape.k, shape.batch
        return [
            ops.linear(tape, name, entered, rows=rows, inner=inner, width=shape.n, batch=batch, has_bias=spec.has_bias)
            for name in names
        ]
    name, combined = f"{prefix}_gate_up", replace(shape, n=len(names) * shape.n)
    weight = tape.weight(f"{name}.weight", len(names) * columns * shape.k)
    outputs = dict.fromkeys(names, columns * shape.m)
    parts = ops.split_matmul(tape, name, entered, weight, shape=combined, outputs=outputs)
    return ops.bias(tape, f"{name}_bias", parts, size=len(names) * columns) if spec.has_bias else parts


def record_experts(tape: Tape, sharding: Sharding, spec: ExpertsSpec, normed: Tensor) -> Tensor:
    """From the normalised input, as one device holds it outside the regions, to the output held likewise."""
    routed = _record_routed(tape, sharding, spec, normed)
    if spec.shared is None:
        return routed
    hidden = spec.hidden_size
    inner = sharding.enter(tape, "shared_enter", normed, channels=hidden)
    inner = record_mlp(tape, sharding, spec.shared, inner, prefix="shared")
    inner = sharding.leave(tape, "shared_leave", inner, channels=hidden)
    if spec.shared.has_bias:
        inner = ops.bias(tape, "shared_output_bias", (inner,), size=hidden)[0]
    return ops.add(tape, "experts_sum", routed, inner)


def is_expert_product(operator: Operator) -> bool:
    """Whether an operator is a product of each of several experts of a device."""
    products = operator.matmuls if operator.kind is OperatorKind.MATMUL else ()
    is_many = any(each.batch > 1 and not each.is_grouped for each in products)
    return is_many and not is_attention_core(operator.name)


def is_permutation(operator: Operator) -> bool:
    """Whether an operator sorts tokens by expert or adds results up by token, forward or backward."""
    first = operator.name.partition("+")[0].partition(".")[0]
    return operator.kind is OperatorKind.VECTOR and first.rstrip("_0123456789") in _PERMUTATIONS


def num_launches(operator: Operator) -> int:
    """Kernels that an operator is where software starts those of experts one by one; 0 of an operator of no experts."""
    if is_permutation(operator):
        return 1
    return sum(each.batch for each in operator.matmuls) if is_expert_product(operator) else 0


DISPATCH, COMBINE = "dispatch", "combine"
_PERMUTATIONS = frozenset({DISPATCH, COMBINE})


def _record_routed(tape: Tape, sharding: Sharding, spec: ExpertsSpec, normed: Tensor) -> Tensor:
    """What the experts that a token is routed to give."""
    hidden = spec.hidden_size
    is_replicated = sharding.degree > 1 and not sharding.has_sequence_shards
    rows = sharding.split(sharding.tokens)
    own = normed
    if is_replicated:
        own = ops.view(tape, "own_tokens", normed, elements=rows * hidden, adjoint=CollectiveKind.ALL_GATHER)
    probabilities = _record_router(tape, spec, own, rows=rows)
    copies = rows * spec.num_active
    share = ExpertShare.of(
        sharding, num_experts=spec.num_experts, width=spec.expert.width, copies=sharding.tokens * spec.num_active
    )
    size = copies * hidden
    num_sent = share.num_sent(copies)
    sent = ops.elementwise(tape, DISPATCH, (own,), ops.COPY, elements=num_sent * hidden, work_elements=size)
    done = _record_share(tape, sharding, spec, sent, share)
    back = share.send_back(tape, done, elements=size)
    combined = ops.elementwise(
        tape, COMBINE, (back, probabilities), ops.WEIGHTED_SUM, elements=rows * hidden, work_elements=size
    )
    if is_replicated:
        return ops.gather_columns(tape, "gather_tokens", combined, elements=sharding.tokens * hidden)
    return combined


def _record_router(tape: Tape, spec: ExpertsSpec, own: Tensor, *, rows: int) -> Tensor:
    """Router matmul and softmax over the experts."""
    inner, width = spec.hidden_size, spec.num_experts
    logits = ops.linear(tape, "router", own, rows=rows, inner=inner, width=width, has_bias=spec.has_router_bias)
    return ops.elementwise(tape, "router_softmax", (logits,), ops.SOFTMAX)


@dataclass(frozen=True, slots=True)
class ExpertShare:
    """What one device does of the experts of a layer.

    Attributes:
        batch: its experts.
        load: tokens of each, balanced and rounded up.
        width: channels of each that it has.
        group: with whom tokens are exchanged.
        is_exchanged: whether that group has more than one device.
        num_splits: devices that share these experts by channels.
        splitters: these devices.
        has_regather: whether backward gathers again what these devices gathered.
        suffix: of the names of its exchanges, where a layer has several mixtures.
    """

    batch: int
    load: int
    width: int
    group: CollectiveGroup
    is_exchanged: bool
    num_splits: int
    splitters: CollectiveGroup = CollectiveGroup.TENSOR
    has_regather: bool = False
    suffix: str = ""

    @classmethod
    def of(cls, sharding: Sharding, *, num_experts: int, width: int, copies: int) -> "ExpertShare":
        """Over the tensor group, or over devices of the stage if the options say so.

        Args:
            sharding: degrees and training.
            num_experts: of the layer.
            width: channels of an expert.
            copies: tokens of a tensor group, each as often as it is sent.
        """
        degree, options = sharding.degree, sharding.options
        if options.expert is None:
            load = sharding.training.loaded(-(-copies // num_experts))
            return cls(num_experts // degree, load, width, CollectiveGroup.TENSOR, degree > 1, 1)
        expert, splits = options.expert, options.expert_tensor or degree
        # All devices that exchange or split route 1/degree of their group's tokens each.
        load = sharding.training.loaded(-(-expert * splits * copies // (degree * num_experts)))
        splitters = CollectiveGroup.TENSOR if splits == degree else CollectiveGroup.EXPERT_TENSOR
        group, is_exchanged = CollectiveGroup.EXPERT, expert > 1
        batch, own_width = num_experts // expert, width // splits
        return cls(batch, load, own_width, group, is_exchanged, splits, splitters, options.has_regathers)

    @property
    def is_split(self) -> bool:
        """Whether several devices share the experts by channels."""
        return self.num_splits > 1

    @property
    def rows(self) -> int:
        """Tokens of all of its experts."""
        return self.batch * self.load

    @property
    def own_rows(self) -> int:
        """Those of them that one device of a group that splits the experts has outside of them."""
        return -(-self.rows // self.num_splits)

    def num_sent(self, copies: int) -> int:
        """Rows that a dispatch of so many fills: on one device the experts' padded buffers themselves."""
        return copies if self.is_exchanged or self.is_split else self.rows

    def arrive(self, tape: Tape, sent: Tensor, *, hidden: int) -> Tensor:
        """From the tokens that this device sends to those that its experts get."""
        arrived = self._exchange(tape, f"{DISPATCH}_all_to_all{self.suffix}", sent, elements=self.own_rows * hidden)
        if not self.is_split:
            return arrived
        return ops.collective(
            tape,
            f"experts_gather{self.suffix}",
            arrived,
            kind=CollectiveKind.ALL_GATHER,
            elements=self.rows * hidden,
            group=self.splitters,
            has_regather=self.has_regather,
        )

    def add_up(self, tape: Tape, done: Tensor, *, hidden: int) -> Tensor:
        """The results of experts, summed over the devices that split them."""
        if not self.is_split:
            return done
        kind, elements = CollectiveKind.REDUCE_SCATTER, self.own_rows * hidden
        return ops.collective(
            tape, f"experts_scatter{self.suffix}", done, kind=kind, elements=elements, group=self.splitters
        )

    def send_back(self, tape: Tape, done: Tensor, *, elements: int) -> Tensor:
        """Results on the devices that sent the tokens."""
        return self._exchange(tape, f"{COMBINE}_all_to_all{self.suffix}", done, elements=elements)

    def _exchange(self, tape: Tape, name: str, tensor: Tensor, *, elements: int) -> Tensor:
        """All-to-all, if there is anyone to exchange with."""
        if not self.is_exchanged:
            return tensor
        return ops.collective(tape, name, tensor, kind=CollectiveKind.ALL_TO_ALL, elements=elements, group=self.group)


def _record_share(tape: Tape, sharding: Sharding, spec: ExpertsSpec, sent: Tensor, share: ExpertShare) -> Tensor:
    """From the tokens this device sends to the results that arrive for others, before they are sent back."""
    hidden = spec.hidden_size
    arrived = share.arrive(tape, sent, hidden=hidden)
    tape.is_in_experts = True
    expert = replace(spec.expert, is_gate_combined=False) if sharding.options.is_published else spec.expert
    shape = Matmul(share.batch, m=share.load, n=share.width, k=hidden)
    done = _record_feed_forward(tape, sharding, expert, arrived, shape=shape, prefix="mlp")
    done = share.add_up(tape, done, hidden=hidden)
    if spec.expert.has_bias:
        done = ops.bias(tape, "experts_output_bias", (done,), size=share.batch * hidden)[0]
    tape.is_in_experts = False
    return done
