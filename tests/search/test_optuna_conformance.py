"""Optuna's own conformance classes, applied to the samplers that are ours or changed by us."""

from collections.abc import Callable

import optuna
import pytest
from optuna.samplers import BaseSampler
from optuna.testing.pytest_samplers import BasicSamplerTestCase, MultiObjectiveSamplerTestCase, RelativeSamplerTestCase
from toy_runs import SPACE, toy_context

from phaze_opt.search.samplers.adapted_samplers import InformedSampler, KeptPointSampler
from phaze_opt.search.samplers.optuna_sampler import TPEStrategy
from phaze_opt.search.strategy import StrategyContext


@pytest.fixture(autouse=True)
def quiet() -> None:
    optuna.logging.set_verbosity(optuna.logging.ERROR)


def context(**options: float) -> StrategyContext:
    return toy_context("minimize", seed=3, **options)


def given(build: Callable[[], BaseSampler]) -> object:
    """The fixture of a class: what makes its sampler."""
    return pytest.fixture(lambda self: build)


class TestKeptPointSampler(BasicSamplerTestCase, RelativeSamplerTestCase, MultiObjectiveSamplerTestCase):
    sampler = given(lambda: KeptPointSampler(SPACE, seed=3))


class TestInformedSampler(BasicSamplerTestCase, RelativeSamplerTestCase, MultiObjectiveSamplerTestCase):
    sampler = given(lambda: InformedSampler(TPEStrategy().build_sampler(context(startup_trials=1))))


class TestTPE(BasicSamplerTestCase, MultiObjectiveSamplerTestCase):
    sampler = given(lambda: TPEStrategy().build_sampler(context()))


class TestTPEPastStartup(RelativeSamplerTestCase):
    """The relative suite tells one trial and then wants relative samples."""

    sampler = given(lambda: TPEStrategy().build_sampler(context(startup_trials=1)))
