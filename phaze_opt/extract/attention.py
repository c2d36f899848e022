"""Attention as one operation: what transformers calls for it in place of its own kernels."""

from typing import Any

from phaze_opt.extract.own_operations import own_operations
from phaze_opt.extract.versions import TORCH

NAME = "phaze"
"""Under which transformers knows it."""
_LOCAL_SIZE = "phaze_local_size"
"""Attribute of a mask that says nothing but causality and the size of a window or chunk: that size."""


def register_attention() -> None:
    """Tell transformers of it; a model asks for it by name."""
    from transformers import AttentionInterface, AttentionMaskInterface

    AttentionInterface.register(NAME, _attend)
    AttentionMaskInterface.register(NAME, _mask)


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
