"""Figures of results, each declared once where its result has it: label, unit, digits, which way is better, meaning.

JSON objects, the list in docs/json.md, rows and columns of tables, CSV files, frames of pandas and MLflow's metrics
follow from `fields_of`. A figure that follows from others is a property below `declares`.
"""

from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, fields, replace
from enum import StrEnum
from functools import cache
from typing import Any, TypeVar

_F = TypeVar("_F", bound=Callable[[Any], object])
_KEY = "result_field"


class Better(StrEnum):
    """Which way a figure is better."""

    HIGHER = "higher"
    LOWER = "lower"
    NEITHER = ""


class Digits(StrEnum):
    """How people read a figure; `report.text.format_figure` writes it.

    NUMBER: three significant digits. SHARE: per cent. TIME: in s, ms, us or ns. AMOUNT: in words from a billion on.
    COUNT: whole, thousands grouped. BYTES: in GiB.
    """

    NUMBER = "number"
    SHARE = "share"
    TIME = "time"
    AMOUNT = "amount"
    COUNT = "count"
    BYTES = "bytes"


@dataclass(frozen=True, slots=True)
class ResultField:
    """A figure of a result.

    Attributes:
        label: in tables, with the unit where the digits do not bring it.
        unit: of the value, SI; empty for shares and counts.
        meaning: one phrase.
        better: which way it is better.
        digits: how people read it.
        scale: by which people read it: 1000 for a figure per W of which the label says per kW.
        is_headline: whether short lists have it: texts, first tables, columns of runs.
        needs_feasible: whether it is known of feasible designs alone.
        has_mean: whether a design common to several models has it, and not only each model on it.
        name: of the field or property: its key in JSON, CSV files, frames and MLflow.
    """

    label: str
    unit: str = ""
    meaning: str = ""
    better: Better = Better.NEITHER
    digits: Digits = Digits.NUMBER
    scale: float = 1.0
    is_headline: bool = False
    needs_feasible: bool = True
    has_mean: bool = True
    name: str = ""


def result_field(label: str, unit: str = "", meaning: str = "", *, default: Any = MISSING, **more: Any) -> Any:
    """A dataclass's field that is a figure; ``more`` are further fields of `ResultField`."""
    return field(default=default, metadata={_KEY: ResultField(label, unit, meaning, **more)})


def declares(label: str, unit: str = "", meaning: str = "", **more: Any) -> Callable[[_F], _F]:
    """Below ``@property``: a figure that follows from others."""

    def mark(getter: _F) -> _F:
        setattr(getter, _KEY, ResultField(label, unit, meaning, **more))
        return getter

    return mark


@cache
def fields_of(kind: type) -> tuple[ResultField, ...]:
    """The figures of a dataclass: its fields in their order, then its properties."""
    stated = {each.name: each.metadata[_KEY] for each in fields(kind) if _KEY in each.metadata}
    getters = {name: each.fget for name, each in vars(kind).items() if isinstance(each, property)}
    stated |= {name: getattr(getter, _KEY) for name, getter in getters.items() if hasattr(getter, _KEY)}
    return tuple(replace(each, name=name) for name, each in stated.items())


def headlines_of(kind: type) -> tuple[ResultField, ...]:
    """Those of short lists: what is known of feasible designs first."""
    return tuple(
        sorted((each for each in fields_of(kind) if each.is_headline), key=lambda each: not each.needs_feasible)
    )


def names_of(kind: type) -> tuple[str, ...]:
    """Their names, as heads of columns."""
    return tuple(each.name for each in fields_of(kind))


def values_of(item: Any) -> dict[str, Any]:
    """Values by name, as JSON and CSV files have them."""
    return {each.name: getattr(item, each.name) for each in fields_of(item.__class__)}
