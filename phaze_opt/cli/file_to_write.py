"""See that a file can be written before anything runs that takes a while."""

from __future__ import annotations

import os
from pathlib import Path

from phaze_opt.cli.output import console
from phaze_opt.errors import InputError
from phaze_opt.record.input_files import check_path, is_directory, is_file, is_there


def check_file_to_write(path: Path | None, *, option: str, example: str) -> None:
    """See that a file can be written before anything runs, and say which folder will be made for it.

    Raises:
        InputError: it is a directory or a device, a file stands where a directory is needed, or nothing may be written
            there.
    """
    if path is None:
        return
    check_path(path, source=option)
    if is_directory(path):
        message = f"'{path}' is a directory; give a file, such as {example}"
        raise InputError(message, source=option)
    if is_there(path) and not is_file(path):
        message = f"'{path}' is no ordinary file; give one, such as {example}"
        raise InputError(message, source=option)
    above = next((parent for parent in path.absolute().parents if is_there(parent)), path)
    if not is_directory(above):
        message = f"'{path}' cannot be written: '{above}' is a file"
        raise InputError(message, source=option)
    if not os.access(above, os.W_OK):
        message = f"'{path}' cannot be written: nothing may be made in '{above}'"
        raise InputError(message, source=option)
    if above != path.absolute().parent:
        console().print(f"note: the folder {path.parent} will be made", soft_wrap=True)
