"""Values of options: numbers and lists as texts, refused with the option, the value and the rule."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, get_args, get_type_hints

from phaze_opt.errors import InputError
from phaze_opt.objective.scenario_options import Declaration, Kind, declarations
from phaze_opt.record.input_files import comma_advice, shorten

MIN_NUMBER, MAX_NUMBER = 1e-15, 1e15
"""Of what an option takes as a number: sums and products of such numbers stay finite."""
ZEROS = {"K": 3, "M": 6, "B": 9, "T": 12}
"""Of the letters that an amount may end with."""
_ENDINGS = "; K, M, B or T at its end stands for zeros (2K is 2000)"


GIVEN = "given"
"""Field of a request for the names of the options that were given, and not left at their defaults."""


@dataclass(frozen=True, slots=True)
class AskedOptions:
    """What a parameter is made of: one dataclass of options, or a request, whose fields are such dataclasses.

    Attributes:
        kind: what the parameter takes.
        groups: dataclasses of options with their declarations, by field of the request; empty for ``kind`` itself.
    """

    kind: type
    groups: Mapping[str, tuple[type, list[Declaration]]]

    @property
    def is_request(self) -> bool:
        """Whether it asks which options were given too."""
        return "" not in self.groups

    @property
    def declared(self) -> list[Declaration]:
        """All options, in order."""
        return [known for _, group in self.groups.values() for known in group]

    def built(self, values_of: Callable[[type, Sequence[Declaration]], dict[str, Any]], given: frozenset[str]) -> Any:
        """The value: ``values_of`` says what fields of a dataclass of options come to."""
        values = {name: kind(**values_of(kind, known)) for name, (kind, known) in self.groups.items()}
        return self.kind(**values, given=given) if self.is_request else values[""]


def asked_options(annotation: Any) -> AskedOptions | None:
    """What a parameter asks for; None of one that is not made of options.

    Args:
        annotation: such as ``Annotated[Options, {option: {attribute: value}}]``, where a command declares an option
            differently than the dataclass.
    """
    kind, *changes = get_args(annotation) or (annotation,)
    if not (is_dataclass(kind) and isinstance(kind, type)):
        return None
    own = changes[0] if changes else {}
    if not any(each.name == GIVEN for each in fields(kind)):
        return AskedOptions(kind, {"": (kind, _varied(kind, own))})
    groups = {}
    for name, hint in get_type_hints(kind, include_extras=True).items():
        if name != GIVEN:
            options, *more = get_args(hint) or (hint,)
            groups[name] = options, _varied(options, (more[0] if more else {}) | own)
    return AskedOptions(kind, groups)


def _varied(options: type, changes: Mapping[str, Mapping[str, Any]]) -> list[Declaration]:
    """The declarations of a dataclass of options as one command has them."""
    return [replace(known, **changes.get(name, {})) for name, known in declarations(options).items()]


def number(known: Declaration) -> Callable[[str | float], float]:
    """A parser of counts, amounts and gaps (typer also runs it on defaults); it raises `InputError` for all else."""

    def parse(text: str | float) -> float:
        if known.kind is Kind.COUNT:
            count = read_integer(str(text), low=known.low, high=known.high)
            if count is not None:
                return count
            rule = f"an integer from {known.low:,} to {known.high:,}"
        else:
            value = _float(_spelled_out(text) if known.kind is Kind.AMOUNT else text)
            rule = _broken_rule(known.kind, value)
            if not rule:
                return value
        message = f"{shorten(str(text))} must be {rule}{comma_advice(text)}"
        raise InputError(message, source=known.flag)

    return parse


def _broken_rule(kind: Kind, value: float) -> str:
    """What an amount or a gap must be and is not; empty if it is."""
    if kind is Kind.GAP:
        return "" if 0 <= value < 1 else "a relative gap, at least 0 and below 1"
    if not (math.isfinite(value) and value > 0):
        return f"a positive, finite number{_ENDINGS if math.isnan(value) else ''}"
    return "" if MIN_NUMBER <= value <= MAX_NUMBER else f"from {MIN_NUMBER:g} to {MAX_NUMBER:g}"


def _spelled_out(text: str | float) -> str | float:
    """A number without the letter behind it that stands for its zeros: 1.5T is 1.5e12."""
    if not isinstance(text, str) or not text.strip()[:-1]:
        return text
    digits, letter = text.strip()[:-1], text.strip()[-1].upper()
    return f"{digits}e{ZEROS[letter]}" if letter in ZEROS and digits[-1] in ".0123456789" else text


def _float(text: str | float) -> float:
    """The number that a text spells; not a number where it spells none."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def read_integer(text: str, *, low: int, high: int) -> int | None:
    """The integer that a text spells in plain decimal digits, if it is one within the limits."""
    word = text.strip()
    digits = word.removeprefix("-").lstrip("0") or "0"
    if not word.isascii() or not word.removeprefix("-").isdigit() or len(digits) > len(str(high)):
        return None
    value = -int(digits) if word.startswith("-") else int(digits)
    return value if low <= value <= high else None


def parse_integers(text: str, *, option: str, high: int, low: int = 1) -> tuple[int, ...]:
    """Comma-separated integers from ``low`` to ``high``, ascending and distinct.

    Raises:
        InputError: one of them is not.
    """
    values = []
    for word in text.split(","):
        value = read_integer(word, low=low, high=high)
        if value is None:
            example = ",".join(str(each) for each in (1, 2, 4, 8) if each <= high)
            message = f"{shorten(text)} must be integers from {low} to {high:,} separated by commas, such as {example}"
            if word != text:
                message += f"; {shorten(word.strip())} is not"
            raise InputError(message, source=option)
        values.append(value)
    return tuple(sorted(set(values)))
