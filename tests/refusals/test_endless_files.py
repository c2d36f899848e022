"""Files that would take minutes, gigabytes or for ever are refused in one sentence before the work begins."""

import io
import os
import resource
import socket
import time
import tracemalloc
import zipfile
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from refused_files import READERS
from sample_files import good_text

from phaze_opt.certify.check.files import read_certificate, read_front
from phaze_opt.errors import InputError
from phaze_opt.hardware.chip_template import DesignPoint
from phaze_opt.record.checkpoint import Checkpoint, open_checkpoint
from phaze_opt.record.input_files import read_text_file
from phaze_opt.record.journal import MAX_LINE_BYTES, JournalTail, make_own, read_journal, read_value
from phaze_opt.search.journal import keep_journal
from phaze_opt.study.directory import StudyDirectory, read_plan
from phaze_opt.study.stores.store import LocalStore
from phaze_opt.track.pending_delivery import OrderFile
from phaze_opt.track.sources import count_lines
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


MOST_BYTES = 1 << 30
POINT = DesignPoint(1, 128, 128, 1, 128, 1, 1, 1)


def resume_search(path: Path) -> None:
    with keep_journal(path.parent, start={}, is_resumed=True):
        pass


def resume_proof(path: Path) -> None:
    open_checkpoint(path, header={}, is_resumed=True, what="it")


def own_copy(path: Path) -> None:
    link = path.with_name("link")
    link.symlink_to(path)
    make_own(link)


RECORDS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "the plan of a study": ("study.json", lambda path: read_plan(StudyDirectory(path.parent))),
    "a search of a study": ("cell.jsonl", read_journal),
    "evaluations": ("digest.jsonl", lambda path: LocalStore(path.parent).known(path.stem, POINT)),
    "reference machines": ("gpt3.json", lambda path: read_value(path, kind="reference machines")),
    "an order of tracking": ("tracking.json", lambda path: OrderFile(path.parent).load()),
    "a search that is resumed": ("trials.jsonl", resume_search),
    "a search that is delivered": ("trials.jsonl", lambda path: list(JournalTail(path).read())),
    "a search that is counted": ("tracking-moves.jsonl", count_lines),
    "a journal that is a link": ("trials.jsonl", own_copy),
    "the pieces of a proof": ("pieces.jsonl", resume_proof),
    "a certificate": ("certificate.json", lambda path: read_certificate(path.parent)),
    "a front": ("front.json", lambda path: read_front(path.parent)),
}
"""Readers of what earlier commands left, and the names of their files."""


@pytest.mark.parametrize("record", RECORDS)
@pytest.mark.parametrize("what", ["3 GB", "a named pipe", "a device", "a file that waits"])
def test_a_record_without_end_is_refused_at_once(record: str, what: str, tmp_path: Path) -> None:
    name, reader = RECORDS[record]
    path = tmp_path / "folder" / name
    path.parent.mkdir()
    if what == "a named pipe":
        os.mkfifo(path)
    elif what == "3 GB":
        path.touch()
        os.truncate(path, 3 << 30)
    else:
        path.symlink_to("/dev/zero" if what == "a device" else "/proc/kmsg")
    begun_s, begun_wall_s = time.process_time(), time.monotonic()
    tracemalloc.start()
    try:
        if what == "a file that waits":  # it may be read, states no bytes, and so has none
            with suppress(InputError):
                reader(path)
        else:
            with pytest.raises(InputError) as caught:
                reader(path)
            assert name in str(caught.value) or "link" in str(caught.value)
            assert "\n" not in str(caught.value)
        assert tracemalloc.get_traced_memory()[1] < MOST_BYTES
    finally:
        tracemalloc.stop()
    assert time.process_time() - begun_s < MOST_S
    assert time.monotonic() - begun_wall_s < 10 * MOST_S


def test_a_file_that_waits_is_no_file_of_a_users() -> None:
    with pytest.raises(InputError, match="/proc/kmsg: (is empty|cannot be read|no such file)"):
        read_text_file(Path("/proc/kmsg"), kind="a file")


def test_lines_after_a_hole_are_read_on_only_if_it_is_short(tmp_path: Path) -> None:
    path = tmp_path / "trials.jsonl"
    path.write_bytes(b"{}\n" + bytes(1000) + b"\n{}")
    assert (count_lines(path), list(JournalTail(path).read())) == (2, [(0, None), (3, None)])
    os.truncate(path, MAX_LINE_BYTES + 2000)
    with pytest.raises(InputError, match=r"trials.jsonl: holds a line of 32 MiB or more"):
        list(JournalTail(path).read())


def many_stated() -> bytes:
    """An array of 80 TB, by its header."""
    header, stream = io.BytesIO(), io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": (10**13,)})
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("rate.npy", header.getvalue() + bytes(8))
    return stream.getvalue()


def many_packed() -> bytes:
    """An array of 160 MB in less than one."""
    stream = io.BytesIO()
    np.savez_compressed(stream, rate=np.broadcast_to(np.zeros(1), 20_000_000))
    return stream.getvalue()


@pytest.mark.parametrize("content", [many_stated, many_packed, lambda: b"no archive"])
def test_arrays_that_are_larger_than_their_file_are_done_again(
    content: Callable[[], bytes], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "bounds.npz"
    path.write_bytes(content())
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert (
        Checkpoint(tmp_path / "pieces.jsonl").arrays("bounds", {"arrays_crc32": zlib.crc32(path.read_bytes())}) is None
    )
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - used < 64 << 10
    assert "bounds.npz is missing, or not what was written: that piece is done again" in caplog.text
