"""Near-miss suggestions for names a user mistyped."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

LEAST_BEGINNING, MOST_BEGINNINGS = 3, 4
"""Letters that count as the beginning of a name, and names with that beginning that are suggested."""


def suggest(name: str, known: Iterable[str], *, aliases: Iterable[str] = ()) -> str:
    """``did you mean x?`` when a known name is close to ``name``, else ``known: a, b, c`` (shortened beyond 30).

    Args:
        name: what was given; case does not count.
        known: names to suggest or list.
        aliases: names that are accepted too: suggested when close, never listed.
    """
    names = sorted(known)
    lowered = {candidate.lower(): candidate for candidate in (*sorted(aliases), *names)}
    num_near = 2 if len(lowered) == len(names) else 3
    text = name.lower()
    near = [key.lower() for key in names if len(text) >= LEAST_BEGINNING and key.lower().startswith(text)]
    near = near[:MOST_BEGINNINGS] or difflib.get_close_matches(text, lowered, n=num_near, cutoff=0.6)
    if near:
        return f"did you mean {' or '.join(lowered[key] for key in near)}?"
    listed = ", ".join(names[:30])
    return f"known: {listed}{', ...' if len(names) > 30 else ''}"
