"""A small family of models for tests: one operator set, a launch time and a rate for each device."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np

from phaze_opt.errors import InputError
from phaze_opt.hardware.fitted import FittedConstants
from phaze_opt.record.arrays import Floats
from phaze_opt.units import MICRO
from phaze_opt.validation.family import Family, FitParameter, Part
from phaze_opt.validation.measured_row import Row

UNKNOWN_OP = "no model of this operator"
REFUSED_OP = "refused"
LAUNCH_S = FitParameter("", "launch_s", "s", 1e-6, 1e-3, 1e-5, "time of a call without work", is_log=True)
RATE = FitParameter("", "rate", "1/s", 1e6, 1e14, 1e10, "elements a second", is_log=True)


def group_of(hardware: str) -> str:
    """Name of the toy's group of constants for a device."""
    return f"toy/{hardware}"


@dataclass(frozen=True, slots=True)
class ToyRows:
    """Rows of the toy family, prepared."""

    rows: tuple[Row, ...]

    @property
    def measured_s(self) -> Floats:
        """Measured times, s."""
        return np.array([row.number("latency_us") * MICRO for row in self.rows])

    @property
    def unscored(self) -> Mapping[int, str]:
        """Rows of operators called ``mystery``."""
        return {index: UNKNOWN_OP for index, row in enumerate(self.rows) if row.text("op") == "mystery"}

    def seconds(self, fitted: FittedConstants) -> Floats:
        """Launch time and elements over the rate."""
        times = [sum(part.seconds for part in self.explain(fitted, index)) for index in range(len(self.rows))]
        times = [np.nan if index in self.unscored else time for index, time in enumerate(times)]
        return np.array(times)

    def explain(self, fitted: FittedConstants, index: int) -> tuple[Part, ...]:
        """Launch and work."""
        row = self.rows[index]
        group = group_of(row.text("hardware"))
        elements = row.number("m") * row.number("n")
        return (
            Part("launch", fitted.value(group, LAUNCH_S.name)),
            Part("work", elements / fitted.value(group, RATE.name)),
        )


def _parameters(rows: Sequence[Row]) -> tuple[FitParameter, ...]:
    """Two a device."""
    groups = sorted({group_of(row.text("hardware")) for row in rows})
    return tuple(replace(kind, group=group) for group in groups for kind in (LAUNCH_S, RATE))


def _compile(rows: Sequence[Row]) -> ToyRows:
    """Prepare rows.

    Raises:
        InputError: the operator ``refused``.
    """
    for row in rows:
        if row.text("op") == REFUSED_OP:
            message = "column 'op': the toy refuses this"
            raise InputError(message, source=row.source, line=row.line)
    return ToyRows(tuple(rows))


TOY = Family(
    name="toy",
    datasets=("op_llmcompass",),
    parameters=_parameters,
    compile=_compile,
    regime=lambda row: "small" if row.number("m") * row.number("n") < 1e6 else "large",
    cell=lambda row: row.text("m"),
    splits=MappingProxyType({"device": lambda row: row.text("hardware")}),
)
"""Predicts rows by a launch time and a rate for each device; rows of ``refused`` are refused."""

HEADER = "hardware,op,m,n,dtype,latency_us"
TRUE = MappingProxyType({"A": (20e-6, 2e9), "B": (5e-6, 5e10)})
"""Launch time, s, and rate of the toy's devices."""


def toy_us(device: str, m: int, n: int) -> float:
    """Time that the toy's own constants give, us."""
    launch_s, rate = TRUE[device]
    return (launch_s + m * n / rate) / MICRO


def toy_lines(devices: Sequence[str] = tuple(TRUE)) -> list[str]:
    """Lines of a CSV file that the toy explains exactly: six cells of three rows a device."""
    return [
        f"{device},gelu,{m},{n},fp16,{toy_us(device, m, n):.9g}"
        for device in devices
        for m in (16, 64, 256, 1024, 4096, 16384)
        for n in (8, 128, 512)
    ]
