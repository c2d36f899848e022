"""NSGA-III: the shipped suite, its options, and what its reference points are for: a front that is spread."""

from __future__ import annotations

from dataclasses import replace

import pytest

from phaze_opt.errors import InputError
from phaze_opt.objective.goals import Goal, front_indices, goal_directions, goal_values
from phaze_opt.search.samplers.nsga3 import NSGA3Strategy
from phaze_opt.search.strategy import Outcome, StrategyContext
from phaze_opt.testing.problems import tiny_space
from phaze_opt.testing.strategies import ToyJudge, propose
from phaze_opt.testing.toy_search import ToyObjective, ToyScenario

SPACE = tiny_space()


def context(**options: float) -> StrategyContext:
    return StrategyContext(SPACE, goal_directions(Goal.PARETO), num_trials=200, seed=1, options=options)


def test_it_finds_more_of_the_front_than_chance() -> None:
    """More of the toy objective's front, known by enumeration, than as many random draws with replacement hit."""
    points = tuple(SPACE.points())
    values = [goal_values(Goal.PARETO, ToyObjective(ToyScenario()).evaluate(point)) for point in points]
    feasible = [row for row, value in enumerate(values) if value]
    rows = front_indices([values[row] for row in feasible], goal_directions(Goal.PARETO))
    front = {values[feasible[row]] for row in rows}

    def share(seed: int) -> float:
        proposed = propose(NSGA3Strategy(), replace(context(), seed=seed), judge=ToyJudge(Goal.PARETO))
        return len(front & {values[points.index(point)] for point in proposed}) / len(front)

    drawn_by_chance = 1 - (1 - 1 / SPACE.size) ** 200
    assert sum(share(seed) for seed in range(3)) / 3 > 1.5 * drawn_by_chance


def test_pruned_and_infeasible_outcomes_do_not_stop_it() -> None:
    run = NSGA3Strategy().start(context(population=4))
    for number in range(0, 40, 4):
        asked = run.ask(4)
        run.tell(
            [
                Outcome(number, asked[0], (1.0, 2.0, 3.0)),
                Outcome(-1, asked[1], (0.5, 2.0, 3.0), is_pruned=True),
                Outcome(-1, asked[2], (), is_pruned=True),
                Outcome(number + 1, asked[3], (), (("memory", 0.3),)),
            ]
        )
    assert len(run.ask(3)) == 3


@pytest.mark.parametrize(("name", "value"), [("population", 1), ("divisions", 0), ("crossover_probability", 1.5)])
def test_options_out_of_range_are_refused(name: str, value: float) -> None:
    with pytest.raises(InputError, match=name):
        NSGA3Strategy().start(context(**{name: value}))
