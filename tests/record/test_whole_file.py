"""Files are whole or not there, and a place that cannot be written is one sentence."""

import os
from pathlib import Path

import pytest

from phaze_opt.errors import InputError
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
