"""Published sets of training steps: what is known beyond their columns, and the two families that predict them.

One is of A100 and V100 clusters with Megatron-LM; the other of H100s, FSDP and TPUs.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np

from phaze_opt.cost.stacks import stack_groups
from phaze_opt.hardware.device import Device, path_of
from phaze_opt.hardware.fitted import FittedConstants, load_fitted
from phaze_opt.hardware.networks import DEFAULT_NETWORK
from phaze_opt.validation.family import Family, FitParameter, Label
from phaze_opt.validation.fit import fit_towards_starts
from phaze_opt.validation.held_out import with_starts
from phaze_opt.validation.measured_row import Row, read_rows
from phaze_opt.validation.training.compiled import StepRows, TrainingEntry, compile_training
from phaze_opt.validation.training.parameters import (
    BASE,
    CORE,
    MEGATRON_PARAMETERS,
    MODERN_PARAMETERS,
    NEXT,
    PROFILE,
    ZERO,
)
from phaze_opt.validation.training.row import TrainingRow, read_layer_row, read_training_row, zero_stage
from phaze_opt.workload.plan import ParallelPlan, Recompute

SINGLE, MULTI = "train_vtrain_singlenode", "train_vtrain_multinode"
SC21, KORTHIKANTI = "train_megatron_sc21", "train_korthikanti22"
LAYER, SCALING, LARGE = "layer_korthikanti22", "train_megatron_tp_scaling", "train_large_runs"
MEGATRON, NEMO = "train_megatron_h100", "train_nemo_h100_fp8"
LLM_FOUNDRY, MAXTEXT = "train_llmfoundry_fsdp", "train_maxtext_tpu"

UNFUSED_CHIPS = ("tpu-v4-published",)
"""MaxText's configurations for TPU v4 (2023) came before its flash kernel; those for later chips ask for it."""
NODE_DEVICES = 8
FITTED = (SINGLE, MULTI, SC21, KORTHIKANTI)
"""Sets of the first family whose rows are fitted, each set with one weight in all; the others are scored only."""
_TOGETHER = ((MEGATRON, NEMO), (LLM_FOUNDRY,), (MAXTEXT,))
"""Sets of the second family whose constants are fitted together; none is shared between the three."""


def _megatron_2021(row: Row, device: Device) -> str:
    """ZeRO 3 is DeepSpeed's."""
    del device
    return ZERO if zero_stage(row.text("sharding", "none").lower()) == 3 else BASE


def _llm_foundry(row: Row, device: Device) -> str:
    if not device.name.startswith("a100"):
        return "llm-foundry-h100"
    return "llm-foundry-pure" if "mode PURE" in row.text("note", "") else "llm-foundry"


def _maxtext(row: Row, device: Device) -> str:
    if device.name in UNFUSED_CHIPS:
        return "maxtext-unfused"
    return "maxtext-offload" if row.text("recompute", "full").lower() == "custom" else "maxtext"


def _composed(read: TrainingRow) -> TrainingRow:
    """Without recomputation, which the column of composed rows only assumes.

    With it the layers of hidden size 2048 would run at the peak of the machine, beside matmuls that reach 0.8 of it
    in every other set (decision 0174).
    """
    return replace(read, plan=replace(read.plan, recompute=Recompute.NONE))


def _distributed(read: TrainingRow) -> TrainingRow:
    """Megatron-Core and NeMo run the distributed optimizer, and sequence parallelism beside tensor parallelism."""
    plan = replace(read.plan, zero=max(1, read.plan.zero), is_sequence_parallel=read.plan.tensor > 1)
    return replace(read, plan=plan)


def _megatron_core(read: TrainingRow) -> TrainingRow:
    return _without_dropout(replace(_distributed(read), model=replace(read.model, is_tied=False)))


def _without_dropout(read: TrainingRow) -> TrainingRow:
    """Only NeMo's GPT recipes train with dropout."""
    return replace(read, model=replace(read.model, has_hidden_dropout=False, has_attention_dropout=False))


def _unbiased(read: TrainingRow) -> TrainingRow:
    """MaxText's models have no biases either, and its plans words of their own."""
    model = replace(read.model, has_qkv_bias=False, has_attention_output_bias=False, has_mlp_bias=False)
    plan = _maxtext_plan(read.row, read.plan)
    training = replace(read.training, micro_batch=plan.micro_batch)
    return _without_dropout(replace(read, model=model, plan=plan, training=training))


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


def _as_read(read: TrainingRow) -> TrainingRow:
    return read


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSet:
    """A published set.

    Attributes:
        stack: name of the software of a row that states none.
        complete: what the source means though its columns do not say it.
        network: that its machines are on, where it is not their own.
        micro_batch: sequences of a micro-batch where the column is blank; see `read_training_row`.
        has_single_blocks: whether a stage has as many chunks as blocks where that column is blank.
    """

    stack: Callable[[Row, Device], str]
    complete: Callable[[TrainingRow], TrainingRow] = _as_read
    network: str = ""
    micro_batch: int | None = 1
    has_single_blocks: bool = False


def _always(stack: str) -> Callable[[Row, Device], str]:
    return lambda row, device: stack


_OLD = TrainingSet(stack=_megatron_2021, micro_batch=None)
SETS = {
    SINGLE: replace(_OLD, stack=_always(PROFILE), network="vtrain-a100", complete=_composed),
    MULTI: replace(_OLD, network="vtrain-a100"),
    SC21: _OLD,
    KORTHIKANTI: replace(_OLD, stack=_always(NEXT)),
    LAYER: replace(_OLD, stack=_always(NEXT)),
    SCALING: _OLD,
    LARGE: _OLD,
    MEGATRON: TrainingSet(stack=_always(CORE), complete=_megatron_core, has_single_blocks=True),
    NEMO: TrainingSet(stack=_always(CORE), complete=_distributed),
    LLM_FOUNDRY: TrainingSet(stack=_llm_foundry, complete=_without_dropout),
    MAXTEXT: TrainingSet(stack=_maxtext, complete=_unbiased),
}
"""By name. Composed rows of vTrain come from profiles of layers."""


def read_row(row: Row) -> TrainingRow:
    """A row with its blanks filled.

    Raises:
        InputError: a malformed value, by file, line and column; no model of it can be made.
    """
    if row.dataset == LAYER:
        return read_layer_row(row)
    known = SETS[row.dataset]
    chunks = max(1, row.integer("layers") // row.integer("pp", 1)) if known.has_single_blocks else None
    return known.complete(read_training_row(row, micro_batch=known.micro_batch, interleave=chunks))


def stack_of(read: TrainingRow) -> str:
    """Name of a row's software: the one that it states, else what its set and machine ran."""
    return read.row.text("software", "").lower() or SETS[read.row.dataset].stack(read.row, read.device)


def read_entry(row: Row) -> TrainingEntry:
    """How a row is predicted.

    Raises:
        InputError: as `read_row`; its machine lacks the path of its type, or its network does not suit the plan.
    """
    read = read_row(row)
    network = SETS[row.dataset].network or read.device.network or DEFAULT_NETWORK
    path = path_of(read.dtype)
    read.device.peak(path)
    entry = TrainingEntry(read, stack_of(read), network, path, is_lone_block=row.dataset == LAYER)
    entry.network_under(load_fitted())
    return entry


def _compile(rows: Sequence[Row]) -> StepRows:
    return compile_training(rows, read_entry)


def _parameters(rows: Sequence[Row]) -> tuple[FitParameter, ...]:
    """Constants of the software that the rows ran, and of what it came of."""
    stacks = {stack_of(read) for read in read_rows(read_row, rows)[0].values()}
    used = {group for stack in stacks for group in stack_groups(stack)}
    return tuple(each for each in (*MEGATRON_PARAMETERS, *MODERN_PARAMETERS) if each.group in used)


def _fit_by_set(rows: Sequence[Row], start: FittedConstants) -> FittedConstants:
    """By least squares in which every set counts alike, however many rows it has.

    A pull to the starts weighs as much as one row of the smallest set (decision 0176): few rows must not decide a
    constant alone.
    """
    counts = Counter(row.dataset for row in rows)
    scale = (len(rows) / max(1, len(counts))) ** 0.5
    weights = scale * np.array([counts[row.dataset] ** -0.5 if row.dataset in FITTED else 0.0 for row in rows])
    return fit_towards_starts(_compile(rows), _parameters(rows), start, weights=weights)


def _fit_by_software(rows: Sequence[Row], start: FittedConstants) -> FittedConstants:
    """Each software's constants on its own rows, pulled to what other sources say; unseen ones stay there."""
    fitted = with_starts(start, MODERN_PARAMETERS)
    for sets in _TOGETHER:
        own = [row for row in rows if row.dataset in sets]
        if own:
            fitted = fit_towards_starts(_compile(own), _parameters(own), fitted)
    return fitted


def _degrees(row: Row) -> str:
    """Tensor degree, with or without stages; tensor groups that cross nodes apart."""
    tensor, pipeline = row.integer("tp", 1), row.integer("pp", 1)
    where = " across nodes" if tensor > NODE_DEVICES else ""
    return f"tp {tensor}{where}, pp {'1' if pipeline == 1 else '> 1'}"


def _modern_regime(row: Row) -> str:
    """What tells the rows of a set apart: chip, length, recomputation, or degrees."""
    recompute = row.text("recompute", "none")
    if row.dataset == MAXTEXT:
        return f"{row.text('hardware')}, {recompute} recompute"
    if row.dataset == LLM_FOUNDRY:
        length = "up to 4096" if row.integer("seq") <= 4096 else "above 4096"
        machine = f"{row.text('hardware')} {row.text('dtype', 'bf16')}"
        return f"{machine}, {_nodes(row)}, {length} tokens, {recompute} recompute"
    stages = "stages" if row.integer("pp", 1) > 1 else "no stages"
    return f"{row.text('dtype', 'bf16')}, {stages}"


def _nodes(row: Row) -> str:
    return "one node" if row.integer("n_devices") <= NODE_DEVICES else "several nodes"


def _cell(row: Row) -> str:
    """Composed rows share hidden size, degrees and micro-batch; others are configurations of their own."""
    if row.dataset == SINGLE:
        columns: tuple[str, ...] = ("hidden", "tp", "pp", "dp", "micro_batch")
    else:
        columns = ("model", "n_devices", "tp", "pp", "dp", "micro_batch", "interleave", "global_batch", "sharding")
    return f"{row.dataset}|{row.joined(*columns)}"


def _only(label: Label, *datasets: str) -> Label:
    """The label of rows of some sets; empty for others."""
    return lambda row: label(row) if row.dataset in datasets else ""


def _column(name: str, *datasets: str) -> Label:
    return _only(lambda row: row.text(name, ""), *datasets)


TRAINING = Family(
    name="training",
    datasets=(SINGLE, MULTI, SC21, KORTHIKANTI, LAYER, SCALING, LARGE),
    parameters=_parameters,
    compile=_compile,
    fit=_fit_by_set,
    regime=_degrees,
    cell=_cell,
    splits=MappingProxyType({"hidden": _column("hidden", SINGLE), "model": _column("model", MULTI, SC21, KORTHIKANTI)}),
)
"""Megatron-LM of 2021 and 2022 and what came of it; tested on hidden sizes of the composed rows, models of others."""

MODERN_TRAINING = Family(
    name="modern-training",
    datasets=(MEGATRON, NEMO, LLM_FOUNDRY, MAXTEXT),
    parameters=_parameters,
    compile=_compile,
    fit=_fit_by_software,
    regime=_modern_regime,
    cell=lambda row: row.joined("hardware", "model", "n_devices", "seq", "dtype", "tp", "pp", "sharding"),
    splits=MappingProxyType(
        {
            "nodes": _only(_nodes, LLM_FOUNDRY),
            "devices": _column("n_devices", LLM_FOUNDRY),
            "machine": _column("hardware", LLM_FOUNDRY),
            "chip": _column("hardware", MAXTEXT),
            "model": lambda row: f"{row.dataset}:{row.text('model', '')}",
        }
    ),
)
"""Megatron-Core, NeMo in fp8, llm-foundry (FSDP) and MaxText; tested on one node or several, device counts and machines
of llm-foundry, chips of MaxText and models of all."""
