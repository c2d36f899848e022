"""Sizes of a row's matmuls and attention, as its columns and the words of public tables say them."""

from collections import Counter
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from phaze_opt.objective.caveats import HEAD_STEP, head_note
from phaze_opt.validation.measured_row import Row
from phaze_opt.validation.schema import KERNEL_SETS
from phaze_opt_lab.estimate.fused_attention import BACKWARD_PASSES
from phaze_opt_lab.estimate.wave_matmul import GOOD_TILE, waste_note, wave_waste
from phaze_opt_lab.number_format import NumberFormat, Width, facts_of, format_of

STREAM_BYTES: Mapping[str, float] = MappingProxyType(
    {
        "rmsnorm": 4.0,
        "layernorm": 4.0,
        "rmsnorm_bwd": 6.0,
        "layernorm_bwd": 6.0,
        "softmax": 4.0,
        "gelu": 4.0,
        "silu": 6.0,
        "add": 6.0,
        "quantise_scale": 2.0,
        "quantise_cast": 3.0,
    }
)
"""Bytes moved for one 16-bit element, by operator; a silu reads a gate besides, a cast writes 8 bits."""


WEIGHT_PASS_BYTES = 4.0
"""For one 16-bit element: gradients of a norm's weights sum over rows, which takes input and gradient once more."""
ONE_PASS_LIBRARIES = ("cudnn",)
"""Libraries that sum the gradients of a norm's weights in the pass that makes those of its input."""
WEIGHT_GRADIENT_COST = 2.0
"""Time of a grouped matmul that sums over each group's rows, over one of the same FLOPs that does not (assumption, 1.3
to 2.7: mxfp8 on B200 1.26, fp8 with block scales on H100 2.7)."""
UNFUSED = "eager"
"""Library that writes all scores down."""
MASK_PASSES = 1.0
"""Forwards that adding a mask to them takes as long as (assumption, 0.9 to 1.4)."""
WHOLE_BACKWARD = ("cudnn",)
"""Libraries whose 8-bit gradients work on all that a query sees without its window."""
MOST_WASTE = 1.25
"""Waves over those that are filled, from which a shape is said to cost."""


def operator_name(row: Row) -> str:
    """Name of an operator without what stands before a colon, in lower case."""
    return row.text("op").rpartition(":")[2].lower()


def row_format(row: Row) -> NumberFormat:
    """Format of a row's operands; fp32 that a library narrows, as a note says, is tf32, which all but its units share.

    Raises:
        InputError: an unknown type.
    """
    found = format_of(row.text("dtype"))
    is_narrowed = found is NumberFormat.FP32 and "narrower type" in row.text("note", "")
    return NumberFormat.TF32 if is_narrowed else found


def stream_bytes(name: str) -> float:
    """Bytes moved for one 16-bit element by an operator of this name; of an unknown one it is read and written once."""
    return STREAM_BYTES.get(name, 3.0 if name.startswith("quantise") else 4.0)


def weight_pass_bytes(name: str, library: str) -> float:
    """Bytes moved besides for one 16-bit element: by what is no fused kernel, in gradients of a norm."""
    return WEIGHT_PASS_BYTES if name.endswith("norm_bwd") and library not in ONE_PASS_LIBRARIES else 0.0


def matmul_sizes(row: Row) -> tuple[float, float, float, float]:
    """Products and their m, n and k: of grouped ones rows are summed over the groups unless the note says a group's."""
    batch, m, n, k = row.number("b", 1.0), row.number("m"), row.number("n"), row.number("k")
    name = operator_name(row)
    if not name.startswith("grouped") or "M a group" in row.text("note", ""):
        return batch, m, n, k
    return (batch, m, n, k / batch) if name.endswith("wgrad") else (batch, m / batch, n, k)


def matmul_repeats(row: Row) -> float:
    """Products in the time over those of the sizes: backward multiplies twice, for its input and for the weights."""
    return 3.0 if operator_name(row).endswith("_fwd_bwd") else 1.0


def grouped_cost(row: Row) -> float:
    """Time over that of one product of the sizes: as many as there are, and more of those that sum over the groups."""
    name = operator_name(row)
    if name.endswith("_fwd_bwd"):
        return matmul_repeats(row) - 1.0 + WEIGHT_GRADIENT_COST
    return WEIGHT_GRADIENT_COST if name.startswith("grouped") and name.endswith("wgrad") else 1.0


def attention_shape(row: Row) -> tuple[float, ...]:
    """Batch, queries, keys, heads, shared heads, both head sizes, mask, window and passes of an attention."""
    heads, size = row.number("heads"), row.number("head_dim")
    queries = row.number("seq_q")
    return (
        row.number("b", 1.0),
        queries,
        row.number("seq_kv", queries),
        heads,
        row.number("kv_heads", heads),
        size,
        row.number("head_dim_v", size),
        row.number("causal", 0.0),
        row.number("window", 0.0),
        attention_passes(row),
    )


def worked_shape(shape: tuple[float, ...], library: str, number_format: NumberFormat) -> tuple[float, ...]:
    """The shape that a library works on: one that is not fused knows no mask, and some kernels no window."""
    *sizes, is_causal, window, passes = shape
    if library == UNFUSED:
        return (*sizes, 0.0, 0.0, passes)
    is_narrow = facts_of(number_format).width is not Width.WIDE
    is_whole = passes > 1.0 and is_narrow and library.startswith(WHOLE_BACKWARD)
    return (*sizes, is_causal, 0.0 if is_whole else window, passes)


def attention_repeats(row: Row, library: str) -> float:
    """Time over that of the shape that is worked on: one that is not fused adds the mask to its scores, forward."""
    is_masked = library == UNFUSED and row.number("causal", 0.0) > 0.0
    return 1.0 + MASK_PASSES / attention_passes(row) if is_masked else 1.0


def attention_passes(row: Row) -> float:
    """1 forward, `BACKWARD_PASSES` backward, the sum of both."""
    name = operator_name(row)
    if name.endswith("_fwd_bwd"):
        return 1.0 + BACKWARD_PASSES
    return BACKWARD_PASSES if name.endswith("_bwd") else 1.0


def shape_notes(rows: Sequence[Row]) -> tuple[str, ...]:
    """What of the shapes of a file costs time by itself: sentences, the worst shape of each kind by name."""
    rows = [row for row in rows if row.dataset in KERNEL_SETS]
    heads = Counter(int(row.number("head_dim")) for row in rows if row.text("head_dim", ""))
    odd = {size: count for size, count in heads.items() if head_note(size)}
    found = []
    if odd:
        worst = max(odd, key=lambda size: (size % HEAD_STEP > 0, odd[size]))
        found.append(f"{sum(odd.values()):,} of {heads.total():,} attentions: {head_note(worst)}")
    matmuls = [row for row in rows if row.text("k", "") and row.find_device() is not None]
    wasted = [(waste, row) for row in matmuls if (waste := _waste(row)) > MOST_WASTE]
    if wasted:
        waste, row = max(wasted, key=lambda each: (each[0], -each[1].line))
        batch, m, n, _ = matmul_sizes(row)
        empty = 1.0 - 1.0 / MOST_WASTE
        words = f"{len(wasted):,} of {len(matmuls):,} matmuls leave over {empty:.0%} of their waves empty"
        note = waste_note(int(m), int(n), row.device().num_multiprocessors, batch=int(batch))
        found.append(f"{words}; line {row.line}: {note}")
    return tuple(found)


def _waste(row: Row) -> float:
    """Waves of the best large tile over those that the result fills; 1 below a wave, which no shape can fill."""
    batch, m, n, _ = matmul_sizes(row)
    units = row.device().num_multiprocessors
    return wave_waste(int(m), int(n), units, batch=int(batch)) if batch * m * n > units * GOOD_TILE**2 else 1.0
