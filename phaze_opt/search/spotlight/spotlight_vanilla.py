"""Strategy ``spotlight-vanilla``: Spotlight without its features (Spotlight-V of Sakhuja et al., HPCA 2023)."""

from __future__ import annotations

from dataclasses import dataclass, field

from phaze_opt.search.options import resolve_options
from phaze_opt.search.spotlight.dabo import DABO_OPTIONS, DaboRun
from phaze_opt.search.spotlight.features import raw_features
from phaze_opt.search.strategy import ONE_GOAL, Capability, StrategyContext, StrategyRun


@dataclass(frozen=True, slots=True)
class SpotlightVanillaStrategy:
    """The loop of ``spotlight`` over the logarithms of the raw parameters; it probes nothing."""

    name: str = field(default="spotlight-vanilla", init=False)
    capabilities: frozenset[Capability] = field(default=ONE_GOAL, init=False)

    def start(self, context: StrategyContext) -> StrategyRun:
        """Begin a run.

        Raises:
            InputError: an option is unknown or out of range.
        """
        options = resolve_options(self.name, context.options, known=DABO_OPTIONS)
        return DaboRun(context=context, options=options, make_features=lambda _context, _point: raw_features)
