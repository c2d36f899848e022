"""Levels that collectives cross in chunks pass the suite that every collective model must pass."""

from dataclasses import replace

import numpy as np
import pytest
from kits.collectives import PAYLOADS_BYTES, ROUNDING, CollectiveConformance, random_dimensions

from phaze_opt.estimate.collectives import collective_s
from phaze_opt.graph.operator import CollectiveKind
from phaze_opt.hardware.network import Chunking, Network


def chunked(seed, chunking):
    plain = random_dimensions(np.random.default_rng(seed), count=1 + seed % 3)
    return Network("random", plain).with_chunking(chunking).dimensions


class TestFixedOrder(CollectiveConformance):
    @pytest.fixture(params=range(12))
    def dimensions(self, request):
        return chunked(request.param, Chunking.FIXED)


class TestThemis(CollectiveConformance):
    @pytest.fixture(params=range(12))
    def dimensions(self, request):
        return chunked(request.param, Chunking.THEMIS)

    def test_monotone_in_devices(self, collective, dimensions, kind):
        """Within a level: a group that grows into another one gains that level's links, and may end sooner (0162)."""
        for payload in PAYLOADS_BYTES:
            times = [collective(kind, payload, [replace(dimensions[0], size=size)]) for size in range(1, 70)]
            assert all(b >= a * (1 - ROUNDING) for a, b in zip(times, times[1:], strict=False))


@pytest.mark.parametrize("seed", range(12))
def test_themis_is_never_slower_than_the_fixed_order(seed):
    for kind in CollectiveKind:
        for payload in PAYLOADS_BYTES:
            fixed, themis = (
                collective_s(kind, payload, chunked(seed, way)) for way in (Chunking.FIXED, Chunking.THEMIS)
            )
            assert themis <= fixed * (1 + ROUNDING)
