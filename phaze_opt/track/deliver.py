"""Delivery of records to MLflow, and the process that does it beside a search, a study or a proof.

``python -m phaze_opt.track.deliver`` with `DIRECTORY_VARIABLE` set follows one record until its standard input ends, so
a search never imports MLflow, never waits for it, and cannot be hurt by it. What the store has is known from the store
itself (see `writers`), so a process that dies half-way leaves nothing half-known.
"""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, cast, final

import phaze_opt
from phaze_opt.errors import InputError
from phaze_opt.record.lock import locked
from phaze_opt.track import store
from phaze_opt.track.destination import URI_VARIABLE, Destination
from phaze_opt.track.pending_delivery import DeliveryState, Order, OrderFile, Record, list_orders
from phaze_opt.track.runs import log_file
from phaze_opt.track.sources import Part, Source, num_pending, open_source
from phaze_opt.track.store import HeardClient, StoreClock, describe_trouble, quiet_environment, quiet_mlflow
from phaze_opt.track.writers import RunWriter, StudyWriter, open_writer

if TYPE_CHECKING:
    from mlflow import MlflowClient


DIRECTORY_VARIABLE = "PHAZE_OPT_ORDER"
WORK_DIR_VARIABLE = "PHAZE_OPT_WORK_DIR"
PATIENCE_VARIABLE = "PHAZE_OPT_FIRST_ANSWER_S"
GROUP = 10
"""Records written between two notes of how far delivery is."""
POLL_S = 0.25
WATCH_S = 0.05
TERMINATE_S = 2.0
FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 10.0
FIRST_ANSWER_S = 9.0
"""Patience with a server or database that has never answered, s."""
LOST_ANSWER_S = 60.0
"""Patience with one that has, and with a file that another process holds, s."""
BUSY = "another process delivers this record"


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
                time.sleep(WATCH_S)
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


def open_clock(destination: Destination) -> StoreClock:
    """The patience that a store deserves."""
    first_s = float(os.environ.get(PATIENCE_VARIABLE, FIRST_ANSWER_S))
    return StoreClock(first_s if destination.is_remote else LOST_ANSWER_S, LOST_ANSWER_S)


@final
@dataclass(slots=True)
class OrderDelivery:
    """Delivers one record to one store; after a failure, make a new one."""

    place: OrderFile
    destination: Destination
    clock: StoreClock
    _order: Order | None = None
    _state: DeliveryState = field(default_factory=DeliveryState)
    _source: Source | None = None
    _writer: RunWriter | StudyWriter | None = None

    def deliver(self, *, is_last: bool) -> None:
        """Write what the record has and the store has not.

        Args:
            is_last: whether the record grows no more.

        Raises:
            Exception: whatever MLflow raises.
        """
        if self._writer is None and not num_pending(self.place, self.destination.shown):
            return
        order = self.place.read()
        assert order is not None
        self.clock.ask()
        if self._order is None or self._order.started != order.started:
            self._connect(order)
        assert self._writer is not None
        assert self._source is not None
        for records, num_parts in grouped(self._source.read(is_ended=is_last or bool(order.finished))):
            self._writer.write(records)
            self._note(replace(self._state, num_done=self._state.num_done + num_parts))
        for name, path in self.place.waiting_files().items():
            log_file(self._writer.runs.client, self._writer.run_id, name=name, path=path)
            path.unlink(missing_ok=True)  # a page is megabytes
        if order.finished and self._state.finished_ms != order.finished["time_ms"]:
            self._writer.write([order.finished])
            self._note(replace(self._state, finished_ms=order.finished["time_ms"]))

    def _connect(self, order: Order) -> None:
        """Find or make the run, and begin at the first part: what the store has is not written again."""
        client = HeardClient(store.open_client(self.destination), self.clock.answer)
        writer = open_writer(cast("MlflowClient", client), self.destination, order.attempt, order.started)
        writer.write([order.started])
        self._note(
            DeliveryState(
                target=order.target,
                started_ms=order.started["time_ms"],
                run_id=writer.run_id,
                experiment_id=writer.runs.experiment_id,
            )
        )
        self._order, self._writer, self._source = order, writer, open_source(self.place, order)

    def _note(self, state: DeliveryState) -> None:
        self._state = replace(state, has_answered=True)
        self.place.save_state(self._state)


def grouped(parts: list[Part]) -> Iterator[tuple[list[Record], int]]:
    """Records in groups, each with the number of parts that it completes."""
    group: list[Record] = []
    num_parts = 0
    for part in parts:
        for index, record in enumerate(part, start=1):
            group.append(record)
            num_parts += index == len(part)
            if len(group) == GROUP:
                yield group, num_parts
                group, num_parts = [], 0
        num_parts += not part
    if group or num_parts:
        yield group, num_parts


def attempt_delivery(delivery: OrderDelivery, *, is_last: bool) -> bool:
    """Deliver once; whether it went well. Trouble is noted, not raised."""
    try:
        with quiet_mlflow():
            delivery.deliver(is_last=is_last)
    except Exception as error:  # the store's trouble, of any kind, is a reason to wait
        delivery.clock.trouble = describe_trouble(error, delivery.destination)
        note_trouble(delivery.place, delivery.clock)
        return False
    delivery.clock.rest()
    return True


def note_trouble(place: OrderFile, clock: StoreClock) -> None:
    """Leave word of why a record is not delivered."""
    order = place.read()
    if order is not None:
        reason = clock.trouble or f"no answer within {clock.patience_s:.0f} s"
        place.save_state(replace(place.state(order), reason=reason, has_answered=clock.has_answered))


def deliver_once(place: OrderFile, destination: Destination, *, clock: StoreClock | None = None) -> bool:
    """Deliver what a record holds for a store now; whether it went well."""
    try:
        with locked(place.lock, busy=BUSY):
            delivery = OrderDelivery(place, destination, clock or open_clock(destination))
            return attempt_delivery(delivery, is_last=True)
    except InputError:
        return False


def deliver_waiting(
    destination: Destination, *, except_for: OrderFile | None = None, clock: StoreClock | None = None
) -> int:
    """Deliver every record under the working directory that waits for this store; what is still waiting."""
    left = 0
    for place in list_orders(destination.work_dir):
        if place != except_for and num_pending(place, destination.shown):
            is_fine = deliver_once(place, destination, clock=clock)
            left += num_pending(place, destination.shown)
            if not is_fine:
                break  # the store is down: do not wait for it once per record
    return left


def follow(place: OrderFile, destination: Destination, *, ended: threading.Event, clock: StoreClock) -> bool:
    """Deliver a growing record until ``ended`` is set, then what is left; whether all is delivered.

    A store that fails is asked again, ever more slowly, until the clock is out. One that never answered is given up as
    soon as the record has ended.
    """
    with locked(place.lock, busy=BUSY, wait_s=60.0):
        delivery, pause_s = OrderDelivery(place, destination, clock), FIRST_PAUSE_S
        while True:
            is_last = ended.is_set()
            if attempt_delivery(delivery, is_last=is_last):
                if is_last:
                    return True
                pause_s = FIRST_PAUSE_S
                ended.wait(POLL_S)
                continue
            if clock.is_out or (is_last and not clock.has_answered):
                return False
            delivery = OrderDelivery(place, destination, clock)
            threading.Event().wait(pause_s) if is_last else ended.wait(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)


def _watch_stdin() -> threading.Event:
    """An event set when standard input ends: the search has closed it, or is no more."""
    ended = threading.Event()

    def watch() -> None:
        with suppress(OSError, ValueError):
            sys.stdin.buffer.read()
        ended.set()

    threading.Thread(target=watch, name="stdin", daemon=True).start()
    return ended


def _deliver_all(place: OrderFile | None, destination: Destination, clock: StoreClock) -> int:
    """Deliver the record at hand, then all that waits; 0 if nothing is left."""
    if place is not None and not follow(place, destination, ended=_watch_stdin(), clock=clock):
        return 1
    return 1 if deliver_waiting(destination, except_for=place, clock=clock) else 0


def main() -> int:
    """Entry point of the delivering process; 0 if everything has been delivered.

    Delivery runs in a thread: a store that takes a question and never answers cannot keep the process.
    """
    if hasattr(os, "nice"):
        os.nice(5)  # the search comes first
    destination = Destination(os.environ[URI_VARIABLE], Path(os.environ[WORK_DIR_VARIABLE]))
    directory = os.environ.get(DIRECTORY_VARIABLE, "")
    place = OrderFile(Path(directory)) if directory else None
    clock = open_clock(destination)
    codes: list[int] = []
    worker = threading.Thread(target=lambda: codes.append(_deliver_all(place, destination, clock)), daemon=True)
    worker.start()
    while worker.is_alive():
        worker.join(POLL_S)
        if clock.is_out and destination.is_remote:
            if place is not None:
                note_trouble(place, clock)
            break
    sys.stdout.flush()
    os._exit(codes[0] if codes else 1)


if __name__ == "__main__":
    sys.exit(main())
