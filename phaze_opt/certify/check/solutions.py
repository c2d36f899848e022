"""Every solution replayed from the definitions of semantics 4 and 5: schedules, placement, and what they attain."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import fsum

import numpy as np

from phaze_opt.certify.certificate import SOLUTIONS_FILE, Solution, SolvedModel, SolvedSchedule, SolvedStage
from phaze_opt.certify.check.files import CertificateFiles
from phaze_opt.certify.check.pipelines import Batch, Memory, boundary_cost, sync_cost
from phaze_opt.certify.check.points_table import EXACT
from phaze_opt.certify.check.problem_data import (
    CORES_USED,
    PHASES,
    CheckedProblem,
    PhaseGraph,
    PreparedModel,
    Sharded,
    throughput,
)
from phaze_opt.certify.check.report import demand, refuse
from phaze_opt.estimate.protocol import Estimates
from phaze_opt.hardware.accelerator import AcceleratorTable
from phaze_opt.hardware.chip_template import PointColumns
from phaze_opt.hardware.designed_chip import chips_of
from phaze_opt.hardware.network import Cluster
from phaze_opt.placement.problem import RecomputePolicy
from phaze_opt.record.arrays import Flags, Floats, Ints
from phaze_opt.schedule.problem import Cores, Exclusivity, cores_of_each

REPLAY_TOLERANCE = 1e-9
"""Overlap that rounding of start times explains, as a share of the makespan."""


@dataclass(frozen=True, slots=True)
class SolutionCheck:
    """Replays the solutions of a certificate.

    Attributes:
        problem: scenario, space and estimator.
        files: rows and solutions.
        space: every point of it.
        planned_s: where designs have full plans: the step of a model's solution on a chip, s, or the rule it breaks.
    """

    problem: CheckedProblem
    files: CertificateFiles
    space: PointColumns
    planned_s: Callable[[int, SolvedModel, AcceleratorTable], float | str] | None = None

    def check(self) -> Iterator[int]:
        """Check every solved row; yields how many are done.

        Raises:
            CertificateError: names the row and the rule broken.
        """
        points, solutions = self.files.points, self.files.solutions
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
        if len(solution.models) != len(scenario.models):
            message = f"has {len(solution.models)} models, not {len(scenario.models)}"
            refuse(message, file=SOLUTIONS_FILE, row=solution.index)
        batch_s = []
        for number, solved in enumerate(solution.models):
            if self.planned_s is None:
                model = self.problem.at_links(float(point.link_bytes_per_s[0])).models(micro_batch)[number]
                seconds = self._model_time(model, solved, chip, micro_batch)
            else:
                seconds = self.planned_s(number, solved, chip)
            if isinstance(seconds, str):
                refuse(seconds, file=SOLUTIONS_FILE, row=solution.index)
            batch_s.append(seconds)
        attained = float(throughput(scenario, np.array(batch_s)[:, None])[0])
        stated = float(self.files.points.throughput_samples_per_s[solution.index])
        demand(
            np.array([abs(stated - attained) <= EXACT * attained]),
            f"throughput_samples_per_s is {stated:.9g} but its solution attains {attained:.9g}",
            rows=np.array([solution.index]),
        )

    def _model_time(
        self, model: PreparedModel, solved: SolvedModel, chip: AcceleratorTable, micro_batch: int
    ) -> float | str:
        """Batch time of one model's placement and schedules, s, or the rule that they break."""
        scenario = self.problem.at_links(float(chip.link_bytes_per_s[0])).certificate.scenario
        if solved.plan is not None:
            return "has a full plan, which its scenario has none of"
        sharded = next((o for o in model.data.options if o.degree == solved.tensor_parallel), None)
        if sharded is None:
            return f"tensor degree {solved.tensor_parallel} is none of the model's"
        makespans = _makespans(sharded, solved, chip, self.problem.estimate(model, chip), scenario.exclusivity)
        if isinstance(makespans, str):
            return makespans
        return placed_batch_time(
            sharded,
            solved,
            makespans + sharded.collective_s,
            cluster=scenario.cluster,
            batch=Batch(scenario.global_batch, micro_batch),
            memory=Memory(float(chip.hbm_bytes[0]), scenario.recompute),
        )


def _makespans(
    sharded: Sharded, solved: SolvedModel, chip: AcceleratorTable, estimates: Estimates, exclusivity: Exclusivity
) -> Floats | str:
    """Makespans of all distinct layers and phases, each scheduled once; shape (num_distinct_layers, 3), s."""
    expected = {(layer, phase, False) for layer in range(len(sharded.phases)) for phase in PHASES}
    listed = [(schedule.layer, schedule.phase, schedule.is_again) for schedule in solved.schedules]
    if set(listed) != expected or len(listed) != len(expected):
        return "does not schedule every distinct layer's phases once"
    makespans = np.zeros((len(sharded.phases), len(PHASES)))
    for schedule in solved.schedules:
        column = PHASES.index(schedule.phase)
        graph = sharded.phases[schedule.layer][column]
        made = replay(graph, schedule, phase_latencies(graph, chip, estimates), exclusivity)
        if isinstance(made, str):
            return f"schedule of layer {schedule.layer}, {schedule.phase}: {made}"
        makespans[schedule.layer, column] = made
    return makespans


@dataclass(frozen=True, slots=True)
class PhaseLatencies:
    """Latencies of one phase's operators on one chip, s, its HBM floor, s, and the chip's cores of each type."""

    one_core_s: Floats
    spread_s: Floats
    floor_s: float
    num_cores: tuple[int, int]


def phase_latencies(graph: PhaseGraph, chip: AcceleratorTable, estimates: Estimates) -> PhaseLatencies:
    """Latencies of a phase on the only chip of a table."""
    return PhaseLatencies(
        one_core_s=estimates.one_core_s[0, graph.columns],
        spread_s=estimates.spread_s[0, graph.columns],
        floor_s=float(estimates.traffic_bytes[0, graph.columns].sum() / chip.hbm_bandwidth_bytes_per_s[0]),
        num_cores=Cores(*cores_of_each(chip)[0].tolist()),
    )


@dataclass(frozen=True, slots=True)
class _Course:
    """A schedule as it runs: starts and finishes, what takes time on cores, modes, and the cores that each needs."""

    start: Floats
    finish: Floats
    runs: Flags
    is_spread: Flags
    needs: Ints
    slack: float


def replay(
    graph: PhaseGraph, schedule: SolvedSchedule, latencies: PhaseLatencies, exclusivity: Exclusivity
) -> float | str:
    """Makespan of a schedule, the floor included, s; or the rule that it breaks."""
    count = len(graph.core_types)
    if len(schedule.start_s) != count or len(schedule.is_spread) != count:
        return f"lists {len(schedule.start_s)} starts and {len(schedule.is_spread)} modes of {count} operators"
    start, is_spread = np.array(schedule.start_s), np.array(schedule.is_spread, dtype=np.bool_)
    needs = np.array([CORES_USED[kind] for kind in graph.core_types], dtype=np.int64).reshape(count, 2)
    on_core = needs.any(axis=1)
    length = np.where(on_core, np.where(is_spread, latencies.spread_s, latencies.one_core_s), 0.0)
    finish = start + length
    if not (np.isfinite(start) & (start >= 0.0)).all():
        return "has a start that is not finite and at least 0"
    makespan = float(max(finish.max(initial=0.0), latencies.floor_s))
    slack = REPLAY_TOLERANCE * makespan
    for before, after in graph.edges:
        if start[after] < finish[before] - slack:
            return f"operator {after} starts before operator {before}, which it needs, ends"
    course = _Course(start, finish, on_core & (length > 2.0 * slack), is_spread, needs, slack)
    fault = _exclusivity_fault(course, exclusivity) or _cores_fault(course, latencies.num_cores)
    return fault or makespan


def _exclusivity_fault(course: _Course, exclusivity: Exclusivity) -> str | None:
    """Nothing runs beside a spread operator (chip), or nothing that shares a core type with it (type)."""
    # i begins before j ends, and j before i ends: they overlap by more than rounding.
    begins_before = course.start[:, None] < course.finish[None, :] - course.slack
    clashes = begins_before & begins_before.T & (course.runs & course.is_spread)[:, None] & course.runs[None, :]
    if exclusivity is Exclusivity.TYPE:
        clashes &= (course.needs @ course.needs.T) > 0
    np.fill_diagonal(clashes, val=False)
    if not clashes.any():
        return None
    spread, other = (int(position) for position in np.argwhere(clashes)[0])
    return f"operator {other} runs beside operator {spread}, which is spread"


def _cores_fault(course: _Course, num_cores: Sequence[int]) -> str | None:
    """At every start the operators that run need no more cores than there are."""
    # The number that runs rises only where one starts, so starts are the only moments to look at.
    for column, name in enumerate(("tensor", "vector")):
        users = np.flatnonzero(course.runs & ~course.is_spread & (course.needs[:, column] > 0))
        for now in course.start[users] + course.slack:
            busy = int(((course.start[users] <= now) & (course.finish[users] - course.slack > now)).sum())
            if busy > num_cores[column]:
                return f"{busy} operators run at once on {num_cores[column]} {name} cores"
    return None


def placed_batch_time(
    sharded: Sharded, solved: SolvedModel, times: Floats, *, cluster: Cluster, batch: Batch, memory: Memory
) -> float | str:
    """Batch time of a placement, s, or the rule that it breaks.

    Args:
        sharded: the model at the placement's tensor degree.
        solved: the placement.
        times: layer times of its schedules, collectives included, shape (num_distinct_layers, 3), s.
        cluster: devices and network.
        batch: samples.
        memory: of one device, and the recomputation policy.
    """
    stages = solved.stages
    fault = _fault_of_shape(solved, len(sharded.chain), cluster.num_devices)
    if fault is not None:
        return fault
    num_micro = batch.num_micro_batches(solved.data_parallel)
    for number in range(len(stages)):
        fault = _fault_of_memory(sharded, stages, number, memory, in_flight=min(len(stages) - number, num_micro))
        if fault is not None:
            return f"stage {number} {fault}"
    stage_s = max(_stage_time(sharded, stages, number, times, cluster) for number in range(len(stages)))
    cost = sync_cost(cluster.network, data_parallel=solved.data_parallel, stride=solved.tensor_parallel * len(stages))
    sync_s = max(
        cost.seconds(_of_stage(sharded, stages, stage, sharded.sizes.gradient, sharded.tied_gradient))
        + _of_stage(sharded, stages, stage, times[:, 2], float(times[sharded.chain[-1], 2]) * sharded.tied_share)
        for stage in stages
    )
    return stage_s * (num_micro + len(stages) - 1) + sync_s


def _fault_of_shape(solved: SolvedModel, num_layers: int, num_devices: int) -> str | None:
    """Layers each once and in order, degrees within the devices."""
    # Compared end to end: a stage may claim more layers than memory has room to list.
    starts = [0, *(stage.last + 1 for stage in solved.stages)]
    follows = [stage.first for stage in solved.stages] == starts[:-1] and starts[-1] == num_layers
    if not follows or any(stage.last < stage.first for stage in solved.stages):
        return f"its stages do not hold each of {num_layers} layers once and in order"
    used = solved.tensor_parallel * len(solved.stages) * solved.data_parallel
    if solved.data_parallel < 1 or used > num_devices:
        return f"its placement uses {used} devices of {num_devices}"
    return None


def _fault_of_memory(
    sharded: Sharded, stages: Sequence[SolvedStage], number: int, memory: Memory, *, in_flight: int
) -> str | None:
    """The stage fits, and recomputes as the policy has it."""
    stage, sizes = stages[number], sharded.sizes
    chosen = sharded.chain[stage.first : stage.last + 1]
    state = _of_stage(sharded, stages, stage, sizes.state, sharded.tied_state)
    stashed = state + in_flight * fsum(sizes.stash[chosen])
    again = state + in_flight * fsum(sizes.inputs[chosen]) + float(sizes.working_set[chosen].max())
    takes = again if stage.is_recomputed else stashed
    if takes > memory.capacity_bytes:
        return f"takes {takes:.6g} bytes of {memory.capacity_bytes:.6g}"
    must = {
        RecomputePolicy.AUTO: stashed > memory.capacity_bytes,
        RecomputePolicy.NEVER: False,
        RecomputePolicy.ALWAYS: True,
    }[memory.policy]
    if stage.is_recomputed != must:
        return f"recomputes: {stage.is_recomputed}, which policy '{memory.policy}' forbids"
    return None


def _stage_time(sharded: Sharded, stages: Sequence[SolvedStage], number: int, times: Floats, cluster: Cluster) -> float:
    """Forward, backward, recomputation and both boundaries of one stage, s."""
    stage, output = stages[number], sharded.sizes.output
    chosen = sharded.chain[stage.first : stage.last + 1]
    forward, from_end = fsum(times[chosen, 0]), len(stages) - number
    total = forward + fsum(times[chosen, 1]) + (forward if stage.is_recomputed else 0.0)
    if number > 0:
        into = boundary_cost(cluster.network, degree=sharded.degree, from_end=from_end)
        total += into.seconds(float(output[sharded.chain[stage.first - 1]]))
    if from_end > 1:
        out_of = boundary_cost(cluster.network, degree=sharded.degree, from_end=from_end - 1)
        total += out_of.seconds(float(output[sharded.chain[stage.last]]))
    return total


def _of_stage(
    sharded: Sharded, stages: Sequence[SolvedStage], stage: SolvedStage, per_layer: Floats, tied: float
) -> float:
    """A sum over the layers of a stage; what is tied counts once where all are in one stage."""
    total = fsum(per_layer[sharded.chain[stage.first : stage.last + 1]])
    return total - tied if len(stages) == 1 else total
