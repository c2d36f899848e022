"""Every solution replayed: schedules, placement, and the throughput they attain."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from phaze_opt.certify.certificate import SOLUTIONS_FILE, Solution, SolvedModel
from phaze_opt.certify.check.files import CertificateFiles
from phaze_opt.certify.check.pipelines import Batch, Memory
from phaze_opt.certify.check.problem_data import PHASES, CheckedProblem, PreparedModel, Sharded, throughput
from phaze_opt.certify.check.replay import PhaseLatencies, placed_batch_time, replay
from phaze_opt.certify.check.report import demand, refuse
from phaze_opt.certify.check.space_rows import EXACT
from phaze_opt.estimate.protocol import Estimates
from phaze_opt.hardware.accelerator import AcceleratorTable
from phaze_opt.hardware.design import chips_of
from phaze_opt.hardware.template import PointColumns
from phaze_opt.schedule.problem import Cores, cores_of_each

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class _SolvedRow:
    """The chip of one row, and what its operators take."""

    row: int
    chip: AcceleratorTable
    estimates: Estimates
    batch: Batch


@dataclass(frozen=True, slots=True)
class SolutionCheck:
    """Replays the solutions of a certificate.

    Attributes:
        problem: scenario, space and estimator.
        files: rows and solutions.
        space: every point of it.
    """

    problem: CheckedProblem
    files: CertificateFiles
    space: PointColumns
    _models: dict[int, tuple[PreparedModel, ...]] = field(default_factory=dict)

    def check(self) -> Iterator[int]:
        """Check every solved row; yields how many are done.

        Raises:
            CertificateError: names the row and the rule broken.
        """
        points, solutions = self.files.points, self.files.solutions.solutions
        numbers = [solution.index for solution in solutions]
        if any(after <= before for before, after in pairwise(numbers)):
            refuse("its solutions do not rise in index", file=SOLUTIONS_FILE)
        outside = [number for number in numbers if not 0 <= number < len(points)]
        if outside:
            refuse(f"has a solution of row {outside[0]}, which there is not", file=SOLUTIONS_FILE)
        listed = np.array(numbers, dtype=np.int64)
        has_solution = np.zeros(len(points), dtype=np.bool_)
        has_solution[listed] = True
        demand(points.is_solved <= has_solution, f"status is solved but {SOLUTIONS_FILE} has no solution of it")
        demand(has_solution <= points.is_solved, f"status is not solved but {SOLUTIONS_FILE} has a solution of it")
        for number, solution in enumerate(solutions):
            self._check_solution(solution)
            yield number + 1

    def _check_solution(self, solution: Solution) -> None:
        """One row attains what it states."""
        scenario = self.problem.certificate.scenario
        point = self.space.take(slice(solution.index, solution.index + 1))
        chip, micro_batch = chips_of(point, self.problem.constants), int(point.micro_batch[0])
        prepared = self._prepared(micro_batch)
        if len(solution.models) != len(prepared):
            message = f"has {len(solution.models)} models, not {len(prepared)}"
            refuse(message, file=SOLUTIONS_FILE, row=solution.index)
        batch_s = []
        for model, solved in zip(prepared, solution.models, strict=True):
            estimates = self.problem.estimate(model, chip)
            sizes = Batch(scenario.global_batch, micro_batch)
            batch_s.append(self._model_time(model, solved, _SolvedRow(solution.index, chip, estimates, sizes)))
        attained = float(throughput(scenario, np.array(batch_s)[:, None])[0])
        stated = float(self.files.points.throughput_samples_per_s[solution.index])
        demand(
            np.array([abs(stated - attained) <= EXACT * attained]),
            f"throughput_samples_per_s is {stated:.9g} but its solution attains {attained:.9g}",
            rows=np.array([solution.index]),
        )

    def _prepared(self, micro_batch: int) -> tuple[PreparedModel, ...]:
        """All models at one micro-batch, made once."""
        if micro_batch not in self._models:
            self._models[micro_batch] = self.problem.prepare(self.problem.models(micro_batch))
        return self._models[micro_batch]

    def _model_time(self, model: PreparedModel, solved: SolvedModel, chip: _SolvedRow) -> float:
        """Batch time of one model's placement and schedules, s."""
        scenario = self.problem.certificate.scenario
        sharded = next((o for o in model.data.options if o.degree == solved.tensor_parallel), None)
        if sharded is None:
            message = f"tensor degree {solved.tensor_parallel} is none of the model's"
            refuse(message, file=SOLUTIONS_FILE, row=chip.row)
        memory = Memory(float(chip.chip.hbm_bytes[0]), scenario.recompute)
        seconds = placed_batch_time(
            sharded,
            solved,
            self._makespans(sharded, solved, chip) + sharded.collective_s,
            cluster=scenario.cluster,
            batch=chip.batch,
            memory=memory,
        )
        if isinstance(seconds, str):
            refuse(seconds, file=SOLUTIONS_FILE, row=chip.row)
        return seconds

    def _makespans(self, sharded: Sharded, solved: SolvedModel, chip: _SolvedRow) -> Floats:
        """Makespans of all distinct layers and phases, each scheduled once; shape (num_distinct_layers, 3), s."""
        expected = {(layer, phase) for layer in range(len(sharded.phases)) for phase in PHASES}
        listed = [(schedule.layer, schedule.phase) for schedule in solved.schedules]
        if set(listed) != expected or len(listed) != len(expected):
            message = "does not schedule every distinct layer's phases once"
            refuse(message, file=SOLUTIONS_FILE, row=chip.row)
        makespans = np.zeros((len(sharded.phases), len(PHASES)))
        for schedule in solved.schedules:
            column = PHASES.index(schedule.phase)
            graph = sharded.phases[schedule.layer][column]
            traffic = float(chip.estimates.traffic_bytes[0, graph.columns].sum())
            latencies = PhaseLatencies(
                one_core_s=chip.estimates.one_core_s[0, graph.columns],
                spread_s=chip.estimates.spread_s[0, graph.columns],
                floor_s=traffic / float(chip.chip.hbm_bandwidth_bytes_per_s[0]),
                num_cores=Cores(*cores_of_each(chip.chip)[0].tolist()),
            )
            made = replay(graph, schedule, latencies, self.problem.certificate.scenario.exclusivity)
            if isinstance(made, str):
                message = f"schedule of layer {schedule.layer}, {schedule.phase}: {made}"
                refuse(message, file=SOLUTIONS_FILE, row=chip.row)
            makespans[schedule.layer, column] = made
        return makespans
