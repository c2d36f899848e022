"""Manners of worker processes: deaf to Ctrl-C, ending in order when told, never outliving their parent."""

import gc
import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import connection, resource_tracker
from multiprocessing.util import Finalize

from phaze_opt import OBJECTS_PER_COLLECTION

FIRST_AT_EXIT = 1000
"""Priority among what multiprocessing does when a worker ends; higher goes first."""


class WorkerToldToEndError(SystemExit):
    """SIGTERM in a worker, told apart from the exit that code of somebody else asks for."""


@contextmanager
def interrupts_blocked() -> Iterator[None]:
    """Block SIGINT here and in the processes started inside; one that comes meanwhile is delivered afterwards.

    The resource tracker would unblock SIGINT when it starts, so it is started first.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


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
    raise WorkerToldToEndError(1)


def _end_with_parent() -> None:
    """End this process when its parent has ended, as it would wait for work forever otherwise."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)
