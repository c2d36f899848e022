"""The conformance suite of search strategies.

A plug-in author derives a test class and overrides one fixture:

    class TestMine(StrategyConformance):
        @pytest.fixture
        def strategy(self):
            return MyStrategy()

Every test holds for every strategy; what depends on a capability asks the strategy for it.
"""

import copy
import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pytest

from phaze_opt.errors import InputError
from phaze_opt.hardware.chip_template import DesignPoint
from phaze_opt.objective.goals import Goal, goal_directions, goal_values
from phaze_opt.search.options import OptionValue
from phaze_opt.search.run import check_goal
from phaze_opt.search.strategy import Capability, Outcome, Strategy, StrategyContext
from phaze_opt.space.search_space import SearchSpace
from phaze_opt.testing.isolation import assert_imports_cheaply, global_generators, in_spawned_process
from phaze_opt.testing.problems import ToyObjective, ToyScenario, largest_memory_bytes, tiny_space

Judge = Callable[[int, DesignPoint], Outcome]


@dataclass(frozen=True, slots=True)
class ToyJudge:
    """Tells outcomes of the toy objective."""

    goal: Goal = Goal.THROUGHPUT
    scenario: ToyScenario = field(default_factory=ToyScenario)

    def __call__(self, number: int, point: DesignPoint) -> Outcome:
        """The outcome of a trial."""
        evaluation = ToyObjective(self.scenario).evaluate(point)
        return Outcome(number, point, goal_values(self.goal, evaluation), evaluation.constraints)


@dataclass(frozen=True, slots=True)
class AllInfeasible:
    """Every point breaks something: always the same, a named constraint, or a different one each time."""

    names: tuple[str, ...]

    def __call__(self, number: int, point: DesignPoint) -> Outcome:
        """An outcome without values."""
        constraints = ((self.names[number % len(self.names)], 0.5 + number % 3),) if self.names else ()
        return Outcome(number, point, (), constraints)


def propose(strategy: Strategy, context: StrategyContext, *, judge: Judge, batch: int = 4) -> tuple[DesignPoint, ...]:
    """The points that a run proposes until its budget or the space is spent."""
    run = strategy.start(context)
    points: list[DesignPoint] = []
    while len(points) < context.num_trials:
        asked = tuple(run.ask(min(batch, context.num_trials - len(points))))
        if not asked:
            break
        run.tell([judge(len(points) + position, point) for position, point in enumerate(asked)])
        points.extend(asked)
    return tuple(points)


def assert_all_kept(space: SearchSpace, points: Sequence[DesignPoint]) -> None:
    """Every point is one of the space.

    Raises:
        AssertionError: one is not, with its fields.
    """
    strange = [point for point in points if not space.contains(point)]
    assert not strange, f"{len(strange)} proposals are not in the space, first {strange[0]}"


class StrategyConformance:
    """Tests that every strategy passes; override `strategy`, and `num_trials` if yours is slow."""

    num_trials = 24

    @pytest.fixture
    def strategy(self) -> Strategy:
        """The strategy under test."""
        raise NotImplementedError

    @pytest.fixture
    def space(self) -> SearchSpace:
        """A small space."""
        return tiny_space()

    def context(
        self,
        space: SearchSpace,
        *,
        seed: int = 7,
        goal: Goal = Goal.THROUGHPUT,
        options: Mapping[str, OptionValue] | None = None,
    ) -> StrategyContext:
        """What a run starts from."""
        return StrategyContext(
            space=space, directions=goal_directions(goal), num_trials=self.num_trials, seed=seed, options=options or {}
        )

    def goal_of(self, strategy: Strategy) -> Goal:
        """A goal that the strategy can search for."""
        return Goal.THROUGHPUT if Capability.SINGLE_OBJECTIVE in strategy.capabilities else Goal.PARETO

    def propose(
        self, strategy: Strategy, space: SearchSpace, *, seed: int = 7, judge: Judge | None = None, batch: int = 4
    ) -> tuple[DesignPoint, ...]:
        """A run on the toy objective, or told outcomes by another judge."""
        goal = self.goal_of(strategy)
        context = self.context(space, seed=seed, goal=goal)
        return propose(strategy, context, judge=judge or ToyJudge(goal), batch=batch)

    def test_declares_itself(self, strategy: Strategy) -> None:
        """It has a name and says which objectives it can search for."""
        assert isinstance(strategy, Strategy)
        assert strategy.name
        assert all(isinstance(capability, Capability) for capability in strategy.capabilities)
        assert strategy.capabilities & {Capability.SINGLE_OBJECTIVE, Capability.MULTI_OBJECTIVE}

    def test_pickles(self, strategy: Strategy, space: SearchSpace) -> None:
        """A copy by pickle proposes the same."""
        twin = pickle.loads(pickle.dumps(strategy))
        assert twin.name == strategy.name
        assert twin.capabilities == strategy.capabilities
        assert self.propose(twin, space) == self.propose(strategy, space)

    def test_imports_cheaply(self, strategy: Strategy) -> None:
        """Importing its module pulls in no heavy package."""
        assert_imports_cheaply(strategy)

    def test_same_seed_same_proposals(self, strategy: Strategy, space: SearchSpace) -> None:
        """Two runs of one strategy value do not influence one another."""
        assert self.propose(strategy, space) == self.propose(strategy, space)

    def test_same_proposals_in_a_spawned_process(self, strategy: Strategy, space: SearchSpace) -> None:
        """Nothing depends on this process: hash seed, import order, global generators."""
        goal = self.goal_of(strategy)
        context = self.context(space, goal=goal)
        here = propose(strategy, context, judge=ToyJudge(goal))
        assert in_spawned_process(propose, strategy, context, judge=ToyJudge(goal)) == here

    def test_leaves_global_generators_alone(self, strategy: Strategy, space: SearchSpace) -> None:
        """The seed is the only source of randomness, and nobody else's randomness is disturbed."""
        self.propose(strategy, space)  # libraries are imported at the first use, and scikit-learn's import draws
        before = global_generators()
        self.propose(strategy, space)
        assert global_generators() == before

    def test_every_proposal_is_in_the_space(self, strategy: Strategy, space: SearchSpace) -> None:
        """Each is a kept point, and no ask gives more than asked for."""
        for seed in (0, 1, 2**32 - 1):
            points = self.propose(strategy, space, seed=seed)
            assert 0 < len(points) <= self.num_trials
            assert_all_kept(space, points)
        run = strategy.start(self.context(space, goal=self.goal_of(strategy)))
        assert 1 <= len(run.ask(3)) <= 3

    def test_large_batch(self, strategy: Strategy, space: SearchSpace) -> None:
        """One ask for the whole budget works."""
        points = self.propose(strategy, space, batch=self.num_trials)
        assert points
        assert_all_kept(space, points)

    @pytest.mark.parametrize("names", [(), ("area",), ("area", "memory", "tdp")])
    def test_goes_on_when_everything_is_infeasible(
        self, strategy: Strategy, space: SearchSpace, names: tuple[str, ...]
    ) -> None:
        """It is told no value at all, and constraints that differ from trial to trial."""
        points = self.propose(strategy, space, judge=AllInfeasible(names))
        self.assert_budget_filled(strategy, points, space)
        assert_all_kept(space, points)

    def test_constrained_space(self, strategy: Strategy, space: SearchSpace) -> None:
        """Feasible and infeasible outcomes mix, and which constraints they name changes."""
        scenario = ToyScenario(max_macs=1 << 15, min_memory_bytes=largest_memory_bytes(space))
        points = self.propose(strategy, space, judge=ToyJudge(self.goal_of(strategy), scenario))
        self.assert_budget_filled(strategy, points, space)
        assert_all_kept(space, points)

    def test_resumes_by_replay(self, strategy: Strategy, space: SearchSpace) -> None:
        """Told again what an interrupted run was told, a new run goes on as the old one would have."""
        recorded: dict[int, Outcome] = {}
        judge = ToyJudge(self.goal_of(strategy))

        def record(number: int, point: DesignPoint) -> Outcome:
            recorded[number] = judge(number, point)
            return recorded[number]

        whole = self.propose(strategy, space, judge=record)
        half = {number: outcome for number, outcome in recorded.items() if number < len(whole) // 2}

        def replay(number: int, point: DesignPoint) -> Outcome:
            outcome = half.get(number)
            assert outcome is None or outcome.point == point
            return outcome or judge(number, point)

        assert self.propose(strategy, space, judge=replay) == whole

    def test_hears_of_starting_points_and_of_pruned_points(self, strategy: Strategy, space: SearchSpace) -> None:
        """Told points before its first ask, and later of dropped ones their bound alone, it goes on proposing."""
        goal = self.goal_of(strategy)
        run, judge = strategy.start(self.context(space, goal=goal)), ToyJudge(goal)
        starts = [space.point(0), space.point(space.size // 2)]
        run.tell([judge(number, point) for number, point in enumerate(starts)])
        seen = set(starts)
        for number in range(len(starts), self.num_trials // 2):
            asked = tuple(run.ask(2))
            assert asked
            assert_all_kept(space, asked)
            assert Capability.EXHAUSTS not in strategy.capabilities or seen.isdisjoint(asked)
            seen.update(asked)
            first, *others = asked
            dropped = [replace(judge(-1, point), constraints=(), is_pruned=True) for point in others]
            run.tell([judge(number, first), *dropped])

    def test_exhausts_the_space(self, strategy: Strategy, space: SearchSpace) -> None:
        """If it declares so, it proposes each point once and then nothing; otherwise it fills any budget.

        One that declares STOPS_EARLY may end before that.
        """
        goal = self.goal_of(strategy)
        stops_early = Capability.STOPS_EARLY in strategy.capabilities
        if Capability.EXHAUSTS not in strategy.capabilities:
            self.assert_budget_filled(strategy, self.propose(strategy, space), space)
            return
        context = replace(self.context(space, goal=goal), num_trials=space.size + 5)
        points = propose(strategy, context, judge=ToyJudge(goal))
        assert len(set(points)) == len(points)
        assert stops_early or sorted(points) == sorted(space.points())

    def assert_budget_filled(self, strategy: Strategy, points: Sequence[DesignPoint], space: SearchSpace) -> None:
        """As many points as granted (or as there are, if it exhausts the space); fewer only if it may stop early.

        Raises:
            AssertionError: it gave up.
        """
        assert points
        if Capability.STOPS_EARLY not in strategy.capabilities:
            exhausts = Capability.EXHAUSTS in strategy.capabilities
            assert len(points) == (min(self.num_trials, space.size) if exhausts else self.num_trials)

    def test_several_objectives(self, strategy: Strategy, space: SearchSpace) -> None:
        """It searches for the Pareto front, or a search that asks it to is refused in one sentence."""
        if Capability.MULTI_OBJECTIVE not in strategy.capabilities:
            with pytest.raises(InputError, match=strategy.name):
                check_goal(strategy, Goal.PARETO)
            return
        points = propose(strategy, self.context(space, goal=Goal.PARETO), judge=ToyJudge(Goal.PARETO))
        assert points
        assert_all_kept(space, points)

    def test_inputs_are_not_changed(self, strategy: Strategy, space: SearchSpace) -> None:
        """Space, options and outcomes are as before."""
        options: dict[str, OptionValue] = {}
        goal = self.goal_of(strategy)
        context = self.context(space, goal=goal, options=options)
        before = pickle.dumps(space)
        told: list[Outcome] = []
        copies: list[Outcome] = []
        judge = ToyJudge(goal)

        def note(number: int, point: DesignPoint) -> Outcome:
            told.append(judge(number, point))
            copies.append(copy.deepcopy(told[-1]))
            return told[-1]

        propose(strategy, context, judge=note)
        assert pickle.dumps(space) == before
        assert options == {}
        assert told == copies

    def test_unknown_option_is_refused(self, strategy: Strategy, space: SearchSpace) -> None:
        """A misspelt option is an error that names it, never silently ignored."""
        context = self.context(space, goal=self.goal_of(strategy), options={"no_such_option": 1})
        with pytest.raises(InputError, match="no_such_option"):
            strategy.start(context)
