"""Rows of training on H100s, with FSDP and on TPUs as entries: what their sources leave blank or say in words."""

from __future__ import annotations

from dataclasses import replace

from phaze_opt.errors import InputError
from phaze_opt.hardware.device import Device, path_of
from phaze_opt.hardware.fitted import load_fitted
from phaze_opt.hardware.networks import DEFAULT_NETWORK
from phaze_opt.validation.row import Row
from phaze_opt.validation.training.compiled import TrainingEntry
from phaze_opt.validation.training.row import TrainingRow, read_training_row
from phaze_opt.workload.model import ModelSpec
from phaze_opt.workload.plan import ParallelPlan, Recompute

MEGATRON, NEMO = "train_megatron_h100", "train_nemo_h100_fp8"
LLM_FOUNDRY, MAXTEXT = "train_llmfoundry_fsdp", "train_maxtext_tpu"

UNFUSED_CHIPS = ("tpu-v4-published",)
"""MaxText's configurations for TPU v4 (2023) came before its flash kernel; those for later chips ask for it."""


def read_modern_row(row: Row) -> TrainingRow | str:
    """A row with its blanks filled, or a sentence that says why no model of it can be made.

    Raises:
        InputError: a malformed value, by file, line and column.
    """
    interleave = _chunks(row) if row.dataset == MEGATRON else None
    read = read_training_row(row, micro_batch=1, interleave=interleave)
    if isinstance(read, str):
        return read
    try:
        return _completed(read)
    except InputError as error:
        return str(error)


def entry_of(read: TrainingRow) -> TrainingEntry | str:
    """How a row is predicted, or why it is not."""
    try:
        path = path_of(read.dtype)
        read.device.peak(path)
        entry = TrainingEntry(read, stack_of(read.row, read.device), read.device.network or DEFAULT_NETWORK, path)
        entry.network_under(load_fitted())
    except InputError as error:
        return str(error)
    return entry


def stack_of(row: Row, device: Device) -> str:
    """Name of a row's software: the one that it states, else what its set and machine ran."""
    if row.text("software", ""):
        return row.text("software").lower()
    if row.dataset == MAXTEXT:
        if device.name in UNFUSED_CHIPS:
            return "maxtext-unfused"
        return "maxtext-offload" if row.text("recompute", "full").lower() == "custom" else "maxtext"
    if row.dataset == LLM_FOUNDRY:
        if not device.name.startswith("a100"):
            return "llm-foundry-h100"
        return "llm-foundry-pure" if "mode PURE" in row.text("note", "") else "llm-foundry"
    return "megatron-core"


def _chunks(row: Row) -> int:
    """Model chunks of a stage where they are not published: one block each."""
    return max(1, row.integer("layers") // row.integer("pp", 1))


def _completed(read: TrainingRow) -> TrainingRow:
    """What the source means though its columns do not say it.

    Raises:
        InputError: a micro-batch that does not divide what a replica has.
    """
    row, plan = read.row, read.plan
    model = read.model if row.dataset == NEMO else _without_dropout(read.model)
    if row.dataset == MAXTEXT:
        model = replace(model, has_qkv_bias=False, has_attention_output_bias=False, has_mlp_bias=False)
        plan = _maxtext_plan(row, plan)
    elif row.dataset in (MEGATRON, NEMO):
        # Both run the distributed optimizer and sequence parallelism beside tensor parallelism.
        plan = replace(plan, zero=max(1, plan.zero), is_sequence_parallel=plan.tensor > 1)
        model = replace(model, is_tied=model.is_tied and row.dataset == NEMO)
    return replace(read, model=model, plan=plan, training=replace(read.training, micro_batch=plan.micro_batch))


def _without_dropout(model: ModelSpec) -> ModelSpec:
    """Only NeMo's GPT recipes train with dropout."""
    return replace(model, has_hidden_dropout=False, has_attention_dropout=False)


def _maxtext_plan(row: Row, plan: ParallelPlan) -> ParallelPlan:
    """Batches are per chip, so that a tensor group holds t times as many; all state is sharded.

    "minimal" keeps every product, so that attention and elementwise work run again; "custom" keeps (on the host) the
    input, query, key and value of a block, "full" its input only: their stacks say what that spares.
    """
    text = row.text("recompute", "full").lower()
    is_minimal = text.startswith("minimal")
    recompute = Recompute.SELECTIVE if is_minimal else Recompute.NONE if text == "none" else Recompute.FULL
    return replace(
        plan,
        micro_batch=max(1, round(row.number("micro_batch", plan.micro_batch) * plan.tensor)),
        zero=3,
        recompute=recompute,
        is_sequence_parallel=plan.tensor > 1,
    )
