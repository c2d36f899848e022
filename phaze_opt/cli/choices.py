"""Words of closed sets on the command line."""

from __future__ import annotations

from enum import StrEnum
from typing import TypeVar

from phaze_opt.errors import InputError

_EnumT = TypeVar("_EnumT", bound=StrEnum)


def parse_choice(enum: type[_EnumT], text: str, *, option: str) -> _EnumT:
    """A member of a closed set by its value, with a near miss suggested."""
    from phaze_opt.record.spelling import suggest

    try:
        return enum(text)
    except ValueError:
        message = f"'{text}' is unknown; {suggest(text, list(enum))}"
        raise InputError(message, source=option) from None
