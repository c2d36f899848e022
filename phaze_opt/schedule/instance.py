"""Reads the original framework's scheduling instances into a `ScheduleProblem`.

A file holds one instance object: name, num_tc, num_vc, nodes (id, core_type TC | VC | TCandVC | Nop, latency,
intra_op_latency) and edges (pairs of ids). Further keys, such as energies, are left unread. A file with a list of
instances works when one is chosen by name. Times are in the file's own unit.
"""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from phaze_opt.graph.operator import CoreType
from phaze_opt.record.document import Document
from phaze_opt.record.input_files import parse_json, read_text_file, shorten, shorten_path
from phaze_opt.record.line_numbers import KeyPath
from phaze_opt.record.suggestions import suggest
from phaze_opt.schedule.precedence import order_or_cycle
from phaze_opt.schedule.problem import Cores, Exclusivity, ScheduleProblem

MAX_OPERATORS = 5000
"""More operators than any layer has; a larger file is a mistake."""
_CORE_TYPES = {"TC": CoreType.TC, "VC": CoreType.VC, "TCandVC": CoreType.TC_AND_VC, "Nop": CoreType.NONE}
MAX_LATENCY = 1e15
"""Sums of as many latencies as there may be operators stay finite."""
MAX_CORES = 10**9
"""More cores than operators change nothing."""
_Latency = Annotated[float, Field(ge=0, le=MAX_LATENCY, strict=True, allow_inf_nan=False)]
_Cores = Annotated[int, Field(ge=1, le=MAX_CORES, strict=True)]
_Id = Annotated[int, Field(strict=True)] | Annotated[str, Field(strict=True)]
_LENIENT = ConfigDict(extra="ignore", frozen=True)


class NodeFile(BaseModel):
    """An operator as the file writes it."""

    model_config = _LENIENT
    id: _Id
    core_type: Annotated[str, Field(strict=True)]
    latency: _Latency
    intra_op_latency: _Latency


class InstanceFile(BaseModel):
    """One instance as the file writes it."""

    model_config = _LENIENT
    name: Annotated[str, Field(strict=True)] = ""
    num_tc: _Cores
    num_vc: _Cores
    nodes: Annotated[list[NodeFile], Field(max_length=MAX_OPERATORS)]
    edges: list[tuple[_Id, _Id]]


@dataclass(frozen=True, slots=True)
class ScheduleInstance:
    """A problem with the names that its file gives."""

    name: str
    ids: tuple[int | str, ...]
    problem: ScheduleProblem


def load_instance(
    path: str | Path, *, exclusivity: Exclusivity = Exclusivity.CHIP, name: str | None = None
) -> ScheduleInstance:
    """Read and validate an instance file.

    Args:
        path: the file.
        exclusivity: what a spread operator excludes (files mean ``chip``).
        name: which instance of a file that holds a list.

    Raises:
        InputError: it cannot be read, is no JSON or breaks a rule; names the file and the key or line.
    """
    source, text = shorten_path(Path(path)), read_text_file(Path(path), kind="a JSON instance")
    document = Document(parse_json(text, source=source), text, source, is_json=True)
    return _instance(document, _choose(document, name), exclusivity=exclusivity, stem=Path(path).stem)


def _instance(document: Document, at: KeyPath, *, exclusivity: Exclusivity, stem: str) -> ScheduleInstance:
    """The instance at a path of a document."""
    file = document.validate(InstanceFile, *at)
    ids = tuple(node.id for node in file.nodes)
    repeated = [node for node, count in Counter(ids).items() if count > 1]
    if repeated:
        rule = f"id {shorten(repeated[0])} is given to several nodes; ids must be unique"
        raise document.fault(rule, *at, "nodes")
    problem = ScheduleProblem(
        core_types=tuple(_core_type(node, document, (*at, "nodes", index)) for index, node in enumerate(file.nodes)),
        one_core_s=tuple(node.latency for node in file.nodes),
        spread_s=tuple(node.intra_op_latency for node in file.nodes),
        edges=_edges(file, ids, document, (*at, "edges")),
        cores=Cores(file.num_tc, file.num_vc),
        exclusivity=exclusivity,
    )
    return ScheduleInstance(name=file.name or stem, ids=ids, problem=problem)


def _core_type(node: NodeFile, document: Document, at: KeyPath) -> CoreType:
    if node.core_type in _CORE_TYPES:
        return _CORE_TYPES[node.core_type]
    hint = suggest(node.core_type, _CORE_TYPES)
    rule = f"node {shorten(node.id)} has the unknown core type {shorten(node.core_type)}; {hint}"
    raise document.fault(rule, *at, "core_type")


def _edges(
    file: InstanceFile, ids: tuple[int | str, ...], document: Document, at: KeyPath
) -> tuple[tuple[int, int], ...]:
    position = {node: index for index, node in enumerate(ids)}
    for index, edge in enumerate(file.edges):
        for end in edge:
            if end not in position:
                rule = f"edge {shorten(list(edge))} refers to node {shorten(end)}, which is not in 'nodes'"
                raise document.fault(rule, *at, index)
    edges = tuple(dict.fromkeys((position[before], position[after]) for before, after in file.edges))
    cycle = _cycle(len(ids), edges)
    if cycle:
        shown = cycle if len(cycle) <= 12 else [*cycle[:11], cycle[-1]]
        walk = " -> ".join(shorten(ids[index]) for index in shown)
        rule = f"the graph has the cycle {walk}; precedence must be acyclic"
        raise document.fault(rule, *at)
    return edges


def _cycle(count: int, edges: tuple[tuple[int, int], ...]) -> list[int]:
    """Indices along one cycle, the first repeated at the end; empty when acyclic."""
    loops = [before for before, after in edges if before == after]
    if loops:
        return [loops[0], loops[0]]
    return order_or_cycle(count, edges)[1]


def _choose(document: Document, name: str | None) -> KeyPath:
    """Where the one instance meant stands: the object itself, or the list's entry of that name."""
    content: Any = document.values
    if isinstance(content, list) and all(isinstance(entry, dict) for entry in content) and content:
        names = [str(entry["name"]) if isinstance(entry.get("name"), str) else "" for entry in content]
        if name is None:
            listed = f"{', '.join(shorten(each) for each in names[:10])}{', ...' if len(names) > 10 else ''}"
            rule = f"holds a list of {len(content)} instances; choose one with --name (known: {listed})"
            raise document.fault(rule)
        if name not in names:
            rule = f"holds no instance named {shorten(name)}; {suggest(name, names)}"
            raise document.fault(rule)
        return (names.index(name),)
    if not isinstance(content, dict):
        rule = "must be a JSON object with nodes and edges"
        raise document.fault(rule)
    if name is not None and content.get("name") != name:
        rule = f"holds the instance {shorten(content.get('name'))}, not {shorten(name)}"
        raise document.fault(rule)
    return ()
