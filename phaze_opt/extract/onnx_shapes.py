"""Shapes of an ONNX graph at a micro-batch, operator by operator.

Exporters compute shapes of results by small integer operators (the shape of a tensor, an element of it, a product):
what these give is known where shapes are. A file that was exported at one micro-batch holds that as a number: the axis
of a view that the micro-batch is part of is found by the order in which elements lie.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
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
