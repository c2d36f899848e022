"""A study's own store with a shared one behind it: workers on many machines share evaluations, each keeps them all."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from phaze_opt.record.address import Address
from phaze_opt.search.trial_log import KnownEvaluation
from phaze_opt.space.point import DesignPoint
from phaze_opt.study.stores.local_store import LocalStore
from phaze_opt.study.stores.store import EvaluationStore


@dataclass(frozen=True, slots=True)
class MirroredStore:
    """Claims are made of the shared store; what anybody finishes is kept in the study's directory too.

    Reports are rebuilt from the directory, so it must hold every evaluation that its searches were told.

    Attributes:
        local: of the study's directory.
        shared: of all machines.
    """

    local: LocalStore
    shared: EvaluationStore

    def known(self, digest: str, point: DesignPoint) -> KnownEvaluation | None:
        """From the directory, else from the shared store, which is then copied."""
        here = self.local.known(digest, point)
        if here is not None:
            return here
        elsewhere = self.shared.known(digest, point)
        return None if elsewhere is None else self.local.complete(digest, point, elsewhere)

    def claim(self, digest: str, point: DesignPoint) -> bool:
        """Claim a point of the shared store."""
        return self.shared.claim(digest, point)

    def complete(self, digest: str, point: DesignPoint, evaluation: KnownEvaluation) -> KnownEvaluation:
        """Keep an evaluation in both; the shared store's counts.

        Should the shared store fail, the directory keeps what was evaluated, and the failure goes on.
        """
        try:
            evaluation = self.shared.complete(digest, point, evaluation)
        finally:
            evaluation = self.local.complete(digest, point, evaluation)
        return evaluation

    def release(self, digest: str, point: DesignPoint) -> None:
        """Give a claim up."""
        self.shared.release(digest, point)

    def close(self) -> None:
        """Close both."""
        self.shared.close()
        self.local.close()


def open_mirrored_store(directory: Path, *, address: Address) -> MirroredStore:
    """The store of a study's directory with an Optuna RDB storage behind it, which has answered before.

    Raises:
        StorageError: the database failed.
    """
    from phaze_opt.study.stores.optuna_store import OptunaStore
    from phaze_opt.study.stores.rdb_storage import Insistence, open_rdb_storage

    insistence = Insistence(address)
    storage = insistence.do(partial(open_rdb_storage, address))
    return MirroredStore(LocalStore(directory), OptunaStore(storage, insistence))
