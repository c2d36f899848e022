"""Every leaf of every kind of file that a user writes, replaced by values that nobody means: one sentence each."""

import copy
import json
import re
import tomllib
from pathlib import Path

import pytest

from phaze_opt.errors import PhazeOptError
from phaze_opt.hardware.fitted import load_fitted
from phaze_opt.hardware.networks import load_network
from phaze_opt.hardware.presets import find_machine, load_architecture
from phaze_opt.schedule.instance import load_instance
from phaze_opt.schedule.problem import Exclusivity
from phaze_opt.space.search_space import load_space
from phaze_opt.study.files.study_file import read_study
from phaze_opt.workload.config import load_model

ROOT = Path(__file__).parents[2]
DOCUMENTED = (ROOT / "docs" / "files.md").read_text(encoding="utf-8")
HUGE, LONG_HEX = 10**400, 16**6000
VALUES = [
    HUGE,
    -HUGE,
    LONG_HEX,
    2**63,
    float("nan"),
    float("inf"),
    "A" * 10000,
    "x/" * 5000,
    "a\0b",
    "\x1b]0;PWN[/red]",
    {},
]


def toml_of(kind):
    return tomllib.loads(re.search(rf"```toml\n# {kind}\n(.*?)```", DOCUMENTED, re.DOTALL).group(1))


def small_space():
    document = toml_of("space")
    axes = {key: value[:1] if isinstance(value, list) else value for key, value in document["axes"].items()}
    return {**document, "axes": axes}


def json_of(path):
    return json.loads((ROOT / path).read_text(encoding="utf-8"))


def small_constants():
    document = json_of("phaze_opt/hardware/fitted_constants.json")
    return {**document, "groups": dict(list(document["groups"].items())[:2])}


def read_machine(path):
    find_machine(path)
    load_architecture(path)


FILES = {
    "architecture.toml": (lambda: toml_of("architecture"), read_machine),
    "machine.toml": (lambda: toml_of("machine"), read_machine),
    "network.toml": (lambda: toml_of("network"), lambda path: load_network(path, num_devices=64)),
    "space.toml": (small_space, load_space),
    "study.toml": (
        lambda: tomllib.loads((ROOT / "studies/quickstart.toml").read_text()),
        lambda path: read_study(Path(path)),
    ),
    "layer.json": (
        lambda: json_of("tests/cli/two_matmuls.json"),
        lambda path: load_instance(path, exclusivity=Exclusivity("chip"), name=None),
    ),
    "model.json": (lambda: json_of("phaze_opt/workload/zoo_configs/bert-large.json"), load_model),
    "constants.json": (small_constants, lambda path: load_fitted(Path(path))),
}


def places(value, path=()):
    """Paths of a document's values, two of each list."""
    items = value.items() if isinstance(value, dict) else enumerate(value[:2]) if isinstance(value, list) else ()
    for key, item in items:
        yield from places(item, (*path, key))
    if path:
        yield path


def replaced(document, path, value):
    document = copy.deepcopy(document)
    inner = document
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return document


def in_toml(value):
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {in_toml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(in_toml, value)) + "]"
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return hex(value)  # of any length: digits are limited by Python, hexadecimal ones are not
    return repr(value) if isinstance(value, float) else json.dumps(value)


def text_of(document, name):
    if name.endswith(".json"):
        return json.dumps(document)
    return "\n".join(f"{json.dumps(key)} = {in_toml(value)}" for key, value in document.items())


@pytest.mark.parametrize("name", FILES)
def test_no_value_of_a_file_is_more_than_a_sentence(name, tmp_path):
    build, read = FILES[name]
    document, file = build(), tmp_path / name
    num_refused = 0
    for path in places(document):
        for value in VALUES:
            if value == LONG_HEX and name.endswith(".json"):
                continue
            file.write_text(text_of(replaced(document, path, value), name), encoding="utf-8")
            try:
                read(str(file))
            except PhazeOptError:
                num_refused += 1
    assert num_refused > len(VALUES)
