"""Lines of keys and elements, in every form that TOML and JSON can write them."""

import json
import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phaze_opt.record.line_numbers import dotted, line_of

TOML = '''a = 1
"q.r" = 2 # x = [
[t.'u v'] # [c]
d.e = """
fake = 1
[fake]
"""
list = [
  "x", # hi
  {k = 1, m = [1,
    2]}, [3],
  7
]
[[s]]
n = 07:32:00
[[s.z]]
p = 1
[[s.z]]
p = "["

[[s]]
o = {}
[s."sub"]
o = 3
'''
JSON = """{"a": 1,
 "b": [ {"c": "x: {",
   "d\\u0041": [1,
   2]}, 5,
   "s"],
 "c": true}"""


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (("a",), 1),
        (("q.r",), 2),
        (("t",), 3),
        (("t", "u v", "d", "e"), 4),
        (("t", "u v", "d", "absent"), 4),
        (("fake",), None),
        (("t", "u v", "list"), 8),
        (("t", "u v", "list", 0), 9),
        (("t", "u v", "list", 1, "k"), 10),
        (("t", "u v", "list", 1, "m", 1), 11),
        (("t", "u v", "list", 2, 0), 11),
        (("t", "u v", "list", 3), 12),
        (("s", 0, "n"), 15),
        (("s", 0, "z", 1, "p"), 19),
        (("s", 1, "o"), 22),
        (("s", 1, "sub", "o"), 24),
        (("s", 1, "absent"), 21),
        (("absent",), None),
        ((), None),
    ],
)
def test_lines_in_toml(path, line):
    tomllib.loads(TOML)
    assert line_of(TOML, path) == line


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (("a",), 1),
        (("b", 0, "c"), 2),
        (("b", 0, "dA", 1), 4),
        (("b", 1), 4),
        (("b", 2), 5),
        (("c",), 6),
        (("absent",), None),
    ],
)
def test_lines_in_json(path, line):
    json.loads(JSON)
    assert line_of(JSON, path, is_json=True) == line


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)


def paths_of(values, path=()):
    """Every path of a value."""
    inner = values.items() if isinstance(values, dict) else enumerate(values) if isinstance(values, list) else ()
    for key, value in inner:
        yield (*path, key)
        yield from paths_of(value, (*path, key))


@given(VALUES)
def test_every_key_and_element_of_any_json_is_found_in_order(values):
    """``json.dumps`` with an indent begins a line with every key and element."""
    text = json.dumps(values, indent=1)
    lines = [line_of(text, path, is_json=True) for path in paths_of(values)]
    begins = [
        number
        for number, line in enumerate(text.splitlines()[1:], start=2)
        if line.strip().strip(",") not in {"]", "}"}
    ]
    assert lines == begins


@given(st.text())
def test_any_text_is_gone_through(text):
    assert line_of(text, ("no such key", 0), is_json=True) is None or '"no such key"' in text


def test_how_a_path_is_shown():
    assert dotted(("strategy", 1, "options", "x")) == "strategy[1].options.x"
    assert dotted((0, "a")) == "[0].a"
