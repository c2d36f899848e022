"""Recorded figures are of the constants in force, and what the package says of kernels is what they say."""

import json
from pathlib import Path

import pytest

from phaze_opt.hardware.device_catalogue import load_device
from phaze_opt.hardware.fitted import load_fitted
from phaze_opt.hardware.spreads import load_spreads
from phaze_opt.validation.calibrate import error_name
from phaze_opt.validation.matching_set import MAKERS_OF_KERNELS
from phaze_opt.validation.packs import known_constants, known_file, known_spreads
from phaze_opt.validation.schema import LABORATORY

RECORDS = Path(__file__).parents[1] / "experiments"
MACHINES = "kernels/matmul/machines/"


def record(name):
    return json.loads((RECORDS / name).read_text(encoding="utf-8"))


SETS = {
    name: item for each in record("generalisation.json")["families"].values() for name, item in each["sets"].items()
}


def test_constants_and_ranges_that_price_answers_are_those_of_the_package_alone():
    own, known = load_fitted().groups, known_constants().groups
    assert {name.partition("/")[0] for name in known.keys() - own.keys()} == {"kernels", "fp32", "exchange"}
    assert {name: known[name] for name in own} == own
    assert load_spreads().entries.keys() < known_spreads().entries.keys()


def test_makers_of_measured_kernels_are_those_that_the_package_names():
    names = [name.removeprefix(MACHINES) for name in known_constants().groups if name.startswith(MACHINES)]
    assert {load_device(name).maker for name in names} == MAKERS_OF_KERNELS


@pytest.mark.parametrize("name", SETS)
def test_errors_of_rows_kept_out_are_of_the_constants_in_force(name):
    said = {"mape": SETS[name]["fitted"]["mape"]}
    said |= {error_name(test): figure["mape"] for test, figure in SETS[name]["kept_out"].items()}
    assert name in LABORATORY
    assert said == pytest.approx(dict(known_file().sets[name]), rel=1e-3)


@pytest.mark.parametrize("kind", ["modern", "fp32_operators", "expert-exchange"])
def test_ranges_made_without_a_row_hold_as_often_as_they_say(kind):
    found = record("spreads.json")["kinds"][kind]
    assert 0.85 <= found["held"] <= 0.95
    assert found["least"] >= 0.80
