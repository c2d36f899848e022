"""Evaluations shared by workers on many machines, in the tables of an Optuna RDB storage.

One Optuna study per kind of evaluation (`Condition.evaluations_digest`). A worker that needs a point makes a waiting
trial of it and sets the lowest-numbered one of that point running, which the storage grants to one worker only (trials
are numbered under a lock). Workers record heartbeats; a trial whose heartbeats stop is failed by whoever notices, and
its point begun once more. A second failure is an error, not a loop; only failures since a process has opened the store
count for it, so that a study can be resumed after one. Who dies before the trial runs leaves it waiting.
"""

import json
import logging
import math
import os
import socket
import threading
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

import optuna
from optuna.exceptions import UpdateFinishedTrialError
from optuna.storages import BaseStorage, RDBStorage
from optuna.trial import FrozenTrial, TrialState

from phaze_opt.errors import SolverError, StorageError
from phaze_opt.hardware.chip_template import DesignPoint
from phaze_opt.objective.evaluation import evaluation_from_json, evaluation_to_json
from phaze_opt.record.address import Address
from phaze_opt.search.result import KnownEvaluation
from phaze_opt.search.samplers.sampler_run import quiet_optuna
from phaze_opt.study.stores.rdb_storage import GRACE_S, Insistence, open_rdb_storage
from phaze_opt.study.stores.store import LocalStore, MirroredStore

_LOGGER = logging.getLogger(__name__)
MAX_ATTEMPTS = 2
POLL_S = 0.25
"""What somebody else has taken on is looked for in the database no more often than this, s."""
PREFIX = "phaze-opt evaluations "
_POINT, _WORKER, _EVALUATION, _WALL = "point", "worker", "evaluation", "wall_s"
_SUPERSEDED = "superseded"


def open_mirrored_store(directory: Path, *, address: Address) -> MirroredStore:
    """The store of a study's directory with an Optuna RDB storage behind it, which has answered before.

    Raises:
        StorageError: the database failed.
    """
    insistence = Insistence(address)
    storage = insistence.do(partial(open_rdb_storage, address))
    return MirroredStore(LocalStore(directory), OptunaStore(storage, insistence))


@dataclass(slots=True)
class OptunaStore:
    """An `EvaluationStore` in an Optuna RDB storage; one per process.

    Attributes:
        storage: Optuna's, with heartbeats.
        insistence: with which its operations are done; each of them is harmless to do again.
        worker: names this process in the trials it begins.
    """

    storage: RDBStorage
    insistence: Insistence
    worker: str = field(default_factory=lambda: f"{socket.gethostname()}-{os.getpid()}")
    _kinds: "dict[str, SharedKind]" = field(default_factory=dict)
    _pulse: "Pulse | None" = None

    def known(self, digest: str, point: DesignPoint) -> KnownEvaluation | None:
        """The evaluation of a point, as far as this process has read.

        Raises:
            StorageError: the database failed.
        """
        return self.insistence.do(lambda: self._kind(digest).known.get(point))

    def claim(self, digest: str, point: DesignPoint) -> bool:
        """Begin the evaluation of a point, unless it is done or begun elsewhere.

        Raises:
            SolverError: two workers ended in the middle of it.
            StorageError: the database failed.
        """
        trial_id = self.insistence.do(lambda: self._kind(digest).claim(point, worker=self.worker))
        if trial_id is None:
            return False
        if self._pulse is None:
            self._pulse = Pulse(self.storage, self.insistence)
        self._pulse.trials.add(trial_id)
        return True

    def complete(self, digest: str, point: DesignPoint, evaluation: KnownEvaluation) -> KnownEvaluation:
        """Record the evaluation of a point that was claimed; returns the one that counts.

        Raises:
            StorageError: the database failed.
        """
        try:
            return self.insistence.do(lambda: self._kind(digest).complete(point, evaluation))
        finally:
            self._let_go(digest, point)

    def release(self, digest: str, point: DesignPoint) -> None:
        """Give a claim up, if there is one; it does not count as an attempt.

        Where the database fails here, others find out by themselves that nothing beats for the claim.
        """
        self._let_go(digest, point)
        with suppress(StorageError):
            self.insistence.do(lambda: self._kind(digest).give_up(point), patience_s=0.0)

    def close(self) -> None:
        """Give all claims up and end the heartbeats."""
        for digest, kind in self._kinds.items():
            for point in tuple(kind.mine):
                self.release(digest, point)
        if self._pulse is not None:
            self._pulse.stop()
            self._pulse = None
        with suppress(StorageError):
            self.insistence.do(self.storage.remove_session, patience_s=0.0)
        self.storage.engine.dispose()

    def _let_go(self, digest: str, point: DesignPoint) -> None:
        """Beat for a claim no more."""
        kind = self._kinds.get(digest)
        if self._pulse is not None and kind is not None:
            self._pulse.trials = set(kind.mine.values()) - {kind.mine.get(point)}

    def _kind(self, digest: str) -> "SharedKind":
        if digest not in self._kinds:
            self._kinds[digest] = SharedKind(self.storage, digest, self.insistence)
        return self._kinds[digest]


class Pulse:
    """A thread that records heartbeats for the trials of this process."""

    def __init__(self, storage: RDBStorage, insistence: Insistence) -> None:
        """Start beating."""
        self._insistence = insistence
        self.trials: set[int] = set()
        self._storage = storage
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._beat, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._stopped.set()
        self._thread.join()

    def _beat(self) -> None:
        while not self._stopped.wait(self._storage.heartbeat_interval):
            for trial_id in tuple(self.trials):
                # A heart that stops at the first database error would give up claims that are still worked on.
                with suppress(StorageError):
                    self._insistence.do(partial(self._storage.record_heartbeat, trial_id), patience_s=0.0)
        # Sessions are a thread's own: nothing else closes the connection of this one.
        with suppress(StorageError):
            self._insistence.do(self._storage.remove_session, patience_s=0.0)


@dataclass(slots=True)
class SharedKind:
    """The evaluations of one kind: one Optuna study.

    Attributes:
        storage: Optuna's.
        digest: of the kind.
        insistence: knows when the database was last away.
        known: finished evaluations, as far as they have been read.
        mine: trials that this process has begun, by point.
    """

    storage: RDBStorage
    digest: str
    insistence: Insistence
    known: dict[DesignPoint, KnownEvaluation] = field(default_factory=dict)
    mine: dict[DesignPoint, int] = field(default_factory=dict)
    _study: optuna.Study | None = None
    _cached: BaseStorage | None = None
    _study_id: int = -1
    _seen: set[int] = field(default_factory=set)
    _doubtful: dict[DesignPoint, int] = field(default_factory=dict)
    _running: set[DesignPoint] = field(default_factory=set)
    _waiting: dict[DesignPoint, list[int]] = field(default_factory=dict)
    _num_failed: dict[DesignPoint, int] = field(default_factory=dict)
    _read_at: float = -math.inf
    _checked_at: float = -math.inf

    def __post_init__(self) -> None:
        """Open or make the Optuna study."""
        self._cached = optuna.storages.get_storage(self.storage)
        with quiet_optuna():
            self._study = optuna.create_study(
                study_name=PREFIX + self.digest, storage=self._cached, direction="maximize", load_if_exists=True
            )
        self._study_id = self._cached.get_study_id_from_name(PREFIX + self.digest)

    def claim(self, point: DesignPoint, *, worker: str) -> int | None:
        """The trial in which this process may evaluate a point; None if it is done or under way elsewhere.

        Raises:
            SolverError: two workers ended in the middle of it.
        """
        if point in self.mine:
            # The connection was lost after the trial had been set running.
            return self._sign(point, worker)
        if time.monotonic() - self._read_at < POLL_S and self._is_taken(point):
            return None
        self._read()
        self._settle(point)
        if self._is_taken(point):
            return None
        made = None if point in self._waiting else self._make(point)
        if made is not None:
            self._read()
            if self._is_taken(point):
                self._supersede(made)
                return None
        trial_id = min(self._waiting[point])
        try:
            # The heartbeat comes first: a running trial without one would never be found dead.
            self.storage.record_heartbeat(trial_id)
            self._doubtful[point] = trial_id
            is_mine = self.storage.set_trial_state_values(trial_id, TrialState.RUNNING)
        except UpdateFinishedTrialError:
            is_mine = False
        del self._doubtful[point]
        if is_mine:
            self.mine[point] = trial_id
        if made is not None and made != trial_id:
            self._supersede(made)
        return self._sign(point, worker) if is_mine else None

    def _sign(self, point: DesignPoint, worker: str) -> int:
        """Name this process in its trial of a point."""
        self.storage.set_trial_user_attr(self.mine[point], _WORKER, worker)
        return self.mine[point]

    def _settle(self, point: DesignPoint) -> None:
        """End a trial that this process may have set running as the connection was lost, unless another has it.

        Should another have it and not have signed it yet, both evaluate the point, and get the same.
        """
        trial_id = self._doubtful.pop(point, None)
        if trial_id is None:
            return
        trial = self.storage.get_trial(trial_id)
        if trial.state is TrialState.RUNNING and _WORKER not in trial.user_attrs:
            self._supersede(trial_id)
            self._read()

    def complete(self, point: DesignPoint, evaluation: KnownEvaluation) -> KnownEvaluation:
        """Record an evaluation; should this process have been taken for dead meanwhile, the other's counts."""
        trial_id = self.mine[point]
        value = evaluation.evaluation.throughput_samples_per_s
        try:
            text = json.dumps(evaluation_to_json(evaluation.evaluation))
            self.storage.set_trial_user_attr(trial_id, _EVALUATION, text)
            self.storage.set_trial_user_attr(trial_id, _WALL, evaluation.wall_s)
            self.storage.set_trial_state_values(trial_id, TrialState.COMPLETE, [value])
        except UpdateFinishedTrialError:
            # One that is complete was completed here, as the connection was lost.
            if self.storage.get_trial(trial_id).state is not TrialState.COMPLETE:
                _LOGGER.warning("%s was taken from this process as from a dead one; both give the same", point)
        del self.mine[point]
        return self.known.setdefault(point, evaluation)

    def give_up(self, point: DesignPoint) -> None:
        """End a trial of this process, if it has one; it does not count as an attempt."""
        if point in self.mine:
            self._supersede(self.mine.pop(point))

    def _supersede(self, trial_id: int) -> None:
        """Fail a trial that is not an attempt."""
        try:
            self.storage.set_trial_user_attr(trial_id, _SUPERSEDED, value=True)
            self.storage.set_trial_state_values(trial_id, TrialState.FAIL)
        except UpdateFinishedTrialError:
            return

    def _is_taken(self, point: DesignPoint) -> bool:
        """Whether a point is done or under way, as far as has been read.

        Raises:
            SolverError: two workers ended in the middle of it.
        """
        if point in self.known or point in self._running:
            return True
        if self._num_failed.get(point, 0) >= MAX_ATTEMPTS:
            message = (
                f"two workers ended in the middle of evaluating {point}, perhaps for lack of memory; "
                "everything finished is kept: --resume tries it again"
            )
            raise SolverError(message)
        return False

    def _make(self, point: DesignPoint) -> int:
        """A waiting trial of a point; its identifier."""
        attributes = {_POINT: asdict(point)}
        template = optuna.trial.create_trial(state=TrialState.WAITING, user_attrs=attributes)
        return self.storage.create_new_trial(self._study_id, template)

    def _read(self) -> None:
        """Read what is new; from time to time, fail the trials of dead workers first."""
        assert self._cached is not None
        assert self._study is not None
        now = time.monotonic()
        grace_s = self.storage.grace_period or GRACE_S
        # While the database was away nobody could beat: who is alive gets the time to do so again.
        if now - self._checked_at > grace_s / 4 and now - self.insistence.lost_s > grace_s:
            self._checked_at = now
            with quiet_optuna():
                optuna.storages.fail_stale_trials(self._study)
        self._running, self._waiting = set(), {}
        for trial in self._cached.get_all_trials(self._study_id, deepcopy=False):
            if trial.number not in self._seen:
                self._take_up(trial)
        self._read_at = time.monotonic()

    def _take_up(self, trial: FrozenTrial) -> None:
        """Note one trial; a finished one for good."""
        point = DesignPoint(**trial.user_attrs[_POINT])
        if trial.state.name == "RUNNING":
            self._running.add(point)
        elif trial.state.name == "WAITING":
            self._waiting.setdefault(point, []).append(trial._trial_id)
        else:
            self._seen.add(trial.number)
        if trial.state.name == "COMPLETE" and point not in self.known:
            evaluation = evaluation_from_json(json.loads(trial.user_attrs[_EVALUATION]))
            self.known[point] = KnownEvaluation(evaluation, float(trial.user_attrs[_WALL]))
        is_new = self._read_at > -math.inf
        if is_new and trial.state.name == "FAIL" and _SUPERSEDED not in trial.user_attrs:
            self._num_failed[point] = self._num_failed.get(point, 0) + 1
