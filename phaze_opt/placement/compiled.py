"""The one way this room compiles kernels: numba without fallback, cached on disk, releasing the GIL."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar, cast

from numba import njit

P = ParamSpec("P")
R = TypeVar("R")


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Compile on first call, keeping the function's type. Kernels take no keyword-only arguments: numba has none."""
    return cast("Callable[P, R]", njit(cache=True, nogil=True)(function))
