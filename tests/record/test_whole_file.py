"""Files are whole or not there, and a place that cannot be written is one sentence."""

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from phaze_opt.errors import InputError
from phaze_opt.record.journal import make_own, open_journal, read_journal, read_value
from phaze_opt.record.lock import open_lock
from phaze_opt.record.whole_file import replace_file
from phaze_opt.report.page import write_text


@pytest.mark.parametrize("write", [replace_file, write_text])
def test_a_write_that_is_cut_short_leaves_the_earlier_file(write, tmp_path: Path, monkeypatch) -> None:
    path = tmp_path / "a" / "x.json"
    write(path, "earlier")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(InputError, match="cannot be written: No space left on device"):
        write(path, "the new one")
    assert path.read_text() == "earlier"
    assert list(path.parent.iterdir()) == [path], "nothing half written stays"


def test_a_file_in_place_of_a_directory_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"file/x: cannot be written: .*; choose another place"):
        replace_file(tmp_path / "file" / "x", "text")


def test_what_a_killed_process_left_goes_with_the_next_write(tmp_path: Path) -> None:
    dead, host = 2**22 + 1, socket.gethostname()  # no process has a number above 2**22
    left, others = (
        f".x.json.{dead}@{host}",
        [f".x.json.{os.getppid()}@{host}", f".x.json.{dead}@elsewhere", f".y.json.{dead}@{host}", f".x.json.x@{host}"],
    )
    for name in (left, *others):
        (tmp_path / name).write_text("half")
    replace_file(tmp_path / "x.json", "whole")
    assert {path.name for path in tmp_path.iterdir()} == {"x.json", *others}


def test_a_copy_takes_the_place_of_a_link(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    for make in (Path.symlink_to, Path.hardlink_to):
        victim.write_text("precious\n")
        path = tmp_path / make.__name__
        make(path, victim)
        with open_journal(path) as journal:
            journal.append({"next": 1})
        assert victim.read_text() == "precious\n"
        assert path.read_text().startswith("precious\n")
        assert read_journal(path).values == ({"next": 1},)
        path.unlink()
        make(path, victim)
        with open_journal(path, is_fresh=True) as journal:
            journal.append({"next": 2})
        assert victim.read_text() == "precious\n"
        assert read_journal(path).num_faulty == 0
        assert not path.is_symlink()
    path.unlink()
    path.symlink_to(tmp_path / "nowhere")
    make_own(path)
    assert path.read_bytes() == b""
    assert not (tmp_path / "nowhere").exists()


OPENERS: tuple[Callable[[Path], object], ...] = (
    read_journal,
    open_journal,
    lambda path: open_journal(path, is_fresh=True),
    lambda path: read_value(path, kind="a value"),
    lambda path: replace_file(path, ""),
    open_lock,
    make_own,
)


@pytest.mark.parametrize("opener", OPENERS)
def test_what_is_no_file_is_refused_at_once(opener: Callable[[Path], object], tmp_path: Path) -> None:
    """A pipe would be waited for, a device read without end."""
    (tmp_path / "a directory").mkdir()
    os.mkfifo(tmp_path / "a named pipe")
    (tmp_path / "a device").symlink_to("/dev/zero")
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(tmp_path / "a socket"))
    for path in tuple(tmp_path.iterdir()):
        with pytest.raises(InputError, match=rf"is {path.name}, no file; remove it"):
            opener(path)
