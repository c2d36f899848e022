"""The conformance suite of pruners.

A plug-in author derives a test class and overrides one fixture:

    class TestMine(PrunerConformance):
        @pytest.fixture
        def pruner(self):
            return MyPruner()

A pruner that declares itself safe must never drop the optimum of an enumerated space, nor a point of its Pareto front;
what one that does not loses is measured, and reported as the property ``loss`` of the test.
"""

import copy
import pickle
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import pytest

from phaze_opt.errors import InputError
from phaze_opt.hardware.chip_template import DesignPoint
from phaze_opt.objective.goals import Goal, front_indices, goal_directions, goal_values
from phaze_opt.search.options import OptionValue
from phaze_opt.search.probe import CountingProbe
from phaze_opt.search.pruner import Pruner, PrunerContext, Verdict
from phaze_opt.space.search_space import SearchSpace
from phaze_opt.testing.isolation import assert_imports_cheaply, global_generators, in_spawned_process
from phaze_opt.testing.problems import TOY_GOALS, ToyBounder, ToyObjective, ToyScenario, tiny_space


@dataclass(frozen=True, slots=True)
class PrunedSweep:
    """A space enumerated with a pruner.

    Attributes:
        front: non-dominated values among what was evaluated; one row for a single objective.
        num_evaluated, num_pruned: points.
    """

    front: tuple[tuple[float, ...], ...]
    num_evaluated: int
    num_pruned: int


def prune_sweep(
    pruner: Pruner,
    context: PrunerContext,
    *,
    points: Sequence[DesignPoint],
    values: Callable[[DesignPoint], tuple[float, ...]],
    batch: int = 16,
) -> PrunedSweep:
    """Go through points in their order, a batch at a time, evaluating what the pruner keeps.

    Args:
        pruner: under test.
        context: what it starts from.
        points: all of them.
        values: objectives of a point; empty if it is infeasible.
        batch: points judged at a time.

    Raises:
        AssertionError: the number of verdicts is not that of the points.
    """
    run = pruner.start(context)
    front: tuple[tuple[float, ...], ...] = ()
    num_evaluated = 0
    for start in range(0, len(points), batch):
        asked = points[start : start + batch]
        verdicts = run.judge(asked, front)
        assert len(verdicts) == len(asked), f"{len(verdicts)} verdicts on {len(asked)} points"
        kept = [point for point, verdict in zip(asked, verdicts, strict=True) if not verdict.is_pruned]
        num_evaluated += len(kept)
        rows = (*front, *(row for row in map(values, kept) if row))
        front = tuple(rows[index] for index in front_indices(rows, context.directions))
    return PrunedSweep(front, num_evaluated, len(points) - num_evaluated)


def toy_values(goal: Goal, scenario: ToyScenario, point: DesignPoint) -> tuple[float, ...]:
    """Objectives of the toy objective."""
    return goal_values(goal, ToyObjective(scenario).evaluate(point))


def toy_verdicts(pruner: Pruner, goal: Goal, seed: int) -> tuple[Verdict, ...]:
    """Verdicts on a shuffled tiny space against the best of its first quarter; a function, for another process."""
    space, values = tiny_space(), partial(toy_values, goal, ToyScenario())
    points = list(space.points())
    random.Random(seed).shuffle(points)
    seen = [row for row in map(values, points[: len(points) // 4]) if row]
    incumbents = tuple(seen[index] for index in front_indices(seen, goal_directions(goal)))
    run = pruner.start(toy_context(space, goal=goal, seed=seed))
    return tuple(run.judge(points, incumbents))


def toy_context(
    space: SearchSpace,
    *,
    goal: Goal = Goal.THROUGHPUT,
    seed: int = 7,
    scenario: ToyScenario | None = None,
    looseness: float = 0.05,
    options: Mapping[str, OptionValue] | None = None,
) -> PrunerContext:
    """What a run on the toy objective starts from."""
    bounder = ToyBounder(scenario or ToyScenario(), looseness)
    return PrunerContext(
        space=space,
        directions=goal_directions(goal),
        probe=CountingProbe(lambda: bounder, goal, limit=space.size, who="pruner under test"),
        seed=seed,
        options=options or {},
    )


class PrunerConformance:
    """Tests that every pruner passes; override `pruner`, and `max_loss` if yours is unsafe."""

    max_loss = 1.0
    """Largest share of the best value that an unsafe pruner may lose here."""

    @pytest.fixture
    def pruner(self) -> Pruner:
        """The pruner under test."""
        raise NotImplementedError

    @pytest.fixture
    def space(self) -> SearchSpace:
        """A small space."""
        return tiny_space()

    def sweep(
        self, pruner: Pruner, space: SearchSpace, *, goal: Goal, scenario: ToyScenario, looseness: float, order: int
    ) -> tuple[PrunedSweep, tuple[tuple[float, ...], ...]]:
        """The space enumerated in a shuffled order, and the true front."""
        points = list(space.points())
        values = {point: toy_values(goal, scenario, point) for point in points}
        rows = [row for row in values.values() if row]
        truth = tuple(rows[index] for index in front_indices(rows, goal_directions(goal)))
        random.Random(order).shuffle(points)
        context = toy_context(space, goal=goal, scenario=scenario, looseness=looseness)
        return prune_sweep(pruner, context, points=points, values=values.__getitem__), truth

    def test_declares_itself(self, pruner: Pruner) -> None:
        """It has a name and says whether it is safe."""
        assert isinstance(pruner, Pruner)
        assert pruner.name
        assert isinstance(pruner.is_safe, bool)

    @pytest.mark.parametrize("goal", TOY_GOALS)
    @pytest.mark.parametrize("looseness", [0.0, 0.05, 0.5])
    def test_safe_pruners_keep_the_optimum(
        self,
        pruner: Pruner,
        space: SearchSpace,
        goal: Goal,
        looseness: float,
        record_property: Callable[[str, object], None],
    ) -> None:
        """Whatever the order, the budgets and the tightness of the bounds; an unsafe one's loss is reported."""
        losses = []
        for order, scenario in enumerate(
            (ToyScenario(), ToyScenario(max_macs=1 << 15), ToyScenario(min_memory_bytes=64 << 30))
        ):
            found, truth = self.sweep(pruner, space, goal=goal, scenario=scenario, looseness=looseness, order=order)
            if pruner.is_safe:
                assert sorted(found.front) == sorted(truth)
            best, reached = (max(row[0] for row in rows) for rows in (truth, found.front))
            losses.append(1.0 - reached / best)
        record_property("loss", max(losses))
        assert max(losses) <= self.max_loss

    def test_avoids_evaluations(self, pruner: Pruner, space: SearchSpace) -> None:
        """With bounds within 5 % it drops at least half of the points."""
        found, _ = self.sweep(pruner, space, goal=Goal.THROUGHPUT, scenario=ToyScenario(), looseness=0.05, order=3)
        assert found.num_pruned >= space.size / 2
        assert found.num_evaluated >= 1

    def test_certainly_infeasible_points_are_dropped(self, pruner: Pruner, space: SearchSpace) -> None:
        """Even before anything is known; feasible ones are not dropped then."""
        run, values = pruner.start(toy_context(space)), partial(toy_values, Goal.THROUGHPUT, ToyScenario())
        points = list(space.points())
        for point, verdict in zip(points, run.judge(points, ()), strict=True):
            assert verdict.is_pruned == (not values(point))
            assert not (verdict.is_pruned and verdict.values)

    def test_pruned_points_carry_their_bound(self, pruner: Pruner, space: SearchSpace) -> None:
        """What a strategy is told of a dropped point is no worse than the truth."""
        context = toy_context(space)
        points = list(space.points())
        truth = [toy_values(Goal.THROUGHPUT, ToyScenario(), point) for point in points]
        for value, verdict in zip(truth, pruner.start(context).judge(points, (max(truth),)), strict=True):
            if verdict.is_pruned and verdict.values:
                assert verdict.values >= value

    def test_one_verdict_for_each_point(self, pruner: Pruner, space: SearchSpace) -> None:
        """In order, also for none, and for a point judged before."""
        run = pruner.start(toy_context(space))
        points = [space.point(index) for index in (5, 0, 9)]
        assert len(run.judge([], ())) == 0
        first, again = run.judge(points, ()), run.judge([points[1], *points], ())
        assert [entry.is_pruned for entry in again] == [first[1].is_pruned, *(entry.is_pruned for entry in first)]

    def test_pickles(self, pruner: Pruner) -> None:
        """A copy by pickle judges the same."""
        twin = pickle.loads(pickle.dumps(pruner))
        assert (twin.name, twin.is_safe) == (pruner.name, pruner.is_safe)
        assert toy_verdicts(twin, Goal.THROUGHPUT, 1) == toy_verdicts(pruner, Goal.THROUGHPUT, 1)

    def test_imports_cheaply(self, pruner: Pruner) -> None:
        """Importing its module pulls in no heavy package."""
        assert_imports_cheaply(pruner)

    def test_starting_probes_nothing(self, pruner: Pruner, space: SearchSpace) -> None:
        """Probes are made for points that are judged, and counted."""
        context = toy_context(space)
        pruner.start(context)
        assert context.probe.num_probes == 0

    @pytest.mark.parametrize("goal", TOY_GOALS)
    def test_same_seed_same_verdicts(self, pruner: Pruner, goal: Goal) -> None:
        """Two runs do not influence one another."""
        assert toy_verdicts(pruner, goal, 2) == toy_verdicts(pruner, goal, 2)

    def test_same_verdicts_in_a_spawned_process(self, pruner: Pruner) -> None:
        """Nothing depends on this process: hash seed, import order, global generators."""
        here = toy_verdicts(pruner, Goal.PARETO, 3)
        assert in_spawned_process(toy_verdicts, pruner, Goal.PARETO, 3) == here

    def test_leaves_global_generators_alone(self, pruner: Pruner) -> None:
        """The seed is the only source of randomness, and nobody else's randomness is disturbed."""
        before = global_generators()
        toy_verdicts(pruner, Goal.THROUGHPUT, 4)
        assert global_generators() == before

    def test_inputs_are_not_changed(self, pruner: Pruner, space: SearchSpace) -> None:
        """Space, options, points and incumbents are as before."""
        options: dict[str, OptionValue] = {}
        context = toy_context(space, options=options)
        points = [space.point(index) for index in range(0, space.size, 7)]
        incumbents = [(1.0,)]
        before = pickle.dumps(space), copy.deepcopy(points), copy.deepcopy(incumbents)
        pruner.start(context).judge(points, incumbents)
        assert (pickle.dumps(space), points, incumbents) == before
        assert options == {}

    def test_unknown_option_is_refused(self, pruner: Pruner, space: SearchSpace) -> None:
        """A misspelt option is an error that names it, never silently ignored."""
        with pytest.raises(InputError, match="no_such_option"):
            pruner.start(toy_context(space, options={"no_such_option": 1}))
