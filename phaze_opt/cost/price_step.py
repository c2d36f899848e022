"""Time of compiled steps from the times of their operators and their networks."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from phaze_opt.cost.compiled_step import AGAIN, BACKWARD, FORWARD, HEAD, PARTLY, RUN, UPDATE, CompiledStep
from phaze_opt.cost.device_seconds import ATTENTION, MATMUL, NUM_CLASSES, VECTOR
from phaze_opt.cost.step_batch import LayerColumns, StepBatch
from phaze_opt.cost.step_table import build_batch
from phaze_opt.cost.step_time import StageLoads, StageTimes, StepRules, StepTime, StepTimes, stage_times, step_times
from phaze_opt.cost.traffic import Traffic
from phaze_opt.estimate.machine import LAUNCH_NORM, power_norm
from phaze_opt.hardware.network import Network
from phaze_opt.record.arrays import Floats
from phaze_opt.workload.software import TrainingStack


@dataclass(frozen=True, slots=True)
class LayerTimes:
    """What the layers of a step take on one device, without collectives.

    Attributes:
        classes_s: embedding, every kind of unit and head in forward, backward, update and forward again, shape
            (layers, passes, classes), s; times that are not told apart count as matmuls.
        attention_s: what selective recomputation runs again in each layer, shape (layers,), s.
    """

    classes_s: Floats
    attention_s: Floats

    @property
    def pass_s(self) -> Floats:
        """Of every layer and pass, shape (layers, passes), s."""
        return np.asarray(self.classes_s.sum(axis=-1))


class StackColumns:
    """The numbers of every step's software, each of shape (steps,) and by its name in `TrainingStack`."""

    def __init__(self, stacks: Sequence[TrainingStack]) -> None:
        """Make no column before it is asked for."""
        self._stacks = tuple(stacks)

    def __getattr__(self, name: str) -> Floats:
        """One column, kept."""
        column = np.array([getattr(stack, name) for stack in self._stacks], float)
        setattr(self, name, column)
        return column


@dataclass(frozen=True, slots=True)
class StageDevices:
    """The chips of a pipeline.

    Attributes:
        times: of the step's layers on each chip.
        of_stage: which of them each stage runs on, first stage first.
    """

    times: Sequence[LayerTimes]
    of_stage: Sequence[int]


def price_step(step: CompiledStep, devices: LayerTimes | StageDevices, network: Network) -> StepTime:
    """Time of one step.

    Args:
        step: of `compile_step`.
        devices: times of its layers on the chip that all stages run on, or on that of each stage.
        network: that the plan's devices are on.
    """
    return step_times(*_loads(step, devices, network)).one(0)


def price_loads(step: CompiledStep, devices: LayerTimes | StageDevices, network: Network) -> StageLoads:
    """What the pipeline stages of one step do, shape (1, stages), s; arguments as of `price_step`."""
    return _loads(step, devices, network)[0]


def price_stages(step: CompiledStep, devices: LayerTimes | StageDevices, network: Network) -> StageTimes:
    """What each pipeline stage of one step takes, shape (1, stages), s; arguments as of `price_step`."""
    return stage_times(*_loads(step, devices, network))


def _loads(step: CompiledStep, devices: LayerTimes | StageDevices, network: Network) -> tuple[StageLoads, StepRules]:
    """What the stages do: of the whole step on every chip, the stages that run there.

    The batch of one step alone is no matter of times, and the step keeps it.
    """
    if isinstance(devices, LayerTimes):
        if network not in step.on_networks:
            step.on_networks[network] = build_batch([step], [network])
        stack = StackColumns([step.stack])
        return batch_loads(step.on_networks[network], devices.classes_s[None], devices.attention_s[None], stack)
    num_chips = len(devices.times)
    batch = build_batch([step] * num_chips, [network] * num_chips)
    classes_s = np.array([each.classes_s for each in devices.times])
    attention_s = np.array([each.attention_s for each in devices.times])
    loads, rules = batch_loads(batch, classes_s, attention_s, StackColumns([step.stack] * num_chips))
    chips, stages = np.asarray(devices.of_stage, np.intp), np.arange(step.plan.pipeline)
    own = {each.name: getattr(loads, each.name)[chips, stages][None] for each in fields(StageLoads)}
    once = {each.name: getattr(rules, each.name)[:1] for each in fields(StepRules)}
    return StageLoads(**own), StepRules(**once)


def price_batch(batch: StepBatch, classes_s: Floats, attention_s: Floats, stack: StackColumns) -> StepTimes:
    """Times of many steps.

    Args:
        batch: of `step_table.build_batch`.
        classes_s: device time, shape (steps, layers, passes, classes), s.
        attention_s: what selective recomputation runs again, shape (steps, layers), s.
        stack: of the steps' software.
    """
    return step_times(*batch_loads(batch, classes_s, attention_s, stack))


@dataclass(frozen=True, slots=True)
class LayerSeconds:
    """Times of layers as a software runs them on a network; rows may have leading axes, such as chips.

    Attributes:
        classes_s: on the device, shape (..., layers, passes of `RUN`, classes), s.
        launch_s: what the host's launches add, shape (..., layers, passes of `RUN` and `PARTLY`), s.
        tensor_s: exposed collectives inside them, same shape, s.
        partly_s: classes of what selective recomputation runs again, shape (..., layers, classes), s.
        update_s: of the optimizer, shape (..., layers), s.
    """

    classes_s: Floats
    launch_s: Floats
    tensor_s: Floats
    partly_s: Floats
    update_s: Floats

    @property
    def taken_s(self) -> Floats:
        """Compute, collectives and launches, shape (..., layers, passes of `RUN` and `PARTLY`), s."""
        compute_s = self.classes_s.sum(axis=-1), self.partly_s.sum(axis=-1)[..., None]
        return np.concatenate(compute_s, axis=-1) + self.tensor_s + self.launch_s


def layer_seconds(inside: LayerColumns, classes_s: Floats, attention_s: Floats, stack: StackColumns) -> LayerSeconds:
    """What a software makes of the times of layers.

    Args:
        inside: of (rows,).
        classes_s: device time, shape (..., rows, layers, passes, classes), s; one class, of matmuls, will do where they
            are not told apart.
        attention_s: what selective recomputation runs again, shape (..., rows, layers), s.
        stack: of the rows, or one for all of them.
    """
    classes_s = _with_software(classes_s, inside, stack)
    passes_s = classes_s[..., RUN, :]
    compute_s = np.concatenate([passes_s.sum(axis=-1), attention_s[..., None]], axis=-1)
    tensor_s = _tensor_s(inside, compute_s, stack)
    slowest = stack.host_s_per_collective * inside.waits
    sent = inside.tensor.count + inside.experts.count
    host_s = inside.launches * stack.host_s_per_operator[:, None, None] + sent * slowest[:, None, None]
    # Host and device run side by side: a pass takes about the longer of the two, and more where they are close.
    busy_s = compute_s + tensor_s
    launch_s = power_norm(busy_s, host_s, LAUNCH_NORM) - busy_s if host_s.any() else np.zeros_like(busy_s)
    launch_s[..., PARTLY] = np.where(inside.launches[..., PARTLY] > 0.0, launch_s[..., PARTLY], 0.0)
    partly_s = _partly_s(inside, passes_s[..., RUN.index(AGAIN), :], attention_s)
    return LayerSeconds(passes_s, launch_s, tensor_s, partly_s, classes_s[..., UPDATE, :].sum(axis=-1))


def _partly_s(inside: LayerColumns, again_s: Floats, attention_s: Floats) -> Floats:
    """What selective recomputation runs again by class: attention alone, or of all else as full recomputation does.

    Arguments and result: shapes (..., layers, classes), (..., layers) and (..., layers, classes), s.
    """
    num_classes = again_s.shape[-1]
    place = min(ATTENTION, num_classes - 1)
    is_alone = np.arange(num_classes) == place
    rest_s = np.where(is_alone, 0.0, again_s)
    total_s = rest_s.sum(axis=-1, keepdims=True)
    shares = np.divide(rest_s, total_s, out=np.zeros_like(rest_s) + is_alone, where=total_s > 0.0)
    keeps_operators = (inside.launches[..., PARTLY] > 0.0)[..., None]
    return np.asarray(np.where(keeps_operators, shares, is_alone) * attention_s[..., None])


def batch_loads(
    batch: StepBatch, classes_s: Floats, attention_s: Floats, stack: StackColumns
) -> tuple[StageLoads, StepRules]:
    """What the stages of many steps do, and what else the steps are made of; arguments as `price_batch` takes them."""
    inside = layer_seconds(batch.inside, classes_s, attention_s, stack)
    one_forward = _added_up(batch, inside.taken_s[:, :, RUN.index(FORWARD)])

    def of_stages(values_s: Floats) -> Floats:
        """Of all passes of a micro-batch; what recomputation runs again adds to backward."""
        forward, backward, again, partly = (each[:, None, :] for each in np.moveaxis(values_s, 2, 0))
        backward = backward + partly * batch.is_selective[..., None]
        return np.asarray((batch.layers * (forward + backward + batch.again[..., None] * again)).sum(axis=-1))

    all_s = np.concatenate([inside.classes_s, inside.partly_s[..., None, :]], axis=2)
    stages = StageLoads(
        matmul_s=of_stages(all_s[..., MATMUL]),
        attention_s=of_stages(all_s[..., ATTENTION]),
        vector_s=of_stages(all_s[..., VECTOR]),
        launch_s=of_stages(inside.launch_s),
        tensor_s=of_stages(inside.tensor_s),
        backward_s=np.zeros_like(one_forward),
        transfer_s=exposed_transfers_s(batch.transfers, stack),
        parameter_s=_parameters_s(batch, one_forward, stack),
        reduction_s=traffic_s(batch.reductions, stack),
        gradient_s=traffic_s(batch.gradients, stack),
        update_s=_updates_s(batch, inside.update_s),
    )
    rules = StepRules(
        num_micro_batches=batch.num_micro_batches,
        interleave=batch.interleave,
        data_overlap=stack.data_overlap,
        parameter_overlap=stack.parameter_overlap,
        overhead_s=stack.step_overhead_s,
        waiting=waiting_share(batch.islands, stack),
    )
    return replace(stages, backward_s=stages.busy_s - one_forward), rules


def exposed_transfers_s(transfers: Traffic, stack: StackColumns) -> Floats:
    """Boundary transfers that show, same shape as its fields, s."""
    seconds = traffic_s(transfers, stack)
    return (1.0 - stack.transfer_overlap).reshape((-1,) + (1,) * (seconds.ndim - 1)) * seconds


def waiting_share(islands: Floats, stack: StackColumns) -> Floats:
    """Share of a step that waiting for the slowest of these islands adds, same shape."""
    return np.asarray(stack.waiting_share * np.log2(islands))


def prefetched_share(stack: StackColumns) -> Floats:
    """Share of forward's gathers that prefetching hides behind forward's compute, shape as of ``stack``.

    The same compute hides a share of all traffic (`parameter_overlap`), so prefetching hides the rest of it alone.
    """
    return np.asarray(stack.prefetches_forward * (1.0 - stack.parameter_overlap))


def _tensor_s(inside: LayerColumns, compute_s: Floats, stack: StackColumns) -> Floats:
    """Exposed collectives of layers and passes, shape as ``compute_s``; of those beside it what takes longer; s.

    Tokens on their way to experts hide behind what compute is left beside those.
    """
    exposed_s = (1.0 - stack.tensor_overlap)[:, None, None] * traffic_s(inside.tensor, stack, has_own_latency=True)
    tokens_s = traffic_s(inside.experts, stack, has_own_latency=True, share=stack.expert_efficiency)
    beside_s = traffic_s(inside.beside, stack)
    left_s = np.maximum(0.0, compute_s - beside_s)
    exposed_s = exposed_s + tokens_s - stack.expert_overlap[:, None, None] * np.minimum(tokens_s, left_s)
    return np.asarray(exposed_s + np.maximum(0.0, beside_s - compute_s))


def _parameters_s(batch: StepBatch, forward_s: Floats, stack: StackColumns) -> Floats:
    """ZeRO 3 traffic of stages, without what hides for certain: gathers of forward behind its compute; s."""
    hidden_s = np.minimum(traffic_s(batch.forward_gathers, stack), forward_s)
    return np.asarray(traffic_s(batch.parameters, stack) - prefetched_share(stack)[:, None] * hidden_s)


def _updates_s(batch: StepBatch, update_s: Floats) -> Floats:
    """Optimizer of every stage, from that of the layers (steps, layers); a tied table is updated once; s."""
    own = update_s * (1.0 - batch.tied_share)
    return np.asarray(_added_up(batch, own) / batch.update_shards[:, None])


def _added_up(batch: StepBatch, layers_s: Floats) -> Floats:
    """Of stages, from times of layers (steps, layers); in one order, which a product of matrices leaves to the CPU."""
    return np.asarray((batch.layers * layers_s[:, None, :]).sum(axis=-1))


def _with_software(classes_s: Floats, inside: LayerColumns, stack: StackColumns) -> Floats:
    """Device times with what the software adds: a slower head if it is not split, passes over logits, gradient sums.

    Gradients are added up at the rate of the update, whose bytes a parameter are known.
    """
    factors = np.ones((len(inside.waits), NUM_CLASSES))
    factors[:, MATMUL] = np.where(inside.waits > 0, 1.0, 1.0 / stack.lone_head_efficiency)
    factors[:, VECTOR] = stack.loss_traffic
    num_classes = classes_s.shape[-1]
    # `waits` is zero for a tensor group of one: a head that is split takes no penalty. Updates are left alone.
    changed = classes_s.copy()
    changed[..., HEAD, : BACKWARD + 1, :] *= factors[:, None, :num_classes]
    passes = stack.accumulation_bytes / inside.update_bytes
    changed[..., BACKWARD, min(VECTOR, num_classes - 1)] += passes[:, None] * classes_s[..., UPDATE, :].sum(axis=-1)
    return changed


def traffic_s(
    traffic: Traffic, stack: StackColumns, *, has_own_latency: bool = False, share: Floats | float = 1.0
) -> Floats:
    """Traffic at the rates that the stack reaches, or a share of them, same shape as its fields, s."""
    shape = (-1,) + (1,) * (traffic.count.ndim - 1)
    links, adapters = (
        (each * share).reshape(shape) for each in (stack.collective_efficiency, stack.network_efficiency)
    )
    seconds = traffic.latency_s + traffic.inner_s / links + traffic.outer_s / adapters
    # Levels of a measured curve run as one ring, so the slower one sets the pace; other levels follow one another.
    seconds = seconds + np.maximum(traffic.ring_inner_s / links, traffic.ring_outer_s / adapters)
    if has_own_latency:
        seconds = seconds + traffic.count * stack.collective_latency_s.reshape(shape)
        seconds = seconds + traffic.outer_count * stack.network_latency_s.reshape(shape)
    return np.asarray(seconds)
