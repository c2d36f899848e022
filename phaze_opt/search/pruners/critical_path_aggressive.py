"""Pruner ``critical-path-aggressive``: `critical-path` that also drops what would beat an incumbent by little.

Unsafe: it may drop the optimum, but never loses more than its margin of the best value, for a point is dropped only if
an evaluated one exceeds (1 - margin) of its bound. Measured losses: experiments/pruner.
"""

from dataclasses import dataclass

from phaze_opt.search.options import option, resolve_options
from phaze_opt.search.pruner import PrunerContext, PrunerRun
from phaze_opt.search.pruners.critical_path import CriticalPathRun


@dataclass(frozen=True, slots=True)
class AggressiveOptions:
    """Of `AggressiveCriticalPathPruner`."""

    margin: float = option(0.1, "share of its bound that a point is not trusted to reach", low=0.0, high=0.99)


class AggressiveCriticalPathPruner:
    """Drops a point also when its bound x (1 - margin) cannot beat an incumbent."""

    name = "critical-path-aggressive"
    is_safe = False

    def start(self, context: PrunerContext) -> PrunerRun:
        """Begin a run.

        Raises:
            InputError: an option is unknown, or the margin is no share.
        """
        options = resolve_options(AggressiveOptions, self.name, context.options, kind="pruner")
        return CriticalPathRun(context, margin=options.margin)
