"""Samplers of Optuna as strategies: those with names of this package, and any other as its author made it.

The named ones are a table of classes without code of their own: `NamedSampler` runs them all. They decide ties,
repeats and encodings; ``optuna:TPESampler`` and samplers of a user's own are left as they are.
"""

from __future__ import annotations

import copy
import inspect
import re
import sys
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, ClassVar

from phaze_opt.errors import InputError, PluginError
from phaze_opt.plugins import NAME_AGAIN, NO_CODE, OF_OPTUNA, GivenPlugin
from phaze_opt.record.suggestions import suggest
from phaze_opt.search.encodings import CODEC, ENCODINGS, build_encoding, encoding_option
from phaze_opt.search.options import option, resolve_options
from phaze_opt.search.strategy import ANY_GOAL, Capability, StrategyContext, StrategyRun

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler

OF_ONE_GOAL = ("CmaEsSampler",)
"""Optuna's samplers that refuse several objectives and know no constraints."""


@dataclass(frozen=True, slots=True)
class OptunaStrategy:
    """A sampler of Optuna, made anew for every run with the seed of the search.

    Attributes:
        name: ``optuna:`` and a class of `optuna.samplers`, or ``package.module.Class`` as its user gave it
            (`plugins.GivenPlugin`); any name beside ``sampler``.
        sampler: what makes the sampler (a class, or a function of ``seed``), or a sampler, which is copied; None for
            what the name says. A sampler that was made keeps its own seed, and without one its searches differ.
        goals: what it can search for; by its name unless given.
    """

    name: str
    sampler: BaseSampler | Callable[..., BaseSampler] | None = None
    goals: frozenset[Capability] | None = None

    @property
    def capabilities(self) -> frozenset[Capability]:
        """What it can do: all objectives, unless its name or its author says otherwise."""
        if self.goals is not None:
            return self.goals
        return frozenset({Capability.SINGLE_OBJECTIVE}) if self.name.endswith(OF_ONE_GOAL) else ANY_GOAL

    @property
    def made_from(self) -> object:
        """Whose code it runs: the sampler's."""
        return self.sampler

    def start(self, context: StrategyContext) -> StrategyRun:
        """Begin a run; options of the strategy are the sampler's own.

        Raises:
            PluginError: Optuna has no sampler of the name, or it cannot be made.
            InputError: the sampler has no such option.
        """
        from phaze_opt.search.samplers.adapted_samplers import informed
        from phaze_opt.search.samplers.sampler_run import Repeats, start_sampler

        return start_sampler(context, informed(self._made(context)), repeats=Repeats.SIDESTEPPED)

    def _made(self, context: StrategyContext) -> BaseSampler:
        """The sampler of a run."""
        from optuna.samplers import BaseSampler

        from phaze_opt.search.samplers.sampler_run import quiet_optuna

        if isinstance(self.sampler, BaseSampler):
            _check_options(self.name, (), context.options)
            return copy.deepcopy(self.sampler)
        make = self.sampler if self.sampler is not None else _class_of(self.name)
        known = inspect.signature(make).parameters
        _check_options(self.name, [name for name in known if name not in {"seed", "constraints_func"}], context.options)
        given: dict[str, Any] = {**context.options, **({"seed": context.seed} if "seed" in known else {})}
        try:
            with quiet_optuna():
                made: object = make(**given)
        except (TypeError, ValueError) as error:
            message = f"'{self.name}' cannot be made with {', '.join(given) or 'nothing'}: {error}"
            raise PluginError(message) from error
        if not isinstance(made, BaseSampler):
            message = f"'{self.name}' makes a {type(made).__name__}, and no sampler of Optuna"
            raise PluginError(message)
        return made


_OPTUNA, _OWN = "optuna.samplers:", "phaze_opt.search.samplers.adapted_samplers:"
KEPT = "kept"


class NamedSampler:
    """A sampler of Optuna with a name of this package; every subclass is a row of the table below.

    Attributes:
        name, capabilities: of the strategy.
        options: its options, a dataclass; one named ``encoding`` says how points are encoded, ``avoid_repeats`` whether
            ``repeats`` holds, and a whole number of 0 is left to Optuna.
        sampler: what makes the sampler, of a seed and, where it takes one, the space.
        words: the sampler's own words for options.
        fixed: further arguments of the sampler.
        repeats: one of `sampler_run.Repeats`, by its name.
        needs: the module it cannot run without, which an extra of that name brings. Its sums depend on the number of
            threads, and its matrices are too small for several to gain anything (8 s with one against 124 s with two
            for 30 trials on a busy two-core machine): it runs on one.
    """

    name: ClassVar[str]
    options: ClassVar[type[Any]]
    sampler: ClassVar[str]
    words: ClassVar[Mapping[str, str]]
    capabilities: ClassVar[frozenset[Capability]] = ANY_GOAL
    fixed: ClassVar[Mapping[str, object]] = {}
    repeats: ClassVar[str] = "ALLOWED"
    needs: ClassVar[str] = ""

    def start(self, context: StrategyContext) -> StrategyRun:
        """Begin a run.

        Raises:
            PluginError: what it needs is not installed.
            InputError: an option is unknown or out of range.
        """
        if self.needs and find_spec(self.needs) is None:
            message = (
                f"strategy '{self.name}' needs {self.needs}, which is not installed: run pip install "
                f"'phaze-opt[{self.needs}]'"
            )
            raise PluginError(message)
        from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

        from phaze_opt.search.samplers.sampler_run import Repeats, start_sampler

        options = resolve_options(self.options, self.name, context.options)
        return start_sampler(
            context,
            self.build_sampler(context),
            codec=build_encoding(getattr(options, "encoding", CODEC), context.space),
            repeats=Repeats[self.repeats] if getattr(options, "avoid_repeats", False) else Repeats.ALLOWED,
            during_ask=partial(threadpool_limits, 1) if self.needs else nullcontext,
        )

    def build_sampler(self, context: StrategyContext) -> BaseSampler:
        """The sampler of a context."""
        from phaze_opt.search.samplers.sampler_run import quiet_optuna

        options = resolve_options(self.options, self.name, context.options)
        given = {word: getattr(options, name) for name, word in self.words.items()}
        given = {word: value for word, value in given.items() if type(value) is not int or value}
        make = resolve_name(self.sampler)
        if "space" in inspect.signature(make).parameters:
            given["space"] = context.space
        # Some samplers and arguments are experimental in Optuna; we opt in knowingly.
        with quiet_optuna():
            made: BaseSampler = make(**given, **self.fixed, seed=context.seed)
        return made


@dataclass(frozen=True, slots=True)
class RandomOptions:
    """Of `RandomStrategy`."""

    encoding: str = option(
        KEPT,
        "kept draws every kept point alike; any other draws the parameters of that encoding alike",
        choices=(KEPT, *ENCODINGS),
    )


class RandomStrategy(NamedSampler):
    """The baseline every other strategy must beat; each kept point is equally likely.

    With another encoding its parameters are uniform instead: ``exponents`` then means rejection sampling, which again
    makes every kept point equally likely; ``codec`` and ``lifted`` favour points of large cores, where few fit.
    """

    name, options, sampler = "random", RandomOptions, f"{_OWN}random_sampler"
    words: ClassVar = {"encoding": "encoding"}


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


class TPEStrategy(NamedSampler):
    """Splits finished trials into good and bad, and proposes where good is dense and bad is not.

    Source: tree-structured Parzen estimators, Bergstra et al., NIPS 2011. Points still being evaluated count as bad.
    """

    name, options, sampler = "tpe", TPEOptions, f"{_OWN}DecidedTPESampler"
    words: ClassVar = {
        "startup_trials": "n_startup_trials",
        "candidates": "n_ei_candidates",
        "multivariate": "multivariate",
    }
    fixed: ClassVar = {"constant_liar": True}
    repeats = "SIDESTEPPED"


@dataclass(frozen=True, slots=True)
class CmaEsOptions:
    """Of `CmaEsStrategy`."""

    startup_trials: int = option(1, "random trials before the evolution begins", low=1, high=100_000)
    population: int = option(0, "points a generation; 0 for 4 + 3 ln(number of axes)", low=0, high=10_000)
    with_margin: bool = option(True, "keep a margin of probability on every value of a few-valued axis")
    avoid_repeats: bool = option(True, "tell a point proposed before again at no cost, instead of proposing it twice")
    encoding: str = encoding_option()


class CmaEsStrategy(NamedSampler):
    """Adapts a Gaussian over the encoded axes, all of them integers.

    Axes of few values would freeze plain CMA-ES once its step falls below one; the margin keeps every value in
    reach (Hamano et al., GECCO 2022). It knows no constraints: infeasible points are ranked behind all others by a
    penalty.
    """

    name, options, sampler = "cma-es", CmaEsOptions, f"{_OPTUNA}CmaEsSampler"
    capabilities = frozenset({Capability.SINGLE_OBJECTIVE})
    words: ClassVar = {"startup_trials": "n_startup_trials", "population": "popsize", "with_margin": "with_margin"}
    fixed: ClassVar = {"warn_independent_sampling": False}
    repeats = "RETOLD"


@dataclass(frozen=True, slots=True)
class GPOptions:
    """Of `GPStrategy`."""

    startup_trials: int = option(10, "random trials before the model is used", low=1, high=100_000)
    deterministic: bool = option(True, "model the objective without noise")


class GPStrategy(NamedSampler):
    """Fits a Matern 5/2 process and maximises log expected (hypervolume) improvement under its constraints."""

    name, options, sampler, needs = "gp", GPOptions, f"{_OWN}gp_sampler", "torch"
    words: ClassVar = {"startup_trials": "n_startup_trials", "deterministic": "deterministic_objective"}


@dataclass(frozen=True, slots=True)
class QMCOptions:
    """Of `QMCStrategy`."""

    sequence: str = option("sobol", "which sequence", choices=("sobol", "halton"))
    scramble: bool = option(True, "randomise the sequence by the seed; without it every seed gives the same points")


class QMCStrategy(NamedSampler):
    """Covers the encoded coordinates more evenly than chance; learns nothing from outcomes."""

    name, options, sampler = "qmc", QMCOptions, f"{_OPTUNA}QMCSampler"
    words: ClassVar = {"sequence": "qmc_type", "scramble": "scramble"}
    fixed: ClassVar = {"warn_asynchronous_seeding": False, "warn_independent_sampling": False}


@dataclass(frozen=True, slots=True)
class NSGA2Options:
    """Of `NSGA2Strategy`."""

    # Optuna's default of 50 would spend a search of 60 trials on the random first generation.
    population: int = option(16, "points a generation; the first one is random", low=2, high=100_000)
    crossover_probability: float = option(0.9, "share of children with two parents", low=0.0, high=1.0)
    swapping_probability: float = option(
        0.5, "chance that a child takes an axis from its second parent", low=0.0, high=1.0
    )


class NSGA2Strategy(NamedSampler):
    """Breeds the next generation from the least dominated points; constraints by constrained domination.

    Source: Deb et al., A Fast and Elitist Multiobjective Genetic Algorithm: NSGA-II, IEEE Trans. Evol. Comput. 6, 2002.
    """

    name, options, sampler = "nsga2", NSGA2Options, f"{_OPTUNA}NSGAIISampler"
    words: ClassVar = {
        "population": "population_size",
        "crossover_probability": "crossover_prob",
        "swapping_probability": "swapping_prob",
    }


@dataclass(frozen=True, slots=True)
class NSGA3Options(NSGA2Options):
    """Of `NSGA3Strategy`; with three objectives and three divisions there are ten reference points to serve."""

    divisions: int = option(3, "parts that each objective is divided into to lay out reference points", low=1, high=64)


class NSGA3Strategy(NamedSampler):
    """Breeds from the least dominated points, those of equal rank spread over reference directions.

    Made for three objectives and more, where crowding (`nsga2`) no longer spreads a front; with one objective the
    reference directions say nothing. Constraints by constrained domination.

    Source: Deb and Jain, An Evolutionary Many-Objective Optimization Algorithm Using Reference-Point-Based Nondominated
    Sorting Approach, IEEE Trans. Evol. Comput. 18(4), 2014. Deviation: a population of 16 instead of one that grows
    with the number of reference points, because searches here have tens of trials, not thousands.
    """

    name, options, sampler = "nsga3", NSGA3Options, f"{_OPTUNA}NSGAIIISampler"
    words: ClassVar = {**NSGA2Strategy.words, "divisions": "dividing_parameter"}


def optuna_strategy(sampler: BaseSampler | Callable[..., BaseSampler], *, name: str = "") -> OptunaStrategy:
    """A sampler of Optuna as a strategy, for ``strategy=`` of `search` or for `register`.

    Args:
        sampler: a class, or a function of ``seed``, which every search calls with its own seed; or a sampler, which
            keeps the seed it was made with: made without one, no search with it can be repeated.
        name: the name; that of the class or function unless given.
    """
    made = sampler.func if isinstance(sampler, partial) else sampler
    word = getattr(made, "__name__", type(made).__name__)
    return OptunaStrategy(name or re.sub(r"\W", "", word), sampler)


def wrapped_sampler(name: str, plugin: Any) -> object:
    """A plug-in; one that is a sampler of Optuna's kind, or a class of one, as a strategy of a name."""
    optuna = sys.modules.get("optuna")  # whoever wrote a sampler has imported it
    kind = plugin if isinstance(plugin, type) else type(plugin)
    is_sampler = optuna is not None and issubclass(kind, optuna.samplers.BaseSampler)
    return OptunaStrategy(name, plugin) if is_sampler else plugin


def _class_of(name: str) -> type[BaseSampler]:
    """The class that a name stands for.

    Raises:
        PluginError: there is none, it is no sampler, or a module is to be imported that no user names.
    """
    import optuna

    word = name.removeprefix(OF_OPTUNA)
    module, _, own_name = word.rpartition(".")
    if module and not isinstance(name, GivenPlugin):
        message = (
            f"strategy '{name}' imports a module, and {NO_CODE}: import the class in a file of your own, name it as "
            f"FILE:CLASS and add {NAME_AGAIN} FILE"
        )
        raise PluginError(message)
    try:
        found = resolve_name(word) if module else getattr(optuna.samplers, word)
    except (ImportError, AttributeError, ValueError) as error:
        hint = f"if it is in a file, name it {module.replace('.', '/')}.py:{own_name}"
        if not module:
            known = [each for each in optuna.samplers.__all__ if each.endswith("Sampler") and each != "BaseSampler"]
            hint = suggest(word, known)
        message = f"'{name}' is none of Optuna's samplers; {hint}"
        raise PluginError(message) from error
    if not (isinstance(found, type) and issubclass(found, optuna.samplers.BaseSampler)):
        message = f"'{name}' is no class of a sampler of Optuna; give a subclass of optuna.samplers.BaseSampler"
        raise PluginError(message)
    return found


def _check_options(name: str, known: Any, given: Mapping[str, Any]) -> None:
    """Refuse options that the sampler does not have."""
    for key in given:
        if key not in known:
            message = f"strategy '{name}' has no option '{key}'; {suggest(key, known)}"
            raise InputError(message, key=key)
