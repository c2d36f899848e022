"""Steps priced from operators' times: those of a real machine, or made-up ones."""

from phaze_opt.cost import clocks
from phaze_opt.cost.compiled_step import CompiledStep, compile_step
from phaze_opt.cost.device_seconds import SerialSteps
from phaze_opt.cost.price_step import LayerTimes, price_step
from phaze_opt.cost.step_time import StepTime
from phaze_opt.hardware.device import ComputePath, Device
from phaze_opt.hardware.fitted import FittedConstants
from phaze_opt.hardware.network import Network
from phaze_opt.record.arrays import Floats
from phaze_opt.workload.model import ModelSpec
from phaze_opt.workload.model_classes import ModelFamily
from phaze_opt.workload.plan import ParallelPlan
from phaze_opt.workload.software import TrainingStack
from phaze_opt.workload.training import TrainingSpec

SMALL_MODEL = ModelSpec(
    name="small",
    family=ModelFamily.GPT2,
    num_layers=4,
    hidden_size=1024,
    num_heads=16,
    num_kv_heads=16,
    head_size=64,
    ffn_size=4096,
    vocab_size=51200,
    max_sequence_length=1024,
    embedding_size=1024,
    num_position_rows=1024,
)


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
    """Time of one training step on real machines."""
    step = compile_step(model, training, plan, stack=stack)
    return price_step(step, clocks.MachineClock(device, path, fitted).times(step), network)


def serial_times(step: CompiledStep, operator_s: Floats) -> LayerTimes:
    """One operator after the other, shape (num_operators,), s."""
    classes, attention = SerialSteps([step]).add_up(operator_s)
    return clocks.serial_times(classes[0], attention[0])
