"""ONNX files: shapes are inferred at several micro-batches, weights are not looked at, nothing is executed."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from phaze_opt.errors import InputError
from phaze_opt.extract.extracting import traced_of
from phaze_opt.extract.onnx_operations import RECURRENT
from phaze_opt.extract.onnx_recording import elements, record_onnx, text_of
from phaze_opt.extract.onnx_shapes import MOST_HELD, GraphShapes, infer_shapes
from phaze_opt.extract.recorded_graph import RecordedGraph, simplify
from phaze_opt.extract.versions import ONNX
from phaze_opt.graph.traced.traced_model import BATCH, TracedModel
from phaze_opt.record.input_files import shorten, shorten_path

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
