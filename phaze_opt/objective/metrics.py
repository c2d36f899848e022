"""Where an iteration's time and energy go (semantics 7).

Where the time and energy of a designed chip's step go under a full plan, as semantics 7 has them of a placement.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from phaze_opt.cost.clocks import ScheduleClock, Schedules
from phaze_opt.cost.compiled_step import AGAIN, BACKWARD, FORWARD, NUM_PASSES, UPDATE, CompiledStep
from phaze_opt.cost.device_seconds import ATTENTION, MATMUL, VECTOR
from phaze_opt.cost.price_step import LayerTimes, price_step
from phaze_opt.cost.step_table_parts import tied_shares, update_shards
from phaze_opt.cost.step_time import StepTime
from phaze_opt.cost.step_traffic import border_bytes, group_members, held_parameters, plan_network, stage_counts
from phaze_opt.estimate.collectives import sent_bytes
from phaze_opt.estimate.protocol import Bound, Estimates, OperatorBreakdown
from phaze_opt.graph.layer import tied_parameters
from phaze_opt.graph.operator import Collective, CoreType, Operator
from phaze_opt.hardware.accelerator import Accelerator
from phaze_opt.hardware.constants import Constants
from phaze_opt.hardware.network import Network
from phaze_opt.hardware.silicon.chip_silicon import link_pj_per_bit, static_w_per_mm2
from phaze_opt.objective.best_placement import PlacedModel
from phaze_opt.objective.compile import PHASES, CompiledModel
from phaze_opt.objective.evaluation import TimeBreakdown
from phaze_opt.placement.problem import Stage
from phaze_opt.record.arrays import Floats, Ints
from phaze_opt.schedule.problem import ScheduleResult
from phaze_opt.units import BITS_PER_BYTE, PICO
from phaze_opt.workload.plan import Recompute
from phaze_opt.workload.training import TrainingSpec

MEMORY_BOUNDS = frozenset({Bound.HBM, Bound.GLB})


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


SELECTIVE = NUM_PASSES
"""A pass beside those of `cost.compiled_step`: what selective recomputation runs again."""


@dataclass(frozen=True, slots=True)
class ChipStep:
    """A step on a designed chip.

    Attributes:
        step: compiled.
        seconds: its price.
        schedules: of its layers.
        clock: that made them.
        accelerator: the chip.
        area_mm2: of it.
        network: of the cluster.
        constants: cycles of vector work, energies.
        estimates: of the step's operators.
    """

    step: CompiledStep
    seconds: float
    schedules: Schedules
    clock: ScheduleClock
    accelerator: Accelerator
    area_mm2: float
    network: Network
    constants: Constants
    estimates: Estimates


def tell_causes(chip: ChipStep, time: StepTime, layers: LayerTimes, breakdown: TimeBreakdown) -> TimeBreakdown:
    """The computing of a step told apart by what its operators wait for: tensor cores, vector cores, memory.

    The step is priced with the makespans of its layers split; what that gives is scaled to the computing of the price,
    as software adds to it and selective recomputation repeats some.

    Args:
        chip: the step.
        time: its parts as priced.
        layers: times of its layers.
        breakdown: of the parts.
    """
    plain = replace(chip.step.stack, loss_traffic=1.0, lone_head_efficiency=1.0, accumulation_bytes=0.0)
    own = replace(chip.step, stack=plain)
    classes_s = layers.pass_s[..., None] * _cause_shares(chip)
    times = LayerTimes(classes_s, np.zeros_like(layers.attention_s))
    told = price_step(own, times, plan_network(chip.network, chip.step.plan))
    whole = time.matmul_s + time.attention_s + time.vector_s
    parts = np.array([told.matmul_s, told.vector_s, told.attention_s])
    tensor_s, vector_s, memory_s = (parts * (whole / parts.sum() if parts.sum() > 0 else 0.0)).tolist()
    return replace(
        breakdown,
        tensor_cores_s=tensor_s,
        vector_cores_s=vector_s,
        memory_bound_s=memory_s,
        matmul_s=0.0,
        attention_s=0.0,
        vector_s=0.0,
    )


def _cause_shares(chip: ChipStep) -> Floats:
    """Shares of every pass by cause, in the classes of a price, shape (parts, passes, classes); they sum to 1."""
    layers = np.zeros((len(chip.step.layers), NUM_PASSES, 3))
    makespan_s = np.ones(layers.shape[:2])
    causes = list(map(cause_shares, chip.clock.explain(chip.step.operators)))
    off_core = (CoreType.NONE, CoreType.NETWORK)
    for row, (layer, results) in enumerate(zip(chip.step.layers, chip.schedules, strict=True)):
        passes = zip(layer.graph.phases, (layer.forward, layer.backward, layer.update), results, strict=True)
        for column, (graph, own, result) in enumerate(passes):
            places = [at for at, operator in enumerate(graph.operators) if operator.core_type not in off_core]
            columns = own.columns.tolist()
            split = split_makespan(result, places, columns, chip.estimates, [causes[each] for each in columns])
            makespan_s[row, column] = whole = result.makespan_s or 1.0
            layers[row, column, MATMUL] = split.tensor_cores_s / whole
            layers[row, column, VECTOR] = split.vector_cores_s / whole
            layers[row, column, ATTENTION] = split.memory_bound_s / whole
    # Forward again has the schedule of forward, or a shorter one of most of its operators.
    layers[:, AGAIN], makespan_s[:, AGAIN] = layers[:, FORWARD], makespan_s[:, FORWARD]
    return _shares_of_parts(layers, makespan_s, chip.step.graph.part_counts)


def _shares_of_parts(layers: Floats, makespan_s: Floats, counts: Ints) -> Floats:
    """Shares of the passes of parts from those of their layers: each layer counts as long as it takes."""
    shares = np.zeros((len(counts), *layers.shape[1:]))
    for part, own in zip(shares, counts, strict=True):
        kinds = np.flatnonzero(own)
        if len(kinds) == 1:
            part[:] = layers[kinds[0]]
        elif len(kinds):
            weights = own[kinds, None] * makespan_s[kinds]
            part[:] = (weights[..., None] * layers[kinds]).sum(axis=0) / weights.sum(axis=0)[:, None]
    return shares


def plan_runs(step: CompiledStep) -> Floats:
    """How often a device of each stage runs each pass in one step, shape (stages, layers, passes and selective).

    An update runs on the share of the state that a device holds; that of a tied head beside the embedding on what is
    the head's own.
    """
    counts, plan = stage_counts(step.blocks, step.graph.cut.order).astype(float), step.plan
    runs = np.zeros((*counts.shape, SELECTIVE + 1))
    runs[..., FORWARD] = runs[..., BACKWARD] = step.num_micro_batches * counts
    for stage, choice in enumerate(plan.recomputes):
        again = {Recompute.FULL: AGAIN, Recompute.SELECTIVE: SELECTIVE}.get(choice)
        if again is not None:
            runs[stage, :, again] = step.num_micro_batches * counts[stage]
    runs[..., UPDATE] = counts / update_shards(step)
    runs[..., UPDATE] *= 1.0 - tied_shares(step)
    return runs


def _of_passes(step: CompiledStep, values: Floats) -> Floats:
    """Sums of a figure of operators over every pass, shape (layers, passes and selective)."""
    sums = np.zeros((len(step.parts), SELECTIVE + 1))
    for row, part in enumerate(step.parts):
        forward = part.forward
        again = (forward.again_columns, forward.partly_columns)
        columns = (forward.columns, part.backward.columns, part.update.columns, *again)
        sums[row] = [float(values[each].sum()) for each in columns]
    return sums


def plan_utilisations(chip: ChipStep) -> tuple[float, float]:
    """Share of the used devices' MACs and lanes that a step keeps busy (recomputation counts as work)."""
    runs, operators = plan_runs(chip.step), chip.step.operators
    macs = _of_passes(chip.step, np.array([operator.macs for operator in operators], float))
    lanes = _of_passes(chip.step, np.array([lane_cycles_of(operator, chip.constants) for operator in operators]))
    cycles = chip.seconds * chip.accelerator.clock_hz * len(runs)
    return (
        float((runs * macs).sum()) / (cycles * chip.accelerator.num_macs),
        float((runs * lanes).sum()) / (cycles * chip.accelerator.num_lanes),
    )


def plan_energy_j(chip: ChipStep) -> float:
    """Energy of one step over all used devices: operators, links and static, J."""
    plan, runs = chip.step.plan, plan_runs(chip.step)
    used_j = _of_passes(chip.step, np.asarray(chip.estimates.energy_j[0]))
    network = plan_network(chip.network, plan)
    sent = float((runs * _collective_bytes(chip.step, network)).sum()) + _boundary_bytes(chip.step)
    sent += _replica_bytes(chip.step, network)
    link_j = sent * BITS_PER_BYTE * link_pj_per_bit(chip.constants) * PICO
    static_w = static_w_per_mm2(chip.constants) * chip.area_mm2
    devices = plan.tensor * plan.context * plan.data
    return devices * (float((runs * used_j).sum()) + link_j) + plan.num_devices * static_w * chip.seconds


def _collective_bytes(step: CompiledStep, network: Network) -> Floats:
    """Bytes that a device sends inside the layers, shape (layers, passes and selective)."""
    sent = np.zeros((len(step.parts), SELECTIVE + 1))

    def added(collectives: Sequence[Collective]) -> float:
        return math.fsum(
            sent_bytes(each.kind, each.payload_bytes, group_members(step, each.group, network)) for each in collectives
        )

    for row, part in enumerate(step.parts):
        for column, each in enumerate(part.passes):
            sent[row, column] = added(each.collectives)
        sent[row, AGAIN] = sent[row, FORWARD] - added(part.forward.kept_collectives)
        sent[row, SELECTIVE] = added(part.forward.partly_collectives)
    return sent


def _boundary_bytes(step: CompiledStep) -> float:
    """Activations forward and their gradients back over every boundary between model chunks."""
    borders = border_bytes(step)
    if step.graph.cut.is_joined:
        crossed = float(borders[np.cumsum(step.blocks)[:-1]].sum())
    else:
        crossed = (len(step.blocks) * step.plan.interleave - 1) * float(borders[0])
    return 2.0 * step.num_micro_batches * crossed


def _replica_bytes(step: CompiledStep, network: Network) -> float:
    """What replicas send of gradients and parameters, of one device of every stage together.

    Without ZeRO gradients are all-reduced. Sharded, gradients are scattered (once, or with ZeRO 2 and 3 for every
    micro-batch) and parameters gathered (once, or with ZeRO 3 in both directions of every micro-batch); copies of the
    shards all-reduce theirs. The first and the last stage add up the gradients of a tied table.
    """
    plan, m = step.plan, step.num_micro_batches
    gradient, parameter = step.stack.gradient_bytes, step.training.dtype_bytes
    tied = max(tied_parameters([part.graph for part in step.parts])) / (plan.shards if plan.zero > 1 else 1)
    # An all-reduce of two, at both ends.
    total = 2.0 * gradient * tied if len(step.blocks) > 1 else 0.0
    for held in held_parameters(step, stage_counts(step.blocks, step.graph.cut.order), network):
        size = math.prod(dimension.size for dimension in held.group)
        copies = math.prod(dimension.size for dimension in held.copies)
        once = (size - 1) / size * float(held.parameters.sum())
        if not plan.zero:
            total += 2.0 * once * gradient
            continue
        total += once * (gradient * (m if plan.zero > 1 else 1) + parameter * (2 * m if plan.zero == 3 else 1))
        total += 2.0 * (copies - 1) / copies * gradient * float(held.parameters.sum()) / held.shards
    return total
