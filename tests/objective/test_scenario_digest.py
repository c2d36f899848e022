"""What an estimator was fitted with is part of a scenario's digest; the analytic one has nothing to add."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from phaze_opt.estimate.analytic import AnalyticEstimator
from phaze_opt.estimate.protocol import FittedEstimator
from phaze_opt.hardware.network import Cluster, MeasuredDimension, Network, NetworkDimension
from phaze_opt.hardware.networks import load_network
from phaze_opt.objective.scenario import CommonMean, Scenario
from phaze_opt.record.plain_data import from_plain, to_plain
from phaze_opt.workload.config import load_model
from phaze_opt.workload.training import AttentionForm, Optimizer


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


def test_a_switch_of_a_model_counts() -> None:
    plain = scenario("analytic")
    relu = replace(plain, models=(replace(plain.models[0], has_relu=True),))
    assert plain.digest != relu.digest
    assert from_plain(Scenario, to_plain(Scenario, relu)) == relu


BUDGETS = {"max_area_mm2": 400, "max_tdp_w": 300.5, "schedule_gap": 0.0, "schedule_nodes": 0}
CHOICES = {"estimator": "calibrated", "sequence_length": 1024, "is_sequence_parallel": False}
KNOWN = {
    "12ae43b949de5c1a": (["bert-large"], "two-level", {}),
    "e8a8f3e64f9d6de4": (["llama-2-7b"], "dgx-a100", {}),
    "b13429d7331137de": (["gpt2-xl"], "phaze", {"optimizer": Optimizer.SGD, "attention": AttentionForm.UNFUSED}),
    "ed85f13c13dcf96b": (["opt-1.3b"], "tpu-v4-torus", {"tensor_parallel": (1, 2)}),
    "0417316ff4f57996": (["tiny", "bert-large"], "dgx-h100", {"common": CommonMean.WORST}),
    "359ca78a14624b3a": (
        ["mixtral-8x7b"],
        "two-level",
        {"max_area_mm2": 400, "max_tdp_w": 300.5, "schedule_gap": 0.0, "schedule_nodes": 0},
    ),
    "8249df2b0dd5ec9b": (
        ["gpt3-175b"],
        "two-level",
        {"estimator": "calibrated", "sequence_length": 1024, "is_sequence_parallel": False},
    ),
}
"""Beginnings of digests in version 0.1.0, the constants' own digest apart."""


@pytest.mark.parametrize("known", KNOWN)
def test_digests_hold(known: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Certificates, kept searches and studies are found by them: who changes one voids what people keep."""
    models, network, given = KNOWN[known]
    monkeypatch.setattr("phaze_opt.objective.scenario.load_constants", lambda: SimpleNamespace(digest="constants"))
    monkeypatch.setattr("phaze_opt.objective.scenario._fitted_digests", lambda name: ())
    # Curves by kind are fitted: a new fit is to move no digest here.
    loaded = load_network(network, num_devices=64)
    levels = (replace(each, kinds=()) if isinstance(each, MeasuredDimension) else each for each in loaded.dimensions)
    cluster = Cluster(64, Network(loaded.name, tuple(levels)))
    assert Scenario(tuple(map(load_model, models)), cluster, 256, **given).digest.startswith(known)


def test_every_curve_counts_whatever_numbers_a_level_has() -> None:
    """An integer latency once made a level of a curve a plain one, in JSON values and digests."""
    curve = load_network("dgx-a100", num_devices=64).dimensions[0]
    levels = replace(curve, latency_s=0), NetworkDimension(curve.topology, curve.size, curve.bandwidth_bytes_per_s, 0)
    made = [replace(scenario("analytic"), cluster=Cluster(8, Network("x", (level,)))) for level in levels]
    assert made[0].digest != made[1].digest
    assert [from_plain(Scenario, to_plain(Scenario, each)) for each in made] == made
