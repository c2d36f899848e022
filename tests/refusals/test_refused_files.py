"""Every fault of a file that a user writes is one sentence with its place; the sentences are pinned here alone."""

from pathlib import Path

import pytest
from refused_files import FILES, READERS, faulty_texts, read_as

from phaze_opt.errors import InputError, PhazeOptError

NOTHING_READABLE = {
    "nothing": b"",
    "blanks": b" \n\t\n",
    "binary": b"\x7fELF\x80\x81\x00\xff",
    "a list": b"[1, 2]",
    "nested too deeply": b"[" * 100_000,
    "a number too long": b'{"a": ' + b"9" * 5000 + b"}",
    "cut off": b'{"name": "x",\n "num_tc": 2,\n',
}


@pytest.mark.parametrize("name", FILES)
def test_faults_are_one_sentence_with_their_place(name: str, folder: Path, snapshot) -> None:
    sentences = []
    for faulty in faulty_texts(name):
        path = folder / faulty.file
        path.write_text(faulty.text, encoding="utf-8")
        with pytest.raises(PhazeOptError) as caught:
            read_as(name)(path)
        message = str(caught.value)
        assert "\n" not in message, faulty.fault
        assert len(message) < 1500, faulty.fault
        assert str(path) in message, faulty.fault
        line = getattr(caught.value, "line", None)
        assert line is None or not faulty.lines or line in faulty.lines, (faulty.fault, message)
        sentences.append(f"{faulty.fault}\n    {message.replace(f'{folder}/', '')}")
    assert len(sentences) == len(set(sentences))
    assert "\n".join(sentences) == snapshot


@pytest.mark.parametrize("reader", sorted(READERS.keys() - {"document"}))
@pytest.mark.parametrize("what", [*NOTHING_READABLE, "a directory", "no file"])
@pytest.mark.parametrize("suffix", [".toml", ".json", ".csv"])
def test_what_is_no_such_file_is_refused_in_a_sentence(reader: str, what: str, suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"given{suffix}"
    if what == "a directory":
        path.mkdir()
    elif what != "no file":
        path.write_bytes(NOTHING_READABLE[what])
    with pytest.raises(InputError) as caught:
        READERS[reader](path)
    assert what == "no file" or str(path) in str(caught.value)
    assert len(str(caught.value)) < 1500
    assert "\n" not in str(caught.value)
