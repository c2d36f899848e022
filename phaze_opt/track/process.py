"""Starts, watches and ends the process of `track.deliver`."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import final

import phaze_opt
from phaze_opt.track.deliver import DIRECTORY_VARIABLE, FIRST_ANSWER_S, PATIENCE_VARIABLE, WORK_DIR_VARIABLE
from phaze_opt.track.destination import URI_VARIABLE, Destination
from phaze_opt.track.order import OrderFile
from phaze_opt.track.quiet import quiet_environment

POLL_S = 0.05
TERMINATE_S = 2.0


@final
class DeliveryProcess:
    """A process that delivers one record, or, without one, every record that waits for a store.

    It has a session of its own, so Ctrl-C in the terminal does not reach it; it ends when its standard input does. The
    address reaches it through its environment, as a list of processes shows arguments.
    """

    def __init__(
        self,
        destination: Destination,
        *,
        place: OrderFile | None = None,
        first_answer_s: float = FIRST_ANSWER_S,
        on_failure: Callable[[], None] | None = None,
    ) -> None:
        """Start the process.

        Args:
            destination: the store.
            place: the record; None for all that wait.
            first_answer_s: patience with a store that has never answered, s.
            on_failure: called from a thread when the process ends in failure before `finish`.

        Raises:
            OSError: no process can be started.
        """
        environment = quiet_environment(os.environ)
        environment[URI_VARIABLE] = destination.tracking_uri
        environment[WORK_DIR_VARIABLE] = str(destination.work_dir)
        environment[DIRECTORY_VARIABLE] = "" if place is None else str(place.directory.absolute())
        environment[PATIENCE_VARIABLE] = str(first_answer_s)
        package_root = str(Path(phaze_opt.__file__).parents[1])
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH", ""), package_root]))
        self._is_finishing = False
        self._process = subprocess.Popen(
            # -P: a file in the user's directory must not stand in for a module
            [sys.executable, "-P", "-m", "phaze_opt.track.deliver"],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        if on_failure is not None:
            threading.Thread(target=self._watch, args=(on_failure,), name="delivery", daemon=True).start()

    def finish(self, *, progress: Callable[[], object], stall_s: float, total_s: float) -> bool:
        """Let it deliver what is left; whether it said that all is delivered.

        Args:
            progress: something that changes while delivery gets on.
            stall_s: end it after so long without progress, s.
            total_s: end it after so long in any case, s.
        """
        self._is_finishing = True
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()
        start = moved = time.monotonic()
        last = progress()
        try:
            while self._process.poll() is None:
                time.sleep(POLL_S)
                now, current = time.monotonic(), progress()
                if current != last:
                    last, moved = current, now
                if now - moved > stall_s or now - start > total_s:
                    return False
            return self._process.returncode == 0
        finally:
            self._end()

    def _watch(self, on_failure: Callable[[], None]) -> None:
        if self._process.wait() != 0 and not self._is_finishing:
            on_failure()

    def _end(self) -> None:
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(TERMINATE_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
