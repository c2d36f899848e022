"""Manners of worker processes: deaf to Ctrl-C, ending in order when told, never outliving their parent."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing import connection, resource_tracker
from multiprocessing.util import Finalize

from phaze_opt import OBJECTS_PER_COLLECTION
from phaze_opt.record.interrupts import WorkerToldToEndError, send_again

FIRST_AT_EXIT = 1000
"""Priority among what multiprocessing does when a worker ends; higher goes first."""


CHILD_ENVIRONMENT = {"PYTHONSAFEPATH": "1"}
"""Of every process that this one starts: Python looks for no module in the folder that it runs in."""


@contextmanager
def starting_workers() -> Iterator[None]:
    """Block SIGINT here and in the processes started inside; one that comes meanwhile is delivered afterwards.

    They have `CHILD_ENVIRONMENT`, which multiprocessing takes from this process. Its resource tracker too, which would
    unblock SIGINT when it starts, so it is started first.
    """
    with ExitStack() as after:
        for name, value in CHILD_ENVIRONMENT.items():
            if name not in os.environ:
                after.callback(os.environ.pop, name, None)
                os.environ[name] = value
        if hasattr(signal, "pthread_sigmask"):
            resource_tracker.ensure_running()
            before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
            after.callback(signal.pthread_sigmask, signal.SIG_SETMASK, before)
        yield


def prepare_worker() -> None:
    """Make this process deaf to Ctrl-C and end it when its parent has ended; called first in a worker."""
    gc.set_threshold(OBJECTS_PER_COLLECTION)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def end_in_order() -> None:
    """Let SIGTERM end this worker through Python, so that its libraries' locks are given back, not reported as leaked.

    Called before the first evaluation; until then SIGTERM ends a worker at once, as there is nothing to give back. A
    further SIGTERM must not raise inside the last callbacks of a worker that is ending.
    """
    signal.signal(signal.SIGTERM, _end)
    Finalize(None, signal.signal, args=(signal.SIGTERM, signal.SIG_IGN), exitpriority=FIRST_AT_EXIT)


def _end(*_: object) -> None:
    sys.unraisablehook = _end_again
    raise WorkerToldToEndError(1)


def _end_again(fault: sys.UnraisableHookArgs) -> None:
    """Tell this worker again where a destructor lost the word; what else fails in an ending worker is of no use."""
    if fault.exc_type is not None and issubclass(fault.exc_type, WorkerToldToEndError):
        send_again(signal.SIGTERM)


def _end_with_parent() -> None:
    """End this process when its parent has ended, as it would wait for work forever otherwise."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)
