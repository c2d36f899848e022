"""What times the layers of a step on one device: a real machine's operators, or a designed chip's schedules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from phaze_opt.estimate.operator_table import compile_operators
from phaze_opt.hardware.device import ComputePath, Device
from phaze_opt.hardware.fitted import FittedConstants
from phaze_opt.objective.step.compiled_step import CompiledStep
from phaze_opt.objective.step.device_seconds import device_seconds, roles_of
from phaze_opt.objective.step.price_step import DeviceTimes, serial_times


class LayerClock(Protocol):
    """Times embedding, block and head on one device."""

    def times(self, step: CompiledStep) -> DeviceTimes:
        """Forward, backward and update of the three, collectives apart."""
        ...


@dataclass(frozen=True, slots=True)
class MachineClock:
    """A real machine, one operator after the other; `estimate_step` times steps the same way."""

    device: Device
    path: ComputePath
    fitted: FittedConstants

    def times(self, step: CompiledStep) -> DeviceTimes:
        """Serial times under the step's own software."""
        compiled = compile_operators(step.operators)
        seconds = device_seconds(
            compiled,
            self.device,
            roles_of(compiled),
            path=self.path,
            stack=step.stack,
            fitted=self.fitted,
        )
        return serial_times(step, seconds)
