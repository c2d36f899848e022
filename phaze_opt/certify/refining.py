"""Closing one point: its own dual vectors where they can matter, then its exact solution."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from phaze_opt.certify.bounding import SpaceBounder
from phaze_opt.certify.pool_entries import NewEntry, vector_entry
from phaze_opt.certify.solving import SolvedPoint, solve_point
from phaze_opt.estimate.protocol import Estimates
from phaze_opt.hardware.accelerator import AcceleratorTable
from phaze_opt.objective.bound_phases import PoolKey, pool_key
from phaze_opt.objective.compile import CompiledModel, CompiledPhase
from phaze_opt.placement.problem import PlacementResult
from phaze_opt.schedule.block_data import BlockProblem
from phaze_opt.schedule.dual_pool import DualPool
from phaze_opt.schedule.dual_program import DualProgram
from phaze_opt.schedule.duals import dual_bound
from phaze_opt.schedule.solve import bound_compiled

Floats = NDArray[np.float64]
TIGHT = 1e-9
"""Bounds closer than this, relative, to what a schedule attains are not worth raising."""


@dataclass(frozen=True, slots=True)
class PointOutcome:
    """What closing one point gave.

    Attributes:
        index: of the point.
        entries: to be added to the pools.
        solved: None where bounds ruled the point out.
        num_placements: solved for bounds.
    """

    index: int
    entries: tuple[NewEntry, ...]
    solved: SolvedPoint | None
    num_placements: int


@dataclass(slots=True)
class _Model:
    """One model on one point while its bounds are raised.

    Attributes:
        index: in the scenario.
        compiled, estimates: of one row.
        makespan_s: bounds, shape (num_options, num_layers, 3), s.
        choices: pool entries of its slots.
        placed: the placement on these bounds.
        refined: options whose own vectors are known.
    """

    index: int
    compiled: CompiledModel
    estimates: Estimates
    makespan_s: Floats
    choices: dict[tuple[int, int, int], list[int]]
    placed: PlacementResult | None = None
    refined: set[int] = field(default_factory=set)

    @property
    def option(self) -> int:
        """The tensor degree that limits it."""
        assert self.placed is not None
        degrees = [option.graph.tensor_parallel for option in self.compiled.options]
        return degrees.index(self.placed.tensor_parallel)


class PointRefiner:
    """Closes points of one problem; programs of dual vectors are kept, nothing else."""

    def __init__(self, bounder: SpaceBounder) -> None:
        """Share the pools, which are never changed here."""
        self.bounder = bounder
        self._programs: dict[tuple[int, int], DualProgram] = {}
        self._topology_of: dict[PoolKey, int] = {key: number for number, key in enumerate(bounder.topologies)}

    def refine(self, index: int, *, enough_rate: float, effort: int) -> PointOutcome:
        """Raise the bounds of a point until it is ruled out, else solve it.

        Args:
            index: the point.
            enough_rate: it is ruled out once its throughput is bounded by this, samples/s.
            effort: of `solve_point`.
        """
        chips, micro_batches = self.bounder.chips(np.array([index], dtype=np.int64))
        micro_batch = int(micro_batches[0])
        models = [self._open(model, chips, micro_batch) for model in range(len(self.bounder.objective.scenario.models))]
        entries: list[NewEntry] = []
        num_placements = 0
        while True:
            for model in models:
                model.placed = self.bounder.place(model.index, micro_batch, model.makespan_s, chips)
            num_placements += len(models)
            rate = self.bounder.rate_upper([m.placed for m in models if m.placed is not None], micro_batch)
            if rate <= enough_rate:
                return PointOutcome(index, tuple(entries), None, num_placements)
            loose = [model for model in models if model.option not in model.refined]
            if not loose:
                break
            for model in loose:
                entries += self._raise(model, model.option, chips)
        return PointOutcome(index, tuple(entries), self.solve(index, effort=effort), num_placements)

    def solve(self, index: int, *, effort: int) -> SolvedPoint:
        """Solve a point whatever its bound."""
        return solve_point(self.bounder.objective, self.bounder.space, index, effort=effort)

    def _open(self, index: int, chips: AcceleratorTable, micro_batch: int) -> _Model:
        """One model with the bounds of the pools."""
        objective = self.bounder.objective
        compiled = objective.compiled(index, micro_batch)
        estimates = objective.estimate_table(chips, micro_batch, index=index)
        bounds = self.bounder.pools.bounds_and_choices(compiled, estimates, chips)
        chosen = iter(bounds.choices[0].tolist())
        choices = {
            (option, row, column): [next(chosen) for block in phase.structure.blocks if len(block) > 1]
            for option, entry in enumerate(compiled.options)
            for row, layer in enumerate(entry.phases)
            for column, phase in enumerate(layer)
        }
        return _Model(index, compiled, estimates, bounds.makespan_s[0].copy(), choices)

    def _raise(self, model: _Model, option: int, chips: AcceleratorTable) -> list[NewEntry]:
        """Raise the bounds of one tensor degree by its own vectors; returns these."""
        model.refined.add(option)
        entries: list[NewEntry] = []
        for row, layer in enumerate(model.compiled.options[option].phases):
            for column, phase in enumerate(layer):
                choices = model.choices[option, row, column]
                if choices:
                    floor = model.makespan_s[option, row, column]
                    raised, new = self._raise_phase(model, phase, choices, float(floor), chips)
                    model.makespan_s[option, row, column] = raised
                    entries += new
        return entries

    def _raise_phase(
        self, model: _Model, phase: CompiledPhase, choices: list[int], known_s: float, chips: AcceleratorTable
    ) -> tuple[float, list[NewEntry]]:
        """Bound of one phase with the best vector of each block, and the vectors that are new."""
        one_core = model.estimates.one_core_s[0, phase.columns]
        spread = model.estimates.spread_s[0, phase.columns]
        cores = (int(chips.num_tc[0]), int(chips.num_vc[0]))
        exclusivity = self.bounder.objective.scenario.exclusivity
        quick = bound_compiled(
            phase.structure, one_core, spread, num_tc=cores[0], num_vc=cores[1], exclusivity=exclusivity
        )
        if known_s >= quick.upper_s * (1.0 - TIGHT):
            return known_s, []
        topology = self._topology_of[pool_key(phase)]
        pool = self.bounder.pool(topology)
        singles = [block.operators[0] for block in phase.structure.blocks if len(block) == 1]
        total = float(np.minimum(one_core[singles], spread[singles]).sum())
        entries = []
        for number, choice in zip(pool.wide_blocks, choices, strict=True):
            problem = pool.block_problem(number, one_core, spread, num_tc=cores[0], num_vc=cores[1])
            known = dual_bound(problem, pool.entries(number)[choice])
            vector = self._program(topology, pool, problem, number).solve(problem)
            bound = dual_bound(problem, vector)
            if bound > known * (1.0 + TIGHT):
                entries.append(NewEntry(topology, number, vector_entry(vector, problem.block)))
            total += max(bound, known)
        return max(known_s, total), entries

    def _program(self, topology: int, pool: DualPool, problem: BlockProblem, number: int) -> DualProgram:
        """The program of one block, built when first needed."""
        key = (topology, number)
        if key not in self._programs:
            self._programs[key] = DualProgram(problem.block, pool.exclusivity)
        return self._programs[key]
