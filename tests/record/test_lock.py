"""Locks: one process at a time, and none when the holder is gone."""

import multiprocessing

import pytest
from elsewhere import hold

from phaze_opt.errors import InputError
from phaze_opt.record.lock import locked


def test_a_second_process_is_told_and_a_killed_one_holds_nothing(tmp_path):
    path = tmp_path / "runs" / ".lock"
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=hold, args=(path, theirs))
    process.start()
    theirs.close()
    assert ours.recv() == "held"
    with pytest.raises(InputError, match="taken") as caught, locked(path, busy="taken"):
        pass
    assert caught.value.source == str(path.parent)
    process.kill()
    process.join()
    with locked(path, busy="taken") as lock:
        assert lock.take(is_shared=True)


def test_shared_locks_share(tmp_path):
    path = tmp_path / ".lock"
    with (
        locked(path, busy="taken", is_shared=True),
        locked(path, busy="taken", is_shared=True),
        pytest.raises(InputError),
        locked(path, busy="taken"),
    ):
        pass


def test_a_place_that_cannot_be_made_is_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError), locked(tmp_path / "file" / "lock", busy="taken"):
        pass
