"""The directory of a study: where everything is, how a study is found again, and its searches, each written whole."""

import dataclasses
import hashlib
import json
import logging
import math
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import astuple, dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

from phaze_opt import __version__
from phaze_opt.certify.problem import CERTIFICATES_DIRECTORY
from phaze_opt.errors import InputError
from phaze_opt.hardware.chip_template import DesignPoint
from phaze_opt.objective.evaluation import Evaluation
from phaze_opt.record.input_files import check_directory, is_file
from phaze_opt.record.journal import JournalRead, make_own, read_journal, read_value, write_journal, write_value
from phaze_opt.record.lock import WAIT_S, locked
from phaze_opt.record.plain_data import from_plain
from phaze_opt.record.suggestions import suggest
from phaze_opt.record.whole_file import put_aside, unwritable
from phaze_opt.search.result import KnownEvaluation, SearchResult, Trial
from phaze_opt.study.config import Cell, Condition, StudyConfig
from phaze_opt.study.result import COUNTS, CellResult, FailedSearch
from phaze_opt.study.stores.store import EvaluationStore

_LOGGER = logging.getLogger(__name__)
STUDIES = "phaze-opt-studies"
"""Directory of all studies in a working directory."""
_DIGEST_CHARACTERS = 12


def truths_directory(work_dir: Path) -> Path:
    """Where true optima are kept, for all studies and searches of a working directory."""
    return work_dir / STUDIES / "truths"


@dataclass(frozen=True, slots=True)
class StudyDirectory:
    """Paths of one study."""

    path: Path

    @property
    def study_id(self) -> str:
        """Its name."""
        return self.path.name

    @property
    def plan(self) -> Path:
        """The resolved plan and where it was made."""
        return self.path / "study.json"

    @property
    def evaluations(self) -> Path:
        """Evaluations by digest."""
        return self.path / "evaluations"

    @property
    def truths(self) -> Path:
        """True optima by problem."""
        return self.path / "truths"

    @property
    def certificates(self) -> Path:
        """Certificates of the working directory that it is in."""
        return self.path.absolute().parent.parent / CERTIFICATES_DIRECTORY

    @property
    def report(self) -> Path:
        """Pages and tables made of it."""
        return self.path / "report"

    def references(self, condition: str) -> Path:
        """The evaluations of the reference machines of a condition, by its key."""
        return self.path / "references" / f"{condition}.json"

    def chips(self, setting: str) -> Path:
        """The table of the generality question of a setting, by its name."""
        return self.path / "chips" / f"{setting}.json"

    def cell(self, cell: Cell) -> Path:
        """The trials of a finished search."""
        return self.path / "cells" / f"{cell.key}.jsonl"

    def failure(self, cell: Cell) -> Path:
        """What ended a search that a fault in its contender's code ended."""
        return self.path / "failures" / f"{cell.key}.json"

    def num_finished(self) -> int:
        """Finished searches."""
        return sum(1 for _ in self.path.joinpath("cells").glob("[!.]*.jsonl"))


def study_id(config: StudyConfig, conditions: Sequence[Condition]) -> str:
    """Name and a digest of all that the searches depend on.

    Not part of it: descriptions, weights, statistics and the generality question, which judge finished searches; jobs,
    the working directory and the tracker.
    """
    identity = {
        "version": __version__,
        "conditions": [(condition.key, condition.problem_digest) for condition in conditions],
        "contenders": [dataclasses.asdict(contender) for contender in config.contenders],
        "seeds": config.seeds,
        "budget": dataclasses.asdict(config.budget),
        "batch": config.batch,
        "num_starts": config.num_starts,
    }
    digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()
    return f"{config.name}-{digest[:_DIGEST_CHARACTERS]}"


@contextmanager
def open_study_directory(
    work_dir: Path, name: str, *, is_resumed: bool, is_alone: bool = False
) -> Iterator[StudyDirectory]:
    """The directory of a study, held while it runs.

    A study that is started afresh where it was run before is put aside under its name and a number, never deleted.
    Others may join in a study that is resumed; none while it is put aside, or where it is to be run alone.

    Raises:
        InputError: it cannot be made, or another process runs it that must not.
    """
    directory = StudyDirectory(studies_directory(work_dir) / name)
    is_shared = is_resumed and not is_alone
    busy = f"another process runs the study {name}; use --resume to join in, or wait until it has ended"
    lock_file = directory.path.parent / f".{name}.lock"
    with locked(lock_file, busy=busy, may_share=is_shared, wait_s=WAIT_S if is_shared else 0.0) as lock:
        try:
            if not is_resumed and directory.plan.exists():
                other = put_aside(directory.path)
                _LOGGER.warning("%s was run before and starts afresh; what there was is kept as %s", name, other)
            directory.path.joinpath("cells").mkdir(parents=True, exist_ok=True)
            if not lock.is_shared:  # nobody appends to what is replaced here
                for path in directory.evaluations.glob("*"):
                    make_own(path)
        except OSError as error:
            raise unwritable(directory.path, error, what="the study") from error
        if not is_alone:
            lock.take(is_shared=True, wait_s=WAIT_S)
        yield directory


def studies_directory(work_dir: Path) -> Path:
    """Where a working directory keeps its studies.

    Raises:
        InputError: the working directory is a file.
    """
    check_directory(work_dir, source="--work-dir")
    return work_dir / STUDIES


def list_studies(work_dir: Path) -> tuple[StudyDirectory, ...]:
    """The studies of a working directory, latest plan first."""
    found = [StudyDirectory(path.parent) for path in studies_directory(work_dir).glob("*/study.json")]
    return tuple(sorted(found, key=lambda study: (-study.plan.stat().st_mtime, study.study_id)))


def find_study(text: str, *, work_dir: Path) -> StudyDirectory:
    """A study by its directory, its identifier, or a unique beginning of one.

    Raises:
        InputError: none is meant by it, or several are.
    """
    path = Path(text)
    if is_file(path / "study.json"):
        return StudyDirectory(path)
    studies = list_studies(work_dir)
    names = [study.study_id for study in studies]
    if text in names:
        return studies[names.index(text)]
    matches = [study for study in studies if study.study_id.startswith(text) and "." not in study.study_id[-4:]]
    if len(matches) == 1:
        return matches[0]
    if matches:
        listed = ", ".join(study.study_id for study in matches)
        message = f"'{text}' may be any of {listed}; give more of the name"
        raise InputError(message)
    hint = suggest(text, names) if names else f"there is none in {studies_directory(work_dir)}; `study run` makes one"
    message = f"no study is called '{text}'; {hint}"
    raise InputError(message)


def read_plan(directory: StudyDirectory) -> dict[str, Any]:
    """The resolved plan of a study as written.

    Raises:
        InputError: it is missing or broken.
    """
    plan = read_value(directory.plan, kind="the plan of a study")
    if plan is None:
        message = "the plan of a study is missing; give the directory of a study"
        raise InputError(message, source=str(directory.plan))
    return plan


MAX_CHARACTERS = 300
_TRIAL = ("number", "point", "values", "status", "wall_s", "is_repeat")
_COSTS = (*COUNTS, "overhead_s", "is_exhausted")
"""What the last line of a finished search says of it, in this order."""


@dataclass(slots=True)
class CellLog:
    """Gives a search the evaluations of the whole study; its trials are kept until it is finished.

    A search that is cut short leaves no trials behind, only evaluations: when it runs again its strategy is replayed
    from its seed, and what is known costs nothing.

    Attributes:
        store: of the study.
        digest: `Condition.evaluations_digest`.
    """

    store: EvaluationStore
    digest: str
    _held: dict[DesignPoint, KnownEvaluation] = field(default_factory=dict)

    def known(self, point: DesignPoint) -> KnownEvaluation | None:
        """The evaluation of a point, done by any search of the study."""
        held = self._held.get(point)
        if held is None:
            held = self.store.known(self.digest, point)
            if held is not None:
                self._held[point] = held
        return held

    def has_trial(self, number: int, point: DesignPoint) -> bool:  # noqa: ARG002
        """Never: no trial outlives a search that was cut short."""
        return False

    def append(self, record: Trial[Evaluation]) -> None:
        """Let the evaluation go; the loop keeps the record."""
        self._held.pop(record.point, None)


def cell_result(cell: Cell, search: SearchResult) -> CellResult:
    """What a study keeps of a finished search."""
    trials = tuple(trial.with_evaluation(None) for trial in search.trials)
    return CellResult(cell, trials, **{name: getattr(search, name) for name in (*_COSTS, "search_id")})


def write_cell(path: Path, result: CellResult) -> None:
    """Write a finished search: a line per trial and a last line that sums up; the file is whole or not there.

    Raises:
        InputError: it cannot be written.
    """
    lines: list[dict[str, Any]] = [
        {name: getattr(trial, name) for name in _TRIAL} | {"point": astuple(trial.point)} for trial in result.trials
    ]
    summary = {
        "cell": result.cell.key,
        "search_id": result.search_id,
        "trials": len(result.trials),
        **{name: getattr(result, name) for name in _COSTS},
    }
    write_journal(path, [*lines, {"summary": summary}])


def read_cell(path: Path, cell: Cell) -> CellResult | None:
    """A finished search; None if it is not finished, or if its file is not what was written.

    Raises:
        InputError: the file cannot be read.
    """
    journal = read_journal(path)
    if not journal.values and not journal.num_faulty:
        return None
    try:
        return _parse_cell(journal, cell)
    except (ValueError, KeyError, TypeError, IndexError, OverflowError, InputError):
        _LOGGER.warning("%s is torn or was changed since it was written; its search is run again by --resume", path)
        return None


def _parse_cell(journal: JournalRead, cell: Cell) -> CellResult:
    """A search from its lines.

    Raises:
        ValueError: lines are missing or were changed.
    """
    lines = journal.values
    summary = lines[-1]["summary"]
    trials = tuple(
        from_plain(Trial[None], {**line, "point": DesignPoint(*line["point"]), "evaluation": None})
        for line in lines[:-1]
    )
    if (journal.num_faulty, len(trials), cell.key) != (0, summary["trials"], summary["cell"]):
        message = f"{len(trials)} of {summary['trials']} trials of {summary['cell']}"
        raise ValueError(message)
    overhead_s = float(summary["overhead_s"])
    if not all(map(math.isfinite, [overhead_s, *chain.from_iterable((one.wall_s, *one.values) for one in trials)])):
        message = f"a time or a value of {summary['cell']} is not finite"
        raise ValueError(message)
    return CellResult(
        cell=cell,
        trials=trials,
        **{name: int(summary[name]) for name in COUNTS},
        overhead_s=overhead_s,
        is_exhausted=bool(summary["is_exhausted"]),
        search_id=str(summary["search_id"]),
    )


def write_failure(path: Path, cell: Cell, error: BaseException) -> None:
    """Keep an error with its traceback.

    Raises:
        InputError: it cannot be written.
    """
    value = {
        "cell": cell.key,
        "contender": cell.contender.name,
        "strategy": cell.contender.strategy,
        "pruner": cell.contender.pruner,
        "seed": cell.seed,
        "error": _sentence(error),
        "traceback": "".join(traceback.format_exception(error)),
    }
    write_value(path, value)


def read_failure(path: Path, cell: Cell) -> FailedSearch | None:
    """What ended a search; None if nothing did.

    Raises:
        InputError: the file is broken.
    """
    value = read_value(path, kind="a failed search of a study")
    if value is None:
        return None
    try:
        return FailedSearch(cell=cell, error=str(value["error"]), traceback=str(value["traceback"]), file=path)
    except KeyError as error:
        message = "holds no failed search; remove it and --resume to search again"
        raise InputError(message, source=str(path)) from error


def _sentence(error: BaseException) -> str:
    """Kind and message of an error in one line that a terminal can show; an error may fail to say its message."""
    text = type(error).__name__
    with suppress(Exception):
        text = f"{text}: {error}"
    line = " ".join("".join(one if one.isprintable() else " " for one in text).split())
    return line if len(line) <= MAX_CHARACTERS else line[:MAX_CHARACTERS] + "..."
