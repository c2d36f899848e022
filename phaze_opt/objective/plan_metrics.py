"""Where the time and energy of a designed chip's step go under a full plan, as semantics 7 has them of a placement."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from phaze_opt.cost.clocks import ScheduleClock, Schedules
from phaze_opt.cost.compiled_step import AGAIN as FORWARD_AGAIN
from phaze_opt.cost.compiled_step import BACKWARD, FORWARD, NUM_PASSES, UPDATE, CompiledStep
from phaze_opt.cost.device_seconds import ATTENTION, MATMUL, VECTOR
from phaze_opt.cost.price_step import LayerTimes, price_step
from phaze_opt.cost.step_table_parts import tied_shares, update_shards
from phaze_opt.cost.step_time import StepTime
from phaze_opt.cost.step_traffic import border_bytes, group_members, held_parameters, plan_network, stage_counts
from phaze_opt.estimate.collectives import sent_bytes
from phaze_opt.estimate.protocol import Estimates
from phaze_opt.graph.layer import tied_parameters
from phaze_opt.graph.operator import Collective, CoreType
from phaze_opt.hardware.accelerator import Accelerator
from phaze_opt.hardware.constants import Constants
from phaze_opt.hardware.network import Network
from phaze_opt.hardware.silicon.chip_silicon import link_pj_per_bit, static_w_per_mm2
from phaze_opt.objective.evaluation import TimeBreakdown
from phaze_opt.objective.metrics import cause_shares, lane_cycles_of, split_makespan
from phaze_opt.record.arrays import Floats, Ints
from phaze_opt.units import BITS_PER_BYTE, PICO
from phaze_opt.workload.plan import Recompute

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
    layers[:, FORWARD_AGAIN], makespan_s[:, FORWARD_AGAIN] = layers[:, FORWARD], makespan_s[:, FORWARD]
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
        again = {Recompute.FULL: FORWARD_AGAIN, Recompute.SELECTIVE: SELECTIVE}.get(choice)
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
        sent[row, FORWARD_AGAIN] = sent[row, FORWARD] - added(part.forward.kept_collectives)
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
