"""Any sampler of Optuna as a strategy: by name (``optuna:TPESampler``), or a sampler of one's own.

Strategies such as `tpe` decide ties, repeats and encodings for the sampler they wrap; here it is as its author made it.
"""

from __future__ import annotations

import copy
import inspect
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from phaze_opt.errors import InputError, PluginError
from phaze_opt.plugins import NAME_AGAIN, NO_CODE, OF_OPTUNA, GivenPlugin
from phaze_opt.record.suggestions import suggest
from phaze_opt.search.strategy import ANY_GOAL, Capability, StrategyContext, StrategyRun

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler

OF_ONE_GOAL = ("CmaEsSampler",)
"""Optuna's samplers that refuse several objectives and know no constraints."""
OF_CONSTRAINTS = "constraints_func"
"""Parameter of the samplers that look at constraints."""


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
        from optuna.samplers import GPSampler

        from phaze_opt.search.samplers.adapted_samplers import InformedSampler
        from phaze_opt.search.samplers.sampler_run import InfeasibleValue, Repeats, start_sampler

        sampler = self._made(context)
        # Only samplers that look at constraints rank an infeasible point behind by them.
        takes_constraints = OF_CONSTRAINTS in inspect.signature(type(sampler)).parameters
        return start_sampler(
            context,
            InformedSampler(sampler) if isinstance(sampler, GPSampler) else sampler,
            infeasible=InfeasibleValue.WORST if takes_constraints else InfeasibleValue.PENALISED,
            repeats=Repeats.SIDESTEPPED,
        )

    def _made(self, context: StrategyContext) -> BaseSampler:
        """The sampler of a run."""
        from optuna.samplers import BaseSampler

        from phaze_opt.search.samplers.sampler_run import quiet_optuna

        if isinstance(self.sampler, BaseSampler):
            _check_options(self.name, (), context.options)
            return copy.deepcopy(self.sampler)
        make = self.sampler if self.sampler is not None else _class_of(self.name)
        known = inspect.signature(make).parameters
        _check_options(self.name, [name for name in known if name not in {"seed", OF_CONSTRAINTS}], context.options)
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
    for option in given:
        if option not in known:
            message = f"strategy '{name}' has no option '{option}'; {suggest(option, known)}"
            raise InputError(message, key=option)
