"""Bounds of the figures that users write: beyond them lies no machine but a slip of the pen, mostly another unit."""

from dataclasses import dataclass, replace
from typing import Any

from phaze_opt.record.input_files import is_number, shorten
from phaze_opt.units import unit_meant


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a figure may be; stands beside the key that it is given by, and annotates fields of pydantic.

    Attributes:
        unit: of the key, as `units.SCALES` has it; empty of counts and shares.
        least, most: ends that all known machines keep with room.
        is_whole: whether only whole numbers may be given.
        or_zero: whether 0 may stand for what is not there.
    """

    unit: str
    least: float
    most: float
    is_whole: bool = False
    or_zero: bool = False

    def holds(self, value: object) -> bool:
        """Whether a value keeps them."""
        if not is_number(value) or (self.is_whole and not isinstance(value, int)):
            return False
        return self.least <= value <= self.most or (self.or_zero and value == 0)

    def fault(self, value: object) -> str:
        """The rule that a value breaks, with the unit that was likely meant; empty where it breaks none."""
        if self.holds(value):
            return ""
        kind = f"{'0 or ' * self.or_zero}{'an integer' if self.is_whole else 'a number'}"
        ends = f"from {self.least:,.10g} to {self.most:,.10g} {self.unit}".rstrip()
        rule = f"value {shorten(value)} must be {kind} {ends}"
        if not is_number(value) or (found := unit_meant(value, self.unit, self.least, self.most)) is None:
            return rule
        other, factor = found
        return f"{rule}; did you mean {value * factor:,.6g} {self.unit} ({value:,.10g} {other})?"

    @property
    def or_none(self) -> "Bounds":
        """The same of a figure that may be unknown, or of what may not be there."""
        return replace(self, or_zero=True)

    def times(self, size: float) -> "Bounds":
        """The same of a key in base units, so many of which are one of this unit."""
        return replace(self, unit="", least=self.least * size, most=self.most * size)

    def _checked(self, value: Any) -> Any:
        if rule := self.fault(value):
            raise ValueError(rule)
        return value

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        """Check a field after its type."""
        from pydantic_core import core_schema

        return core_schema.no_info_after_validator_function(self._checked, handler(source))


def counts(most: int) -> Bounds:
    """Bounds of a whole number without a unit, from 1 on."""
    return Bounds("", 1, most, is_whole=True)
