"""What is known of one block while it is being closed: bounds and the best schedule."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

# A MIP bound this close to the incumbent, relative, is the incumbent: HiGHS works in floating point.
MIP_TOLERANCE = 1e-8


@dataclass(frozen=True, slots=True)
class BlockState:
    """Best known bounds and schedule of a block, in the unit of its latencies.

    Attributes:
        lower: proven bound of the makespan.
        upper: makespan of the schedule.
        start: (n,) start of each operator.
        is_spread: (n,) its mode.
        num_ilp_solves: MIPs solved for it.
        is_timed_out: the time ended before the gap was closed.
    """

    lower: float
    upper: float
    start: NDArray[np.float64]
    is_spread: NDArray[np.bool_]
    num_ilp_solves: int = 0
    is_timed_out: bool = False

    def is_closed(self, target_gap: float) -> bool:
        """Whether the gap is accepted."""
        return self.upper - self.lower <= target_gap * self.upper

    def with_lower(self, bound: float) -> BlockState:
        """The state with a bound that may be better; snapped to the makespan when within the MIP's tolerance."""
        raised = max(self.lower, bound)
        if raised >= self.upper * (1.0 - MIP_TOLERANCE):
            raised = self.upper
        return replace(self, lower=raised)

    def with_schedule(self, upper: float, start: NDArray[np.float64], is_spread: NDArray[np.bool_]) -> BlockState:
        """The state with a schedule that may be better."""
        if upper >= self.upper:
            return self
        return replace(self, upper=upper, start=start.copy(), is_spread=is_spread.copy(), lower=min(self.lower, upper))
