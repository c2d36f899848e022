"""Text from outside as people may see it: what would steer a terminal, a page or a picture is spelled out."""

import re
from typing import Any

_STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters but tab and line feed, marks that turn the direction of text, bytes of names that are no text."""


def printable(text: str) -> str:
    r"""Text whose control characters are escaped as Python spells them: ``\x1b``, ``\u202e``, ``\udcff``.

    Names of files, models, spaces and runs may hold any character; terminals and browsers would obey some of them.
    """
    return _STEERING.sub(lambda match: match.group().encode("unicode_escape").decode("ascii"), text)


def printable_values(value: Any) -> Any:
    """Nested lists and tables, as JSON has them, with all texts printable."""
    if isinstance(value, list):
        return [printable_values(each) for each in value]
    if isinstance(value, dict):
        return {key: printable_values(each) for key, each in value.items()}
    return printable(value) if isinstance(value, str) else value
