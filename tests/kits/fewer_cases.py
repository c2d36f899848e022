"""Cases of a test that are alike: some in `make test`, all with `make test-slow`."""

from collections.abc import Iterable
from itertools import product

import pytest


def every(number: int, *axes: Iterable[object]) -> list[object]:
    """All combinations of the axes' values; those whose places add up to a multiple of ``number`` are not slow."""
    cases = product(*(enumerate(axis) for axis in axes))
    return [
        pytest.param(
            *(value for _, value in case), marks=pytest.mark.slow if sum(place for place, _ in case) % number else ()
        )
        for case in cases
    ]
