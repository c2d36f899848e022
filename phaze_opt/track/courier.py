"""Starts, watches and ends the process of `track.deliver`."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import final

import phaze_opt
from phaze_opt.track.deliver import DIRECTORY_VARIABLE, WORK_DIR_VARIABLE
from phaze_opt.track.destination import URI_VARIABLE, Destination
from phaze_opt.track.journal import Journal
from phaze_opt.track.quiet import quiet_environment

POLL_S = 0.1
TERMINATE_S = 2.0


@final
class Courier:
    """A process that delivers one journal, or, without one, every journal that waits for a store.

    It has a session of its own, so Ctrl-C in the terminal does not reach it; it ends when its standard input does.
    """

    def __init__(self, destination: Destination, *, journal: Journal | None = None) -> None:
        """Start the process.

        Raises:
            OSError: no process can be started.
        """
        environment = quiet_environment(os.environ)
        environment[URI_VARIABLE] = destination.tracking_uri
        environment[WORK_DIR_VARIABLE] = str(destination.work_dir)
        environment[DIRECTORY_VARIABLE] = "" if journal is None else str(journal.directory.absolute())
        package_root = str(Path(phaze_opt.__file__).parents[1])
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH", ""), package_root]))
        self._process = subprocess.Popen(
            # -P: a file in the user's directory must not stand in for a module
            [sys.executable, "-P", "-m", "phaze_opt.track.deliver"],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def finish(self, *, progress: Callable[[], int], stall_s: float, total_s: float) -> bool:
        """Let it deliver what is left; whether it said that all is delivered.

        Args:
            progress: a number that grows while delivery gets on.
            stall_s: end it after so long without progress, s.
            total_s: end it after so long in any case, s.
        """
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
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

    def _end(self) -> None:
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(TERMINATE_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
