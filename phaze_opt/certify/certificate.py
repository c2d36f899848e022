"""What a certificate holds, as values; `docs/certificate.md` says what each proves.

Shared by the prover and the checker, so nothing here computes anything but the digest of what is stated.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any

from phaze_opt.graph.operator import CoreType, Phase
from phaze_opt.hardware.chip_template import DesignPoint
from phaze_opt.objective.goals import FrontAxis, Goal
from phaze_opt.objective.scenario import Scenario
from phaze_opt.record.plain_data import omit_default
from phaze_opt.space.search_space import SearchSpace
from phaze_opt.workload.plan import ParallelPlan, Recompute

FORMAT = 2
"""Version of the files; a certificate of another one is refused."""
CERTIFICATE_FILE = "certificate.json"
POINTS_FILE = "points.parquet"
POOL_FILE = "pool.json"
MULTIPLIERS_FILE = "multipliers.npz"
SOLUTIONS_FILE = "solutions.json"
DATA_FILES = (POINTS_FILE, POOL_FILE, MULTIPLIERS_FILE, SOLUTIONS_FILE)
"""All but ``certificate.json``, which keeps their digests."""
FRONT_FILE, WORLDS_DIRECTORY = "front.json", "worlds"
"""The statement of a front over worlds, and where the certificates of its worlds lie beside it."""
JOURNAL_DIRECTORY = "journal"
"""Of a proof under way, beneath the certificate that it may replace; no part of it."""
NO_MULTIPLIERS = -1
"""`multipliers_index` of a row without a bound to compute."""
BOUND_SLACK = 1e-9
"""Relative width by which batch times are lowered for the rounding of flows and sums."""
DIGEST_KEY = "digest"
"""Where ``certificate.json`` keeps it."""


class PointStatus(StrEnum):
    """Whether a point was left because of its bound alone, or has a solution of its own."""

    PRUNED = "pruned-by-bound"
    SOLVED = "solved"


class PlacementBound(StrEnum):
    """The placement behind an upper bound; NONE where a broken budget needs no bound."""

    RELAXED = "relaxed"
    EXACT = "exact"
    NONE = "none"


class Infeasibility(StrEnum):
    """Why a point is infeasible; FEASIBLE where that is not certain."""

    FEASIBLE = ""
    OVER_AREA = "over the area budget"
    OVER_TDP = "over the TDP budget"
    OUT_OF_MEMORY = "no placement fits the memory"
    OVER_CAPEX = "over the capex budget"


@dataclass(frozen=True, slots=True)
class FlowEntry:
    """A flow from source to sink over the operators of a block, lists in the order of its operators and arcs."""

    source: tuple[float, ...]
    sink: tuple[float, ...]
    flow: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class VectorEntry:
    """A dual vector: prices of a block that bound its makespan on every design.

    Attributes:
        core_multipliers: mu of tensor and vector cores.
        flows: one under chip, three under type; empty where all weight is on cores.
        arcs: pairs that ``flow`` runs over; empty: the block's own.
    """

    core_multipliers: tuple[float, float]
    flows: tuple[FlowEntry, ...]
    arcs: tuple[tuple[int, int], ...] = ()


class NodeKind(StrEnum):
    """How a node of a proof tree splits the schedules."""

    LEAF = "leaf"
    MODE = "mode"
    ORDER = "order"
    CORES = "cores"


@dataclass(frozen=True, slots=True)
class TreeNode:
    """One node; its children follow it in depth-first order.

    Attributes:
        branching: what it is.
        operators: (i,) of MODE, (i, j) of ORDER, n + 1 of CORES.
        core_type: of CORES.
        num_cores: of CORES: valid on designs with at most so many.
        vector: of a LEAF; None where its orders form a cycle.
    """

    branching: NodeKind
    operators: tuple[int, ...] = ()
    core_type: CoreType = CoreType.NONE
    num_cores: int = 0
    vector: VectorEntry | None = None


@dataclass(frozen=True, slots=True)
class TreeEntry:
    """A proof tree: cases that cover all schedules of a block."""

    nodes: tuple[TreeNode, ...]


@dataclass(frozen=True, slots=True)
class SearchEntry:
    """A search that ended: no schedule of a block with these latencies, on these cores or fewer, is shorter.

    Attributes:
        num_cores: tensor and vector cores.
        one_core_s, spread_s: latencies of the operators, s.
        makespan_s: than this, s.
        vectors: that cut the search.
    """

    num_cores: tuple[int, int]
    one_core_s: tuple[float, ...]
    spread_s: tuple[float, ...]
    makespan_s: float
    vectors: tuple[VectorEntry, ...]


BoundEntry = VectorEntry | TreeEntry | SearchEntry
"""What bounds a block's makespan."""


@dataclass(frozen=True, slots=True)
class PoolBlock:
    """A block and all that bounds it; ``arcs`` and ``entries`` are empty for a single operator."""

    operators: tuple[int, ...]
    arcs: tuple[tuple[int, int], ...]
    entries: tuple[BoundEntry, ...]


@dataclass(frozen=True, slots=True)
class PoolTopology:
    """A scheduling problem's topology: core types and edges as the scheduler sees them."""

    core_types: tuple[CoreType, ...]
    edges: tuple[tuple[int, int], ...]
    blocks: tuple[PoolBlock, ...]


@dataclass(frozen=True, slots=True)
class PoolFile:
    """A line of ``pool.json``; all have the same topologies and blocks, and further entries of these."""

    topologies: tuple[PoolTopology, ...]


@dataclass(frozen=True, slots=True)
class Slot:
    """A block whose bound a multiplier row chooses: column of ``multipliers.npz``.

    Attributes:
        model: index in the scenario.
        tensor_parallel: degree.
        layer: row among the model's distinct layers.
        phase: forward, backward or update.
        topology, block: position in `PoolFile`.
        set_number: of full plans the set of layers, by rising tensor, context, expert and expert tensor degree and
            micro-batch; else -1.
        is_again: forward as full recomputation runs it where the software keeps some of its results; of full plans.
    """

    model: int
    tensor_parallel: int
    layer: int
    phase: Phase
    topology: int
    block: int
    set_number: Annotated[int, omit_default(-1)] = -1
    is_again: Annotated[bool, omit_default(default=False)] = False


@dataclass(frozen=True, slots=True)
class SolvedStage:
    """Layers ``first`` to ``last`` of the chain, and whether they recompute."""

    first: int
    last: int
    is_recomputed: bool


@dataclass(frozen=True, slots=True)
class SolvedSchedule:
    """Start, s, and mode of every operator of one distinct layer's phase; ``is_again`` as of `Slot`."""

    layer: int
    phase: Phase
    start_s: tuple[float, ...]
    is_spread: tuple[bool, ...]
    is_again: Annotated[bool, omit_default(default=False)] = False


@dataclass(frozen=True, slots=True)
class SolvedPlan:
    """A full plan, with the blocks of every stage and what each recomputes, first stage first."""

    plan: ParallelPlan
    blocks: tuple[int, ...]
    recompute: tuple[Recompute, ...]


@dataclass(frozen=True, slots=True)
class SolvedGroup:
    """Layers that run one after the other, once for every part of the micro-batch, with a reserve of the buffer.

    Attributes:
        num_layers: that follow those of the group before.
        num_parts: of the micro-batch.
        holds_weights: whether their weights stay in the reserve from the first part to the last.
        is_written: whether what goes from layer to layer goes to HBM too.
        reserved_bytes: of the buffer; operators have the rest.
    """

    num_layers: int
    num_parts: int
    holds_weights: bool
    is_written: bool
    reserved_bytes: int


@dataclass(frozen=True, slots=True)
class SolvedRun:
    """Groups of all layers of a model chunk, counted along the model, in the order that a phase runs them."""

    chunk: int
    phase: Phase
    groups: tuple[SolvedGroup, ...]


@dataclass(frozen=True, slots=True)
class SolvedPart:
    """How one part of a micro-batch runs through a layer of a group.

    Attributes:
        num_parts: of the micro-batch.
        has_input: whether the tensor that comes is in the reserve.
        spares_output: whether the one that goes is there alone.
        has_weights: whether the weights are there from the part before.
        reserved_bytes: of the buffer.
        schedule: of the layer.
    """

    num_parts: int
    has_input: bool
    spares_output: bool
    has_weights: bool
    reserved_bytes: int
    schedule: SolvedSchedule


@dataclass(frozen=True, slots=True)
class SolvedFusion:
    """Layers of a plan's stages in groups; chunks without a run, and groups of a whole layer, run as schedules say."""

    runs: tuple[SolvedRun, ...]
    parts: tuple[SolvedPart, ...]


@dataclass(frozen=True, slots=True)
class SolvedModel:
    """Placement and schedules of one model on one design; ``stages`` are empty where there is a full ``plan``."""

    tensor_parallel: int
    data_parallel: int
    stages: tuple[SolvedStage, ...]
    schedules: tuple[SolvedSchedule, ...]
    plan: Annotated[SolvedPlan | None, omit_default(None)] = None
    fusion: Annotated[SolvedFusion | None, omit_default(None)] = None


@dataclass(frozen=True, slots=True)
class Solution:
    """How one point attains its throughput, model by model."""

    index: int
    models: tuple[SolvedModel, ...]


@dataclass(frozen=True, slots=True)
class SolutionsFile:
    """A line of ``solutions.json``, by rising index."""

    solutions: tuple[Solution, ...]


@dataclass(frozen=True, slots=True)
class Claim:
    """The statement that a certificate proves.

    Attributes:
        is_feasible: whether any point is; if not, the rest is zero and -1.
        incumbent: index of the best design.
        point: the same.
        value, value_upper: of the goal: samples/s, or samples/s/W; of a front the fastest design's and the largest
            bound of any, samples/s.
        throughput_samples_per_s: of the incumbent.
        gap: value_upper / value - 1; of a front the largest excess of any row's bound over what the best solved row
            attains that is no worse in the other goals.
        tolerance: asked for.
        is_proved: gap <= tolerance (and the rounding of bounds).
        num_points, num_solved: points of the space, and rows that were solved.
        num_left_out: points without a row: over a budget, or no faster than one that has a row.
        front: rows on the front, rising; none where there is one goal.
    """

    is_feasible: bool
    incumbent: int
    point: DesignPoint | None
    value: float
    value_upper: float
    throughput_samples_per_s: float
    gap: float
    tolerance: float
    is_proved: bool
    num_points: int
    num_solved: int
    num_left_out: Annotated[int, omit_default(0)] = 0
    front: Annotated[tuple[int, ...], omit_default(())] = ()

    @property
    def num_rows(self) -> int:
        """Points that have a row."""
        return self.num_points - self.num_left_out


@dataclass(frozen=True, slots=True)
class CertificateProvenance:
    """What made a certificate; nothing of it is needed to check one.

    Attributes:
        package_version, python_version, solver: versions.
        num_ilp_solves, num_placements: effort, whatever machine.
        wall_s: of the proof, all its sessions together, s.
    """

    package_version: str
    python_version: str
    solver: str
    num_ilp_solves: int
    num_placements: int
    wall_s: float


@dataclass(frozen=True, slots=True)
class Certificate:
    """Contents of ``certificate.json``.

    Attributes:
        format: `FORMAT`.
        claim: what is proved.
        goal, scenario, space: the problem.
        constants_digest: of the constants that it is posed with.
        problem_digest: of all of these (`objective.goals`).
        slots: columns of ``multipliers.npz``.
        files: sha256 of every other file by name.
        provenance: how it came about.
        digest: of all of the others (`content_digest`).
        axes: goals of a front.
    """

    format: int
    claim: Claim
    goal: Goal
    scenario: Scenario
    space: SearchSpace
    constants_digest: str
    problem_digest: str
    slots: tuple[Slot, ...]
    files: dict[str, str]
    provenance: CertificateProvenance
    digest: str = ""
    axes: Annotated[tuple[FrontAxis, ...], omit_default(())] = ()


@dataclass(frozen=True, slots=True)
class ProvedWorld:
    """A world of a front: its name, the directory of its certificate, and the optimum of throughput there, samples/s.

    Worlds that pose one problem of throughput share a certificate. ``value`` is 0 where nothing is feasible.
    """

    name: str
    certificate: str
    value: float
    value_upper: float


@dataclass(frozen=True, slots=True)
class DesignOverWorlds:
    """A design on a front over worlds.

    Attributes:
        row: of the nominal world's certificate.
        point: the design.
        share, share_upper: the least share of a world's optimum that it attains in any world, and a bound on it.
        worst_world: position of the first world where it attains no more.
        throughput_samples_per_s: attained in the nominal world.
        tdp_w, area_mm2: the most in any world.
        cost_usd: of a device, the most in any world; None where cost is no goal.
        shares: of each world's optimum that it attains, 0 where nothing is feasible.
    """

    row: int
    point: DesignPoint
    share: float
    share_upper: float
    worst_world: int
    throughput_samples_per_s: float
    tdp_w: float
    area_mm2: float
    cost_usd: float | None
    shares: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class FrontOverWorlds:
    """Contents of ``front.json``.

    Attributes:
        format: `FORMAT`.
        axes, scenario, space: the problem of the nominal world.
        problem_digest: of these and of its constants.
        num_samples, seed: which samples are worlds beside corners and choices made otherwise.
        tolerance: asked for, of every optimum and of the front.
        worlds: the nominal one first.
        designs: on the front, by rising row.
        gap: the largest excess of a design's bound over the best share that is attained by one no worse in the rest.
        is_proved: gap and those of all optima are within the tolerance (and the rounding of bounds).
        num_points, num_solved: designs of the nominal world that have a row, and those solved in every world.
        files: sha256 of ``certificate.json`` by the directory of each world's certificate.
        package_version: that made it.
        wall_s: that it took, s.
        digest: of all of the others (`content_digest`).
    """

    format: int
    axes: tuple[FrontAxis, ...]
    scenario: Scenario
    space: SearchSpace
    problem_digest: str
    num_samples: int
    seed: int
    tolerance: float
    worlds: tuple[ProvedWorld, ...]
    designs: tuple[DesignOverWorlds, ...]
    gap: float
    is_proved: bool
    num_points: int
    num_solved: int
    files: dict[str, str]
    package_version: str
    wall_s: float
    digest: str = ""


def content_digest(content: Mapping[str, Any]) -> str:
    """sha256 of the JSON values of ``certificate.json`` without their digest: keys sorted, no spaces, UTF-8.

    It protects against accidents and careless hands alone. Whoever changes a certificate on purpose computes it again,
    and is found by the check of what the certificate states.
    """
    others = {key: value for key, value in content.items() if key != DIGEST_KEY}
    text = json.dumps(others, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def is_unchanged(content: Mapping[str, Any]) -> bool:
    """Whether the content is that which its digest was computed of."""
    return content.get(DIGEST_KEY) == content_digest(content)
