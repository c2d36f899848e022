"""Traced-model files (docs/traced-model.md): reading one executes nothing; a fault is one sentence with its place.

Writing a traced model as `traced_file` reads it.
"""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from phaze_opt.errors import InputError
from phaze_opt.graph.traced.polynomial import Polynomial, parse_polynomial
from phaze_opt.graph.traced.traced_check import MAX_OPERATIONS, check_traced_model, faults_of
from phaze_opt.graph.traced.traced_model import (
    Argument,
    TensorRef,
    TracedBody,
    TracedDtype,
    TracedModel,
    TracedNode,
    TracedRepeat,
    TracedRole,
    TracedTensor,
)
from phaze_opt.record.document import Document, parse_json_object
from phaze_opt.record.input_files import is_file, read_text_file, shorten, shorten_path
from phaze_opt.record.whole_file import replace_file

FORMAT = "phaze-traced"
VERSION = 1
KIND = "a traced-model file"
MAX_FILE_BYTES = 32 << 20
MAX_DEPTH = 4
"""Lists within lists that an argument may be."""
TENSOR_MARK, SIZE_MARK = "%", "="
"""What a text that is a tensor's id, and one that is a size, begins with among arguments."""
MAX_DIFFERENT_SIZES = 4096
"""Sizes that a model may have, as they are written."""
_MAX_LIST = 4096
_MAX_TENSORS = 2 * MAX_OPERATIONS
_HEAD_BYTES = 1024
"""Beginning of a file in which its format stands."""
_Id = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[A-Za-z0-9_.:{}\[\]-]+$")]
_Text = Annotated[str, Field(max_length=1000)]


class _Table(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class _TensorTable(_Table):
    id: _Id
    shape: Annotated[list[int | str], Field(max_length=16)]
    dtype: Annotated[TracedDtype, Field(strict=False)]
    role: Annotated[TracedRole, Field(strict=False)] = TracedRole.ACTIVATION
    fqn: _Text = ""
    tied_to: _Text = ""


class _NodeTable(_Table):
    op: Annotated[str, Field(min_length=1, max_length=200)]
    inputs: Annotated[list[Any], Field(max_length=_MAX_LIST)]
    outputs: Annotated[list[_Id], Field(max_length=_MAX_LIST)]
    attrs: Annotated[dict[str, Any], Field(max_length=100)] = {}
    module: _Text = ""


class _RepeatTable(_Table):
    repeat: _Id
    count: int
    inputs: Annotated[list[_Id], Field(max_length=_MAX_LIST)]
    outputs: Annotated[list[_Id], Field(max_length=_MAX_LIST)]
    carried: Annotated[list[Annotated[list[int], Field(min_length=2, max_length=2)]], Field(max_length=_MAX_LIST)] = []
    first: Annotated[int, Field(ge=0, le=1_000_000)] = 0


class _BlockTable(_Table):
    id: _Id
    inputs: list[_Id]
    outputs: Annotated[list[_Id], Field(min_length=1)]
    tensors: Annotated[list[_TensorTable], Field(max_length=_MAX_TENSORS)]
    nodes: Annotated[list[_NodeTable], Field(max_length=MAX_OPERATIONS)]


class _FileTable(_Table):
    format: Literal["phaze-traced"]
    version: Literal[1]
    digest: _Text
    model: Annotated[str, Field(min_length=1, max_length=200)]
    producer: Annotated[dict[str, str], Field(max_length=20)]
    symbols: dict[str, int]
    num_positions: Annotated[int, Field(ge=1)] = 1
    max_sequence_length: Annotated[int, Field(ge=0)] = 0
    notes: Annotated[list[_Text], Field(max_length=100)] = []
    tensors: Annotated[list[_TensorTable], Field(max_length=_MAX_TENSORS)]
    nodes: Annotated[list[Any], Field(min_length=1, max_length=MAX_OPERATIONS)]
    blocks: Annotated[list[_BlockTable], Field(max_length=_MAX_LIST)] = []
    outputs: Annotated[list[_Id], Field(min_length=1)]
    loss: _Text = ""


def is_traced_model(values: Mapping[str, Any]) -> bool:
    """Whether a parsed JSON object says that it is a traced model."""
    return values.get("format") == FORMAT


def begins_as_traced_model(path: Path) -> bool:
    """Whether a file begins as a traced model does; one that cannot be read does not."""
    if not is_file(path):
        return False
    try:
        with path.open("rb") as stream:
            head = stream.read(_HEAD_BYTES)
    except OSError:
        return False
    return re.search(rb'"format"\s*:\s*"phaze-traced"', head) is not None


def read_traced_model(path: Path) -> TracedModel:
    """The model of a file.

    Raises:
        InputError: as `parse_traced_model`, or the file cannot be read.
    """
    text = read_text_file(path, kind=KIND, max_bytes=MAX_FILE_BYTES)
    return traced_model_of(parse_json_object(text, source=shorten_path(path), kind=KIND))


def parse_traced_model(text: str, *, source: str) -> TracedModel:
    """The model of a file's text; ``source`` is named in errors.

    Raises:
        InputError: no JSON, no traced model, another version, a digest that is not the contents', or what breaks a
            rule; names the line and the key.
    """
    return traced_model_of(parse_json_object(text, source=source, kind=KIND))


def traced_model_of(document: Document) -> TracedModel:
    """The model of a parsed file.

    Raises:
        InputError: as `parse_traced_model`.
    """
    _check_head(document)
    table = document.validate(_FileTable, advice="write the file anew, or correct it by docs/traced-model.md")
    model = _Reading(document).model(table)
    if table.digest != digest_of(document.values):
        rule = "is not the digest of the contents; the file was changed since it was written: write it anew"
        raise document.fault(rule, "digest")
    for path, rule in faults_of(model):
        raise document.fault(rule, *path)
    return model


def digest_of(values: Mapping[str, Any]) -> str:
    """Digest of a file's contents but the digest itself, whatever its white space."""
    rest = {key: value for key, value in values.items() if key != "digest"}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def _check_head(document: Document) -> None:
    """A file of something else, or of another version, says nothing about its keys."""
    if not is_traced_model(document.values):
        rule = f"value {shorten(document.values.get('format'))} is not '{FORMAT}'; give {KIND}"
        raise document.fault(rule, "format")
    version = document.values.get("version")
    if version != VERSION or isinstance(version, bool):
        rule = f"value {shorten(version)} is not {VERSION}, the version that is read; extract the model again"
        raise document.fault(rule, "version")


class _Reading:
    """Tables of a document to values, with faults at their places."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._sizes: dict[str | int, Polynomial] = {}

    def model(self, table: _FileTable) -> TracedModel:
        return TracedModel(
            name=table.model,
            producer=table.producer,
            symbols=table.symbols,
            tensors=self._tensors(table.tensors, "tensors"),
            steps=tuple(self._step(each, "nodes", index) for index, each in enumerate(table.nodes)),
            outputs=tuple(table.outputs),
            bodies=tuple(self._body(each, "blocks", index) for index, each in enumerate(table.blocks)),
            loss=table.loss,
            num_positions=table.num_positions,
            max_sequence_length=table.max_sequence_length,
            notes=tuple(table.notes),
        )

    def _body(self, table: _BlockTable, *path: str | int) -> TracedBody:
        nodes = tuple(self._node(each, *path, "nodes", index) for index, each in enumerate(table.nodes))
        tensors = self._tensors(table.tensors, *path, "tensors")
        return TracedBody(table.id, tuple(table.inputs), tuple(table.outputs), tensors, nodes)

    def _tensors(self, tables: Sequence[_TensorTable], *path: str | int) -> tuple[TracedTensor, ...]:
        return tuple(
            TracedTensor(each.id, self._shape(each.shape, *path, index), each.dtype, each.role, each.fqn, each.tied_to)
            for index, each in enumerate(tables)
        )

    def _shape(self, sizes: Sequence[int | str], *path: str | int) -> tuple[Polynomial, ...]:
        return tuple(self._size(size, *path, "shape", axis) for axis, size in enumerate(sizes))

    def _size(self, size: int | str, *path: str | int) -> Polynomial:
        if size not in self._sizes:
            if len(self._sizes) == MAX_DIFFERENT_SIZES:
                rule = f"size {shorten(size)} comes after {MAX_DIFFERENT_SIZES:,} different ones; no more can be read"
                raise self._document.fault(rule, *path)
            try:
                self._sizes[size] = parse_polynomial(str(size))
            except InputError as error:
                raise self._document.fault(str(error), *path) from None
        return self._sizes[size]

    def _step(self, value: Any, *path: str | int) -> TracedNode | TracedRepeat:
        if not (isinstance(value, dict) and "repeat" in value):
            return self._node(self._document.validate(_NodeTable, *path), *path)
        table = self._document.validate(_RepeatTable, *path)
        carried = tuple((source, target) for source, target in table.carried)
        inputs, outputs = tuple(table.inputs), tuple(table.outputs)
        return TracedRepeat(table.repeat, table.count, inputs, outputs, carried, table.first)

    def _node(self, table: _NodeTable, *path: str | int) -> TracedNode:
        inputs = tuple(self._argument(each, *path, "inputs", index) for index, each in enumerate(table.inputs))
        attrs = tuple((key, self._argument(each, *path, "attrs", key)) for key, each in sorted(table.attrs.items()))
        return TracedNode(table.op, inputs, tuple(table.outputs), attrs, table.module)

    def _argument(self, value: Any, *path: str | int, depth: int = 0) -> Argument:
        if isinstance(value, list):
            if depth == MAX_DEPTH:
                rule = f"is a list within {MAX_DEPTH} others; no argument is"
                raise self._document.fault(rule, *path)
            return tuple(self._argument(each, *path, depth=depth + 1) for each in value)
        if isinstance(value, dict):
            rule = f"value {shorten(value)} must be a tensor ('%id'), a size ('=b*s'), a literal or a list of them"
            raise self._document.fault(rule, *path)
        if isinstance(value, str) and value.startswith(TENSOR_MARK):
            return TensorRef(value[1:])
        if isinstance(value, str) and value.startswith(SIZE_MARK):
            return self._size(value[1:], *path)
        literal: None | bool | int | float | str = value
        return literal


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
