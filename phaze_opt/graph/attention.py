"""The attention of a block: query, key, value; scores, fused or not; output projection.

A query meets all keys of the sequence, or those of its window or chunk, where it is shorter: every query counts with as
many, as no causal mask halves the products either. Queries that meet the same keys are rows of one product.
"""

from dataclasses import dataclass

from phaze_opt.graph import operations as ops
from phaze_opt.graph.operator import CollectiveGroup, CollectiveKind, Matmul, VectorKind, VectorWork
from phaze_opt.graph.program import Tape, Tensor, TensorRole
from phaze_opt.graph.projections import Queried, record_projections
from phaze_opt.graph.sharding import Sharding
from phaze_opt.workload.block_spec import AttentionSpec, ScoreBias
from phaze_opt.workload.training import AttentionForm

SCORES, SOFTMAX, SOFTMAX_DROPOUT, CONTEXT = "scores", "softmax", "softmax_dropout", "context"
SOFT_CAP, POSITION_BIAS = "soft_cap", "position_bias"
FUSED_ATTENTION = "attention"
_CORE = frozenset({SCORES, SOFT_CAP, POSITION_BIAS, SOFTMAX, SOFTMAX_DROPOUT, CONTEXT, FUSED_ATTENTION})
"""The attention core: what selective recomputation runs again (Korthikanti et al. 2022, section 5).

Scores, softmax, its dropout and the context product, or fused attention as a whole. Query, key, value and the context
stay in memory, so that only tensors inside the core are dropped."""


def is_attention_core(name: str) -> bool:
    """Whether an operator or node of a block, forward or backward, computes a part of the attention core.

    No forward operator mixes the core with anything else, whatever is fused; a backward product may take the gradient
    of a rotary position as its epilogue.
    """
    return any(part.partition(".")[0].removeprefix(CROSS) in _CORE for part in name.split("+"))


CROSS = "cross_"
"""What names of operators of an attention to the encoder begin with."""


def record_attention(
    tape: Tape, sharding: Sharding, spec: AttentionSpec, entering: Tensor, *, source: Tensor | None = None
) -> Tensor:
    """From the input of the attention to its output before the row-parallel reduction.

    Args:
        tape: what records it.
        sharding: of the queries' sequence.
        spec: the attention.
        entering: its input, gathered; for latent projections as one device holds it.
        source: the encoder's output, gathered, which cross-attention reads.
    """
    prefix = CROSS if spec.is_cross else ""
    queried = record_projections(tape, sharding, spec, entering, source=source)
    if sharding.options.context > 1:
        queried = _pass_round_keys(tape, sharding, queried, prefix)
    extras = _record_extras(tape, sharding, spec, prefix)
    record = _record_fused if sharding.training.attention is AttentionForm.FUSED else _record_unfused
    context = record(tape, sharding, spec, queried, extras)
    width = spec.context_size // sharding.degree
    name = f"{prefix}attention_output"
    return ops.linear(tape, name, context, rows=sharding.tokens, inner=width, width=spec.hidden_size)


def _pass_round_keys(tape: Tape, sharding: Sharding, queried: Queried, prefix: str) -> Queried:
    """Keys and values of the whole sequence."""
    key = _pass_round(tape, sharding, f"{prefix}key_ring", queried.key)
    return Queried(queried.query, key, _pass_round(tape, sharding, f"{prefix}value_ring", queried.value))


def _pass_round(tape: Tape, sharding: Sharding, name: str, tensor: Tensor) -> Tensor:
    """Keys or values of the whole sequence: every shard's pass by every device, beside the attention they serve.

    The ring sends (c - 1) / c of them, as an all-gather does, again in backward, and their gradients likewise.
    """
    return ops.collective(
        tape,
        name,
        tensor,
        kind=CollectiveKind.ALL_GATHER,
        elements=tensor.elements * sharding.options.context,
        group=CollectiveGroup.CONTEXT,
        is_overlapped=True,
        has_regather=True,
    )


def _shapes(sharding: Sharding, spec: AttentionSpec) -> tuple[Matmul, Matmul]:
    """Scores and context products: the queries that share a key-value head are rows of one product.

    Where key-value heads are replicated, a device has one of them and a part of the queries that share it.
    """
    keys, kv_heads = sharding.num_keys(spec), sharding.num_kv_heads(spec)
    batch = sharding.training.micro_batch * kv_heads
    rows = sharding.own_sequence * (spec.num_heads // sharding.degree // kv_heads)
    scores = Matmul(batch, m=rows, n=keys, k=spec.head_size)
    context = Matmul(batch, m=rows, n=spec.value_size, k=keys)
    return scores, context


def _record_extras(tape: Tape, sharding: Sharding, spec: AttentionSpec, prefix: str) -> "_Extras":
    """What joins the scores besides queries and keys: a bias of positions, learned sinks."""
    heads = spec.num_heads // sharding.degree
    sinks = tape.weight(f"{prefix}sinks", heads) if spec.has_sinks else None
    if spec.score_bias is not ScoreBias.TABLE:
        return _Extras(None, sinks)
    elements = heads * sharding.own_sequence * sharding.num_keys(spec)
    name = f"{prefix}{POSITION_BIAS}"
    if not spec.num_table_rows:
        # Another layer looked it up: it is read like a weight, and its gradient is added up like one.
        return _Extras(Tensor(f"{name}_table", elements, tape.dtype_bytes, TensorRole.WEIGHT), sinks)
    table = tape.weight(f"{name}_table", heads * spec.num_table_rows)
    looked_up = ops.elementwise(
        tape, f"{name}_lookup", (), ops.LOOKUP, elements=elements, weights=(table,), is_differentiable=False
    )
    return _Extras(looked_up, sinks)


@dataclass(frozen=True, slots=True)
class _Extras:
    """Tensors that join the scores: a bias for every score, a sink for every head."""

    bias: Tensor | None
    sinks: Tensor | None

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """Those there are."""
        return tuple(each for each in (self.bias, self.sinks) if each is not None)


def _record_unfused(tape: Tape, sharding: Sharding, spec: AttentionSpec, queried: Queried, extras: _Extras) -> Tensor:
    """Scores, what joins them, softmax, dropout and context apart; probabilities are written and kept."""
    prefix = CROSS if spec.is_cross else ""
    scores_shape, context_shape = _shapes(sharding, spec)
    scores = ops.matmul(
        tape, f"{prefix}{SCORES}", queried.query, queried.key, shape=scores_shape, output=f"{prefix}scores"
    )
    if spec.has_soft_cap:
        scores = ops.elementwise(tape, f"{prefix}{SOFT_CAP}", (scores,), ops.SOFT_CAP)
    if spec.score_bias is ScoreBias.SLOPES:
        scores = ops.shift(tape, f"{prefix}{POSITION_BIAS}", scores)
    elif extras.bias is not None:
        scores = ops.add_shared(tape, f"{prefix}{POSITION_BIAS}", scores, extras.bias)
    sinks = () if extras.sinks is None else (extras.sinks,)
    probabilities = ops.elementwise(tape, f"{prefix}{SOFTMAX}", (scores,), ops.SOFTMAX, weights=sinks)
    if spec.has_dropout:
        probabilities = ops.dropout(tape, f"{prefix}{SOFTMAX_DROPOUT}", probabilities)
    name = f"{prefix}{CONTEXT}"
    return ops.matmul(tape, name, probabilities, queried.value, shape=context_shape, output=name)


def _record_fused(tape: Tape, sharding: Sharding, spec: AttentionSpec, queried: Queried, extras: _Extras) -> Tensor:
    """One operator each way; backward multiplies five times, as it computes the scores again first."""
    scores, context = _shapes(sharding, spec)
    forward, backward = _score_works(spec, scores.batch * scores.m * scores.n)
    return ops.attention(
        tape,
        f"{CROSS if spec.is_cross else ''}{FUSED_ATTENTION}",
        (queried.query, queried.key, queried.value, *extras.tensors),
        elements=context.batch * context.m * context.n,
        forward=((scores, context), forward),
        backward=((scores, *_adjoints(context), *_adjoints(scores)), backward),
    )


def _score_works(spec: AttentionSpec, elements: int) -> tuple[tuple[VectorWork, ...], tuple[VectorWork, ...]]:
    """Vector work on so many scores, forward and backward."""
    both: list[VectorWork] = []
    if spec.has_dropout:
        both.append(VectorWork(VectorKind.ADD, elements))
    forward, backward = [VectorWork(VectorKind.SOFTMAX_FORWARD, elements), *both], both.copy()
    backward.insert(0, VectorWork(VectorKind.SOFTMAX_BACKWARD, elements))
    if spec.score_bias is not ScoreBias.NONE:
        forward.append(VectorWork(VectorKind.ADD, elements))
    if spec.score_bias is ScoreBias.TABLE:
        backward.append(VectorWork(VectorKind.ADD, elements))
    if spec.has_soft_cap:
        forward += [VectorWork(kind, times * elements) for kind, times in ops.SOFT_CAP.forward.items()]
        backward += [VectorWork(kind, times * elements) for kind, times in ops.SOFT_CAP.backward.items()]
    return tuple(forward), tuple(backward)


def _adjoints(shape: Matmul) -> tuple[Matmul, Matmul]:
    """Products that give the gradients of the left and of the right operand."""
    left = Matmul(shape.batch, m=shape.m, n=shape.k, k=shape.n)
    right = Matmul(shape.batch, m=shape.k, n=shape.n, k=shape.m)
    return left, right
