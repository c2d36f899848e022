"""Family of fp32 operators on many GPUs (NeuSight's measurements)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from phaze_opt.hardware.fitted import FittedConstants
from phaze_opt.units import MICRO
from phaze_opt.validation.family import Parameter
from phaze_opt.validation.fp32.fit import device_parameters, devices_of, fit_fp32, law_parameters
from phaze_opt.validation.fp32.rows import CompiledFp32, part_of
from phaze_opt.validation.ideal_time import roofline_parts
from phaze_opt.validation.row import Row

LAUNCH_BOUND_S = 5e-5
"""A measured time below this is mostly launch."""


class NeusightFamily:
    """Predicts ``op_neusight_fp32``: matmuls by `estimate.machine_simt`, row operators by `estimate.machine_vector`."""

    @property
    def name(self) -> str:
        """``fp32_operators``."""
        return "fp32_operators"

    @property
    def datasets(self) -> tuple[str, ...]:
        """The one set of fp32 operators."""
        return ("op_neusight_fp32",)

    def parameters(self, rows: Sequence[Row]) -> tuple[Parameter, ...]:
        """The law of makers, and each measured device's own."""
        own = [p for device in devices_of(rows) for p in device_parameters(device, rows)]
        return (*law_parameters(rows), *own)

    def compile(self, rows: Sequence[Row]) -> CompiledFp32:
        """Prepare rows.

        Raises:
            InputError: a malformed value, by file, line and column.
        """
        return CompiledFp32(rows)

    def fit(self, rows: Sequence[Row], start: FittedConstants) -> FittedConstants:
        """The law on all rows, then each device's own constants."""
        return fit_fp32(rows, start)

    def regime(self, row: Row) -> str:
        """Operator, and launch, compute or memory by what the data sheet says bounds it."""
        kind = row.text("op").lower()
        device = row.find_device()
        if row.number("latency_us") * MICRO < LAUNCH_BOUND_S:
            return f"{kind}, launch"
        if device is None or part_of(kind) != "matmul":
            return f"{kind}, memory"
        compute, memory = roofline_parts(row, device)
        return f"{kind}, {'compute' if compute > memory else 'memory'}"

    def cell(self, row: Row) -> str:
        """The shape, so that one shape's measurements on several devices stay together."""
        return "|".join(row.text(name, "") for name in ("op", "b", "m", "n", "k"))

    def splits(self, rows: Sequence[Row]) -> Mapping[str, Sequence[str]]:
        """By device: one kept out is priced by its maker's law and its data sheet."""
        return {"device": [row.text("hardware") for row in rows]}
