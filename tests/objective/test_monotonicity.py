"""Where bandwidth, clock, devices or memory grow and nothing else changes, throughput never falls."""

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kits.scenarios import make_point, make_scenario

from phaze_opt.objective.evaluate import Objective
from phaze_opt.space.known_spaces import phaze_space
from phaze_opt.units import gib_to_bytes

SPACE = phaze_space(hbm_bytes=(gib_to_bytes(32), gib_to_bytes(80)), micro_batches=(1, 4))
OBJECTIVES = {
    devices: Objective(make_scenario("bert-large", devices=devices, global_batch=256)) for devices in (24, 32, 48, 64)
}
BASE = OBJECTIVES[32]
TOLERANCE = 1e-9
RATES = ["glb_bandwidth_bytes_per_s", "hbm_bandwidth_bytes_per_s", "hbm_bytes"]


def build(index):
    return BASE.evaluate(SPACE.point(index)).accelerator, SPACE.point(index).micro_batch


@given(index=st.integers(0, SPACE.size - 1), rate=st.sampled_from(RATES), factor=st.sampled_from([1.1, 2.0, 16.0]))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_bandwidth_and_memory(index, rate, factor):
    accelerator, micro_batch = build(index)
    grown = replace(accelerator, **{rate: type(getattr(accelerator, rate))(getattr(accelerator, rate) * factor)})
    before = BASE.evaluate_accelerator(accelerator, micro_batch)
    after = BASE.evaluate_accelerator(grown, micro_batch)
    assert after.throughput_bound_samples_per_s >= before.throughput_samples_per_s * (1 - TOLERANCE)


@given(index=st.integers(0, SPACE.size - 1), factor=st.sampled_from([1.1, 2.0]))
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_clock(index, factor):
    """The buffer of a designed chip runs at the chip's clock, so its bandwidth grows along."""
    accelerator, micro_batch = build(index)
    grown = replace(
        accelerator,
        clock_hz=accelerator.clock_hz * factor,
        glb_bandwidth_bytes_per_s=accelerator.glb_bandwidth_bytes_per_s * factor,
    )
    before = BASE.evaluate_accelerator(accelerator, micro_batch)
    after = BASE.evaluate_accelerator(grown, micro_batch)
    assert after.throughput_bound_samples_per_s >= before.throughput_samples_per_s * (1 - TOLERANCE)


@given(index=st.integers(0, SPACE.size - 1), more=st.sampled_from([(24, 32), (32, 48), (48, 64), (24, 64)]))
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_devices(index, more):
    few, many = (OBJECTIVES[devices].evaluate(SPACE.point(index)) for devices in more)
    assert many.throughput_bound_samples_per_s >= few.throughput_samples_per_s * (1 - TOLERANCE)


@pytest.mark.parametrize("factor", [2.0, 8.0])
@pytest.mark.parametrize("dimension", [0, 1])
def test_network_bandwidth(factor, dimension):
    scenario = BASE.scenario
    dimensions = list(scenario.cluster.network.dimensions)
    fast = dimensions[dimension].bandwidth_bytes_per_s * factor
    dimensions[dimension] = replace(dimensions[dimension], bandwidth_bytes_per_s=fast)
    network = replace(scenario.cluster.network, dimensions=tuple(dimensions))
    grown = Objective(replace(scenario, cluster=replace(scenario.cluster, network=network)))
    for point in (make_point(), make_point(num_tc=32, num_vc=64)):
        before, after = BASE.evaluate(point), grown.evaluate(point)
        assert after.throughput_bound_samples_per_s >= before.throughput_samples_per_s * (1 - TOLERANCE)
