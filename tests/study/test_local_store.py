"""The store of evaluations of one machine: shared by processes, robust to torn lines, claims die with their process."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from phaze_opt.errors import InputError
from phaze_opt.hardware.template import DesignPoint
from phaze_opt.objective.evaluation import Evaluation
from phaze_opt.search.evaluators import SerialEvaluator
from phaze_opt.search.trial import KnownEvaluation
from phaze_opt.study.stores.local_store import LocalStore
from phaze_opt.study.stores.store import EvaluationStore, StoreEvaluator
from phaze_opt.testing.toy_search import ToyObjective, ToyScenario

POINT = DesignPoint(4, 64, 32, 32, 32, 1 << 24, 1 << 35, 2)
OBJECTIVE = ToyObjective(ToyScenario())


def _known(point: DesignPoint = POINT, wall_s: float = 1.5) -> KnownEvaluation:
    return KnownEvaluation(OBJECTIVE.evaluate(point), wall_s)


def test_what_one_store_completes_another_one_knows(tmp_path: Path) -> None:
    first, second = LocalStore(tmp_path), LocalStore(tmp_path)
    assert isinstance(first, LocalStore)
    store: EvaluationStore = first
    assert second.known("a", POINT) is None
    assert store.claim("a", POINT)
    assert store.complete("a", POINT, _known()) == _known()
    assert second.known("a", POINT) == _known()
    assert second.known("b", POINT) is None
    assert second.has("a", POINT)
    assert not second.has("b", POINT)


def test_the_first_completed_evaluation_counts(tmp_path: Path) -> None:
    first, second = LocalStore(tmp_path), LocalStore(tmp_path)
    first.complete("a", POINT, _known())
    assert second.complete("a", POINT, _known(wall_s=9.0)) == _known()
    assert len((tmp_path / "a.jsonl").read_text().splitlines()) == 1


def test_reading_beside_a_claim_does_not_give_it_up(tmp_path: Path) -> None:
    """Record locks go with the first descriptor of a file that a process closes; a coordinator reads as it runs."""
    store = LocalStore(tmp_path)
    assert store.claim("a", POINT)
    reader = LocalStore(tmp_path)
    assert reader.known("a", POINT) is None
    reader.close()
    code = """
import sys
from pathlib import Path
from phaze_opt.hardware.template import DesignPoint
from phaze_opt.study.stores.local_store import LocalStore
print(LocalStore(Path(sys.argv[1])).claim("a", DesignPoint(4, 64, 32, 32, 32, 1 << 24, 1 << 35, 2)))
"""
    command = [sys.executable, "-c", code, str(tmp_path)]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "False\n"
    store.close()


def test_a_study_of_somebody_else_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    LocalStore(tmp_path).complete("a", POINT, _known())
    files = set(tmp_path.iterdir())
    real = os.open

    def refuse(path: str | os.PathLike[str], flags: int, mode: int = 0o777) -> int:
        if flags & (os.O_RDWR | os.O_CREAT):
            raise PermissionError(13, "Permission denied")
        return real(path, flags, mode)

    monkeypatch.setattr(os, "open", refuse)
    store = LocalStore(tmp_path)
    assert store.known("a", POINT) == _known()
    with pytest.raises(InputError, match="cannot be written: Permission denied"):
        store.known("b", POINT)
    with pytest.raises(InputError, match="cannot be written"):
        store.complete("a", replace(POINT, num_tc=8), _known())
    assert set(tmp_path.iterdir()) == files


@pytest.mark.parametrize("cut", [1, 2, 50, 400])
def test_a_torn_line_is_skipped_and_the_next_one_stands(tmp_path: Path, cut: int) -> None:
    other = replace(POINT, num_tc=8)
    LocalStore(tmp_path).complete("a", POINT, _known())
    path = tmp_path / "a.jsonl"
    path.write_bytes(path.read_bytes()[:-cut])
    store = LocalStore(tmp_path)
    assert store.known("a", POINT) is None
    store.complete("a", other, _known(other))
    for reader in (store, LocalStore(tmp_path)):
        assert reader.known("a", other) == _known(other)
        # A line that lacks its end alone says all: ended by the next writer, it counts.
        assert reader.known("a", POINT) == (_known() if cut == 1 else None)
    store.complete("a", POINT, _known())
    assert LocalStore(tmp_path).known("a", POINT) == _known()


_HOLD = """
import sys, time
from pathlib import Path
from phaze_opt.hardware.template import DesignPoint
from phaze_opt.study.stores.local_store import LocalStore
store = LocalStore(Path(sys.argv[1]))
print(store.claim("a", DesignPoint(*map(int, sys.argv[2:]))), flush=True)
time.sleep(60)
"""


def test_a_claim_of_another_process_holds_until_it_dies(tmp_path: Path) -> None:
    from dataclasses import astuple

    arguments = [sys.executable, "-c", _HOLD, str(tmp_path), *map(str, astuple(POINT))]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as holder:
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
    code = _HOLD.replace("time.sleep(60)", "")
    from dataclasses import astuple

    ended = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path), *map(str, astuple(POINT))],
        capture_output=True,
        text=True,
        check=True,
    )
    assert ended.stdout.strip() == "True"
