"""Reads the original framework's placement instances (``--semantics phaze``) into validated values.

A file is the instance object, or an object that holds it under ``input`` (with ``name`` and ``optimum`` beside it).
"""

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Literal

import networkx as nx
from pydantic import BaseModel, ConfigDict, Field

from phaze_opt.record.document import Document, read_json
from phaze_opt.record.input_files import shorten
from phaze_opt.record.line_numbers import KeyPath

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


class PhazeNode(BaseModel):
    """A layer (or the slice of it that one device holds) as the file writes it; sizes in bytes, latencies in s."""

    model_config = _STRICT
    id: _LayerId
    parameterSize: _Size  # noqa: N815
    activationSize: _Size  # noqa: N815
    optimalLatencyFw: _Size  # noqa: N815
    optimalLatencyBw: _Size  # noqa: N815
    isTensorParallelized: _Flag  # noqa: N815


class PhazeEdgeFile(BaseModel):
    """A tensor that one layer sends to another, bytes."""

    model_config = _STRICT
    sourceId: _LayerId  # noqa: N815
    destId: _LayerId  # noqa: N815
    communicationCost: _Size  # noqa: N815


class PhazeFile(BaseModel):
    """The ``input`` object of an instance file. ``fixed...`` and ``numTransformerLayers`` are read and not used."""

    model_config = _STRICT
    maxMemoryPerDevice: _Positive  # noqa: N815
    maxDevices: Annotated[_Count, Field(le=MAX_DEVICES)]  # noqa: N815
    bandwidth: _Positive
    mbsInBatch: Annotated[_Count, Field(le=MAX_MICRO_BATCHES)]  # noqa: N815
    nodes: dict[str, list[PhazeNode]]
    edges: dict[str, list[PhazeEdgeFile]]
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
    document = read_json(Path(path), kind="a JSON instance")
    return _instance(document, ("input",) if "input" in document.values else ())


def _instance(document: Document, at: KeyPath) -> PhazeInstance:
    """The instance at a path of a document."""
    file = document.validate(PhazeFile, *at)
    return PhazeInstance(
        chains=_chains(file, document, at),
        memory_bytes=file.maxMemoryPerDevice,
        num_devices=int(file.maxDevices),
        bandwidth_bytes_per_s=file.bandwidth,
        num_micro_batches=int(file.mbsInBatch),
        is_recomputed=file.activationRecomputation,
        has_adam=file.optimizerAlgorithm == "Adam",
    )


def _chains(file: PhazeFile, document: Document, at: KeyPath) -> tuple[PhazeChain, ...]:
    """The model at every width, checked against one another."""
    widths = {text: _width(text, document, (*at, "nodes")) for text in file.nodes}
    if not widths:
        rule = "needs the layers of at least one tensor-parallel width"
        raise document.fault(rule, *at, "nodes")
    if set(file.edges) != set(widths):
        rule = f"widths {shorten(sorted(file.edges))} must be those of nodes, {shorten(sorted(widths))}"
        raise document.fault(rule, *at, "edges")
    chains = []
    order: tuple[int, ...] = ()
    for text in sorted(widths, key=lambda text: widths[text]):
        nodes, edges = file.nodes[text], file.edges[text]
        here = _chain_order(nodes, edges, document=document, at=at, text=text)
        order = order or here
        if here != order:
            rule = "layers and their order must be the same at every width"
            raise document.fault(rule, *at, "nodes", text)
        if widths[text] == 1 and any(node.isTensorParallelized for node in nodes):
            rule = "isTensorParallelized = true makes no sense at width 1"
            raise document.fault(rule, *at, "nodes", text)
        chains.append(_chain(nodes, edges, width=widths[text], order=order))
    return tuple(chains)


def _width(text: str, document: Document, at: KeyPath) -> int:
    """A tensor-parallel width, written as a string."""
    is_number = text.isascii() and text.isdecimal() and len(text) <= len(str(MAX_DEVICES))
    if not is_number or not 1 <= int(text) <= MAX_DEVICES:
        rule = f"width {shorten(text)} must be a positive integer of at most {MAX_DEVICES}"
        raise document.fault(rule, *at)
    return int(text)


def _chain_order(
    nodes: list[PhazeNode], edges: list[PhazeEdgeFile], *, document: Document, at: KeyPath, text: str
) -> tuple[int, ...]:
    """Layer ids in chain order.

    Raises:
        InputError: ids repeat, edges dangle, repeat or loop, or the graph branches: the original's semantics place
            chains (with skip edges) only.
    """
    ids = [node.id for node in nodes]
    if not ids or len(set(ids)) != len(ids):
        rule = "layer ids must be unique" if ids else "needs at least one layer"
        raise document.fault(rule, *at, "nodes", text)
    graph = nx.DiGraph()
    graph.add_nodes_from(ids)
    for number, edge in enumerate(edges):
        fault = _edge_fault(graph, edge)
        if fault:
            raise document.fault(fault, *at, "edges", text, number)
        graph.add_edge(edge.sourceId, edge.destId)
    if not nx.is_directed_acyclic_graph(graph):
        cycle = " -> ".join(shorten(source_id) for source_id, _ in nx.find_cycle(graph)[:8])
        rule = f"the layers form a cycle ({cycle} -> ...); edges must point from earlier layers to later ones"
        raise document.fault(rule, *at, "edges", text)
    order = tuple(nx.lexicographical_topological_sort(graph))
    for before, after in pairwise(order):
        if not graph.has_edge(before, after):
            joint = f"layers {shorten(before)} and {shorten(after)} are not joined"
            rule = f"{joint}: the layers must form a chain (skip edges are allowed)"
            raise document.fault(rule, *at, "edges", text)
    return order


def _edge_fault(graph: nx.DiGraph, edge: PhazeEdgeFile) -> str:
    """What is wrong with an edge, if anything."""
    ends = f"the edge {shorten(edge.sourceId)} -> {shorten(edge.destId)}"
    for end in (edge.sourceId, edge.destId):
        if end not in graph:
            return f"{ends} dangles: there is no layer {shorten(end)}"
    if edge.sourceId == edge.destId:
        return f"{ends} joins a layer to itself"
    if graph.has_edge(edge.sourceId, edge.destId):
        return f"{ends} is given twice; add their bytes up"
    return ""


def _chain(nodes: list[PhazeNode], edges: list[PhazeEdgeFile], *, width: int, order: tuple[int, ...]) -> PhazeChain:
    """One width as positions in the chain."""
    position = {layer: index for index, layer in enumerate(order)}
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
