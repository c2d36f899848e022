"""What a caller may ask of the scheduler."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from phaze_opt.errors import InputError


class Exactness(StrEnum):
    """How far the scheduler goes: closed-form bounds and heuristics only, or on to the MIPs until the gap is closed."""

    BOUND = "bound"
    PROVE = "prove"


@dataclass(frozen=True, slots=True)
class ScheduleOptions:
    """Options of `solve_schedule`.

    Attributes:
        exactness: BOUND never calls a MIP solver; PROVE goes on until the gap is accepted or the time is up.
        tolerance: relative gap at which a schedule counts as optimal.
        accept_gap: relative gap at which the scheduler may stop early (0: only when optimal).
        time_limit_s: wall-clock budget of the whole solve, s; also enforced outside the MIP solver.
        multi_starts: randomised list schedules tried first on an open block (ten times as many before its first MIP).
        tree_nodes: nodes of the depth-first search on a block before its MIP.
        seed: of those list schedules.
    """

    exactness: Exactness = Exactness.PROVE
    tolerance: float = 1e-9
    accept_gap: float = 0.0
    time_limit_s: float = 60.0
    multi_starts: int = 2000
    tree_nodes: int = 1000
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse negative or non-finite settings."""
        for name in ("tolerance", "accept_gap", "time_limit_s", "multi_starts", "tree_nodes"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                message = f"{name} = {value} must be finite and not negative"
                raise InputError(message)

    @property
    def target_gap(self) -> float:
        """Relative gap at which the scheduler stops."""
        return max(self.tolerance, self.accept_gap)
