"""An ONNX graph whose shapes are known, with a loss at its end, as a recorded graph."""

from collections.abc import Sequence
from typing import Any

from phaze_opt.errors import InputError
from phaze_opt.extract.onnx_operations import RECURRENT, RESHAPES, OnnxCall, translate
from phaze_opt.extract.onnx_shapes import DYNAMIC_ADVICE, MOST_HELD, GraphShapes
from phaze_opt.extract.recorded_graph import RecordedGraph, RecordedTensor
from phaze_opt.graph.traced.traced_model import Argument, TensorRef, TracedDtype, TracedNode, TracedRole
from phaze_opt.record.input_files import shorten

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
