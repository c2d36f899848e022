"""Files that users write: every fault is one sentence with the file and, for syntax, the line."""

import pytest

from phaze_opt.errors import InputError
from phaze_opt.record.input_files import MAX_FILE_BYTES, parse_json, read_text_file


@pytest.mark.parametrize(
    ("content", "rule"),
    [
        (b"", "is empty"),
        (b" \n", "is empty"),
        (b"\xff\xfe\x00", "is not text"),
        (b"a\0b", "is not text"),
        (b" " * (MAX_FILE_BYTES + 1), "is larger than"),
    ],
)
def test_faulty_contents(content, rule, tmp_path):
    path = tmp_path / "given.json"
    path.write_bytes(content)
    with pytest.raises(InputError, match=rule) as refusal:
        read_text_file(path, kind="a JSON file")
    assert "given.json" in str(refusal.value)


def test_faulty_paths(tmp_path):
    with pytest.raises(InputError, match="is a directory; give a JSON file"):
        read_text_file(tmp_path, kind="a JSON file")
    with pytest.raises(InputError, match="no such file"):
        read_text_file(tmp_path / "missing.json", kind="a JSON file")


def test_a_byte_order_mark_is_no_text(tmp_path):
    path = tmp_path / "windows.json"
    path.write_bytes(b"\xef\xbb\xbf{}")
    assert read_text_file(path, kind="a JSON file") == "{}"


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ('{"a": 1,\n "b": ', r"x\.json:2: is not valid JSON"),
        ('{"a": 1, "a": 2}', r"x\.json: key 'a' is set twice"),
        ('{"deep": {"a": 1, "a": 2}}', "set twice"),
        ('{"a": ' + "9" * 5000 + "}", "is not usable JSON"),
        ("[" * 100_000, "is not usable JSON"),
    ],
    ids=["truncated", "twice", "nested", "digits", "deep"],
)
def test_faulty_json(text, rule):
    with pytest.raises(InputError, match=rule):
        parse_json(text, source="x.json")


def test_good_json():
    assert parse_json('{"a": [1, 2.5, null]}', source="x.json") == {"a": [1, 2.5, None]}
