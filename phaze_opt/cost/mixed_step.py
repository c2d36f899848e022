"""Time of one step whose pipeline stages run on different chips: each stage with the layer times of its own."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from phaze_opt.cost.compiled_step import CompiledStep
from phaze_opt.cost.price_step import LayerTimes, StackColumns, batch_loads
from phaze_opt.cost.step_table import build_batch
from phaze_opt.cost.step_time import StageLoads, StageTimes, StepRules, StepTime, stage_times, step_times
from phaze_opt.hardware.network import Network


@dataclass(frozen=True, slots=True)
class StageDevices:
    """The chips of a pipeline.

    Attributes:
        times: of the step's layers on each chip.
        of_stage: which of them each stage runs on, first stage first.
    """

    times: Sequence[LayerTimes]
    of_stage: Sequence[int]


def price_mixed_step(step: CompiledStep, devices: StageDevices, network: Network) -> StepTime:
    """Time of a step, as `price_step` has it where all stages run on one chip.

    Args:
        step: of `compile_step`.
        devices: of its stages.
        network: that the plan's devices are on.
    """
    return step_times(*_mixed_loads(step, devices, network)).one(0)


def price_mixed_stages(step: CompiledStep, devices: StageDevices, network: Network) -> StageTimes:
    """What each stage of such a step takes, shape (1, stages), s; arguments as of `price_mixed_step`."""
    return stage_times(*_mixed_loads(step, devices, network))


def _mixed_loads(step: CompiledStep, devices: StageDevices, network: Network) -> tuple[StageLoads, StepRules]:
    """What the stages do, each on its own chip: of the whole step on every chip, the stages that run there."""
    num_chips = len(devices.times)
    batch = build_batch([step] * num_chips, [network] * num_chips)
    classes_s = np.array([each.classes_s for each in devices.times])
    attention_s = np.array([each.attention_s for each in devices.times])
    loads, rules = batch_loads(batch, classes_s, attention_s, StackColumns([step.stack] * num_chips))
    chips, stages = np.asarray(devices.of_stage, np.intp), np.arange(step.plan.pipeline)
    own = {each.name: getattr(loads, each.name)[chips, stages][None] for each in fields(StageLoads)}
    once = {each.name: getattr(rules, each.name)[:1] for each in fields(StepRules)}
    return StageLoads(**own), StepRules(**once)
