"""See that a file can be written before anything runs that takes a while."""

from __future__ import annotations

import os
from pathlib import Path

from phaze_opt.cli.output import console
from phaze_opt.errors import InputError


def check_file_to_write(path: Path | None, *, option: str, example: str) -> None:
    """See that a file can be written before anything runs, and say which folder will be made for it.

    Raises:
        InputError: it is a directory or a device, a file stands where a directory is needed, or nothing may be written
            there.
    """
    if path is None:
        return
    if path.is_dir():
        message = f"'{path}' is a directory; give a file, such as {example}"
        raise InputError(message, source=option)
    if path.exists() and not path.is_file():
        message = f"'{path}' is no ordinary file; give one, such as {example}"
        raise InputError(message, source=option)
    above = next((parent for parent in path.absolute().parents if parent.exists()), path)
    if not above.is_dir():
        message = f"'{path}' cannot be written: '{above}' is a file"
        raise InputError(message, source=option)
    if not os.access(above, os.W_OK):
        message = f"'{path}' cannot be written: nothing may be made in '{above}'"
        raise InputError(message, source=option)
    if above != path.absolute().parent:
        console().print(f"note: the folder {path.parent} will be made", soft_wrap=True)
