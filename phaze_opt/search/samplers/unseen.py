"""What to do with a proposal that was proposed before, and how to find one near it that was not."""

from __future__ import annotations

from collections.abc import Container, Mapping
from enum import StrEnum
from typing import Any

import numpy as np
from optuna.distributions import IntDistribution

from phaze_opt.hardware.template import DesignPoint
from phaze_opt.search.encodings.encoding import Encoding, Rejected

_MAX_STEPS = 400


class Repeats(StrEnum):
    """What becomes of a proposal that a run proposed, or was told of, before.

    A repeated point takes a trial of the budget and teaches nothing. Density samplers that have converged repeat
    themselves more often than not: with a pruner TPE spends about 36 of 60 trials on points it knows (decision 0091).

    ALLOWED: it is proposed again.
    SIDESTEPPED: its trial is dropped and a point near it is taken instead.
    RETOLD: its known outcome is told again, so that a generation can fill up, and the sampler goes on.
    """

    ALLOWED = "allowed"
    SIDESTEPPED = "sidestepped"
    RETOLD = "retold"

    @property
    def patience(self) -> int:
        """Repeats in a row after which a point near the last one is taken."""
        return 32 if self is Repeats.RETOLD else 1


def find_unseen(
    encoding: Encoding, params: Mapping[str, Any], *, seen: Container[DesignPoint], rng: np.random.Generator
) -> DesignPoint | None:
    """The first new point on a random walk over the parameters, one step of one of them at a time; None if it ends.

    Args:
        encoding: what parameters mean.
        params: where the walk begins.
        seen: points that will not do.
        rng: chooses parameters and directions.
    """
    ranges = [
        (name, known.low, known.high)
        for name, known in encoding.distributions().items()
        if isinstance(known, IntDistribution)
    ]
    current = dict(params)
    for _ in range(_MAX_STEPS if ranges else 0):
        name, low, high = ranges[int(rng.integers(len(ranges)))]
        before = current[name]
        current[name] = min(max(before + (1 if rng.random() < 0.5 else -1), low), high)
        found = encoding.decode(current)
        if isinstance(found, Rejected):
            current[name] = before
        elif found not in seen:
            return found
    return None
