"""Rows of the package's measurements, and rows like them."""

from dataclasses import replace
from functools import cache
from types import MappingProxyType

from phaze_opt.validation.dataset import read_datasets
from phaze_opt.validation.measured_row import Row


@cache
def public_rows(*datasets: str) -> tuple[Row, ...]:
    """Rows of some published sets, in the sets' order."""
    by_name = {each.name: each.rows for each in read_datasets(None, datasets)[0]}
    return tuple(row for name in datasets for row in by_name[name])


def changed(row: Row, **values: object) -> Row:
    """The row with other values."""
    texts = {name: str(value) for name, value in values.items()}
    return replace(row, values=MappingProxyType({**row.values, **texts}))
