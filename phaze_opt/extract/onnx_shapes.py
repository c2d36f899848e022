"""Shapes of an ONNX graph at a micro-batch, operator by operator.

Exporters compute shapes of results by small integer operators (the shape of a tensor, an element of it, a product):
what these give is known where shapes are. A file that was exported at one micro-batch holds that as a number: the axis
of a view that the micro-batch is part of is found by the order in which elements lie.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from phaze_opt.errors import InputError
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
        found.types.setdefault(value.name, value.type)
    versions = {each.domain: each.version for each in model.opset_import}
    for node in model.graph.node:
        if not node.output or not node.output[0]:
            continue
        try:
            _infer_node(found, node, onnx, versions, model.opset_import)
        except Exception as error:  # noqa: BLE001 - errors of the library's own kinds
            message = f"operator {shorten(node.name or node.op_type)} has inputs that do not go together"
            advice = "give a model that checks" if at_export is None else DYNAMIC_ADVICE
            sentence = f"{message} ({' '.join(str(error).split())[:120]}); {advice}"
            raise InputError(sentence) from error
        if at_export is not None:
            found.within[node.output[0]] = max((found.within.get(name, 1) for name in node.input), default=1)
            if node.op_type == "Reshape":
                _rescale(found, node, onnx, at_export)
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
    _fold(found, node, onnx)
    try:
        schema = onnx.defs.get_schema(node.op_type, versions.get(node.domain, 1), node.domain)
        types = {name: found.types[name] for name in node.input if name}
        data = {name: onnx.numpy_helper.from_array(found.held[name]) for name in node.input if name in found.held}
        given = onnx.shape_inference.infer_node_outputs(schema, node, types, data, opset_imports=list(imports))
    except (onnx.defs.SchemaError, KeyError):
        # An operator that nobody knows, or one behind it.
        return
    found.types.update(given)


def _fold(found: GraphShapes, node: Any, onnx: Any) -> None:
    """Compute what a node gives of shapes and of small constants."""
    attributes = {each.name: onnx.helper.get_attribute_value(each) for each in node.attribute if each.type in _PLAIN}
    name = node.output[0] if node.output else ""
    if node.op_type == "Constant":
        value = next((each.t for each in node.attribute if each.name == "value"), None)
        if value is not None:
            _hold(found, name, value, onnx)
        elif attributes:
            found.held[name] = np.asarray(next(iter(attributes.values())))
        return
    if node.op_type == "Shape":
        shape = found.shape(node.input[0])
        if shape is not None:
            found.held[name] = np.asarray(shape[attributes.get("start", 0) : attributes.get("end")], dtype=np.int64)
        return
    rule = FOLDED.get(node.op_type)
    if rule is None or any(each and each not in found.held for each in node.input):
        return
    try:
        with np.errstate(all="ignore"):
            value = np.asarray(rule(attributes, *(found.held[each] if each else None for each in node.input)))
    except (ValueError, IndexError, TypeError, OverflowError, KeyError):
        return
    if value.size <= MOST_HELD and value.dtype != object:
        found.held[name] = value


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


_PLAIN = (1, 2, 6, 7)
"""Attributes that are numbers or lists of them (FLOAT, INT, FLOATS, INTS)."""


def _axes(attributes: Mapping[str, Any], axes: Held | None) -> tuple[int, ...] | None:
    """Axes as an attribute or, since opset 13, as an input."""
    given = attributes.get("axes") if axes is None else axes.reshape(-1).tolist()
    return None if given is None else tuple(int(each) for each in given)


def _slice(attributes: Mapping[str, Any], data: Held, *parts: Held | None) -> Held:
    starts, ends, axes, steps = (
        None if each is None else [int(value) for value in np.asarray(each).reshape(-1)]
        for each in (*parts, None, None, None, None)[:4]
    )
    starts, ends = starts or attributes["starts"], ends or attributes["ends"]
    axes = axes or attributes.get("axes") or list(range(len(starts)))
    index = [slice(None)] * data.ndim
    for place, axis in enumerate(axes):
        index[axis] = slice(starts[place], ends[place], steps[place] if steps else None)
    return data[tuple(index)]


def _divide(_: Mapping[str, Any], left: Held, right: Held) -> Held:
    is_whole = left.dtype.kind in "iu"
    return np.floor_divide(left, right) if is_whole else np.asarray(left / right)


def _cast(attributes: Mapping[str, Any], data: Held) -> Held:
    kinds = {1: np.float32, 11: np.float64, 6: np.int32, 7: np.int64, 9: np.bool_}
    return data.astype(kinds[attributes["to"]])


FOLDED: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        "Identity": lambda _, data: data,
        "Cast": _cast,
        "Add": lambda _, left, right: left + right,
        "Sub": lambda _, left, right: left - right,
        "Mul": lambda _, left, right: left * right,
        "Div": _divide,
        "Mod": lambda _, left, right: np.mod(left, right),
        "Neg": lambda _, data: -data,
        "Floor": lambda _, data: np.floor(data),
        "Ceil": lambda _, data: np.ceil(data),
        "Min": lambda _, *data: np.minimum.reduce(data),
        "Max": lambda _, *data: np.maximum.reduce(data),
        "Equal": lambda _, left, right: left == right,
        "Where": lambda _, which, left, right: np.where(which, left, right),
        "Gather": lambda attributes, data, places: np.take(data, places, axis=attributes.get("axis", 0)),
        "Concat": lambda attributes, *data: np.concatenate(data, axis=attributes["axis"]),
        "Slice": _slice,
        "Unsqueeze": lambda attributes, data, axes=None: np.expand_dims(data, _axes(attributes, axes) or ()),
        "Squeeze": lambda attributes, data, axes=None: np.squeeze(data, _axes(attributes, axes)),
        "Reshape": lambda _, data, shape: data.reshape([int(each) for each in shape]),
        "ReduceProd": lambda attributes, data, *_: np.prod(data, keepdims=bool(attributes.get("keepdims", 1))),
    }
)
"""Operators on small values: attributes, then inputs."""
