"""Bounds of figures stand beside the keys that have them, and a slip of a unit is told by the unit that was meant."""

from collections.abc import Iterator
from itertools import permutations
from typing import Any, get_args

import pytest
from pydantic import BaseModel

from phaze_opt.hardware import architecture_file, networks
from phaze_opt.hardware.chip_template import AXES
from phaze_opt.hardware.device_catalogue import DeviceTable
from phaze_opt.hardware.economics.prices import load_prices, price_bounds
from phaze_opt.record.input_files import Bounds, counts
from phaze_opt.units import SCALES

TABLES = [DeviceTable, *(each for each in vars(networks).values() if isinstance(each, type))]
TABLES = [each for each in TABLES if issubclass(each, BaseModel)]


def unbounded(annotation: Any, metadata: tuple[Any, ...] = ()) -> Iterator[Any]:
    """Numbers inside an annotation beside which no bounds stand."""
    own = getattr(annotation, "__metadata__", ()) + metadata
    if annotation in (int, float):
        if not any(isinstance(each, Bounds) for each in own):
            yield annotation
        return
    for inner in get_args(annotation):
        yield from unbounded(inner, own if hasattr(annotation, "__metadata__") else ())


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.__name__)
def test_every_figure_of_a_machine_or_network_has_bounds(table: type[BaseModel]) -> None:
    for key, info in table.model_fields.items():
        assert not list(unbounded(info.annotation, tuple(info.metadata))), key


def test_every_figure_of_a_design_and_every_price_has_bounds_that_its_own_value_keeps() -> None:
    for axis in AXES:
        assert axis.bounds.least <= axis.bounds.most, axis.key
        assert (axis.bounds.unit == "") == (axis.unit is None), axis.key
    assert all(isinstance(bounds, Bounds) for bounds in architecture_file._KEYS.values())
    for key, price in load_prices().entries.items():
        assert all(price_bounds(price).holds(each) for each in (price.low, price.value, price.high)), key


@pytest.mark.parametrize("scale", SCALES, ids=lambda scale: next(iter(scale)))
def test_a_figure_in_a_neighbouring_unit_is_told_with_its_own(scale: dict[str, float]) -> None:
    for (unit, size), (other, other_size) in permutations(scale.items(), 2):
        fault = Bounds(unit, 1.0, 4.0).fault(2.0 * size / other_size)
        assert f"did you mean 2 {unit} (" in fault
        assert f" {other})?" in fault


def test_bounds_refuse_what_is_no_such_number() -> None:
    assert counts(8).fault(3) == ""
    for value in (0, 9, 2.0, True, "3", None, float("nan"), float("inf"), 10**400, -1):
        assert counts(8).fault(value).endswith("must be an integer from 1 to 8")
    assert counts(8).or_none.holds(0)
    assert not Bounds("GB", 1.0, 2.0).holds(0.0)
