"""Conformance suite of collective models.

An author derives a test class and overrides one fixture::

    class TestMine(CollectiveConformance):
        @pytest.fixture
        def collective(self):
            return my_collective_s

Monotonicity in devices is asked within one dimension and of another dimension outside. It cannot be asked of every
group: 9 devices on islands of 8 leave one device alone with a slow link for the whole payload, and cost more than 16.
"""

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from phaze_opt.estimate.collectives import collective_s
from phaze_opt.graph.operator import CollectiveKind
from phaze_opt.hardware.network import NetworkDimension, Topology

CollectiveModel = Callable[[CollectiveKind, float, Sequence[NetworkDimension]], float]
"""Kind, payload in bytes and the group's dimensions (innermost first) to seconds."""
Dimensions = tuple[NetworkDimension, ...]
PAYLOADS_BYTES = (0.0, 1.0, 1e3, 1e6, 1e9, 1e12)
ROUNDING = 1e-12


def random_dimensions(rng: np.random.Generator, *, count: int) -> Dimensions:
    """Dimensions of every topology, of 1 to 64 devices."""
    return tuple(
        NetworkDimension(
            topology=list(Topology)[int(rng.integers(len(Topology)))],
            size=int(rng.integers(1, 65)),
            bandwidth_bytes_per_s=float(10 ** rng.uniform(9, 12)),
            latency_s=float(rng.choice([0.0, 1e-6, 5e-6])),
        )
        for _ in range(count)
    )


@pytest.mark.parametrize("kind", list(CollectiveKind))
class CollectiveConformance:
    """Derive from it; override ``collective`` for another model than the package's, ``dimensions`` for other groups."""

    @pytest.fixture
    def collective(self) -> CollectiveModel:
        """The model under test."""
        return collective_s

    @pytest.fixture(params=range(12))
    def dimensions(self, request: pytest.FixtureRequest) -> Dimensions:
        """Random groups of one to three dimensions."""
        rng = np.random.default_rng(request.param)
        return random_dimensions(rng, count=1 + request.param % 3)

    def test_zero_on_one_device(
        self, collective: CollectiveModel, dimensions: Dimensions, kind: CollectiveKind
    ) -> None:
        """Nobody to talk to."""
        alone = [replace(dimension, size=1) for dimension in dimensions]
        assert all(collective(kind, payload, alone) == 0 for payload in PAYLOADS_BYTES)

    def test_finite_and_monotone_in_bytes(
        self, collective: CollectiveModel, dimensions: Dimensions, kind: CollectiveKind
    ) -> None:
        """More bytes never take less time."""
        times = [collective(kind, payload, dimensions) for payload in PAYLOADS_BYTES]
        assert all(math.isfinite(time) and time >= 0 for time in times)
        assert times == sorted(times)

    def test_monotone_in_devices(
        self, collective: CollectiveModel, dimensions: Dimensions, kind: CollectiveKind
    ) -> None:
        """One dimension with more devices, or one more dimension outside, never costs less."""
        for payload in PAYLOADS_BYTES:
            times = [collective(kind, payload, [replace(dimensions[0], size=size)]) for size in range(1, 70)]
            assert all(b >= a * (1 - ROUNDING) for a, b in zip(times, times[1:], strict=False))
            spans = [collective(kind, payload, dimensions[:count]) for count in range(1, len(dimensions) + 1)]
            assert all(b >= a * (1 - ROUNDING) for a, b in zip(spans, spans[1:], strict=False))

    def test_never_slower_with_faster_links(
        self, collective: CollectiveModel, dimensions: Dimensions, kind: CollectiveKind
    ) -> None:
        """More bandwidth or less latency never costs time."""
        wide = [replace(d, bandwidth_bytes_per_s=3 * d.bandwidth_bytes_per_s) for d in dimensions]
        quick = [replace(d, latency_s=d.latency_s / 3) for d in dimensions]
        for payload in PAYLOADS_BYTES:
            slow = collective(kind, payload, dimensions)
            assert collective(kind, payload, wide) <= slow * (1 + ROUNDING)
            assert collective(kind, payload, quick) <= slow * (1 + ROUNDING)

    @pytest.mark.parametrize("size", [2, 3, 8, 33])
    def test_ring_all_reduce_equals_its_closed_form(
        self, collective: CollectiveModel, kind: CollectiveKind, size: int
    ) -> None:
        """2(p-1) latency + 2(p-1)/p S/B; its two halves, all-gather and reduce-scatter, half of that."""
        ring = NetworkDimension(Topology.RING, size, 100e9, 2e-6)
        whole = 2 * (size - 1) * 2e-6 + 2 * (size - 1) / size * 1e9 / 100e9
        expected = {CollectiveKind.ALL_REDUCE: whole, CollectiveKind.ALL_TO_ALL: (size - 1) / size * 1e9 / 100e9}
        expected |= {pairs: 2e-6 + 1e9 / 100e9 for pairs in CollectiveKind if pairs.is_pairwise}
        assert collective(kind, 1e9, [ring]) == pytest.approx(expected.get(kind, whole / 2), rel=ROUNDING)

    def test_inputs_are_left_alone(
        self, collective: CollectiveModel, dimensions: Dimensions, kind: CollectiveKind
    ) -> None:
        """The same call twice gives the same time, and the dimensions are as before."""
        before = copy.deepcopy(dimensions)
        assert collective(kind, 1e6, dimensions) == collective(kind, 1e6, dimensions)
        assert dimensions == before
