"""The store of evaluations of one machine: shared by processes, robust to torn lines, claims die with their process."""

import errno
import fcntl
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from phaze_opt.errors import InputError, SolverError
from phaze_opt.hardware.chip_template import DesignPoint
from phaze_opt.objective.evaluation import Evaluation
from phaze_opt.search.evaluators import SerialEvaluator
from phaze_opt.search.result import KnownEvaluation
from phaze_opt.study.stores.local_store import LocalStore, _offset
from phaze_opt.study.stores.store import EvaluationStore, StoreEvaluator
from phaze_opt.testing.problems import ToyObjective, ToyScenario

POINT = DesignPoint(4, 64, 32, 32, 32, 1 << 24, 1 << 35, 2)
OBJECTIVE = ToyObjective(ToyScenario())
KNOWN = KnownEvaluation(OBJECTIVE.evaluate(POINT), 1.5)


_CLAIM = """
import fcntl, sys, time
file = open(sys.argv[1], "a+b")
try:
    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, int(sys.argv[3]))
except OSError:
    print(False)
else:
    print(True, flush=True)
    time.sleep(int(sys.argv[2]))
"""
"""A claim as the system sees it: the lock of a byte, in a process that need not import this package."""


def _claim_command(directory: Path, *, hold_s: int) -> list[str]:
    return [sys.executable, "-S", "-c", _CLAIM, str(directory / "a.claims"), str(hold_s), str(_offset(POINT))]


def _claims_elsewhere(directory: Path) -> str:
    """What a process of its own prints: whether it gets the claim."""
    return subprocess.run(_claim_command(directory, hold_s=0), capture_output=True, text=True, check=True).stdout


def test_what_one_store_completes_another_one_knows(tmp_path: Path) -> None:
    first, second = LocalStore(tmp_path), LocalStore(tmp_path)
    store: EvaluationStore = first
    assert second.known("a", POINT) is None
    assert store.claim("a", POINT)
    assert store.complete("a", POINT, KNOWN) == KNOWN
    assert second.known("a", POINT) == KNOWN
    assert second.known("b", POINT) is None
    assert second.has("a", POINT)
    assert not second.has("b", POINT)


def test_claims_where_there_are_no_locks_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else they would be waited for without end, as if others had them."""

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "lockf", refuse)
    with pytest.raises(InputError, match=f"{tmp_path}: the file system of this folder has no locks"):
        LocalStore(tmp_path).claim("a", POINT)


def test_the_first_completed_evaluation_counts(tmp_path: Path) -> None:
    first, second = LocalStore(tmp_path), LocalStore(tmp_path)
    first.complete("a", POINT, KNOWN)
    assert second.complete("a", POINT, replace(KNOWN, wall_s=9.0)) == KNOWN
    assert len((tmp_path / "a.jsonl").read_text().splitlines()) == 1


def test_reading_beside_a_claim_does_not_give_it_up(tmp_path: Path) -> None:
    """Record locks go with the first descriptor of a file that a process closes; a coordinator reads as it runs."""
    store = LocalStore(tmp_path)
    assert store.claim("a", POINT)
    reader = LocalStore(tmp_path)
    assert reader.known("a", POINT) is None
    reader.close()
    assert _claims_elsewhere(tmp_path) == "False\n"
    store.close()


def test_a_study_of_somebody_else_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    LocalStore(tmp_path).complete("a", POINT, KNOWN)
    files = set(tmp_path.iterdir())
    real = os.open

    def refuse(path: str | os.PathLike[str], flags: int, mode: int = 0o777) -> int:
        if flags & (os.O_RDWR | os.O_CREAT):
            raise PermissionError(13, "Permission denied")
        return real(path, flags, mode)

    monkeypatch.setattr(os, "open", refuse)
    store = LocalStore(tmp_path)
    assert store.known("a", POINT) == KNOWN
    with pytest.raises(InputError, match="cannot be written: Permission denied"):
        store.known("b", POINT)
    with pytest.raises(InputError, match="cannot be written"):
        store.complete("a", replace(POINT, num_tc=8), KNOWN)
    assert set(tmp_path.iterdir()) == files


@pytest.mark.parametrize("cut", [1, 2, 50, 400])
def test_a_torn_line_is_skipped_and_the_next_one_stands(tmp_path: Path, cut: int) -> None:
    other = replace(POINT, num_tc=8)
    LocalStore(tmp_path).complete("a", POINT, KNOWN)
    path = tmp_path / "a.jsonl"
    path.write_bytes(path.read_bytes()[:-cut])
    store = LocalStore(tmp_path)
    assert store.known("a", POINT) is None
    store.complete("a", other, KnownEvaluation(OBJECTIVE.evaluate(other), 1.5))
    for reader in (store, LocalStore(tmp_path)):
        assert reader.known("a", other) == KnownEvaluation(OBJECTIVE.evaluate(other), 1.5)
        # A line that lacks its end alone says all: ended by the next writer, it counts.
        assert reader.known("a", POINT) == (KNOWN if cut == 1 else None)
    store.complete("a", POINT, KNOWN)
    assert LocalStore(tmp_path).known("a", POINT) == KNOWN


def test_a_claim_of_another_process_holds_until_it_dies(tmp_path: Path) -> None:
    with subprocess.Popen(_claim_command(tmp_path, hold_s=60), stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline().strip() == "True"
        store = LocalStore(tmp_path)
        assert not store.claim("a", POINT)
        assert store.claim("a", replace(POINT, num_tc=8))
        evaluated = []

        class Noting:
            def evaluate(self, point: DesignPoint) -> Evaluation:
                evaluated.append(point)
                return OBJECTIVE.evaluate(point)

        evaluator = StoreEvaluator(store, "a", SerialEvaluator(Noting))
        (pending,) = evaluator.submit((POINT,))
        assert pending.is_waiting
        assert not pending.is_done
        os.kill(holder.pid, 9)
        holder.wait()
        assert not pending.is_waiting
        assert pending.result()[0] == OBJECTIVE.evaluate(POINT)
        assert evaluated == [POINT]


def test_a_failed_evaluation_gives_its_claim_up(tmp_path: Path) -> None:
    class Failing:
        def evaluate(self, point: DesignPoint) -> object:
            raise ValueError(str(point))

    with pytest.raises(ValueError, match="num_tc=4"):
        StoreEvaluator(LocalStore(tmp_path), "a", SerialEvaluator(Failing)).submit((POINT,))
    assert _claims_elsewhere(tmp_path) == "True\n"


@dataclass(slots=True)
class Answer:
    """Comes back at once, or says that its worker died."""

    error: Exception | None
    is_waiting: bool = False
    is_done: bool = True

    def result(self) -> tuple[Evaluation, float]:
        if self.error is not None:
            raise self.error
        return KNOWN.evaluation, KNOWN.wall_s


@dataclass(slots=True)
class FakeCluster:
    error: Exception | None = None
    refusal: Exception | None = None
    asked: list[DesignPoint] = field(default_factory=list)

    def submit(self, points: Sequence[DesignPoint]) -> tuple[Answer, ...]:
        if self.refusal is not None:
            raise self.refusal
        self.asked += points
        return tuple(Answer(self.error) for _ in points)


@dataclass(slots=True)
class FakeStore:
    """Somebody else finishes the point between the look and the claim, if told so."""

    is_finished_meanwhile: bool = False
    num_looks: int = 0
    claims: set[DesignPoint] = field(default_factory=set)

    def known(self, digest: str, point: DesignPoint) -> KnownEvaluation | None:  # noqa: ARG002
        self.num_looks += 1
        return KNOWN if self.is_finished_meanwhile and self.num_looks > 1 else None

    def claim(self, digest: str, point: DesignPoint) -> bool:  # noqa: ARG002
        self.claims.add(point)
        return True

    def complete(self, digest: str, point: DesignPoint, evaluation: KnownEvaluation) -> KnownEvaluation:  # noqa: ARG002
        self.claims.discard(point)
        return evaluation

    def release(self, digest: str, point: DesignPoint) -> None:  # noqa: ARG002
        self.claims.discard(point)

    def close(self) -> None:
        """Nothing is open."""


def test_what_comes_back_is_kept(tmp_path: Path) -> None:
    store, cluster = LocalStore(tmp_path), FakeCluster()
    (pending,) = StoreEvaluator(store, "a", cluster).submit((POINT,))
    assert pending.result() == (KNOWN.evaluation, KNOWN.wall_s)
    assert store.known("a", POINT) == KNOWN
    assert cluster.asked == [POINT]


def test_what_another_process_finished_meanwhile_is_not_asked_again() -> None:
    store, cluster = FakeStore(is_finished_meanwhile=True), FakeCluster()
    (pending,) = StoreEvaluator(store, "a", cluster).submit((POINT,))
    assert pending.result()[0] == KNOWN.evaluation
    assert cluster.asked == []
    assert store.claims == set()


@pytest.mark.parametrize("where", ["error", "refusal"])
def test_a_cluster_that_fails_leaves_no_claim(where: str) -> None:
    store = FakeStore()
    cluster = FakeCluster(**{where: SolverError("the worker died")})
    with pytest.raises(SolverError):
        StoreEvaluator(store, "a", cluster).submit((POINT,))[0].result()
    assert store.claims == set()
