"""The shipped conformance suites, applied to the shipped estimator and collective model."""

import pytest
from kits.collectives import CollectiveConformance
from kits.one_array import CUBE, ONE_ARRAY

from phaze_opt.estimate.analytic import AnalyticEstimator
from phaze_opt.estimate.protocol import EstimatorOptions, FillAndDrain, GlbLimit, Multicast, Residency
from phaze_opt.testing.estimators import ClosedForm, EstimatorConformance


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
