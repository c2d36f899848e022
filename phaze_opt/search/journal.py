"""The journal of a search: a start record and one line per finished trial, so that a search can resume.

The line of a trial holds number, point, wall_s and evaluation (null where the point repeats that of an earlier line).
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from phaze_opt.errors import InputError
from phaze_opt.hardware.chip_template import DesignPoint
from phaze_opt.objective.evaluation import Evaluation, evaluation_from_json, evaluation_to_json
from phaze_opt.plugins import PluginOrigin, changed_plugins
from phaze_opt.record.input_files import shorten, shorten_path
from phaze_opt.record.journal import Journal, JournalRead, mend_journal, open_journal, read_journal
from phaze_opt.record.lock import locked
from phaze_opt.record.plain_data import from_plain, to_plain
from phaze_opt.record.whole_file import put_aside, unwritable
from phaze_opt.search.result import KnownEvaluation, Trial

_LOGGER = logging.getLogger(__name__)
FORMAT = 2
JOURNAL_FILE = "trials.jsonl"
ORDER_FILE = "tracking.json"
"""Beside a journal that a tracker has to deliver: such a search is put aside before it begins anew."""
_PLUGINS = "plugins"
_Origins = tuple[PluginOrigin, ...]
_BUSY = "another process runs this search; wait until it has ended, or give another --work-dir"


@dataclass(frozen=True, slots=True)
class KeptTrial:
    """A trial as its line holds it.

    Attributes:
        number, point: of the trial.
        known: the evaluation; None where the point repeats that of an earlier trial.
    """

    number: int
    point: DesignPoint
    known: KnownEvaluation | None


@dataclass(slots=True)
class TrialFile:
    """Finished trials on disk.

    Attributes:
        path: the file.
        entries: evaluations read when it was opened, by point.
        trials: (number, point) of the lines read.
    """

    path: Path
    entries: dict[DesignPoint, KnownEvaluation] = field(default_factory=dict)
    trials: set[tuple[int, DesignPoint]] = field(default_factory=set)
    _writer: Journal | None = None

    def known(self, point: DesignPoint) -> KnownEvaluation | None:
        """The evaluation of a point in an earlier run of this search."""
        return self.entries.get(point)

    def has_trial(self, number: int, point: DesignPoint) -> bool:
        """Whether a line read was this trial."""
        return (number, point) in self.trials

    def append(self, trial: Trial[Evaluation]) -> None:
        """Write one trial unless it was read from here; a failure stops the journal with a warning, never a search."""
        if self._writer is None or (trial.number, trial.point) in self.trials:
            return
        try:
            self._writer.append(_trial_line(trial))
        except OSError as error:
            _LOGGER.warning("%s: cannot write (%s); this search goes on but cannot be resumed", self.path, error)
            self._writer.close()
            self._writer = None


@contextmanager
def keep_journal(
    directory: Path, *, start: Mapping[str, object], is_resumed: bool, plugins: Sequence[PluginOrigin] = ()
) -> Iterator[TrialFile]:
    """The journal of a search while it runs; nobody else may run that search meanwhile.

    Args:
        directory: of the search.
        start: its configuration, which is the first line.
        is_resumed: whether to go on with what the file holds, else it begins anew.
        plugins: whose code the trials depend on; what old and new code found is not mixed.

    Raises:
        InputError: it cannot be written, another process runs the search, another version wrote what it holds, or the
            code of a plug-in has changed since.
    """
    path = directory / JOURNAL_FILE
    with locked(directory.with_name(f".{directory.name}.lock"), busy=_BUSY):
        if is_resumed:
            _check_start(path, plugins)
        elif (directory / ORDER_FILE).exists():
            put_aside(directory)
        journal = TrialFile(path)
        has_start = is_resumed and _take_in(journal, mend_journal(path))
        try:
            journal._writer = open_journal(path, is_fresh=not is_resumed)
            if not has_start:
                journal._writer.append({"format": FORMAT, **start, _PLUGINS: to_plain(_Origins, tuple(plugins))})
        except OSError as error:
            if journal._writer is not None:
                journal._writer.close()
            raise unwritable(path, error, what="the journal of the search") from error
        try:
            yield journal
        finally:
            if journal._writer is not None:
                journal._writer.close()


def _check_start(path: Path, plugins: Sequence[PluginOrigin]) -> None:
    """Leave the journal of another version, or of other code, as it is.

    Raises:
        InputError: it is one.
    """
    for value in read_journal(path).values:
        if "format" not in value:
            continue
        if value["format"] != FORMAT:
            message = (
                f"format {shorten(value['format'])} is unknown; resume with the version of phaze-opt that wrote it, "
                "or search without --resume to start afresh"
            )
            raise InputError(message, source=shorten_path(path))
        changed = changed_plugins(_origins(value), plugins)
        if changed:
            whose = f" ({changed[0].distribution} {changed[0].version})" if changed[0].distribution else ""
            message = (
                f"the code of '{changed[0].name}'{whose} has changed since this search began; search without --resume "
                "to start afresh"
            )
            raise InputError(message, source=shorten_path(path), key=changed[0].name)


def _origins(start: Mapping[str, Any]) -> tuple[PluginOrigin, ...]:
    """The plug-ins of a start record; none where the record holds others."""
    try:
        return from_plain(_Origins, start.get(_PLUGINS, []))
    except ValueError:
        return ()


def _take_in(journal: TrialFile, read: JournalRead) -> bool:
    """Go on with the trials that an earlier run kept; lines that do not hold are said and left out.

    Returns:
        Whether the start record is among the lines.
    """
    has_start = False
    num_faulty = read.num_faulty
    for value in read.values:
        if "format" in value:
            has_start = True
        elif (trial := parse_trial(value)) is None:
            num_faulty += 1
        else:
            journal.trials.add((trial.number, trial.point))
            if trial.known is not None:
                journal.entries[trial.point] = trial.known
    if num_faulty:
        _LOGGER.warning(
            "%s: lines torn or changed since they were written: %d; their trials are evaluated again",
            journal.path,
            num_faulty,
        )
    return has_start


def _trial_line(trial: Trial[Evaluation]) -> dict[str, object]:
    return {
        "number": trial.number,
        "point": asdict(trial.point),
        "wall_s": trial.wall_s,
        "evaluation": None if trial.is_repeat else evaluation_to_json(trial.evaluation),
    }


def parse_trial(value: Mapping[str, Any]) -> KeptTrial | None:
    """The trial of one line's value; None for what no line of a trial holds."""
    try:
        point = DesignPoint(**value["point"])
        data = value["evaluation"]
        known = None if data is None else KnownEvaluation(evaluation_from_json(data), float(value["wall_s"]))
        return KeptTrial(int(value["number"]), point, known)
    except (ValueError, KeyError, TypeError, OverflowError, InputError):
        return None
