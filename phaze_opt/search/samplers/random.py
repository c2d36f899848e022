"""Strategy ``random``: uniform over the kept points of the space, with replacement."""

from __future__ import annotations

from dataclasses import dataclass, field

from phaze_opt.search.options import resolve_options
from phaze_opt.search.strategy import Capability, StrategyContext, StrategyRun


@dataclass(frozen=True, slots=True)
class RandomStrategy:
    """The baseline every other strategy must beat; each kept point is equally likely. No options."""

    name: str = field(default="random", init=False)
    capabilities: frozenset[Capability] = field(
        default=frozenset({Capability.SINGLE_OBJECTIVE, Capability.MULTI_OBJECTIVE, Capability.CONSTRAINTS}),
        init=False,
    )

    def start(self, context: StrategyContext) -> StrategyRun:
        """Begin a run.

        Raises:
            InputError: an option is given.
        """
        from phaze_opt.search.samplers.kept_point_sampler import KeptPointSampler
        from phaze_opt.search.samplers.sampler_run import start_sampler
        from phaze_opt.space.codec import Codec

        resolve_options(self.name, context.options, known=())
        codec = Codec(context.space)
        sampler = KeptPointSampler(context.space, codec=codec, seed=context.seed)
        return start_sampler(context, sampler, codec=codec)
