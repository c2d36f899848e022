"""Operators of ONNX as the operations of torch that are equal to them: names and arguments.

Shapes of an ONNX graph at a micro-batch, operator by operator.

Exporters compute shapes of results by small integer operators (the shape of a tensor, an element of it, a product):
what these give is known where shapes are. A file that was exported at one micro-batch holds that as a number: the axis
of a view that the micro-batch is part of is found by the order in which elements lie.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from phaze_opt.errors import InputError
from phaze_opt.graph.traced.traced_model import Argument, TensorRef
from phaze_opt.record.input_files import shorten

MOST_HELD = 64
"""Elements of a tensor whose values are kept: axes, shapes and the like."""
Held = NDArray[Any]
DYNAMIC_ADVICE = (
    "export the model with a free micro-batch: torch.onnx.export takes dynamic_shapes, and with dynamo=False "
    "dynamic_axes"
)


@dataclass(slots=True)
class GraphShapes:
    """What is known of the tensors of a graph.

    Attributes:
        types: of each tensor, as the library has them.
        held: values of small constants and of what is computed of shapes.
        within: of a tensor one axis of which the micro-batch is a factor of, how many elements of that axis stand
            before it; 1 unless stated.
    """

    types: dict[str, Any] = field(default_factory=dict)
    held: dict[str, Held] = field(default_factory=dict)
    within: dict[str, int] = field(default_factory=dict)

    def shape(self, name: str) -> tuple[int, ...] | None:
        """Sizes of a tensor; None if one is not known."""
        kind = self.types.get(name)
        if kind is None or not kind.tensor_type.HasField("shape"):
            return None
        axes = kind.tensor_type.shape.dim
        return tuple(axis.dim_value for axis in axes) if all(axis.HasField("dim_value") for axis in axes) else None


def infer_shapes(model: Any, onnx: Any, *, at_export: GraphShapes | None) -> GraphShapes:
    """The shapes of a model whose inputs have numbers.

    Args:
        model: of the file.
        onnx: the library.
        at_export: shapes at the micro-batch that the file was exported at; None where it holds none.

    Raises:
        InputError: operators do not go together.
    """
    found = GraphShapes()
    for tensor in model.graph.initializer:
        found.types[tensor.name] = onnx.helper.make_tensor_type_proto(tensor.data_type, tensor.dims)
        _hold(found, tensor.name, tensor, onnx)
    for value in model.graph.input:
        if value.name not in found.types:
            # A copy: the same input gets other sizes at the next micro-batch.
            found.types[value.name] = onnx.TypeProto()
            found.types[value.name].CopyFrom(value.type)
    versions = {each.domain: each.version for each in model.opset_import}
    for node in model.graph.node:
        if not node.output or not node.output[0]:
            continue
        try:
            _infer_node(found, node, onnx, versions, model.opset_import)
            if at_export is not None:
                found.within[node.output[0]] = max((found.within.get(name, 1) for name in node.input), default=1)
                if node.op_type == "Reshape":
                    _rescale(found, node, onnx, at_export)
        except InputError:
            raise
        except Exception as error:  # noqa: BLE001 - errors of the library's own kinds
            message = f"operator {shorten(node.name or node.op_type)} has inputs that do not go together"
            advice = "give a model that checks" if at_export is None else DYNAMIC_ADVICE
            sentence = f"{message} ({' '.join(str(error).split())[:120]}); {advice}"
            raise InputError(sentence) from error
    return found


def _hold(found: GraphShapes, name: str, tensor: Any, onnx: Any) -> None:
    """Keep the values of a small tensor that the file holds."""
    if prod(tensor.dims) <= MOST_HELD and not tensor.external_data:
        try:
            found.held[name] = onnx.numpy_helper.to_array(tensor)
        except Exception:  # noqa: BLE001 - other data than its shape says: its values are not known
            return


def _infer_node(found: GraphShapes, node: Any, onnx: Any, versions: Mapping[str, int], imports: Sequence[Any]) -> None:
    """Types, and values if they are small and known, of what a node gives."""
    _fold(found, node, versions)
    try:
        schema = onnx.defs.get_schema(node.op_type, versions.get(node.domain, 1), node.domain)
        types = {name: found.types[name] for name in node.input if name}
        data = {name: onnx.numpy_helper.from_array(found.held[name]) for name in node.input if name in found.held}
        given = onnx.shape_inference.infer_node_outputs(schema, node, types, data, opset_imports=list(imports))
    except (onnx.defs.SchemaError, KeyError):
        # An operator that nobody knows, or one behind it.
        return
    found.types.update(given)


def _fold(found: GraphShapes, node: Any, versions: Mapping[str, int]) -> None:
    """Compute what a node gives of shapes and of small values, by the library's own numpy of it."""
    from onnx.reference import ReferenceEvaluator

    given = {name: found.held.get(name) for name in node.input if name}
    if node.op_type == "Shape":
        # Of a tensor its sizes are read, and no element.
        shape = found.shape(node.input[0])
        given = {node.input[0]: None if shape is None else np.broadcast_to(np.int8(0), shape)}
    is_large = any(prod(each.t.dims) > MOST_HELD for each in node.attribute)
    if node.op_type not in FOLDED or node.domain or is_large or any(value is None for value in given.values()):
        return
    try:
        with np.errstate(all="ignore"):
            (value,) = ReferenceEvaluator(node, opsets=dict(versions)).run(None, given)
    except Exception:  # noqa: BLE001 - errors of the library's own kinds: the value is not known
        return
    if isinstance(value, np.ndarray | np.generic) and value.size <= MOST_HELD:
        found.held[node.output[0]] = np.asarray(value)


def _rescale(found: GraphShapes, node: Any, onnx: Any, at_export: GraphShapes) -> None:
    """Correct the shape of a view that holds the micro-batch of the export as a number."""
    given, target, name = node.input[0], node.input[1], node.output[0]
    before, after = at_export.shape(given), at_export.shape(name)
    now = found.shape(given)
    is_fixed = np.array_equal(found.held.get(target, ()), at_export.held.get(target, ()))
    if before is None or after is None or now is None or before == now or not is_fixed:
        return
    view = rescaled(before, after, now, within=found.within.get(given, 1))
    if view is None:
        message = f"operator {shorten(node.name or node.op_type)} makes a view that holds the micro-batch as a number"
        sentence = f"{message}; {DYNAMIC_ADVICE}"
        raise InputError(sentence)
    shape, found.within[name] = view
    kind = found.types[given].tensor_type.elem_type
    found.types[name] = onnx.helper.make_tensor_type_proto(kind, shape)


def rescaled(
    before: Sequence[int], after: Sequence[int], now: Sequence[int], *, within: int = 1
) -> tuple[tuple[int, ...], int] | None:
    """Sizes of a view at another micro-batch, and where in its axis that stands; None if they cannot be told.

    Elements keep their order: as many of the result stand before the micro-batch as of what is viewed. So (5, 4, 64),
    of which 4 are samples, has them in axis 0 of (20, 64), behind 5, and in axis 1 of (5, 32, 8), behind nothing. Of an
    export at 1 an axis may end where the next begins; the last one holds channels, and no samples if another can.

    Args:
        before: sizes of what is viewed, at the export.
        after: of the view, at the export.
        now: of what is viewed.
        within: elements that stand before the micro-batch in its axis of what is viewed.
    """
    changed = [axis for axis, (old, new) in enumerate(zip(before, now, strict=True)) if old != new]
    if len(changed) != 1 or prod(before) != prod(after):
        return None
    axis = changed[0]
    lead, size = within * prod(before[:axis]), before[axis]
    prefixes = [prod(after[:place]) for place in range(len(after))]
    begins = [place for place, prefix in enumerate(prefixes) if prefix == lead]
    inside = [place for place, prefix in enumerate(prefixes) if prefix < lead <= prefix * after[place]]
    likely = [place for place in begins if place < len(after) - 1]
    place = next(iter([*likely, *inside, *begins]), None)
    if place is None or after[place] * now[axis] % size:
        return None
    return (*after[:place], after[place] * now[axis] // size, *after[place + 1 :]), lead // prefixes[place]


FOLDED = frozenset(
    {"Add", "Cast", "Ceil", "Concat", "Constant", "Div", "Equal", "Floor", "Gather", "Identity", "Max", "Min", "Mod"}
    | {"Mul", "Neg", "ReduceProd", "Reshape", "Shape", "Slice", "Squeeze", "Sub", "Unsqueeze", "Where"}
)
"""Operators that exporters compute shapes by; what they give is of the size of their inputs, broadcast at most."""


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
