"""No file of a user's ends in anything but a result or one sentence, whatever stands at any of its keys.

`make test` tries every third variant of a file, each odd value at some key; `make test-slow` all of them.
"""

import copy
import json
import tomllib
from collections.abc import Callable, Iterator
from importlib import resources
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from sample_files import ARRAYS, ZEUS, good_text

from phaze_opt.errors import PhazeOptError
from phaze_opt.hardware.constants import load_constants
from phaze_opt.hardware.device_catalogue import read_devices
from phaze_opt.hardware.fitted import read_fitted_file
from phaze_opt.hardware.networks import load_network
from phaze_opt.hardware.presets import load_architecture
from phaze_opt.placement.phaze_instance import load_phaze_instance
from phaze_opt.record.input_files import shorten
from phaze_opt.schedule.problem import load_instance
from phaze_opt.space.known_spaces import load_space
from phaze_opt.study.files.study_file import read_study
from phaze_opt.workload.config import load_model
from phaze_opt.workload.zoo import read_zoo_text

HARDWARE = resources.files("phaze_opt.hardware")
DATA = Path(__file__).parents[1] / "placement" / "data"
DEEP: Any = []
for _ in range(40):
    DEEP = [DEEP]
LONG = 16**6000  # hexadecimal digits are not limited by Python, and JSON has none
ODD = [
    *(10**400, -(10**400), LONG, 2**63, 0, -1, 1e308, 1e-320, float("nan"), float("inf"), 2.5, True),
    *("", "\0", "a\x1b]0;b\n[/red]\u202e", "x" * 10_000, "../" * 2000, [], [1, "a", {}], {}, {"\0": {"a": 1}}, DEEP),
]
"""Values of every type, and of sizes that overflow floats, paths or terminals."""
ODD_KEYS = ["", "a\0\x1b]0;b\n[/red]", "x" * 10_000]

MACHINE = ZEUS + 'data_names = ["Zeus 1"]\n' + ARRAYS
SCHEDULE = json.loads(good_text("schedule"))
CONSTANT = {"value": 1.0, "low": 0.5, "high": 2.0, "unit": "s", "meaning": "m"}
GROUP = {"constants": {"rate": CONSTANT}, "datasets": {"set": ["1"]}, "residuals": {"mape": 1.0}, "source": "s"}
FITTED = {"format": 1, "groups": {"a": GROUP}, "sets": {"set": {"mape": 1.0}}}
CONSTANTS = tomllib.loads(HARDWARE.joinpath("constants.toml").read_text())
DESIGN = tomllib.loads(HARDWARE.joinpath("presets", "phaze-tpu-v4.toml").read_text())
FEW_CONSTANTS = {key: CONSTANTS[key] for key in [*CONSTANTS][:2]} | {
    "estimator_options": CONSTANTS["estimator_options"]
}

READERS: dict[str, tuple[str, Any, Callable[[Path], object]]] = {
    "architecture": ("toml", DESIGN, lambda p: load_architecture(str(p))),
    "architecture, JSON": ("json", {"best": {"architecture": DESIGN}}, lambda p: load_architecture(str(p))),
    "machine": ("toml", tomllib.loads(MACHINE), lambda p: (read_devices([p]), load_architecture(str(p)))),
    "network": ("toml", tomllib.loads(good_text("network")), lambda p: load_network(str(p), num_devices=8)),
    "constants": ("toml", FEW_CONSTANTS, load_constants),
    "fitted constants": ("json", FITTED, read_fitted_file),
    "space": ("toml", tomllib.loads(good_text("space")), lambda p: load_space(str(p))),
    "study": ("toml", tomllib.loads(good_text("study")), read_study),
    "model": ("json", json.loads(read_zoo_text("mixtral-8x7b")), lambda p: load_model(str(p))),
    "placement": ("json", json.loads((DATA / "01_tiny4_w1_d8.json").read_text()), load_phaze_instance),
    "schedule": ("json", SCHEDULE, load_instance),
    "schedule of a list": ("json", [SCHEDULE], lambda p: load_instance(p, name="small")),
}  # fmt: skip


def written(value: Any) -> str:
    """A value in TOML, on one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {written(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(written, value)) + "]"
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, int) and value > 2**62:
        return hex(value)
    return json.dumps(value).replace("\x7f", "\\u007f")


def text_of(form: str, values: Any) -> str:
    if form == "json":
        return json.dumps(values)
    return "\n".join(f"{json.dumps(key)} = {written(value)}" for key, value in values.items())


def places(values: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Every key and the first element of every list."""
    inner = values.items() if isinstance(values, dict) else enumerate(values[:1]) if isinstance(values, list) else ()
    for key, value in inner:
        yield (*path, key)
        yield from places(value, (*path, key))


def changed(values: Any, path: tuple[str | int, ...], change: Callable[[Any, Any], None]) -> Any:
    """A copy with a change made to what holds the end of a path."""
    copied = copy.deepcopy(values)
    holder = copied
    for part in path[:-1]:
        holder = holder[part]
    change(holder, path[-1])
    return copied


def variants(values: Any, form: str) -> Iterator[tuple[str, Any]]:
    """Every place with every odd value, under every odd name, and left out."""
    odd = [value for value in ODD if form == "toml" or value != LONG]
    for path in places(values):
        for value in odd:
            new = changed(values, path, lambda holder, key, value=value: holder.__setitem__(key, value))
            yield f"{path} = {shorten(value)}", new
        yield f"no {path}", changed(values, path, lambda holder, key: holder.pop(key))
    for path in [path for path in places(values) if isinstance(path[-1], str)]:
        for name in ODD_KEYS:
            yield (
                f"{path} as {name!r:.20}",
                changed(values, path, lambda holder, key, name=name: holder.__setitem__(name, holder.pop(key))),
            )


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.slow)])  # a key has 22 or 23 variants
def test_odd_values_give_a_result_or_one_sentence(name: str, every: int, folder: Path) -> None:
    form, values, read = READERS[name]
    path = folder / f"given.{form}"
    num_refused, faults = 0, []
    for what, variant in islice(variants(values, form), 0, None, every):
        path.write_text(text_of(form, variant), encoding="utf-8")
        try:
            read(path)
        except PhazeOptError as error:
            num_refused += 1
            if len(str(error)) > 1500:
                faults.append((what, str(error)[:300]))
        except Exception as error:  # noqa: BLE001  # the fault that is looked for
            faults.append((what, f"{type(error).__name__}: {str(error)[:200]}"))
    assert not faults, (len(faults), faults[:10])
    assert num_refused > 50 / every
