"""The attention core: what selective recomputation runs again (Korthikanti et al. 2022, section 5).

Scores, softmax, its dropout and the context product, or fused attention as a whole. Query, key, value and the context
stay in memory, so that only tensors inside the core are dropped. The names are those that `graph.attention` gives.
"""

from __future__ import annotations

SCORES, SOFTMAX, SOFTMAX_DROPOUT, CONTEXT = "scores", "softmax", "softmax_dropout", "context"
FUSED_ATTENTION = "attention"

_CORE = frozenset({SCORES, SOFTMAX, SOFTMAX_DROPOUT, CONTEXT, FUSED_ATTENTION})


def is_attention_core(name: str) -> bool:
    """Whether an operator or node of a block, forward or backward, computes a part of the attention core.

    No forward operator mixes the core with anything else, whatever is fused; a backward product may take the gradient
    of a rotary position as its epilogue.
    """
    return any(part.partition(".")[0] in _CORE for part in name.split("+"))
