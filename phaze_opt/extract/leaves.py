"""Modules that are recorded as other operations than those of their code.

A Mamba mixer is one operation, as its code is a loop over the sequence. The experts of Llama 4 run on the tokens that
they are sent: its code runs every expert on every token, most of them on zeros.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from phaze_opt.extract.own_operations import own_operations
from phaze_opt.extract.versions import TORCH

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


LEAVES: Mapping[str, Forward] = {
    "transformers.models.mamba.modeling_mamba.MambaMixer": _mamba_mixer,
    "transformers.models.llama4.modeling_llama4.Llama4TextMoe": _llama4_experts,
}
"""What runs in place of a module, by its class."""


@contextmanager
def leaves_for(module: Any) -> Iterator[None]:
    """Let the leaves of a model run as one operation while the block lasts."""
    replaced = []
    for each in module.modules():
        forward = LEAVES.get(f"{type(each).__module__}.{type(each).__qualname__}")
        if forward is not None:
            each.forward = forward.__get__(each)
            replaced.append(each)
    try:
        yield
    finally:
        for each in replaced:
            del each.forward
