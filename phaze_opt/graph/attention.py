"""The attention of a block: query, key, value; scores, fused or not; output projection.

A query meets all keys of the sequence, or those of its window or chunk, where it is shorter: every query counts with as
many, as no causal mask halves the products either. Queries that meet the same keys are rows of one product.

Queries, keys and values of an attention: plain projections, or by way of narrow latent vectors.

Plain ones are column-parallel behind a gather of their input. Latent ones follow Megatron-LM: every device makes the
narrow vectors of its own tokens, as the matmuls down are not sharded; they are gathered in place of the hidden state,
and the matmuls up are column-parallel over the heads.
"""

from dataclasses import dataclass

from phaze_opt.graph import operations as ops
from phaze_opt.graph.operator import CollectiveGroup, CollectiveKind, Matmul, VectorKind, VectorWork
from phaze_opt.graph.program import Tape, Tensor, TensorRole
from phaze_opt.graph.sharding import Sharding
from phaze_opt.workload.block_spec import AttentionSpec, LatentProjection, QueryKeyNorm, ScoreBias
from phaze_opt.workload.training import AttentionForm

STATISTICS_BYTES_PER_TOKEN = 4
"""A sum of squares, 32-bit, crosses the group for every token where all heads are normalised at once."""


@dataclass(frozen=True, slots=True)
class Queried:
    """Queries, keys and values that one device has."""

    query: Tensor
    key: Tensor
    value: Tensor


def record_projections(
    tape: Tape, sharding: Sharding, spec: AttentionSpec, entering: Tensor, *, source: Tensor | None
) -> Queried:
    """From the attention's input to normalised and rotated queries and keys, and values.

    The input is gathered, for latent projections as one device holds it.
    """
    if spec.latent is not None:
        return _record_latent(tape, sharding, spec, spec.latent, entering)
    queried = _record_plain(tape, sharding, spec, entering, source)
    queried = _record_norms(tape, sharding, spec, queried)
    if not spec.rotary_size:
        return queried
    query = _rotate(tape, "rotary_query", queried.query, spec.rotary_size, spec.head_size)
    key = _rotate(tape, "rotary_key", queried.key, spec.rotary_size, spec.head_size)
    return Queried(query, key, queried.value)


def _rotate(tape: Tape, name: str, tensor: Tensor, rotary_size: int, head_size: int) -> Tensor:
    """Rotate a part of every head, or all of it."""
    rotated = tensor.elements // head_size * rotary_size
    return ops.elementwise(tape, name, (tensor,), ops.ROTARY, work_elements=rotated)


def _record_plain(
    tape: Tape, sharding: Sharding, spec: AttentionSpec, entered: Tensor, source: Tensor | None
) -> Queried:
    """One matmul for all three, or three; of the encoder's output for keys and values of a cross-attention."""
    kv_heads = sharding.num_kv_heads(spec)
    sizes = {
        "query": spec.query_size // sharding.degree,
        "key": kv_heads * spec.head_size,
        "value": kv_heads * spec.value_size,
    }
    groups = [tuple(sizes)] if spec.is_qkv_combined else [(name,) for name in sizes]
    found: dict[str, Tensor] = {}
    for group in groups:
        is_of_source = spec.is_cross and group != ("query",)
        given = source if is_of_source and source is not None else entered
        rows = sharding.source_tokens if is_of_source else sharding.tokens
        found |= _record_group(tape, spec, given, {part: sizes[part] for part in group}, rows)
    return Queried(found["query"], found["key"], found["value"])


def _record_group(
    tape: Tape, spec: AttentionSpec, entered: Tensor, sizes: dict[str, int], rows: int
) -> dict[str, Tensor]:
    """One matmul for the parts of ``sizes``, with its bias."""
    prefix = "cross_" if spec.is_cross else ""
    name, width = f"{prefix}{'_'.join(sizes)}", sum(sizes.values())
    weight = tape.weight(f"{name}.weight", spec.hidden_size * width)
    shape = Matmul(1, m=rows, n=width, k=spec.hidden_size)
    outputs = {f"{prefix}{part}": rows * size for part, size in sizes.items()}
    results = ops.split_matmul(tape, name, entered, weight, shape=shape, outputs=outputs)
    if spec.has_qkv_bias and (spec.has_key_bias or tuple(sizes) != ("key",)):
        own = width if spec.has_key_bias else width - sizes.get("key", 0)
        results = ops.bias(tape, f"{name}_bias", results, size=own)
    return dict(zip(sizes, results, strict=True))


def _record_norms(tape: Tape, sharding: Sharding, spec: AttentionSpec, queried: Queried) -> Queried:
    """Normalise queries and keys."""
    if spec.qk_norm is QueryKeyNorm.NONE:
        return queried
    normed: list[Tensor] = []
    for name, tensor in (("query", queried.query), ("key", queried.key)):
        weights: tuple[Tensor, ...] = ()
        if spec.qk_norm is not QueryKeyNorm.PLAIN:
            # All heads share the weights, or a device has those of its own heads.
            is_shared = spec.qk_norm is QueryKeyNorm.HEAD
            count = spec.head_size if is_shared else tensor.elements // sharding.tokens
            weights = (tape.weight(f"{name}_norm.weight", count),)
        if spec.qk_norm is QueryKeyNorm.WHOLE and sharding.degree > 1:
            payload = float(STATISTICS_BYTES_PER_TOKEN * sharding.tokens)
            ops.statistics(tape, f"{name}_norm_statistics", tensor, payload_bytes=payload)
        normed.append(ops.elementwise(tape, f"{name}_norm", (tensor,), ops.NORM, weights=weights))
    return Queried(normed[0], normed[1], queried.value)


def _record_latent(
    tape: Tape, sharding: Sharding, spec: AttentionSpec, latent: LatentProjection, entering: Tensor
) -> Queried:
    """Latent queries, or plain ones; keys of a part of their own and a rotated one that all heads share; values."""
    heads, tokens = spec.num_heads // sharding.degree, sharding.tokens
    query = _record_latent_query(tape, sharding, spec, latent, entering)
    query = _rotate(tape, "rotary_query", query, latent.rotary_size, spec.head_size)
    shared, rotary = _record_down(
        tape, sharding, spec, entering, name="key_value", sizes=(latent.kv_rank, latent.rotary_size)
    )
    rotary = ops.elementwise(tape, "rotary_key", (rotary,), ops.ROTARY)
    own = spec.head_size - latent.rotary_size
    width = heads * (own + spec.value_size)
    weight = tape.weight("key_value_up.weight", latent.kv_rank * width)
    outputs = {"own_key": tokens * heads * own, "value": tokens * heads * spec.value_size}
    shape = Matmul(1, m=tokens, n=width, k=latent.kv_rank)
    own_key, value = ops.split_matmul(tape, "key_value_up", shared, weight, shape=shape, outputs=outputs)
    elements = tokens * heads * spec.head_size
    return Queried(query, ops.elementwise(tape, "key", (own_key, rotary), ops.JOIN, elements=elements), value)


def _record_latent_query(
    tape: Tape, sharding: Sharding, spec: AttentionSpec, latent: LatentProjection, entering: Tensor
) -> Tensor:
    width, inner = spec.query_size // sharding.degree, latent.query_rank
    if inner:
        (given,) = _record_down(tape, sharding, spec, entering, name="query", sizes=(inner,))
        return ops.linear(tape, "query_up", given, rows=sharding.tokens, inner=inner, width=width)
    given = sharding.enter(tape, "attention_enter", entering, channels=spec.hidden_size)
    return ops.linear(tape, "query", given, rows=sharding.tokens, inner=spec.hidden_size, width=width)


def _record_down(
    tape: Tape, sharding: Sharding, spec: AttentionSpec, entering: Tensor, *, name: str, sizes: tuple[int, ...]
) -> list[Tensor]:
    """A matmul down of a device's own tokens: a normalised vector, perhaps channels besides; gathered."""
    rows, width = sharding.outside_tokens, sum(sizes)
    weight = tape.weight(f"{name}_down.weight", spec.hidden_size * width)
    outputs = {f"{name}_down_{number}": rows * size for number, size in enumerate(sizes)}
    shape = Matmul(1, m=rows, n=width, k=spec.hidden_size)
    parts = ops.split_matmul(tape, f"{name}_down", entering, weight, shape=shape, outputs=outputs)
    if spec.latent is not None and spec.latent.has_bias:
        parts = ops.bias(tape, f"{name}_down_bias", parts, size=width)
    norm = tape.weight(f"{name}_latent_norm.weight", sizes[0])
    parts[0] = ops.elementwise(tape, f"{name}_latent_norm", (parts[0],), ops.NORM, weights=(norm,))
    return [
        sharding.enter(tape, f"{name}_enter_{number}", part, channels=size)
        for number, (part, size) in enumerate(zip(parts, sizes, strict=True))
    ]


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
