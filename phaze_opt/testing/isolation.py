"""What no plug-in may depend on or disturb: heavy imports, its process, global generators of random numbers."""

import multiprocessing
import pickle
import random
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from importlib import import_module
from typing import ParamSpec, TypeVar

import numpy as np

SPAWNING = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
"""How a fresh process starts: where the system can, as a fork of one that has done nothing but import."""
PRELOADED = ["phaze_opt.testing.strategies", "phaze_opt.testing.estimators", "phaze_opt.testing.pruners"]
"""What that one imports: it takes longer than most of what is asked of a fresh process."""
HEAVY_MODULES = ("mlflow", "torch", "optuna", "pyomo", "matplotlib")
"""What importing a plug-in must not pull in; running it may."""
P = ParamSpec("P")
T = TypeVar("T")


def assert_imports_cheaply(plugin: object, *more_modules: str) -> None:
    """Importing a plug-in's module, in a process of its own, pulls in neither `HEAVY_MODULES` nor ``more_modules``.

    Raises:
        AssertionError: it does, with their names.
    """
    found = _pulled_in(type(plugin).__module__, (*HEAVY_MODULES, *more_modules))
    assert not found, found


@cache
def _pulled_in(module: str, heavy: tuple[str, ...]) -> tuple[str, ...]:
    """Which of some modules a module's import pulls in; plug-ins of one module share the process."""
    return in_spawned_process(_import_alone, module, heavy)


def _import_alone(module: str, heavy: tuple[str, ...]) -> tuple[str, ...]:
    import_module(module)
    return tuple(name for name in heavy if name in sys.modules)


def in_spawned_process(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """What a function gives in a fresh process, with another hash seed, import order and global generators than here.

    Where the system forks such processes from a server (`SPAWNING`), all of them have the server's.
    """
    context = multiprocessing.get_context(SPAWNING)
    context.set_forkserver_preload(PRELOADED)
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(function, *args, **kwargs).result()


def global_generators() -> object:
    """State of the generators that everybody shares, to be compared."""
    return random.getstate(), pickle.dumps(np.random.get_state())  # noqa: NPY002 - the global one is what is tested
