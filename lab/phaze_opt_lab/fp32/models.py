"""Family of whole models in fp32 (NeuSight's labels): graph, kernels of PyTorch, fp32 operators, step formulas."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial

from phaze_opt.cost.compiled_step import BACKWARD, HEAD, UPDATE, CompiledStep, compile_step
from phaze_opt.cost.device_seconds import SerialSteps
from phaze_opt.cost.price_step import StackColumns
from phaze_opt.cost.step_table import build_batch
from phaze_opt.errors import InputError
from phaze_opt.hardware.device import Device
from phaze_opt.hardware.fitted import FittedConstants
from phaze_opt.hardware.network import Network
from phaze_opt.hardware.networks import load_network
from phaze_opt.units import MILLI
from phaze_opt.validation.family import Family, FitParameter
from phaze_opt.validation.measured_row import Row, read_rows
from phaze_opt.validation.training.compiled import DeviceTimes, StepRows
from phaze_opt.validation.training.row import read_model
from phaze_opt.workload.model import ModelSpec
from phaze_opt.workload.plan import ParallelPlan
from phaze_opt.workload.software import FusionLevel, TrainingStack
from phaze_opt.workload.training import AttentionForm, TrainingSpec
from phaze_opt_lab.estimate.fp32_machine import power_demand
from phaze_opt_lab.fp32.eager_kernels import EagerModel, eager_kernels
from phaze_opt_lab.fp32.kernels import DTYPES, ELEMENT_BYTES, KernelTable, PlacedKernel, device_refusal

FUSED_OPTION = "fusion"
NO_NETWORK = "dgx-a100"
"""Where a plan needs no links, any network does."""
BUCKET_OVERLAP = 1.0
"""PyTorch's distributed data parallel reduces gradients in buckets behind the backward pass."""
STREAMING_POWER = FitParameter(
    group="fp32/models",
    name="streaming_power",
    unit="1",
    low=0.3,
    high=1.0,
    start=0.7,
    meaning="share of its power that a device draws while it streams; the rest speeds the multiplications around",
)
"""The one constant of whole models: it moves only devices whose power limits their multiplications."""


@dataclass(frozen=True, slots=True)
class ModelRun:
    """What one row describes.

    Attributes:
        device: that it ran on.
        model, plan, training: what ran and how it was spread.
        stack: eager, or compiled with fused chains.
        has_head: whether logits of every token were computed.
        kernels: what decides the kernels.
    """

    device: Device
    model: ModelSpec
    plan: ParallelPlan
    training: TrainingSpec
    stack: TrainingStack
    has_head: bool
    kernels: EagerModel

    def network_under(self, fitted: FittedConstants) -> Network:
        """The network that it ran on, with the curves of some constants."""
        return load_network(self.device.network or NO_NETWORK, num_devices=self.plan.num_devices, fitted=fitted)


def read_run(row: Row) -> ModelRun:
    """A row as objects.

    Raises:
        InputError: a malformed value (with its line), or what cannot be predicted (without).
    """
    dtype = row.text("dtype", "fp32").lower()
    if dtype not in DTYPES:
        message = f"models in {dtype} are not priced here"
        raise InputError(message)
    device = row.device()
    refusal = device_refusal(device)
    if refusal:
        raise InputError(refusal)
    is_training = row.text("mode", "train").lower().startswith("train")
    plan, training = _read_plan(row)
    model = _model_of(row)
    is_compiled = FUSED_OPTION in row.text("option", "").lower()
    stack = TrainingStack(
        name="eager",
        fusion=FusionLevel.ELEMENTWISE if is_compiled else FusionLevel.NONE,
        attention=AttentionForm.UNFUSED,
        gradient_bytes=ELEMENT_BYTES,
        data_overlap=BUCKET_OVERLAP,
    )
    return ModelRun(
        device=device,
        model=model,
        plan=plan,
        training=training,
        stack=stack,
        has_head=not model.name.lower().startswith("bert"),
        kernels=EagerModel(
            sequence_length=training.sequence_length,
            hidden_size=model.hidden_size,
            has_tanh_gelu=model.name.lower().startswith("gpt"),
            is_training=is_training,
            is_compiled=is_compiled,
        ),
    )


def _model_of(row: Row) -> ModelSpec:
    """The row's transformer; NeuSight's BERT and OPT have a matmul each for query, key and value."""
    model = read_model(row)
    return replace(model, is_qkv_combined=model.name.lower().startswith("gpt"))


def _read_plan(row: Row) -> tuple[ParallelPlan, TrainingSpec]:
    """Degrees; with stages the option ends in the number of micro-batches (``pp4_1``)."""
    tensor, pipeline, data = (row.integer(name, 1) for name in ("tp", "pp", "dp"))
    batch = row.integer("batch")
    replica = max(1, batch // data)
    last = row.text("option", "").rpartition("_")[2]
    micro_batches = int(last) if pipeline > 1 and last.isdigit() else 1
    micro_batch = max(1, replica // micro_batches)
    plan = ParallelPlan(tensor=tensor, pipeline=pipeline, data=data, micro_batch=micro_batch)
    training = TrainingSpec(
        micro_batch=micro_batch,
        sequence_length=row.integer("seq"),
        global_batch=batch,
        attention=AttentionForm.UNFUSED,
        is_sequence_parallel=False,
        dtype_bytes=ELEMENT_BYTES,
    )
    return plan, training


def _compile(rows: Sequence[Row]) -> StepRows:
    """Graphs and their kernels.

    Raises:
        InputError: a malformed value, by file, line and column.
    """

    def read(row: Row) -> tuple[ModelRun, CompiledStep]:
        run = read_run(row)
        return run, compile_step(run.model, run.training, run.plan, stack=run.stack)

    found, unscored = read_rows(read, rows)
    runs, steps = [run for run, _ in found.values()], [step for _, step in found.values()]
    return StepRows(
        [row.number("e2e_ms") * MILLI for row in rows],
        unscored,
        build=lambda fitted: build_batch(steps, [run.network_under(fitted) for run in runs]),
        device_times=partial(_device_times, runs, cache(partial(SerialSteps, steps)), _kernel_table(runs, steps)),
    )


def _device_times(
    runs: Sequence[ModelRun], steps: Callable[[], SerialSteps], table: KernelTable, fitted: FittedConstants
) -> DeviceTimes:
    streaming = [streaming_share(device, fitted) for device in table.devices]
    classes_s, attention_s = steps().add_up(table.seconds(fitted, streaming=streaming))
    classes_s[:, :, UPDATE] = 0.0
    for place, run in enumerate(runs):
        if not run.kernels.is_training:
            classes_s[place, :, BACKWARD] = 0.0
        if not run.has_head:
            classes_s[place, HEAD] = 0.0
    return DeviceTimes(classes_s, attention_s, StackColumns([run.stack for run in runs]))


def _kernel_table(runs: Sequence[ModelRun], steps: Sequence[CompiledStep]) -> KernelTable:
    """Kernels of all operators of all steps, one after the other."""
    operators = [(run, operator) for run, step in zip(runs, steps, strict=True) for operator in step.operators]
    kernels = [
        PlacedKernel(kernel, place, run.device)
        for place, (run, operator) in enumerate(operators)
        for kernel in eager_kernels(operator, run.kernels)
    ]
    return KernelTable(kernels, len(operators))


def streaming_share(device: Device, fitted: FittedConstants) -> float:
    """Time that a streaming kernel adds to a model, over its time alone.

    Kernels measured alone run at the clock that their own power allows. In a model they alternate, and power is limited
    over milliseconds: what streaming leaves, multiplications use, if they could use more than the limit.
    """
    demand = power_demand(device, fitted)
    drawn = fitted.groups.get(STREAMING_POWER.group, {}).get(STREAMING_POWER.name, STREAMING_POWER.start)
    return 1.0 if demand <= 1.0 else max(drawn, 1.0 / demand)


FP32_MODELS = Family(
    name="fp32_models",
    datasets=("e2e_neusight_fp32",),
    parameters=lambda rows: (STREAMING_POWER,) if rows else (),
    compile=_compile,
    regime=lambda row: f"{row.text('mode', 'train')}, {row.text('option', 'one device')}",
    cell=lambda row: row.joined("model", "mode", "seq", "batch", "option"),
)
"""One constant: kernels are counted, operators fitted alone, links specified. A model, mode and size is a cell, so that
devices stay together."""
