"""What experiments/network records is what it computes."""

import json
import runpy
from pathlib import Path

import numpy as np
import pytest

FOLDER = Path(__file__).parents[2] / "experiments" / "network"


def flat(value, path=""):
    if isinstance(value, dict):
        return {key: found for name, each in value.items() for key, found in flat(each, f"{path}/{name}").items()}
    if isinstance(value, list):
        return {key: found for place, each in enumerate(value) for key, found in flat(each, f"{path}/{place}").items()}
    return {path: value}


def test_the_papers_gains_are_as_recorded():
    recorded = json.loads((FOLDER / "paper_gains.json").read_text(encoding="utf-8"))
    script = runpy.run_path(str(FOLDER / "paper_gains.py"))
    tolerance = recorded["_meta"]["tolerance"]
    assert flat(script["themis_gains"]()) == pytest.approx(flat(recorded["themis"]), rel=tolerance)
    found, kept = script["libra_gains"](), recorded["libra"]
    assert {name: row["gain"] for name, row in found.items()} == pytest.approx(
        {name: row["gain"] for name, row in kept.items()}, rel=tolerance
    )
    assert all(row["gap"] <= 1e-6 for row in found.values())


def test_the_form_used_is_the_best_recorded():
    forms = json.loads((FOLDER / "curve_forms.json").read_text(encoding="utf-8"))["forms"]
    used = next(values for name, values in forms.items() if name.startswith("used"))
    for test in ("fitted", "by_size", "by_devices"):
        assert used[test] == min(values[test] for values in forms.values())


def test_the_recorded_error_of_the_form_is_what_the_script_finds():
    recorded = json.loads((FOLDER / "curve_forms.json").read_text(encoding="utf-8"))
    script = runpy.run_path(str(FOLDER / "curve_forms.py"))
    found = {form.name: [script["errors"](form, points) for points in script["read_points"]().values()]
             for form in script["FORMS"] if form.name.startswith(("used", "square root, no"))}  # fmt: skip
    for name, errors in found.items():
        mape = 100 * np.concatenate(errors).mean()
        assert mape == pytest.approx(recorded["forms"][name]["fitted"], abs=recorded["_meta"]["tolerance"])
