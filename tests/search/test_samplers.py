"""What the samplers are told and what they draw."""

import math
from collections import Counter
from dataclasses import dataclass

import numpy as np
import optuna
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from optuna.samplers import TPESampler
from scipy import stats
from toy_runs import SPACE, toy_context

from phaze_opt.errors import InputError
from phaze_opt.objective.goals import Goal, front_indices, goal_directions, goal_values
from phaze_opt.search.options import option, resolve_options
from phaze_opt.search.samplers.adapted_samplers import DecidedTPESampler, KeptPointSampler, has_hopeless_constraint
from phaze_opt.search.samplers.grid import GridStrategy, golden_stride
from phaze_opt.search.samplers.nsga3 import NSGA3Strategy
from phaze_opt.search.samplers.sampler_run import ConstraintLedger, InfeasibleValue, SamplerRun, start_sampler
from phaze_opt.search.samplers.tpe import TPEStrategy
from phaze_opt.search.strategy import Outcome
from phaze_opt.space.codec import Codec
from phaze_opt.testing.problems import ToyObjective, ToyScenario
from phaze_opt.testing.strategies import ToyJudge, propose

POINT = SPACE.point(0)


def random_run(*directions: str, infeasible: InfeasibleValue = InfeasibleValue.WORST) -> SamplerRun:
    return start_sampler(toy_context(*directions), KeptPointSampler(SPACE, seed=1), infeasible=infeasible)


def tell(run: SamplerRun, *outcomes: tuple[tuple[float, ...], dict[str, float]]) -> list[optuna.trial.FrozenTrial]:
    points = run.ask(len(outcomes))
    run.tell([Outcome(n, p, v, tuple(c.items())) for n, (p, (v, c)) in enumerate(zip(points, outcomes, strict=True))])
    return run.study.trials


def test_an_infeasible_point_is_a_complete_trial_with_violated_constraints() -> None:
    feasible, infeasible = tell(random_run(), ((3.0,), {"area": -0.5}), ((), {"area": 0.25}))
    assert feasible.state is infeasible.state is optuna.trial.TrialState.COMPLETE
    assert feasible.constraints == {"area": -0.5, "other": -1.0}
    assert infeasible.constraints == {"area": 0.25, "other": -1.0}
    assert infeasible.value == 3.0


def test_optunas_best_trial_is_never_infeasible() -> None:
    run = random_run()
    tell(run, ((), {"area": 1.0}), ((2.0,), {"area": -1.0}), ((), {"area": 0.1}))
    assert run.study.best_trial.number == 1


def test_all_trials_have_the_same_constraints_whatever_outcomes_name() -> None:
    ledger = ConstraintLedger()
    named = [{"area": -0.1, "tdp": -0.2}, {"area": 0.5}, {"memory": 0.7}, {}, {"area": float("nan")}, {"tdp": math.inf}]
    values = [ledger.values(Outcome(0, POINT, (), tuple(names.items()))) for names in named]
    assert {tuple(value) for value in values} == {("area", "tdp", "other")}
    assert values[1] == {"area": 0.5, "tdp": -1.0, "other": -1.0}
    assert values[2] == {"area": -1.0, "tdp": -1.0, "other": 0.7}
    assert values[3]["other"] == 1.0
    assert values[4]["area"] == 1.0
    assert all(math.isfinite(figure) for value in values for figure in value.values())


@given(st.dictionaries(st.sampled_from(["area", "tdp", "memory", "other"]), st.floats(-2, 2)), st.booleans())
def test_feasible_exactly_when_values_are_told(constraints: dict[str, float], is_feasible: bool) -> None:
    if is_feasible:
        constraints = {name: -abs(value) for name, value in constraints.items()}
    outcome = Outcome(0, POINT, (1.0,) if is_feasible else (), tuple(constraints.items()))
    assert all(value <= 0 for value in ConstraintLedger().values(outcome).values()) == is_feasible


def test_stand_in_is_the_worst_value_of_each_objective() -> None:
    trials = tell(
        random_run("maximize", "minimize"),
        ((), {"area": 1.0}), ((5.0, 70.0), {}), ((9.0, 90.0), {}), ((), {"area": 1.0}),
    )  # fmt: skip
    assert [trial.values for trial in trials] == [[0.0, 0.0], [5.0, 70.0], [9.0, 90.0], [5.0, 90.0]]


@pytest.mark.parametrize("direction", ["maximize", "minimize"])
def test_a_penalised_value_ranks_by_violation_behind_every_feasible_one(direction: str) -> None:
    sign = 1.0 if direction == "maximize" else -1.0
    told = (((4.0,), {"a": -1.0}), ((), {"a": 0.1}), ((), {"a": 2.0}), ((-3.0,), {"a": -1.0}), ((), {"a": 0.1}))
    trials = tell(random_run(direction, infeasible=InfeasibleValue.PENALISED), *told)
    values = [sign * trial.value for trial in trials if trial.value is not None]
    assert values[2] < values[1]
    assert values[4] < min(values[0], values[3])
    assert all(trial.constraints == {} for trial in trials)


def test_constraints_steer_tpe_away_from_what_breaks_them() -> None:
    """Two in three points break the constraint by their buffer; TPE must propose fewer than chance does."""
    large = max(SPACE.axes.glb_bytes)

    def share_broken(seed: int) -> float:
        run = TPEStrategy().start(toy_context(seed=seed))
        broken = 0
        for number in range(80):
            (point,) = run.ask(1)
            is_broken = point.glb_bytes == large
            broken += is_broken and number >= 30
            values = () if is_broken else (float(point.num_tc),)
            run.tell([Outcome(number, point, values, (("glb", 1.0 if is_broken else -1.0),))])
        return broken / 50

    assert sum(share_broken(seed) for seed in range(3)) / 3 < 0.3


def test_a_constraint_is_hopeless_only_while_every_trial_breaks_it_alike() -> None:
    run = random_run()
    assert not has_hopeless_constraint(run.study.trials)
    assert has_hopeless_constraint(tell(run, ((), {"area": 0.5}), ((), {"area": 0.5})))
    assert not has_hopeless_constraint(tell(run, ((), {"area": 0.6})))
    assert not has_hopeless_constraint(tell(random_run(), ((1.0,), {"area": -0.5})))
    assert has_hopeless_constraint(tell(random_run(), ((), {})))


def test_telling_more_than_asked_is_refused() -> None:
    run = random_run()
    (point,) = run.ask(1)
    with pytest.raises(InputError, match="2 outcomes told for 1 points"):
        run.tell([Outcome(0, point, (1.0,)), Outcome(1, POINT, (1.0,))])


def test_starting_points_told_before_the_first_ask_become_trials() -> None:
    run = random_run()
    run.tell([Outcome(0, POINT, (1.0,))])
    (trial,) = run.study.trials
    assert run.codec.decode(trial.params) == POINT
    assert trial.value == 1.0
    assert len(run.ask(2)) == 2


def test_random_is_uniform_over_kept_points() -> None:
    sampler = KeptPointSampler(SPACE, seed=11)
    drawn = Counter(SPACE.index(sampler.point_of(number)) for number in range(10 * SPACE.size))
    assert stats.chisquare([drawn[index] for index in range(SPACE.size)]).pvalue > 1e-3


def test_random_proposes_the_point_of_each_trial() -> None:
    run = start_sampler(toy_context(), KeptPointSampler(SPACE, seed=5))
    assert list(run.ask(20)) == [KeptPointSampler(SPACE, seed=5).point_of(number) for number in range(20)]


def test_random_falls_back_to_a_foreign_search_space() -> None:
    study = optuna.create_study(sampler=KeptPointSampler(SPACE, seed=1))
    study.optimize(lambda trial: trial.suggest_float("tc_halvings", 0.0, 0.5), n_trials=20)
    assert len({trial.params["tc_halvings"] for trial in study.trials}) == 20


def test_random_keeps_its_own_parameters_among_foreign_ones() -> None:
    own = Codec(SPACE).distributions()
    study = optuna.create_study(sampler=KeptPointSampler(SPACE, seed=5))
    trial = study.ask({**own, "foreign": optuna.distributions.FloatDistribution(0.0, 1.0)})
    point = Codec(SPACE).decode({name: trial.params[name] for name in own})
    assert point == KeptPointSampler(SPACE, seed=5).point_of(0)


def test_random_is_reseeded_for_parallel_workers() -> None:
    sampler = KeptPointSampler(SPACE, seed=1)
    before = [sampler.point_of(number) for number in range(8)]
    sampler.reseed_rng()
    assert [sampler.point_of(number) for number in range(8)] != before


@given(st.integers(1, 400_000))
def test_golden_stride_is_coprime_and_golden(size: int) -> None:
    stride = golden_stride(size)
    assert math.gcd(stride, size) == 1
    assert abs(stride / size - (math.sqrt(5) - 1) / 2) < 0.02 or size < 400


@settings(max_examples=40)
@given(st.integers(2, SPACE.size))
def test_every_prefix_of_the_grid_is_spread_over_the_indices(count: int) -> None:
    """Three-distance theorem: the largest gap between visited indices is within a small factor of the mean gap."""
    run = GridStrategy().start(toy_context())
    indices = sorted(SPACE.index(point) for point in run.ask(count))
    gaps = [b - a for a, b in zip(indices, [*indices[1:], indices[0] + SPACE.size], strict=True)]
    assert max(gaps) <= 2.7 * SPACE.size / count + 2


def test_grid_in_the_order_of_the_space() -> None:
    run = GridStrategy().start(toy_context(order="space"))
    assert tuple(run.ask(5)) == tuple(SPACE.point(index) for index in range(5))


@dataclass(frozen=True, slots=True)
class SomeOptions:
    count: int = option(3, "a count", low=1, high=9)
    share: float = option(0.5, "a share", low=0.0, high=1.0)
    kind: str = option("a", "a word", choices=("a", "b"))
    exact: bool = option(True, "a switch")


def test_options_have_defaults_and_take_values() -> None:
    assert resolve_options(SomeOptions, "s", {}) == SomeOptions(count=3, share=0.5, kind="a", exact=True)
    resolved = resolve_options(SomeOptions, "s", {"count": 9, "share": 1, "exact": False})
    assert resolved == SomeOptions(count=9, share=1.0, kind="a", exact=False)
    assert type(resolved.share) is float


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("cuont", 3, "did you mean count"),
        ("zzz", 3, "known: count, exact, kind, share"),
        ("count", 10, "must lie in 1..9"),
        ("count", True, "must be of type int"),
        ("count", 2.5, "must be of type int"),
        ("share", float("nan"), "must lie in 0..1"),
        ("share", "x", "must be of type float"),
        ("kind", "c", "must be one of a, b"),
        ("exact", 1, "must be of type bool"),
    ],
)
def test_wrong_options_are_refused_by_name(name: str, value: float | str, says: str) -> None:
    with pytest.raises(InputError, match=says) as caught:
        resolve_options(SomeOptions, "mine", {name: value})
    assert name in str(caught.value)
    assert "mine" in str(caught.value)


def points_of(seed, sampler_class):
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    sampler = sampler_class(seed=seed, n_startup_trials=5, multivariate=True)
    study = optuna.create_study(sampler=sampler)
    study.optimize(lambda t: (t.suggest_int("a", 0, 9) - 4.5) ** 2 + (t.suggest_int("b", 0, 9) - 4.5) ** 2, n_trials=40)
    return [trial.params for trial in study.trials]


@pytest.fixture(name="other_cpu")
def _other_cpu(monkeypatch):
    """A CPU whose sorting code leaves equal values in another order and whose densities end in other last digits."""
    argsort, density, rng = np.argsort, TPESampler._compute_acquisition_func, np.random.default_rng(1)

    def sorted_otherwise(values, *given, kind=None, **named):
        if kind == "stable":
            return argsort(values, *given, kind=kind, **named)
        return len(values) - 1 - argsort(np.asarray(values)[::-1], kind="stable")

    def rounded_otherwise(*given, **named):
        scores = density(*given, **named)
        return scores + rng.choice([-1e-13, 0.0, 1e-13], size=len(scores))

    def begin():
        monkeypatch.setattr(np, "argsort", sorted_otherwise)
        monkeypatch.setattr(TPESampler, "_compute_acquisition_func", rounded_otherwise)

    return begin


def test_tpe_proposes_the_same_points_on_another_cpu(other_cpu):
    expected, plain = points_of(0, DecidedTPESampler), points_of(0, TPESampler)
    other_cpu()
    assert points_of(0, DecidedTPESampler) == expected
    assert points_of(0, TPESampler) != plain  # so that the other CPU of this test is one


def test_nsga3_finds_more_of_the_front_than_chance() -> None:
    """More of the toy objective's front, known by enumeration, than as many random draws with replacement hit."""
    points = tuple(SPACE.points())
    values = [goal_values(Goal.PARETO, ToyObjective(ToyScenario()).evaluate(point)) for point in points]
    feasible = [row for row, value in enumerate(values) if value]
    rows = front_indices([values[row] for row in feasible], goal_directions(Goal.PARETO))
    front = {values[feasible[row]] for row in rows}

    def share(seed: int) -> float:
        proposed = propose(
            NSGA3Strategy(),
            toy_context(*goal_directions(Goal.PARETO), num_trials=200, seed=seed),
            judge=ToyJudge(Goal.PARETO),
        )
        return len(front & {values[points.index(point)] for point in proposed}) / len(front)

    drawn_by_chance = 1 - (1 - 1 / SPACE.size) ** 200
    assert sum(share(seed) for seed in range(3)) / 3 > 1.5 * drawn_by_chance


def test_pruned_and_infeasible_outcomes_do_not_stop_nsga3() -> None:
    run = NSGA3Strategy().start(toy_context(*goal_directions(Goal.PARETO), population=4))
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
