"""Family of whole models in fp32 (NeuSight's labels): graph, kernels of PyTorch, fp32 operators, step formulas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from phaze_opt.errors import InputError
from phaze_opt.estimate.fp32_machine import Fp32Machines, power_demand
from phaze_opt.estimate.machine_simt import simt_matmul
from phaze_opt.estimate.machine_vector import elementwise_s, layer_norm_s, softmax_s
from phaze_opt.hardware.device import ComputePath, Device, load_device
from phaze_opt.hardware.fitted import FittedConstants
from phaze_opt.hardware.network import Network
from phaze_opt.hardware.networks import load_network
from phaze_opt.objective.step.compiled_step import CompiledStep, compile_step
from phaze_opt.objective.step.price_step import SerialSums, StackColumns, price_batch
from phaze_opt.objective.step.step_batch import build_batch
from phaze_opt.placement.step_time import StepTimes
from phaze_opt.validation.eager_kernels import EagerModel, Kernel, eager_kernels
from phaze_opt.validation.family import Parameter, Part
from phaze_opt.validation.neusight_rows import DTYPES, ELEMENT_BYTES
from phaze_opt.validation.row import Row
from phaze_opt.validation.training_row import read_model
from phaze_opt.workload.model import ModelSpec
from phaze_opt.workload.plan import ParallelPlan
from phaze_opt.workload.stack import FusionLevel, TrainingStack
from phaze_opt.workload.training import AttentionForm, TrainingSpec

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]

DATASET = "e2e_neusight_fp32"
FUSED_OPTION = "fusion"
NO_NETWORK = "dgx-a100"
"""Where a plan needs no links, any network does."""
STREAMING_POWER = Parameter(
    group="fp32/models",
    name="streaming_power",
    unit="1",
    low=0.3,
    high=1.0,
    start=0.7,
    meaning="share of its power that a device draws while it streams; the rest speeds the multiplications around",
)
"""The one constant of whole models: it moves only devices whose power limits their multiplications."""

BUCKET_OVERLAP = 1.0
"""PyTorch's distributed data parallel reduces gradients in buckets behind the backward pass."""

UPDATE, BACKWARD, HEAD = 2, 1, 2


@dataclass(frozen=True, slots=True)
class ModelRun:
    """What one row describes.

    Attributes:
        device, network: that it ran on.
        model, plan, training: what ran and how it was spread.
        stack: eager, or compiled with fused chains.
        is_training: forward and backward, or forward alone.
        has_head: whether logits of every token were computed.
        kernels: what decides the kernels.
    """

    device: Device
    network: Network
    model: ModelSpec
    plan: ParallelPlan
    training: TrainingSpec
    stack: TrainingStack
    is_training: bool
    has_head: bool
    kernels: EagerModel


class CompiledModels:
    """Whole models, predicted again and again under other constants."""

    def __init__(self, rows: Sequence[Row]) -> None:
        """Build graphs and their kernels.

        Raises:
            InputError: a malformed value, by file, line and column.
        """
        self._measured_s = np.array([row.number("e2e_ms") * 1e-3 for row in rows])
        self._unscored: dict[int, str] = {}
        self._indices: list[int] = []
        self._runs: list[ModelRun] = []
        self._steps: list[CompiledStep] = []
        for index, row in enumerate(rows):
            try:
                run = _read_run(row)
                step = compile_step(run.model, run.training, run.plan, stack=run.stack)
            except InputError as error:
                if error.line is not None:
                    raise
                self._unscored[index] = str(error)
                continue
            self._indices.append(index)
            self._runs.append(run)
            self._steps.append(step)
        if self._steps:
            self._sums = SerialSums(self._steps)
            self._batch = build_batch(self._steps, [run.network for run in self._runs])
            self._table = _KernelTable(self._runs, self._steps)

    @property
    def measured_s(self) -> Floats:
        """Measured time, shape (num_rows,)."""
        return self._measured_s

    @property
    def unscored(self) -> Mapping[int, str]:
        """Why rows are not predicted."""
        return self._unscored

    def seconds(self, fitted: FittedConstants) -> Floats:
        """Predicted time, shape (num_rows,), s."""
        seconds = np.full(len(self._measured_s), np.nan)
        if self._runs:
            seconds[self._indices] = self._times(fitted).seconds
        return seconds

    def explain(self, fitted: FittedConstants, index: int) -> tuple[Part, ...]:
        """Parts of the predicted time."""
        parts = self._times(fitted).one(self._indices.index(index)).parts
        return tuple(Part(name.removesuffix("_s"), seconds) for name, seconds in parts.items())

    def _times(self, fitted: FittedConstants) -> StepTimes:
        classes_s, attention_s = self._sums.add_up(self._table.seconds(fitted))
        classes_s[:, :, UPDATE] = 0.0
        for place, run in enumerate(self._runs):
            if not run.is_training:
                classes_s[place, :, BACKWARD] = 0.0
            if not run.has_head:
                classes_s[place, HEAD] = 0.0
        return price_batch(self._batch, classes_s, attention_s, StackColumns.of([run.stack for run in self._runs]))


class _KernelTable:
    """Kernels of all operators of all steps as arrays, priced together and added up by operator."""

    def __init__(self, runs: Sequence[ModelRun], steps: Sequence[CompiledStep]) -> None:
        devices = {run.device.name: run.device for run in runs}
        self._devices = tuple(devices.values())
        entries: list[tuple[Kernel, int, int]] = []
        self._num_operators = 0
        for run, step in zip(runs, steps, strict=True):
            place = list(devices).index(run.device.name)
            for operator in step.operators:
                kernels = eager_kernels(operator, run.kernels)
                entries.extend((kernel, self._num_operators, place) for kernel in kernels)
                self._num_operators += 1
        self._kinds = {kind: _Kernels.of(entries, kind) for kind in ("matmul", "softmax", "norm", "stream")}

    def seconds(self, fitted: FittedConstants) -> Floats:
        """Time of every operator, shape (num_operators,), s."""
        machines = Fp32Machines.look_up(self._devices, fitted)
        streaming = np.array([streaming_share(device, fitted) for device in self._devices])
        total = np.zeros(self._num_operators)
        for kind, kernels in self._kinds.items():
            if not kernels.operator.size:
                continue
            if kind == "matmul":
                b, m, n, k = kernels.sizes.T
                each = simt_matmul(b, m, n, k, machines.simt(kernels.device)).seconds
            elif kind == "stream":
                each = elementwise_s(kernels.sizes[:, 0], machines.vector(kernels.device))
            else:
                price = softmax_s if kind == "softmax" else layer_norm_s
                rows, length = kernels.sizes.T
                each = price(rows, length, ELEMENT_BYTES, machines.vector(kernels.device))
            if kind != "matmul":
                each = each * streaming[kernels.device]
            total += np.bincount(kernels.operator, each * kernels.count, minlength=self._num_operators)
        return total


def streaming_share(device: Device, fitted: FittedConstants) -> float:
    """Time that a streaming kernel adds to a model, over its time alone.

    Kernels measured alone run at the clock that their own power allows. In a model they alternate, and power is limited
    over milliseconds: what streaming leaves, multiplications use, if they could use more than the limit.
    """
    demand = power_demand(device, fitted)
    drawn = fitted.groups.get(STREAMING_POWER.group, {}).get(STREAMING_POWER.name, STREAMING_POWER.start)
    return 1.0 if demand <= 1.0 else max(drawn, 1.0 / demand)


@dataclass(frozen=True, slots=True)
class _Kernels:
    """Kernels of one kind: sizes, how many equal ones, of which operator, on which device."""

    sizes: Floats
    count: Floats
    operator: Indices
    device: Indices

    @classmethod
    def of(cls, entries: Sequence[tuple[Kernel, int, int]], kind: str) -> _Kernels:
        """Those of one kind."""
        own = [entry for entry in entries if entry[0].kind == kind]
        return cls(
            np.array([kernel.sizes for kernel, _, _ in own], float),
            np.array([kernel.count for kernel, _, _ in own], float),
            np.array([operator for _, operator, _ in own], np.intp),
            np.array([device for _, _, device in own], np.intp),
        )


class NeusightModelsFamily:
    """Predicts ``e2e_neusight_fp32`` by the constants of fp32 operators and one of its own."""

    @property
    def name(self) -> str:
        """``fp32_models``."""
        return "fp32_models"

    @property
    def datasets(self) -> tuple[str, ...]:
        """The one set of whole models in fp32."""
        return (DATASET,)

    def parameters(self, rows: Sequence[Row]) -> tuple[Parameter, ...]:
        """One: kernels are counted, operators fitted alone, links specified."""
        return (STREAMING_POWER,) if rows else ()

    def compile(self, rows: Sequence[Row]) -> CompiledModels:
        """Prepare rows.

        Raises:
            InputError: a malformed value, by file, line and column.
        """
        return CompiledModels(rows)

    def regime(self, row: Row) -> str:
        """Mode, and how it was spread or compiled."""
        option = row.text("option", "")
        return f"{row.text('mode', 'train')}, {option or 'one device'}"

    def cell(self, row: Row) -> str:
        """A model, mode and size; devices stay together."""
        return "|".join(row.text(name, "") for name in ("model", "mode", "seq", "batch", "option"))


def _read_run(row: Row) -> ModelRun:
    """A row as objects.

    Raises:
        InputError: a malformed value (with its line), or what cannot be predicted (without).
    """
    dtype = row.text("dtype", "fp32").lower()
    if dtype not in DTYPES:
        message = f"models in {dtype} are not priced here"
        raise InputError(message)
    device = load_device(row.text("hardware"))
    device.peak(ComputePath.FP32)
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
        network=load_network(device.network or NO_NETWORK, num_devices=plan.num_devices),
        model=model,
        plan=plan,
        training=training,
        stack=stack,
        is_training=is_training,
        has_head=not model.name.startswith("bert"),
        kernels=EagerModel(
            sequence_length=training.sequence_length,
            hidden_size=model.hidden_size,
            has_tanh_gelu=model.name.startswith("gpt"),
            is_training=is_training,
            is_compiled=is_compiled,
        ),
    )


def _model_of(row: Row) -> ModelSpec:
    """The row's transformer; NeuSight's BERT and OPT have a matmul each for query, key and value."""
    model = read_model(row)
    return replace(model, is_qkv_combined=model.name.startswith("gpt"))


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
