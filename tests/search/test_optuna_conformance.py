"""Optuna's own conformance classes, applied to our sampler and to Optuna's as our strategies set them up."""

from collections.abc import Callable

import optuna
import pytest
from optuna.samplers import BaseSampler
from optuna.testing.pytest_samplers import (
    BasicSamplerTestCase,
    MultiObjectiveSamplerTestCase,
    RelativeSamplerTestCase,
    SingleOnlySamplerTestCase,
)
from toy_runs import SPACE, toy_context

from phaze_opt.search.samplers.adapted_samplers import InformedSampler, KeptPointSampler
from phaze_opt.search.samplers.optuna_sampler import (
    CmaEsStrategy,
    NSGA2Strategy,
    NSGA3Strategy,
    QMCStrategy,
    TPEStrategy,
)
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


class TestCmaEs(BasicSamplerTestCase, SingleOnlySamplerTestCase):
    """The margin is for numerical axes, which ours all are; the relative suite also wants categorical ones."""

    sampler = given(lambda: CmaEsStrategy().build_sampler(context()))


class TestCmaEsWithoutMargin(RelativeSamplerTestCase, SingleOnlySamplerTestCase):
    sampler = given(lambda: CmaEsStrategy().build_sampler(context(with_margin=False)))


class TestNSGA2(BasicSamplerTestCase, MultiObjectiveSamplerTestCase):
    """Its first generation is random, so the relative suite, which tells one trial, does not apply."""

    sampler = given(lambda: NSGA2Strategy().build_sampler(context()))


class TestNSGA3(BasicSamplerTestCase, MultiObjectiveSamplerTestCase):
    """As for NSGA2."""

    sampler = given(lambda: NSGA3Strategy().build_sampler(context()))


class TestQMC(BasicSamplerTestCase, RelativeSamplerTestCase, MultiObjectiveSamplerTestCase):
    sampler = given(lambda: QMCStrategy().build_sampler(context()))
