"""Closing one point: its own dual vectors where they can matter, its exact solution, trees and searches for the rest.

Vectors, trees and searches are made for the option (the layers of one tensor degree, or of full plans of one set of
degrees) that limits the point, and for the next one should that limit it then: the others are ruled out by what the
pools have, as in `objective.best_placement` and `objective.scheduled_plan`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np
from pydantic import PlainSerializer, PlainValidator

from phaze_opt.certify.bounding import BoundOptimum, SpaceBounder
from phaze_opt.certify.certificate import Solution
from phaze_opt.certify.exact_solution import SolvedPoint, solve_point, with_effort
from phaze_opt.certify.pool_entries import NewEntry, certified_entry, vector_entry
from phaze_opt.objective.best_placement import HANG_GUARD_S
from phaze_opt.objective.bound_phases import MakespanBounds, PoolKey, pool_key
from phaze_opt.objective.compile import CompiledPhase
from phaze_opt.objective.evaluation import Evaluation, evaluation_from_json, evaluation_to_json
from phaze_opt.record.arrays import Floats
from phaze_opt.record.plain_data import omit_default
from phaze_opt.schedule.beam_search import search_block
from phaze_opt.schedule.block_data import BlockProblem
from phaze_opt.schedule.dual_pool import DualPool, PoolEntry
from phaze_opt.schedule.dual_program import DualProgram
from phaze_opt.schedule.duals import DualVector, dual_bound
from phaze_opt.schedule.problem import Cores, MipRuns, cores_of_each, count_mips
from phaze_opt.schedule.proof_search import REACHED, grow_tree
from phaze_opt.schedule.solve import ScheduleOptions, bound_compiled, solve_compiled
from phaze_opt.schedule.structure import ScheduleStructure

TIGHT = 1e-9
"""Bounds closer than this, relative, to what a schedule attains are not worth raising."""
TREE_NODES = (64, 512, 4096)
"""Largest trees of each effort."""
MARGIN = 0.9
"""Share of the excess over the incumbent that a tree leaves to be: times that no tree touches count too."""


@dataclass(frozen=True, slots=True)
class RefineGoal:
    """What closing a point has to show.

    Attributes:
        enough_rate: the point is ruled out once its throughput is bounded by this, samples/s.
        slack: or by this many times what it attains itself.
        effort: of schedules and trees, 0 .. `exact_solution.NUM_EFFORTS` - 1.
    """

    enough_rate: float
    slack: float
    effort: int


KeptEvaluation = Annotated[
    Evaluation, PlainSerializer(evaluation_to_json, return_type=dict[str, Any]), PlainValidator(evaluation_from_json)
]
"""An evaluation whose JSON is the command line's."""


@dataclass(frozen=True, slots=True)
class PointOutcome:
    """What closing one point gave, as journals keep it.

    Attributes:
        index: of the point.
        entries: to be added to the pools.
        evaluation: None where bounds ruled the point out.
        solution: None where it is infeasible, too.
        num_placements: solved for bounds.
        num_ilp_solves: for trees and searches.
        mips: the same by block.
    """

    index: int
    entries: tuple[NewEntry, ...]
    evaluation: KeptEvaluation | None
    solution: Solution | None
    num_placements: int
    num_ilp_solves: int = 0
    mips: Annotated[tuple[tuple[str, int], ...], omit_default(())] = ()

    @property
    def solved(self) -> SolvedPoint | None:
        """The point, if it was solved."""
        return None if self.evaluation is None else SolvedPoint(self.evaluation, self.solution)


@dataclass(slots=True)
class _OpenPhase:
    """One phase of one degree of a model, or one of its alternatives, while its bound is raised.

    Attributes:
        place: of its bound among the model's makespans: degree, layer, phase.
        structure: its blocks.
        topology, pool: what is known of its topology.
        way: shares, and latencies on one core and spread whose makespans these are of, shape (num_operators,) each, s.
        choices: pool entries of the blocks of two and more operators.
        least_s: its bound, s.
        block_s: bounds of these blocks, once their own vectors are known, s.
    """

    place: tuple[int, int, int]
    structure: ScheduleStructure
    topology: int
    pool: DualPool
    way: tuple[tuple[float, tuple[Floats, Floats]], ...]
    choices: list[int]
    least_s: float
    block_s: list[float] = field(default_factory=list)

    @property
    def latencies(self) -> tuple[Floats, Floats]:
        """Those of the last share, which its entries are solved for: entries bound whatever they are solved for."""
        return self.way[-1][1]

    def problem(self, number: int, cores: Cores) -> BlockProblem:
        """One of its blocks."""
        return self.pool.block_problem(number, *self.latencies, cores)

    @property
    def lower_s(self) -> float:
        """Blocks follow one another, so their bounds add up; a single operator takes its faster mode at least."""
        singles = [block.operators[0] for block in self.structure.blocks if len(block) == 1]
        return float(np.minimum(*(of_mode[singles] for of_mode in self.latencies)).sum()) + sum(self.block_s)


@dataclass(slots=True)
class _OpenModel:
    """One model on one point while its bounds are raised.

    Attributes:
        index: in the scenario.
        bounds: of its makespans.
        phases: of each option those that have blocks to bound.
        best: the optimum on these bounds.
        refined, grown: options whose own vectors, and trees, are known, by position.
    """

    index: int
    bounds: MakespanBounds
    phases: list[list[_OpenPhase]]
    best: BoundOptimum | None = None
    refined: set[int] = field(default_factory=set)
    grown: set[int] = field(default_factory=set)

    @property
    def limiting(self) -> int:
        """Position of the option that limits it."""
        assert self.best is not None
        return self.best.option

    def raise_to(self, phase: _OpenPhase) -> None:
        """Take in what the blocks of a phase bound it by; of alternatives the least counts."""
        makespan_s, phase.least_s = self.bounds.makespan_s[0], max(phase.least_s, phase.lower_s)
        makespan_s[phase.place] = max(makespan_s[phase.place], min(each.least_s for each in self.rivals(phase)))

    def rivals(self, phase: _OpenPhase) -> list[_OpenPhase]:
        """The alternatives of a phase, itself among them."""
        return [each for each in self.phases[phase.place[0]] if each.place == phase.place]


class PointRefiner:
    """Closes points of one problem; programs of dual vectors are kept, nothing else."""

    def __init__(self, bounder: SpaceBounder, *, is_brief: bool = False) -> None:
        """Share the pools, which are never changed here; brief evaluations lack what only printed designs need."""
        self.bounder, self._is_brief = bounder, is_brief
        self._programs: dict[tuple[int, int], DualProgram] = {}
        self._topology_of: dict[PoolKey, int] = {key: number for number, key in enumerate(bounder.topologies)}

    def refine(self, index: int, goal: RefineGoal) -> PointOutcome:
        """Raise the bounds of a point until it is ruled out, solve it, and close the gap that is left."""
        return _Refining(self, index, goal).run()

    def solve(self, index: int, *, effort: int) -> SolvedPoint:
        """Solve a point whatever its bound."""
        objective, space = self.bounder.objective, self.bounder.space
        return solve_point(objective, space, index, effort=effort, is_brief=self._is_brief)

    def look_ahead(self, indices: Sequence[int]) -> None:
        """Bound the layers of points together that are solved next."""
        objective, space = self.bounder.objective, self.bounder.space
        objective.look_ahead([objective.accelerator(space.point(index)) for index in indices])

    def topology(self, phase: CompiledPhase) -> int:
        """Number of a phase's topology."""
        return self._topology_of[pool_key(phase)]

    def program(self, topology: int, pool: DualPool, problem: BlockProblem, number: int) -> DualProgram:
        """The program of one block, built when first needed."""
        key = (topology, number)
        if key not in self._programs:
            self._programs[key] = DualProgram(problem.block, pool.exclusivity)
        return self._programs[key]


class _Refining:
    """The closing of one point."""

    def __init__(self, refiner: PointRefiner, index: int, goal: RefineGoal) -> None:
        """Start with the bounds of the pools."""
        self._refiner, self._bounder = refiner, refiner.bounder
        self._index, self._goal = index, goal
        self._chip, micro_batches = self._bounder.chips(np.array([index], dtype=np.int64))
        self._cores = Cores(*cores_of_each(self._chip)[0].tolist())
        self._micro_batch = int(micro_batches[0])
        self._models = [self._open(model) for model in range(len(self._bounder.objective.scenario.models))]
        self._entries: list[NewEntry] = []
        # What blocks were raised to: forward that runs again has those of forward.
        self._raised_s: dict[tuple[int, int, tuple[float, ...], tuple[float, ...]], float] = {}
        self._num_placements, self._mips = 0, MipRuns()

    def run(self) -> PointOutcome:
        """Vectors, solution, trees."""
        rate = self._raise_until(self._goal.enough_rate)
        if rate <= self._goal.enough_rate:
            return self._outcome(None)
        solved = self._refiner.solve(self._index, effort=self._goal.effort)
        attained = solved.evaluation.throughput_samples_per_s
        enough = max(self._goal.enough_rate, attained * self._goal.slack)
        while rate > enough:
            open_models = [model for model in self._models if model.limiting not in model.grown]
            if not open_models:
                break
            for model in open_models:
                self._grow(model, excess=enough / attained if attained > 0.0 else 1.0)
            rate = self._raise_until(enough)
        return self._outcome(solved)

    def _outcome(self, solved: SolvedPoint | None) -> PointOutcome:
        evaluation, solution = (None, None) if solved is None else (solved.evaluation, solved.solution)
        counts = self._num_placements, count_mips(self._mips), tuple(sorted(self._mips))
        return PointOutcome(self._index, tuple(self._entries), evaluation, solution, *counts)

    def _open(self, index: int) -> _OpenModel:
        """One model with the bounds of the pools."""
        objective = self._bounder.objective
        compiled, estimates = objective.bounded(self._chip, self._micro_batch, index=index)
        bounds = self._bounder.pools.bounds_and_choices(compiled, estimates, self._chip)
        chosen = iter(bounds.choices[0].tolist())
        phases: list[list[_OpenPhase]] = [[] for _ in compiled.options]
        for option, entry in enumerate(compiled.options):
            for row, layer in enumerate(entry.phases):
                for column, phase in enumerate(layer):
                    topology = self._refiner.topology(phase)
                    pool = self._bounder.pool(topology)
                    choices = [next(chosen) for _ in pool.wide_blocks]
                    if not choices:
                        continue
                    of_phase = (option, row, column), phase.structure, topology, pool
                    least_s = self._bounder.pools.ways_s(phase, estimates, self._chip)[:, 0].tolist()
                    for way, own_s in zip(phase.ways, least_s, strict=True):
                        latencies = tuple(
                            (share, (estimates.one_core_s[0, columns], estimates.spread_s[0, columns]))
                            for share, columns in way
                        )
                        phases[option].append(_OpenPhase(*of_phase, latencies, choices, own_s))
        return _OpenModel(index, bounds, phases)

    def _raise_until(self, enough: float) -> float:
        """Add own vectors of limiting options until the rate is bounded by ``enough`` or all of them are; the rate."""
        while True:
            for model in self._models:
                model.best = self._bounder.optimum(model.index, self._micro_batch, model.bounds, self._chip)
            self._num_placements += len(self._models)
            optima = [model.best for model in self._models if model.best is not None]
            rate = self._bounder.rate_upper(optima, self._micro_batch)
            if rate <= enough:
                return rate
            loose = [model for model in self._models if model.limiting not in model.refined]
            if not loose:
                return rate
            for model in loose:
                model.refined.add(model.limiting)
                for phase in model.phases[model.limiting]:
                    self._raise_phase(model, phase)

    def _raise_phase(self, model: _OpenModel, phase: _OpenPhase) -> None:
        """Raise the bound of one phase by the best vector of each of its blocks."""
        if self._is_enough(model, phase):
            return
        for number, choice in zip(phase.pool.wide_blocks, phase.choices, strict=True):
            problem = phase.problem(number, self._cores)
            known = _entry_bound(problem, phase.pool.entries(number)[choice])
            vector = self._refiner.program(phase.topology, phase.pool, problem, number).solve(problem)
            bound = dual_bound(problem, vector)
            if bound > known * (1.0 + TIGHT):
                self._entries.append(NewEntry(phase.topology, number, vector_entry(vector, problem.block)))
            phase.block_s.append(max(bound, known))
        model.raise_to(phase)

    def _is_enough(self, model: _OpenModel, phase: _OpenPhase) -> bool:
        """Whether a phase is bounded by what its alternatives take at most: a higher bound would say no more."""
        exclusivity = self._bounder.objective.scenario.exclusivity

        def upper_s(latencies: tuple[Floats, Floats]) -> float:
            return bound_compiled(phase.structure, *latencies, cores=self._cores, exclusivity=exclusivity).upper_s

        most = min(sum(share * upper_s(own) for share, own in each.way) for each in model.rivals(phase))
        return phase.least_s >= most * (1.0 - TIGHT)

    def _grow(self, model: _OpenModel, *, excess: float) -> None:
        """Close the blocks of the limiting option that are bounded below what their schedule takes.

        Args:
            model: the model.
            excess: the rate that need not be closed, relative to what the point attains: at least 1.
        """
        model.grown.add(model.limiting)
        for phase in model.phases[model.limiting]:
            if not phase.block_s:
                continue
            spans = self._spans(phase)
            for place, number in enumerate(phase.pool.wide_blocks):
                # A proof may stop where the excess over the incumbent is closed but for the margin.
                self._close_block(phase, place, number, target_s=spans[number] / (1.0 + MARGIN * (excess - 1.0)))
            model.raise_to(phase)

    def _close_block(self, phase: _OpenPhase, place: int, number: int, *, target_s: float) -> None:
        """Raise the bound of one block to a target, by a tree, which serves many designs, or else by a search."""
        if self._is_closed(phase, place, target_s):
            return
        problem = phase.problem(number, self._cores)
        key = (phase.topology, number, problem.one_core, problem.spread)
        if key in self._raised_s:
            phase.block_s[place] = max(phase.block_s[place], self._raised_s[key])
            return
        self._raise_block(phase, place, number, target_s=target_s)
        self._raised_s[key] = phase.block_s[place]

    def _raise_block(self, phase: _OpenPhase, place: int, number: int, *, target_s: float) -> None:
        problem = phase.problem(number, self._cores)
        tree = grow_tree(problem, target_s=target_s, max_nodes=TREE_NODES[self._goal.effort])
        self._take_entry(phase, place, number, tree)
        if self._is_closed(phase, place, target_s):
            return
        searched = search_block(problem, target_s=target_s * REACHED)
        if searched is not None:
            self._take_entry(phase, place, number, searched)

    @staticmethod
    def _is_closed(phase: _OpenPhase, place: int, target_s: float) -> bool:
        return phase.block_s[place] >= target_s * (1.0 - TIGHT)

    def _take_entry(self, phase: _OpenPhase, place: int, number: int, entry: PoolEntry) -> None:
        """Keep an entry that raises the bound of a block."""
        problem = phase.problem(number, self._cores)
        bound = _entry_bound(problem, entry)
        if bound > phase.block_s[place] * (1.0 + TIGHT):
            self._entries.append(NewEntry(phase.topology, number, certified_entry(entry, problem.block)))
            phase.block_s[place] = bound

    def _spans(self, phase: _OpenPhase) -> list[float]:
        """How long each block of a phase takes in its schedule, s."""
        scenario = with_effort(self._bounder.objective.scenario, self._goal.effort)
        gap, nodes = scenario.schedule_gap, scenario.schedule_nodes
        options = ScheduleOptions(mip_gap=gap, mip_nodes=nodes, time_limit_s=HANG_GUARD_S)
        result = solve_compiled(
            phase.structure, *phase.latencies, cores=self._cores, exclusivity=scenario.exclusivity, options=options
        )
        self._mips |= result.mips
        one_core, spread = phase.latencies
        finish = np.array(result.start_s) + np.where(result.is_spread, spread, one_core)
        ends = [0.0, *(float(finish[list(block.operators)].max()) for block in phase.structure.blocks)]
        return np.diff(ends).tolist()


def _entry_bound(problem: BlockProblem, entry: PoolEntry) -> float:
    """What an entry bounds a block by, s."""
    if isinstance(entry, DualVector):
        return dual_bound(problem, entry)
    one_core, spread = np.array([problem.one_core]), np.array([problem.spread])
    return float(entry.bounds(one_core, spread, np.array([problem.cores]))[0])
