"""How often a point is solved again: while its gap is open, and no longer than that helps."""

from types import SimpleNamespace

import pytest
from small_problems import small_problem

from phaze_opt.certify.robust import objective_prover
from phaze_opt.certify.robust.objective_prover import ObjectiveProver
from phaze_opt.certify.robust.prover import Worth
from phaze_opt.certify.robust.worlds import build_worlds, find_assumptions

TOLERANCE = 0.001


@pytest.mark.parametrize(
    ("solves", "expected", "num_efforts"),
    [
        ([(100.0, 100.05)], (100.0, 100.05), 1),
        ([(100.0, 100.2), (100.0, 100.05)], (100.0, 100.05), 2),
        ([(100.0, 100.2), (100.15, 100.2)], (100.15, 100.2), 2),
        ([(100.0, 100.2), (100.0, 100.2)], (100.0, 100.2), 2),
        ([(100.0, 100.2), (100.0, 100.2 - 1e-13)], (100.0, 100.2 - 1e-13), 2),
        ([(100.0, 100.3), (100.0, 100.2), (100.0, 100.15)], (100.0, 100.15), 3),
        ([(100.0, 100.3), (99.0, 100.4)], (100.0, 100.3), 2),
        ([(0.0, 0.0)], (0.0, 0.0), 1),
    ],
)
def test_a_point_is_solved_again_while_that_helps(solves, expected, num_efforts, monkeypatch):
    problem = small_problem()
    prover = ObjectiveProver(problem, tolerance=TOLERANCE, num_best=3)
    world = build_worlds(problem, find_assumptions(problem), num_samples=0, seed=0)[0]
    asked = []

    def solve(objective, space, index, *, effort):
        asked.append(effort)
        return SimpleNamespace(evaluation=solves[effort])

    monkeypatch.setattr(objective_prover, "solve_point", solve)
    monkeypatch.setattr(ObjectiveProver, "_worth", lambda _, solved: Worth(*solved))
    found = prover.evaluate(world, 3)
    assert (found.value, found.value_upper) == expected
    assert asked == list(range(num_efforts))
