"""ONNX files: shapes are inferred at several micro-batches, weights are not looked at, nothing is executed."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from phaze_opt.errors import InputError
from phaze_opt.extract.extracting import traced_of
from phaze_opt.extract.onnx_operations import OnnxCall, translate
from phaze_opt.extract.recorded_graph import RecordedGraph, RecordedNode, RecordedTensor
from phaze_opt.extract.simplify import simplify
from phaze_opt.extract.versions import ONNX
from phaze_opt.graph.traced.traced_model import BATCH, Argument, TensorRef, TracedDtype, TracedModel, TracedRole
from phaze_opt.record.input_files import shorten, shorten_path

MAX_FILE_BYTES = 512 << 20
MAX_NODES = 100_000
MOST_HELD = 64
"""Elements of a tensor of a file whose values are kept: axes, shapes and the like."""
MAX_AXES, MAX_SIZE = 16, 1 << 40
BATCHES = (2, 3, 5)
"""Micro-batches at which shapes are inferred."""
NORMS = frozenset({"BatchNormalization", "LayerNormalization", "GroupNormalization", "InstanceNormalization"})
NESTED = frozenset({"If", "Loop", "Scan", "SequenceMap"})
ELSEWHERE = "as save_as_external_data=True of onnx.save keeps them"


def read_onnx(path: Path) -> TracedModel:
    """The traced model of an ONNX file, with a loss at its end.

    Raises:
        InputError: no ONNX file, larger than is read, with control flow, or without shapes.
    """
    onnx = ONNX.load()
    proto = _loaded(path, onnx)
    _check(proto, path)
    _forget_weights(proto)
    graphs = [_graph_at(proto, batch, path, onnx) for batch in BATCHES]
    return traced_of(
        graphs,
        [{BATCH: batch} for batch in BATCHES],
        name=(_text(proto.graph.name) or path.stem)[:200],
        producer={"onnx": ONNX.version(onnx), **_producer(proto)},
        symbols={BATCH: 1},
        notes=tuple(_notes(proto)),
    )


def _loaded(path: Path, onnx: Any) -> Any:
    """The file as it is, without weights that lie in others, and with functions of its own put in their places."""
    source = shorten_path(path)
    try:
        size = path.stat().st_size
    except (OSError, ValueError) as error:
        message = f"cannot be read ({getattr(error, 'strerror', None) or error}); give an ONNX file"
        raise InputError(message, source=source) from error
    if size > MAX_FILE_BYTES:
        message = f"is larger than {MAX_FILE_BYTES >> 20} MiB; keep its weights in a file of their own, {ELSEWHERE}"
        raise InputError(message, source=source)
    try:
        proto = onnx.load_model(str(path), load_external_data=False)
        return onnx.inliner.inline_local_functions(proto) if proto.functions else proto
    except Exception as error:  # noqa: BLE001 - the parser's own errors
        message = f"is no ONNX file ({' '.join(str(error).split())[:150]}); give one that onnx.load reads"
        raise InputError(message, source=source) from error


def _check(proto: Any, path: Path) -> None:
    """Refuse what has no graph, too much of one, or parts that run as data decides."""
    source = shorten_path(path)
    nodes = proto.graph.node
    if not nodes or not proto.graph.output:
        message = "holds no graph with operators and outputs; give an ONNX model"
        raise InputError(message, source=source)
    if len(nodes) > MAX_NODES:
        message = f"holds {len(nodes)} operators; at most {MAX_NODES} can be read"
        raise InputError(message, source=source)
    nested = next((node for node in nodes if node.op_type in NESTED), None)
    if nested is not None:
        message = f"operator {shorten(nested.name)} is a {nested.op_type}, which runs as data decides"
        sentence = f"{message}; export the model without it"
        raise InputError(sentence, source=source)


def _forget_weights(proto: Any) -> None:
    """Keep of large tensors their shapes alone."""
    for tensor in proto.graph.initializer:
        if _elements(tensor.dims) > MOST_HELD:
            for field in (
                "raw_data",
                "float_data",
                "int32_data",
                "int64_data",
                "double_data",
                "uint64_data",
                "string_data",
            ):
                tensor.ClearField(field)


def _elements(dims: Sequence[int]) -> int:
    product = 1
    for size in dims:
        product *= int(size)
    return product


def _notes(proto: Any) -> Iterator[str]:
    kinds = {node.op_type for node in proto.graph.node}
    if "Conv" in kinds and not kinds & NORMS:
        yield (
            "convolutions without normalisation: if this was exported for inference, its batch norms are folded into "
            "weights and a training step of it has fewer parameters and operations; export it in training mode"
        )


def _producer(proto: Any) -> dict[str, str]:
    name = _text(proto.producer_name)[:60]
    return {name: _text(proto.producer_version)[:60]} if name else {}


def _text(name: str | bytes) -> str:
    """A name of a file, which may be no text."""
    return name if isinstance(name, str) else name.decode(errors="replace")


def _graph_at(proto: Any, batch: int, path: Path, onnx: Any) -> RecordedGraph:
    """The graph at a micro-batch, with its loss."""
    model = type(proto)()
    model.CopyFrom(proto)
    held = {tensor.name for tensor in model.graph.initializer}
    for value in model.graph.input:
        axes = value.type.tensor_type.shape.dim
        if value.name not in held and len(axes):
            axes[0].ClearField("dim_param")
            axes[0].dim_value = batch
    model.graph.ClearField("value_info")
    for value in model.graph.output:
        value.type.tensor_type.ClearField("shape")
    try:
        inferred = onnx.shape_inference.infer_shapes(model, strict_mode=False, data_prop=True)
    except Exception as error:  # noqa: BLE001 - errors of the library's own kinds
        message = f"has shapes that cannot be inferred ({' '.join(str(error).split())[:200]}); give a model that checks"
        raise InputError(message, source=shorten_path(path)) from error
    return simplify(_Recording(inferred.graph, path, onnx).graph())


class _Recording:
    """Goes over an ONNX graph whose shapes are known."""

    def __init__(self, graph: Any, path: Path, onnx: Any) -> None:
        self._graph = graph
        self._source = shorten_path(path)
        self._onnx = onnx
        self._tensors: dict[str, RecordedTensor] = {}
        self._ids: dict[str, str] = {}
        self._integers: dict[str, tuple[int, ...]] = {}
        self._nodes: list[RecordedNode] = []
        norms = (node for node in graph.node if node.op_type == "BatchNormalization")
        self._statistics = {name for node in norms for name in node.input[3:5]}
        taken = {name for node in graph.node for name in node.input}
        self._used = frozenset(taken | {value.name for value in graph.output})
        self._types = {value.name: value.type.tensor_type for value in self._values()}

    def _values(self) -> Iterator[Any]:
        yield from self._graph.value_info
        yield from self._graph.input
        yield from self._graph.output

    def graph(self) -> RecordedGraph:
        for tensor in self._graph.initializer:
            self._declare_held(tensor)
        for value in self._graph.input:
            if value.name not in self._ids:
                self._declare(value.name, TracedRole.INPUT)
        for node in self._graph.node:
            self._record(node)
        outputs = [self._ids[value.name] for value in self._graph.output if value.name in self._ids]
        loss = self._loss(outputs)
        return RecordedGraph(self._tensors, tuple(self._nodes), (loss,))

    def _declare_held(self, tensor: Any) -> None:
        dtype = self._dtype(tensor.data_type, tensor.name)
        shape = self._sizes(tensor.dims, tensor.name)
        is_weight = dtype.is_float and bool(shape) and _elements(shape) > 1
        role = TracedRole.PARAMETER if is_weight else TracedRole.CONSTANT
        role = TracedRole.BUFFER if tensor.name in self._statistics else role
        self._add(tensor.name, shape, dtype, role, fqn=_text(tensor.name) if role is not TracedRole.CONSTANT else "")
        if not dtype.is_float and _elements(shape) <= MOST_HELD and not tensor.external_data:
            self._integers[tensor.name] = self._values_of(tensor)

    def _sizes(self, dims: Sequence[int], name: str) -> tuple[int, ...]:
        """A shape, which no program has made larger than any machine or negative."""
        shape = tuple(int(size) for size in dims)
        if len(shape) > MAX_AXES or any(not 0 <= size <= MAX_SIZE for size in shape):
            message = f"tensor {shorten(name)} has shape {shorten(list(shape))}"
            sentence = f"{message}; at most {MAX_AXES} axes from 0 to {MAX_SIZE} can be read"
            raise InputError(sentence, source=self._source)
        return shape

    def _values_of(self, tensor: Any) -> tuple[int, ...]:
        """The integers of a small tensor."""
        try:
            values = self._onnx.numpy_helper.to_array(tensor).reshape(-1).tolist()
        except Exception as error:  # noqa: BLE001 - errors of the library's own kinds
            message = f"tensor {shorten(tensor.name)} holds other data than its shape says"
            sentence = f"{message}; give a model that checks"
            raise InputError(sentence, source=self._source) from error
        return tuple(int(each) for each in values)

    def _declare(self, name: str, role: TracedRole) -> str:
        kind = self._types.get(name)
        if kind is None or not kind.HasField("shape") or any(not axis.dim_value for axis in kind.shape.dim):
            message = f"tensor {shorten(name)} has no shape that can be inferred; export the model with fixed sizes"
            raise InputError(message, source=self._source)
        shape = self._sizes([axis.dim_value for axis in kind.shape.dim], name)
        return self._add(name, shape, self._dtype(kind.elem_type, name), role)

    def _add(self, name: str, shape: tuple[int, ...], dtype: TracedDtype, role: TracedRole, *, fqn: str = "") -> str:
        id_ = f"t{len(self._tensors)}"
        self._ids[name] = id_
        self._tensors[id_] = RecordedTensor(id_, shape, dtype, role, fqn[:1000])
        return id_

    def _dtype(self, number: int, name: str) -> TracedDtype:
        names = {value: key.lower() for key, value in self._onnx.TensorProto.DataType.items()}
        text = names.get(number, f"number {number}")
        text = {"float": "float32", "double": "float64"}.get(text, text)
        text = "float8" if text.startswith("float8") else text
        if text not in set(TracedDtype):
            message = f"tensor {shorten(name)} is of type {text}, which a traced model does not have"
            sentence = f"{message}; export the model in another type"
            raise InputError(sentence, source=self._source)
        return TracedDtype(text)

    def _record(self, node: Any) -> None:
        if node.op_type == "Constant":
            self._constant(node)
            return
        inputs = tuple(self._taken(name, node) for name in node.input)
        outputs = [self._declare(name, TracedRole.ACTIVATION) for name in node.output[:1]]
        outputs += [self._declare(name, TracedRole.ACTIVATION) for name in node.output[1:] if name in self._used]
        call = OnnxCall(
            op=_text(node.op_type),
            inputs=inputs,
            attributes=self._attributes(node),
            ranks=tuple(len(self._tensors[each.id].shape) if each else 0 for each in inputs),
            output_shape=self._tensors[outputs[0]].shape if outputs else (),
            constants={at: self._integers[name] for at, name in enumerate(node.input) if name in self._integers},
        )
        op, arguments = translate(call)
        self._nodes.append(RecordedNode(op, arguments, tuple(outputs), (), _text(node.name)[:1000]))

    def _taken(self, name: str, node: Any) -> TensorRef | None:
        if not name:
            return None
        if name not in self._ids:
            message = f"operator {shorten(node.name or node.op_type)} takes {shorten(name)}, which nothing gives"
            sentence = f"{message}; give a model that checks"
            raise InputError(sentence, source=self._source)
        return TensorRef(self._ids[name])

    def _constant(self, node: Any) -> None:
        """A constant among the operators, as one among the tensors."""
        value = next((each.t for each in node.attribute if each.name == "value"), None)
        if value is None:
            self._declare(node.output[0], TracedRole.CONSTANT)
            return
        value.name = node.output[0]
        self._declare_held(value)

    def _attributes(self, node: Any) -> dict[str, Argument]:
        """Numbers, texts and lists of them."""
        kinds = self._onnx.AttributeProto
        found: dict[str, Argument] = {}
        for each in node.attribute:
            if each.type in (kinds.INT, kinds.FLOAT, kinds.INTS, kinds.FLOATS):
                value = self._onnx.helper.get_attribute_value(each)
                found[each.name] = tuple(value) if isinstance(value, list) else value
        return found

    def _loss(self, outputs: Sequence[str]) -> str:
        """Cross entropy over the last axis of every output, added; of one score a sample the mean of squares."""
        floats = [name for name in outputs if self._tensors[name].dtype.is_float]
        if not floats:
            message = "gives no floating-point output, so there is nothing to train; give a model with scores"
            raise InputError(message, source=self._source)
        total = ""
        for name in floats:
            loss = self._loss_of(name)
            total = self._scalar("aten.add.Tensor", (TensorRef(total), TensorRef(loss))) if total else loss
        return total

    def _loss_of(self, name: str) -> str:
        shape = self._tensors[name].shape
        if len(shape) < 2 or shape[-1] < 2:
            target = self._plain(shape, self._tensors[name].dtype, TracedRole.CONSTANT)
            return self._scalar("aten.mse_loss.default", (TensorRef(name), TensorRef(target)))
        rows = _elements(shape[:-1])
        if len(shape) > 2:
            flat = self._plain((rows, shape[-1]), self._tensors[name].dtype, TracedRole.ACTIVATION)
            self._nodes.append(RecordedNode("aten.reshape.default", (TensorRef(name), (-1, shape[-1])), (flat,)))
            name = flat
        target = self._plain((rows,), TracedDtype.INT64, TracedRole.CONSTANT)
        return self._scalar("aten.cross_entropy_loss.default", (TensorRef(name), TensorRef(target)))

    def _scalar(self, op: str, inputs: tuple[Argument, ...]) -> str:
        result = self._plain((), TracedDtype.FLOAT32, TracedRole.ACTIVATION)
        self._nodes.append(RecordedNode(op, inputs, (result,)))
        return result

    def _plain(self, shape: tuple[int, ...], dtype: TracedDtype, role: TracedRole) -> str:
        return self._add(f"loss.{len(self._tensors)}", shape, dtype, role)
