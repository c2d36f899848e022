"""Strategy ``spotlight-random``: Spotlight's random baseline (Spotlight-R of Sakhuja et al., HPCA 2023)."""

from __future__ import annotations

from dataclasses import dataclass, field

from phaze_opt.search.options import resolve_options
from phaze_opt.search.spotlight.dabo import DABO_OPTIONS, DaboRun
from phaze_opt.search.spotlight.features import raw_features
from phaze_opt.search.strategy import ONE_GOAL, Capability, StrategyContext, StrategyRun


@dataclass(frozen=True, slots=True)
class SpotlightRandomStrategy:
    """Every kept point with the same probability, never one that was proposed before while others are easily found.

    Beside ``random``, which draws with replacement from another stream of the same seed, it is a second sample of the
    same baseline.
    """

    name: str = field(default="spotlight-random", init=False)
    capabilities: frozenset[Capability] = field(default=ONE_GOAL, init=False)

    def start(self, context: StrategyContext) -> StrategyRun:
        """Begin a run.

        Raises:
            InputError: an option is unknown or out of range.
        """
        resolve_options(self.name, context.options, known=())
        options = {option.name: option.default for option in DABO_OPTIONS} | {"explore": 1.0}
        return DaboRun(context=context, options=options, make_features=lambda _context, _point: raw_features)
