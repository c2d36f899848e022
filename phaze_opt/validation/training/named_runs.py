"""Runs that name their model, and state their plan as a command of `evaluate` or in a word, as rows of training.

A table of such runs has no columns of sizes: they are those of a model of the zoo, or of a config beside the table.
"""

import re
import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from phaze_opt.cost.compiled_step import compile_step
from phaze_opt.cost.stacks import ASSUMED_SOFTWARE, find_software, load_stack
from phaze_opt.errors import InputError
from phaze_opt.hardware.fitted import load_fitted
from phaze_opt.plan.plan_search import step_memory
from phaze_opt.validation.measured_row import Row
from phaze_opt.validation.schema import OF_RUNS_IN_WORDS
from phaze_opt.validation.training.entries import read_row
from phaze_opt.validation.training.row import REFUSAL
from phaze_opt.workload.config import load_model
from phaze_opt.workload.model import transformer_of
from phaze_opt.workload.plan import Recompute
from phaze_opt.workload.run_options import RUN_OPTIONS, SELECTIVE
from phaze_opt.workload.transformer import TransformerSpec

COLUMN_OF_FLAG: Mapping[str, str] = MappingProxyType(
    {
        "devices": "n_devices",
        "global-batch": "global_batch",
        "sequence-length": "seq",
        "tensor-parallel": "tp",
        "pipeline": "pp",
        "context-parallel": "cp",
        "expert-parallel": "ep",
        "expert-tensor-parallel": "etp",
        "data": "dp",
        "interleave": "interleave",
        "micro-batch": "micro_batch",
        "zero": "sharding",
        "recompute": "recompute",
        "software": "software",
        "dtype": "dtype",
        "expert-capacity": "capacity",
        "expert-imbalance": "imbalance",
        "power-limit-w": "power_limit_w",
        **{column.replace("_", "-"): column for column in RUN_OPTIONS},
    }
)
"""Column of training rows by the option of `evaluate` that says the same."""
OF_ANSWERS = ("json", "top", "range", "no-range", "arch", "model")
"""Options that say nothing of a plan; machine and model have columns of their own."""
OF_RUNS = (*OF_RUNS_IN_WORDS, "capacity", "token_drop", "imbalance", "power_limit_w", "micro_batch")
"""Columns that may stand beside a command."""
_RECOMPUTE = MappingProxyType({"never": "none", "always": "full", "auto": ""})
_COLUMN_OF_WORD = MappingProxyType({"fsdp": "sharding", "tp": "tp", "pp": "pp", "cp": "cp", "ep": "ep", "dp": "dp"})
_WORD = re.compile(r"([a-z]+)(\d+)")


def as_training_row(fields: Mapping[str, str], folder: Path) -> dict[str, str]:
    """The columns of a training row that a run stands for; what cannot be said in them as its refusal.

    Args:
        fields: of the row, by column.
        folder: of the table.
    """
    own = {
        name: fields[name]
        for name in ("id", "hardware", "n_devices", "model", "dtype", "source", "note", "verified")
        if fields.get(name)
    }
    try:
        plan = _of_command(fields["command"]) if fields.get("command") else _of_word(fields)
        sizes = _sizes(_model_of(fields, folder))
        row = {**sizes, **plan, **_beside(fields, plan), **own}
        return {**row, "iter_time_s": _step_s(fields, row)}
    except InputError as error:
        return {**own, REFUSAL: str(error)}


def _of_command(text: str) -> dict[str, str]:
    """What a command of `evaluate` says of a plan, by column.

    Raises:
        InputError: it is no such command, or says what no column does.
    """
    found: dict[str, str] = {}
    for name, value in _options(text):
        if name in OF_ANSWERS:
            continue
        if name not in COLUMN_OF_FLAG or "," in value:
            message = f"the option --{name[:40]} {value[:20]} of its command is no column of training rows"
            raise InputError(message, key="command")
        found[COLUMN_OF_FLAG[name]] = value
    if "sharding" in found:
        found["sharding"] = f"zero{found['sharding']}" if found["sharding"] != "0" else "none"
    if "recompute" in found:
        found["recompute"] = _RECOMPUTE.get(found["recompute"], found["recompute"])
    return {name: value for name, value in found.items() if value}


def _beside(fields: Mapping[str, str], plan: Mapping[str, str]) -> dict[str, str]:
    """What columns say of a run beside its command.

    Raises:
        InputError: the command says otherwise.
    """
    found = {name: fields[name] for name in OF_RUNS if fields.get(name)}
    for name, value in found.items():
        if plan.get(name, value).lower() != value.lower():
            message = f"is {value[:20]} in its column and {plan[name][:20]} in the row's command; give one of them"
            raise InputError(message, key=name)
    return found


def _options(text: str) -> list[tuple[str, str]]:
    """Options of a command with their values; empty where one has none.

    Raises:
        InputError: it is no command of `evaluate`.
    """
    try:
        words = shlex.split(text)
    except ValueError as error:
        message = f"its command cannot be read ({error})"
        raise InputError(message, key="command") from None
    words = words[words.index("evaluate") + 1 :] if "evaluate" in words else []
    if not words:
        message = f"its command '{text[:40]}' is none of evaluate; give the options that price it"
        raise InputError(message, key="command")
    found: list[tuple[str, str]] = []
    for word in words:
        if word.startswith("--"):
            name, _, value = word[2:].partition("=")
            found.append((name, value))
        elif found:
            found[-1] = found[-1][0], word
    return found


def _of_word(fields: Mapping[str, str]) -> dict[str, str]:
    """What a word such as ``fsdp8`` or ``tp4pp2`` says of a plan, with batch and length.

    Raises:
        InputError: the word, batch or length is none.
    """
    word, found = fields.get("plan", "").lower(), dict[str, str]()
    for name, degree in _WORD.findall(word):
        if name not in _COLUMN_OF_WORD:
            message = f"its plan '{word[:40]}' is no row of fsdp8, dp8, tp4, pp2, cp2 or ep8"
            raise InputError(message, key="plan")
        found[_COLUMN_OF_WORD[name]] = f"fsdp {degree}" if name == "fsdp" else degree
    for name in ("seq", "per_device_batch"):
        if not fields.get(name):
            message = "is missing, and no command says it; give it"
            raise InputError(message, key=name)
    samples = int(float(fields["per_device_batch"]) * int(fields["n_devices"]))
    if "ep" in found:
        found.setdefault("sharding", "fsdp")
    return {**found, "seq": fields["seq"], "global_batch": str(samples)}


def _model_of(fields: Mapping[str, str], folder: Path) -> TransformerSpec:
    """The model of a row: as its command has it, a config beside the table, or one of the zoo.

    Raises:
        InputError: there is none, or it is no transformer.
    """
    name = fields.get("model", "")
    given = dict(_options(fields["command"])).get("model", "") if fields.get("command") else ""
    places = [folder / given] if given.endswith(".json") else [folder / f"{name}.json", folder / "cfg" / f"{name}.json"]
    place = next((each for each in places if each.is_file()), None)
    try:
        model = load_model(str(place) if place else given or name)
    except InputError as error:
        message = f"{error}; a table has its models' configs beside it, as cfg/{name[:40]}.json"
        raise InputError(message, key="model") from None
    found = transformer_of(model)
    if found is None:
        message = f"{name[:40]} is no transformer whose sizes columns of training rows say"
        raise InputError(message, key="model")
    return found


def _sizes(model: TransformerSpec) -> dict[str, str]:
    """Columns of a model of equal blocks.

    Raises:
        InputError: its blocks differ, or have what no column says.
    """
    kinds = model.kinds
    block = kinds[0]
    experts = block.experts
    mlps = block.dense_mlps if experts is None else (experts.expert,)
    is_plain = len(kinds) == 1 and model.encoder is None and block.cross_attention is None and len(mlps) == 1
    if not is_plain or block.attention.latent or (experts and experts.shared) or model.head.tokens is None:
        message = f"{model.name} has blocks that differ, or parts that columns of training rows do not say"
        raise InputError(message, key="model")
    attention, mlp = block.attention, mlps[0]
    sizes = {
        "layers": model.num_layers,
        "hidden": model.hidden_size,
        "heads": attention.num_heads,
        "kv_heads": attention.num_kv_heads,
        "head_dim": attention.head_size,
        "ffn": mlp.width,
        "mlp_matrices": 3 if mlp.is_gated else 2,
        "vocab": model.head.tokens.num_outputs,
    }
    if experts is not None:
        sizes |= {"experts": experts.num_experts, "experts_per_token": experts.num_active}
    return {name: str(value) for name, value in sizes.items()}


def _step_s(fields: Mapping[str, str], row: Mapping[str, str]) -> str:
    """The time of a step, s: as stated, or what tokens a second come to.

    Raises:
        InputError: nothing says it.
    """
    if fields.get("step_s"):
        return fields["step_s"]
    devices = int(row["n_devices"])
    rates = {"tokens_per_s": 1, "measured_tokens_per_s_per_dev": devices, "tokens_per_s_per_dev": devices}
    for name, times in rates.items():
        if fields.get(name):
            tokens = int(row["global_batch"]) * int(row["seq"])
            return repr(tokens / (float(fields[name]) * times))
    message = f"no column says what was measured; give step_s, {', '.join(rates)}"
    raise InputError(message, key="step_s")


def with_recompute(row: Row) -> dict[str, str]:
    """The columns of a row with what it recomputes: as little as lets it fit its machine's memory.

    So `evaluate` has it where nothing is said: what more is recomputed takes time alone.
    """
    values = dict(row.values)
    device, software = row.find_device(), find_software(row.text("software", ""))
    if values.get("recompute") or REFUSAL in values or device is None:
        return values
    read = read_row(row)
    stack = load_stack(software or ASSUMED_SOFTWARE[device.style], load_fitted())
    least = Recompute.FULL
    for kind in (Recompute.NONE, Recompute.SELECTIVE):
        step = compile_step(read.model, read.training, replace(read.plan, recompute=kind), stack=stack)
        if device.holds(step_memory(step).range_bytes[0]):
            least = kind
            break
    if least is not Recompute.SELECTIVE:
        # What selective recomputation is says nothing of a run that has none.
        values.pop(SELECTIVE, None)
    return {**values, "recompute": least.value}
