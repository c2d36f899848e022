"""Rows of training sets as steps: what is known of published sets beyond their columns, and each row's software.

A row that names its software, or whose published set ran a known one, is one step. Any other is a step of every
software that suits its machine and sharding, and priced as the middle of them.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

from phaze_opt.cost.stacks import find_software, no_option, software_options
from phaze_opt.cost.suited_software import suited_software
from phaze_opt.errors import InputError
from phaze_opt.hardware.device import Device, path_of
from phaze_opt.hardware.fitted import load_fitted
from phaze_opt.hardware.networks import DEFAULT_NETWORK
from phaze_opt.validation.measured_row import Row
from phaze_opt.validation.training.compiled import TrainingEntry
from phaze_opt.validation.training.parameters import BASE, BRIDGE, CORE, DEEPSPEED, FMS, NEXT, PAX, PROFILE, TITAN, ZERO
from phaze_opt.validation.training.row import REFUSAL, TrainingRow, read_layer_row, read_training_row, zero_stage
from phaze_opt.workload.plan import ParallelPlan, Recompute
from phaze_opt.workload.run_options import RUN_OPTIONS

SINGLE, MULTI = "train_vtrain_singlenode", "train_vtrain_multinode"
SC21, KORTHIKANTI = "train_megatron_sc21", "train_korthikanti22"
LAYER, SCALING, LARGE = "layer_korthikanti22", "train_megatron_tp_scaling", "train_large_runs"
BIGSCIENCE = "train_bigscience_a100"
MEGATRON, NEMO, BLACKWELL = "train_megatron_h100", "train_nemo_h100_fp8", "train_bridge_blackwell"
MOE = "moe"
LLM_FOUNDRY, MAXTEXT = "train_llmfoundry_fsdp", "train_maxtext_tpu"
TORCHTITAN, FMS_FSDP, PAX_H100 = "train_torchtitan_h100", "train_fms_fsdp_h100", "train_pax_h100"

UNFUSED_CHIPS = ("tpu-v4",)
"""MaxText's configurations for TPU v4 (2023) came before its flash kernel; those for later chips ask for it."""


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
        publication: whose rows they are; empty of sets whose publication has another set of dense models.
    """

    stack: Callable[[Row, Device], str]
    complete: Callable[[TrainingRow], TrainingRow] = _as_read
    network: str = ""
    micro_batch: int | None = 1
    has_single_blocks: bool = False
    publication: str = ""


def _always(stack: str) -> Callable[[Row, Device], str]:
    return lambda row, device: stack


_OLD = TrainingSet(stack=_megatron_2021, micro_batch=None)
SETS = {
    SINGLE: replace(_OLD, stack=_always(PROFILE), network="vtrain-a100", complete=_composed, publication="vTrain"),
    MULTI: replace(_OLD, network="vtrain-a100", publication="vTrain"),
    SC21: replace(_OLD, publication="Narayanan 2021"),
    KORTHIKANTI: replace(_OLD, stack=_always(NEXT), publication="Korthikanti 2022"),
    LAYER: replace(_OLD, stack=_always(NEXT), publication="Korthikanti 2022"),
    SCALING: replace(_OLD, publication="Megatron-LM history"),
    LARGE: replace(_OLD, publication="Smith 2022"),
    MEGATRON: TrainingSet(
        stack=_always(CORE), complete=_megatron_core, has_single_blocks=True, publication="Megatron-LM H100"
    ),
    NEMO: TrainingSet(stack=_always(CORE), complete=_distributed, publication="NeMo"),
    BLACKWELL: TrainingSet(stack=_always(BRIDGE), complete=_distributed, publication="Megatron-Bridge"),
    MOE: TrainingSet(stack=_always(CORE), complete=_distributed),
    BIGSCIENCE: replace(_OLD, stack=_always(DEEPSPEED), publication="BigScience"),
    TORCHTITAN: TrainingSet(stack=_always(TITAN), complete=_without_dropout, publication="TorchTitan"),
    FMS_FSDP: TrainingSet(stack=_always(FMS), complete=_without_dropout, publication="fms-fsdp"),
    PAX_H100: TrainingSet(stack=_always(PAX), complete=_without_dropout, publication="JAX-Toolbox"),
    LLM_FOUNDRY: TrainingSet(stack=_llm_foundry, complete=_without_dropout, publication="llm-foundry"),
    MAXTEXT: TrainingSet(stack=_maxtext, complete=_unbiased, publication="MaxText"),
}
"""By name. Composed rows of vTrain come from profiles of layers."""


def read_row(row: Row) -> TrainingRow:
    """A row with its blanks filled.

    Raises:
        InputError: a malformed value, by file, line and column; no model of it can be made.
    """
    if row.text(REFUSAL, ""):
        raise InputError(row.text(REFUSAL))
    if row.dataset == LAYER:
        return read_layer_row(row)
    known = SETS[row.dataset]
    chunks = max(1, row.integer("layers") // row.integer("pp", 1)) if known.has_single_blocks else None
    return known.complete(read_training_row(row, micro_batch=known.micro_batch, interleave=chunks))


def stack_of(read: TrainingRow) -> str:
    """Name of a row's software: the one that it states, else what its set and machine ran."""
    return find_software(read.row.text("software", "")) or SETS[read.row.dataset].stack(read.row, read.device)


def said_of_run(row: Row) -> tuple[str, ...]:
    """Tables of the words that a row's columns say of its run (`workload.run_options`)."""
    found = (known.table(row.text(column, "").lower()) for column, known in RUN_OPTIONS.items())
    return tuple(filter(None, found))


def options_of(row: Row, software: str) -> tuple[str, ...]:
    """Options that a row's columns say, and its type where the software has a meaning of its own for it."""
    word = row.text("dtype", "").lower()
    return (*said_of_run(row), *([word] if word in software_options(software) else []))


def read_entry(row: Row) -> TrainingEntry:
    """How a row is predicted, by its own software or the first that suits; see `read_entries`."""
    return read_entries(row)[0]


def read_entries(row: Row, *, without: Collection[str] | None = None) -> tuple[TrainingEntry, ...]:
    """How a row is predicted: by its own software, else by each that suits it.

    Args:
        row: of a training set.
        without: data sets that count as never measured; if given, the row's own software counts as not known.

    Raises:
        InputError: as `read_row`; its software cannot run as it says, its machine lacks the path of its type, or its
            network does not suit the plan.
    """
    read = read_row(row)
    is_known = without is None and bool(find_software(row.text("software", "")) or not row.is_guessed)
    if is_known:
        software = stack_of(read)
        for option in said_of_run(row):
            fault = no_option(software, option)
            if fault:
                raise InputError(fault, key="software")
        return (_entry(read, software),)
    length = read.training.sequence_length
    names = suited_software(read.plan, read.device, sequence_length=length, without=without or ())
    return tuple(_entry(read, name) for name in names)


def _entry(read: TrainingRow, software: str) -> TrainingEntry:
    """A row under a software."""
    row, options = read.row, options_of(read.row, software)
    network = SETS[row.dataset].network or read.device.network or DEFAULT_NETWORK
    path = path_of(read.dtype)
    read.device.peak(path)
    entry = TrainingEntry(read, software, network, path, is_lone_block=row.dataset == LAYER, options=options)
    entry.network_under(load_fitted())
    return entry
