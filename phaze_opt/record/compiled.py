"""The one way kernels are compiled: without fast-math, releasing the interpreter's lock, cached on disk.

Import lazily: it pulls in numba.
"""

import hashlib
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from pickle import UnpicklingError
from types import FunctionType
from typing import Any, ParamSpec, TypeVar, cast

import numpy as np

from phaze_opt.record.input_files import outside_working_folder

with outside_working_folder():
    from numba import njit
    from numba.core import caching, config
    from numba.core.dispatcher import Dispatcher
config._config_fname = os.devnull  # numba looks for its settings in the working folder again whenever it compiles

_LOGGER = logging.getLogger(__name__)
"""Hears of every kernel that is compiled, not of those that are found: whoever waits may be told."""
P = ParamSpec("P")
R = TypeVar("R")
_DAMAGED = (OSError, EOFError, UnpicklingError, ValueError, TypeError, AttributeError, IndexError, KeyError)
"""What reading a file of compiled code raises where it is damaged."""
_CONSTANTS = (bool, int, float, str, bytes, tuple, frozenset)


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Compile on first call, keeping the function's type. Kernels take no keyword-only arguments: numba has none.

    The compiled code is kept in the first folder that may be written: numba's (NUMBA_CACHE_DIR), the module's
    ``__pycache__``, the user's cache. Where none may, every process compiles for itself.
    """
    kernel = njit(nogil=True)(function)
    kernel._cache = _KeptNowhere()
    with suppress(RuntimeError):  # numba: no folder may be written
        kernel._cache = _KernelCache(function)
    return cast("Callable[P, R]", kernel)


def inlined(function: Callable[P, R]) -> Callable[P, R]:
    """Put a piece into the kernels that call it, where the cost of a call would show."""
    return cast("Callable[P, R]", njit(inline="always")(function))


def source_stamp(function: FunctionType) -> str:
    """Digest of every source that goes into a kernel: its module, those of the kernels it may call, their constants.

    numba looks at the kernel's own file only, so an edited callee in another file would leave stale code behind.
    """
    digest = hashlib.sha256()
    seen: set[str] = set()
    for part in _sources(function.__globals__, seen):
        digest.update(part)
    return digest.hexdigest()


def _sources(names: Mapping[str, Any], seen: set[str]) -> Iterator[bytes]:
    """What a module's kernels are made of, other modules' kernels included; each module once."""
    file = str(names.get("__file__", ""))
    if file in seen:
        return
    seen.add(file)
    yield _file_digest(file)
    for name, value in sorted(names.items()):
        if isinstance(value, Dispatcher):
            yield from _sources(value.py_func.__globals__, seen)
        elif name.startswith("__"):
            continue
        elif isinstance(value, _CONSTANTS):
            yield f"{name}={value!r}".encode()
        elif isinstance(value, np.ndarray):
            yield name.encode() + value.tobytes()
        elif isinstance(value, type) and issubclass(value, tuple) and hasattr(value, "_fields"):
            # kernels take a named tuple apart by the places of its fields
            yield f"{name}={value._fields!r}".encode()


@cache
def _file_digest(file: str) -> bytes:
    """Digest of a source; empty for code that has no file."""
    try:
        return hashlib.sha256(Path(file).read_bytes()).digest()
    except OSError:
        return b""


class _Stamped:
    """A cache locator of numba's, with a stamp that covers all sources of a kernel."""

    @classmethod
    def from_function(cls, py_func: FunctionType, py_file: str) -> Any:
        """Numba's own locator, where its folder may be written."""
        locator = super().from_function(py_func, py_file)  # type: ignore[misc]
        if locator is not None:
            locator.function = py_func
        return locator

    def get_source_stamp(self) -> str:
        """What must be the same for the cached code to be used."""
        function: FunctionType = self.function  # type: ignore[attr-defined]
        return source_stamp(function)


class _Given(_Stamped, caching.UserProvidedCacheLocator):  # type: ignore[misc]
    """NUMBA_CACHE_DIR."""


class _InTree(_Stamped, caching.InTreeCacheLocator):  # type: ignore[misc]
    """``__pycache__``."""


class _UserWide(_Stamped, caching.UserWideCacheLocator):  # type: ignore[misc]
    """The user's cache."""


class _KernelCacheImpl(caching.CompileResultCacheImpl):  # type: ignore[misc]
    """Numba's storage of compiled code, found by the locators above."""

    _locator_classes = (_Given, _InTree, _UserWide)


class _KernelCache(caching.FunctionCache):  # type: ignore[misc]
    """Numba's cache, which a full disk or a damaged file does not stop: the kernel is compiled again."""

    _impl_class = _KernelCacheImpl

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Compiled code, if it is there and whole."""
        found = None
        try:
            found = super().load_overload(sig, target_context)
        except _DAMAGED:
            with suppress(OSError):
                self.flush()
        if found is None:
            _LOGGER.info("compiling %s", self._name)
        return found

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep compiled code where there is room."""
        with suppress(OSError):
            super().save_overload(sig, data)


class _KeptNowhere(caching.NullCache):  # type: ignore[misc]
    """Where no folder may be written: every process compiles, and says so."""

    def load_overload(self, sig: Any, target_context: Any) -> None:  # noqa: ARG002
        """Nothing is there."""
        _LOGGER.info("compiling")
