"""Hypothesis draws the same examples on every run of `make test`, and new ones in `make test-deep`."""

from hypothesis import settings

settings.register_profile("same", derandomize=True, deadline=None)
settings.register_profile("drawn", derandomize=False, deadline=None, print_blob=True)
settings.load_profile("same")
