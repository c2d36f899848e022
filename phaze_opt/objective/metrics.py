"""Where an iteration's time and energy go (semantics 7)."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from phaze_opt.estimate.protocol import Bound, Estimates, OperatorBreakdown
from phaze_opt.graph.operator import Operator, Phase
from phaze_opt.hardware.accelerator import Accelerator
from phaze_opt.hardware.constants import Constants
from phaze_opt.hardware.silicon.chip_silicon import link_pj_per_bit, static_w_per_mm2
from phaze_opt.objective.best_placement import PlacedModel
from phaze_opt.objective.compile import PHASES, CompiledModel
from phaze_opt.objective.evaluation import TimeBreakdown
from phaze_opt.placement.problem import Stage
from phaze_opt.schedule.problem import ScheduleResult
from phaze_opt.units import BITS_PER_BYTE, PICO
from phaze_opt.workload.training import TrainingSpec

MEMORY_BOUNDS = frozenset({Bound.HBM, Bound.GLB})
UPDATE = PHASES.index(Phase.UPDATE)


@dataclass(frozen=True, slots=True)
class PhaseShares:
    """A makespan split by what its operators wait for, s; sums to the makespan."""

    tensor_cores_s: float
    vector_cores_s: float
    memory_bound_s: float


def cause_shares(breakdown: OperatorBreakdown) -> tuple[float, float, float]:
    """Shares of one operator's latency by cause: tensor cores, vector cores, memory; they sum to 1.

    Tensor cores: ideal compute, fill and drain, edge waste. Vector cores and memory (HBM, and the GLB that feeds the
    arrays) take what they add to that. An operator of no latency counts as memory; its launch, as the rest of it.
    """
    parts = dict(breakdown.parts_s)
    busy_s = breakdown.latency_s - parts.get(Bound.LAUNCH, 0.0)
    if busy_s <= 0:
        return 0.0, 0.0, 1.0
    vector = parts.get(Bound.VECTOR, 0.0) / busy_s
    memory = sum(parts.get(bound, 0.0) for bound in MEMORY_BOUNDS) / busy_s
    return max(0.0, 1.0 - vector - memory), vector, memory


def split_makespans(
    placed: PlacedModel, estimates: Estimates, *, shares: dict[int, tuple[float, float, float]]
) -> tuple[tuple[PhaseShares, ...], ...]:
    """Split each makespan by cause, in proportion to the time its operators run.

    Args:
        placed: the chosen tensor degree with its schedules.
        estimates: latencies of the compiled model's operators, row 0.
        shares: of each operator by cause (`cause_shares`), by column of the compiled model.

    Returns:
        Shares by distinct layer and phase. What the HBM floor adds to a schedule counts as memory-bound.
    """
    return tuple(
        tuple(_split_phase(placed, row, column, estimates, shares) for column in range(len(PHASES)))
        for row in range(len(placed.option.phases))
    )


def _split_phase(
    placed: PlacedModel, row: int, column: int, estimates: Estimates, shares: dict[int, tuple[float, float, float]]
) -> PhaseShares:
    """Split one makespan."""
    phase = placed.option.phases[row][column]
    result = placed.times.schedules[row][column]
    places = [index for index in range(len(phase.columns)) if phase.is_core[index]]
    columns = [int(phase.columns[index]) for index in places]
    return split_makespan(result, places, columns, estimates, [shares[each] for each in columns])


def split_makespan(
    result: ScheduleResult,
    places: Sequence[int],
    columns: Sequence[int],
    estimates: Estimates,
    shares: Sequence[tuple[float, float, float]],
) -> PhaseShares:
    """Split the makespan of one schedule by cause, in proportion to the time its operators run.

    Args:
        result: the schedule.
        places: of the operators on cores, in its problem.
        columns: of the same operators in the estimates.
        estimates: latencies, row 0.
        shares: of the same operators by cause (`cause_shares`).
    """
    tensor_s = vector_s = busy_s = scheduled_s = 0.0
    for index, column, (tensor, vector, _) in zip(places, columns, shares, strict=True):
        latencies = estimates.spread_s if result.is_spread[index] else estimates.one_core_s
        duration_s = float(latencies[0, column])
        scheduled_s = max(scheduled_s, result.start_s[index] + duration_s)
        tensor_s += tensor * duration_s
        vector_s += vector * duration_s
        busy_s += duration_s
    scale = min(scheduled_s, result.makespan_s) / busy_s if busy_s > 0 else 0.0
    return PhaseShares(
        tensor_cores_s=tensor_s * scale,
        vector_cores_s=vector_s * scale,
        memory_bound_s=max(0.0, result.makespan_s - (tensor_s + vector_s) * scale),
    )


def stage_phases(placed: PlacedModel, stage: Stage) -> Iterator[tuple[int, int]]:
    """(distinct layer, phase) that a stage runs for one micro-batch; forward twice when it recomputes."""
    for position in range(stage.first, stage.last + 1):
        layer = placed.option.graph.chain[position]
        yield layer, 0
        yield layer, 1
        if stage.is_recomputed:
            yield layer, 0


def break_down(placed: PlacedModel, shares: tuple[tuple[PhaseShares, ...], ...]) -> TimeBreakdown:
    """Seconds of one iteration by cause; the values sum to ``placement.batch_time_s``.

    The bottleneck stage's time a micro-batch counts num_micro_batches times by cause and (stages - 1) times as bubble;
    the stage whose synchronisation is longest gives gradient all-reduce and update.
    """
    placement = placed.placement
    stage = max(placement.stages, key=lambda candidate: candidate.time_s)
    runs = placement.num_micro_batches
    parts = [shares[layer][phase] for layer, phase in stage_phases(placed, stage)]
    tensor = sum(part.tensor_cores_s for part in parts)
    vector = sum(part.vector_cores_s for part in parts)
    memory = sum(part.memory_bound_s for part in parts)
    collectives = sum(placed.option.phases[layer][phase].collective_s for layer, phase in stage_phases(placed, stage))
    boundary = stage.time_s - tensor - vector - memory - collectives if len(placement.stages) > 1 else 0.0
    synced = max(placement.stages, key=lambda candidate: candidate.sync_s)
    update = stage_update_s(placed, synced)
    return TimeBreakdown(
        tensor_cores_s=tensor * runs,
        vector_cores_s=vector * runs,
        memory_bound_s=memory * runs,
        tensor_parallel_collectives_s=collectives * runs,
        boundary_transfers_s=max(0.0, boundary) * runs,
        gradient_all_reduce_s=max(0.0, synced.sync_s - update),
        bubble_s=stage.time_s * (len(placement.stages) - 1),
        update_s=update,
    )


def stage_update_s(placed: PlacedModel, stage: Stage) -> float:
    """Optimizer update of one stage, s."""
    chain = placed.option.graph.chain
    return math.fsum(
        _update_share(placed, position)
        * (placed.times.upper_s[chain[position], UPDATE] + placed.option.phases[chain[position]][UPDATE].collective_s)
        for position in range(stage.first, stage.last + 1)
    )


def _update_share(placed: PlacedModel, position: int) -> float:
    """Share of a layer's update that runs: a tied head in one stage with the embedding updates only what is its own."""
    graph = placed.option.graph
    is_tied = len(placed.placement.stages) == 1 and 0 < position == len(graph.chain) - 1
    head = graph.layers[graph.chain[-1]]
    return 1.0 - head.num_tied_parameters / head.num_parameters if is_tied else 1.0


def phase_runs(placed: PlacedModel) -> np.ndarray:
    """Executions of each (distinct layer, phase) by one replica's devices in one iteration, shape (layers, 3).

    A tied head's update counts as the share of it that runs.
    """
    runs = np.zeros((len(placed.option.phases), len(PHASES)))
    for stage in placed.placement.stages:
        for layer, phase in stage_phases(placed, stage):
            runs[layer, phase] += placed.placement.num_micro_batches
        for position in range(stage.first, stage.last + 1):
            runs[placed.option.graph.chain[position], UPDATE] += _update_share(placed, position)
    return runs


def utilisations(
    compiled: CompiledModel, placed: PlacedModel, accelerator: Accelerator, *, constants: Constants
) -> tuple[float, float]:
    """Share of the used devices' MACs and lanes that an iteration keeps busy (recomputation counts as work)."""
    macs = 0.0
    lane_cycles = 0.0
    for row, layer_runs in enumerate(phase_runs(placed)):
        for column, runs in enumerate(layer_runs):
            for index in placed.option.phases[row][column].columns:
                operator = compiled.operators[int(index)]
                macs += runs * operator.macs
                lane_cycles += runs * lane_cycles_of(operator, constants)
    cycles = placed.placement.batch_time_s * accelerator.clock_hz * len(placed.placement.stages)
    return macs / (cycles * accelerator.num_macs), lane_cycles / (cycles * accelerator.num_lanes)


def lane_cycles_of(operator: Operator, constants: Constants) -> float:
    """Cycles of one lane that an operator's vector work takes."""
    return sum(work.elements * constants.value(f"vector_cycles.{work.kind.value}") for work in operator.vector_works)


def energy_j(
    placed: PlacedModel,
    estimates: Estimates,
    accelerator_area_mm2: float,
    *,
    training: TrainingSpec,
    constants: Constants,
) -> float:
    """Energy of one iteration over all used devices: operators, links and static, J."""
    placement = placed.placement
    devices = placement.tensor_parallel * placement.data_parallel
    runs = phase_runs(placed)
    dynamic = 0.0
    link_bytes = 0.0
    for row, layer in enumerate(placed.option.phases):
        for column, phase in enumerate(layer):
            dynamic += runs[row, column] * float(estimates.energy_j[0, phase.columns].sum())
            link_bytes += runs[row, column] * phase.collective_bytes
    # Across every boundary activations go forward and their gradients back.
    layers, chain = placed.option.graph.layers, placed.option.graph.chain
    crossed = sum(layers[chain[stage.last]].output_bytes for stage in placement.stages[:-1])
    link_bytes += 2.0 * placement.num_micro_batches * crossed + _gradient_bytes(placed, training)
    link_j = link_bytes * BITS_PER_BYTE * link_pj_per_bit(constants) * PICO
    static_w = static_w_per_mm2(constants) * accelerator_area_mm2
    return devices * (dynamic + link_j) + placement.devices_used * static_w * placement.batch_time_s


def _gradient_bytes(placed: PlacedModel, training: TrainingSpec) -> float:
    """Bytes a tensor rank of one replica sends for the gradient all-reduce: 2 (d-1)/d of its gradients.

    A tied head has no gradient of its own where it shares the only stage with the embedding.
    """
    degree = placed.placement.data_parallel
    graph = placed.option.graph
    parameters = sum(graph.layers[layer].num_parameters for layer in graph.chain)
    if len(placed.placement.stages) == 1 and len(graph.chain) > 1:
        parameters -= graph.layers[graph.chain[-1]].num_tied_parameters
    return 2.0 * (degree - 1) / degree * training.optimizer.gradient_bytes * parameters
