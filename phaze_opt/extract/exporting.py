"""One export, or one run, of a training step at given sizes, on tensors that hold no data.

Operations that stand for what torch has none for, and the modules and functions that are recorded as them.

They have shapes, and no meaning that anyone runs. Attention is what transformers calls in place of its own kernels. A
Mamba mixer is one operation, as its code is a loop over the sequence. The experts of Llama 4 run on the tokens that
they are sent: its code runs every expert on every token, most of them on zeros.
"""

import logging
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from phaze_opt.errors import InputError
from phaze_opt.extract.fx_recording import OWN, record_program
from phaze_opt.extract.recorded_graph import RecordedGraph, simplify
from phaze_opt.extract.training_step import TrainingStep
from phaze_opt.extract.versions import TORCH

_SCHEMAS = {
    "attention": "(Tensor q, Tensor k, Tensor v, Tensor? bias, Tensor? sinks, *, bool is_causal, float scale, "
    "float? softcap, int? window, float dropout_p) -> Tensor",
    "mamba_mixer": "(Tensor x, Tensor in_proj, Tensor conv_weight, Tensor? conv_bias, Tensor x_proj, Tensor dt_proj, "
    "Tensor dt_bias, Tensor a_log, Tensor d, Tensor out_proj) -> Tensor",
    "selective_scan": "(Tensor x, Tensor dt, Tensor a, Tensor b, Tensor c, Tensor? d, Tensor? z, Tensor? dt_bias) "
    "-> Tensor",
}


def own_operations() -> Any:
    """The namespace ``torch.ops.phaze``, in which the operations are defined once a process."""
    torch = TORCH.load()
    shapes = {
        "attention": lambda q, k, v, *_, **__: q.new_empty((*q.shape[:-1], v.shape[-1])),
        "mamba_mixer": lambda x, *_: torch.empty_like(x),
        "selective_scan": lambda x, *_: torch.empty_like(x),
    }
    space = getattr(torch.ops, OWN)
    for name, schema in _SCHEMAS.items():
        if hasattr(space, name):
            continue
        torch.library.define(f"{OWN}::{name}", schema)
        torch.library.register_fake(f"{OWN}::{name}", shapes[name])
    return space


ATTENTION_KERNEL = "phaze"
"""Name under which transformers knows our attention."""
_LOCAL_SIZE = "phaze_local_size"
"""Attribute of a mask that says nothing but causality and the size of a window or chunk: that size."""


def register_attention() -> None:
    """Tell transformers of it; a model asks for it by name."""
    from transformers import AttentionInterface, AttentionMaskInterface

    AttentionInterface.register(ATTENTION_KERNEL, _attend)
    AttentionMaskInterface.register(ATTENTION_KERNEL, _mask)


def _mask(*arguments: Any, attention_mask: Any = None, local_size: int | None = None, **options: Any) -> Any:
    """No mask where causality says it all or nothing is masked; else the one that transformers makes."""
    if attention_mask is None and local_size is None:
        return None
    from transformers.masking_utils import sdpa_mask

    options["allow_is_causal_skip"] = False
    mask = sdpa_mask(*arguments, attention_mask=attention_mask, local_size=local_size, **options)
    if attention_mask is None and mask is not None:
        setattr(mask, _LOCAL_SIZE, local_size)
    return mask


def _attend(  # noqa: PLR0917 - transformers gives them by position
    module: Any,
    query: Any,
    key: Any,
    value: Any,
    attention_mask: Any,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    position_bias: Any = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: Any = None,
    **_: Any,
) -> tuple[Any, None]:
    """Attention over heads, without repeating those of keys and values; a window takes the place of its mask."""
    torch = TORCH.load()
    is_causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    window = getattr(attention_mask, _LOCAL_SIZE, None) if sliding_window is None else sliding_window
    mask = None if window is not None else attention_mask
    bias = position_bias if mask is None else mask if position_bias is None else position_bias + mask
    is_causal = bool(is_causal) and query.shape[2] > 1 and mask is None
    special = {"softcap": softcap, "window": window}
    if (is_causal and bias is not None) or s_aux is not None or any(each is not None for each in special.values()):
        options = {"is_causal": is_causal, "scale": scale, "dropout_p": dropout, **special}
        result = own_operations().attention(query, key, value, bias, s_aux, **options)
    else:
        options = {"attn_mask": bias, "dropout_p": dropout, "is_causal": is_causal, "scale": scale}
        shares = query.shape[1] != key.shape[1]
        attend = torch.nn.functional.scaled_dot_product_attention
        result = attend(query, key, value, enable_gqa=shares, **options)
    return result.transpose(1, 2).contiguous(), None


Forward = Callable[..., Any]


def _mamba_mixer(module: Any, hidden_states: Any, *_: Any, **__: Any) -> Any:
    """A Mamba-1 mixer without biases of its projections, which no published one has."""
    return own_operations().mamba_mixer(
        hidden_states,
        module.in_proj.weight,
        module.conv1d.weight,
        module.conv1d.bias,
        module.x_proj.weight,
        module.dt_proj.weight,
        module.dt_proj.bias,
        module.A_log,
        module.D,
        module.out_proj.weight,
    )


def _llama4_experts(module: Any, hidden_states: Any, *_: Any, **__: Any) -> tuple[Any, Any]:
    """The shared expert, and the chosen ones on rows sorted by expert, in operations of transformers' other experts.

    The scores weigh what experts give instead of what they take, which is as much work.
    """
    import transformers.integrations.moe  # noqa: F401 - defines the operation

    torch = TORCH.load()
    product = torch.ops.transformers.grouped_mm_fallback
    rows = hidden_states.reshape(-1, module.hidden_dim)
    logits = torch.nn.functional.linear(rows, module.router.weight)
    scores, chosen = torch.topk(logits, module.top_k, dim=1)
    experts, order = torch.sort(chosen.reshape(-1))
    weights = torch.sigmoid(scores).reshape(-1)[order]
    counts = torch.histc(experts.float(), bins=module.num_experts, min=0, max=module.num_experts - 1)
    ends = torch.cumsum(counts, dim=0, dtype=torch.int32)
    gate, up = product(rows[order // module.top_k], module.experts.gate_up_proj, offs=ends).chunk(2, dim=-1)
    given = product(module.experts.act_fn(gate) * up, module.experts.down_proj, offs=ends)
    back = (given * weights.unsqueeze(-1))[torch.argsort(order)]
    routed = back.view(-1, module.top_k, module.hidden_dim).sum(dim=1)
    return module.shared_expert(rows) + routed, logits


def _selective_scan(  # noqa: PLR0917 - callers give them by position
    x: Any,
    dt: Any,
    a: Any,
    b: Any,
    c: Any,
    D: Any = None,
    z: Any = None,
    delta_bias: Any = None,
    **_: Any,  # noqa: N803
) -> Any:
    """Mamba's scan in place of a loop over its steps; the state behind the last one is nobody's in training."""
    return own_operations().selective_scan(x, dt, a, b, c, D, z, delta_bias)


LEAVES: Mapping[str, Forward] = {
    "transformers.models.mamba.modeling_mamba.MambaMixer": _mamba_mixer,
    "transformers.models.llama4.modeling_llama4.Llama4TextMoe": _llama4_experts,
}
"""What runs in place of a module, by its class."""
LEAF_FUNCTIONS: Mapping[str, Callable[..., Any]] = {"mamba_selective_scan": _selective_scan}
"""What runs in place of a function of a model's code, by its name in whatever family."""


@contextmanager
def leaves_for(module: Any) -> Iterator[None]:
    """Let the leaves of a model, and of its code, run as one operation while the block lasts."""
    replaced = []
    for each in module.modules():
        forward = LEAVES.get(f"{type(each).__module__}.{type(each).__qualname__}")
        if forward is not None:
            each.forward = forward.__get__(each)
            replaced.append(each)
    homes = [sys.modules[name] for name in {type(each).__module__ for each in module.modules()}]
    functions = [(home, name, vars(home)[name]) for home in homes for name in LEAF_FUNCTIONS if name in vars(home)]
    for home, name, _ in functions:
        setattr(home, name, LEAF_FUNCTIONS[name])
    try:
        yield
    finally:
        for each in replaced:
            del each.forward
        for home, name, function in functions:
            setattr(home, name, function)


_MAX_REASON = 400


def export_step(step: TrainingStep, values: Mapping[str, int]) -> RecordedGraph:
    """The graph of a step, without what costs nothing.

    Args:
        step: the model with its loss.
        values: of the symbols of its inputs.

    Raises:
        InputError: the framework cannot export the model; says what it said.
    """
    torch = TORCH.load()
    with quiet(), leaves_for(step.module):
        export = partial(torch.export.export, step.module, _inputs(step, values), strict=False)
        try:
            program, questions = _answered(export)
        except Exception as error:  # noqa: BLE001 - the model's code may raise anything
            raise _fault(step, values, error) from error
    graph = record_program(program, canonical_names(step))
    return simplify(replace(graph, num_questions=questions))


def run_step(step: TrainingStep, values: Mapping[str, int]) -> None:
    """Run the forward pass of a step in Python; whatever its code raises comes out.

    Its code is told that it is exported, so that it looks at no values and takes the paths that an export takes.

    Args:
        step: the model with its loss.
        values: of the symbols of its inputs.
    """
    torch = TORCH.load()
    with quiet(), leaves_for(step.module), torch.no_grad(), _as_exported(torch.compiler):
        _answered(partial(step.module, *_inputs(step, values)))


def _answered(run: Callable[[], Any]) -> tuple[Any, int]:
    """What a run of a model's code gives, and how often it asked for the truth of a tensor, which holds no data.

    Each time the answer is no: no element is infinite, none is masked, none has global attention.
    """
    with _saying_no() as questions:
        return run(), len(questions)


@contextmanager
def _saying_no() -> Iterator[list[str]]:
    """Let tensors without data be false while the block lasts; gives the questions that were asked."""
    torch = TORCH.load()
    from torch.overrides import TorchFunctionMode

    questions: list[str] = []

    class _No(TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            name = getattr(func, "__name__", "")
            is_asked = name == "__bool__" or (name == "item" and args[0].dtype is torch.bool)
            if is_asked and args[0].device.type == "meta" and getattr(args[0], "constant", None) is None:
                questions.append(name)
                return False
            return func(*args, **(kwargs or {}))

    with _No():
        yield questions


@contextmanager
def _as_exported(compiler: Any) -> Iterator[None]:
    """Let torch say, while the block lasts, that code is exported."""
    flags = ("_is_compiling_flag", "_is_exporting_flag")
    before = {flag: getattr(compiler, flag, False) for flag in flags}
    try:
        for flag in flags:
            setattr(compiler, flag, True)
        yield
    finally:
        for flag, value in before.items():
            setattr(compiler, flag, value)


def _inputs(step: TrainingStep, values: Mapping[str, int]) -> tuple[Any, ...]:
    torch = TORCH.load()
    kinds = [getattr(torch, each.dtype) for each in step.inputs]
    sizes = [each.sizes(values) for each in step.inputs]
    return tuple(torch.empty(size, dtype=kind, device="meta") for size, kind in zip(sizes, kinds, strict=True))


def canonical_names(step: TrainingStep) -> dict[str, str]:
    """The first name of every parameter, by each of its names."""
    first: dict[int, str] = {}
    return {
        name: first.setdefault(id(parameter), name)
        for name, parameter in step.module.named_parameters(remove_duplicate=False)
    }


def count_parameters(step: TrainingStep) -> int:
    """Elements of all parameters of a model, tied ones once."""
    return sum(parameter.numel() for parameter in step.module.parameters())


def _fault(step: TrainingStep, values: Mapping[str, int], error: Exception) -> InputError:
    sizes = ", ".join(f"{symbol} = {value}" for symbol, value in values.items())
    said = " ".join(str(error).split())[:_MAX_REASON] or type(error).__name__
    message = f"{step.name} cannot be exported at {sizes}: {type(error).__name__}: {said}"
    taken = "give inputs that it takes"
    if not any(each.name for each in step.inputs):
        shapes = " and ".join(str(list(each.sizes(values))) for each in step.inputs)
        taken = f"give --input as it takes them, the micro-batch first (it was given {shapes})"
    return InputError(f"{message}; {taken}, or change the model so that torch.export takes it")


@contextmanager
def quiet() -> Iterator[None]:
    """Keep what frameworks warn of and log to themselves."""
    level = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)
