"""Documents: every fault that a model finds is one sentence: file, line, key, what was given, the rule."""

from dataclasses import dataclass
from typing import Any

import pytest
from document_model import Whole
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict

from phaze_opt.errors import InputError
from phaze_opt.record.document import MAX_NESTING, Document, parse_json_object, parse_toml
from phaze_opt.record.journal import format_line
from phaze_opt.record.plain_data import read_plain, write_plain
from phaze_opt.record.suggestions import near, suggest


class Lenient(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True)

    core_type: str
    latency: float


HEAD = "count = 3\n"
KNOWN = "count, rate"


@pytest.mark.parametrize(
    ("text", "key", "rule"),
    [
        (f"count = 3\nsizes = [1]\nnamed.x = [{'3, ' * 5000}]", "named.x[0]", "a table of keys and values (and 4999 "),
        (f"parts = [{'{size = 0}, ' * 5000}]", "count", "is missing; needed are count (and 5000 more"),
        (f"parts = [{'{size = 1}, ' * 1000}{'{size = 0}, ' * 5000}]\ncount = 2", "parts[1000].size", "value 0"),
        ("count = 3\n" + "".join(f"k{i} = 1\n" for i in range(5000)), "k0", "is unknown"),
    ],
)
def test_thousands_of_faults(text, key, rule):
    with pytest.raises(InputError) as caught:
        parse_toml(text, source="x.toml").validate(Whole)
    assert caught.value.key == key
    assert rule in str(caught.value)


def test_a_missing_key_that_a_lenient_model_would_overlook():
    document = parse_json_object(
        '{"list": [{\n"core_typ": "TC",\n"latency": 1.0}]}', source="x.json", kind="an instance"
    )
    with pytest.raises(InputError) as caught:
        document.validate(Lenient, "list", 0)
    assert (caught.value.line, caught.value.key) == (1, "list[0].core_type")
    assert "did you mean it by 'core_typ'?" in str(caught.value)


@dataclass(frozen=True)
class Kept:
    number: int


def test_dataclasses_kept_in_files(tmp_path):
    path = tmp_path / "kept.json"
    assert read_plain(Kept, path) is None
    write_plain(Kept, Kept(4), path)
    assert read_plain(Kept, path) == Kept(4)
    path.write_text(path.read_text().replace("4", "5", 1))
    with pytest.raises(InputError, match="as it was written"):
        read_plain(Kept, path)
    for text, key in ((format_line({"number": "x"}), "number"), (format_line({}), "number"), ("{}", None), ("3", None)):
        path.write_text(text)
        with pytest.raises(InputError, match="remove it and run the command again") as caught:
            read_plain(Kept, path, what="a study's record")
        assert (caught.value.source, caught.value.key) == (str(path), key)


@pytest.mark.parametrize("text", [f"{'a.' * 2000}a = 1", f"[{'a.' * 2000}a]", f"a = {'[' * 500}{']' * 500}"])
def test_deep_tables_are_refused(text):
    with pytest.raises(InputError, match="is not usable TOML|is nested in more than|has more than 64 parts"):
        parse_toml(text, source="x.toml")
    assert parse_toml("a = " + "[" * (MAX_NESTING - 2) + "]" * (MAX_NESTING - 2), source="x.toml").values


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**30), 10**30) | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


@given(st.dictionaries(st.sampled_from([*Whole.model_fields, "zz"]), PLAIN))
def test_any_values_give_a_model_or_one_sentence(values):
    try:
        Document(values, "", "x.json", is_json=True).validate(Whole)
    except InputError as error:
        assert len(str(error)) < 500


def test_spelling() -> None:
    known = ["Alpha", "alpine", "beta", "betamax"]
    assert suggest("alpha", known) == "did you mean Alpha?"
    assert suggest("BETA", known) == "did you mean beta or betamax?"
    assert suggest("zzz", known) == "known: Alpha, alpine, beta, betamax"
    assert suggest("h1oo", ["b200", "h100", "h200"]).startswith("did you mean h100"), "letters taken for digits"
    assert suggest("zzz", []) == "known: none"
    assert suggest("", map(str, range(40))).endswith("7, 8, ...") is False
    assert suggest("", [f"{n:02}" for n in range(40)]).endswith("28, 29, ...")
    assert near("betta", known) == ["beta"]
    assert near("betta", known, likeness=0.95) == []
    assert near("b" * 10**6, known) == []


def test_a_value_of_any_depth_is_shown() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(InputError, match=r"value \[+\.\.\.\]+ must be an integer"):
        Document({"count": deep}, "", "x").validate(Whole)
