"""Journals: what was written is read, and a torn or changed line costs that line."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phaze_opt.errors import InputError
from phaze_opt.record.journal import (
    format_line,
    open_journal,
    parse_line,
    read_journal,
    read_value,
    write_journal,
    write_value,
)

VALUES = [{"number": number, "text": 'é\n"}{', "value": number / 3} for number in range(5)]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63) + 1, 2**63 - 1) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(st.dictionaries(st.text().filter(lambda key: key != "crc32"), JSON))
def test_a_line_is_read_as_it_was_written(value):
    line = format_line(value)
    assert line.count("\n") == 1
    assert parse_line(line) == value
    assert json.loads(line).pop("crc32")


def test_no_line_holds_more_than_64_bits():
    with pytest.raises(ValueError, match="a whole number of 30 digits is in no journal"):
        parse_line(format_line({"number": 10**29}))


@given(st.data())
def test_a_changed_byte_is_found(data):
    line = format_line(VALUES[1]).encode()
    place = data.draw(st.integers(0, len(line) - 2))
    byte = data.draw(st.integers(0, 255).filter(lambda byte: byte != line[place]))
    with pytest.raises(ValueError, match="line"):
        parse_line(line[:place] + bytes([byte]) + line[place + 1 :])


def test_the_key_of_the_checksum_is_taken():
    with pytest.raises(ValueError, match="crc32"):
        format_line({"crc32": 1})


def test_every_truncation_costs_the_torn_line_only(tmp_path):
    path = tmp_path / "journal.jsonl"
    write_journal(path, VALUES)
    content = path.read_bytes()
    ends = [place for place, byte in enumerate(content) if byte == ord("\n")]
    for length in range(len(content)):
        path.write_bytes(content[:length])
        read = read_journal(path)
        num_whole = sum(end <= length for end in ends)
        assert list(read.values) == VALUES[:num_whole]
        assert read.num_faulty <= 1
        with open_journal(path) as journal:
            journal.append({"next": True})
        assert list(read_journal(path).values) == [*VALUES[:num_whole], {"next": True}]


def test_a_changed_line_costs_that_line(tmp_path):
    path = tmp_path / "journal.jsonl"
    write_journal(path, VALUES)
    lines = path.read_text().splitlines()
    lines[2] = lines[2].replace("0.66", "0.67")
    del lines[4]
    lines.append('{"number": 9}')
    path.write_text("\n".join(lines))
    read = read_journal(path)
    assert list(read.values) == [VALUES[0], VALUES[1], VALUES[3]]
    assert read.num_faulty == 2


def test_there_may_be_no_journal_and_a_fresh_one_drops_what_was_there(tmp_path):
    path = tmp_path / "new" / "journal.jsonl"
    assert read_journal(path).values == ()
    for value in VALUES[:2]:
        with open_journal(path, is_fresh=True) as journal:
            journal.append(value)
    assert read_journal(path).values == (VALUES[1],)


def test_a_value_alone_is_read_or_refused(tmp_path):
    path = tmp_path / "value.json"
    assert read_value(path, kind="a value") is None
    write_value(path, VALUES[3])
    assert read_value(path, kind="a value") == VALUES[3]
    path.write_text(path.read_text().replace('"number": 3', '"number": 4'))
    with pytest.raises(InputError, match="a value"):
        read_value(path, kind="a value")
    for content in (json.dumps(VALUES[3]), "[1]", '{"a": ', "\xff"):
        path.write_bytes(content.encode("latin-1"))
        with pytest.raises(InputError):
            read_value(path, kind="a value")
