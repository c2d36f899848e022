"""What a caller may ask of the scheduler."""

import math
from dataclasses import dataclass, fields
from enum import StrEnum

from phaze_opt.errors import InputError

MAX_ROUNDS = 4
"""Rounds of lazy core rows where nodes are limited."""


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
        mip_gap: relative gap of a block up to which no MIP is tried on it; the stages before still aim at closing it.
        mip_nodes: branch-and-bound nodes a MIP may take, and with it at most `MAX_ROUNDS` rounds of lazy rows; 0 is no
            limit. Unlike a time limit this gives the same result on every machine.
        time_limit_s: wall-clock budget of the whole solve, s; also enforced outside the MIP solver.
        multi_starts: randomised list schedules tried first on an open block (ten times as many before its first MIP).
        tree_nodes: nodes of the depth-first search on a block before its MIP.
        beam_width: partial schedules on a level of the search by levels, first with a tenth of them; 0: no such search.
            Blocks beyond MIPs are searched wider and wider until the time is up, unless nodes are limited.
        seed: of those list schedules.
    """

    exactness: Exactness = Exactness.PROVE
    tolerance: float = 1e-9
    accept_gap: float = 0.0
    mip_gap: float = 0.0
    mip_nodes: int = 0
    time_limit_s: float = 60.0
    multi_starts: int = 2000
    tree_nodes: int = 1000
    beam_width: int = 1000
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse negative or non-finite settings."""
        for name in (field.name for field in fields(self) if field.name not in ("exactness", "seed")):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                message = f"{name} = {value} must be finite and not negative"
                raise InputError(message)

    @property
    def target_gap(self) -> float:
        """Relative gap at which the scheduler stops."""
        return max(self.tolerance, self.accept_gap)

    @property
    def target_mip_gap(self) -> float:
        """Relative gap at which MIPs stop, or are not begun."""
        return max(self.target_gap, self.mip_gap)
