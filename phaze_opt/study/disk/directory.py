"""The directory of a study: where everything is, and how a study is found again."""

import dataclasses
import hashlib
import json
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from phaze_opt import __version__
from phaze_opt.certify.problem import CERTIFICATES_DIRECTORY
from phaze_opt.errors import InputError
from phaze_opt.record.input_files import check_directory, is_file
from phaze_opt.record.journal import make_own, read_value
from phaze_opt.record.lock import WAIT_S, locked
from phaze_opt.record.suggestions import suggest
from phaze_opt.record.whole_file import put_aside, unwritable
from phaze_opt.study.config import Cell, Condition, StudyConfig

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
