"""Near-miss suggestions for names a user mistyped."""

import difflib
from collections.abc import Iterable, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import TypeVar

from phaze_opt.errors import InputError

_WordT = TypeVar("_WordT", bound=StrEnum)

LEAST_BEGINNING, MOST_BEGINNINGS = 3, 4
"""Letters that count as the beginning of a name, and names with that beginning that are suggested."""
LEAST_LIKENESS = 0.6
"""Share of letters that a mistyped name shares with the one that was meant."""
_MAX_CHARACTERS = 100
_SEEN_AS = str.maketrans("oil", "011")
"""Letters that are taken for digits."""


def suggest(name: str, known: Iterable[str], *, aliases: Iterable[str] = ()) -> str:
    """``did you mean x?`` when a known name is close to ``name``, else ``known: a, b, c`` (shortened beyond 30).

    Args:
        name: what was given; case does not count.
        known: names to suggest or list.
        aliases: names that are accepted too: suggested when close, never listed.
    """
    names, others = sorted(known), sorted(aliases)
    text = name.lower()
    found = [key for key in names if len(text) >= LEAST_BEGINNING and key.lower().startswith(text)]
    found = found[:MOST_BEGINNINGS] or near(name, (*others, *names), most=3 if others else 2)
    if found:
        return f"did you mean {' or '.join(found)}?"
    return f"known: {', '.join(names[:30]) or 'none'}{', ...' if len(names) > 30 else ''}"


def near(name: str, known: Iterable[str], *, most: int = 1, likeness: float = LEAST_LIKENESS) -> list[str]:
    """Known names that are close to one, the closest first; case does not count.

    Args:
        name: what was given.
        known: names to choose among.
        most: names given.
        likeness: share of letters from which on a name is close.
    """
    text = name[:_MAX_CHARACTERS].lower()
    # No share of letters is larger than the lengths allow: difflib looks at what is left.
    fits = (each for each in known if 2 * min(len(each), len(text)) >= likeness * (len(each) + len(text)))
    lowered = {candidate.lower(): candidate for candidate in fits}
    found = difflib.get_close_matches(text, lowered, n=most, cutoff=likeness)
    if not found:
        seen = {key.translate(_SEEN_AS): key for key in lowered}
        found = [
            seen[key] for key in difflib.get_close_matches(text.translate(_SEEN_AS), seen, n=most, cutoff=likeness)
        ]
    return [lowered[key] for key in found]


def differ_by_a_letter(given: str, known: str) -> bool:
    """Whether one letter of a name was left out, added or mistaken, or two neighbours were swapped; case counts not."""
    text, word = given[:_MAX_CHARACTERS].lower(), known.lower()
    if abs(len(text) - len(word)) > 1 or text == word:
        return False
    start = next((at for at, (a, b) in enumerate(zip(text, word, strict=False)) if a != b), min(len(text), len(word)))
    left, right = text[start:], word[start:]
    is_swapped = left[:2] == right[1::-1] and left[2:] == right[2:]
    return left[1:] == right[1:] or left[1:] == right or left == right[1:] or is_swapped


def known_as(name: str, known: Iterable[str]) -> str:
    """The known name that is meant, whatever its case; what was given where there is none, or several."""
    names = tuple(known)
    if name in names:
        return name
    alike = [each for each in names if each.casefold() == name.strip().casefold()]
    return alike[0] if len(alike) == 1 else name


def parse_word(
    words: type[_WordT], text: str, *, source: str, meant: Mapping[str, str] = MappingProxyType({})
) -> _WordT:
    """A member of a closed set by its value, in any case.

    Args:
        words: the set.
        text: what was given.
        source: of the text.
        meant: members that words which are none stand for, to suggest.

    Raises:
        InputError: there is none; a near miss is suggested.
    """
    try:
        return words(known_as(text, words))
    except ValueError:
        member = meant.get(text.strip().casefold())
        message = f"'{text}' is unknown; {f'did you mean {member}?' if member else suggest(text, list(words))}"
        raise InputError(message, source=source) from None
