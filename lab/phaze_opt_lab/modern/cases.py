"""What a row of a modern machine's kernels measures: machine, kernel, format, recipes and sizes."""

from dataclasses import dataclass
from types import MappingProxyType

from phaze_opt.errors import InputError
from phaze_opt.hardware.device import Device
from phaze_opt.validation.measured_row import Row
from phaze_opt.validation.schema import KERNEL_SETS
from phaze_opt_lab.estimate.expert_load import expert_load, exponent_of
from phaze_opt_lab.estimate.fused_attention import BACKWARD_PASSES
from phaze_opt_lab.estimate.kernel_constants import KernelKind, is_priced, machine_classes
from phaze_opt_lab.modern.recipes import (
    Recipe,
    attention_recipes,
    expert_recipes,
    has_all_pairs,
    matmul_recipes,
    recipe_of,
    stream_recipes,
    with_classes,
)
from phaze_opt_lab.modern.shapes import (
    STREAM_BYTES,
    attention_passes,
    attention_repeats,
    attention_shape,
    grouped_cost,
    matmul_sizes,
    operator_name,
    row_format,
    weight_pass_bytes,
    worked_shape,
)
from phaze_opt_lab.number_format import NumberFormat, facts_of

OPERATORS, ATTENTION, EXPERTS = KERNEL_SETS
"""The published sets of this room, by kind of file."""
KINDS = MappingProxyType({OPERATORS: "operators", ATTENTION: "attention", EXPERTS: "experts"})
QUANTISE_BYTES = MappingProxyType(
    {NumberFormat.FP8: 5.0, NumberFormat.INT8: 5.0, NumberFormat.NVFP4: 2.5625, NumberFormat.MXFP4: 2.53125}
)
"""Bytes moved for one 16-bit element that is quantised before a matmul: one scale for a tensor needs a pass of its own.
Formats with scales for blocks read once: 2 and what they write."""


@dataclass(frozen=True, slots=True)
class KernelCase:
    """What a row measures.

    Attributes:
        device, kernel, number_format: machine, kind of kernel, operands.
        recipes: names under which the constants of its library may stand, nearest first.
        recipe: library, clock, quantisation.
        repeats: time over that of one product of its sizes.
        sizes: numbers that the kernel's rows are built of, in their order.
    """

    device: Device
    kernel: KernelKind
    number_format: NumberFormat
    recipes: tuple[str, ...]
    recipe: Recipe
    repeats: float
    sizes: tuple[float, ...]


def read_case(row: Row) -> KernelCase | str:
    """What a row measures, or why it cannot be predicted.

    Raises:
        InputError: its machine, type or distribution is unknown, or a value is malformed.
    """
    device, number_format = row.device(), row_format(row)
    if not is_priced(device):
        return f"{device.name} is no GPU; kernels of modern machines are those of GPUs"
    if row.dataset == ATTENTION:
        return _attention(row, device, number_format)
    if row.dataset == EXPERTS:
        return _experts(row, device, number_format)
    return _operator(row, device, number_format)


def _operator(row: Row, device: Device, number_format: NumberFormat) -> KernelCase | str:
    name = operator_name(row)
    recipe = recipe_of(row, "operators", number_format)
    if row.text("k", ""):
        return _matmul(row, device, number_format, recipe)
    if name.startswith("quantise") and name not in STREAM_BYTES:
        name = "quantise_cast"
    if name not in STREAM_BYTES:
        return f"no model of the operator '{name[:40]}'"
    kind = name.replace("layernorm", "norm").replace("rmsnorm", "norm")
    rows, columns = row.number("b", 1.0) * row.number("m"), row.number("n")
    names = stream_recipes(recipe, kind)
    if name.startswith("quantise"):
        names = with_classes(names, machine_classes(device))
    moved = STREAM_BYTES[name] + weight_pass_bytes(name, recipe.library)
    num_bytes = rows * columns * moved * facts_of(number_format).left_bytes / 2.0
    # Rows of a norm are independent; scales of casts are found in one place.
    sizes = (num_bytes, rows if name.startswith("quantise") else 0.0, columns)
    return KernelCase(device, KernelKind.STREAM, number_format, names, recipe, 1.0, sizes)


def _matmul(row: Row, device: Device, number_format: NumberFormat, recipe: Recipe) -> KernelCase:
    batch, m, n, k = matmul_sizes(row)
    quantise = _quantise_bytes(number_format) if recipe.is_quantised else 0.0
    names = with_classes(matmul_recipes(recipe, number_format), machine_classes(device))
    sizes = (batch, m, n, k, quantise)
    return KernelCase(device, KernelKind.MATMUL, number_format, names, recipe, grouped_cost(row), sizes)


def _quantise_bytes(number_format: NumberFormat) -> float:
    return QUANTISE_BYTES.get(number_format, 2.0 + facts_of(number_format).left_bytes)


def _attention(row: Row, device: Device, number_format: NumberFormat) -> KernelCase | str:
    name = operator_name(row)
    if "attention" not in name:
        return f"no model of the operator '{name[:40]}'"
    recipe = recipe_of(row, "attention", number_format)
    passes = attention_passes(row)
    suffix = "-both" if passes > BACKWARD_PASSES else "-bwd" if passes > 1.0 else ""
    if suffix and "deterministic_bwd True" in row.text("note", "") and "det" not in recipe.library:
        recipe = Recipe(f"{recipe.library}+det", recipe.is_eager, recipe.is_quantised)
    names = with_classes(attention_recipes(recipe, number_format, suffix), machine_classes(device))
    shape = worked_shape(attention_shape(row), recipe.library, number_format)
    repeats = attention_repeats(row, recipe.library)
    return KernelCase(device, KernelKind.ATTENTION, number_format, names, recipe, repeats, shape)


def _experts(row: Row, device: Device, number_format: NumberFormat) -> KernelCase | str:
    recipe = recipe_of(row, "experts", number_format)
    experts, ranks = row.integer("experts"), row.integer("ep", 1)
    if experts < ranks:
        message = f"column 'ep': {ranks} ranks are more than the {experts} experts that they share"
        raise InputError(message, source=row.source, line=row.line)
    tokens, per_token = row.integer("tokens"), row.integer("experts_per_token")
    if not 1 <= per_token <= experts:
        return f"{per_token} experts of a token are none of 1 to {experts}"
    load = expert_load(tokens, per_token, experts, ranks, exponent_of(row.text("distribution", "")))
    ffn = row.number("ffn") / row.number("tp", 1.0)
    sizes = (
        float(tokens),
        max(load.rows, float(tokens * per_token)) if has_all_pairs(recipe) else load.rows,
        float(max(1, experts // ranks)),
        load.rows,
        load.active,
        row.number("hidden"),
        ffn,
        row.number("mlp_matrices", 3.0),
        *load.tiles,
    )
    names = with_classes(expert_recipes(recipe, number_format), machine_classes(device))
    return KernelCase(device, KernelKind.EXPERTS, number_format, names, recipe, 1.0, sizes)
