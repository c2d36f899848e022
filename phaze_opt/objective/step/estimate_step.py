"""Time of a training step on real machines: model, plan, device, network and software in, `StepTime` out."""

from __future__ import annotations

from phaze_opt.estimate.operator_table import compile_operators
from phaze_opt.hardware.device import ComputePath, Device
from phaze_opt.hardware.fitted import FittedConstants
from phaze_opt.hardware.network import Network
from phaze_opt.objective.step.compiled_step import compile_step
from phaze_opt.objective.step.device_seconds import device_seconds, roles_of
from phaze_opt.objective.step.price_step import price_step, serial_times
from phaze_opt.placement.step_time import StepTime
from phaze_opt.workload.model import ModelSpec
from phaze_opt.workload.plan import ParallelPlan
from phaze_opt.workload.stack import TrainingStack
from phaze_opt.workload.training import TrainingSpec


def estimate_step(
    model: ModelSpec,
    training: TrainingSpec,
    plan: ParallelPlan,
    *,
    device: Device,
    network: Network,
    stack: TrainingStack,
    fitted: FittedConstants,
    path: ComputePath = ComputePath.BF16,
) -> StepTime:
    """Time of one training step and where it goes.

    Args:
        model: what is trained.
        training: batches, sequence and optimizer; micro-batch and sequence shards are the plan's.
        plan: how the step is spread over the devices.
        device: the machine.
        network: that its devices are on.
        stack: training software, such as `stacks.load_stack` gives.
        fitted: constants of the device's operators.
        path: units and precision of the matmuls.

    Raises:
        InputError: the model cannot be sharded this way, or the device lacks the path.
    """
    step = compile_step(model, training, plan, stack=stack)
    compiled = compile_operators(step.operators)
    seconds = device_seconds(compiled, device, roles_of(compiled), path=path, stack=stack, fitted=fitted)
    return price_step(step, serial_times(step, seconds), network)
