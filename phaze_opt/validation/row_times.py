"""The measured time of a row, what simple formulas say of it, and rows that contradict themselves.

A time that no machine can have had is mostly in another unit than the column's. The limits are wide: they are to find a
slip of a thousand, not a slow program. All of the package's measurements lie within them.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from types import MappingProxyType

from phaze_opt.errors import InputError
from phaze_opt.hardware.device import ComputePath, Device, element_bytes, path_of
from phaze_opt.units import MICRO, MILLI, SECONDS, unit_meant
from phaze_opt.validation.matching_set import is_tpu
from phaze_opt.validation.measured_row import Row, shown
from phaze_opt.validation.packs import Roofline, pack_roofline
from phaze_opt.validation.training.row import state_shards, zero_stage

MEASURED = MappingProxyType(
    {
        "operators": ("latency_us", MICRO),
        "attention": ("latency_us", MICRO),
        "experts": ("latency_us", MICRO),
        "collectives": ("latency_us", MICRO),
        "expert exchanges": ("latency_us", MICRO),
        "training": ("iter_time_s", 1.0),
        "layer": ("forward_ms", MILLI),
        "whole model": ("e2e_ms", MILLI),
    }
)
"""Column of the measured time by kind of file, and its unit in seconds."""
AMOUNTS = MappingProxyType({"memory": "measured_gib"})
"""Column of what was measured by kind of file whose rows have no time."""


def measured_seconds(row: Row, kind: str) -> float:
    """Measured time of a row, s; forward and backward together for a layer; of memory GiB."""
    if kind in AMOUNTS:
        return row.number(AMOUNTS[kind])
    column, unit = MEASURED[kind]
    total = row.number(column)
    if kind == "layer":
        total += row.number("backward_ms", 0.0)
    return total * unit


def ideal_seconds(row: Row, kind: str) -> float:
    """Time of a row at the device's specification; nan where its device is not known.

    Operators: roofline of peak and memory rate. Training, layers, whole models: FLOPs of the model at the peak of all
    devices, so that a constant times it is a constant utilisation. Collectives: bytes that a ring sends. Exchanges: a
    copy of every token for each of its experts. Memory: 1, so that a constant times it is one amount for all.
    """
    if kind in AMOUNTS:
        return 1.0
    try:
        if kind in SENT_BYTES:
            return SENT_BYTES[kind](row)
        device = row.device()
        roofline = roofline_of(row, kind)
        return MODEL_SECONDS[kind](row, device) if roofline is None else max(roofline(row, device))
    except (InputError, KeyError):
        return math.nan


def ring_bytes(row: Row) -> float:
    """Bytes that each device sends in a ring all-reduce: 2 (n - 1) / n times the payload."""
    devices = row.number("n_devices")
    return 2.0 * (devices - 1.0) / devices * row.number("bytes")


def exchange_bytes(row: Row) -> float:
    """Bytes that each device sends if a copy of every token goes to each of its experts."""
    size = element_bytes(path_of(row.text("dtype", "bf16")))
    return row.number("tokens") * row.number("experts_per_token", 1.0) * row.number("hidden") * size


SENT_BYTES = MappingProxyType({"collectives": ring_bytes, "expert exchanges": exchange_bytes})
"""Bytes of a row by kind of file, where devices do nothing but send."""


def roofline_of(row: Row, kind: str) -> Roofline | None:
    """Roofline of a row: of the pack that predicts its set, else of its kind of file; None where neither has one."""
    return pack_roofline(row.dataset) or (roofline_parts if kind == "operators" else None)


def roofline_parts(row: Row, device: Device) -> tuple[float, float]:
    """Time of one operator at the peak and at the memory rate of the data sheet, s; without ``k`` nothing multiplies.

    A type that the device has no path for is multiplied as bf16 is.

    Raises:
        InputError: a malformed value, or the device lacks bf16 too.
    """
    path = path_of(row.text("dtype"))
    size, batch, m, n = element_bytes(path), row.number("b", 1.0), row.number("m"), row.number("n")
    k = row.number("k", 0.0)
    if k == 0.0:
        tensors = 3.0 if row.text("op").rpartition(":")[2].lower() in TWO_INPUTS else 2.0
        return 0.0, tensors * size * batch * m * n / device.hbm_bandwidth_bytes_per_s
    peak = device.peak_flops_per_s.get(path, 0.0) or device.peak(ComputePath.BF16)
    moved = size * batch * (m * k + m * n + k * n)
    return 2.0 * batch * m * n * k / peak, moved / device.hbm_bandwidth_bytes_per_s


TWO_INPUTS = ("add", "silu")
"""Operators that read two tensors and write one; others read and write one."""


def _training_seconds(row: Row, device: Device, *, scores_share: float = 1.0) -> float:
    """FLOPs of forward and backward of all tokens at the peak of all devices; of a share of attention's scores."""
    tokens = row.number("global_batch") * row.number("seq")
    flops = 3.0 * tokens * _token_flops(row, row.number("layers"), scores_share)
    return flops / (row.number("n_devices") * device.peak(path_of(row.text("dtype", "bf16"))))


def _layer_seconds(row: Row, device: Device, *, scores_share: float = 1.0) -> float:
    """FLOPs of forward and backward of one layer's micro-batch, without the head, at the peak of all devices."""
    tokens = row.number("micro_batch") * row.number("seq")
    flops = 3.0 * tokens * _layer_token_flops(row, scores_share)
    return flops / (row.number("tp") * device.peak(path_of(row.text("dtype", "fp16"))))


def _whole_model_seconds(row: Row, device: Device, *, scores_share: float = 1.0) -> float:
    """FLOPs of forward, and of backward in training, at the peak of all devices."""
    passes = 3.0 if row.text("mode") == "train" else 1.0
    tokens = row.number("batch") * row.number("seq")
    peak = row.number("n_devices", 1.0) * device.peak(path_of(row.text("dtype", "fp32")))
    return passes * tokens * _token_flops(row, row.number("layers"), scores_share) / peak


MODEL_SECONDS = MappingProxyType(
    {"training": _training_seconds, "layer": _layer_seconds, "whole model": _whole_model_seconds}
)
"""FLOPs of a row at the peak of all its devices by kind of file, s; ``scores_share`` counts a share of attention."""


def _token_flops(row: Row, layers: float, scores_share: float) -> float:
    """FLOPs of the forward pass for one token: layers and head."""
    return layers * _layer_token_flops(row, scores_share) + 2.0 * row.number("hidden") * row.number("vocab", 0.0)


def _layer_token_flops(row: Row, scores_share: float) -> float:
    """FLOPs of one layer's forward pass for one token; a share of 1 counts attention over the whole sequence."""
    hidden, heads = row.number("hidden"), row.number("heads")
    head_size = row.number("head_dim", hidden / heads)
    projections = hidden * head_size * (2.0 * heads + 2.0 * row.number("kv_heads", heads))
    mlp = row.number("mlp_matrices", 2.0) * hidden * row.number("ffn", 4.0 * hidden)
    return 2.0 * (projections + mlp) + 4.0 * scores_share * row.number("seq") * heads * head_size


AHEAD_OF_PEAK = 2.0
"""A time this often below that of its multiplications at the peak, or of a ring at memory's rate, is not one."""
AHEAD_OF_MEMORY = 20.0
"""The same against memory's rate: caches are faster than memory, by less than this."""
ODD_ROWS = 100
"""Rows of which a single one may be beyond the limits."""
LEAST_S = 1e-7
"""No launch is as short."""
MOST_IDEALS = 100.0
"""A time this often above what the FLOPs take at the peak, beside what is added for waiting, is not one."""
LAYER_S, LAUNCH_S, COLLECTIVE_S = 1e-2, 1e-2, 1.0
"""What is added for waiting: for each layer of each micro-batch, for an operator or a block, for a collective."""
SLOW_LINK_BYTES_PER_S = 1e8
"""Rate of the slowest network that is thought of."""
_NAMES = MappingProxyType({"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"})
RECOMPUTE_WORDS = ("full", "selective", "none")
MAXTEXT, MAXTEXT_WORDS = "train_maxtext_tpu", ("full", "none", "custom", "minimal")
"""The set whose rows are in MaxText's words of recomputation, and those words."""
UNSHARDED_WORDS = ("none", "no", "ddp", "replicated")
"""What says that replicas share nothing; other words of sharding must say a ZeRO stage."""


def check_training_rows(rows: Sequence[Row]) -> None:
    """Refuse what a prediction would have to pass over: degrees, batches and words that cannot be meant.

    Rows of TPUs count batches per chip and replicas per slice, so their degrees tell less.

    Raises:
        InputError: the first contradiction, by file, line and column.
    """
    for row in rows:
        for column, rule in _contradictions(row):
            message = f"column '{column}': {rule}"
            raise InputError(message, source=row.source, line=row.line)


def _contradictions(row: Row) -> Iterator[tuple[str, str]]:
    """Column and broken rule."""
    word, words = row.text("recompute", "none"), MAXTEXT_WORDS if row.dataset == MAXTEXT else RECOMPUTE_WORDS
    if word.lower() not in words:
        yield "recompute", f"value '{shown(word)}' must be {', '.join(words[:-1])} or {words[-1]}"
    if row.text("float8", "") and row.text("dtype", "bf16").lower() != "fp8":
        yield "float8", "is of 8-bit matmuls; give dtype fp8, or leave float8 blank"
    num_shared, heads = row.integer("kv_heads", 0), row.integer("heads")
    if not row.text("mlp_matrices", "") and 0 < num_shared < heads:
        rule = (
            f"is blank beside {num_shared} kv_heads of {heads} heads; state 3 (a gated MLP, as Llama's) or 2 (a GPT's)"
        )
        yield "mlp_matrices", rule
    if is_tpu(row.text("hardware"), row.find_device()):
        return
    devices, batch = row.integer("n_devices"), row.integer("global_batch")
    sharding = row.text("sharding", "none")
    if not zero_stage(sharding.lower()) and sharding.lower() not in UNSHARDED_WORDS:
        yield "sharding", f"value '{shown(sharding)}' says no ZeRO stage; give zero1, zero2, zero3, fsdp or none"
    group = row.integer("tp", 1) * row.integer("pp", 1) * row.integer("cp", 1)
    data, micro_batch = row.integer("dp", 0), row.number("micro_batch", 0.0)
    if data and group * data != devices:
        yield "dp", f"tp x pp x cp x dp = {group * data:,} are not the {devices:,} devices of the row; leave dp blank"
    replicas = max(1, devices // group)
    if batch < replicas:
        yield "global_batch", f"{batch:,} samples leave some of {replicas:,} replicas without any; more are needed"
    shards = state_shards(sharding.lower())
    if shards and replicas % shards:
        yield "sharding", f"{replicas:,} replicas are no whole number of groups of {shards:,} that share the state"
    if micro_batch * replicas > batch:
        rule = f"{micro_batch:g} samples on each of {replicas:,} replicas are more than the global batch of {batch:,}"
        yield "micro_batch", rule


def check_times(rows: Sequence[Row], kind: str) -> None:
    """Refuse a file by its first row whose time is beyond all limits; rows of unknown machines are not judged.

    A unit that was mistaken shows in every row. One row in more than `ODD_ROWS` is a measurement gone wrong, of which a
    mean over the others says enough: it is scored as it stands.

    Raises:
        InputError: names file, line and column, and the unit in which the time would be plausible.
    """
    if kind not in MEASURED:
        return
    faults = [(row, rule) for row in rows if row.text(MEASURED[kind][0], "") and (rule := _fault(row, kind))]
    if len(faults) * ODD_ROWS > len(rows):
        row, rule = faults[0]
        message = f"column '{MEASURED[kind][0]}': value '{row.text(MEASURED[kind][0])[:40]}' {rule}"
        raise InputError(message, source=row.source, line=row.line)


def time_limits_s(row: Row, kind: str) -> tuple[float, float]:
    """Shortest and longest time that a row may have, s.

    Raises:
        InputError: its machine or type is unknown.
    """
    device = row.device()
    if kind in MODEL_SECONDS:
        # Attention may skip scores, so that the least is without them and the most with all.
        least = MODEL_SECONDS[kind](row, device, scores_share=0.0) / AHEAD_OF_PEAK
        most = MOST_IDEALS * MODEL_SECONDS[kind](row, device) + _waiting_s(row, kind)
    elif kind in SENT_BYTES:
        sent = SENT_BYTES[kind](row)
        least = sent / (AHEAD_OF_PEAK * device.hbm_bandwidth_bytes_per_s)
        most = sent / SLOW_LINK_BYTES_PER_S + COLLECTIVE_S
    else:
        roofline = roofline_of(row, kind)
        if roofline is None:
            return LEAST_S, math.inf
        compute_s, memory_s = roofline(row, device)
        least = max(compute_s / AHEAD_OF_PEAK, memory_s / AHEAD_OF_MEMORY)
        # A window may not be skipped, so that the most is with all keys.
        whole = replace(row, values={**row.values, "window": ""}) if row.text("window", "") else row
        most = MOST_IDEALS * max(roofline(whole, device)) + LAUNCH_S
    return max(least, LEAST_S), most


def _waiting_s(row: Row, kind: str) -> float:
    """What a layer, a model or a training step may wait for, beside its multiplications."""
    if kind == "layer":
        return LAUNCH_S
    layers = row.number("layers")
    if kind == "whole model":
        return layers * LAYER_S + LAUNCH_S
    group = row.number("tp", 1.0) * row.number("pp", 1.0) * row.number("cp", 1.0)
    sequences = max(1.0, row.number("global_batch") * group / row.number("n_devices"))
    waiting_s = layers * math.ceil(sequences / max(1.0, row.number("micro_batch", 1.0))) * LAYER_S
    if row.number("n_devices") == 1:
        return waiting_s
    hidden = row.number("hidden")
    per_layer = 4.0 * hidden + row.number("mlp_matrices", 2.0) * row.number("ffn", 4.0 * hidden)
    return waiting_s + 4.0 * layers * hidden * per_layer / SLOW_LINK_BYTES_PER_S


def _fault(row: Row, kind: str) -> str:
    """What is wrong with a row's time; empty if nothing is, or nothing can be said."""
    try:
        least, most = time_limits_s(row, kind)
    except (InputError, ZeroDivisionError):
        return ""
    column, _ = MEASURED[kind]
    measured_s = measured_seconds(row, kind)
    if least <= measured_s <= most:
        return ""
    unit = column.rpartition("_")[2]
    unit_s = SECONDS[unit]
    is_short = measured_s < least
    limit = (least if is_short else most) / unit_s
    bound = f"{float(f'{limit:.2g}'):,.8g} {unit}"
    than = f"shorter than {bound}, which" if is_short else f"longer than {bound}, which no"
    who = "nothing on this machine can beat" if is_short else "work of this size takes, however slow the program"
    meant = unit_meant(measured_s / unit_s, unit, least / unit_s, most / unit_s)
    return f"is {than} {who}; {_advice(unit, meant)}"


def _advice(unit: str, meant: tuple[str, float] | None) -> str:
    """What to do about a time, by the unit of another size in which it would be plausible."""
    if meant is None:
        return f"check that it is in {_NAMES[unit]}, and the machine, the type and the sizes of the row"
    other, factor = meant
    remedy = f"multiply by {factor:,.0f}" if factor > 1 else f"divide by {1 / factor:,.0f}"
    return f"it looks like {_NAMES[other]}: give {_NAMES[unit]} ({remedy})"
