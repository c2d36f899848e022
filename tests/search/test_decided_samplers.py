"""The last digit of a CPU chooses no candidate: near-ties of samplers go to the candidate drawn first."""

import numpy as np
import optuna
import pytest
from optuna.samplers import TPESampler

from phaze_opt.search.samplers.adapted_samplers import DecidedTPESampler
from phaze_opt.search.spotlight.dabo import fit_surrogate


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
