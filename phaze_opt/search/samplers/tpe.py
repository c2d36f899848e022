"""Strategy ``tpe``: tree-structured Parzen estimators (Bergstra et al., NIPS 2011), as in Optuna."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from phaze_opt.search.encodings import build_encoding, encoding_option
from phaze_opt.search.options import option, resolve_options
from phaze_opt.search.strategy import ANY_GOAL, StrategyContext, StrategyRun

if TYPE_CHECKING:
    from optuna.samplers import TPESampler


@dataclass(frozen=True, slots=True)
class TPEOptions:
    """Of `TPEStrategy`."""

    startup_trials: int = option(10, "random trials before the model is used", low=1, high=100_000)
    candidates: int = option(
        24, "points drawn from the good density, of which the best is proposed", low=1, high=10_000
    )
    multivariate: bool = option(True, "model the axes jointly rather than one by one")
    avoid_repeats: bool = option(True, "take a point beside it instead of proposing a point twice")
    encoding: str = encoding_option()


class TPEStrategy:
    """Splits finished trials into good and bad, and proposes where good is dense and bad is not."""

    name = "tpe"
    capabilities = ANY_GOAL

    def start(self, context: StrategyContext) -> StrategyRun:
        """Begin a run.

        Raises:
            InputError: an option is unknown or out of range.
        """
        from phaze_opt.search.samplers.sampler_run import Repeats, start_sampler

        options = resolve_options(TPEOptions, self.name, context.options)
        return start_sampler(
            context,
            self.build_sampler(context),
            codec=build_encoding(options.encoding, context.space),
            repeats=Repeats.SIDESTEPPED if options.avoid_repeats else Repeats.ALLOWED,
        )

    def build_sampler(self, context: StrategyContext) -> TPESampler:
        """The Optuna sampler of a context; points still being evaluated count as bad (constant liar)."""
        from phaze_opt.search.samplers.adapted_samplers import DecidedTPESampler

        options = resolve_options(TPEOptions, self.name, context.options)
        return DecidedTPESampler(
            n_startup_trials=options.startup_trials,
            n_ei_candidates=options.candidates,
            multivariate=options.multivariate,
            constant_liar=True,
            seed=context.seed,
        )
