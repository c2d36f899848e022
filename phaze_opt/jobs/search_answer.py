"""The answer of a search: its result, and what it is held against and explained by."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from phaze_opt.hardware.chip_template import DesignPoint
from phaze_opt.hardware.constants import Constants
from phaze_opt.jobs.machines_beside import ChipBeside, JobBeside, bills_in
from phaze_opt.jobs.watch import Watch
from phaze_opt.objective.bill import Bill
from phaze_opt.objective.caveats import Note, notes_about
from phaze_opt.objective.evaluate import Objective
from phaze_opt.objective.evaluation import Evaluation
from phaze_opt.objective.goals import PARETO_AXES, FrontAxis, goal_directions, goal_values, problem_digest
from phaze_opt.objective.headline_range import HeadlineRange, fusion_words, range_of_point
from phaze_opt.objective.heterogeneous import HeterogeneousEvaluation, evaluate_heterogeneous
from phaze_opt.objective.least_within import (
    FrontMember,
    LeastDesign,
    LeastOf,
    ValuedDesign,
    amounts_of,
    least_among,
    ranges_of,
)
from phaze_opt.objective.reference_machines import evaluate_experts
from phaze_opt.objective.scenario import Scenario
from phaze_opt.search.config import SearchConfig
from phaze_opt.search.result import OwnBest, SearchResult, Trial, rank
from phaze_opt.search.run import run_search
from phaze_opt.space.search_space import SearchSpace
from phaze_opt.study.directory import truths_directory
from phaze_opt.study.judging.scoring import front_regret
from phaze_opt.study.result import Truth
from phaze_opt.study.truth import certificates_directory, contradiction, known_truth

_PASSES = ("forward", "backward")
DEFAULT_TOP_K = 6
"""Best designs of a search that stages may choose from, beside the tops of every layer kind."""


def heterogeneous_of_search(
    result: SearchResult, objective: Objective, *, top_k: int = DEFAULT_TOP_K
) -> HeterogeneousEvaluation | None:
    """The fastest pipeline of one design for every stage among the designs that a search evaluated.

    Args:
        result: of `search.run.run_search`.
        objective: of the same scenario, with one model.
        top_k: best designs that stages may choose from.

    Returns:
        None if the search found nothing feasible.

    Raises:
        InputError: the scenario has several models.
    """
    points = candidate_points(result.trials, top_k=top_k)
    return evaluate_heterogeneous(objective, points) if points else None


def candidate_points(records: Sequence[Trial[Evaluation]], *, top_k: int = DEFAULT_TOP_K) -> tuple[DesignPoint, ...]:
    """The best designs, those of least power among them, and the fastest for every layer kind; no architecture twice.

    All have the links of the best, as one network joins the stages. The last are ranked by device seconds a sample of
    the layer's forward and backward pass; of equals the one of least TDP: a stage that is not the slowest can do with
    less.
    """
    feasible = sorted((record for record in records if record.values and not record.is_repeat), key=rank)
    feasible = [one for one in feasible if one.point.link_bytes_per_s == feasible[0].point.link_bytes_per_s]
    chosen: dict[DesignPoint, DesignPoint] = {}

    def choose(record: Trial[Evaluation]) -> None:
        chosen.setdefault(replace(record.point, micro_batch=1), record.point)

    for record in feasible:
        if len(chosen) < top_k:
            choose(record)
    for layer in sorted({schedule.layer for record in feasible for schedule in record.evaluation.schedules}):
        choose(min(feasible, key=lambda record: (_device_seconds(record, layer), record.evaluation.tdp_w)))
    if feasible:
        choose(max(feasible, key=lambda record: (record.evaluation.throughput_per_tdp, -record.number)))
    return tuple(chosen.values())


def _device_seconds(record: Trial[Evaluation], layer: str) -> float:
    """Forward and backward of one layer on all devices of a stage, a sample, s; infinite if it is not scheduled."""
    evaluation = record.evaluation
    own = [item for item in evaluation.schedules if item.layer == layer]
    passes = [item.makespan_s for item in own if item.phase in _PASSES]
    placement = evaluation.placement
    if not passes or placement is None:
        return float("inf")
    context = 1 if placement.plan is None else placement.plan.context
    return sum(passes) * placement.tensor_parallel * context / evaluation.micro_batch


@dataclass(frozen=True, slots=True)
class SearchAnswer:
    """A search and what is said of it.

    Attributes:
        result, config: of the search.
        scenario: what was trained.
        space: that was searched.
        experts: hand placements of the same scenario, at the space's micro-batches.
        optimum: the best value of the space, if anything in the working directory knows it.
        pipeline: the best one of one design per stage, if asked for.
        notes: what the best design's numbers hang on.
        beside: the best design, then the machines that it is held against and the references; empty if there is none.
        own: for each model of a common design its own best chip; empty where it was not asked for.
        headline: the range of the best design's figure; None if it was not asked for, or nothing is feasible.
        least: the smallest, coolest and cheapest of its designs near the best; empty with several objectives.
        amounts: what the best design takes; empty where nothing is feasible.
        num_held: machines that it is held against in words; they are the first.
        later_s: what was found of the best design after the search, and how long it took.
        ranges: of the fastest design of a front and of its knee, by trial.
    """

    result: SearchResult
    config: SearchConfig
    scenario: Scenario
    space: SearchSpace
    experts: Mapping[str, Evaluation]
    optimum: Truth | None
    pipeline: HeterogeneousEvaluation | None
    notes: Sequence[Note]
    headline: HeadlineRange | None
    beside: tuple[ChipBeside, ...] = ()
    own: tuple[OwnBest, ...] = ()
    least: tuple[LeastDesign, ...] = ()
    amounts: Mapping[LeastOf, float] = field(default_factory=dict)
    num_held: int = 0
    later_s: Mapping[str, float] = field(default_factory=dict)
    ranges: Mapping[int, HeadlineRange] = field(default_factory=dict)

    @property
    def held(self) -> tuple[ChipBeside, ...]:
        """The machines that the best design is held against in words."""
        return self.beside[1 : 1 + self.num_held]

    @property
    def references(self) -> dict[str, Evaluation]:
        """All machines, then hand placements, by name."""
        return {**{each.name: each.evaluation for each in self.beside[1:]}, **self.experts}

    @property
    def bills(self) -> dict[str, Bill]:
        """What the best design and the machines cost, where that is known."""
        return bills_in(self.beside)

    @property
    def front(self) -> tuple[FrontMember, ...]:
        """The designs on the front that was found, by trial; none where there is one goal."""
        return _front_of(self.result, self.config)

    @property
    def regret(self) -> float | None:
        """Relative regret of the best design, or the share of a front's hypervolume missed; never negative.

        None where nothing is known or nothing was found.
        """
        if self.result.best is None or self.optimum is None:
            return None
        if self.optimum.front:
            found = [trial.values for trial in self.result.pareto_front]
            return front_regret(self.config.goal, found, self.optimum.front)
        return max(0.0, 1.0 - self.result.trials[self.result.best_number].values[0] / self.optimum.value)


def find_answer(
    result: SearchResult,
    config: SearchConfig,
    *,
    scenario: Scenario,
    space: SearchSpace,
    constants: Constants,
    work_dir: Path,
    is_heterogeneous: bool,
    has_range: bool,
    has_own: bool,
    job: JobBeside,
    baselines: tuple[str, ...],
    watch: Watch,
) -> SearchAnswer:
    """Everything that is printed and recorded of a search."""
    later_s: dict[str, float] = {}
    is_found = result.best is not None
    with _timed(later_s, "a design for each stage", is_asked=is_heterogeneous and is_found):
        pipeline = _find_pipeline(result, scenario, watch) if is_heterogeneous and is_found else None
    with _timed(later_s, "the range", is_asked=has_range and is_found):
        ranges = _find_ranges(result, config, scenario, constants, watch) if has_range and is_found else {}
        headline = ranges.get(result.best_number)
    assert job.request.costs is not None
    prices = job.request.costs.prices
    with watch.working("pricing the machines beside it"):
        beside, num_held = job.beside(result.best, baselines, watch)
    answer = SearchAnswer(
        result=result,
        config=config,
        scenario=scenario,
        space=space,
        experts=evaluate_experts(scenario, space.axes.micro_batch, constants=constants) if is_found else {},
        optimum=None,
        pipeline=pipeline,
        notes=_find_notes(result, scenario, constants, space),
        headline=headline,
        beside=beside,
        amounts={} if result.best is None else amounts_of(result.best, scenario, constants, prices),
        num_held=num_held,
        later_s=later_s,
        ranges=ranges,
        least=_find_least(result, config, scenario, constants, prices),
    )
    own = _find_own(answer, watch) if has_own and not result.is_interrupted else ()
    return replace(answer, optimum=_find_optimum(answer, constants, work_dir, watch), own=own)


def _find_notes(result: SearchResult, scenario: Scenario, constants: Constants, space: SearchSpace) -> tuple[Note, ...]:
    """What the best design's numbers hang on, and what groups of its layers gain."""
    notes = notes_about(result.best, scenario=scenario, constants=constants, space=space)
    gain = fusion_words(result.best, Objective(scenario, constants=constants))
    return (*notes, Note("layer_fusion", gain)) if gain else notes


def _find_least(
    result: SearchResult, config: SearchConfig, scenario: Scenario, constants: Constants, prices: Constants
) -> tuple[LeastDesign, ...]:
    """The least of the designs that the search evaluated."""
    if result.best is None or len(goal_directions(config.goal)) > 1:
        return ()
    designs = [ValuedDesign(trial.point, trial.values[0], trial.evaluation) for trial in result.trials if trial.values]
    return least_among(designs, result.trials[result.best_number].values[0], scenario, constants, prices)


@contextmanager
def _timed(later_s: dict[str, float], name: str, *, is_asked: bool) -> Iterator[None]:
    """Note how long something took that was asked for."""
    started = time.perf_counter()
    yield
    if is_asked:
        later_s[name] = time.perf_counter() - started


def _find_own(answer: SearchAnswer, watch: Watch) -> tuple[OwnBest, ...]:
    """The best chip of each model of a common design: by the same search for it alone, or met on the way.

    Nothing of one model, of several objectives, or where no design is feasible; after Ctrl-C those that are finished.
    """
    result, goal = answer.result, answer.config.goal
    if result.best is None or len(answer.scenario.models) == 1 or len(goal_directions(goal)) > 1:
        return ()
    found: list[OwnBest] = []
    for index, (model, common) in enumerate(zip(answer.scenario.models, result.best.members, strict=True)):
        config = replace(answer.config, name=f"{answer.config.name}, {model.name} alone")
        with watch.working(f"searching the best chip of {model.name} alone"):
            alone = run_search(config, scenario=replace(answer.scenario, models=(model,)), space=answer.space)
        if alone.is_interrupted:
            return tuple(found)
        met = [
            (trial.point, trial.evaluation.members[index]) for trial in result.trials if trial.evaluation.is_feasible
        ]
        if alone.best is not None:
            met.append((alone.trials[alone.best_number].point, alone.best))
        point, own = max(met, key=lambda each: goal_values(goal, each[1])[0])
        share = goal_values(goal, common)[0] / goal_values(goal, own)[0]
        found.append(OwnBest(common, point, own, share, alone.wall_s))
    return tuple(found)


def _find_optimum(answer: SearchAnswer, constants: Constants, work_dir: Path, watch: Watch) -> Truth | None:
    """The best value of the space, if a study or a certificate in the working directory has it.

    A search may do better than a certificate's incumbent within the certificate's gap: then its value is the best, and
    the gap what the certificate leaves above it. The optimum's own point is evaluated, unless a trial did. A search
    that does better than the gap allows, or a point that is worth less than it is said to be, shows that the truth is
    wrong: a line on standard error says so, and nothing counts as known.
    """
    result, scenario, goal = answer.result, answer.scenario, answer.config.goal
    digest = problem_digest(scenario, constants, space=answer.space, goal=goal)
    record = known_truth(digest, cache_dir=truths_directory(work_dir), certificates=certificates_directory(work_dir))
    truth = None if record is None else record.truth
    if truth is None or result.best is None:
        return truth
    best = result.trials[result.best_number]
    fault = ""
    if replace(truth, value=best.values[0]).is_above(truth):
        allowed = truth.value * (1.0 + truth.gap)
        fault = (
            f"the best design attains {best.values[0]:.6g}, more than the {truth.kind.value} optimum of this space "
            f"allows ({allowed:.6g})"
        )
    if not fault:
        found = next((trial.evaluation for trial in result.trials if trial.point == truth.point), None)
        found = found or Objective(scenario, constants=constants).evaluate(truth.point)
        fault = contradiction(truth, goal, found)
    if fault:
        watch.say(f"{fault}: that optimum is wrong and counts for nothing", is_warning=True)
        return None
    return truth if truth.front or best.values[0] <= truth.value else truth.raised_to(best.values[0], best.point)


def _find_ranges(
    result: SearchResult, config: SearchConfig, scenario: Scenario, constants: Constants, watch: Watch
) -> Mapping[int, HeadlineRange]:
    """The range of the best design's throughput, by its trial; of a front that of its knee too."""
    assert result.best is not None
    objective, best = Objective(scenario, constants=constants), result.best_number
    with watch.working("pricing the design under each doubt"):
        front = _front_of(result, config)
        found = dict(ranges_of(front, PARETO_AXES, objective)) if front else {}
        if best not in found:
            found[best] = range_of_point(objective, result.trials[best].point, result.best)
        return found


def _front_of(result: SearchResult, config: SearchConfig) -> tuple[FrontMember, ...]:
    """The designs on a front, by trial; none where there is one goal."""
    if len(goal_directions(config.goal)) == 1:
        return ()
    return tuple(
        FrontMember(
            trial.number,
            trial.point,
            trial.evaluation.throughput_samples_per_s,
            {FrontAxis.AREA: trial.evaluation.area_mm2, FrontAxis.TDP: trial.evaluation.tdp_w},
        )
        for trial in result.pareto_front
    )


def _find_pipeline(result: SearchResult, scenario: Scenario, watch: Watch) -> HeterogeneousEvaluation | None:
    """The best pipeline of one design per stage among the designs of a search; None if none fits."""
    with watch.working("planning one design per stage"):
        return heterogeneous_of_search(result, Objective(scenario))
