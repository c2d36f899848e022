"""Strategy ``random``: uniform over the kept points of the space, with replacement."""

from dataclasses import dataclass

from phaze_opt.search.encodings import ENCODINGS, build_encoding
from phaze_opt.search.options import option, resolve_options
from phaze_opt.search.strategy import ANY_GOAL, StrategyContext, StrategyRun

KEPT = "kept"


@dataclass(frozen=True, slots=True)
class RandomOptions:
    """Of `RandomStrategy`."""

    encoding: str = option(
        KEPT,
        "kept draws every kept point alike; any other draws the parameters of that encoding alike",
        choices=(KEPT, *ENCODINGS),
    )


class RandomStrategy:
    """The baseline every other strategy must beat; each kept point is equally likely.

    With another encoding its parameters are uniform instead: ``exponents`` then means rejection sampling, which again
    makes every kept point equally likely; ``codec`` and ``lifted`` favour points of large cores, where few fit.
    """

    name = "random"
    capabilities = ANY_GOAL

    def start(self, context: StrategyContext) -> StrategyRun:
        """Begin a run.

        Raises:
            InputError: an option is unknown or not a choice.
        """
        from optuna.samplers import RandomSampler

        from phaze_opt.search.samplers.adapted_samplers import KeptPointSampler
        from phaze_opt.search.samplers.sampler_run import start_sampler
        from phaze_opt.space.codec import Codec

        name = resolve_options(RandomOptions, self.name, context.options).encoding
        if name == KEPT:
            codec = Codec(context.space)
            return start_sampler(context, KeptPointSampler(context.space, codec=codec, seed=context.seed), codec=codec)
        return start_sampler(context, RandomSampler(seed=context.seed), codec=build_encoding(name, context.space))
