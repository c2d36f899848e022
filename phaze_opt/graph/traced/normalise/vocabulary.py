"""Which operations work element by element, move elements, or reduce the last axis: what a region may consist of."""

from phaze_opt.graph.traced.traced_model import TracedNode

ARITHMETIC = {
    "aten.add",
    "aten.sub",
    "aten.rsub",
    "aten.mul",
    "aten.div",
    "aten.neg",
    "aten.abs",
    "aten.where",
    "aten.masked_fill",
    "aten.addcmul",
    "aten.maximum",
    "aten.minimum",
    "aten.square",
    "aten.sign",
    "aten.lerp",
}
RECTIFIERS = {"aten.relu", "aten.relu6", "aten.hardtanh", "aten.clamp", "aten.clamp_min", "aten.clamp_max"}
CURVES = {
    "aten.celu",
    "aten.elu",
    "aten.erf",
    "aten.exp",
    "aten.expm1",
    "aten.gelu",
    "aten.hardsigmoid",
    "aten.hardswish",
    "aten.leaky_relu",
    "aten.log",
    "aten.log1p",
    "aten.log_sigmoid",
    "aten.mish",
    "aten.pow",
    "aten.prelu",
    "aten.reciprocal",
    "aten.selu",
    "aten.sigmoid",
    "aten.silu",
    "aten.softplus",
    "aten.softsign",
    "aten.sqrt",
    "aten.rsqrt",
    "aten.tanh",
    "aten.threshold",
    "aten.sin",
    "aten.cos",
    "aten.atan",
}
CURVED_REDUCTIONS = {"aten.var", "aten.std", "aten.linalg_vector_norm", "aten.amax"}
"""Reductions whose derivative depends on what they read."""
REDUCTIONS = {"aten.mean", "aten.var", "aten.std", "aten.sum", "aten.linalg_vector_norm", "aten.amax"}
ROOTS = {"aten.rsqrt", "aten.sqrt", "aten.std", "aten.linalg_vector_norm"}
JOINS = {"aten.cat", "aten.stack"}
PARTS = {"aten.slice", "aten.narrow", "aten.select", "aten.split", "aten.chunk", "aten.unbind", "aten.tensor_split"}
SHAPES = {
    "aten.view",
    "aten.transpose",
    "aten.permute",
    "aten.unsqueeze",
    "aten.squeeze",
    "aten.flatten",
    "aten.unflatten",
    "aten.expand",
    "aten.t",
    "aten.movedim",
    "aten.view_as_complex",
    "aten.view_as_real",
}
COMPLEX = {"aten.view_as_complex", "aten.view_as_real"}
MOVES = JOINS | PARTS | SHAPES
ELEMENTWISE = ARITHMETIC | RECTIFIERS | CURVES
GROUPED_PRODUCTS = ("aten._grouped_mm", "transformers.grouped_mm_fallback")
"""Products of each expert's tokens with its weights."""
HEAVY = {
    *GROUPED_PRODUCTS,
    "aten.linear",
    "aten.addmm",
    "aten.mm",
    "aten.matmul",
    "aten.bmm",
    "aten.baddbmm",
    "aten.einsum",
    "aten.convolution",
    "aten.conv1d",
    "aten.conv2d",
    "aten.conv3d",
    "aten.conv_transpose2d",
    "aten.lstm",
    "aten.gru",
    "aten.embedding_bag",
    "phaze.attention",
    "phaze.mamba_mixer",
    "phaze.selective_scan",
}
"""Operations that a layer is made of: what lies between two of them joins the first."""
TOKEN_MIXERS = {
    *(op for op in HEAVY if "conv" in op),
    *("aten.lstm", "aten.gru", "phaze.mamba_mixer", "phaze.selective_scan", "phaze.attention"),
    *("aten.matmul", "aten.bmm", "aten.baddbmm", "aten.einsum"),
    *("aten.batch_norm", "aten.roll", "aten.flip", "aten.pad", "aten.constant_pad_nd", "aten.cumsum"),
    *(f"aten.{kind}_pool{rank}d" for kind in ("max", "avg") for rank in (1, 2, 3)),
}
"""Operations whose results depend on several tokens, or pixels, of a sample."""
POWERS = {"aten.pow", "aten.square"}


def is_part_of_region(node: TracedNode) -> bool:
    """Whether a node may stand in a region of elementwise work."""
    return node.op in ELEMENTWISE or node.op in MOVES or is_row_reduction(node)


def is_row_reduction(node: TracedNode) -> bool:
    """Whether a node reduces the last axis and keeps it as 1, as normalisations do."""
    return (
        node.op in REDUCTIONS
        and (node.inputs[1:2] in (((-1,),), (-1,)) or _is_last_axis_named(node))
        and any(value is True for value in (*node.inputs[2:], *dict(node.attrs).values()))
    )


def _is_last_axis_named(node: TracedNode) -> bool:
    return dict(node.attrs).get("dim") in ((-1,), -1)


def is_computing(node: TracedNode) -> bool:
    """Whether a region may end, or go on above, with the node: one that does more than move, or ends complex ones."""
    return node.op in ELEMENTWISE | JOINS or node.op == "aten.view_as_real" or is_row_reduction(node)
