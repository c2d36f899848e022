"""How far work is, in one form for all that works and all that shows it."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Progress:
    """What is done of how many, of which phase.

    Attributes:
        phase: what the work is at.
        num_done: done of it, that of earlier sessions included.
        num_all: of how many; None where that cannot be known.
        what: a few words more.
    """

    phase: str
    num_done: int
    num_all: int | None = None
    what: str = ""


OnProgress = Callable[[Progress], None]
