"""Makes one record in a copy of the repository, and puts its files in place once all of it is there.

The copy keeps a long run to one state of the code, whatever is edited meanwhile. It stays after an interruption or a
fault: commands that keep what is finished (studies, proofs, samplers) go on from there, while the code is the same.
"""

import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from phaze_opt.record.whole_file import replace_file
from recording.declared import Piece
from recording.same_code import code_digest, files_digest

_COPIED = ("phaze_opt", "experiments", "studies", "tests", "docs", "pyproject.toml")
_IGNORED = shutil.ignore_patterns(".pytest_cache", ".hypothesis", "phaze-opt-*", "*.db", "mlruns")
_MAX_CHARACTERS = 300


class MakingError(Exception):
    """A record could not be made; the message is one sentence."""


def is_finished(piece: Piece, root: Path, work_dir: Path) -> bool:
    """Whether the same code made this piece, and the record's files are still those that were put in place."""
    known = _read(_state_file(piece, work_dir))
    return known.get(piece.model) == code_digest(piece.record, root) and known.get("files") == files_digest(
        piece.record, root
    )


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
    code, folder, started = code_digest(piece.record, root), _folder(piece, work_dir), time.monotonic()
    if not (folder / "tree").exists() or _read(folder / "begun.json").get("code") != code:
        _begin(piece, root, folder, code)
    tree = folder / "tree"
    for command in piece.commands(str(folder / "work")):
        _run(command, tree, folder / "log.txt", piece=piece)
    found = {name: _whole(tree / name, piece) for name in piece.record.files}
    for name, content in found.items():
        replace_file(root / name, content)
    if piece.record.finish:
        _run(piece.record.finish, root, folder / "log.txt", piece=piece)
    _remember(piece, root, work_dir, code)
    shutil.rmtree(folder)
    return time.monotonic() - started


def log_file(piece: Piece, work_dir: Path) -> Path:
    """Where the output of a piece's commands is kept until it is finished."""
    return _folder(piece, work_dir) / "log.txt"


def _begin(piece: Piece, root: Path, folder: Path, code: str) -> None:
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
    replace_file(folder / "begun.json", json.dumps({"code": code}))


def _run(command: str, directory: Path, log: Path, *, piece: Piece) -> None:
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
    """Run a command with the code of a directory; a Ctrl-C reaches it too, and it is waited for."""
    name, *arguments = shlex.split(text)
    words = {"python": [], "phaze-opt": ["-m", "phaze_opt.cli"]}[name]
    environment = _environment(directory)
    with subprocess.Popen(
        [sys.executable, *words, *arguments], cwd=directory, env=environment, stdout=stdout, stderr=stderr
    ) as process:
        try:
            return process.wait()
        except KeyboardInterrupt:
            process.wait()
            raise


def _environment(directory: Path) -> Mapping[str, str]:
    """This process's, with the package of a directory before any other, and the commands of this Python."""
    beside = str(Path(sys.executable).parent)
    return os.environ | {"PYTHONPATH": str(directory), "PATH": os.pathsep.join([beside, os.environ.get("PATH", "")])}


def _whole(path: Path, piece: Piece) -> bytes:
    """What a command wrote, if it is all there."""
    try:
        content = path.read_bytes()
        readers: dict[str, Callable[[], object]] = {
            ".json": lambda: json.loads(content),
            ".jsonl": lambda: [json.loads(line) for line in content.splitlines()],
        }
        readers.get(path.suffix, lambda: None)()
    except (OSError, ValueError) as error:
        message = f"its commands ended well, but {path.name} is missing or is not whole: {error}"
        raise MakingError(message) from error
    if not content:
        message = f"its commands ended well, but {path.name} is empty"
        raise MakingError(message)
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


def _read(path: Path) -> dict[str, str]:
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
