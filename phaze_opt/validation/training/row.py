"""A row of a training set as a model, a training set-up and a parallel plan on a real machine."""

import math
import re
from dataclasses import dataclass

from phaze_opt.errors import InputError
from phaze_opt.hardware.device import Device
from phaze_opt.units import MICRO
from phaze_opt.validation.measured_row import Row
from phaze_opt.workload.block_spec import NormKind
from phaze_opt.workload.model import ModelSpec
from phaze_opt.workload.model_classes import ModelFamily
from phaze_opt.workload.plan import ParallelPlan, Recompute
from phaze_opt.workload.run_options import SELECTIVE
from phaze_opt.workload.training import TrainingSpec

MOST_SEQUENCES = 16
"""Of a micro-batch that is not published: SC21's models without stages ran 16 or 8 at a time (README of the data)."""
REFUSAL = " refusal"
"""Key of a row that cannot be one of training: why. No header has it, as names of columns are stripped."""
_DROPS = re.compile(r"(?<!no )(?<!without )\btokens?[- ](?:are )?drop", re.IGNORECASE)
"""Words of a note that say that tokens beyond an expert's capacity are dropped."""
_STATE_SHARDS = re.compile(r"(?:fsdp|full_shard|hybrid_shard|zero3)\s+(\d+)")


@dataclass(frozen=True, slots=True)
class TrainingRow:
    """What one row describes.

    Attributes:
        row: as read.
        device: the machine.
        dtype: precision of its matmuls as the data set writes it (``fp16``, ``bf16``, ``fp8``).
        model, training, plan: what was trained, and how it was spread over the devices.
        measured_s: time of one step.
    """

    row: Row
    device: Device
    dtype: str
    model: ModelSpec
    training: TrainingSpec
    plan: ParallelPlan
    measured_s: float


@dataclass(frozen=True, slots=True)
class TrainingRun:
    """What a row trains and how it is spread over devices, whatever was measured of it: as in `TrainingRow`."""

    model: ModelSpec
    training: TrainingSpec
    plan: ParallelPlan


def read_run(row: Row, *, micro_batch: int | None = None, interleave: int | None = None) -> TrainingRun:
    """What a row trains; arguments and faults as of `read_training_row`."""
    model, plan = read_model(row), _read_plan(row, micro_batch=micro_batch, interleave=interleave)
    batch, is_split = row.integer("global_batch"), plan.is_sequence_parallel
    training = TrainingSpec(
        plan.micro_batch,
        row.integer("seq"),
        batch,
        is_sequence_parallel=is_split,
        expert_imbalance=row.number("imbalance", 1.0),
        expert_capacity=expert_capacity(row),
    )
    return TrainingRun(model, training, plan)


def read_training_row(row: Row, *, micro_batch: int | None = None, interleave: int | None = None) -> TrainingRow:
    """A row as objects.

    Args:
        row: of a training set.
        micro_batch: sequences of a micro-batch where the column is blank; unless given, one sequence, and without
            pipeline stages all that a replica has, up to `MOST_SEQUENCES`.
        interleave: chunks a stage where that column is blank; 1 unless given.

    Raises:
        InputError: a malformed value, by file, line and column; no model of it can be made.
    """
    measured_s, device = row.number("iter_time_s"), row.device()
    limit_w = row.number("power_limit_w", 0.0)
    device = device.limited_to(limit_w) if limit_w else device
    run = read_run(row, micro_batch=micro_batch, interleave=interleave)
    dtype = row.text("dtype", "bf16").lower()
    return TrainingRow(row, device, dtype, run.model, run.training, run.plan, measured_s)


def read_layer_row(row: Row) -> TrainingRow:
    """A row of one block, forward and backward, as a model of one block on one tensor-parallel group.

    Raises:
        InputError: a malformed value, by file, line and column; no model of it can be made.
    """
    measured_s = (row.number("forward_ms") + row.number("backward_ms")) * 1e3 * MICRO
    device, model, tensor = row.device(), read_model(row), row.integer("tp", 1)
    plan = ParallelPlan(
        tensor=tensor,
        micro_batch=row.integer("micro_batch", 1),
        recompute=_recompute(row),
        is_sequence_parallel=_is_sequence_parallel(row, tensor),
    )
    training = TrainingSpec(plan.micro_batch, row.integer("seq"), plan.micro_batch)
    return TrainingRow(row, device, row.text("dtype", "bf16").lower(), model, training, plan, measured_s)


def read_model(row: Row) -> ModelSpec:
    """The transformer of a row.

    With two MLP matrices a GPT (learned positions, biases, dropout, tied head), with three a Llama (rotary, RMS norm,
    no biases or dropout, head of its own). With ``experts`` every block has so many, each as wide as ``ffn`` says.

    Raises:
        InputError: a malformed value, or sizes that contradict each other.
    """
    is_gated = row.integer("mlp_matrices", 2) == 3
    hidden, heads, sequence = row.integer("hidden"), row.integer("heads"), row.integer("seq")
    if heads > hidden and not row.text("head_dim", ""):
        message = f"{heads} attention heads are more than the hidden size {hidden}; give head_dim if that is meant"
        raise InputError(message, key="heads")
    experts = row.integer("experts", 1)
    gated = ModelFamily.LLAMA if experts == 1 else ModelFamily.MIXTRAL
    return ModelSpec(
        name=row.text("model", "model"),
        family=gated if is_gated else ModelFamily.GPT2,
        num_layers=row.integer("layers") if "layers" in row.values else 1,
        hidden_size=hidden,
        num_heads=heads,
        num_kv_heads=row.integer("kv_heads", heads),
        head_size=row.integer("head_dim", hidden // heads),
        ffn_size=row.integer("ffn", 4 * hidden),
        vocab_size=row.integer("vocab", 51200),
        max_sequence_length=sequence,
        embedding_size=hidden,
        num_position_rows=0 if is_gated else sequence,
        norm=NormKind.RMS if is_gated else NormKind.LAYER,
        has_qkv_bias=not is_gated,
        has_attention_output_bias=not is_gated,
        has_mlp_bias=not is_gated,
        is_mlp_gated=is_gated,
        is_tied=not is_gated,
        has_hidden_dropout=not is_gated,
        has_attention_dropout=not is_gated,
        num_experts=experts,
        num_active_experts=row.integer("experts_per_token", 1),
        source=row.text("source", row.dataset),
    )


def _read_plan(row: Row, *, micro_batch: int | None, interleave: int | None) -> ParallelPlan:
    tensor, pipeline, context = row.integer("tp", 1), row.integer("pp", 1), row.integer("cp", 1)
    devices = row.integer("n_devices")
    if devices % (tensor * pipeline * context):
        message = f"{devices} devices are no whole number of groups of tp x pp x cp = {tensor * pipeline * context}"
        raise InputError(message, key="n_devices")
    data = devices // (tensor * pipeline * context)
    replica_batch = max(1, row.integer("global_batch") // data)
    whole = math.gcd(replica_batch, MOST_SEQUENCES) if replica_batch > MOST_SEQUENCES else replica_batch
    blank = micro_batch if micro_batch is not None else (whole if pipeline == 1 else 1)
    sharding = row.text("sharding", "none").lower()
    zero = zero_stage(sharding)
    shards = state_shards(sharding)
    return ParallelPlan(
        tensor=tensor,
        pipeline=pipeline,
        data=data,
        context=context,
        interleave=row.integer("interleave", 1 if interleave is None else interleave) if pipeline > 1 else 1,
        # TPU rows count per chip: less than one sequence each where a tensor group shares one.
        micro_batch=max(1, round(row.number("micro_batch", blank))),
        zero=zero,
        state_shards=shards if shards and data % shards == 0 else 0,
        recompute=_recompute(row),
        is_sequence_parallel=_is_sequence_parallel(row, tensor),
        expert=row.integer("ep", 1),
        expert_tensor=_expert_tensor(row, tensor, data * context),
    )


def expert_capacity(row: Row) -> float:
    """Tokens that each expert takes over the mean, and drops beyond; 0 where none are dropped.

    Runs that say no more than that they drop tokens take the mean, as Megatron-LM's recipes do.
    """
    stated = row.number("capacity", 0.0) or float(row.integer("token_drop", 0))
    return stated or float(drops_by_note(row))


def drops_by_note(row: Row) -> bool:
    """Whether the note alone says that experts drop tokens: no column does."""
    is_said = any(row.text(column, "") for column in ("capacity", "token_drop"))
    return not is_said and row.integer("experts", 1) > 1 and _DROPS.search(row.text("note", "")) is not None


def _expert_tensor(row: Row, tensor: int, replicas: int) -> int:
    """As stated; where the experts need a tensor group's devices one by one, they are folded over it."""
    return row.integer("etp", int(tensor > 1 and replicas % row.integer("ep", 1) > 0))


def _recompute(row: Row) -> Recompute:
    """Words of other software, as MaxText's, are none of these.

    Raises:
        InputError: the row says what selective recomputation is, and has another.
    """
    is_selective = bool(row.text(SELECTIVE, ""))
    word = row.text("recompute", Recompute.SELECTIVE if is_selective else Recompute.NONE).lower()
    found = Recompute(word) if word in list(Recompute) else Recompute.NONE
    if is_selective and found is not Recompute.SELECTIVE:
        message = f"says what selective recomputation runs again, and the row's recompute is {word}; leave one out"
        raise InputError(message, key=SELECTIVE)
    return found


def _is_sequence_parallel(row: Row, tensor: int) -> bool:
    return bool(row.integer("seq_parallel", 0)) and tensor > 1


def state_shards(sharding: str) -> int:
    """Replicas that share the state, of a ``sharding`` column in lower case (``fsdp 16``); 0 where it says none."""
    found = _STATE_SHARDS.search(sharding)
    return int(found.group(1)) if found and zero_stage(sharding) else 0


def zero_stage(sharding: str) -> int:
    """ZeRO stage of a ``sharding`` column, which is free text: fully sharded is 3, optimizer states are 1."""
    if any(word in sharding for word in ("zero3", "zero-3", "full", "fsdp", "hybrid_shard")):
        return 3
    if any(word in sharding for word in ("zero2", "zero-2", "grad_op")):
        return 2
    return 1 if any(word in sharding for word in ("zero1", "zero-1", "optimizer")) else 0
