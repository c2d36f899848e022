"""How many examples property tests draw: `SHARE` of the number each states, or EXAMPLES=20 times it."""

import math
import os
from collections.abc import Iterable

import pytest
from hypothesis import settings

_SETTINGS = "_hypothesis_internal_use_settings"
"""Where Hypothesis keeps the settings of a test, its own or the profile's."""
SHARE = 0.4
"""Of the number that a test states, where examples are the same on every run: `make test-deep` draws all, and new."""


def draw_more(items: Iterable[pytest.Item]) -> None:
    """Set the examples of all tests, and draw new ones where the profile does."""
    factor = float(os.environ.get("EXAMPLES", "1" if settings.get_current_profile_name() == "drawn" else SHARE))
    tests = {id(test): test for item in items if (test := _property_of(item)) is not None}
    for test in tests.values():
        own = getattr(test, _SETTINGS)
        own = settings(own, max_examples=math.ceil(own.max_examples * factor), derandomize=settings().derandomize)
        setattr(test, _SETTINGS, own)


def _property_of(item: pytest.Item) -> object | None:
    """The function of an item that draws examples; None for others."""
    test = getattr(item, "obj", None)
    test = getattr(test, "__func__", test)
    return test if hasattr(test, _SETTINGS) else None
