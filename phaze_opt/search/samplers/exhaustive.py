"""Strategy ``exhaustive``: every point of the space, for the true optimum; with a safe pruner it takes a minute.

The order is the spread one of ``grid``: even at every moment, so that good designs come early (of n points in no order,
about ln n are better than all before them), and a safe pruner drops nearly all others unseen. Without a pruner it is
for small spaces. ``grid`` differs in purpose: it is a baseline for budgets below the size of the space, and can also go
through the space in its own order.
"""

from phaze_opt.errors import InputError
from phaze_opt.search.options import NoOptions, resolve_options
from phaze_opt.search.samplers.grid import ENUMERATES, GridRun, golden_stride
from phaze_opt.search.strategy import StrategyContext, StrategyRun

MOST_POINTS = 500_000
"""Most points of a space that is enumerated; beyond them a proof is quicker by far."""


class ExhaustiveStrategy:
    """Enumerates the space; neither the seed nor the budget plays a part, so give as many trials as it has points."""

    name = "exhaustive"
    capabilities = ENUMERATES

    def start(self, context: StrategyContext) -> StrategyRun:
        """Begin a run.

        Raises:
            InputError: an option is given; it has none. Or the space has more than `MOST_POINTS` points.
        """
        resolve_options(NoOptions, self.name, context.options)
        if context.space.size > MOST_POINTS:
            message = (
                f"'{self.name}' enumerates at most {MOST_POINTS:,} points and the space {context.space.name} has "
                f"{context.space.size:,}; `phaze-opt certify` proves the best of them"
            )
            raise InputError(message, source="--strategy")
        return GridRun(space=context.space, stride=golden_stride(context.space.size))
