"""What an analysis has found so far, kept on disk world by world so that an interruption costs little."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from phaze_opt.certify.robust.prover import WorldBest, WorldProof, Worth
from phaze_opt.errors import InputError
from phaze_opt.record.plain_data import from_plain, to_plain
from phaze_opt.record.whole_file import replace_file

_WORTHS_FILE = "worths.jsonl"
_DIGITS = 16


@dataclass(frozen=True, slots=True)
class _ProofRecord:
    """A `WorldProof` but its bounds, which stand in an .npz file of the same name."""

    world_digest: str
    best: tuple[WorldBest, ...]
    value_upper: float


@dataclass(slots=True)
class RobustJournal:
    """Proofs and worths by the digest of the problem that a world poses.

    A proof is two files, the bounds first and the record last, each written whole; a worth is a line, and a line cut
    short is one that was not written.

    Attributes:
        directory: of this analysis; made on the first write.
    """

    directory: Path
    _worths: dict[tuple[str, str], Worth] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Read the worths that are there."""
        path = self.directory / _WORTHS_FILE
        if not path.exists():
            return
        text = path.read_text(encoding="utf-8")
        *lines, rest = text.split("\n")
        if rest:  # cut short: what is appended next must begin a line of its own
            path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        for line in lines:
            digest, name, worth = self._parse(line, path)
            self._worths[digest, name] = worth

    def proof(self, world_digest: str) -> WorldProof | None:
        """The proof of a world; None if there is none.

        Raises:
            InputError: the files are not what `add_proof` writes.
        """
        path = self._proof_file(world_digest)
        if not path.exists():
            return None
        try:
            record = from_plain(_ProofRecord, json.loads(path.read_text(encoding="utf-8")))
            with path.with_suffix(".npz").open("rb") as stream, np.load(stream, allow_pickle=False) as arrays:
                bounds = arrays["bounds"]
        except (OSError, ValueError, KeyError, BadZipFile) as error:
            raise _broken(path) from error
        return WorldProof(record.best, record.value_upper, bounds) if record.world_digest == world_digest else None

    def add_proof(self, world_digest: str, proof: WorldProof) -> None:
        """Keep the proof of a world.

        Raises:
            InputError: it cannot be written.
        """
        path = self._proof_file(world_digest)
        arrays = path.with_suffix(".npz")
        partial = arrays.with_suffix(".npz.partial")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with partial.open("wb") as stream:
                np.savez(stream, bounds=proof.bounds)
            partial.replace(arrays)
        except OSError as error:
            raise _unwritable(arrays, error) from error
        record = _ProofRecord(world_digest, proof.best, proof.value_upper)
        replace_file(path, json.dumps(to_plain(_ProofRecord, record)) + "\n")

    def worth(self, world_digest: str, name: str) -> Worth | None:
        """The worth of a design, named by its index or its reference, in a world; None if it is not known."""
        return self._worths.get((world_digest, name))

    def add_worth(self, world_digest: str, name: str, worth: Worth) -> None:
        """Keep the worth of a design in a world.

        Raises:
            InputError: it cannot be written.
        """
        self._worths[world_digest, name] = worth
        line = {"world": world_digest, "design": name, "worth": to_plain(Worth, worth)}
        path = self.directory / _WORTHS_FILE
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            with path.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps(line) + "\n")
        except OSError as error:
            raise _unwritable(path, error) from error

    def remove(self) -> None:
        """Forget everything, on disk too."""
        self._worths.clear()
        shutil.rmtree(self.directory, ignore_errors=True)

    def _proof_file(self, world_digest: str) -> Path:
        return self.directory / f"world-{world_digest[:_DIGITS]}.json"

    @staticmethod
    def _parse(line: str, path: Path) -> tuple[str, str, Worth]:
        try:
            data: dict[str, Any] = json.loads(line)
            return str(data["world"]), str(data["design"]), from_plain(Worth, data["worth"])
        except (ValueError, KeyError, TypeError) as error:
            raise _broken(path) from error


def _unwritable(path: Path, error: OSError) -> InputError:
    message = f"cannot be written: {error.strerror or error}"
    return InputError(message, source=str(path))


def _broken(path: Path) -> InputError:
    message = "is not what phaze-opt writes while it analyses robustness; run again without --resume"
    return InputError(message, source=str(path))
