"""ONNX files: shapes are inferred at several micro-batches, weights are not looked at, nothing is executed."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from phaze_opt.errors import InputError
from phaze_opt.extract.extracting import traced_of
from phaze_opt.extract.onnx_recording import MOST_HELD, elements, record_onnx, text_of
from phaze_opt.extract.recorded_graph import RecordedGraph, simplify
from phaze_opt.extract.versions import ONNX
from phaze_opt.graph.traced.traced_model import BATCH, TracedModel
from phaze_opt.record.input_files import shorten, shorten_path

MAX_FILE_BYTES = 512 << 20
MAX_NODES = 100_000
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
        name=(text_of(proto.graph.name) or path.stem)[:200],
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


def _notes(proto: Any) -> Iterator[str]:
    kinds = {node.op_type for node in proto.graph.node}
    if "Conv" in kinds and not kinds & NORMS:
        yield (
            "convolutions without normalisation: if this was exported for inference, its batch norms are folded into "
            "weights and a training step of it has fewer parameters and operations; export it in training mode"
        )


def _producer(proto: Any) -> dict[str, str]:
    name = text_of(proto.producer_name)[:60]
    return {name: text_of(proto.producer_version)[:60]} if name else {}


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
    return simplify(record_onnx(inferred.graph, source=shorten_path(path), onnx=onnx))
