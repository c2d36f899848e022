"""Reads the original framework's placement instances (``--semantics phaze``) into validated values.

A file is the instance object, or an object that holds it under ``input`` (with ``name`` and ``optimum`` beside it).
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal

import networkx as nx
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from phaze_opt.errors import InputError
from phaze_opt.record.input_files import parse_json, read_text_file

MAX_DEVICES = 1_000_000
"""More devices than any cluster has: a larger number is a mistake in the file."""
MAX_MICRO_BATCHES = 1 << 31
"""More micro-batches than any batch has, likewise."""
MAX_SIZE = 1e30
"""Largest bytes and seconds accepted, and their inverse the slowest link: sums and quotients stay finite."""

_Size = Annotated[float, Field(ge=0, le=MAX_SIZE, strict=True, allow_inf_nan=False)]
_Positive = Annotated[float, Field(ge=1 / MAX_SIZE, le=MAX_SIZE, strict=True, allow_inf_nan=False)]
_Count = Annotated[float, Field(ge=1, strict=True, allow_inf_nan=False)]
_Flag = Annotated[bool, Field(strict=True)]
_LayerId = Annotated[int, Field(strict=True)]
_STRICT = ConfigDict(extra="forbid", frozen=True)


class NodeFile(BaseModel):
    """A layer (or the slice of it that one device holds) as the file writes it; sizes in bytes, latencies in s."""

    model_config = _STRICT
    id: _LayerId
    parameterSize: _Size  # noqa: N815
    activationSize: _Size  # noqa: N815
    optimalLatencyFw: _Size  # noqa: N815
    optimalLatencyBw: _Size  # noqa: N815
    isTensorParallelized: _Flag  # noqa: N815


class EdgeFile(BaseModel):
    """A tensor that one layer sends to another, bytes."""

    model_config = _STRICT
    sourceId: _LayerId  # noqa: N815
    destId: _LayerId  # noqa: N815
    communicationCost: _Size  # noqa: N815


class InstanceFile(BaseModel):
    """The ``input`` object of an instance file. ``fixed...`` and ``numTransformerLayers`` are read and not used."""

    model_config = _STRICT
    maxMemoryPerDevice: _Positive  # noqa: N815
    maxDevices: _Count  # noqa: N815
    bandwidth: _Positive
    mbsInBatch: _Count  # noqa: N815
    nodes: dict[str, list[NodeFile]]
    edges: dict[str, list[EdgeFile]]
    activationRecomputation: _Flag  # noqa: N815
    optimizerAlgorithm: Literal["SGD", "Adam"]  # noqa: N815
    fixedPP: int | None = None  # noqa: N815
    fixedTMPC: int | None = None  # noqa: N815
    fixedDP: int | None = None  # noqa: N815
    numTransformerLayers: int | None = None  # noqa: N815


@dataclass(frozen=True, slots=True)
class PhazeLayer:
    """A layer of the chain; sizes in bytes and latencies in seconds, of one device."""

    layer: int
    parameter_bytes: float
    activation_bytes: float
    forward_s: float
    backward_s: float
    is_sharded: bool


@dataclass(frozen=True, slots=True)
class PhazeEdge:
    """A tensor from the layer at position ``source`` of the chain to the one at ``target``, bytes."""

    source: int
    target: int
    payload_bytes: float


@dataclass(frozen=True, slots=True)
class PhazeChain:
    """The model at one tensor-parallel width: layers in chain order, edges between positions, always forward."""

    tensor_parallel: int
    layers: tuple[PhazeLayer, ...]
    edges: tuple[PhazeEdge, ...]


@dataclass(frozen=True, slots=True)
class PhazeInstance:
    """A placement instance of the original framework.

    Attributes:
        chains: the model at each tensor-parallel width, narrowest first.
        memory_bytes: capacity of a device.
        num_devices: devices.
        bandwidth_bytes_per_s: of every link.
        num_micro_batches: micro-batches in a batch, over all replicas (truncated to an integer).
        is_recomputed: global recomputation flag.
        has_adam: Adam (3 x parameterSize) rather than SGD (2 x).
    """

    chains: tuple[PhazeChain, ...]
    memory_bytes: float
    num_devices: int
    bandwidth_bytes_per_s: float
    num_micro_batches: int
    is_recomputed: bool
    has_adam: bool


def load_phaze_instance(path: str | Path) -> PhazeInstance:
    """Read and validate an instance file.

    Raises:
        InputError: it cannot be read, is no JSON, or breaks a rule; names the file and the key or line.
    """
    source = str(path)
    whole = _parse(read_text_file(Path(path), kind="a JSON instance"), source)
    content: object = whole.get("input", whole)
    if not isinstance(content, dict):
        message = f"must be a JSON object, not {type(content).__name__}"
        raise InputError(message, source=source, key="input")
    return parse_phaze_instance(content, source=source, prefix="input." if "input" in whole else "")


def parse_phaze_instance(content: dict[str, Any], *, source: str, prefix: str = "") -> PhazeInstance:
    """Validate an instance object.

    Raises:
        InputError: a key is unknown or missing, a size out of range, or the graph is no chain.
    """
    try:
        file = InstanceFile.model_validate(content)
    except ValidationError as error:
        raise _input_error(error, source, prefix) from None
    for key, value, most in (
        ("maxDevices", file.maxDevices, MAX_DEVICES),
        ("mbsInBatch", file.mbsInBatch, MAX_MICRO_BATCHES),
    ):
        if value > most:
            message = f"{key} = {value:g} must be at most {most}"
            raise InputError(message, source=source, key=f"{prefix}{key}")
    return PhazeInstance(
        chains=_chains(file, source, prefix),
        memory_bytes=file.maxMemoryPerDevice,
        num_devices=int(file.maxDevices),
        bandwidth_bytes_per_s=file.bandwidth,
        num_micro_batches=int(file.mbsInBatch),
        is_recomputed=file.activationRecomputation,
        has_adam=file.optimizerAlgorithm == "Adam",
    )


def _parse(text: str, source: str) -> dict[str, Any]:
    """The JSON object in a text."""
    content = parse_json(text, source=source)
    if not isinstance(content, dict):
        message = f"must be a JSON object, not {type(content).__name__}"
        raise InputError(message, source=source)
    return content


def _input_error(error: ValidationError, source: str, prefix: str) -> InputError:
    """The first fault of a file as one sentence; unknown keys go first, as they explain missing ones."""
    faults = sorted(error.errors(), key=lambda fault: fault["type"] != "extra_forbidden")
    fault = faults[0]
    where = prefix + ".".join(str(part) for part in fault["loc"])
    if fault["type"] == "extra_forbidden":
        near = difflib.get_close_matches(str(fault["loc"][-1]), _known_keys(fault["loc"]), n=1, cutoff=0.6)
        hint = f"did you mean '{near[0]}'?" if near else f"known: {', '.join(_known_keys(fault['loc']))}"
        return InputError(f"unknown key; {hint}", source=source, key=where)
    if fault["type"] == "missing":
        return InputError("this key is missing", source=source, key=where)
    given = repr(fault["input"])
    given = given if len(given) <= 60 else given[:57] + "..."
    rule = re.sub(r"^Input should be", "must be", fault["msg"])
    return InputError(f"{given} {rule}", source=source, key=where)


def _known_keys(location: tuple[int | str, ...]) -> tuple[str, ...]:
    """Keys allowed where an unknown one stands."""
    model: type[BaseModel] = InstanceFile
    if len(location) > 1:
        model = NodeFile if location[0] == "nodes" else EdgeFile
    return tuple(model.model_fields)


def _chains(file: InstanceFile, source: str, prefix: str) -> tuple[PhazeChain, ...]:
    """The model at every width, checked against one another."""
    widths = {text: _width(text, source, f"{prefix}nodes") for text in file.nodes}
    if not widths:
        message = "needs the layers of at least one tensor-parallel width"
        raise InputError(message, source=source, key=f"{prefix}nodes")
    if set(file.edges) != set(widths):
        message = f"widths {sorted(file.edges)} must be those of nodes, {sorted(widths)}"
        raise InputError(message, source=source, key=f"{prefix}edges")
    chains = []
    order: tuple[int, ...] = ()
    for text in sorted(widths, key=lambda text: widths[text]):
        nodes_key, edges_key = f"{prefix}nodes.{text}", f"{prefix}edges.{text}"
        nodes, edges = file.nodes[text], file.edges[text]
        here = _chain_order(nodes, edges, source=source, nodes_key=nodes_key, edges_key=edges_key)
        order = order or here
        if here != order:
            message = "layers and their order must be the same at every width"
            raise InputError(message, source=source, key=nodes_key)
        chains.append(_chain(nodes, edges, width=widths[text], order=order, source=source, key=nodes_key))
    return tuple(chains)


def _width(text: str, source: str, key: str) -> int:
    """A tensor-parallel width, written as a string."""
    if not text.isascii() or not text.isdecimal() or not 1 <= int(text) <= MAX_DEVICES:
        message = f"width '{text}' must be a positive integer"
        raise InputError(message, source=source, key=key)
    return int(text)


def _chain_order(
    nodes: list[NodeFile], edges: list[EdgeFile], *, source: str, nodes_key: str, edges_key: str
) -> tuple[int, ...]:
    """Layer ids in chain order.

    Raises:
        InputError: ids repeat, edges dangle, repeat or loop, or the graph branches: the original's semantics place
            chains (with skip edges) only.
    """
    ids = [node.id for node in nodes]
    if not ids or len(set(ids)) != len(ids):
        message = "layer ids must be unique" if ids else "needs at least one layer"
        raise InputError(message, source=source, key=nodes_key)
    graph = nx.DiGraph()
    graph.add_nodes_from(ids)
    for number, edge in enumerate(edges):
        fault = _edge_fault(graph, edge)
        if fault:
            raise InputError(fault, source=source, key=f"{edges_key}.{number}")
        graph.add_edge(edge.sourceId, edge.destId)
    if not nx.is_directed_acyclic_graph(graph):
        cycle = " -> ".join(str(source_id) for source_id, _ in nx.find_cycle(graph)[:8])
        message = f"the layers form a cycle ({cycle} -> ...); edges must point from earlier layers to later ones"
        raise InputError(message, source=source, key=edges_key)
    order = tuple(nx.lexicographical_topological_sort(graph))
    for before, after in pairwise(order):
        if not graph.has_edge(before, after):
            message = (
                f"layers {before} and {after} are not joined: the layers must form a chain (skip edges are allowed)"
            )
            raise InputError(message, source=source, key=edges_key)
    return order


def _edge_fault(graph: nx.DiGraph, edge: EdgeFile) -> str:
    """What is wrong with an edge, if anything."""
    for end in (edge.sourceId, edge.destId):
        if end not in graph:
            return f"the edge {edge.sourceId} -> {edge.destId} dangles: there is no layer {end}"
    if edge.sourceId == edge.destId:
        return f"the edge {edge.sourceId} -> {edge.destId} joins a layer to itself"
    if graph.has_edge(edge.sourceId, edge.destId):
        return f"the edge {edge.sourceId} -> {edge.destId} is given twice; add their bytes up"
    return ""


def _chain(
    nodes: list[NodeFile], edges: list[EdgeFile], *, width: int, order: tuple[int, ...], source: str, key: str
) -> PhazeChain:
    """One width as positions in the chain."""
    position = {layer: index for index, layer in enumerate(order)}
    if width == 1 and any(node.isTensorParallelized for node in nodes):
        message = "isTensorParallelized = true makes no sense at width 1"
        raise InputError(message, source=source, key=key)
    layers = tuple(
        PhazeLayer(
            layer=node.id,
            parameter_bytes=node.parameterSize,
            activation_bytes=node.activationSize,
            forward_s=node.optimalLatencyFw,
            backward_s=node.optimalLatencyBw,
            is_sharded=node.isTensorParallelized,
        )
        for node in sorted(nodes, key=lambda node: position[node.id])
    )
    joined = tuple(PhazeEdge(position[e.sourceId], position[e.destId], e.communicationCost) for e in edges)
    return PhazeChain(width, layers, joined)
