"""The software that a measured row's text speaks of, where no column says it (software_words.toml)."""

import re
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Any

from phaze_opt.cost.stacks import software_tables
from phaze_opt.record.document import parse_toml
from phaze_opt.validation.matching_set import SETS_OF_SOFTWARE
from phaze_opt.validation.measured_row import Row

STEPS = "train_"
"""Beginning of the names of published sets of whole steps, which tables may leave out."""
SETS_BY_SOFTWARE = MappingProxyType({name: software for software, name in reversed(tuple(SETS_OF_SOFTWARE.items()))})
"""Software of published sets, where several have one the first."""
TEXTS = ("table", "source", "note")
"""Columns whose words are read, in this order."""
_WORDS = "software_words.toml"


def told_software(row: Row) -> str:
    """Name of the software that a row's table, source or note speaks of; empty where none does.

    A table named like a published set is that set's. Otherwise the first of the three texts that names exactly one
    software decides: a text that names several says nothing. Words on the form of that software count in all three.
    """
    table = row.text("table", "")
    published = (SETS_BY_SOFTWARE.get(own, "") for own in (table, f"{STEPS}{table}"))
    texts = [_plain(row.text(column, "")) for column in TEXTS]
    name = next(filter(None, (*published, *map(_named, texts))), "")
    forms = _words()["forms"].get(name, {})
    return next((form for words, form in forms.items() if any(_stands(words, text) for text in texts)), name)


@cache
def _words() -> Mapping[str, dict[str, Any]]:
    """The tables of words."""
    text = resources.files("phaze_opt.validation").joinpath(_WORDS).read_text(encoding="utf-8")
    return MappingProxyType(parse_toml(text, source=_WORDS).values)


@cache
def _names() -> Mapping[str, str]:
    """Software by the words that name it."""
    return MappingProxyType({_plain(name): name for name in software_tables()} | _words()["names"])


def _named(text: str) -> str:
    """The one software that a text names; empty if it names none, or several."""
    found = _longest([words for words in _names() if _stands(words, text)])
    software = {_names()[words] for words in found}
    return software.pop() if len(software) == 1 else ""


def _longest(found: Iterable[str]) -> list[str]:
    """Names that are no part of a longer one."""
    known = list(found)
    return [words for words in known if not any(words != other and _stands(words, other) for other in known)]


def _plain(text: str) -> str:
    return re.sub(r"[-_\s]+", " ", text.lower())


def _stands(words: str, text: str) -> bool:
    """Whether words stand in a text as whole words."""
    return re.search(rf"(?<![a-z0-9]){re.escape(words)}(?![a-z0-9])", text) is not None
