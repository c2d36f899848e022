"""What differs between two states of a record, figure by figure; timings and facts of the machine are told apart.

JSON is compared key by key. Rows of a list are paired by the fields that say what they are about, where those tell them
apart, else by their places. Sentences and lines of Markdown are compared by their numbers where their words agree.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from recording.timings import is_timing

ROUNDING = 1e-9
"""Relative change up to which a figure counts as the same."""
_IDENTITY = [
    "dataset",
    "id",
    "row_id",
    "case",
    "family",
    "name",
    "problem",
    "instance",
    "label",
    "options",
    "model",
    "tensor_parallel",
    "attention",
    "exclusivity",
    "network",
    "goal",
    "variant",
    "encoding",
    "sampler",
    "contender",
    "condition",
    "setting",
    "seed",
    "size",
    "device",
    "scattered",
    "hbm_gib",
    "workers",
    "padding_s",
    "trial_runs",
    "range",
    "num_tc",
    "num_vc",
]
"""Keys that say what a row is about."""
_NUMBER = re.compile(r"(?<![\w.])[-+]?\d(?:[\d,]*\d)?(?:\.\d+)?(?:[eE][-+]?\d+)?")
_TIMED = re.compile(rf"{_NUMBER.pattern} s in the (?=mean|median)")
"""Seconds in the sentences of studies."""
_ABSENT = object()
Leaf = str | float | bool | None


class Kind(Enum):
    """What became of a figure."""

    SAME = "same"
    MOVED = "moved"
    REWORDED = "reworded"
    NEW = "new"
    GONE = "gone"
    TIMING = "timing"


@dataclass(frozen=True, slots=True)
class Difference:
    """One figure in two states of a record; SAME ones are kept to be counted.

    Attributes:
        key: where it stands.
        kind: what became of it; TIMING whether it differs or not.
        old, new: the figure, None where there is none.
    """

    key: str
    kind: Kind
    old: Leaf = None
    new: Leaf = None

    @property
    def size(self) -> float:
        """Distance over the larger of the two, from 0 to 2: by it what moved is ordered. Words come after numbers."""
        if not _is_number(self.old) or not _is_number(self.new):
            return 0.0
        old, new = float(self.old or 0), float(self.new or 0)
        return abs(new - old) / max(abs(old), abs(new)) if old != new else 0.0


def compare_texts(old: str, new: str, *, suffix: str, is_about_speed: bool = False) -> list[Difference]:
    """All figures of one file of a record.

    Args:
        old: what it held.
        new: what it holds.
        suffix: of the file's name; says how it is read.
        is_about_speed: every figure follows the machine.
    """
    if suffix == ".json":
        found = list(_walk(json.loads(old), json.loads(new), ()))
    elif suffix == ".jsonl":
        found = list(_walk(*([json.loads(line) for line in text.splitlines()] for text in (old, new)), ()))
    elif suffix == ".md":
        found = list(_walk(old.splitlines(), new.splitlines(), ()))
    else:
        found = [Difference("drawing", Kind.SAME if old == new else Kind.TIMING)]
    if not is_about_speed:
        return found
    return [Difference(each.key, Kind.TIMING, each.old, each.new) for each in found]


def _walk(old: Any, new: Any, path: tuple[str, ...]) -> Iterator[Difference]:
    """Everything under one key of both."""
    if isinstance(old, dict) and isinstance(new, dict):
        yield from _walk_pairs(old, new, path)
    elif isinstance(old, list) and isinstance(new, list):
        yield from _walk_pairs(*_named_rows(old, new), path)
    elif isinstance(old, dict | list) or isinstance(new, dict | list):
        yield from _one_sided(old, Kind.GONE, path)
        yield from _one_sided(new, Kind.NEW, path)
    else:
        yield from _compare_leaves(old, new, path)


def _walk_pairs(old: Mapping[str, Any], new: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[Difference]:
    for key in dict.fromkeys([*old, *new]):
        before, after = old.get(key, _ABSENT), new.get(key, _ABSENT)
        if before is _ABSENT or after is _ABSENT:
            kind, value = (Kind.NEW, after) if before is _ABSENT else (Kind.GONE, before)
            yield from _one_sided(value, kind, (*path, key))
        else:
            yield from _walk(before, after, (*path, key))


def _one_sided(value: Any, kind: Kind, path: tuple[str, ...]) -> Iterator[Difference]:
    """Everything under a key that only one of the two has."""
    if isinstance(value, dict | list):
        rows = value if isinstance(value, dict) else _named_rows(value, value)[0]
        for key, each in rows.items():
            yield from _one_sided(each, kind, (*path, key))
    else:
        sides = {"old": value} if kind is Kind.GONE else {"new": value}
        yield Difference(" > ".join(path), Kind.TIMING if is_timing(path) else kind, **sides)


def _named_rows(old: Sequence[Any], new: Sequence[Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Rows of two lists by what they are about, or by their places."""
    rows = [*old, *new]
    if rows and all(isinstance(row, dict) for row in rows):
        keys = [key for key in _IDENTITY if all(isinstance(row.get(key), str | int) for row in rows)]
        named = [
            {", ".join(str(row[key]) for key in keys if row[key] != ""): row for row in side} for side in (old, new)
        ]
        if keys and [len(side) for side in named] == [len(old), len(new)]:
            return named[0], named[1]
    before, after = ({str(at): row for at, row in enumerate(side, start=1)} for side in (old, new))
    return before, after


def _compare_leaves(old: Leaf, new: Leaf, path: tuple[str, ...]) -> Iterator[Difference]:
    """Two numbers, two texts, or two of anything else."""
    key = " > ".join(path)
    if is_timing(path):
        yield Difference(key, Kind.TIMING, old, new)
    elif isinstance(old, str) and isinstance(new, str) and old != new:
        yield from _compare_sentences(old, new, key)
    elif _is_number(old) and _is_number(new):
        both = Difference(key, Kind.MOVED, old, new)
        yield both if both.size > ROUNDING else Difference(key, Kind.SAME, old, new)
    else:
        yield Difference(key, Kind.SAME if old == new and type(old) is type(new) else Kind.REWORDED, old, new)


def _compare_sentences(old: str, new: str, key: str) -> Iterator[Difference]:
    """By their numbers, where the words are the same; seconds of searches play no part."""
    old, new = (_TIMED.sub("a time in the ", text) for text in (old, new))
    if _NUMBER.sub("#", old) != _NUMBER.sub("#", new):
        yield Difference(key, Kind.REWORDED, old, new)
        return
    if old == new:
        yield Difference(key, Kind.SAME, old, new)
    pairs = zip(_NUMBER.findall(old), _NUMBER.findall(new), strict=True)
    for at, (before, after) in enumerate(pairs, start=1):
        if before != after:
            numbers = (float(text.replace(",", "")) for text in (before, after))
            yield Difference(f"{key}, number {at}", Kind.MOVED, *numbers)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
