"""Exchanges of tokens with experts: by hand, by enumeration of choices, and against the carried measurements."""

import itertools
import math
from dataclasses import replace
from importlib import resources
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kits.measured_rows import changed

from phaze_opt.hardware.fabrics import load_fabric
from phaze_opt.hardware.fitted import FittedConstants
from phaze_opt.validation.calibrate import calibrate
from phaze_opt.validation.dataset import Dataset, read_dataset
from phaze_opt.validation.packs import known_constants
from phaze_opt.validation.predict import predict_rows
from phaze_opt.validation.result import mape
from phaze_opt_lab.estimate.expert_exchange import (
    AdapterCurve,
    ExchangeCurve,
    ExchangeKernels,
    ExchangeKind,
    ExpertExchange,
    exchange_curve,
    exchange_s,
    reached,
)
from phaze_opt_lab.expert_exchange import EXPERT_EXCHANGE, kernels_of

LINKS = ExchangeCurve(2e-5, 300e9, 10e9, 1e-8)
ADAPTERS = AdapterCurve(1e-5, 45e9)
ONE = ExpertExchange(512.0, 7168.0, 1.0, 256.0, 8.0, 8.0, 1.0, 20.0)
KERNELS = list(ExchangeKernels)


@pytest.fixture(scope="module")
def dataset():
    own = resources.files("phaze_opt_lab").joinpath("data/expert_exchange.csv")
    return read_dataset(Path(str(own)))


def test_one_node_by_hand():
    sent = 512 * 7168 * 7 * (1 - (7 / 8) ** 8)
    rate = (200e9**-4 + 300e9**-4) ** -0.25
    assert exchange_s(ExchangeKernels.NORMAL, ONE, LINKS, None) == pytest.approx(2e-5 + 512e-8 + sent / rate, rel=1e-12)
    quick = 2e-5 + 512e-8 + 512 * 8 * 7168 / (2560e9**-4 + 300e9**-4) ** -0.25
    assert exchange_s(ExchangeKernels.LOW_LATENCY, ONE, LINKS, None) == pytest.approx(quick, rel=1e-12)


def test_several_nodes_by_hand():
    """Normal kernels send a token once to each node; low-latency ones a copy for every expert there."""
    four = replace(ONE, nodes=4.0, devices=32.0, tokens=16384.0)
    far = 16384 * 7168 * 3 * (1 - (3 / 4) ** 8) / 45e9
    assert exchange_s(ExchangeKernels.NORMAL, four, LINKS, ADAPTERS) == pytest.approx(
        2e-5 + 2e-5 + 16384e-8 + far, rel=1e-12
    )
    copies = 16384 * 8 * 7168
    near = copies / 4 / (2560e9**-4 + 300e9**-4) ** -0.25
    assert exchange_s(ExchangeKernels.LOW_LATENCY, four, LINKS, ADAPTERS) == pytest.approx(
        2e-5 + 2e-5 + 16384e-8 + near + copies * 0.75 / 45e9, rel=1e-12
    )


@pytest.mark.parametrize(("places", "choices"), [(2, 1), (3, 2), (4, 3), (5, 2)])
def test_places_reached_are_those_of_all_choices(places, choices):
    all_choices = list(itertools.product(range(places), repeat=choices))
    others = [len(set(chosen) - {0}) for chosen in all_choices]
    assert reached(float(places), float(choices)) == pytest.approx(sum(others) / len(others), rel=1e-12)


@given(st.sampled_from(KERNELS), st.integers(1, 4096), st.integers(1, 8), st.integers(1, 20), st.integers(1, 3))
def test_monotone(kernels, tokens, chosen, units, doublings):
    here = replace(ONE, tokens=float(tokens), experts_per_token=float(chosen), units=float(units))
    adapters, nodes = ADAPTERS, float(2**doublings)
    here = replace(here, nodes=nodes, devices=8.0 * nodes)
    base = exchange_s(kernels, here, LINKS, adapters)
    assert exchange_s(kernels, replace(here, tokens=tokens + 1.0), LINKS, adapters) > base
    assert exchange_s(kernels, replace(here, experts_per_token=chosen + 1.0), LINKS, adapters) >= base
    assert exchange_s(kernels, replace(here, units=units + 1.0), LINKS, adapters) <= base
    wider = replace(adapters, bandwidth_bytes_per_s=2 * adapters.bandwidth_bytes_per_s)
    assert exchange_s(kernels, here, LINKS, wider) <= base
    assert math.isfinite(base)


def test_many_at_once_are_as_one_by_one():
    tokens = np.array([1.0, 64.0, 4096.0])
    many = ExpertExchange(*(tokens if name == "tokens" else np.full(3, getattr(ONE, name)) for name in ONE.__slots__))
    for kernels in KERNELS:
        each = [exchange_s(kernels, replace(ONE, tokens=float(count)), LINKS, None) for count in tokens]
        assert exchange_s(kernels, many, LINKS, None) == pytest.approx(each, rel=1e-14)


def test_links_nobody_measured_take_the_means_and_no_fit_the_starts():
    fitted = known_constants()
    h800 = exchange_curve(load_fabric("nvlink4-h800"), ExchangeKind.DISPATCH, ExchangeKernels.NORMAL, fitted)
    h100 = exchange_curve(load_fabric("nvlink4-nvswitch"), ExchangeKind.DISPATCH, ExchangeKernels.NORMAL, fitted)
    assert h800.bandwidth_bytes_per_s == pytest.approx(h100.bandwidth_bytes_per_s * 200 / 450)
    a100 = exchange_curve(load_fabric("nvlink3-nvswitch"), ExchangeKind.DISPATCH, ExchangeKernels.NORMAL, fitted)
    names = ("nvlink4-nvswitch", "nvlink5-nvswitch", "nvlink5-nvl72")
    starts = [
        exchange_curve(load_fabric(name), ExchangeKind.DISPATCH, ExchangeKernels.NORMAL, fitted).start_s
        for name in names
    ]
    assert a100.start_s == pytest.approx(math.prod(starts) ** (1 / 3))
    bare = exchange_curve(load_fabric("hdr"), ExchangeKind.COMBINE, ExchangeKernels.NORMAL, FittedConstants({}))
    assert 0 < bare.bandwidth_bytes_per_s <= 25e9


def test_carried_rows_are_predicted_within_12_per_cent(dataset):
    found = predict_rows([EXPERT_EXCHANGE], dataset.rows, known_constants())
    assert not found.unscored
    assert mape(found.predicted_s, found.measured_s) <= 12.0


def test_the_packages_constants_are_found_again_on_one_machine(dataset):
    """H100 and H200 share a fabric: its groups from all of their rows within nodes."""
    own = [row for row in dataset.rows if row.text("hardware") in ("H100-SXM", "H200-SXM")]
    low = [
        row for row in own if kernels_of(row) is ExchangeKernels.LOW_LATENCY and row.text("collective") == "moe_combine"
    ]
    found = calibrate(
        [EXPERT_EXCHANGE],
        [Dataset("expert_exchange", dataset.schema, tuple(low))],
        FittedConstants({}),
        source="test",
        has_held_out=False,
    )
    for name, group in found.groups.items():
        if "/ndr/" not in name:
            for key, constant in group.constants.items():
                assert known_constants().value(name, key) == pytest.approx(constant.value, rel=1e-3)


def test_every_group_has_eight_rows_or_more_and_none_sits_on_a_bound(dataset):
    compiled = {name for name in known_constants().groups if name.startswith("exchange/")}
    parameters = EXPERT_EXCHANGE.parameters(dataset.rows)
    assert {parameter.group for parameter in parameters} == compiled
    for parameter in parameters:
        assert parameter.low <= known_constants().value(parameter.group, parameter.name) <= parameter.high


def test_rows_without_a_time_or_of_another_kind_are_a_sentence_each(dataset):
    row = dataset.rows[0]
    variants = [changed(row, latency_us=""), changed(row, collective="moe_shuffle"), changed(row, hardware="Abacus")]
    unscored = EXPERT_EXCHANGE.compile(variants).unscored
    assert set(unscored) == {0, 1, 2}
    assert "give latency_us" in unscored[0]
    assert "moe_dispatch" in unscored[1]
    assert "Abacus" in unscored[2]
