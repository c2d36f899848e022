"""The job of ``search``: the best design that a strategy finds within a budget of evaluations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from phaze_opt.errors import InputError
from phaze_opt.jobs.options import (
    DASK_HELP,
    JOBS_HELP,
    MAX_JOBS,
    MAX_SEED,
    RANGE_HELP,
    BaselineOptions,
    CostOptions,
    ModelOptions,
    RecordOptions,
)
from phaze_opt.jobs.scenario import check_machines, load_scenario, runs_directory
from phaze_opt.objective.scenario_options import Kind, ScenarioOptions, SpaceOptions, declared

if TYPE_CHECKING:
    from pathlib import Path

    from phaze_opt.graph.any_model import AnyModel
    from phaze_opt.hardware.constants import Constants
    from phaze_opt.jobs.evaluate_request import EvaluateRequest
    from phaze_opt.jobs.search_answer import SearchAnswer
    from phaze_opt.jobs.watch import Watch
    from phaze_opt.objective.bill import CostTerms
    from phaze_opt.objective.goals import Goal
    from phaze_opt.objective.scenario import Scenario
    from phaze_opt.search.config import SearchConfig
    from phaze_opt.search.events import Observer, SearchEvent
    from phaze_opt.search.result import SearchResult
    from phaze_opt.space.search_space import SearchSpace

SEARCH = "Search"
_searching = partial(declared, panel=SEARCH)


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchOptions:
    """Strategy, budget and how the work is spread."""

    trials: int = _searching(60, "Evaluations at most.", Kind.COUNT)
    strategy: str = _searching(
        "wham",
        "See `phaze-opt strategies`; also file.py:Class, or optuna:TPESampler.",
        Kind.TEXT,
        values="phaze_opt.strategies",
    )
    strategy_option: tuple[str, ...] = _searching((), "An option of the strategy, NAME=VALUE.", Kind.TEXTS)
    pruner: str = _searching(
        "", "Drops hopeless points before evaluation: critical-path.", Kind.TEXT, values="phaze_opt.pruners"
    )
    pruner_option: tuple[str, ...] = _searching((), "An option of the pruner, NAME=VALUE.", Kind.TEXTS)
    starts: int = _searching(0, "Starting points drawn by the seed, evaluated first.", Kind.COUNT, low=0)
    objective: str = _searching(
        "throughput",
        "throughput, or that _per_tdp, _per_usd or _per_joule; pareto.",
        Kind.WORD,
        enumeration="phaze_opt.objective.goals:Goal",
    )
    seed: int = _searching(0, "The only source of randomness.", Kind.COUNT, low=0, high=MAX_SEED)
    batch: int = _searching(4, "Points asked for at a time, whatever --jobs is.", Kind.COUNT)
    jobs: int = _searching(1, JOBS_HELP, Kind.COUNT, high=MAX_JOBS)
    dask: str = _searching("", DASK_HELP, Kind.TEXT)
    resume: bool = _searching(False, "Continue the same search where it was interrupted.", Kind.SWITCH)
    heterogeneous: bool = _searching(
        False, "Also find the best pipeline of one design per stage, and report its gain.", Kind.SWITCH
    )
    has_own: bool = _searching(
        True, "Of a common design: also search each model's own best chip.", Kind.SWITCH, flag="--own"
    )
    has_range: bool = _searching(True, RANGE_HELP, Kind.SWITCH, flag="--range")


@dataclass(frozen=True, slots=True)
class PosedSearch:
    """What the options come to, all of it checked.

    Attributes:
        scenario, constants: what is trained, on what.
        config: how to search.
        options: what is asked for beside the best design.
        baselines: machines that it is held against.
        work_dir: where certificates and truths of the space may be.
        request: what `evaluate` is asked for the same job, but for the architecture.
    """

    scenario: Scenario
    constants: Constants
    config: SearchConfig
    options: SearchOptions
    baselines: tuple[str, ...]
    work_dir: Path
    request: EvaluateRequest

    def answer(self, space: SearchSpace, observers: Sequence[Observer[SearchEvent]], watch: Watch) -> SearchAnswer:
        """Search a space, and find what is said of the result."""
        from phaze_opt.jobs.machines_beside import JobBeside
        from phaze_opt.jobs.search_answer import find_answer

        result = _run(self.config, self.scenario, space, observers, watch)
        return find_answer(
            result,
            self.config,
            scenario=self.scenario,
            space=space,
            constants=self.constants,
            work_dir=self.work_dir,
            is_heterogeneous=self.options.heterogeneous,
            has_range=self.options.has_range,
            has_own=self.options.has_own,
            job=JobBeside(self.scenario, self.constants, self.request, space.axes.micro_batch),
            baselines=self.baselines,
            watch=watch,
        )

    def unmet_budget(self, space: SearchSpace) -> str:
        """Which budget no design of a space keeps; empty if none is to blame."""
        from phaze_opt.objective.chip_limits import unmet_budget

        return unmet_budget(space, self.scenario, self.constants) or ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchRequest:
    """What a search is asked, and which of the options were given."""

    models: ModelOptions
    options: SearchOptions
    scenario: ScenarioOptions
    space: SpaceOptions
    costs: CostOptions
    beside: BaselineOptions
    records: RecordOptions
    given: frozenset[str] = frozenset()


def pose_search(asked: SearchRequest, loaded: tuple[AnyModel, ...]) -> PosedSearch:
    """Read what the options of a search name; ``loaded`` are the models.

    Raises:
        InputError: one of them breaks a rule.
    """
    from phaze_opt.hardware.constants import load_constants
    from phaze_opt.jobs.machines_beside import job_request

    known, terms, options, records = load_constants(), asked.costs.terms(), asked.options, asked.records
    problem = load_scenario(asked.scenario, loaded, common=asked.models.common, constants=known, space=asked.space)
    names = ",".join(model.name for model in loaded)
    config = _config(options, records, name=f"{names} on {asked.scenario.devices} with {options.strategy}")
    problem = _posed(problem, config.goal, terms)
    constants, baselines = problem.constants_of(known), asked.beside.names
    check_machines(baselines, problem, constants)
    network = asked.scenario.network if "network" in asked.given else None
    request = job_request(loaded, asked.scenario, asked.space, terms, network=network)
    return PosedSearch(problem, constants, config, options, baselines, records.work_dir, request)


def _posed(scenario: Scenario, goal: Goal, terms: CostTerms) -> Scenario:
    """The scenario with what the goal needs; prices of the user's own where a goal or a budget is of money."""
    from phaze_opt.hardware.economics.prices import changed_prices
    from phaze_opt.objective.goals import posed_for

    try:
        posed = posed_for(scenario, goal)
    except InputError as error:
        raise InputError(str(error).removeprefix(f"'{error.key}': "), source="--objective") from None
    is_of_money = posed.prices is not None or posed.max_capex_usd is not None
    return replace(posed, prices=changed_prices(terms.prices)) if is_of_money else posed


def _config(options: SearchOptions, records: RecordOptions, *, name: str) -> SearchConfig:
    """How to search, checked."""
    from phaze_opt.objective.goals import parse_goal
    from phaze_opt.plugins import PluginGroup, given_plugin
    from phaze_opt.search.config import SearchConfig

    return SearchConfig(
        strategy=given_plugin(PluginGroup.STRATEGIES, options.strategy),
        options=_assignments(options.strategy_option, source="--strategy-option"),
        pruner=given_plugin(PluginGroup.PRUNERS, options.pruner),
        pruner_options=_assignments(options.pruner_option, source="--pruner-option"),
        num_starts=options.starts,
        dask=options.dask,
        goal=parse_goal(options.objective, source="--objective"),
        num_trials=options.trials,
        seed=options.seed,
        batch=options.batch,
        jobs=options.jobs,
        work_dir=runs_directory(records.work_dir),
        resume=options.resume,
        name=name,
    )


def _assignments(words: Sequence[str], *, source: str) -> dict[str, str | int | float | bool]:
    """NAME=VALUE pairs, the value read as boolean, integer, number or text."""
    options: dict[str, str | int | float | bool] = {}
    for word in words:
        name, separator, text = word.partition("=")
        if not separator or not name or name in options:
            message = f"'{word}' must be NAME=VALUE, each name once"
            raise InputError(message, source=source)
        options[name] = _read_value(text)
    return options


def _read_value(text: str) -> str | int | float | bool:
    """A boolean, integer or number where the text is one."""
    if text in {"true", "false"}:
        return text == "true"
    for read in (int, float):
        try:
            return read(text)
        except ValueError:
            continue
    return text


def _run(
    config: SearchConfig,
    scenario: Scenario,
    space: SearchSpace,
    observers: Sequence[Observer[SearchEvent]],
    watch: Watch,
) -> SearchResult:
    """Run the search, and say how far it is."""
    from phaze_opt.search.run import run_search

    with watch.progress(f"search with {config.strategy}") as show:
        return run_search(config, scenario=scenario, space=space, observers=observers, on_progress=show)
