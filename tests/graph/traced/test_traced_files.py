"""Traced-model files: round trips, one sentence for every fault, and nothing but that sentence for damaged files."""

import copy
import json
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phaze_opt.errors import InputError
from phaze_opt.graph.any_model import load_any_model
from phaze_opt.graph.build import build_model_graph
from phaze_opt.graph.traced.polynomial import Polynomial, parse_polynomial
from phaze_opt.graph.traced.traced_file import (
    digest_of,
    parse_traced_model,
    read_traced_model,
    traced_model_text,
    write_traced_model,
)
from phaze_opt.graph.traced.traced_workload import TracedWorkload
from phaze_opt.workload.training import TrainingSpec

MODELS = Path(__file__).parents[2] / "traced_models"
SMALL = MODELS / "opt-1.3b.json"


@pytest.mark.parametrize("text", ["b*s*4096", "s/2", "b*s^2*3-b*4+7", "0", "12", "-b+b*2", "b*s/2+1"])
def test_sizes_are_written_as_they_are_read(text):
    assert parse_polynomial(str(parse_polynomial(text))) == parse_polynomial(text)


@given(st.lists(st.tuples(st.sampled_from(["", "b", "s", "b*s", "s^2"]), st.integers(1, 10**6)), max_size=5))
def test_a_size_is_the_sum_of_its_products(terms):
    text = "+".join(f"{name}*{factor}" if name else str(factor) for name, factor in terms) or "0"
    values = {"b": 3, "s": 7}
    known = {"": 1, "b": 3, "s": 7, "b*s": 21, "s^2": 49}
    size = parse_polynomial(text)
    assert size.evaluate(values) == sum(known[name] * factor for name, factor in terms)
    assert size.times(size).evaluate(values) == size.evaluate(values) ** 2


@pytest.mark.parametrize(
    "text", ["", "+b", "b**2", "b s", "b^99", "1/0", "2^3", "()", "b*", "9" * 18, "__import__('os')", "b" * 300]
)
def test_what_is_no_polynomial_is_refused(text):
    with pytest.raises(InputError, match="size"):
        parse_polynomial(text)


def test_a_size_must_be_whole():
    assert parse_polynomial("s/2").evaluate({"s": 8}) == 4
    with pytest.raises(InputError, match="whole"):
        parse_polynomial("s/2").evaluate({"s": 7})
    with pytest.raises(InputError, match="whole"):
        Polynomial.of({(): -1}).evaluate({})


@pytest.mark.parametrize("path", sorted(MODELS.glob("*.json")), ids=lambda path: path.stem)
def test_files_are_written_as_they_are_read(path, tmp_path):
    model = read_traced_model(path)
    write_traced_model(model, tmp_path / "again.json")
    assert read_traced_model(tmp_path / "again.json") == model
    assert json.loads(traced_model_text(model))["digest"] == json.loads(path.read_text())["digest"]


def changed(change) -> str:
    """A file whose contents were changed, with the digest of what they are now."""
    values = json.loads(SMALL.read_text())
    change(values)
    return json.dumps(values | {"digest": digest_of(values)})


FAULTS = {
    "version": (lambda v: v.update(version=2), "version", "extract the model again"),
    "format": (lambda v: v.update(format="other"), "format", "give a traced-model file"),
    "unknown key": (lambda v: v.update(weights=[]), "weights", "is unknown"),
    "symbol": (lambda v: v["symbols"].update(q=1), "symbols.q", "is no symbol"),
    "zero symbol": (lambda v: v["symbols"].update(b=0), "symbols.b", "at least 1"),
    "shape": (lambda v: v["tensors"][0].update(shape=["b**2"]), "tensors[0].shape[0]", "no polynomial"),
    "unlisted symbol": (lambda v: v["tensors"][0].update(shape=["z"]), "tensors[0].shape[0]", "names z"),
    "twice": (lambda v: v["tensors"].append(v["tensors"][0]), "id", "id of another tensor"),
    "dtype": (lambda v: v["tensors"][0].update(dtype="int7"), "tensors[0].dtype", "unknown"),
    "no step": (lambda v: v.update(loss="nothing"), "loss", "given by no step"),
    "unlisted": (lambda v: v["nodes"][0]["inputs"].append("%ghost"), "nodes[0].inputs", "not listed"),
    "no block": (lambda v: v["blocks"].clear(), "repeat", "no block"),
    "endless": (lambda v: next(n for n in v["nodes"] if "repeat" in n).update(count=10**9), "nodes", "at most"),
    "deep": (lambda v: v["nodes"][0].update(inputs=[[[[[[1]]]]]]), "inputs", "list within"),
    "table": (lambda v: v["nodes"][0]["inputs"].append({"code": 1}), "inputs", "literal"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_one_sentence_with_its_place(fault):
    change, key, words = FAULTS[fault]
    with pytest.raises(InputError) as refused:
        parse_traced_model(changed(change), source="file.json")
    assert "file.json" in str(refused.value)
    assert key in (refused.value.key or "")
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


def test_contents_that_were_changed_are_refused():
    with pytest.raises(InputError, match="digest"):
        parse_traced_model(SMALL.read_text().replace("2048", "2049"), source="file.json")


def places(value, path=()):
    """Paths of all values of a document."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in items:
        yield from places(each, (*path, key))


WRONG = (
    None,
    True,
    -1,
    0,
    10**30,
    1e308,
    "",
    "%",
    "=",
    "=b*s",
    "%x",
    "s/3",
    "\u2028",
    [],
    {},
    [[]],
    ["%x"] * 9,
    "a" * 5000,
)


@pytest.mark.parametrize("name", ["opt-1.3b", "ncf", "mamba-130m", "gnmt4"])
def test_damaged_files_give_a_sentence_or_a_model(name):
    """One value after the other is replaced, removed or doubled, with a right digest: no traceback, at any stage."""
    random_ = random.Random(name)
    original = json.loads((MODELS / f"{name}.json").read_text())
    paths = [path for path in places(original) if path]
    for _ in range(40):
        values = copy.deepcopy(original)
        *outer, last = random_.choice(paths)
        inside = values
        for part in outer:
            inside = inside[part]
        action = random_.randrange(3)
        if action == 0:
            inside[last] = random_.choice(WRONG)
        elif action == 1:
            del inside[last]
        elif isinstance(inside, list):
            inside.append(copy.deepcopy(inside[last]))
        text = json.dumps(values | {"digest": digest_of(values)})
        try:
            model = TracedWorkload(name, text)
            length = model.own_sequence_length
            if model.length_obstacle(length) is None:
                build_model_graph(model, TrainingSpec(1, length, 8), tensor_parallel=1)
        except InputError as error:
            assert "\n" not in str(error)


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"format": "phaze-traced"}', '{"format": "phaze-traced", "version": 1}']
)
def test_beginnings_of_files_are_refused(text, tmp_path):
    path = tmp_path / "model.json"
    path.write_text(text)
    with pytest.raises(InputError, match="model"):
        load_any_model(str(path))
