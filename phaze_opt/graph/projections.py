"""Queries, keys and values of an attention: plain projections, or by way of narrow latent vectors.

Plain ones are column-parallel behind a gather of their input. Latent ones follow Megatron-LM: every device makes the
narrow vectors of its own tokens, as the matmuls down are not sharded; they are gathered in place of the hidden state,
and the matmuls up are column-parallel over the heads.
"""

from dataclasses import dataclass

from phaze_opt.graph import operations as ops
from phaze_opt.graph.operator import Matmul
from phaze_opt.graph.program import Tape, Tensor
from phaze_opt.graph.sharding import Sharding
from phaze_opt.workload.block_spec import AttentionSpec, LatentProjection, QueryKeyNorm

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
