"""A row of NeuSight's whole models as model, plan, software and the kernels it runs."""

from __future__ import annotations

from dataclasses import dataclass, replace

from phaze_opt.errors import InputError
from phaze_opt.hardware.device import Device
from phaze_opt.hardware.fitted import FittedConstants
from phaze_opt.hardware.network import Network
from phaze_opt.hardware.networks import load_network
from phaze_opt.validation.fp32.eager_kernels import EagerModel
from phaze_opt.validation.fp32.rows import DTYPES, ELEMENT_BYTES, device_refusal
from phaze_opt.validation.row import Row
from phaze_opt.validation.training.row import read_model
from phaze_opt.workload.model import ModelSpec
from phaze_opt.workload.plan import ParallelPlan
from phaze_opt.workload.stack import FusionLevel, TrainingStack
from phaze_opt.workload.training import AttentionForm, TrainingSpec

FUSED_OPTION = "fusion"
NO_NETWORK = "dgx-a100"
"""Where a plan needs no links, any network does."""
BUCKET_OVERLAP = 1.0
"""PyTorch's distributed data parallel reduces gradients in buckets behind the backward pass."""


@dataclass(frozen=True, slots=True)
class ModelRun:
    """What one row describes.

    Attributes:
        device: that it ran on.
        model, plan, training: what ran and how it was spread.
        stack: eager, or compiled with fused chains.
        is_training: forward and backward, or forward alone.
        has_head: whether logits of every token were computed.
        kernels: what decides the kernels.
    """

    device: Device
    model: ModelSpec
    plan: ParallelPlan
    training: TrainingSpec
    stack: TrainingStack
    is_training: bool
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
        is_training=is_training,
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
