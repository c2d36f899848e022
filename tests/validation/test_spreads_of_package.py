"""The package's file of ranges has every kind that its rows ask for: a family or set that is added has its own."""

from collections import defaultdict

import pytest

from phaze_opt.hardware.spreads import UNSEEN, load_spreads
from phaze_opt.validation.dataset import Dataset, read_datasets
from phaze_opt.validation.family import Family
from phaze_opt.validation.held_out import cells_of
from phaze_opt.validation.measured_row import Row
from phaze_opt.validation.registry import FAMILIES
from phaze_opt.validation.schema import CONTEXT
from phaze_opt.validation.spreads import MIN_GROUPS, MIN_ROWS, WHOLE

FITTED = [family for family in FAMILIES if family.fit is not None and CONTEXT.isdisjoint(family.datasets)]
SAMPLED = {"collective-kinds", "expert-exchange", "modern"}
"""Families of sets drawn from larger tables: their ranges are of rows beside the sample."""


@pytest.fixture(scope="module")
def published() -> tuple[Dataset, ...]:
    return read_datasets(None)[0]


def asked(family: Family, rows: list[Row]) -> set[str]:
    """Kinds that enough rows tell of, in enough groups: the family, its sets, and what its tests keep out whole."""
    found: dict[str, list[str]] = defaultdict(list)
    for row, cell in zip(rows, cells_of(family, rows), strict=True):
        for kind in (row.dataset, family.name):
            found[kind].append(cell)
    for test in (each for each in WHOLE if each in family.splits and family.name not in SAMPLED):
        labels = [family.splits[test](row) for row in rows]
        found[f"{family.name}, {test} kept out"] += [label for label in labels if label]
    enough = {kind for kind, own in found.items() if len(own) >= MIN_ROWS and len(set(own)) >= MIN_GROUPS}
    return enough | ({family.unseen} if family.unseen else set())


@pytest.mark.parametrize("family", FITTED, ids=lambda family: family.name)
def test_no_kind_is_missing(family: Family, published: tuple[Dataset, ...]) -> None:
    rows = [row for data in published for row in data.rows if row.dataset in family.datasets and family.is_fitted(row)]
    assert rows
    assert asked(family, rows) <= set(load_spreads().entries)


def test_steps_of_sources_that_nobody_knows_have_a_range() -> None:
    assert load_spreads().find([UNSEEN]) is not None
