"""What an estimator was fitted with is part of a scenario's digest; the analytic one has nothing to add."""

import json
from dataclasses import replace

import pytest

from phaze_opt.estimate.analytic import AnalyticEstimator
from phaze_opt.estimate.protocol import FittedEstimator
from phaze_opt.hardware.network import Cluster
from phaze_opt.hardware.networks import load_network
from phaze_opt.objective.scenario import Scenario
from phaze_opt.record.plain_data import from_plain, to_plain
from phaze_opt.workload.config import load_model


class Fitted(AnalyticEstimator):
    """An estimator with a constant of its own."""

    def __init__(self, value: str) -> None:
        super().__init__()
        self.fitted_digest = value


def scenario(estimator: str) -> Scenario:
    return Scenario(
        (load_model("tiny"),), Cluster(8, load_network("two-level", num_devices=8)), 16, estimator=estimator
    )


def test_fitted_constants_count_in_the_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = scenario("analytic")
    digests = []
    for value in ("one", "two"):
        monkeypatch.setattr("phaze_opt.objective.scenario.load_plugin", lambda group, name, v=value: Fitted(v))
        digests.append(scenario("fitted").digest)
        assert scenario("analytic").digest == plain.digest
    assert len({plain.digest, *digests}) == 3
    assert isinstance(Fitted("one"), FittedEstimator)
    assert not isinstance(AnalyticEstimator(), FittedEstimator)


def test_an_estimator_without_constants_of_its_own_adds_its_name_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("phaze_opt.objective.scenario.load_plugin", lambda group, name: AnalyticEstimator())
    assert scenario("other").digest != scenario("analytic").digest
    assert scenario("other").digest == replace(scenario("analytic"), estimator="other").digest


def test_a_switch_that_came_later_counts_where_it_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """Certificates and runs of models without a ReLU keep their digests; a ReLU changes results, hence its digest."""
    plain = scenario("analytic")
    relu = replace(plain, models=(replace(plain.models[0], has_relu=True),))
    assert "has_relu" not in str(to_plain(Scenario, plain))
    assert from_plain(Scenario, to_plain(Scenario, relu)) == relu
    assert from_plain(Scenario, to_plain(Scenario, plain)) == plain
    written: list[str] = []
    dumps = json.dumps
    monkeypatch.setattr(
        "phaze_opt.objective.scenario.json.dumps", lambda value, **kwargs: written.append(dumps(value, **kwargs)) or "x"
    )
    assert plain.digest == relu.digest
    assert ["has_relu" in text for text in written] == [False, True]
