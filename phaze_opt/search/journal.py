"""The checkpoint of a search: its pieces are finished trials, under what was searched.

The line of a trial holds number, point, wall_s and evaluation (null where the point repeats that of an earlier line).
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from phaze_opt.errors import InputError
from phaze_opt.hardware.chip_template import DesignPoint
from phaze_opt.objective.evaluation import Evaluation, evaluation_from_json, evaluation_to_json
from phaze_opt.plugins import PluginOrigin, changed_plugins
from phaze_opt.record.checkpoint import FORMAT, Checkpoint, open_checkpoint
from phaze_opt.record.input_files import shorten, shorten_path
from phaze_opt.record.lock import locked
from phaze_opt.record.plain_data import from_plain, to_plain
from phaze_opt.record.whole_file import put_aside
from phaze_opt.search.result import KnownEvaluation, Trial

_LOGGER = logging.getLogger(__name__)
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
        kept: the file.
        entries: evaluations read when it was opened, by point.
        trials: (number, point) of the lines read.
    """

    kept: Checkpoint
    entries: dict[DesignPoint, KnownEvaluation] = field(default_factory=dict)
    trials: set[tuple[int, DesignPoint]] = field(default_factory=set)
    _is_lost: bool = False

    def known(self, point: DesignPoint) -> KnownEvaluation | None:
        """The evaluation of a point in an earlier run of this search."""
        return self.entries.get(point)

    def has_trial(self, number: int, point: DesignPoint) -> bool:
        """Whether a line read was this trial."""
        return (number, point) in self.trials

    def append(self, trial: Trial[Evaluation]) -> None:
        """Write one trial unless it was read from here; a failure stops the journal with a warning, never a search."""
        if self._is_lost or self.has_trial(trial.number, trial.point):
            return
        try:
            self.kept.keep(_trial_line(trial))
        except InputError as error:
            _LOGGER.warning("%s; this search goes on but cannot be resumed", error)
            self._is_lost = True

    def take(self, line: Mapping[str, Any]) -> None:
        """Go on with a trial that an earlier run kept."""
        trial = parse_trial(line)
        self.trials.add((trial.number, trial.point))
        if trial.known is not None:
            self.entries[trial.point] = trial.known


@contextmanager
def keep_journal(
    directory: Path, *, start: Mapping[str, object], is_resumed: bool, plugins: Sequence[PluginOrigin] = ()
) -> Iterator[TrialFile]:
    """The journal of a search while it runs; nobody else may run that search meanwhile.

    Args:
        directory: of the search.
        start: its configuration, which is the header.
        is_resumed: whether to go on with what the file holds, else it begins anew.
        plugins: whose code the trials depend on; what old and new code found is not mixed.

    Raises:
        InputError: it cannot be written, another process runs the search, another version wrote what it holds, or the
            code of a plug-in has changed since.
    """
    path = directory / JOURNAL_FILE
    with locked(directory.with_name(f".{directory.name}.lock"), busy=_BUSY):
        if not is_resumed and (directory / ORDER_FILE).exists():
            put_aside(directory)
        header = {**start, _PLUGINS: to_plain(_Origins, tuple(plugins))}
        fits, what = partial(_check_start, path, plugins), "the journal of the search"
        with closing(open_checkpoint(path, header=header, is_resumed=is_resumed, what=what, fits=fits)) as kept:
            journal = TrialFile(kept)
            kept.take_in(journal.take)
            kept.begin()
            yield journal


def _check_start(path: Path, plugins: Sequence[PluginOrigin], start: Mapping[str, Any]) -> bool:
    """Refuse the journal of another version, or of other code.

    Raises:
        InputError: it is one.
    """
    if start["format"] != FORMAT:
        message = (
            f"format {shorten(start['format'])} is unknown; resume with the version of phaze-opt that wrote it, "
            "or search without --resume to start afresh"
        )
        raise InputError(message, source=shorten_path(path))
    changed = changed_plugins(_origins(start), plugins)
    if changed:
        whose = f" ({changed[0].distribution} {changed[0].version})" if changed[0].distribution else ""
        message = (
            f"the code of '{changed[0].name}'{whose} has changed since this search began; search without --resume "
            "to start afresh"
        )
        raise InputError(message, source=shorten_path(path), key=changed[0].name)
    return True


def _origins(start: Mapping[str, Any]) -> tuple[PluginOrigin, ...]:
    """The plug-ins of a header; none where it holds others."""
    with suppress(ValueError):
        return from_plain(_Origins, start.get(_PLUGINS, []))
    return ()


def _trial_line(trial: Trial[Evaluation]) -> dict[str, object]:
    return {
        "number": trial.number,
        "point": asdict(trial.point),
        "wall_s": trial.wall_s,
        "evaluation": None if trial.is_repeat else evaluation_to_json(trial.evaluation),
    }


def parse_trial(value: Mapping[str, Any]) -> KeptTrial:
    """The trial of one line's value.

    Raises:
        Exception: one of `record.checkpoint.NOT_A_PIECE`, if it is none.
    """
    point = DesignPoint(**value["point"])
    data = value["evaluation"]
    known = None if data is None else KnownEvaluation(evaluation_from_json(data), float(value["wall_s"]))
    return KeptTrial(int(value["number"]), point, known)
