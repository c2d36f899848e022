"""Spotlight: its model against closed forms, its features by hand, its loop on problems with known answers."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from scipy import stats
from toy_runs import SPACE, fill, toy_context

from phaze_opt.graph.operator import CoreType, Phase
from phaze_opt.hardware.chip_template import DesignPoint, PointColumns
from phaze_opt.hardware.constants import load_constants
from phaze_opt.hardware.designed_chip import chips_of
from phaze_opt.search.probe import PhaseView
from phaze_opt.search.strategies.dabo import CostLedger, fit_surrogate
from phaze_opt.search.strategies.spotlight import (
    DomainFeatures,
    GeneticOptions,
    GeneticRun,
    OperatorTotals,
    SpotlightFixedStrategy,
    SpotlightRandomStrategy,
    SpotlightStrategy,
    SpotlightVanillaStrategy,
    effective_macs,
    least_imbalance,
    raw_features,
    sum_phases,
)
from phaze_opt.search.strategy import Outcome, Strategy, StrategyRun
from phaze_opt.space.codec import Codec
from phaze_opt.units import GIBI, MEBI

POINT = DesignPoint(8, 4, 128, 64, 128, 8 * MEBI, 32 * GIBI, 2)


def power_law(point: DesignPoint) -> float:
    return point.num_tc * point.tc_width**0.5 / point.glb_bytes**0.25 * point.num_vc**0.1 / point.micro_batch**0.3


def judged(number: int, point: DesignPoint) -> Outcome:
    """The objective is a product of powers of the parameters."""
    return Outcome(number, point, (power_law(point),))


def propose(run: StrategyRun, count: int) -> list[DesignPoint]:
    return fill(run, count, judged)


def view(phase: Phase, **changes: object) -> PhaseView:
    known = PhaseView(
        model="m",
        tensor_parallel=1,
        micro_batch=1,
        layer="block",
        phase=phase,
        repeats=3,
        core_types=(CoreType.TC, CoreType.VC, CoreType.TC_AND_VC, CoreType.NONE),
        edges=(),
        one_core_s=np.ones(4),
        spread_s=np.array([0.2, 0.5, 0.3, 0.0]),
        floor_s=0.01,
        collective_s=0.0,
    )
    return replace(known, **changes)  # type: ignore[arg-type]


@dataclass(slots=True)
class FakeProbe:
    """Counts what is asked of it."""

    num_left: int = 5
    seen: list[DesignPoint] = field(default_factory=list)

    @property
    def num_probes(self) -> int:
        return len(self.seen)

    def bounds(self, points: Sequence[DesignPoint]) -> tuple[tuple[float, ...], ...]:
        raise AssertionError

    def within_budgets(self, points: Sequence[DesignPoint]) -> tuple[bool, ...]:
        return (True,) * len(points)

    def phases(self, point: DesignPoint) -> tuple[PhaseView, ...]:
        self.seen.append(point)
        return (view(Phase.FORWARD), view(Phase.UPDATE))


def test_the_surrogate_is_the_posterior_of_bayesian_linear_regression() -> None:
    """Weights ~ N(0, 1), intercept ~ N(0, s0^2), noise ~ N(0, v): mean and variance in closed form."""
    rng = np.random.default_rng(1)
    features = rng.normal(size=(30, 5)) * [1.0, 3.0, 0.1, 2.0, 1.0] + 4.0
    costs = features @ [0.3, -0.2, 2.0, 0.0, 0.1] + 0.05 * rng.normal(size=30) + 7.0
    others = rng.normal(size=(8, 5)) + 4.0
    fitted = fit_surrogate(features, costs)
    mean, deviation = fitted.predict(others)
    intercept, noise = fitted.process.kernel_.k1.sigma_0, fitted.process.kernel_.k2.noise_level
    scale, shift = costs.std(), costs.mean()
    design = np.column_stack([(features - features.mean(0)) / features.std(0), np.full(30, intercept)])
    query = np.column_stack([(others - features.mean(0)) / features.std(0), np.full(8, intercept)])
    covariance = np.linalg.inv(np.eye(6) + design.T @ design / noise)
    weights = covariance @ design.T @ ((costs - shift) / scale) / noise
    np.testing.assert_allclose(mean, query @ weights * scale + shift, rtol=1e-6)
    variance = np.einsum("ij,jk,ik->i", query, covariance, query) + noise
    np.testing.assert_allclose(deviation, scale * np.sqrt(variance), rtol=1e-5)


@pytest.mark.parametrize("num_trials", [2, 3, 11])
def test_the_surrogate_stays_finite_with_fewer_trials_than_features(num_trials: int) -> None:
    rng = np.random.default_rng(num_trials)
    features = DomainFeatures(None)(SPACE.draw(num_trials, rng))
    for costs in (rng.normal(size=num_trials), np.zeros(num_trials)):
        mean, deviation = fit_surrogate(features, costs).predict(DomainFeatures(None)(SPACE.draw(50, rng)))
        assert np.isfinite(mean).all()
        assert (deviation >= 0).all()


def test_columns_are_points_and_draws_are_kept_and_uniform() -> None:
    points = [SPACE.point(index) for index in (0, 7, 500)]
    columns = PointColumns.of(points)
    assert [columns.point(row) for row in range(3)] == points
    drawn = SPACE.draw(20_000, np.random.default_rng(0))
    counts = np.bincount([SPACE.index(drawn.point(row)) for row in range(len(drawn))], minlength=SPACE.size)
    assert stats.chisquare(counts).pvalue > 1e-3


def test_weighted_parallelism_is_capped_by_what_the_glb_feeds() -> None:
    """128 x 64 arrays: L2 of 128 KiB, tiles of edge 181; 6144 bytes a cycle feed 6144 x 181 / 4 products a cycle."""
    few, many = replace(POINT, num_tc=1), replace(POINT, num_tc=4096)
    macs = effective_macs(chips_of(PointColumns.of([few, many]), load_constants()))
    assert macs[0] == 128 * 64
    assert macs[1] == pytest.approx(6144 * math.sqrt(16 * 128 * 64 / 4) / 4)


def test_totals_by_hand() -> None:
    """Two cores' worth of seconds, a micro-batch of 2, three layers; 800 GB/s for 32 GB; other degrees left out."""
    views = [view(Phase.FORWARD), view(Phase.UPDATE), view(Phase.BACKWARD, tensor_parallel=2)]
    totals = sum_phases(views, POINT, load_constants())
    assert totals.mac_seconds == pytest.approx(3 * 0.5 / 2 * 8 * 128 * 64)
    assert totals.lane_seconds == pytest.approx(3 * 0.5 / 2 * 4 * 128)
    assert totals.traffic_bytes == pytest.approx(3 * 0.01 / 2 * 800e9)
    assert totals.update_bytes == pytest.approx(3 * 0.01 * 800e9)


def test_features_are_finite_and_the_weighted_ones_need_totals() -> None:
    columns = PointColumns.of(list(SPACE.points()))
    with_totals = DomainFeatures(OperatorTotals(1e3, 1e2, 1e9, 1e11))(columns)
    without = DomainFeatures(None)(columns)
    assert np.isfinite(with_totals).all()
    assert with_totals.shape[1] == without.shape[1] + 6
    assert raw_features(columns).shape == (SPACE.size, 8)


@pytest.mark.parametrize(("direction", "sign"), [("maximize", -1.0), ("minimize", 1.0)])
def test_costs_are_logarithms_and_infeasible_points_cost_the_worst(direction: str, sign: float) -> None:
    ledger = CostLedger(direction)
    a, b, c, d = (SPACE.point(index) for index in range(4))
    ledger.note([Outcome(0, a, (math.e,)), Outcome(1, b, ()), Outcome(2, c, (1.0,))])
    ledger.note([Outcome(-1, d, (math.e**2,), is_pruned=True)])
    assert ledger.costs() == pytest.approx([sign, max(0.0, sign * 2), 0.0, sign * 2])
    assert ledger.num_feasible == 3
    ledger.note([Outcome(3, a, (-1.0,))])
    assert ledger.costs()[0] == pytest.approx(-sign)


def test_one_architecture_is_probed_and_it_is_the_first() -> None:
    for strategy in (SpotlightStrategy(), SpotlightFixedStrategy()):
        probe = FakeProbe()
        points = propose(strategy.start(replace(toy_context(), probe=probe)), 60)
        assert probe.seen == points[:1]
    for other in (SpotlightVanillaStrategy(), SpotlightRandomStrategy()):
        probe = FakeProbe()
        propose(other.start(replace(toy_context(), probe=probe)), 24)
        assert probe.num_probes == 0
    spent = FakeProbe(num_left=0)
    assert len(propose(SpotlightStrategy().start(replace(toy_context(), probe=spent)), 24)) == 24
    assert spent.num_probes == 0


def best_rank(strategy: Strategy, seed: int) -> int:
    """Rank of the best of 40 proposals among all points of a power law, which is linear in the logarithms."""
    values = np.sort([power_law(point) for point in SPACE.points()])[::-1]
    found = max(power_law(point) for point in propose(strategy.start(toy_context(seed=seed)), 40))
    return int(np.searchsorted(-values, -found))


@pytest.mark.parametrize("strategy", [SpotlightStrategy(), SpotlightVanillaStrategy()], ids=lambda one: one.name)
def test_a_power_law_is_solved(strategy: Strategy) -> None:
    """A linear model knows it after 10 trials, and 1000 draws hold two in three of the 920 points."""
    assert np.mean([best_rank(strategy, seed) for seed in range(5)]) < 3
    assert np.mean([best_rank(SpotlightRandomStrategy(), seed) for seed in range(5)]) > 5


def test_without_exploration_every_point_after_the_warm_up_comes_from_the_ranking() -> None:
    """The model of a power law is soon right: most of those points are of the best tenth, of which chance finds one
    in ten."""
    values = np.sort([power_law(point) for point in SPACE.points()])
    points = propose(SpotlightStrategy().start(toy_context(explore=0.0)), 32)
    good = values[int(0.9 * len(values))]
    assert sum(power_law(point) >= good for point in points[:12]) < 6
    assert np.mean([power_law(point) >= good for point in points[12:]]) > 0.7


def test_nothing_is_proposed_twice() -> None:
    for strategy in (SpotlightStrategy(), SpotlightRandomStrategy(), SpotlightFixedStrategy()):
        points = propose(strategy.start(toy_context()), 60)
        assert len(set(points)) == 60


def test_pruned_points_take_no_place_in_the_warm_up() -> None:
    run = SpotlightStrategy().start(toy_context(explore=0.0))
    for _ in range(5):
        run.tell([Outcome(-1, point, (power_law(point),), is_pruned=True) for point in run.ask(4)])
    points = propose(run, 12)
    assert np.median([power_law(point) for point in points]) < np.quantile(
        [power_law(point) for point in SPACE.points()], 0.9
    )


def test_fixed_dataflows_mean_arrays_as_square_as_there_are() -> None:
    assert least_imbalance(SPACE) == 0
    points = propose(SpotlightFixedStrategy().start(toy_context()), 40)
    assert all(point.tc_width == point.tc_depth for point in points)
    oblong = replace(SPACE, axes=replace(SPACE.axes, tc_depth=(32,), tc_width=(64, 128)))
    assert least_imbalance(oblong) == pytest.approx(math.log(2))
    points = propose(SpotlightFixedStrategy().start(toy_context(space=oblong)), 12)
    assert {point.tc_width for point in points} == {64}


def test_children_without_mutation_have_genes_of_points_told() -> None:
    codec = Codec(SPACE)
    run = GeneticRun(toy_context(), GeneticOptions(population=20, crossover=0.8, mutation=0.0, parents=0.9))
    first = propose(run, 20)
    ranked = sorted(first, key=lambda point: -power_law(point))
    genes = [codec.encode(point) for point in ranked]
    children = [run._child() for _ in range(60)]
    for child in children:
        encoded = codec.encode(child)
        assert all(any(parent[name] == value for parent in genes) for name, value in encoded.items()) or child in ranked
    assert np.mean([power_law(child) for child in children]) > np.mean([power_law(point) for point in first])


def test_genetic_ranking_changes_once_a_generation() -> None:
    run = GeneticRun(toy_context(), GeneticOptions(population=20, crossover=0.8, mutation=0.05, parents=0.2))
    propose(run, 16)
    assert run._ranking == []
    propose(run, 4)
    assert len(run._ranking) == 20
    propose(run, 16)
    assert len(run._ranking) == 20


def test_a_surrogate_forgets_the_last_digits_of_its_data():
    """Intercept and noise are on a grid: features and costs that differ by rounding predict alike to ten digits."""
    rng = np.random.default_rng(3)
    features = rng.normal(size=(60, 12))
    costs = features @ rng.normal(size=12) + 0.1 * rng.normal(size=60)
    points = rng.normal(size=(200, 12))
    mean, deviation = fit_surrogate(features, costs).predict(points)
    other = fit_surrogate(features * (1.0 + 2e-15), costs * (1.0 - 2e-15))
    assert np.allclose(other.predict(points), (mean, deviation), rtol=0.0, atol=1e-10)
    theta = other.process.kernel_.theta
    assert theta.tolist() == fit_surrogate(features, costs).process.kernel_.theta.tolist()
