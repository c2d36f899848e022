"""What robustness asks of a prover: the optimum and all bounds in one world, and the exact worth of one design.

The real prover of worlds: `certify.proof.prove_problem` in each; exact evaluations of single points.
"""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Protocol, cast

import numpy as np
from numpy.typing import NDArray

from phaze_opt.certify.best_first import PROOF_SLACK
from phaze_opt.certify.bounding import SpaceBounder
from phaze_opt.certify.exact_solution import NUM_EFFORTS, solve_point
from phaze_opt.certify.leanest import lean_designs
from phaze_opt.certify.problem import CertifyProblem
from phaze_opt.certify.proof import Proof, prove_problem
from phaze_opt.certify.robust.worlds import World, WorldKind, depends_on_tdp, problem_in
from phaze_opt.hardware.chip_template import DesignPoint
from phaze_opt.hardware.designed_chip import chips_of
from phaze_opt.hardware.silicon.chip_silicon import chip_power_w
from phaze_opt.objective.bill import own_chips
from phaze_opt.objective.bound_phases import PhasePools
from phaze_opt.objective.evaluate import Objective
from phaze_opt.objective.evaluation import Evaluation
from phaze_opt.objective.goals import Goal, goal_values
from phaze_opt.objective.reference_machines import load_reference
from phaze_opt.objective.scenario import Scenario
from phaze_opt.record.arrays import Flags, Floats, Ints
from phaze_opt.record.workers import Tell
from phaze_opt.space.frontier import FrontierRows
from phaze_opt.space.grid import Grid, PartOfSpace
from phaze_opt.workload.software import TrainingStack


class Cause(StrEnum):
    """What an iteration spends time on: in capitals the fields of `TimeBreakdown`."""

    TENSOR_CORES = "tensor cores"
    VECTOR_CORES = "vector cores"
    MEMORY_BOUND = "memory"
    TENSOR_PARALLEL_COLLECTIVES = "tensor-parallel collectives"
    BOUNDARY_TRANSFERS = "boundary transfers"
    GRADIENT_ALL_REDUCE = "gradient all-reduce"
    BUBBLE = "pipeline bubble"
    UPDATE = "optimizer update"
    MATMUL = "computing"
    ATTENTION = "attention"
    VECTOR = "vector work"
    LAUNCH = "launches"
    PARAMETER = "parameter traffic"
    OVERHEAD = "fixed time"
    WAITING = "waiting for islands"


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """How one model trains on a design.

    Attributes:
        model: name.
        tensor_parallel, num_stages, data_parallel: degrees of the placement.
        cause: what takes the most time of an iteration.
    """

    model: str
    tensor_parallel: int
    num_stages: int
    data_parallel: int
    cause: Cause


@dataclass(frozen=True, slots=True)
class Worth:
    """A design in one world; nothing but zeros where it is infeasible.

    Attributes:
        value: of the goal, attained.
        value_upper: that open schedule gaps leave possible.
        models: of every model of the scenario; empty where infeasible.
    """

    value: float
    value_upper: float
    models: tuple[ModelFacts, ...] = ()


@dataclass(frozen=True, slots=True)
class WorldBest:
    """One of the best points of a world."""

    index: int
    worth: Worth


@dataclass(frozen=True, slots=True, eq=False)
class WorldProof:
    """What is proved of one world.

    Attributes:
        best: the best points, best first; empty if nothing is feasible.
        value_upper: no point exceeds it.
        bounds: upper bound on the goal of every row of the world; 0 where a point is infeasible.
        indices: of the rows, rising; None if they are the points of the space in their order.
        is_shared: of the rows, whether a bound is that of a group of dies; None if none is.
        allowed: dies that could be built within the budgets, `space.frontier.mask_of` in bits; None where rows say so.
    """

    best: tuple[WorldBest, ...]
    value_upper: float
    bounds: Floats
    indices: Ints | None = None
    is_shared: Flags | None = None
    allowed: NDArray[np.uint8] | None = None


class RobustProver(Protocol):
    """Proves worlds; whatever it keeps between calls changes how long they take, never what they return.

    Designs are points of the space by their index, or of its `space.grid.Grid` where chips are dies.
    """

    def find_twins(self, worlds: Sequence[World]) -> tuple[int, ...]:
        """For every world the position of the first in which every point is worth the same; its own if there is none.

        Worlds that turn out the same may pass for different: that costs time and changes nothing.
        """
        ...

    def prove(self, world: World) -> WorldProof:
        """Certify the optimum of one world."""
        ...

    def evaluate(self, world: World, index: int) -> Worth:
        """The exact worth of one design; nothing where it is no die of the world."""
        ...

    def evaluate_reference(self, world: World, name: str) -> Worth:
        """The worth of a reference machine at the best micro-batch of the space; budgets do not apply to it."""
        ...


class FrontierProver(RobustProver, Protocol):
    """A prover of dies whose frontier stands for them."""

    def prove_from(self, world: World, seeds: Sequence[int]) -> WorldProof:
        """`RobustProver.prove`, looking first where some designs are."""
        ...

    def prove_listed(self, world: World, listed: FrontierRows, seeds: Sequence[int]) -> WorldProof:
        """The optimum of one world among listed dies."""
        ...

    def bound(self, world: World, indices: Ints) -> Floats:
        """Bounds of designs, each by itself, shape (num_designs,)."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class WorldTask:
    """Something to be done in a world.

    Attributes:
        world: which.
        design: to be evaluated: a design by its index, a reference machine by its name; None for a proof.
        seeds: of a proof of dies, designs to look at first; None of other proofs.
        listed: dies that the proof is over; None for all of the world.
        bounded: designs to be bounded; None for anything else.
    """

    world: World
    design: int | str | None = None
    seeds: tuple[int, ...] | None = None
    listed: FrontierRows | None = None
    bounded: Ints | None = None


class ProverBench:
    """A prover that does one task after the other (`record.workers.Bench`)."""

    def __init__(self, prover: RobustProver) -> None:
        """Take the prover."""
        self.prover = prover

    def do(self, work: WorldTask, tell: Tell, /) -> WorldProof | Worth | Floats:  # noqa: ARG002 -- short, so it tells nothing
        """One task; its result depends on nothing but the task."""
        if isinstance(work.design, int):
            return self.prover.evaluate(work.world, work.design)
        if isinstance(work.design, str):
            return self.prover.evaluate_reference(work.world, work.design)
        return self._prove(work)

    def _prove(self, work: WorldTask) -> WorldProof | Floats:
        if work.bounded is not None:
            return cast("FrontierProver", self.prover).bound(work.world, work.bounded)
        if work.seeds is None:
            return self.prover.prove(work.world)
        prover = cast("FrontierProver", self.prover)
        if work.listed is None:
            return prover.prove_from(work.world, work.seeds)
        return prover.prove_listed(work.world, work.listed, work.seeds)


CHUNK_POINTS = 4096
"""Points estimated at a time; a matter of memory only."""
PROBED_POINTS = 64
"""Points that tell most worlds apart before the whole space is looked at."""
MOST_COMPARED = 100_000
"""Points of a space in which worlds are compared; in larger ones those that few points do not tell apart are two."""


def worth_of(evaluation: Evaluation, goal: Goal, *, num_devices: int) -> Worth:
    """The goal's value of an evaluation, its bound, and how each model trains.

    Args:
        evaluation: of one model or several.
        goal: of one value.
        num_devices: of the cluster, all of which TDP counts.
    """
    if not evaluation.is_feasible:
        return Worth(0.0, 0.0)
    (value,), divisor = goal_values(goal, evaluation), 1.0
    if goal is Goal.THROUGHPUT_PER_TDP:
        divisor = evaluation.tdp_w * num_devices
    elif goal is Goal.THROUGHPUT_PER_USD:
        divisor = evaluation.throughput_samples_per_s / value
    return Worth(
        value=value,
        value_upper=max(value, evaluation.throughput_bound_samples_per_s / divisor),
        models=tuple(_model_facts(member) for member in evaluation.members or (evaluation,)),
    )


def _model_facts(evaluation: Evaluation) -> ModelFacts:
    """Degrees and largest cause of one model's evaluation; the first of equal causes."""
    placement = evaluation.placement
    if placement is None:
        message = f"a feasible evaluation of {evaluation.model} has no placement"
        raise ValueError(message)
    parts = evaluation.breakdown.parts
    cause = max(parts, key=parts.__getitem__)
    return ModelFacts(
        model=evaluation.model,
        tensor_parallel=placement.tensor_parallel,
        num_stages=len(placement.stages),
        data_parallel=placement.data_parallel,
        cause=Cause[cause.removesuffix("_s").upper()],
    )


class SharedGraphs:
    """Objectives of the problems that worlds pose, which share graphs, and the pools that their proofs begin with."""

    def __init__(self, problem: CertifyProblem) -> None:
        """Nothing is compiled yet; ``problem`` is the nominal one."""
        self._problem = problem
        self._objectives: dict[str, Objective] = {}
        self._lenders: dict[Scenario, Objective] = {}
        self._pools: dict[TrainingStack, PhasePools] = {}

    def objective(self, posed: CertifyProblem) -> Objective:
        """The objective of a problem; graphs are shared between worlds of one network, estimator and software."""
        if posed.digest not in self._objectives:
            scenario, known = posed.scenario, posed.constants
            lender = self._lenders.get(scenario.of_graphs)
            found = Objective(scenario, constants=known) if lender is None else lender.under(known, scenario=scenario)
            self._lenders.setdefault(scenario.of_graphs, found)
            self._objectives[posed.digest] = found
        return self._objectives[posed.digest]

    def pools(self, posed: CertifyProblem) -> PhasePools:
        """The pools that proofs start from: grown for the nominal world, or for other software with other layers."""
        stack = posed.scenario.stack
        if stack not in self._pools:
            is_other = stack != self._problem.scenario.stack
            objective = self.objective(posed if is_other else self._problem)
            pools = PhasePools(posed.scenario.exclusivity)
            for index in range(len(posed.scenario.models)):
                objective.grow_pools(pools, index=index)
            self._pools[stack] = pools
        return self._pools[stack]


class ObjectiveProver:
    """Proves one world after the other.

    Every proof starts from a copy of the pools of dual vectors that are grown for the nominal world: vectors bound
    makespans whatever the constants are, and a copy makes a proof independent of which worlds were proved before.
    """

    def __init__(self, problem: CertifyProblem, *, tolerance: float, num_best: int) -> None:
        """Nothing is compiled yet.

        Args:
            problem: nominal.
            tolerance: relative, of every optimum.
            num_best: designs of the nominal world to be known whatever the tolerance.
        """
        self._problem = problem
        self._tolerance = tolerance
        self._num_best = num_best
        self._grid = Grid(problem.space)
        self._posed: dict[str, CertifyProblem] = {}
        self._graphs = SharedGraphs(problem)

    def find_twins(self, worlds: Sequence[World]) -> tuple[int, ...]:
        """Worlds whose dies, latencies, network and (where they matter) powers and costs are equal at every point.

        Few points tell most worlds apart; those that they do not are compared over the whole space, dies off the
        frontier or over a budget among them: a design may be lean, or within the budget of another world alone.
        """
        size = self._problem.space.size
        everywhere = np.arange(size, dtype=np.int64)
        probed = everywhere[:: max(1, size // PROBED_POINTS)]
        probes = [self._fingerprint(world, probed) for world in worlds]
        full: dict[int, str] = {}
        twins = []
        for position, probe in enumerate(probes):
            same = [other for other in range(position) if probes[other] == probe]
            same = same if size <= MOST_COMPARED else []
            for row in (*same, position) if same else ():
                full.setdefault(row, self._fingerprint(worlds[row], everywhere))
            twins.append(next((other for other in same if full[other] == full[position]), position))
        return tuple(twins)

    def prove(self, world: World) -> WorldProof:
        """Certify the optimum of one world, from a copy of the nominal pools."""
        posed = self._problem_in(world)
        if posed.has_frontier:
            return self.prove_from(world, ())
        if posed.space.size == 0:
            return WorldProof((), 0.0, np.zeros(0), indices=np.zeros(0, dtype=np.int64))
        proof = prove_problem(
            posed,
            tolerance=self._tolerance,
            num_best=self._num_best_in(world),
            objective=self._objective(world),
            pools=self._pools_in(world).copied(),
        )
        indices = None if posed.space.silicon is None else self._grid.of(posed.space)
        return self._proved(proof, [(each.point, each.evaluation) for each in proof.best], indices=indices)

    def prove_from(self, world: World, seeds: Sequence[int]) -> WorldProof:
        """The same of dies whose frontier stands for them; the best are the leanest."""
        posed = self._problem_in(world)
        space = posed.space.within(posed.scenario.max_area_mm2)
        mask = space.allowed(posed.scenario.max_tdp_w, capex=posed.capex)
        allowed = np.packbits(mask)
        if not mask.any():
            nothing = np.zeros(0, dtype=np.int64)
            return WorldProof((), 0.0, np.zeros(0), nothing, np.zeros(0, dtype=np.bool_), allowed)
        proof = self._prove_dies(posed, world, seeds, num_best=self._num_best_in(world), is_lean=True)
        lean = lean_designs(proof.state, proof.bounder, [each.index for each in proof.best])
        best = [(point, solved.evaluation) for point, solved in lean]
        found = self._proved(proof, best, indices=self._grid.of(proof.state.problem.rows))
        return replace(found, is_shared=proof.state.is_shared, allowed=allowed)

    def prove_listed(self, world: World, listed: FrontierRows, seeds: Sequence[int]) -> WorldProof:
        """The best of some dies that are all built in the world; they are not made lean."""
        posed = self._problem_in(world)
        posed = replace(posed, listed=PartOfSpace.of(posed.space, listed))
        proof = self._prove_dies(posed, world, seeds, num_best=1, is_lean=False)
        best = [(each.point, each.evaluation) for each in proof.best]
        found = self._proved(proof, best, indices=self._grid.of(posed.rows))
        return replace(found, is_shared=proof.state.is_shared)

    def bound(self, world: World, indices: Ints) -> Floats:
        """Bounds of dies by the vectors that proofs begin with."""
        bounder = SpaceBounder(self._objective(world), self._grid, pools=self._pools_in(world))
        return bounder.bound(indices).rate_upper

    def _prove_dies(
        self, posed: CertifyProblem, world: World, seeds: Sequence[int], *, num_best: int, is_lean: bool
    ) -> Proof:
        return prove_problem(
            posed,
            tolerance=self._tolerance,
            num_best=num_best,
            objective=self._objective(world),
            pools=self._pools_in(world).copied(),
            is_lean=is_lean,
            seeds=[self._grid.point(index) for index in seeds],
        )

    def _proved(
        self, proof: Proof, best: Sequence[tuple[DesignPoint, Evaluation]], *, indices: Ints | None
    ) -> WorldProof:
        """A proof with its best designs by index."""
        designs = self._problem.space if indices is None else self._grid
        found = tuple(WorldBest(designs.index(point), self._worth(evaluation)) for point, evaluation in best)
        return WorldProof(found, proof.claim.value_upper, proof.state.values_upper, indices)

    def _num_best_in(self, world: World) -> int:
        return self._num_best if world.kind is WorldKind.NOMINAL else 1

    def evaluate(self, world: World, index: int) -> Worth:
        """The exact worth of one point; schedules are solved again while they leave more than the tolerance.

        Not once more where that changed nothing: ten times the nodes take as much longer, and what a tenth of them did
        not move was never seen to give way (decision 0212).
        """
        space = self._problem_in(world).space
        designs = space if space.silicon is None else self._grid
        if space.silicon is not None and not space.builds(self._grid.columns(np.array([index]))).all():
            return Worth(0.0, 0.0)
        objective, best = self._objective(world), Worth(0.0, math.inf)
        for effort in range(NUM_EFFORTS):
            before = best
            found = self._worth(solve_point(objective, designs, index, effort=effort).evaluation)
            upper = min(best.value_upper, found.value_upper)
            best = replace(found if found.value > best.value else best, value_upper=upper)
            is_close = best.value_upper <= best.value * (1.0 + max(self._tolerance, PROOF_SLACK))
            if is_close or _is_unmoved(before, best):
                break
        return best

    def evaluate_reference(self, world: World, name: str) -> Worth:
        """The reference at the best micro-batch of the space, without budgets."""
        objective = self._objective(world)
        alone = replace(objective.scenario.without_budgets(), layer_fusion="")
        free = objective.under(objective.constants, scenario=alone)
        chip = load_reference(name, objective.constants)
        batches = self._problem.space.axes.micro_batch
        worths = [self._worth(free.evaluate_accelerator(chip, batch, is_built=True)) for batch in batches]
        return max(worths, key=lambda worth: worth.value)

    def _problem_in(self, world: World) -> CertifyProblem:
        """The problem that a world poses, made once."""
        if world.problem_digest not in self._posed:
            self._posed[world.problem_digest] = problem_in(self._problem, world)
        return self._posed[world.problem_digest]

    def _pools_in(self, world: World) -> PhasePools:
        return self._graphs.pools(self._problem_in(world))

    def _worth(self, evaluation: Evaluation) -> Worth:
        return worth_of(evaluation, self._problem.goal, num_devices=self._problem.scenario.cluster.num_devices)

    def _objective(self, world: World) -> Objective:
        return self._graphs.objective(self._problem_in(world))

    def _fingerprint(self, world: World, indices: Ints) -> str:
        """Digest of all that an evaluation of these points reads of the constants, and of what dies are built of."""
        posed = self._problem_in(world)
        objective = self._objective(world)
        digest = hashlib.sha256()
        is_networked = posed.scenario.cluster.num_devices > 1 or depends_on_tdp(posed)
        silicon, stack = posed.scenario.silicon, posed.scenario.stack
        digest.update(repr([posed.scenario.cluster.network if is_networked else None, silicon, stack]).encode())
        for start in range(0, len(indices), CHUNK_POINTS):
            columns = self._problem.space.columns(indices[start : start + CHUNK_POINTS])
            chips, micro_batches = chips_of(columns, posed.constants), columns.micro_batch
            digest.update(chips.hbm_bandwidth_bytes_per_s.tobytes())
            if depends_on_tdp(posed):
                digest.update(chip_power_w(chips, posed.scenario.cluster.network, posed.constants).tobytes())
            if posed.has_costs:
                owned = own_chips(chips, posed.scenario, posed.constants)
                digest.update(owned.capex_usd.tobytes() + owned.usd_per_s.tobytes())
            for micro_batch in np.unique(micro_batches).tolist():
                table = chips.take(np.flatnonzero(micro_batches == micro_batch))
                for model in range(len(posed.scenario.models)):
                    _, estimates = objective.bounded(table, micro_batch, index=model)
                    for array in (estimates.one_core_s, estimates.spread_s, estimates.traffic_bytes):
                        digest.update(array.tobytes())
        return digest.hexdigest()


def _is_unmoved(before: Worth, after: Worth) -> bool:
    """Whether another solve neither raised the value nor lowered its bound."""
    is_raised = after.value > before.value * (1.0 + PROOF_SLACK)
    return not is_raised and after.value_upper >= before.value_upper * (1.0 - PROOF_SLACK)
