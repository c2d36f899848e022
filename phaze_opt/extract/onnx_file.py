"""ONNX files: shapes are inferred at several micro-batches, weights are not looked at, nothing is executed.

An ONNX graph whose shapes are known, with a loss at its end, as a recorded graph.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from phaze_opt.errors import InputError
from phaze_opt.extract.extracting import traced_of
from phaze_opt.extract.onnx_operations import (
    DYNAMIC_ADVICE,
    MOST_HELD,
    RECURRENT,
    RESHAPES,
    GraphShapes,
    OnnxCall,
    infer_shapes,
    translate,
)
from phaze_opt.extract.recorded_graph import RecordedGraph, RecordedTensor, simplify
from phaze_opt.extract.versions import ONNX
from phaze_opt.graph.traced.traced_model import (
    BATCH,
    Argument,
    TensorRef,
    TracedDtype,
    TracedModel,
    TracedNode,
    TracedRole,
)
from phaze_opt.record.input_files import shorten, shorten_path

MAX_AXES, MAX_SIZE = 16, 1 << 40


def record_onnx(graph: Any, shapes: GraphShapes, *, source: str, onnx: Any) -> RecordedGraph:
    """Record a graph.

    Args:
        graph: of the file.
        shapes: of its tensors.
        source: the file, for errors.
        onnx: the module.

    Raises:
        InputError: a tensor without a shape or of a type that a file does not have, or nothing to train.
    """
    return _Recording(graph, shapes, source, onnx).graph()


def elements(dims: Sequence[int]) -> int:
    """Number of elements of a shape."""
    product = 1
    for size in dims:
        product *= int(size)
    return product


def text_of(name: str | bytes) -> str:
    """A name of a file, which may be no text."""
    return name if isinstance(name, str) else name.decode(errors="replace")


class _Recording:
    """Goes over an ONNX graph whose shapes are known."""

    def __init__(self, graph: Any, shapes: GraphShapes, source: str, onnx: Any) -> None:
        self._graph = graph
        self._shapes = shapes
        self._source = source
        self._onnx = onnx
        self._tensors: dict[str, RecordedTensor] = {}
        self._ids: dict[str, str] = {}
        self._nodes: list[TracedNode] = []
        norms = (node for node in graph.node if node.op_type == "BatchNormalization")
        self._statistics = {name for node in norms for name in node.input[3:5]}
        taken = {name for node in graph.node for name in node.input}
        self._used = frozenset(taken | {value.name for value in graph.output})

    def graph(self) -> RecordedGraph:
        for tensor in self._graph.initializer:
            self._declare_held(tensor, is_trained=True)
        for value in self._graph.input:
            if value.name not in self._ids:
                self._declare(value.name, TracedRole.INPUT)
        for node in self._graph.node:
            self._record(node)
        outputs = [self._ids[value.name] for value in self._graph.output if value.name in self._ids]
        loss = self._loss(outputs)
        return RecordedGraph(self._tensors, tuple(self._nodes), (loss,))

    def _declare_held(self, tensor: Any, *, is_trained: bool) -> None:
        """A tensor whose values the file holds: an initializer is trained, a constant among the operators is not."""
        dtype = self._dtype(tensor.data_type, tensor.name)
        shape = self._sizes(tensor.dims, tensor.name)
        is_weight = is_trained and dtype.is_float and bool(shape) and elements(shape) > 1
        role = TracedRole.PARAMETER if is_weight else TracedRole.CONSTANT
        role = TracedRole.BUFFER if tensor.name in self._statistics else role
        self._add(tensor.name, shape, dtype, role, fqn=text_of(tensor.name) if role is not TracedRole.CONSTANT else "")
        if elements(shape) <= MOST_HELD and not tensor.external_data and tensor.name not in self._shapes.held:
            message = f"tensor {shorten(tensor.name)} holds other data than its shape says"
            sentence = f"{message}; give a model that checks"
            raise InputError(sentence, source=self._source)

    def _sizes(self, dims: Sequence[int], name: str) -> tuple[int, ...]:
        """A shape, which no program has made larger than any machine or negative."""
        shape = tuple(int(size) for size in dims)
        if len(shape) > MAX_AXES or any(not 0 <= size <= MAX_SIZE for size in shape):
            message = f"tensor {shorten(name)} has shape {shorten(list(shape))}"
            sentence = f"{message}; at most {MAX_AXES} axes from 0 to {MAX_SIZE} can be read"
            raise InputError(sentence, source=self._source)
        return shape

    def _declare(self, name: str, role: TracedRole) -> str:
        sizes = self._shapes.shape(name)
        if sizes is None or not all(sizes):
            message = f"tensor {shorten(name)} has no shape that can be inferred; export the model with fixed sizes"
            sentence = f"{message} but for the micro-batch"
            raise InputError(sentence, source=self._source)
        dtype = self._dtype(self._shapes.types[name].tensor_type.elem_type, name)
        return self._add(name, self._sizes(sizes, name), dtype, role)

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
        if not node.output or not node.output[0]:
            message = f"operator {shorten(node.name or node.op_type)} gives nothing; give a model that checks"
            raise InputError(message, source=self._source)
        if node.op_type == "Constant":
            self._constant(node)
            return
        if node.output[0] in self._shapes.held:
            # Computed of shapes: no operator of a step.
            self._add(node.output[0], self._shapes.held[node.output[0]].shape, TracedDtype.INT64, TracedRole.CONSTANT)
            return
        inputs = tuple(self._taken(name, node) for name in node.input)
        outputs = [self._declare(name, TracedRole.ACTIVATION) for name in node.output[:1]]
        outputs += [self._declare(name, TracedRole.ACTIVATION) for name in node.output[1:] if name in self._used]
        call = OnnxCall(
            op=text_of(node.op_type),
            inputs=inputs,
            attributes=self._attributes(node),
            ranks=tuple(len(self._tensors[each.id].shape) if each else 0 for each in inputs),
            output_shape=self._tensors[outputs[0]].shape if outputs else (),
            constants={
                at: tuple(int(each) for each in self._shapes.held[name].reshape(-1))
                for at, name in enumerate(node.input)
                if name in self._shapes.held and self._shapes.held[name].dtype.kind in "iub"
            },
        )
        self._check(call, node)
        op, arguments = self._recurrent(call) if call.op in RECURRENT else translate(call)
        self._nodes.append(TracedNode(op, arguments, tuple(outputs), (), text_of(node.name)[:1000]))

    def _check(self, call: OnnxCall, node: Any) -> None:
        """Refuse a view of another number of elements, as of a shape that holds the micro-batch as a number."""
        given = call.input(0)
        if call.op not in RESHAPES or given is None:
            return
        before, after = elements(self._tensors[given.id].shape), elements(call.output_shape)
        if before != after:
            message = f"operator {shorten(node.name or node.op_type)} makes {after} elements of {before}"
            sentence = f"{message}; {DYNAMIC_ADVICE}"
            raise InputError(sentence, source=self._source)

    def _recurrent(self, call: OnnxCall) -> tuple[str, tuple[Argument, ...]]:
        """A recurrent layer as torch has it, whose directions have weights of their own and biases of both products."""
        states, *others = (each for each in call.inputs[1:4] if each is not None)
        ways = self._tensors[states.id].shape[0]
        weights: list[Argument] = []
        for way in range(ways):
            own = [self._selected(each, way) for each in (states, *others)]
            weights += [*own, *own[2:]]
        initial = tuple(each for each in call.inputs[5:7] if each is not None)
        switches = (call.input(3) is not None, 1, 0.0, True, ways > 1, bool(call.integer("layout", 0)))
        return RECURRENT[call.op], (call.input(0), initial, tuple(weights), *switches)

    def _selected(self, given: TensorRef, place: int) -> TensorRef:
        """One of the parts that a tensor holds along its first axis."""
        whole = self._tensors[given.id]
        part = self._plain(whole.shape[1:], whole.dtype, TracedRole.ACTIVATION)
        self._nodes.append(TracedNode("aten.select.int", (given, 0, place), (part,)))
        return TensorRef(part)

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
        self._declare_held(value, is_trained=False)

    def _attributes(self, node: Any) -> dict[str, Argument]:
        """Numbers, texts and lists of them."""
        kinds = self._onnx.AttributeProto
        found: dict[str, Argument] = {}
        for each in node.attribute:
            if each.type in (kinds.INT, kinds.FLOAT, kinds.INTS, kinds.FLOATS, kinds.STRING):
                value = self._onnx.helper.get_attribute_value(each)
                value = text_of(value) if isinstance(value, bytes) else value
                found[each.name] = tuple(value) if isinstance(value, list | tuple) else value
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
        rows = elements(shape[:-1])
        if len(shape) > 2:
            flat = self._plain((rows, shape[-1]), self._tensors[name].dtype, TracedRole.ACTIVATION)
            self._nodes.append(TracedNode("aten.reshape.default", (TensorRef(name), (-1, shape[-1])), (flat,)))
            name = flat
        target = self._plain((rows,), TracedDtype.INT64, TracedRole.CONSTANT)
        return self._scalar("aten.cross_entropy_loss.default", (TensorRef(name), TensorRef(target)))

    def _scalar(self, op: str, inputs: tuple[Argument, ...]) -> str:
        result = self._plain((), TracedDtype.FLOAT32, TracedRole.ACTIVATION)
        self._nodes.append(TracedNode(op, inputs, (result,)))
        return result

    def _plain(self, shape: tuple[int, ...], dtype: TracedDtype, role: TracedRole) -> str:
        return self._add(f"loss.{len(self._tensors)}", shape, dtype, role)


MAX_FILE_BYTES = 512 << 20
MAX_NODES = 20_000
"""Operators of a graph with all functions in place."""
COPIED_BYTES = 1 << 14
"""Of an operator of a function, from which on it counts as two."""
MAX_CALLS = 100
"""Functions that call one another in a row."""
Key = tuple[str, str, str]
"""Domain, name and overload of a function."""
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
    _name_states(proto)
    own = _own_batch(proto)
    at_export = _shapes_at(proto, own, path, onnx, at_export=None) if own else None
    graphs = [_graph_at(proto, batch, path, onnx, at_export=at_export) for batch in BATCHES]
    return traced_of(
        graphs,
        [{BATCH: batch} for batch in BATCHES],
        name=(text_of(proto.graph.name) or path.stem)[:200],
        producer={"onnx": ONNX.version(onnx), **_producer(proto)},
        symbols={BATCH: 1},
        notes=tuple(_notes(proto, own)),
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
    except Exception as error:  # noqa: BLE001 - the parser's own errors
        message = f"is no ONNX file ({' '.join(str(error).split())[:150]}); give one that onnx.load reads"
        raise InputError(message, source=source) from error
    return _put_in_place(proto, source=source)


def _check(proto: Any, path: Path) -> None:
    """Refuse what has no graph, too much of one, or parts that run as data decides."""
    source = shorten_path(path)
    nodes = proto.graph.node
    if not nodes or not proto.graph.output:
        message = "holds no graph with operators and outputs; give an ONNX model"
        raise InputError(message, source=source)
    nested = next((node for node in nodes if node.op_type in NESTED), None)
    if nested is not None:
        message = f"operator {shorten(nested.name)} is a {nested.op_type}, which runs as data decides"
        sentence = f"{message}; export the model without it"
        raise InputError(sentence, source=source)


def _forget_weights(proto: Any) -> None:
    """Keep of large tensors their shapes alone."""
    for tensor in proto.graph.initializer:
        if elements(tensor.dims) > MOST_HELD:
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


def _name_states(proto: Any) -> None:
    """Give recurrent layers of which the last states alone are read a name for those of all steps."""
    for node in proto.graph.node:
        if node.op_type in RECURRENT and node.output and not node.output[0]:
            node.output[0] = f"states of {node.name or node.output[-1]}"


def _notes(proto: Any, own: int) -> Iterator[str]:
    if own:
        yield f"the file holds sizes alone: the first axis of its inputs, {own:,}, is read as the micro-batch"
    kinds = {node.op_type for node in proto.graph.node}
    if "Conv" in kinds and not kinds & NORMS:
        yield (
            "convolutions without normalisation: if this was exported for inference, its batch norms are folded into "
            "weights and a training step of it has fewer parameters and operations; export it in training mode"
        )


def _producer(proto: Any) -> dict[str, str]:
    name = text_of(proto.producer_name)[:60]
    return {name: text_of(proto.producer_version)[:60]} if name else {}


def _own_batch(proto: Any) -> int:
    """The micro-batch that a file was exported at; 0 where it is a symbol, or inputs have several."""
    held = {tensor.name for tensor in proto.graph.initializer}
    axes = [value.type.tensor_type.shape.dim for value in proto.graph.input if value.name not in held]
    found = {first[0].dim_value for first in axes if len(first)}
    return found.pop() if len(found) == 1 else 0


def _graph_at(proto: Any, batch: int, path: Path, onnx: Any, *, at_export: GraphShapes | None) -> RecordedGraph:
    """The graph at a micro-batch, with its loss."""
    shapes = _shapes_at(proto, batch, path, onnx, at_export=at_export)
    return simplify(record_onnx(proto.graph, shapes, source=shorten_path(path), onnx=onnx))


def _shapes_at(proto: Any, batch: int, path: Path, onnx: Any, *, at_export: GraphShapes | None) -> GraphShapes:
    """Shapes at a micro-batch, whatever the file says of it."""
    held = {tensor.name for tensor in proto.graph.initializer}
    for value in proto.graph.input:
        axes = value.type.tensor_type.shape.dim
        if value.name not in held and len(axes):
            axes[0].ClearField("dim_param")
            axes[0].dim_value = batch
    try:
        return infer_shapes(proto, onnx, at_export=at_export)
    except InputError as error:
        raise InputError(str(error), source=shorten_path(path)) from error


def _put_in_place(proto: Any, *, source: str) -> Any:
    """The model with its functions in the places of their calls.

    Args:
        proto: of the file.
        source: the file, for errors.

    Raises:
        InputError: too many operators, functions that call themselves, or what the library does not take.
    """
    functions = {(each.domain, each.name, each.overload): each for each in proto.functions}
    total = _Counted(functions, source).total(proto.graph.node, ())
    if total > MAX_NODES:
        message = f"holds {total:,} operators with its functions in place; at most {MAX_NODES:,} can be read"
        raise InputError(message, source=source)
    if not functions:
        return proto
    from onnx import inliner

    try:
        return inliner.inline_local_functions(proto)
    except Exception as error:  # noqa: BLE001 - the library's own errors
        message = f"has functions that cannot be put in place ({' '.join(str(error).split())[:150]})"
        sentence = f"{message}; give a model that checks"
        raise InputError(sentence, source=source) from error


class _Counted:
    """Operators of every function, those of the functions that it calls included; nothing is put in place for it.

    One that holds a large value counts as several: it is copied for every call.
    """

    def __init__(self, functions: Mapping[Key, Any], source: str) -> None:
        self._functions = functions
        self._source = source
        self._totals: dict[Key, int] = {}

    def total(self, nodes: Any, above: tuple[Key, ...]) -> int:
        """Those of some nodes, of which the functions ``above`` are being counted."""
        count = 0
        for node in _all_nodes(nodes):
            key = (node.domain, node.op_type, getattr(node, "overload", ""))
            copied = node.ByteSize() // COPIED_BYTES if above else 0
            count += self._of(key, above) if key in self._functions else 1 + copied
        return count

    def _of(self, key: Key, above: tuple[Key, ...]) -> int:
        if key in above:
            message = f"function {shorten(key[1])} calls itself; give a model that checks"
            raise InputError(message, source=self._source)
        if len(above) >= MAX_CALLS:
            message = f"has more than {MAX_CALLS} functions that call one another in a row; give a flatter model"
            raise InputError(message, source=self._source)
        if key not in self._totals:
            self._totals[key] = self.total(self._functions[key].node, (*above, key))
        return self._totals[key]


def _all_nodes(nodes: Any) -> Iterator[Any]:
    """Nodes, and those of graphs that they hold."""
    waiting = [nodes]
    while waiting:
        for node in waiting.pop():
            yield node
            for attribute in node.attribute:
                waiting += [attribute.g.node] if attribute.HasField("g") else []
                waiting += [graph.node for graph in attribute.graphs]
