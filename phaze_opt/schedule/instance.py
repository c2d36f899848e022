"""Reads the original framework's scheduling instances into a `ScheduleProblem`.

A file holds one instance object: name, num_tc, num_vc, nodes (id, core_type TC | VC | TCandVC | Nop, latency,
intra_op_latency) and edges (pairs of ids). Further keys, such as energies, are left unread. A file with a list of
instances works when one is chosen by name. Times are in the file's own unit.
"""

from __future__ import annotations

import difflib
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from phaze_opt.errors import InputError
from phaze_opt.graph.operator import CoreType
from phaze_opt.record.input_files import parse_json, read_text_file
from phaze_opt.schedule.precedence import find_cycle, successor_lists
from phaze_opt.schedule.problem import Exclusivity, ScheduleProblem

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
    source = str(path)
    content = _choose(parse_json(read_text_file(Path(path), kind="a JSON instance"), source=source), name, source)
    return parse_instance(content, source=source, exclusivity=exclusivity)


def parse_instance(
    content: dict[str, Any], *, source: str, exclusivity: Exclusivity = Exclusivity.CHIP
) -> ScheduleInstance:
    """Validate one instance object.

    Raises:
        InputError: a key is missing or out of range, an id is repeated or unknown, or the graph has a cycle.
    """
    try:
        file = InstanceFile.model_validate(content)
    except ValidationError as error:
        raise _input_error(error, content, source) from None
    ids = tuple(node.id for node in file.nodes)
    repeated = [node for node, count in Counter(ids).items() if count > 1]
    if repeated:
        message = f"id {repeated[0]!r} is given to several nodes; ids must be unique"
        raise InputError(message, source=source, key="nodes")
    edges = _edges(file, ids, source)
    problem = ScheduleProblem(
        core_types=tuple(_core_type(node, source) for node in file.nodes),
        one_core_s=tuple(node.latency for node in file.nodes),
        spread_s=tuple(node.intra_op_latency for node in file.nodes),
        edges=edges,
        num_tc=file.num_tc,
        num_vc=file.num_vc,
        exclusivity=exclusivity,
    )
    return ScheduleInstance(name=file.name or Path(source).stem, ids=ids, problem=problem)


def _core_type(node: NodeFile, source: str) -> CoreType:
    if node.core_type in _CORE_TYPES:
        return _CORE_TYPES[node.core_type]
    near = difflib.get_close_matches(node.core_type.lower(), [known.lower() for known in _CORE_TYPES], n=1)
    meant = [known for known in _CORE_TYPES if near and known.lower() == near[0]]
    hint = f"did you mean '{meant[0]}'?" if meant else f"known: {', '.join(_CORE_TYPES)}"
    message = f"node {node.id!r} has the unknown core type {_shown(node.core_type)}; {hint}"
    raise InputError(message, source=source, key="core_type")


def _edges(file: InstanceFile, ids: tuple[int | str, ...], source: str) -> tuple[tuple[int, int], ...]:
    position = {node: index for index, node in enumerate(ids)}
    for edge in file.edges:
        for end in edge:
            if end not in position:
                message = f"edge [{edge[0]!r}, {edge[1]!r}] refers to node {end!r}, which is not in 'nodes'"
                raise InputError(message, source=source, key="edges")
    edges = tuple(dict.fromkeys((position[before], position[after]) for before, after in file.edges))
    cycle = _cycle(len(ids), edges)
    if cycle:
        walk = " -> ".join(str(ids[index]) for index in (cycle if len(cycle) <= 12 else [*cycle[:11], cycle[-1]]))
        message = f"the graph has the cycle {walk}; precedence must be acyclic"
        raise InputError(message, source=source, key="edges")
    return edges


def _cycle(count: int, edges: tuple[tuple[int, int], ...]) -> list[int]:
    """Indices along one cycle, the first repeated at the end; empty when acyclic."""
    loops = [before for before, after in edges if before == after]
    if loops:
        return [loops[0], loops[0]]
    successors = successor_lists(count, edges)
    waiting = Counter(after for _, after in edges)
    ready = [index for index in range(count) if not waiting[index]]
    done = set()
    while ready:
        operator = ready.pop()
        done.add(operator)
        for target in successors[operator]:
            waiting[target] -= 1
            if not waiting[target]:
                ready.append(target)
    left = [index for index in range(count) if index not in done]
    return find_cycle(successors, left) if left else []


def _choose(content: object, name: str | None, source: str) -> dict[str, Any]:
    """The one instance meant: the object itself, or the list's entry of that name."""
    if isinstance(content, list) and all(isinstance(entry, dict) for entry in content) and content:
        names = [str(entry.get("name", "")) for entry in content]
        known = f"known: {', '.join(names[:10])}{', ...' if len(names) > 10 else ''}"
        if name is None:
            message = f"holds a list of {len(content)} instances; choose one with --name ({known})"
            raise InputError(message, source=source)
        if name not in names:
            near = difflib.get_close_matches(name, names, n=1)
            message = f"holds no instance named '{name}'; " + (f"did you mean '{near[0]}'?" if near else known)
            raise InputError(message, source=source)
        entry: dict[str, Any] = content[names.index(name)]
        return entry
    if not isinstance(content, dict):
        message = f"must be a JSON object with nodes and edges, not {type(content).__name__}"
        raise InputError(message, source=source)
    if name is not None and content.get("name") != name:
        message = f"holds the instance '{content.get('name')}', not '{name}'"
        raise InputError(message, source=source)
    return content


def _input_error(error: ValidationError, content: dict[str, Any], source: str) -> InputError:
    fault = error.errors()[0]
    parts = [part for part in fault["loc"] if part not in ("int", "str")]
    where = ".".join(str(part) for part in parts)
    if fault["type"] == "missing":
        holder: Any = content
        for part in parts[:-1]:
            holder = holder[part]
        near = difflib.get_close_matches(str(parts[-1]), [str(key) for key in holder], n=1, cutoff=0.7)
        hint = f"; did you mean '{parts[-1]}' by '{near[0]}'?" if near else ""
        return InputError(f"this key is missing{hint}", source=source, key=where)
    rule = re.sub(r"^Input should be", "must be", fault["msg"])
    rule = re.sub(r"^(List|Tuple) should", r"must", rule)
    return InputError(f"{_shown(fault['input'])} {rule}", source=source, key=where)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
