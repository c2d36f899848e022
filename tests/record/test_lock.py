"""Locks: one process at a time, and none when the holder is gone."""

import errno
import fcntl
import multiprocessing
import os

import pytest
from elsewhere import hold

from phaze_opt.errors import InputError
from phaze_opt.record.lock import check_locks, locked, open_lock


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
    with locked(path, busy="taken", may_share=True) as first:
        assert not first.is_shared, "who comes first has it alone"
        with pytest.raises(InputError, match="taken"), locked(path, busy="taken", may_share=True):
            pass
        assert first.take(is_shared=True)
        with locked(path, busy="taken", may_share=True) as second:
            assert second.is_shared
            with pytest.raises(InputError), locked(path, busy="taken"):
                pass


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP])
@pytest.mark.parametrize("kind", ["flock", "lockf"])
def test_a_file_system_without_locks_is_one_sentence_at_once(kind, number, tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, kind, refuse)
    lock = open_lock(tmp_path / "lock")
    with pytest.raises(InputError, match=rf"{tmp_path}: the file system .* no locks .*--work-dir"):
        lock.take(wait_s=1e9) and lock.take_byte(7)
    os.close(lock.descriptor)
    with pytest.raises(InputError, match="no locks"):
        check_locks(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["lock"]


def test_no_lock_is_made_through_a_link(tmp_path):
    (tmp_path / "lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError, match="lock: cannot be written"):
        open_lock(tmp_path / "lock")
    assert not (tmp_path / "elsewhere").exists()


def test_a_place_that_cannot_be_made_is_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError), locked(tmp_path / "file" / "lock", busy="taken"):
        pass
