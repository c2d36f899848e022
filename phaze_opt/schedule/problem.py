"""The scheduling problem of one layer phase, what a caller may ask of the scheduler, and the result (semantics 4).

Reads the original framework's scheduling instances into a `ScheduleProblem`.

A file holds one instance object: name, num_tc, num_vc, nodes (id, core_type TC | VC | TCandVC | Nop, latency,
intra_op_latency) and edges (pairs of ids). Further keys, such as energies, are left unread. A file with a list of
instances works when one is chosen by name. Times are in the file's own unit.
"""

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, fields
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from phaze_opt.errors import InputError
from phaze_opt.graph.operator import CoreType
from phaze_opt.hardware.accelerator import Accelerator, AcceleratorTable
from phaze_opt.record.arrays import Ints
from phaze_opt.record.document import Document
from phaze_opt.record.input_files import parse_json, read_text_file, shorten, shorten_path
from phaze_opt.record.line_numbers import KeyPath
from phaze_opt.record.suggestions import suggest
from phaze_opt.schedule.precedence import order_or_cycle


class Cores(NamedTuple):
    """The two capacities of a chip, all that the scheduler knows of it: how many cores of each type there are."""

    tc: int
    vc: int

    @classmethod
    def of(cls, chip: Accelerator) -> "Cores":
        """The cores of an accelerator."""
        return cls(chip.num_tc, chip.num_vc)


def cores_of_each(table: AcceleratorTable) -> Ints:
    """The cores of many accelerators, shape (num_accelerators, 2), columns as of `Cores`."""
    return np.stack((table.num_tc, table.num_vc), axis=1)


class Exclusivity(StrEnum):
    """What a spread operator excludes while it runs: everything on the chip, or its own core type(s)."""

    CHIP = "chip"
    TYPE = "type"


class ScheduleStatus(StrEnum):
    """Whether the makespan is proven, merely attained, or cut short by the time limit."""

    OPTIMAL = "optimal"
    FEASIBLE = "feasible"
    TIME_LIMIT = "time_limit"


@dataclass(frozen=True, slots=True)
class ScheduleProblem:
    """Operators with two latencies each, precedence, and two kinds of cores.

    Attributes:
        core_types: of each operator: TC, VC, TC_AND_VC or NONE (NETWORK operators are contracted like NONE).
        one_core_s: latency L_i on one core (of each of its types), s.
        spread_s: latency I_i spread over all cores of its type(s), s.
        edges: (before, after) index pairs; acyclic, in any order of indices.
        cores: of each type.
        exclusivity: what a spread operator excludes.
        floor_s: lower bound on the whole problem from HBM traffic: makespan = max(schedule, floor), s.
    """

    core_types: tuple[CoreType, ...]
    one_core_s: tuple[float, ...]
    spread_s: tuple[float, ...]
    edges: tuple[tuple[int, int], ...]
    cores: Cores
    exclusivity: Exclusivity = Exclusivity.CHIP
    floor_s: float = 0.0

    def __post_init__(self) -> None:
        """Check lengths, latencies, core counts and edge ends (cycles are found by `schedule.structure`)."""
        count = len(self.core_types)
        if not (len(self.one_core_s) == len(self.spread_s) == count):
            message = f"{count} core types need as many latencies, got {len(self.one_core_s)} and {len(self.spread_s)}"
            raise InputError(message)
        for latency in (*self.one_core_s, *self.spread_s, self.floor_s):
            if not (math.isfinite(latency) and latency >= 0):
                message = f"latency {latency} must be finite and not negative"
                raise InputError(message)
        if min(self.cores) < 1:
            message = f"cores = {self.cores} must be at least 1 of each type"
            raise InputError(message)
        for before, after in self.edges:
            if not (0 <= before < count and 0 <= after < count) or before == after:
                message = f"edge ({before}, {after}) must join two different operators of 0..{count - 1}"
                raise InputError(message)


MipRuns = frozenset[tuple[str, int]]
"""Blocks that MIPs were solved for, by digest, each with how many: united, a block that is met again counts once."""


def count_mips(runs: Iterable[tuple[str, int]]) -> int:
    """MIPs of all blocks."""
    return sum(number for _, number in runs)


@dataclass(frozen=True, slots=True)
class ScheduleResult:
    """A schedule that `schedule.verify` replays, with its certificate.

    Attributes:
        makespan_s: finish of the last operator, or the floor if that is larger, s.
        lower_bound_s: proven: no schedule is shorter, s.
        status: OPTIMAL when the gap is within tolerance.
        start_s: start of each operator, s.
        is_spread: whether each operator is spread over all cores of its type(s).
        mips: solved on the way (none when bound and heuristic met).
    """

    makespan_s: float
    lower_bound_s: float
    status: ScheduleStatus
    start_s: tuple[float, ...]
    is_spread: tuple[bool, ...]
    mips: MipRuns = frozenset()

    @property
    def num_ilp_solves(self) -> int:
        """How many MIPs."""
        return count_mips(self.mips)

    @property
    def gap(self) -> float:
        """(makespan - lower bound) / makespan; 0 for an empty schedule."""
        return 0.0 if self.makespan_s <= 0 else max(0.0, 1.0 - self.lower_bound_s / self.makespan_s)


MAX_ROUNDS = 4
"""Rounds of lazy core rows where nodes are limited."""


class Exactness(StrEnum):
    """How far the scheduler goes: closed-form bounds and heuristics only, or on to the MIPs until the gap is closed."""

    BOUND = "bound"
    PROVE = "prove"


@dataclass(frozen=True, slots=True)
class ScheduleOptions:
    """Options of `solve_schedule`.

    Attributes:
        exactness: BOUND never calls a MIP solver; PROVE goes on until the gap is accepted or the time is up.
        tolerance: relative gap at which a schedule counts as optimal.
        accept_gap: relative gap at which the scheduler may stop early (0: only when optimal).
        mip_gap: relative gap of a block up to which no MIP is tried on it; the stages before still aim at closing it.
        mip_nodes: branch-and-bound nodes a MIP may take, and with it at most `MAX_ROUNDS` rounds of lazy rows; 0 is no
            limit. Unlike a time limit this gives the same result on every machine.
        time_limit_s: wall-clock budget of the whole solve, s; also enforced outside the MIP solver.
        multi_starts: randomised list schedules tried first on an open block (ten times as many before its first MIP).
        tree_nodes: nodes of the depth-first search on a block before its MIP.
        beam_width: partial schedules on a level of the search by levels, first with a tenth of them; 0: no such search.
            Blocks beyond MIPs are searched wider and wider until the time is up, unless nodes are limited.
        seed: of those list schedules.
    """

    exactness: Exactness = Exactness.PROVE
    tolerance: float = 1e-9
    accept_gap: float = 0.0
    mip_gap: float = 0.0
    mip_nodes: int = 0
    time_limit_s: float = 60.0
    multi_starts: int = 2000
    tree_nodes: int = 1000
    beam_width: int = 1000
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse negative or non-finite settings."""
        for name in (field.name for field in fields(self) if field.name not in ("exactness", "seed")):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                message = f"{name} = {value} must be finite and not negative"
                raise InputError(message)

    @property
    def target_gap(self) -> float:
        """Relative gap at which the scheduler stops."""
        return max(self.tolerance, self.accept_gap)

    @property
    def target_mip_gap(self) -> float:
        """Relative gap at which MIPs stop, or are not begun."""
        return max(self.target_gap, self.mip_gap)


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
