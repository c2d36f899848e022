"""The ask-and-tell loop: one strategy, one scenario, one space, one result."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from phaze_opt.errors import InputError, PluginError
from phaze_opt.objective.evaluation import Evaluation
from phaze_opt.plugins import PluginGroup, load_plugin
from phaze_opt.search.config import SearchConfig, resolved_config, search_id
from phaze_opt.search.evaluators import Evaluator, ObjectiveFactory, PendingEvaluation, PointObjective, open_evaluator
from phaze_opt.search.events import SearchFinished, SearchObserver, SearchStarted, TrialFinished
from phaze_opt.search.goals import front_indices, goal_directions, goal_values
from phaze_opt.search.journal import Journal, open_journal
from phaze_opt.search.observers import Observers
from phaze_opt.search.result import SearchProgress, SearchResult, TrialRecord, rank
from phaze_opt.search.strategy import Capability, Goal, Outcome, Strategy, StrategyContext, StrategyRun
from phaze_opt.space.point import DesignPoint
from phaze_opt.space.search_space import SearchSpace

if TYPE_CHECKING:
    from phaze_opt.objective.scenario import Scenario


def build_objective(scenario: Scenario) -> PointObjective:
    """The objective that a search evaluates unless told otherwise."""
    from phaze_opt.objective.evaluate import Objective

    return Objective(scenario)


def run_search(
    config: SearchConfig,
    *,
    scenario: Scenario,
    space: SearchSpace,
    observers: Sequence[SearchObserver] = (),
    on_progress: Callable[[SearchProgress], None] | None = None,
    objective_factory: ObjectiveFactory = build_objective,
) -> SearchResult:
    """Run a search to its budget, to the end of the space, or until Ctrl-C; what is finished is always returned.

    The same configuration, scenario and space give the same trials, for any number of jobs, and also after an
    interruption and ``resume``: the strategy is replayed, and evaluations come from the journal instead.

    Raises:
        PluginError: the strategy is unknown, fails to load, or lacks a package it needs.
        InputError: an option is wrong, the strategy cannot do the goal, or the journal cannot be written.
    """
    started = time.perf_counter()
    run = _start_strategy(config, space)
    identity = search_id(config, scenario=scenario, space=space)
    resolved = resolved_config(config, scenario=scenario, space=space)
    journal = open_journal(config.work_dir / identity, header=resolved, is_resumed=config.resume)
    loop = SearchLoop(config, identity, run, journal=journal, observers=Observers(observers), on_progress=on_progress)
    loop.observers.notify(
        SearchStarted(
            search_id=identity,
            name=config.name,
            strategy=config.strategy,
            goal=config.goal.value,
            seed=config.seed,
            num_trials=config.num_trials,
            config=resolved,
        )
    )
    try:
        with open_evaluator(objective_factory, scenario, jobs=config.jobs, batch=config.batch) as evaluator:
            loop.run_to_end(evaluator)
    except KeyboardInterrupt:
        loop.is_interrupted = True
    finally:
        journal.close()
    result = loop.result(wall_s=time.perf_counter() - started)
    loop.observers.notify(_finished(result))
    return result


def load_strategy(name: str) -> Strategy:
    """The strategy plug-in of a name.

    Raises:
        PluginError: unknown, fails to load, or is not a strategy.
    """
    strategy = load_plugin(PluginGroup.STRATEGIES, name)
    if not isinstance(strategy, Strategy):
        kind = type(strategy).__name__
        message = f"{PluginGroup.STRATEGIES}: plug-in '{name}' ({kind}) lacks one of name, capabilities and start"
        raise PluginError(message)
    return strategy


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


def _start_strategy(config: SearchConfig, space: SearchSpace) -> StrategyRun:
    """The run of the configured strategy, if it can do what is asked."""
    strategy = load_strategy(config.strategy)
    check_goal(strategy, config.goal)
    context = StrategyContext(
        space=space,
        directions=goal_directions(config.goal),
        num_trials=config.num_trials,
        seed=config.seed,
        options=config.options,
    )
    return strategy.start(context)


@dataclass(slots=True)
class SearchLoop:
    """The state of a running search.

    Attributes:
        config: how to search.
        search_id: its identity.
        run: the strategy's run.
        journal: finished trials of this and earlier runs.
        observers: told of every trial in order.
        on_progress: called after every trial.
        records: finished trials by number.
        is_interrupted: ended by Ctrl-C.
        is_exhausted: the strategy proposed nothing more.
    """

    config: SearchConfig
    search_id: str
    run: StrategyRun
    journal: Journal
    observers: Observers
    on_progress: Callable[[SearchProgress], None] | None = None
    records: list[TrialRecord] = field(default_factory=list)
    is_interrupted: bool = False
    is_exhausted: bool = False
    _known: dict[DesignPoint, Evaluation] = field(default_factory=dict)
    _best: TrialRecord | None = None

    def run_to_end(self, evaluator: Evaluator) -> None:
        """Ask, evaluate and tell, batch by batch."""
        num_asked = 0
        while num_asked < self.config.num_trials:
            count = min(self.config.batch, self.config.num_trials - num_asked)
            points = tuple(self.run.ask(count))[:count]
            if not points:
                self.is_exhausted = True
                return
            outcomes = self._evaluate(evaluator, points, first=num_asked)
            num_asked += len(points)
            self.run.tell(outcomes)

    def _evaluate(self, evaluator: Evaluator, points: tuple[DesignPoint, ...], *, first: int) -> list[Outcome]:
        """Evaluate a batch and record its trials in order; on Ctrl-C also those that others had finished."""
        new = [p for p in dict.fromkeys(points) if p not in self._known and p not in self.journal.entries]
        pending = dict(zip(new, evaluator.submit(new), strict=True)) if new else {}
        try:
            for number, point in enumerate(points, start=first):
                self._record(number, point, pending)
        except KeyboardInterrupt:
            for number, point in enumerate(points[len(self.records) - first :], start=len(self.records)):
                if point in self._known or point in self.journal.entries or pending[point].is_done:
                    self._record(number, point, pending)
            raise
        return [
            Outcome(record.number, record.point, record.values, record.evaluation.constraints)
            for record in self.records[first:]
        ]

    def _record(self, number: int, point: DesignPoint, pending: dict[DesignPoint, PendingEvaluation]) -> None:
        """Finish one trial: journal, list, observers, progress."""
        is_repeat = point in self._known
        if is_repeat:
            evaluation, wall_s = self._known[point], 0.0
        elif point in self.journal.entries:
            entry = self.journal.entries[point]
            evaluation, wall_s = entry.evaluation, entry.wall_s
        else:
            evaluation, wall_s = pending[point].result()
        record = TrialRecord(
            number=number,
            point=point,
            evaluation=evaluation,
            values=goal_values(self.config.goal, evaluation),
            wall_s=wall_s,
            is_repeat=is_repeat,
            is_resumed=(number, point) in self.journal.trials,
        )
        # The journal first: a Ctrl-C between these lines then costs no finished evaluation.
        self.journal.append(record)
        self.records.append(record)
        self._known[point] = evaluation
        if record.values and (self._best is None or rank(record) < rank(self._best)):
            self._best = record
        self._announce(record)

    def _announce(self, record: TrialRecord) -> None:
        """Tell observers and the progress display of a trial."""
        self.observers.notify(
            TrialFinished(
                search_id=self.search_id,
                number=record.number,
                point=record.point,
                evaluation=record.evaluation,
                values=record.values,
                wall_s=record.wall_s,
                is_repeat=record.is_repeat,
                is_resumed=record.is_resumed,
            )
        )
        if self.on_progress is not None:
            self.on_progress(SearchProgress(len(self.records), self.config.num_trials, record, self._best))

    def result(self, *, wall_s: float) -> SearchResult:
        """What stands now."""
        efforts = [evaluation.effort for evaluation in self._known.values()]
        return SearchResult(
            search_id=self.search_id,
            best=None if self._best is None else self._best.evaluation,
            best_number=-1 if self._best is None else self._best.number,
            pareto_front=self._front(),
            evaluations=len(self.records),
            distinct_evaluations=len(self._known),
            probes=int(getattr(self.run, "num_probes", 0)),
            ilp_solves=sum(effort.num_ilp_solves for effort in efforts),
            placements=sum(effort.num_placements for effort in efforts),
            pruned=int(getattr(self.run, "num_pruned", 0)),
            wall_s=wall_s,
            is_interrupted=self.is_interrupted,
            is_exhausted=self.is_exhausted,
            trials=tuple(self.records),
        )

    def _front(self) -> tuple[TrialRecord, ...]:
        """Non-dominated feasible trials, largest first objective first."""
        feasible = [record for record in self.records if record.values and not record.is_repeat]
        rows = front_indices([record.values for record in feasible], goal_directions(self.config.goal))
        return tuple(sorted((feasible[row] for row in rows), key=lambda record: -record.values[0]))


def _finished(result: SearchResult) -> SearchFinished:
    """The closing event of a result."""
    return SearchFinished(
        search_id=result.search_id,
        best=result.best,
        best_number=result.best_number,
        is_interrupted=result.is_interrupted,
        wall_s=result.wall_s,
        metrics={
            "evaluations": float(result.evaluations),
            "distinct_evaluations": float(result.distinct_evaluations),
            "probes": float(result.probes),
            "ilp_solves": float(result.ilp_solves),
            "placements": float(result.placements),
            "pruned": float(result.pruned),
            "pareto_front_size": float(len(result.pareto_front)),
        },
    )
