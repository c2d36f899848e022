"""What filling and draining a pipeline adds to the micro-batches of its slowest stage (docs/decisions/0171).

Stage k of p under 1F1B starts once the first micro-batch has come forward through the stages before it, and ends when
the last is about to go back through them. In between it waits twice: for its first backward pass, while the stages
behind it do one micro-batch and it does p - 1 - k forward passes of its own; and at the end, likewise, with backward
passes. The step lasts as long as the stage for which that is longest. Equal stages give p - 1 times one of them, a slow
last stage gives the sum of the others.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def fill_s(forward_s: Floats, backward_s: Floats, num_micro_batches: Floats, interleave: Floats) -> Floats:
    """Time of steps beyond the micro-batches of their slowest stages.

    Args:
        forward_s: one micro-batch through each stage, shape (steps, stages), 0 behind a step's last stage, s.
        backward_s: the same of backward.
        num_micro_batches: m of each step, shape (steps,).
        interleave: model chunks of a stage v, shape (steps,). Above 1 the fill is the sum of the other stages divided
            by v (Narayanan et al. 2021, section 2.2).

    Returns:
        Shape (steps,), s; never above the sum of the other stages.
    """
    both = forward_s + backward_s
    slowest = both.max(axis=1)
    others = both.sum(axis=1) - slowest
    m = num_micro_batches[:, None]
    done = both.cumsum(axis=1)
    before, behind = done - both, done[:, -1:] - done
    ahead = (both > 0.0).sum(axis=1, keepdims=True) - np.arange(1, both.shape[1] + 1)
    own = np.minimum(ahead, m - 1.0)
    first, last = (np.maximum(0.0, behind - own * passed) for passed in (forward_s, backward_s))
    # With so few micro-batches that all go forward before the first comes back, it is one and the same wait.
    waits = np.where(m - 1.0 > ahead, first + last, np.maximum(first, last))
    ends = np.where(both > 0.0, before + m * both + np.where(ahead > 0, waits, 0.0), 0.0)
    plain = ends.max(axis=1) - num_micro_batches * slowest
    return np.asarray(np.where(interleave > 1.0, others / interleave, np.clip(plain, 0.0, others)))
