"""Running one search: one strategy, one scenario, one space, one result."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from phaze_opt.errors import InputError, PluginError
from phaze_opt.hardware.chip_template import DesignPoint
from phaze_opt.objective.evaluation import Evaluation, ScheduleQuality
from phaze_opt.objective.goals import Goal, goal_directions, goal_values, posed_for
from phaze_opt.objective.silicon_options import check_same_silicon
from phaze_opt.plugins import (
    OF_OPTUNA,
    PluginGroup,
    given_plugin,
    is_of_this_process,
    is_own,
    load_plugin,
    plugin_code,
    plugin_fault,
    plugin_origins,
)
from phaze_opt.record.input_files import shorten_path
from phaze_opt.record.interrupts import kernels_interruptible
from phaze_opt.record.progress import OnProgress
from phaze_opt.search.config import SearchConfig, resolved_config, search_id
from phaze_opt.search.evaluators import ObjectiveFactory, PointObjective, open_evaluator
from phaze_opt.search.events import Observer, Observers, SearchEvent, SearchFinished, SearchStarted
from phaze_opt.search.journal import JOURNAL_FILE, keep_journal
from phaze_opt.search.loop import Judging, SearchLoop
from phaze_opt.search.probe import BounderFactory, CountingProbe, PointBounder, probe_limit
from phaze_opt.search.pruner import Pruner, PrunerContext, PrunerRun, Verdict
from phaze_opt.search.result import SearchResult, Trial
from phaze_opt.search.samplers.optuna_sampler import OptunaStrategy, wrapped_sampler
from phaze_opt.search.strategy import Capability, Outcome, Strategy, StrategyContext, StrategyRun
from phaze_opt.space.search_space import SearchSpace

if TYPE_CHECKING:
    from phaze_opt.objective.scenario import Scenario


@dataclass(frozen=True, slots=True)
class GuardedStrategy:
    """A strategy's run.

    Attributes:
        run: of the strategy.
        name: of the strategy.
        space: that it searches.
    """

    run: StrategyRun
    name: str
    space: SearchSpace

    def ask(self, count: int) -> Sequence[DesignPoint]:
        """The strategy's proposals, at most ``count``.

        Raises:
            PluginFaultError: its code raised an error, or proposed what is no point of the space.
        """
        with plugin_code(PluginGroup.STRATEGIES, self.name):
            points = tuple(self.run.ask(count))[:count]
        # Conformance holds the package's own to it; a look at each of half a million points takes most of a minute.
        for point in () if is_own(PluginGroup.STRATEGIES, self.name) else points:
            self._check(point)
        return points

    def _check(self, proposal: object) -> None:
        """Refuse what is no point of the space."""
        if not isinstance(proposal, DesignPoint):
            what = f"proposed a {type(proposal).__name__}, and no DesignPoint{self._place}: {repr(proposal)[:80]}"
            raise plugin_fault(PluginGroup.STRATEGIES, self.name, what)
        try:
            self.space.index(proposal)
        except InputError as error:
            what = f"proposed a point outside the space{self._place}: {error}"
            raise plugin_fault(PluginGroup.STRATEGIES, self.name, what) from error

    @property
    def _place(self) -> str:
        """Where the run's ``ask`` is written, as far as Python knows."""
        code = getattr(self.run.ask, "__code__", None)
        return "" if code is None else f" in its ask at {Path(code.co_filename).name}:{code.co_firstlineno}"

    def tell(self, outcomes: Sequence[Outcome]) -> None:
        """Pass outcomes on.

        Raises:
            PluginFaultError: the strategy's code raised an error.
        """
        with plugin_code(PluginGroup.STRATEGIES, self.name):
            self.run.tell(outcomes)


@dataclass(frozen=True, slots=True)
class GuardedPruner:
    """A pruner's run.

    Attributes:
        run: of the pruner.
        name: of the pruner.
    """

    run: PrunerRun
    name: str

    def judge(self, points: Sequence[DesignPoint], incumbents: Sequence[tuple[float, ...]]) -> Sequence[Verdict]:
        """The pruner's verdicts, one a point.

        Raises:
            PluginFaultError: its code raised an error, or gave something else than a verdict for each point.
        """
        with plugin_code(PluginGroup.PRUNERS, self.name):
            verdicts = tuple(self.run.judge(points, incumbents))
        if len(verdicts) != len(points) or not all(isinstance(verdict, Verdict) for verdict in verdicts):
            what = f"gave {len(verdicts)} verdicts on {len(points)} points; give a Verdict for each"
            raise plugin_fault(PluginGroup.PRUNERS, self.name, what)
        return verdicts


T = TypeVar("T")
_COUNTS = ("evaluations", "distinct_evaluations", "probes", "ilp_solves", "placements", "pruned")
_STREAM = 0x57A7
"""Keeps the draw of starting points apart from the strategies' own, which start from the same seed."""
ROUNDING = 1e-12
"""Relative difference between two evaluations of one point on one machine, or on two."""


def confirm_winner(best: Trial[Evaluation], objective: PointObjective, *, goal: Goal, journal: Path) -> None:
    """Evaluate the best trial's point again and compare.

    Where a schedule ended at its time limit, two evaluations may differ, and nothing is compared.

    Args:
        best: the trial that is about to be called the best.
        objective: evaluates points; made for this, so that it remembers nothing.
        goal: what its values are of.
        journal: file of the trials, to be named.

    Raises:
        InputError: the point is worth something else than its trial says.
    """
    again = objective.evaluate(best.point)
    if _has_time_limit(again) or _has_time_limit(best.evaluation):
        return
    values = goal_values(goal, again)
    if len(values) == len(best.values) and all(map(_is_same, values, best.values)):
        return
    message = (
        f"trial {best.number} says that {best.point} is worth {_shown(best.values)}, but evaluated again it is worth "
        f"{_shown(values)}: the file was changed, or an estimator gives different answers to one question; search "
        "without --resume"
    )
    raise InputError(message, source=shorten_path(journal), key=f"trial {best.number}")


def _is_same(value: float, other: float) -> bool:
    return math.isclose(value, other, rel_tol=ROUNDING, abs_tol=0.0)


def _shown(values: tuple[float, ...]) -> str:
    return ", ".join(f"{value:.9g}" for value in values) or "nothing, as it is infeasible"


def _has_time_limit(evaluation: Evaluation) -> bool:
    """Whether a schedule depends on how fast the machine was."""
    return any(schedule.status is ScheduleQuality.TIME_LIMIT for schedule in evaluation.schedules) or any(
        _has_time_limit(member) for member in evaluation.members
    )


def build_objective(scenario: Scenario) -> PointObjective:
    """The objective that a search evaluates unless told otherwise."""
    from phaze_opt.objective.evaluate import Objective

    return Objective(scenario)


def build_bounder(scenario: Scenario) -> PointBounder:
    """The bounds that strategies and pruners probe unless told otherwise."""
    from phaze_opt.objective.evaluate import Objective
    from phaze_opt.search.objective_bounder import ObjectiveBounder

    return ObjectiveBounder(Objective(scenario))


def run_search(
    config: SearchConfig,
    *,
    scenario: Scenario,
    space: SearchSpace,
    observers: Sequence[Observer[SearchEvent]] = (),
    on_progress: OnProgress | None = None,
    objective_factory: ObjectiveFactory = build_objective,
    bounder_factory: BounderFactory | None = build_bounder,
) -> SearchResult:
    """Run a search to its budget, to the end of the space, or until Ctrl-C; what is finished is always returned.

    The same configuration, scenario and space give the same trials, for any number of jobs, and also after an
    interruption and ``resume``: the strategy is replayed, and evaluations come from the journal instead. The best
    trial of a search that came to its end is evaluated again before it is returned. Who calls this names strategy and
    pruner himself, so they may be in a file of his (`plugins.GivenPlugin`).

    Raises:
        PluginError: the strategy is unknown, fails to load, or lacks a package it needs.
        PluginFaultError: code of the strategy or of another plug-in raised an error.
        InputError: an option is wrong, the strategy cannot do the goal, the journal cannot be written, or its best
            trial is not what its point evaluates to.
    """
    started = time.perf_counter()
    check_same_silicon(scenario, space)
    scenario = posed_for(scenario, config.goal)
    strategy = given_plugin(PluginGroup.STRATEGIES, config.strategy)
    config = replace(config, strategy=strategy, pruner=given_plugin(PluginGroup.PRUNERS, config.pruner))
    check_pruner(config.pruner, scenario)
    identity = search_id(config, scenario=scenario, space=space)
    resolved = resolved_config(config, scenario=scenario, space=space)
    bounder = None if bounder_factory is None else cache(partial(bounder_factory, scenario))
    # The journal is opened, and begun anew unless resumed, only once every plug-in has taken its options.
    open_loop = prepare_loop(config, identity, space=space, build_bounder=bounder)
    # What the trials depend on.
    groups = (PluginGroup.STRATEGIES, PluginGroup.PRUNERS, PluginGroup.ESTIMATORS)
    plugins = plugin_origins(tuple(zip(groups, (config.strategy, config.pruner, scenario.estimator), strict=True)))
    directory = config.work_dir / identity
    with keep_journal(directory, start=resolved, is_resumed=config.resume, plugins=plugins) as journal:
        loop = open_loop(log=journal, observers=Observers(observers), on_progress=on_progress)
        plain = {name: getattr(config, name) for name in ("name", "strategy", "seed", "num_trials")}
        goal, is_resumed = config.goal.value, config.resume
        loop.observers.notify(
            SearchStarted(identity, **plain, goal=goal, config=resolved, directory=directory, is_resumed=is_resumed)
        )
        try:
            with (
                kernels_interruptible(),
                open_evaluator(
                    objective_factory, scenario, jobs=config.jobs, batch=config.batch, dask=config.dask
                ) as evaluator,
            ):
                loop.run_to_end(evaluator)
        except KeyboardInterrupt:
            loop.is_interrupted = True
    result = loop.result(wall_s=time.perf_counter() - started)
    if result.best is not None and not result.is_interrupted:
        winner = result.trials[result.best_number]
        with kernels_interruptible():
            confirm_winner(winner, objective_factory(scenario), goal=config.goal, journal=directory / JOURNAL_FILE)
    loop.observers.notify(finished_event(result))
    return result


def prepare_loop(
    config: SearchConfig, identity: str, *, space: SearchSpace, build_bounder: Callable[[], PointBounder] | None
) -> Callable[..., SearchLoop]:
    """Start strategy and pruner; nothing is evaluated or probed yet.

    Args:
        config: how to search.
        identity: names the search in its events.
        space: the points.
        build_bounder: makes what probes look at; None where there is nothing (the strategy then has no probe).

    Returns:
        Makes the loop at its first step, of the ``log`` that knows and records evaluations and whoever is told of them.

    Raises:
        PluginError: a plug-in is unknown, fails to load, or needs a probe where there is none.
        InputError: an option is wrong, or the strategy cannot do the goal.
    """
    strategy = load_strategy(config.strategy)
    check_goal(strategy, config.goal)
    limit = probe_limit(config.num_trials, space.num_chips)
    probe = None
    if build_bounder is not None:
        probe = CountingProbe(build_bounder, config.goal, limit=limit, who=f"strategy '{strategy.name}'")
    context = StrategyContext(
        space=space,
        directions=goal_directions(config.goal),
        num_trials=config.num_trials,
        seed=config.seed,
        options=config.options,
        probe=probe,
    )
    judging, judges = _start_pruner(config, strategy, space=space, build_bounder=build_bounder)
    with plugin_code(PluginGroup.STRATEGIES, config.strategy, passing=(InputError, PluginError)):
        run = strategy.start(context)
    return partial(
        SearchLoop,
        config,
        identity,
        GuardedStrategy(run, config.strategy, space),
        start_points=draw_start_points(space, count=config.num_starts, seed=config.seed),
        judging=judging,
        probes=tuple(known for known in (probe, judges) if known is not None),
    )


def load_strategy(name: str) -> Strategy:
    """The strategy plug-in of a name; samplers of Optuna's kind, and those of its own (``optuna:``), are wrapped.

    Raises:
        PluginError: unknown, fails to load, or is not a strategy.
    """
    if name.startswith(OF_OPTUNA) and not is_of_this_process(PluginGroup.STRATEGIES, name):
        return OptunaStrategy(name)
    plugin = load_plugin(PluginGroup.STRATEGIES, name, partial(wrapped_sampler, name))
    return _checked(plugin, PluginGroup.STRATEGIES, name, Strategy, parts="name, capabilities and start")  # type: ignore[type-abstract]


def check_pruner(pruner: str, scenario: object) -> None:
    """Refuse pruners where bounds do not hold.

    Args:
        pruner: its name; empty for none.
        scenario: of the search; those that are no `Scenario` fuse nothing.

    Raises:
        InputError: they do not.
    """
    from phaze_opt.objective.fusion_bounds import check_has_bounds
    from phaze_opt.objective.scenario import Scenario

    if pruner and isinstance(scenario, Scenario):
        check_has_bounds(scenario)


def load_pruner(name: str) -> Pruner:
    """The pruner plug-in of a name.

    Raises:
        PluginError: unknown, fails to load, or is not a pruner.
    """
    plugin = load_plugin(PluginGroup.PRUNERS, name)
    return _checked(plugin, PluginGroup.PRUNERS, name, Pruner, parts="name, is_safe and start")  # type: ignore[type-abstract]


def _checked(plugin: object, group: PluginGroup, name: str, kind: type[T], *, parts: str) -> T:
    if not isinstance(plugin, kind):
        message = f"{group}: plug-in '{name}' ({type(plugin).__name__}) lacks one of {parts}"
        raise PluginError(message)
    return plugin


def check_goal(strategy: Strategy, goal: Goal) -> None:
    """Refuse a goal that a strategy does not declare itself capable of.

    Raises:
        InputError: it lacks the capability.
    """
    if len(goal_directions(goal)) > 1 and Capability.MULTI_OBJECTIVE not in strategy.capabilities:
        message = (
            f"strategy '{strategy.name}' handles one objective, and the goal '{goal}' has several; "
            "use a multi-objective strategy such as nsga2 or tpe, or another goal"
        )
        raise InputError(message)
    if len(goal_directions(goal)) == 1 and Capability.SINGLE_OBJECTIVE not in strategy.capabilities:
        message = f"strategy '{strategy.name}' handles several objectives only; use the goal '{Goal.PARETO}'"
        raise InputError(message)


def _start_pruner(
    config: SearchConfig, strategy: Strategy, *, space: SearchSpace, build_bounder: Callable[[], PointBounder] | None
) -> tuple[Judging | None, CountingProbe | None]:
    """The pruner's run and its own probe; None if no pruner is asked for."""
    if not config.pruner:
        return None, None
    pruner = load_pruner(config.pruner)
    if build_bounder is None:
        message = f"pruner '{config.pruner}' needs bounds, and this objective has none"
        raise PluginError(message)
    probe = CountingProbe(build_bounder, config.goal, limit=space.size, who=f"pruner '{config.pruner}'")
    context = PrunerContext(
        space=space,
        directions=goal_directions(config.goal),
        probe=probe,
        seed=config.seed,
        options=config.pruner_options,
    )
    with plugin_code(PluginGroup.PRUNERS, config.pruner, passing=(InputError, PluginError)):
        run = pruner.start(context)
    judging = Judging(
        GuardedPruner(run, config.pruner),
        can_ask_ahead=Capability.FIXED_ORDER in strategy.capabilities,
        may_repeat=Capability.EXHAUSTS not in strategy.capabilities,
        is_safe=pruner.is_safe,
    )
    return judging, probe


def draw_start_points(space: SearchSpace, *, count: int, seed: int) -> tuple[DesignPoint, ...]:
    """Distinct kept points to start from, each equally likely; the first ``n`` of a larger draw are the smaller draw.

    Args:
        space: the points.
        count: how many; the whole space at most.
        seed: the only source of randomness.
    """
    rng = np.random.default_rng([seed, _STREAM])
    chosen: dict[int, None] = {}
    while len(chosen) < min(count, space.size):
        chosen.setdefault(int(rng.integers(space.size)))
    return tuple(space.point(index) for index in chosen)


def finished_event(result: SearchResult) -> SearchFinished:
    """The closing event of a result."""
    return SearchFinished(
        search_id=result.search_id,
        best=result.best,
        best_number=result.best_number,
        is_interrupted=result.is_interrupted,
        wall_s=result.wall_s,
        metrics={
            **{name: float(getattr(result, name)) for name in _COUNTS},
            "pareto_front_size": float(len(result.pareto_front)),
        },
    )
