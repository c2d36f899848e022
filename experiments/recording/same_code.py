"""What a record was made from: a digest of all code and input that could change it.

The whole package counts, its data files too, and not only what a script imports: names in files decide which code
prices what. So a change of a docstring makes records again, and a change that matters never goes unseen.
"""

import hashlib
import json
import os
import platform
import re
from collections.abc import Iterator
from functools import cache
from importlib.metadata import requires, version
from pathlib import Path
from typing import Any

from recording.declared import RECORDS, Record

_COMPILED = {".pyc", ".pyo", ".nbi", ".nbc"}


def code_digest(record: Record, root: Path) -> str:
    """SHA-256 of package, scripts, inputs, commands, and the versions of Python and of what the package stands on."""
    parts = [_tree_digest(root / "phaze_opt"), platform.python_version(), *_requirements(), *record.commands]
    scripts = [path for path in (root / "experiments" / record.group).iterdir() if path.suffix in {".py", ".toml"}]
    for path in sorted([*scripts, *(root / name for name in record.inputs)]):
        parts.append(f"{path.relative_to(root).as_posix()} {_tree_digest(path)}")
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def code_of(name: str, root: Path) -> str:
    """`code_digest` of a declared record by its name."""
    return code_digest(next(record for record in RECORDS if record.name == name), root)


def made_by(code: str, path: Path) -> dict[str, Any]:
    """What a record that names its code in `_meta` holds, if it is this code; nothing of another state or none.

    So a script that was interrupted goes on, and no record is put together from several states.
    """
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return found if found.get("_meta", {}).get("code") == code else {}


def meta_of(command: str, code: str) -> dict[str, Any]:
    """`_meta` of a record: the command and the code that made it, and what it ran on."""
    return {
        "command": command,
        "code": code,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "python": platform.python_version(),
        "versions": {name: version(name) for name in ("phaze-opt", "numpy", "numba")},
        "load_average": os.getloadavg()[0],
    }


def files_digest(record: Record, root: Path) -> str:
    """SHA-256 of a record's files as they are; of files that are not there too."""
    return hashlib.sha256("".join(_tree_digest(root / name) for name in record.files).encode()).hexdigest()


def _tree_digest(path: Path) -> str:
    """SHA-256 of a file, or of all files under a directory with their places."""
    if not path.is_dir():
        return hashlib.sha256(path.read_bytes() if path.exists() else b"").hexdigest()
    files = sorted(_sources(path))
    lines = [f"{file.relative_to(path).as_posix()} {_tree_digest(file)}" for file in files]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _sources(directory: Path) -> Iterator[Path]:
    """Files that somebody wrote."""
    for path in directory.rglob("*"):
        if path.is_file() and path.suffix not in _COMPILED and "__pycache__" not in path.parts:
            yield path


@cache
def _requirements() -> tuple[str, ...]:
    """The packages that phaze-opt needs, with the versions that are installed."""
    needed = [text for text in requires("phaze-opt") or [] if "extra ==" not in text]
    names = sorted({match[0] for text in needed if (match := re.match(r"[\w.-]+", text))})
    return tuple(f"{name} {version(name)}" for name in names)
