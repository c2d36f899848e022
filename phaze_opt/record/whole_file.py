"""Writing a file at once, whatever happens in the middle of it."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from phaze_opt.errors import InputError


def replace_file(path: Path, text: str) -> None:
    """Write a file at once: readers see what was there before, or all of the new.

    Raises:
        InputError: it cannot be written.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(text, encoding="utf-8")
        part.replace(path)
    except OSError as error:
        with suppress(OSError):
            part.unlink()
        message = f"cannot be written: {error.strerror or error}; choose another place"
        raise InputError(message, source=str(path)) from error
