"""How the kernels of this room are compiled. Import lazily: it pulls in numba."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

from numba import njit

_FunctionT = TypeVar("_FunctionT", bound=Callable[..., object])


def compiled(function: _FunctionT) -> _FunctionT:
    """Compile without fast-math; cached on disk if any cache folder is writable (numba refuses otherwise)."""
    try:
        return cast(_FunctionT, njit(cache=True, nogil=True)(function))
    except RuntimeError:
        return cast(_FunctionT, njit(nogil=True)(function))
