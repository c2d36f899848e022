"""Operations that stand for what torch has none for: they have shapes, and no meaning that anyone runs."""

from typing import Any

from phaze_opt.extract.fx_recording import OWN
from phaze_opt.extract.versions import TORCH

_SCHEMAS = {
    "attention": "(Tensor q, Tensor k, Tensor v, Tensor? bias, Tensor? sinks, *, bool is_causal, float scale, "
    "float? softcap, int? window, float dropout_p) -> Tensor",
    "mamba_mixer": "(Tensor x, Tensor in_proj, Tensor conv_weight, Tensor? conv_bias, Tensor x_proj, Tensor dt_proj, "
    "Tensor dt_bias, Tensor a_log, Tensor d, Tensor out_proj) -> Tensor",
}


def own_operations() -> Any:
    """The namespace ``torch.ops.phaze``, in which the operations are defined once a process."""
    torch = TORCH.load()
    shapes = {
        "attention": lambda q, k, v, *_, **__: q.new_empty((*q.shape[:-1], v.shape[-1])),
        "mamba_mixer": lambda x, *_: torch.empty_like(x),
    }
    space = getattr(torch.ops, OWN)
    for name, schema in _SCHEMAS.items():
        if hasattr(space, name):
            continue
        torch.library.define(f"{OWN}::{name}", schema)
        torch.library.register_fake(f"{OWN}::{name}", shapes[name])
    return space
