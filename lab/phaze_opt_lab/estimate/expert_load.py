"""How many rows every expert of a rank gets: balanced, or drawn from a power law as routing benchmarks draw them.

A benchmark of fused experts says ``balanced`` or ``power_law_A``: loads are drawn from a density x^-A between 1 and
0.8 tokens (between 0.01 and 2 where there are fewer rows than experts), scaled to all rows and rounded, what is left
going to experts that most is due to; of several ranks the one with most rows is timed. A prediction is the mean over a
few draws with a fixed seed: the draw that was timed is not known.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from phaze_opt.errors import InputError
from phaze_opt.record.arrays import Floats

POWER_LAW = "power_law_"
BALANCED = "balanced"
NUM_DRAWS = 16
"""Draws that a prediction is the mean of: their mean is known to a few per cent."""
ROW_TILES = (8, 16, 32, 64, 128)
"""Rows of an output tile of grouped matmuls."""


@dataclass(frozen=True, slots=True)
class ExpertLoad:
    """What the busiest rank has to do; means over draws.

    Attributes:
        rows: that its experts get, all together.
        active: experts that get any.
        tiles: tiles of rows by height, in the order of `ROW_TILES`.
    """

    rows: float
    active: float
    tiles: tuple[float, ...]


def exponent_of(distribution: str) -> float | None:
    """Exponent of a power law by name, None of a balanced load (blank, or with a question mark).

    Raises:
        InputError: another name.
    """
    name = distribution.lower().rstrip("?")
    if name in ("", BALANCED):
        return None
    try:
        exponent = float(name.removeprefix(POWER_LAW)) if name.startswith(POWER_LAW) else 0.0
    except ValueError:
        exponent = 0.0
    if not 0.0 < exponent <= 4.0:
        message = f"value '{distribution[:40]}' is no distribution of rows; give {BALANCED} or {POWER_LAW}1.2"
        raise InputError(message, key="distribution")
    return exponent if exponent != 1.0 else 1.0 + 1e-9


@lru_cache(maxsize=65536)
def expert_load(tokens: int, per_token: int, experts: int, ranks: int, exponent: float | None) -> ExpertLoad:
    """Load of the busiest of ``ranks`` ranks that share ``experts`` experts.

    Args:
        tokens: of all ranks.
        per_token: experts of a token.
        experts: of all ranks.
        ranks: that experts are dealt out to.
        exponent: of the power law; None: every expert gets as much.
    """
    local = max(1, experts // ranks)
    if exponent is None:
        rows = tokens * per_token / ranks
        active = min(float(local), max(rows, 1.0))
        return ExpertLoad(rows, active, tuple(active * float(np.ceil(rows / active / height)) for height in ROW_TILES))
    draws = _busiest(tokens, per_token, experts, local, exponent)
    tiles = tuple(float(np.ceil(draws / height).sum(axis=1).mean()) for height in ROW_TILES)
    return ExpertLoad(float(draws.sum(axis=1).mean()), float((draws > 0).sum(axis=1).mean()), tiles)


def _busiest(tokens: int, per_token: int, experts: int, local: int, exponent: float) -> Floats:
    """Rows of the busiest rank's experts in every draw, shape (NUM_DRAWS, local)."""
    rows = tokens * per_token
    low, high = (1.0, max(0.8 * tokens, 1.001)) if rows > experts else (0.01, 2.0)
    power = 1.0 - exponent
    uniform = np.random.default_rng(0).random((NUM_DRAWS, experts))
    shares = ((high**power - low**power) * uniform + low**power) ** (1.0 / power)
    due = shares / shares.sum(axis=1, keepdims=True) * rows
    counts = np.round(due)
    for draw, own in zip(counts, due, strict=True):
        _settle(draw, own, rows)
    counts = np.minimum(counts, tokens)
    by_rank = counts[:, : local * (experts // local)].reshape(NUM_DRAWS, -1, local)
    busiest = by_rank.sum(axis=2).argmax(axis=1)
    return np.asarray(by_rank[np.arange(NUM_DRAWS), busiest])


def _settle(counts: Floats, due: Floats, rows: int) -> None:
    """Give or take what rounding left over, one row an expert, those that most are due to first."""
    missing = int(rows - counts.sum())
    order = np.argsort(-due, kind="stable")
    while missing:
        able = order if missing > 0 else order[counts[order] > 0]
        chosen = able[: abs(missing)]
        counts[chosen] += np.sign(missing)
        missing -= int(np.sign(missing)) * len(chosen)
