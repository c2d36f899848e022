"""``EXAMPLES=20 pytest ...`` draws twenty times as many examples, whatever number a property test states."""

import os
from collections.abc import Iterable

import pytest
from hypothesis import settings

_SETTINGS = "_hypothesis_internal_use_settings"
"""Where Hypothesis keeps the settings of a test, its own or the profile's."""


def draw_more(items: Iterable[pytest.Item]) -> None:
    """Multiply the examples of all tests by EXAMPLES, and draw new ones where the profile does."""
    factor = int(os.environ.get("EXAMPLES", "1"))
    tests = {id(test): test for item in items if (test := _property_of(item)) is not None}
    for test in tests.values():
        own = getattr(test, _SETTINGS)
        own = settings(own, max_examples=own.max_examples * factor, derandomize=settings().derandomize)
        setattr(test, _SETTINGS, own)


def _property_of(item: pytest.Item) -> object | None:
    """The function of an item that draws examples; None for others."""
    test = getattr(item, "obj", None)
    test = getattr(test, "__func__", test)
    return test if hasattr(test, _SETTINGS) else None
