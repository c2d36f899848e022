"""What moved in records, against what a commit holds: as tables, biggest first."""

import statistics
import subprocess
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from phaze_opt.errors import InputError
from recording.declared import Record
from recording.differences import Difference, Kind, compare_texts

_LONGEST = 100
_WORDS = {Kind.MOVED: "moved", Kind.REWORDED: "reworded", Kind.NEW: "new", Kind.GONE: "gone"}


@dataclass(frozen=True, slots=True)
class RecordChange:
    """One record against the commit.

    Attributes:
        record: which.
        differences: all of its figures.
        documents: prose that names it; its figures were copied by hand.
    """

    record: Record
    differences: tuple[Difference, ...]
    documents: tuple[str, ...]

    @property
    def moved(self) -> list[Difference]:
        """What is no longer what it was, the largest relative change first."""
        found = [each for each in self.differences if each.kind in _WORDS]
        return sorted(found, key=lambda each: (each.kind is not Kind.MOVED, -each.size, each.key))


def change_of(record: Record, root: Path, revision: str) -> RecordChange:
    """A record's files against those of a commit.

    Raises:
        InputError: git does not know the commit, or a file is missing or damaged.
    """
    found: list[Difference] = []
    for name in record.files:
        path, old = root / name, _committed(name, root, revision)
        try:
            new = path.read_text(encoding="utf-8")
            pair = (
                compare_texts(old or "{}", new, suffix=path.suffix, is_about_speed=record.is_about_speed) if old else []
            )
        except (OSError, ValueError) as error:
            message = f"{name} cannot be compared with that of {revision}: {error}"
            raise InputError(message, key="ONLY") from error
        found += pair if old else [Difference(path.name, Kind.NEW)]
    return RecordChange(record, tuple(found), tuple(_documents_on(record, root)))


def lines_of(change: RecordChange, *, most: int) -> Iterator[str]:
    """One record in lines: how many figures, what moved, where prose quotes it."""
    counts = Counter(each.kind for each in change.differences)
    parts = [f"{counts[kind]} {word}" for kind, word in _WORDS.items() if counts[kind]]
    same = f"{counts[Kind.SAME]} same"
    yield f"{change.record.name}: {', '.join([*parts, same])}{_timings(change.differences)}"
    for each in change.moved[:most]:
        yield f"  {_describe(each)}"
    if len(change.moved) > most:
        yield f"  and {len(change.moved) - most} more"
    if change.moved and change.documents:
        yield f"  read again: {', '.join(change.documents)}"


def closing_lines(changes: Sequence[RecordChange]) -> Iterator[str]:
    """Which records moved, by their largest change, and which did not."""
    moved = sorted(
        (change for change in changes if change.moved), key=lambda each: (-each.moved[0].size, each.record.name)
    )
    names = [f"{change.record.name} ({_size(change.moved[0])})" for change in moved]
    still = [change.record.name for change in changes if not change.moved]
    yield f"moved, the largest change first: {', '.join(names) or 'none'}"
    yield f"did not move: {', '.join(still) or 'none'}"


def _describe(difference: Difference) -> str:
    """A figure that moved."""
    if difference.kind is Kind.MOVED:
        return f"{_size(difference):>11}  {_place(difference.key)}: {difference.old:.12g} to {difference.new:.12g}"
    if difference.kind is Kind.REWORDED:
        return f"   reworded  {_place(difference.key)}: {_cut(str(difference.old))} to {_cut(str(difference.new))}"
    value = difference.new if difference.kind is Kind.NEW else difference.old
    return f"{_WORDS[difference.kind]:>11}  {_place(difference.key)}{'' if value is None else f': {_cut(str(value))}'}"


def _size(difference: Difference) -> str:
    """A relative change; of what was 0, or is no number, in words."""
    if difference.kind is not Kind.MOVED:
        return _WORDS[difference.kind]
    old, new = float(difference.old or 0), float(difference.new or 0)
    return f"{100 * (new - old) / abs(old):+.3g} %" if old else "from 0"


def _timings(differences: Sequence[Difference]) -> str:
    """Timings as one clause: how many differ, and by how much in the middle."""
    timed = [each for each in differences if each.kind is Kind.TIMING and each.old != each.new]
    pairs = [(each.old, each.new) for each in timed]
    ratios = [
        new / old for old, new in pairs if isinstance(old, int | float) and isinstance(new, int | float) and old and new
    ]
    middle = f", {statistics.median(ratios):.2f} times in the median" if ratios else ""
    return f"; {len(timed)} timings and facts of the machine differ{middle}" if timed else ""


def _place(key: str) -> str:
    """A key; of a long one, where it begins and ends."""
    return key if len(key) <= _LONGEST else f"{key[: _LONGEST // 2]} ... {key[-_LONGEST // 2 :]}"


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def _committed(name: str, root: Path, revision: str) -> str | None:
    """A file as a commit has it; None if it has none."""
    for arguments in (("rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}"), ("show", f"{revision}:./{name}")):
        try:
            done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, check=False)
        except OSError as error:
            message = f"git cannot be run ({error.strerror}), and what moved is told against a commit"
            raise InputError(message, key="--against") from error
        if done.returncode and arguments[0] == "rev-parse":
            message = f"'{revision}' is no commit of this repository; what moved is told against one"
            raise InputError(message, key="--against")
    return None if done.returncode else done.stdout.decode()


def _documents_on(record: Record, root: Path) -> Iterator[str]:
    """Pages that name the record's directory, and the page in it."""
    directory = f"experiments/{record.group}"
    pages = [
        root / "README.md",
        *sorted((root / "docs").glob("*.md")),
        *sorted((root / "experiments").rglob("README.md")),
    ]
    for path in pages:
        if path.parent == root / directory or directory in path.read_text(encoding="utf-8"):
            yield path.relative_to(root).as_posix()
