"""Operators of ONNX as the operations of torch that are equal to them: names and arguments."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from phaze_opt.graph.traced.traced_model import Argument, TensorRef


@dataclass(frozen=True, slots=True)
class OnnxCall:
    """One node of an ONNX graph.

    Attributes:
        op: type of the operator.
        inputs: tensors by position; nothing for one that is left out.
        attributes: numbers, texts and lists of them.
        ranks: numbers of axes of the inputs; 0 of one that is left out.
        output_shape: of the first result.
        constants: integers of inputs that the file holds, by position.
    """

    op: str
    inputs: tuple[TensorRef | None, ...]
    attributes: Mapping[str, Argument]
    ranks: tuple[int, ...]
    output_shape: tuple[int, ...]
    constants: Mapping[int, tuple[int, ...]]

    def input(self, position: int) -> TensorRef | None:
        """A tensor, or nothing."""
        return self.inputs[position] if position < len(self.inputs) else None

    def integers(self, name: str, default: tuple[int, ...]) -> tuple[int, ...]:
        """A list of integers among the attributes."""
        value = self.attributes.get(name)
        return tuple(each for each in value if isinstance(each, int)) if isinstance(value, tuple) else default

    def integer(self, name: str, default: int) -> int:
        """An integer among the attributes."""
        value = self.attributes.get(name)
        return value if isinstance(value, int) else default


Translation = tuple[str, tuple[Argument, ...]]
"""Name of an operation, and its arguments."""


def translate(call: OnnxCall) -> Translation:
    """The operation that an operator is; one that has no equal keeps its name, as ``onnx.Name``."""
    if call.op in _BY_NAME:
        name, num_inputs = _BY_NAME[call.op]
        return name, tuple(call.inputs[:num_inputs])
    rule = _RULES.get(call.op)
    return rule(call) if rule is not None else (f"onnx.{call.op}", call.inputs)


_BY_NAME: Mapping[str, tuple[str, int]] = {
    "Add": ("aten.add.Tensor", 2),
    "Sub": ("aten.sub.Tensor", 2),
    "Mul": ("aten.mul.Tensor", 2),
    "Div": ("aten.div.Tensor", 2),
    "Pow": ("aten.pow.Tensor_Tensor", 2),
    "MatMul": ("aten.matmul.default", 2),
    "Relu": ("aten.relu.default", 1),
    "LeakyRelu": ("aten.leaky_relu.default", 1),
    "Elu": ("aten.elu.default", 1),
    "PRelu": ("aten.prelu.default", 2),
    "Sigmoid": ("aten.sigmoid.default", 1),
    "HardSigmoid": ("aten.hardsigmoid.default", 1),
    "HardSwish": ("aten.hardswish.default", 1),
    "Gelu": ("aten.gelu.default", 1),
    "Mish": ("aten.mish.default", 1),
    "Softplus": ("aten.softplus.default", 1),
    "Tanh": ("aten.tanh.default", 1),
    "Erf": ("aten.erf.default", 1),
    "Exp": ("aten.exp.default", 1),
    "Log": ("aten.log.default", 1),
    "Sqrt": ("aten.sqrt.default", 1),
    "Reciprocal": ("aten.reciprocal.default", 1),
    "Neg": ("aten.neg.default", 1),
    "Abs": ("aten.abs.default", 1),
    "Identity": ("aten.alias.default", 1),
    "Where": ("aten.where.self", 3),
    "Sin": ("aten.sin.default", 1),
    "Cos": ("aten.cos.default", 1),
}


def _convolution(call: OnnxCall) -> Translation:
    spatial = max(call.ranks[0] - 2, 1)
    padding = _padding(call, spatial)
    strides, dilations = call.integers("strides", (1,) * spatial), call.integers("dilations", (1,) * spatial)
    inputs = (call.input(0), call.input(1), call.input(2))
    groups = call.integer("group", 1)
    if call.op == "ConvTranspose":
        extra = call.integers("output_padding", (0,) * spatial)
        return f"aten.conv_transpose{spatial}d.input", (*inputs, strides, padding, extra, groups, dilations)
    return f"aten.conv{spatial}d.default", (*inputs, strides, padding, dilations, groups)


def _padding(call: OnnxCall, spatial: int) -> tuple[int, ...]:
    """Padding before each axis; what differs behind shows in the shape of the result."""
    return call.integers("pads", (0,) * (2 * spatial))[:spatial]


def _pool(call: OnnxCall) -> Translation:
    spatial = max(call.ranks[0] - 2, 1)
    kernel = call.integers("kernel_shape", (1,) * spatial)
    strides, padding = call.integers("strides", (1,) * spatial), _padding(call, spatial)
    ceil = bool(call.integer("ceil_mode", 0))
    if call.op == "AveragePool":
        return f"aten.avg_pool{spatial}d.default", (call.input(0), kernel, strides, padding, ceil)
    dilations = call.integers("dilations", (1,) * spatial)
    return f"aten.max_pool{spatial}d.default", (call.input(0), kernel, strides, padding, dilations, ceil)


def _global_pool(call: OnnxCall) -> Translation:
    spatial = max(call.ranks[0] - 2, 1)
    kind = "avg" if call.op == "GlobalAveragePool" else "max"
    return f"aten.adaptive_{kind}_pool{spatial}d.default", (call.input(0), (1,) * spatial)


def _gemm(call: OnnxCall) -> Translation:
    if call.integer("transA", 0):
        return "onnx.Gemm", call.inputs
    if call.integer("transB", 0):
        return "aten.linear.default", (call.input(0), call.input(1), call.input(2))
    if call.input(2) is None:
        return "aten.mm.default", (call.input(0), call.input(1))
    return "aten.addmm.default", (call.input(2), call.input(0), call.input(1))


def _batch_norm(call: OnnxCall) -> Translation:
    momentum, epsilon = call.attributes.get("momentum", 0.9), call.attributes.get("epsilon", 1e-5)
    return "aten.batch_norm.default", (*(call.input(at) for at in range(5)), True, momentum, epsilon, False)


def _layer_norm(call: OnnxCall) -> Translation:
    axis = call.integer("axis", -1)
    shape = call.output_shape[axis:] if axis < 0 else call.output_shape[axis:]
    return "aten.layer_norm.default", (
        call.input(0),
        shape,
        call.input(1),
        call.input(2),
        call.attributes.get("epsilon", 1e-5),
    )


def _softmax(call: OnnxCall) -> Translation:
    name = "softmax" if call.op == "Softmax" else "log_softmax"
    return f"aten.{name}.int", (call.input(0), call.integer("axis", -1))


def _reshape(call: OnnxCall) -> Translation:
    return "aten.reshape.default", (call.input(0), call.output_shape)


def _transpose(call: OnnxCall) -> Translation:
    backwards = tuple(range(call.ranks[0] - 1, -1, -1))
    return "aten.permute.default", (call.input(0), call.integers("perm", backwards))


def _concat(call: OnnxCall) -> Translation:
    return "aten.cat.default", (tuple(each for each in call.inputs if each is not None), call.integer("axis", 0))


def _clip(call: OnnxCall) -> Translation:
    return "aten.clamp.default", (call.input(0),)


def _gather(call: OnnxCall) -> Translation:
    place = call.constants.get(1, ())
    if len(place) == 1 and call.ranks[1] == 0:
        return "aten.select.int", (call.input(0), call.integer("axis", 0), place[0])
    if call.ranks[0] == 2 and call.integer("axis", 0) == 0:
        return "aten.embedding.default", (call.input(0), call.input(1))
    return "aten.index_select.default", (call.input(0), call.integer("axis", 0), call.input(1))


def _mean(call: OnnxCall) -> Translation:
    axes = call.integers("axes", call.constants.get(1, tuple(range(call.ranks[0]))))
    name = "mean" if call.op == "ReduceMean" else "sum"
    keeps = bool(call.integer("keepdims", 1))
    return f"aten.{name}.dim" if name == "mean" else "aten.sum.dim_IntList", (call.input(0), axes, keeps)


def _einsum(call: OnnxCall) -> Translation:
    """With its result written out; without one it has the axes that stand once, in the order of the alphabet."""
    equation = str(call.attributes.get("equation", "")).replace(" ", "")
    axes = equation.replace(",", "")
    once = "".join(sorted(axis for axis in set(axes) if axes.count(axis) == 1))
    return "aten.einsum.default", (equation if "->" in equation else f"{equation}->{once}", call.inputs)


def _expand(call: OnnxCall) -> Translation:
    return "aten.expand.default", (call.input(0), call.output_shape)


def _slice(call: OnnxCall) -> Translation:
    axes = call.integers("axes", call.constants.get(3, (0,)))
    starts, ends = (
        call.integers("starts", call.constants.get(1, (0,))),
        call.integers("ends", call.constants.get(2, ())),
    )
    return "aten.slice.Tensor", (call.input(0), axes[0], starts[0], ends[0] if ends else None)


def _split(call: OnnxCall) -> Translation:
    axis = call.integer("axis", 0)
    return "aten.split.Tensor", (call.input(0), call.output_shape[axis], axis)


def _dropout(call: OnnxCall) -> Translation:
    return "aten.alias.default", (call.input(0),)


RESHAPES = frozenset({"Reshape", "Flatten", "Squeeze", "Unsqueeze"})
"""Operators that give the same elements in another shape."""
RECURRENT: Mapping[str, str] = {"LSTM": "aten.lstm.input", "GRU": "aten.gru.input"}
"""Recurrent layers, whose weights of all directions lie in one tensor."""
_RULES: Mapping[str, Callable[[OnnxCall], Translation]] = {
    "Conv": _convolution,
    "ConvTranspose": _convolution,
    "MaxPool": _pool,
    "AveragePool": _pool,
    "GlobalAveragePool": _global_pool,
    "GlobalMaxPool": _global_pool,
    "Gemm": _gemm,
    "BatchNormalization": _batch_norm,
    "LayerNormalization": _layer_norm,
    "Softmax": _softmax,
    "LogSoftmax": _softmax,
    **dict.fromkeys(sorted(RESHAPES), _reshape),
    "Transpose": _transpose,
    "Concat": _concat,
    "Clip": _clip,
    "Gather": _gather,
    "Einsum": _einsum,
    "Expand": _expand,
    "Slice": _slice,
    "Split": _split,
    "ReduceMean": _mean,
    "ReduceSum": _mean,
    "Dropout": _dropout,
    "Cast": _dropout,
}
