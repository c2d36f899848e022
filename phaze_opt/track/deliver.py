"""Delivery of records to MLflow, and the process that does it beside a search, a study or a proof.

``python -m phaze_opt.track.deliver`` follows one record until its standard input ends, so a search never imports
MLflow, never waits for it, and cannot be hurt by it. While that record has nothing new, what else waits for the store
under the working directory is delivered. What the store has is known from the store itself (see `writers`), so a
process that dies half-way leaves nothing half-known.
"""

import os
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, cast, final

import phaze_opt
from phaze_opt.errors import InputError
from phaze_opt.record.lock import locked
from phaze_opt.track import store
from phaze_opt.track.destination import URI_VARIABLE, Destination
from phaze_opt.track.pending_delivery import DeliveryState, Order, OrderFile, list_orders
from phaze_opt.track.records import closed_record
from phaze_opt.track.runs import log_file
from phaze_opt.track.sources import Part, Source, num_pending, open_source
from phaze_opt.track.store import (
    HeardClient,
    StoreClock,
    describe_trouble,
    longer_requests,
    quiet_environment,
    quiet_mlflow,
)
from phaze_opt.track.writers import RunWriter, StudyWriter, open_writer

if TYPE_CHECKING:
    from mlflow import MlflowClient


DIRECTORY_VARIABLE = "PHAZE_OPT_ORDER"
WORK_DIR_VARIABLE = "PHAZE_OPT_WORK_DIR"
PATIENCE_VARIABLE = "PHAZE_OPT_FIRST_ANSWER_S"
SLICE_S = 2.0
"""After so long it is noted how far delivery is, s."""
LEAST_BYTES_PER_S = 1 << 15
"""Rate at which a file may reach a store before the store is said to be silent."""
POLL_S = 0.25
TERMINATE_S = 2.0
FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 10.0
FIRST_ANSWER_S = 9.0
"""Patience with a server or database that has never answered, s."""
LOST_ANSWER_S = 60.0
"""Patience with one that has, and with a file that another process holds, s."""
LAST_ANSWER_S = 15.0
"""The same once the record has ended and somebody waits, s."""
BUSY = "another process delivers this record"


@final
class DeliveryProcess:
    """A process that delivers one record and every record that waits for its store.

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
            place: the record that grows; None for those that wait alone.
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
            [sys.executable, "-m", "phaze_opt.track.deliver"],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        if on_failure is not None:
            threading.Thread(target=self._watch, args=(on_failure,), name="delivery", daemon=True).start()

    def finish(self, total_s: float) -> None:
        """Let it deliver what is left, and end it after so long in any case, s."""
        self._is_finishing = True
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(total_s)
        except subprocess.TimeoutExpired:
            return
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


@final
@dataclass(slots=True)
class OrderDelivery:
    """Delivers one record to one store, a slice at a time; after a failure, make a new one."""

    place: OrderFile
    destination: Destination
    clock: StoreClock
    _order: Order | None = None
    _state: DeliveryState = field(default_factory=DeliveryState)
    _source: Source | None = None
    _parts: deque[Part] = field(default_factory=deque)
    _writer: RunWriter | StudyWriter | None = None

    def advance(self, *, is_last: bool) -> bool:
        """Write some of what the record has and the store has not; whether there was any.

        Args:
            is_last: whether the record grows no more.

        Raises:
            Exception: whatever MLflow raises.
        """
        if self._writer is None and not num_pending(self.place, self.destination.shown):
            return False
        import mlflow.tracking  # noqa: F401 - takes seconds that are not the store's

        order = self.place.read()
        if order is None or (self._order is not None and order.attempt != self._order.attempt):
            return False  # the record was put aside: who began another attempt delivers it
        self.clock.ask()
        if self._order is None or self._order.started != order.started:
            self._connect(order)
        assert self._writer is not None
        assert self._source is not None
        self._parts += self._source.read(is_ended=is_last or bool(order.finished))
        if self._parts:
            self._write_parts(self._writer)
        elif order.finished and self._state.finished_ms != order.finished["time_ms"]:
            self._writer.write(order.finished)
            self._note(replace(self._state, finished_ms=order.finished["time_ms"]))
        elif files := self.place.waiting_files():
            self._send_file(self._writer, *next(iter(files.items())))
        else:
            self.clock.rest()
            return False
        return True

    def _write_parts(self, writer: RunWriter | StudyWriter) -> None:
        """Write parts until the slice is over."""
        began_s, num_written = time.monotonic(), 0
        while self._parts and (not num_written or time.monotonic() - began_s < SLICE_S):
            for record in self._parts.popleft():
                writer.write(record)
            num_written += 1
        writer.flush()
        self._note(replace(self._state, num_done=self._state.num_done + num_written))

    def _send_file(self, writer: RunWriter | StudyWriter, name: str, path: Path) -> None:
        """Hand a file to the store; a page is megabytes, which a slow line may take time for."""
        extra_s = path.stat().st_size / LEAST_BYTES_PER_S
        self.clock.ask(extra_s)
        with longer_requests(extra_s):
            log_file(writer.runs.client, writer.run_id, name=name, path=path)
        path.unlink(missing_ok=True)

    def _connect(self, order: Order) -> None:
        """Find or make the run, and begin at the first part: what the store has is not written again."""
        client = HeardClient(store.open_client(self.destination), self.clock.answer)
        writer = open_writer(cast("MlflowClient", client), self.destination, order.attempt, order.started)
        writer.write(order.started)
        self._note(
            DeliveryState(
                target=order.target,
                started_ms=order.started["time_ms"],
                run_id=writer.run_id,
                experiment_id=writer.runs.experiment_id,
            )
        )
        self._order, self._writer, self._source = order, writer, open_source(self.place, order)
        self._parts.clear()

    def _note(self, state: DeliveryState) -> None:
        self._state = state
        self.place.save_state(state)


def note_trouble(place: OrderFile, error: Exception | None, destination: Destination, clock: StoreClock) -> None:
    """Leave word of why a record is not delivered; where a store hangs, what it said last."""
    order = place.read()
    if order is not None:
        state = place.state(order)
        silence = state.reason or f"no answer within {clock.patience_s:.0f} s"
        reason = silence if error is None else describe_trouble(error, destination)
        place.save_state(replace(state, reason=reason))


def deliver_waiting(destination: Destination, clock: StoreClock) -> Iterator[bool]:
    """Deliver the records that wait for a store, oldest first, a slice a step; what another process delivers is left.

    A record that was put aside is closed, and removed when it is delivered. One that cannot be delivered stays; where
    the store answers nothing else either, so do the others.
    """
    for place in list_orders(destination.work_dir):
        delivery, num_answers = OrderDelivery(place, destination, clock), clock.num_answers
        with suppress(InputError), locked(place.lock, busy=BUSY):
            order = place.read()
            if order is None or order.target != destination.shown:
                continue
            try:
                if place.is_aside and not order.finished:
                    place.write(replace(order, finished=closed_record(place.directory)))
                while _advance(delivery, is_last=True):
                    yield True
                place.remove()
            except Exception as error:  # trouble of the store or the record, of any kind, is a reason to wait
                note_trouble(place, error, destination, clock)
                if clock.num_answers == num_answers and not _answers(destination, clock):
                    return


def _answers(destination: Destination, clock: StoreClock) -> bool:
    """Whether a store answers what is about no record."""
    clock.ask()
    with suppress(Exception), quiet_mlflow():
        store.open_client(destination).get_experiment_by_name("Default")
        clock.answer()
        return True
    return False


def _advance(delivery: OrderDelivery, *, is_last: bool) -> bool:
    with quiet_mlflow():
        return delivery.advance(is_last=is_last)


def follow(place: OrderFile | None, destination: Destination, *, ended: threading.Event, clock: StoreClock) -> bool:
    """Deliver a growing record until ``ended`` is set, and while it has nothing new what else waits.

    A store that fails is asked again, ever more slowly. One that never answered is given up when the clock is out or
    the record has ended, one that has some time after the end.

    Returns:
        Whether all of the record is delivered.
    """
    with ExitStack() as held:
        own, others = None, deliver_waiting(destination, clock)
        pause_s, well_s = FIRST_PAUSE_S, time.monotonic()
        if place is not None:
            try:
                held.enter_context(locked(place.lock, busy=BUSY, wait_s=0.0 if ended.is_set() else LOST_ANSWER_S))
            except InputError:
                return False
            own = OrderDelivery(place, destination, clock)
        while True:
            is_last = ended.is_set()
            try:
                has_more = own is not None and _advance(own, is_last=is_last)
            except Exception as error:  # as above
                assert place is not None
                note_trouble(place, error, destination, clock)
                is_out = time.monotonic() - well_s > LAST_ANSWER_S if clock.num_answers else True
                if (is_last and is_out) or (clock.is_out and not clock.num_answers):
                    return False
                if clock.num_answers:
                    clock.rest()
                own = OrderDelivery(place, destination, clock)
                time.sleep(pause_s) if is_last else ended.wait(pause_s)
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
                continue
            pause_s, well_s = FIRST_PAUSE_S, time.monotonic()
            if has_more or next(others, False):
                continue
            if is_last:
                return True
            ended.wait(POLL_S)


def open_clock(destination: Destination) -> StoreClock:
    """The patience that a store deserves."""
    first_s = float(os.environ.get(PATIENCE_VARIABLE, FIRST_ANSWER_S))
    return StoreClock(first_s if destination.is_remote else LOST_ANSWER_S, LOST_ANSWER_S)


def _watch_stdin() -> threading.Event:
    """An event set when standard input ends: the search has closed it, or is no more."""
    ended = threading.Event()

    def watch() -> None:
        with suppress(OSError, ValueError):
            sys.stdin.buffer.read()
        ended.set()

    threading.Thread(target=watch, name="stdin", daemon=True).start()
    return ended


def main() -> int:
    """Entry point of the delivering process; 0 if everything has been delivered.

    Delivery runs in a thread: a store that takes a question and never answers cannot keep the process.
    """
    if hasattr(os, "nice"):
        os.nice(5)  # the search comes first
    destination = Destination(os.environ[URI_VARIABLE], Path(os.environ[WORK_DIR_VARIABLE]))
    directory = os.environ[DIRECTORY_VARIABLE]
    place = OrderFile(Path(directory)) if directory else None
    clock, ended = open_clock(destination), _watch_stdin()
    codes: list[bool] = []
    worker = threading.Thread(
        target=lambda: codes.append(follow(place, destination, ended=ended, clock=clock)), daemon=True
    )
    worker.start()
    while worker.is_alive():
        worker.join(POLL_S)
        if ended.is_set():
            clock.lost_s = LAST_ANSWER_S
        if clock.is_out and destination.is_remote:
            if place is not None:
                note_trouble(place, None, destination, clock)
            break
    sys.stdout.flush()
    os._exit(0 if codes == [True] else 1)


if __name__ == "__main__":
    sys.exit(main())
