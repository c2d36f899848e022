"""A bench of workers in a module of its own: what a worker unpickles it imports, which is little here."""

import os
from dataclasses import dataclass


@dataclass
class Doubler:
    """Doubles numbers, and dies of a word."""

    def do(self, work: object, tell: object, /) -> object:
        """Twice the work."""
        if work == "die":
            os._exit(3)
        return 2 * work
