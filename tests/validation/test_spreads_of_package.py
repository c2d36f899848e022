"""Recorded figures: ranges have every kind that rows ask for, and errors kept out are of the constants in force."""

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from phaze_opt.hardware.fitted import read_own_file
from phaze_opt.hardware.spreads import NAMED, UNSEEN, load_spreads
from phaze_opt.validation.calibrate import error_name
from phaze_opt.validation.dataset import Dataset, read_datasets
from phaze_opt.validation.family import Family
from phaze_opt.validation.measured_row import Row
from phaze_opt.validation.predict import FAMILIES, cells_of
from phaze_opt.validation.result import ERROR_GOALS, ErrorGoal
from phaze_opt.validation.schema import CONTEXT, LABORATORY
from phaze_opt.validation.validate import MIN_GROUPS, MIN_ROWS, WHOLE

FITTED = [family for family in FAMILIES if family.has_own_fit and CONTEXT.isdisjoint(family.datasets)]

ROOT = Path(__file__).parents[2]


def record(name: str) -> dict[str, Any]:
    """A record of experiments/validation."""
    found: dict[str, Any] = json.loads((ROOT / "experiments" / "validation" / name).read_text(encoding="utf-8"))
    return found


SETS = {
    name: item for family in record("generalisation.json")["families"].values() for name, item in family["sets"].items()
}


@pytest.fixture(scope="module")
def published() -> tuple[Dataset, ...]:
    return read_datasets(None)[0]


def asked(family: Family, rows: list[Row]) -> set[str]:
    """Kinds that enough rows tell of, in enough groups: the family, and what its tests keep out whole."""
    found: dict[str, list[str]] = defaultdict(list)
    cells = cells_of(family, rows)
    for test in (each for each in WHOLE if each in family.splits):
        labels = [family.splits[test](row) for row in rows]
        found[f"{family.name}, {test} kept out"] += [label for label in labels if label]
    enough = {kind for kind, own in found.items() if len(own) >= MIN_ROWS and len(set(own)) >= MIN_GROUPS}
    enough |= {family.name} if len(set(cells)) >= MIN_ROWS else set()
    return enough | ({family.unseen} if family.unseen else set())


@pytest.mark.parametrize("family", FITTED, ids=lambda family: family.name)
def test_no_kind_is_missing(family: Family, published: tuple[Dataset, ...]) -> None:
    rows = [row for data in published for row in data.rows if row.dataset in family.datasets and family.is_fitted(row)]
    assert rows
    assert asked(family, rows) <= set(load_spreads().entries)


@pytest.mark.parametrize("family", [family for family in FITTED if family.name in load_spreads().scales])
def test_ranges_made_without_a_row_hold_as_often_as_they_say(family: Family) -> None:
    """Of every set of 40 rows or more 85 to 95 %, and of no machine or recipe with as many less than 80."""
    found = record("spreads.json")["kinds"][family.name]
    assert 0.85 <= found["held"] <= 0.95
    assert found["least"] >= 0.80
    for figures in found["sets"].values():
        assert 0.85 <= figures["held"] <= 0.95
        assert figures["rows"] >= 40


def test_steps_of_sources_that_nobody_knows_have_a_range() -> None:
    assert load_spreads().find([UNSEEN]) is not None


@pytest.mark.parametrize("name", SETS)
def test_errors_of_rows_kept_out_are_of_the_constants_in_force(name: str) -> None:
    said = {"mape": SETS[name]["fitted"]["mape"]}
    said |= {error_name(test): figure["mape"] for test, figure in SETS[name]["kept_out"].items()}
    assert said == pytest.approx(dict(read_own_file().sets[name]), rel=1e-3)


def test_errors_by_halves_are_of_the_constants_in_force_or_the_page_says_so() -> None:
    page, halves = (ROOT / "docs" / "validation.md").read_text(encoding="utf-8"), record("half_splits.json")["sets"]
    goals = [goal for goal in ERROR_GOALS if goal.dataset not in LABORATORY]
    assert set(halves) == {f"{goal.dataset} {goal.group}".strip() for goal in goals}
    older = {goal.dataset for goal in goals if not is_of_now(halves[f"{goal.dataset} {goal.group}".strip()], goal)}
    assert older == {name for name in read_own_file().sets if f"{name} by halves is of older constants" in page}


def is_of_now(halves: dict[str, Any], goal: ErrorGoal) -> bool:
    """Whether the error fitted that stands beside those by halves is the one in force."""
    own = read_own_file().sets[goal.dataset]["mape"]
    fitted = SETS[goal.dataset]["groups"][goal.group]["fitted"]["mape"] if goal.group else own
    return bool(halves["fitted"] == float(f"{fitted:.3g}"))


def test_pages_have_the_recorded_errors_of_sources_kept_out() -> None:
    page = (ROOT / "docs/validation.md").read_text(encoding="utf-8")
    unseen, named = (load_spreads().entries[kind].groups for kind in (UNSEEN, NAMED))
    rows = {
        line.split("|")[1].strip(): [cell.strip() for cell in line.split("|")[2:-1]]
        for line in page.splitlines()
        if line.startswith("|")
    }
    for name, item in record("sources.json")["sources"].items():
        error, trivial = f"{item['mape']:.1f}", f"{item['trivial_mape']:.1f}"
        held, held_named = (f"{100 * groups[name].held:.0f}" for groups in (unseen, named))
        said = [
            f"{item['rows']}",
            error,
            f"{item['bias']:+.1f}",
            held,
            f"{item['named_mape']:.1f}",
            held_named,
            trivial,
        ]
        assert rows[name][:1] + rows[name][3:9] == said
