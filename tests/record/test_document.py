"""Documents: every fault that a model finds is one sentence: file, line, key, what was given, the rule."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, model_validator

from phaze_opt.errors import InputError
from phaze_opt.record.document import MAX_NESTING, Document, parse_json_object, parse_toml
from phaze_opt.record.plain_data import read_plain, write_plain
from phaze_opt.record.suggestions import near, suggest


class Colour(StrEnum):
    RED = "red"
    GREEN = "green"


class Part(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    name: str = Field(default="p", min_length=1, max_length=5)
    size: Annotated[int, Field(gt=0, le=10**6)] = 1


class Whole(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    count: Annotated[int, Field(ge=2, lt=9)]
    rate: float = Field(default=1.0, allow_inf_nan=False)
    lax: Annotated[int, Field(strict=False)] = 1
    is_on: bool = True
    word: Literal["SGD", "Adam"] = "SGD"
    never: Literal[False] = False
    colour: Annotated[Colour, Field(strict=False)] = Colour.RED
    by_colour: dict[Annotated[Colour, Field(strict=False)], float] = {}
    option: int | str = 1
    sizes: Annotated[list[int], Field(min_length=1, max_length=3)] = [1]
    pair: Annotated[list[int], Field(min_length=2)] = [1, 2]
    parts: list[Part] = []
    named: dict[str, list[Part]] = {}

    @model_validator(mode="after")
    def _check(self) -> "Whole":
        if self.count == 7:
            message = "needs luck"
            raise ValueError(message)
        return self


class Lenient(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True)

    core_type: str
    latency: float


HEAD = "count = 3\n"
KNOWN = "count, rate"


@pytest.mark.parametrize(
    ("text", "line", "key", "rule"),
    [
        ("", None, "count", "is missing; needed are count"),
        ("count = 1", 1, "count", "value 1 must be at least 2"),
        ("count = 9", 1, "count", "value 9 must be less than 9"),
        ("count = 2.5", 1, "count", "value 2.5 must be an integer"),
        ('count = "2"', 1, "count", "value '2' must be an integer"),
        ("count = true", 1, "count", "value True must be an integer"),
        (f"count = 1{'0' * 4000}", 1, "count", "000...000"),
        ("count = 7", None, None, "needs luck"),
        (HEAD + 'rate = "x"', 2, "rate", "value 'x' must be a number"),
        (HEAD + "rate = inf", 2, "rate", "value inf must be a finite number"),
        (HEAD + f"rate = 1{'0' * 4000}", 2, "rate", "is larger than an integer may be"),
        (HEAD + 'lax = "4x"', 2, "lax", "value '4x' must be an integer"),
        (HEAD + "lax = 4.5", 2, "lax", "value 4.5 must be an integer"),
        (HEAD + "is_on = 1", 2, "is_on", "value 1 must be true or false"),
        (HEAD + 'word = "Adma"', 2, "word", "value 'Adma' is unknown; did you mean Adam?"),
        (HEAD + "word = 3", 2, "word", "value 3 is unknown; known: Adam, SGD"),
        (HEAD + "never = true", 2, "never", "value True must be false"),
        (HEAD + 'colour = "read"', 2, "colour", "value 'read' is unknown; did you mean red?"),
        (HEAD + "[by_colour.blue]\nx = 1", 2, "by_colour.blue", "is unknown; known: green, red"),
        (HEAD + "[by_colour]\ngrene = 1.0", 3, "by_colour.grene", "is unknown; did you mean green?"),
        (HEAD + "by_colour = 3", 2, "by_colour", "value 3 must be a table of keys and values"),
        (HEAD + "option = [1]", 2, "option", "value [1] must be an integer or text"),
        (HEAD + "sizes = []", 2, "sizes", "is empty; give at least one value"),
        (HEAD + "sizes = [1, 2,\n 3, 4]", 2, "sizes", "is too long: at most 3 may stand here"),
        (HEAD + "sizes = [1,\n 2,\n 'x']", 4, "sizes[2]", "value 'x' must be an integer"),
        (HEAD + "sizes = 'x'", 2, "sizes", "value 'x' must be a list"),
        (HEAD + "pair = [1]", 2, "pair", "[1] is too short; give at least 2"),
        (HEAD + "cuont = 1", 2, "cuont", "is unknown; did you mean count?"),
        (HEAD + "zzz = 1", 2, "zzz", "is unknown; known: by_colour, colour, count"),
        (
            "[[parts]]\nname = 'a'\n[[parts]]\nsiez = 2",
            4,
            "parts[1].siez",
            "is unknown; did you mean size? (and 1 more fault)",
        ),
        (HEAD + "[[parts]]\nname = ''", 3, "parts[0].name", "is empty; give a name"),
        (HEAD + "[[parts]]\nname = 'abcdef'", 3, "parts[0].name", "is too long: at most 5 may stand here"),
        (HEAD + "parts = [\n {size = 1},\n 3]", 4, "parts[1]", "value 3 must be a table of keys and values"),
        (HEAD + "[[named.x]]\nnmae = 'a'", 3, "named.x[0].nmae", "is unknown; did you mean name?"),
        ("count = 'x'\nrate = 'y'\nis_on = 2", 1, "count", "value 'x' must be an integer (and 2 more faults)"),
    ],
)
def test_faults_of_a_model(text, line, key, rule):
    with pytest.raises(InputError) as caught:
        parse_toml(text, source="x.toml").validate(Whole)
    error, message = caught.value, str(caught.value)
    assert (error.source, error.line, error.key) == ("x.toml", line, key)
    where = "x.toml" + (f":{line}" if line else "") + (f": key '{key}': " if key else ": ")
    assert message.startswith(where)
    assert rule in message.removeprefix(where)
    assert "\n" not in message
    assert len(message) < 400


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
    path.write_text('{"number": 3}')
    assert read_plain(Kept, path) == Kept(3), "a file of before checksums"
    for text, key in (('{"number": "x"}', "number"), ("{}", "number"), ("[]", None), ("3", None)):
        path.write_text(text)
        with pytest.raises(InputError, match="remove it and run the command again") as caught:
            read_plain(Kept, path, what="a study's record")
        assert (caught.value.source, caught.value.key) == (str(path), key)


@pytest.mark.parametrize("text", [f"{'a.' * 2000}a = 1", f"[{'a.' * 2000}a]", f"a = {'[' * 500}{']' * 500}"])
def test_deep_tables_are_refused(text):
    with pytest.raises(InputError, match="is not usable TOML|is nested in more than"):
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
