"""The shipped conformance suites, applied to the shipped estimator and collective model."""

import pytest
from kits.collectives import CollectiveConformance

from phaze_opt.estimate.analytic import AnalyticEstimator
from phaze_opt.estimate.options import EstimatorOptions, FillAndDrain, GlbLimit, Multicast, Residency
from phaze_opt.graph.operator import CoreType, Matmul, Operator, OperatorKind, Phase
from phaze_opt.hardware.accelerator import Accelerator
from phaze_opt.testing.estimators import ClosedForm, EstimatorConformance

CUBE = Operator("cube", Phase.FORWARD, OperatorKind.MATMUL, CoreType.TC, (Matmul(1, 1024, 1024, 1024),))
ONE_ARRAY = Accelerator(1, 1, 128, 128, 128, 128 << 20, 6144e9, 262144, 32 << 30, 800e9, clock_hz=1e9)


class TestAnalytic(EstimatorConformance):
    @pytest.fixture
    def estimator(self):
        return AnalyticEstimator()

    @pytest.fixture
    def closed_forms(self):
        return (ClosedForm(CUBE, ONE_ARRAY, 89_984e-9),)


class TestOtherOptions(EstimatorConformance):
    @pytest.fixture(params=["lavish", "proportional", "planned"])
    def estimator(self, request):
        if request.param == "lavish":
            options = EstimatorOptions(GlbLimit.NONE, FillAndDrain.NONE, Multicast.IDEAL)
        elif request.param == "planned":
            options = EstimatorOptions(residency=Residency.PLANNED)
        else:
            options = EstimatorOptions(GlbLimit.PROPORTIONAL, FillAndDrain.PER_OPERATOR)
        return AnalyticEstimator(options=options)


class TestCollectives(CollectiveConformance):
    """Of the package's own model."""
