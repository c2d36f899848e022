"""Makes one record in a copy of the repository, and puts its files in place once all of it is there.

The copy keeps a long run to one state of the code, whatever is edited meanwhile. It stays after an interruption or a
fault: while the code and the record's files are the same, commands that ended are not run again, and those that keep
what is finished (studies, proofs, samplers) go on.
"""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from phaze_opt.record.whole_file import replace_file
from recording.declared import Piece
from recording.same_code import code_digest, files_digest

_COPIED = ("phaze_opt", "experiments", "studies", "tests", "docs", "pyproject.toml")
_IGNORED = shutil.ignore_patterns(".pytest_cache", ".hypothesis", "phaze-opt-*", "*.db", "mlruns")
_MAX_CHARACTERS = 300
_BEGUN = "begun.json"
"""Says which code and files a copy belongs to, and how many commands have ended in it."""


class MakingError(Exception):
    """A record could not be made; the message is one sentence."""


def is_finished(piece: Piece, root: Path, work_dir: Path) -> bool:
    """Whether the same code made this piece, and the record's files are still those that were put in place."""
    known, record = _read(_state_file(piece, work_dir)), piece.record
    return known.get(piece.model) == code_digest(record, root) and known.get("files") == files_digest(record, root)


def make(piece: Piece, root: Path, work_dir: Path) -> float:
    """Make a piece and put its files in place; seconds that it took, the last time if it was interrupted.

    Args:
        piece: what to make.
        root: of the repository.
        work_dir: where copies, logs and what is known of finished records are kept.

    Raises:
        MakingError: a command failed, or did not leave the files it should.
        InputError: a file cannot be written.
    """
    started, folder = time.monotonic(), _folder(piece, work_dir)
    tree, record = folder / "tree", piece.record
    begun = {"code": code_digest(record, root), "files": files_digest(record, root)}
    num_finished = _go_on(folder, begun)
    if num_finished is None:
        _begin(piece, root, folder)
        replace_file(folder / _BEGUN, json.dumps(begun))
    commands = list(enumerate(piece.commands(str(folder / "work")), start=1))
    for number, command in commands[num_finished or 0 :]:
        _run(command, tree, folder / "log.txt")
        replace_file(folder / _BEGUN, json.dumps({**begun, "finished": number}))
    found = {name: _whole(tree / name, folder) for name in record.files}
    for name, content in found.items():
        replace_file(root / name, content)
    if record.finish:
        _run(record.finish, root, folder / "log.txt")
    _remember(piece, root, work_dir, begun["code"])
    shutil.rmtree(folder)
    return time.monotonic() - started


def log_file(piece: Piece, work_dir: Path) -> Path:
    """Where the output of a piece's commands is kept until it is finished."""
    return _folder(piece, work_dir) / "log.txt"


def _go_on(folder: Path, begun: Mapping[str, str]) -> int | None:
    """Commands that ended in the copy there is; None where there is none of the same code and files."""
    known = _read(folder / _BEGUN)
    is_same = all(known.get(key) == value for key, value in begun.items())
    return int(known.get("finished", 0)) if is_same and (folder / "tree").exists() else None


def _begin(piece: Piece, root: Path, folder: Path) -> None:
    """A fresh copy; a record that is made whole starts from nothing, one model's part from what there is."""
    if folder.exists():
        shutil.rmtree(folder)
    tree = folder / "tree"
    (folder / "work").mkdir(parents=True)
    for name in _COPIED:
        if (root / name).is_dir():
            shutil.copytree(root / name, tree / name, ignore=_IGNORED)
        elif (root / name).exists():
            shutil.copy2(root / name, tree / name)
    if not piece.model:
        for name in piece.record.files:
            (tree / name).unlink(missing_ok=True)


def _run(command: str, directory: Path, log: Path) -> None:
    """One command, its output in the log, or in the file that the command names."""
    text, _, output = command.partition(" > ")
    with log.open("ab") as errors:
        errors.write(f"$ {command}\n".encode())
        errors.flush()
        if output:
            with (directory / output).open("wb") as printed:
                code = _wait(text, directory, stdout=printed.fileno(), stderr=errors.fileno())
        else:
            code = _wait(text, directory, stdout=errors.fileno(), stderr=errors.fileno())
    if code:
        message = f"`{text}` ended with exit code {code}: {_last_line(log)}"
        raise MakingError(message)


def _wait(text: str, directory: Path, *, stdout: int, stderr: int) -> int:
    """Run a command with the code of a directory; a Ctrl-C is passed on to it once, and it is waited for."""
    name, *arguments = shlex.split(text)
    words = {"python": [], "phaze-opt": ["-m", "phaze_opt"]}[name]
    command, environment = [sys.executable, *words, *arguments], _environment(directory)
    with subprocess.Popen(
        command, cwd=directory, env=environment, stdout=stdout, stderr=stderr, start_new_session=True
    ) as process:
        try:
            return process.wait()
        except KeyboardInterrupt:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGINT)
            process.wait()
            raise


def _environment(directory: Path) -> Mapping[str, str]:
    """This process's, with the package of a directory before any other, and the commands of this Python."""
    beside = str(Path(sys.executable).parent)
    return os.environ | {"PYTHONPATH": str(directory), "PATH": os.pathsep.join([beside, os.environ.get("PATH", "")])}


def _whole(path: Path, folder: Path) -> bytes:
    """What the commands wrote, if it is all there; if not, the next run begins anew."""
    try:
        content = path.read_bytes()
        readers: dict[str, Callable[[], object]] = {
            ".json": lambda: json.loads(content),
            ".jsonl": lambda: [json.loads(line) for line in content.splitlines()],
        }
        readers.get(path.suffix, lambda: None)()
    except (OSError, ValueError) as error:
        (folder / _BEGUN).unlink(missing_ok=True)
        message = f"its commands ended well, but {path.name} is missing or is not whole: {error}"
        raise MakingError(message) from error
    return content


def _last_line(log: Path) -> str:
    """The last line that says something."""
    lines = [line.strip() for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    return lines[-1][:_MAX_CHARACTERS] if lines else "it printed nothing"


def _remember(piece: Piece, root: Path, work_dir: Path, code: str) -> None:
    """That this code made this piece. The whole record takes the place of what was known of its models."""
    path = _state_file(piece, work_dir)
    known = _read(path) if piece.model else dict.fromkeys(piece.record.models, code)
    replace_file(
        path, json.dumps({**known, piece.model: code, "files": files_digest(piece.record, root)}, indent=1) + "\n"
    )


def _read(path: Path) -> dict[str, Any]:
    """A small file of this room; one that is damaged or missing says nothing, so the work is done again."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _folder(piece: Piece, work_dir: Path) -> Path:
    return work_dir / piece.name.replace("/", "-").replace(", ", "-")


def _state_file(piece: Piece, work_dir: Path) -> Path:
    return work_dir / f"{piece.record.name.replace('/', '-')}.json"
