"""Traced-model files written out, for tests that need no framework."""

import json
from typing import Any

from phaze_opt.graph.traced.traced_file import digest_of


def tensor(name: str, shape: list[int | str], role: str = "activation", **more: str) -> dict[str, Any]:
    """A tensor of 32-bit floats."""
    return {"id": name, "shape": shape, "dtype": "float32", "role": role} | more


def node(op: str, inputs: list[Any], output: str) -> dict[str, Any]:
    """An operation of one result."""
    return {"op": op, "inputs": inputs, "outputs": [output]}


def traced_text(
    tensors: list[dict[str, Any]], nodes: list[dict[str, Any]], *, outputs: list[str], **more: list[dict[str, Any]]
) -> str:
    """A file with its digest."""
    values = {
        **{"format": "phaze-traced", "version": 1, "model": "made", "producer": {"hand": "1"}, "symbols": {"b": 1}},
        **{"tensors": tensors, "nodes": nodes, "outputs": outputs},
        **more,
    }
    return json.dumps(values | {"digest": digest_of(values)})
