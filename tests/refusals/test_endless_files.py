"""Files that would take minutes, gigabytes or for ever are refused in one sentence before the work begins."""

import os
import socket
import time
from pathlib import Path

import pytest
from refused_files import READERS
from sample_files import good_text

from phaze_opt.errors import InputError
from phaze_opt.record.input_files import read_text_file
from phaze_opt.validation.dataset import read_dataset

MOST_S = 3.0
"""Of processor time, on a machine that is at work elsewhere too."""
FILE_READERS = sorted(READERS.keys() - {"document"})
TOML_READERS = ["architecture", "constants", "machine", "network", "prices", "space", "study"]
MANY = 200_000
ENDLESS = {
    "a key of many parts": ".".join(["a"] * MANY) + " = 1",
    "a key of many parts with blanks": ' . "b" . '.join(["a"] * MANY) + " = 1",
    "such a key inside": "x = [{ y = 'b.c', " + ".".join(["a"] * MANY) + " = 1 }]",
    "many tables": "".join(f"[t{number}]\n" for number in range(MANY)),
    "many quotes": '"' * MANY * 5,
    "one long word": "a" * MANY * 5,
}
DIMENSION = '[[dimensions]]\ntopology = "ring"\nsize = 2\nbandwidth_gb_per_s = 100\nlatency_us = 1\n'
SPACE = good_text("space").replace("{low = 1, high = 128, factor = 2}", "{low = 1, high = 1000, step = 1}")
FINE = "{low = 2, high = 128, step = 0.1}"
STUDY = good_text("study")
LONG = {
    "network": {"dimensions": DIMENSION * 1100, "many dimensions": DIMENSION * 3900},
    "space": {
        "rows": SPACE.replace("[2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128]", FINE).replace("step = 8", "step = 1"),
        "architectures": SPACE.replace(
            "[1, 2, 4, 8, 16, 32, 64, 128]", "{low = 1, high = 4000, step = 1}"
        ),
    },
    "study": {
        "targets": STUDY.replace("targets = [0.1]", f"targets = {[n / 1e5 for n in range(1, 50_000)]}"),
        "settings": STUDY + "".join(f'[[setting]]\nname = "s{n}"\n' for n in range(1001)),
    },
}  # fmt: skip


def check_refused_at_once(name: str, path: Path, says: str = "") -> None:
    begun_s = time.process_time()
    with pytest.raises(InputError) as caught:
        READERS[name](path)
    assert time.process_time() - begun_s < MOST_S
    assert says in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 1500


@pytest.mark.parametrize("reader", TOML_READERS)
@pytest.mark.parametrize("what", ENDLESS)
def test_a_toml_file_without_end_is_refused_at_once(reader: str, what: str, tmp_path: Path) -> None:
    path = tmp_path / "given.toml"
    path.write_text(ENDLESS[what])
    check_refused_at_once(reader, path)


@pytest.mark.parametrize(("reader", "what"), [(reader, what) for reader, texts in LONG.items() for what in texts])
def test_lists_and_products_are_bounded_before_they_are_walked(reader: str, what: str, folder: Path) -> None:
    path = folder / "given.toml"
    path.write_text(LONG[reader][what])
    check_refused_at_once(reader, path, "at most")


def test_a_csv_of_many_columns_is_refused_at_once(tmp_path: Path) -> None:
    path = tmp_path / "given.csv"
    path.write_text(",".join(f"c{number}" for number in range(MANY)) + "\n" + ",".join("1" * MANY))
    check_refused_at_once("measurements", path, "200,000 columns; at most 1,000")
    path.write_text("hardware,op,m,n,dtype,latency_us\n" + ",".join("1" * MANY))
    with pytest.raises(InputError, match="given.csv:2: has 200,000 columns"):
        read_dataset(path)


@pytest.mark.parametrize("reader", FILE_READERS)
@pytest.mark.parametrize("what", ["a named pipe", "a device", "a socket"])
def test_what_is_no_ordinary_file_is_refused_without_opening_it(reader: str, what: str, tmp_path: Path) -> None:
    path = tmp_path / "given.toml"
    if what == "a named pipe":
        os.mkfifo(path)
    elif what == "a device":
        path.symlink_to("/dev/zero")
    else:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(os.path.relpath(path))
    check_refused_at_once(reader, path, "no ordinary file")


def test_what_a_shell_hands_over_is_read_and_kept() -> None:
    out, into = os.pipe()
    os.write(into, b"a = 1\n")
    os.write(into, b"b = 2\n")
    os.close(into)
    try:
        for _ in range(2):
            assert read_text_file(Path(f"/dev/fd/{out}"), kind="a file") == "a = 1\nb = 2\n"
    finally:
        os.close(out)


def test_a_pipe_that_gives_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("phaze_opt.record.input_files.PIPE_WAIT_S", 0.01)
    out, into = os.pipe()
    try:
        with pytest.raises(InputError, match="nothing came for 0.01 s"):
            read_text_file(Path(f"/dev/fd/{out}"), kind="a file")
    finally:
        os.close(out)
        os.close(into)
