"""Writing a traced model as `traced_file` reads it."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from phaze_opt.errors import InputError
from phaze_opt.graph.traced.polynomial import Polynomial
from phaze_opt.graph.traced.traced_check import check_traced_model
from phaze_opt.graph.traced.traced_file import (
    FORMAT,
    MAX_FILE_BYTES,
    SIZE_MARK,
    TENSOR_MARK,
    VERSION,
    digest_of,
    parse_traced_model,
)
from phaze_opt.graph.traced.traced_model import (
    Argument,
    TensorRef,
    TracedBody,
    TracedModel,
    TracedNode,
    TracedRepeat,
    TracedRole,
    TracedTensor,
)
from phaze_opt.record.input_files import shorten_path
from phaze_opt.record.whole_file import replace_file


def write_traced_model(model: TracedModel, path: Path) -> None:
    """Write a model to a file, which is read again before it takes its place.

    Raises:
        InputError: the model breaks a rule of the format, is larger than a file may be, or cannot be written.
    """
    text = traced_model_text(model)
    if len(text.encode()) > MAX_FILE_BYTES:
        message = f"the traced model of {model.name} takes more than {MAX_FILE_BYTES >> 20} MiB; fold its blocks"
        raise InputError(message, source=shorten_path(path))
    parse_traced_model(text, source=shorten_path(path))
    replace_file(path, text)


def traced_model_text(model: TracedModel) -> str:
    """The text of a model's file: one line a tensor and one a step.

    Raises:
        InputError: the model breaks a rule of the format.
    """
    check_traced_model(model)
    values = _file_values(model)
    values["digest"] = digest_of(values)
    lines = [f"{json.dumps(key)}: {_laid_out(value)}" for key, value in values.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _laid_out(value: Any) -> str:
    """A list of tables one a line; all else on one line."""
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return "[\n " + ",\n ".join(json.dumps(each, separators=(",", ":")) for each in value) + "\n]"
    return json.dumps(value)


def _file_values(model: TracedModel) -> dict[str, Any]:
    values: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "digest": "",
        "model": model.name,
        "producer": dict(model.producer),
        "symbols": dict(model.symbols),
        "num_positions": model.num_positions,
        "max_sequence_length": model.max_sequence_length,
        "notes": list(model.notes),
        "tensors": [_tensor_values(each) for each in model.tensors],
        "nodes": [
            _repeat_values(step) if isinstance(step, TracedRepeat) else _node_values(step) for step in model.steps
        ],
        "blocks": [_body_values(each) for each in model.bodies],
        "outputs": list(model.outputs),
        "loss": model.loss,
    }
    return values


def _tensor_values(tensor: TracedTensor) -> dict[str, Any]:
    values: dict[str, Any] = {
        "id": tensor.id,
        "shape": [_size_value(size) for size in tensor.shape],
        "dtype": tensor.dtype.value,
    }
    if tensor.role is not TracedRole.ACTIVATION:
        values["role"] = tensor.role.value
    named = (("fqn", tensor.fqn), ("tied_to", tensor.tied_to))
    return values | {key: value for key, value in named if value}


def _size_value(size: Polynomial) -> int | str:
    return str(size) if size.symbols else size.evaluate({})


def _node_values(node: TracedNode) -> dict[str, Any]:
    values: dict[str, Any] = {"op": node.op, "inputs": _plain(node.inputs), "outputs": list(node.outputs)}
    if node.attrs:
        values["attrs"] = {key: _plain(value) for key, value in node.attrs}
    return values | ({"module": node.module} if node.module else {})


def _plain(value: Argument) -> Any:
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    if isinstance(value, TensorRef):
        return f"{TENSOR_MARK}{value.id}"
    if isinstance(value, Polynomial):
        return f"{SIZE_MARK}{value}" if value.symbols else value.evaluate({})
    if isinstance(value, str) and value[:1] in (TENSOR_MARK, SIZE_MARK):
        message = f"the text '{value[:40]}' begins as a tensor or a size does; no argument may"
        raise InputError(message)
    return value


def _repeat_values(step: TracedRepeat) -> dict[str, Any]:
    values: dict[str, Any] = {
        "repeat": step.body,
        "count": step.count,
        "inputs": list(step.inputs),
        "outputs": list(step.outputs),
        "carried": [list(pair) for pair in step.carried],
    }
    return values | ({"first": step.first} if step.first else {})


def _body_values(body: TracedBody) -> dict[str, Any]:
    nodes: Sequence[TracedNode] = body.nodes
    return {
        "id": body.name,
        "inputs": list(body.inputs),
        "outputs": list(body.outputs),
        "tensors": [_tensor_values(each) for each in body.tensors],
        "nodes": [_node_values(each) for each in nodes],
    }
