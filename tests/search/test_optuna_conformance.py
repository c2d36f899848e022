"""Optuna's own conformance classes, applied to our sampler and to Optuna's as our strategies set them up."""

from __future__ import annotations

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

from phaze_opt.search.samplers.adapted_samplers import InformedSampler, KeptPointSampler
from phaze_opt.search.samplers.cma_es import CmaEsStrategy
from phaze_opt.search.samplers.nsga2 import NSGA2Strategy
from phaze_opt.search.samplers.nsga3 import NSGA3Strategy
from phaze_opt.search.samplers.qmc import QMCStrategy
from phaze_opt.search.samplers.tpe import TPEStrategy
from phaze_opt.search.strategy import StrategyContext
from phaze_opt.testing.problems import tiny_space

SamplerFactory = Callable[[], BaseSampler]


@pytest.fixture(autouse=True)
def quiet() -> None:
    optuna.logging.set_verbosity(optuna.logging.ERROR)


def context(**options: float) -> StrategyContext:
    return StrategyContext(space=tiny_space(), directions=("minimize",), num_trials=60, seed=3, options=options)


class TestKeptPointSampler(BasicSamplerTestCase, RelativeSamplerTestCase, MultiObjectiveSamplerTestCase):
    @pytest.fixture
    def sampler(self) -> SamplerFactory:
        return lambda: KeptPointSampler(tiny_space(), seed=3)


class TestInformedSampler(BasicSamplerTestCase, RelativeSamplerTestCase, MultiObjectiveSamplerTestCase):
    @pytest.fixture
    def sampler(self) -> SamplerFactory:
        return lambda: InformedSampler(TPEStrategy().build_sampler(context(startup_trials=1)))


class TestTPE(BasicSamplerTestCase, MultiObjectiveSamplerTestCase):
    @pytest.fixture
    def sampler(self) -> SamplerFactory:
        return lambda: TPEStrategy().build_sampler(context())


class TestTPEPastStartup(RelativeSamplerTestCase):
    """The relative suite tells one trial and then wants relative samples."""

    @pytest.fixture
    def sampler(self) -> SamplerFactory:
        return lambda: TPEStrategy().build_sampler(context(startup_trials=1))


class TestCmaEs(BasicSamplerTestCase, SingleOnlySamplerTestCase):
    """The margin is for numerical axes, which ours all are; the relative suite also wants categorical ones."""

    @pytest.fixture
    def sampler(self) -> SamplerFactory:
        return lambda: CmaEsStrategy().build_sampler(context())


class TestCmaEsWithoutMargin(RelativeSamplerTestCase, SingleOnlySamplerTestCase):
    @pytest.fixture
    def sampler(self) -> SamplerFactory:
        return lambda: CmaEsStrategy().build_sampler(context(with_margin=False))


class TestNSGA2(BasicSamplerTestCase, MultiObjectiveSamplerTestCase):
    """Its first generation is random, so the relative suite, which tells one trial, does not apply."""

    @pytest.fixture
    def sampler(self) -> SamplerFactory:
        return lambda: NSGA2Strategy().build_sampler(context())


class TestNSGA3(BasicSamplerTestCase, MultiObjectiveSamplerTestCase):
    """As for NSGA2."""

    @pytest.fixture
    def sampler(self) -> SamplerFactory:
        return lambda: NSGA3Strategy().build_sampler(context())


class TestQMC(BasicSamplerTestCase, RelativeSamplerTestCase, MultiObjectiveSamplerTestCase):
    @pytest.fixture
    def sampler(self) -> SamplerFactory:
        return lambda: QMCStrategy().build_sampler(context())
