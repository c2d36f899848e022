"""What an analysis has found so far, kept world by world so that an interruption costs little."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from phaze_opt.certify.pieces import Pieces, open_pieces
from phaze_opt.certify.robust.prover import WorldBest, WorldProof, Worth
from phaze_opt.record.plain_data import from_plain, to_plain

_DIGITS = 16


@dataclass(slots=True)
class RobustJournal:
    """Proofs and worths by the digest of the problem that a world poses.

    Attributes:
        pieces: where they are kept.
    """

    pieces: Pieces
    _proofs: dict[str, WorldProof] = field(default_factory=dict)
    _worths: dict[tuple[str, str], Worth] = field(default_factory=dict)

    def proof(self, world_digest: str) -> WorldProof | None:
        """The proof of a world; None if there is none."""
        return self._proofs.get(world_digest)

    def add_proof(self, world_digest: str, proof: WorldProof) -> None:
        """Keep the proof of a world.

        Raises:
            InputError: it cannot be written.
        """
        best = [to_plain(WorldBest, entry) for entry in proof.best]
        line = {"proved": world_digest, "best": best, "value_upper": proof.value_upper}
        self.pieces.keep_arrays(_arrays_name(world_digest), line, {"bounds": proof.bounds})

    def worth(self, world_digest: str, name: str) -> Worth | None:
        """The worth of a design, named by its index or its reference, in a world; None if it is not known."""
        return self._worths.get((world_digest, name))

    def add_worth(self, world_digest: str, name: str, worth: Worth) -> None:
        """Keep the worth of a design in a world.

        Raises:
            InputError: it cannot be written.
        """
        self._worths[world_digest, name] = worth
        self.pieces.keep({"world": world_digest, "design": name, "worth": to_plain(Worth, worth)})

    def take(self, line: dict[str, Any]) -> None:
        """Take in a line.

        Raises:
            ValueError, KeyError, TypeError: it is none.
        """
        if "worth" in line:
            self._worths[line["world"], line["design"]] = from_plain(Worth, line["worth"])
        elif "proved" in line:
            arrays = self.pieces.arrays(_arrays_name(line["proved"]), line)
            if arrays is not None:
                best = tuple(from_plain(WorldBest, entry) for entry in line["best"])
                self._proofs[line["proved"]] = WorldProof(best, float(line["value_upper"]), arrays["bounds"])

    def remove(self) -> None:
        """Forget everything, on disk too."""
        self._proofs.clear()
        self._worths.clear()
        self.pieces.remove()


def open_robust_journal(directory: Path, *, is_resumed: bool) -> RobustJournal:
    """The journal of an analysis, whose directory tells it from others; empty unless resumed.

    Raises:
        InputError: it cannot be read.
    """
    journal = RobustJournal(open_pieces(directory, header={"of": "robustness"}, is_resumed=is_resumed))
    journal.pieces.take_in(journal.take)
    return journal


def _arrays_name(world_digest: str) -> str:
    return f"world-{world_digest[:_DIGITS]}"
