"""Records on disk as what a store is to get: a part at a time, from the first, as they grow."""

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, final

from phaze_opt.errors import InputError
from phaze_opt.hardware.chip_template import DesignPoint
from phaze_opt.objective.evaluation import Evaluation
from phaze_opt.objective.goals import Goal, goal_values
from phaze_opt.record.checkpoint import NOT_A_PIECE
from phaze_opt.record.journal import JournalTail, read_lines
from phaze_opt.record.lock import locked
from phaze_opt.search.journal import JOURNAL_FILE, parse_trial
from phaze_opt.search.result import Trial
from phaze_opt.study.directory import StudyDirectory, read_plan
from phaze_opt.study.events import CellFinished, StudyEvent
from phaze_opt.track import records
from phaze_opt.track.destination import Destination
from phaze_opt.track.pending_delivery import Order, OrderFile, Record, list_orders
from phaze_opt.track.protocol import TrialRuns

Part = list[Record]
"""What one line of a journal or one cell of a study comes to."""


class Source(Protocol):
    """A record that is read on as it grows."""

    def read(self, *, is_ended: bool) -> list[Part]:
        """Parts completed since the last call; ``is_ended`` if no more will come."""
        ...


@final
@dataclass(slots=True)
class SearchSource:
    """The journal of a search: a trial a line, where a repeat says only its point."""

    tail: JournalTail
    order: Order
    _num_lines: int = 0
    _evaluations: dict[DesignPoint, Evaluation] = field(default_factory=dict)

    def read(self, *, is_ended: bool) -> list[Part]:  # noqa: ARG002 - every line is whole when it is there
        """A part a line; the first line and faulty ones come to nothing."""
        lines = [value for _, value in self.tail.read()]
        now_ms = round(1000 * time.time())
        if lines:
            now_ms = min(now_ms, self.tail.path.stat().st_mtime_ns // 1_000_000)
        return [self._part(line, now_ms) for line in lines]

    def _part(self, line: dict[str, Any] | None, time_ms: int) -> Part:
        self._num_lines += 1
        try:
            kept = parse_trial(line or {})
        except NOT_A_PIECE:
            return []
        if kept.known is not None:
            self._evaluations[kept.point] = kept.known.evaluation
        if line is None or kept.point not in self._evaluations:
            return []
        context = {name: self.order.started["params"][name] for name in ("strategy", "goal", "seed")}
        evaluation = self._evaluations[kept.point]
        trial = Trial(
            kept.number,
            kept.point,
            values=goal_values(Goal(context["goal"]), evaluation),
            status=evaluation.status,
            wall_s=line["wall_s"],
            is_repeat=kept.known is None,
            evaluation=evaluation,
            is_resumed=self._num_lines <= self.order.num_earlier,
        )
        return [records.trial_record(trial, context=context, time_ms=time_ms)]


@final
@dataclass(slots=True)
class StudySource:
    """The cells of a study: told in the order of the plan, as a study tells its observers."""

    place: OrderFile
    order: Order
    _cells: list[CellFinished] = field(default_factory=list)
    _narrator: Any = None
    _budget: str = ""
    _places: dict[str, int] = field(default_factory=dict)

    def observe(self, event: StudyEvent) -> None:
        """Take a cell from the narrator."""
        assert isinstance(event, CellFinished)
        self._cells.append(event)

    def read(self, *, is_ended: bool) -> list[Part]:
        """A part a cell; those that follow an unfinished one in the plan come at the end."""
        if self._narrator is None:
            self._open()
        self._narrator.tell_finished()
        if is_ended:
            self._narrator.tell_rest()
        cells, self._cells = self._cells, []
        return [self._part(event) for event in cells]

    def _open(self) -> None:
        from phaze_opt.study.files.resolve import plan_cells
        from phaze_opt.study.narrate import Narrator
        from phaze_opt.study.plan_file import load_plan
        from phaze_opt.study.stores.store import LocalStore

        directory = StudyDirectory(self.place.directory)
        plan = load_plan(directory)
        self._budget = records.granted(read_plan(directory))
        cells = plan_cells(plan.config, plan.conditions)
        self._places = {cell.key: place for place, cell in enumerate(cells)}
        self._narrator = Narrator((self,), directory, cells, LocalStore(directory.evaluations))

    def _part(self, event: CellFinished) -> Part:
        time_ms, budget = self.order.started["time_ms"], self._budget
        index = self._places[event.result.cell.key]
        trials = records.wanted_trials(event, is_best_only=self.order.trials == TrialRuns.BEST.value)
        study_id = self.order.started["study_id"]
        return [
            records.cell_record(event, study_id=study_id, budget=budget, index=index, time_ms=time_ms),
            *(
                records.cell_trial_record(event, trial, study_id=study_id, budget=budget, time_ms=time_ms)
                for trial in trials
            ),
            records.cell_finished_record(event, time_ms=time_ms),
        ]


@final
@dataclass(slots=True)
class ProofSource:
    """The moves of a proof."""

    tail: JournalTail

    def read(self, *, is_ended: bool) -> list[Part]:  # noqa: ARG002 - every line is whole when it is there
        """A part a line."""
        return [[line] if line else [] for _, line in self.tail.read()]


def open_source(place: OrderFile, order: Order) -> Source:
    """The record that an order is of, from its first part."""
    kind = order.started["kind"]
    if kind == records.RecordKind.STUDY_STARTED:
        return StudySource(place, order)
    if kind == records.RecordKind.PROOF_STARTED:
        return ProofSource(JournalTail(place.moves))
    return SearchSource(JournalTail(place.directory / JOURNAL_FILE), order)


def count_parts(place: OrderFile, started: Record) -> int:
    """Parts that a record has now, by the record that begins its run."""
    kind = started["kind"]
    if kind == records.RecordKind.STUDY_STARTED:
        return StudyDirectory(place.directory).num_finished()
    return count_lines(place.moves if kind == records.RecordKind.PROOF_STARTED else place.directory / JOURNAL_FILE)


def count_lines(path: Path) -> int:
    """Whole lines of a journal; 0 where there is none.

    Raises:
        InputError: as of `read_lines`.
    """
    return sum(line.endswith(b"\n") for line in read_lines(path))


def num_pending(place: OrderFile, target: str) -> int:
    """Parts, ends and files that a store does not have yet; 0 if the order is for another store.

    Raises:
        InputError: the order or the record is broken.
    """
    order = place.load()
    if order is None or order.target != target:
        return 0
    state = place.state(order)
    is_begun = state.started_ms == order.started["time_ms"]
    parts = count_parts(place, order.started) - (state.num_done if is_begun else 0)
    is_ended = not order.finished or state.finished_ms == order.finished["time_ms"]
    return (not is_begun) + max(0, parts) + (not is_ended) + len(place.waiting_files())


def count_pending(destination: Destination, *, on_broken: Callable[[str], object] = lambda _: None) -> int:
    """Parts, ends and files that wait under a working directory for its store.

    Args:
        destination: the store.
        on_broken: told of every broken order or record, which is passed over, as is what another process delivers now.
    """
    total = 0
    for place in list_orders(destination.work_dir):
        with suppress(InputError), locked(place.lock, busy="is delivered now"):
            try:
                total += num_pending(place, destination.shown)
            except InputError as error:
                on_broken(f"{error}; nothing of it is delivered")
    return total
