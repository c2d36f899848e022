"""Operators alone on a real machine at the shares that training software reaches: tiles of GPUs, arrays of TPUs."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np

from phaze_opt.estimate.calibrated import WIDE_BYTES, DesignTerms, SystolicOperators, systolic_terms
from phaze_opt.estimate.machine import MachineModel, machine_model
from phaze_opt.estimate.machine_operators import operator_seconds, products_s
from phaze_opt.estimate.operator_table import CompiledOperators
from phaze_opt.hardware.device import ComputePath, Device, MatrixStyle, element_bytes
from phaze_opt.hardware.fitted import FittedConstants
from phaze_opt.record.arrays import Floats
from phaze_opt.record.document import parse_toml
from phaze_opt.units import TERA
from phaze_opt.workload.software import TrainingStack

SETTING = "device"
"""Operators inside a training step follow one another on the device: constants are those of the device's clock."""


NARROW = (ComputePath.FP8, ComputePath.INT8)
"""Paths of 8-bit operands."""

MOST_OF_PEAK = 0.95
"""Share of the peak that no matmul of a step passes, however much power there is (assumption)."""


MOST_OF_EARLIER_ATTENTION = 0.72
"""Share of the A100's peak that FlashAttention 2 reaches forward (Dao 2023)."""

SAME_RATE = 1.2
"""Machines whose dense rates differ by less are of one class, and differ in power, memory and links."""
_POWER = "power_classes.toml"


class OperatorTimer(Protocol):
    """Times operators one after the other, each spread over the whole machine, on one path."""

    @property
    def element_bytes(self) -> int:
        """Bytes of an operand's element."""
        ...

    @property
    def vector_rate_bytes_per_s(self) -> float:
        """Memory bandwidth that streams reach."""
        ...

    def seconds(self, *, matmul_efficiency: float = 0.0) -> Floats:
        """Time of every operator, shape (num_operators,), s; matmuls at another share of the peak if one is given."""
        ...

    def products_s(self) -> Floats:
        """Of every operator's matmuls, nothing moved to memory, shape (num_operators,), s."""
        ...


@dataclass(frozen=True, slots=True)
class TileTimer:
    """A GPU: what the stack states takes precedence over what the machine reaches alone."""

    compiled: CompiledOperators
    machine: MachineModel
    tile_intensity: float

    @property
    def element_bytes(self) -> int:
        """Bytes of an operand's element."""
        return self.machine.element_bytes

    @property
    def vector_rate_bytes_per_s(self) -> float:
        """Memory bandwidth that streams reach."""
        return self.machine.hbm_bandwidth_bytes_per_s * self.machine.vector_memory_efficiency

    def seconds(self, *, matmul_efficiency: float = 0.0) -> Floats:
        """Tiles in waves; reading tiles on top where the stack says that nothing hides it."""
        machine = replace(self.machine, matmul_efficiency=matmul_efficiency or self.machine.matmul_efficiency)
        seconds = operator_seconds(self.compiled, machine)
        if not self.tile_intensity:
            return seconds
        flops = np.where(self.compiled.is_tiled, 2.0 * self.compiled.macs, 0.0)
        num_bytes = flops / self.tile_intensity * (machine.element_bytes / WIDE_BYTES)
        return np.asarray(seconds + num_bytes / machine.hbm_bandwidth_bytes_per_s)

    def products_s(self) -> Floats:
        """Tiles in waves."""
        return products_s(self.compiled, self.machine)


@dataclass(frozen=True, slots=True)
class ArrayTimer:
    """A machine of systolic arrays: the estimator of designed chips at the stack's terms."""

    operators: SystolicOperators
    terms: DesignTerms
    element_bytes: int
    hbm_bandwidth_bytes_per_s: float

    @property
    def vector_rate_bytes_per_s(self) -> float:
        """Memory bandwidth that streams reach."""
        return self.hbm_bandwidth_bytes_per_s * self.terms.memory_efficiency

    def seconds(self, *, matmul_efficiency: float = 0.0) -> Floats:
        """As a designed chip's."""
        share = matmul_efficiency or self.terms.array_efficiency
        return self.operators.seconds(replace(self.terms, array_efficiency=share))

    def products_s(self) -> Floats:
        """Arrays and buffer."""
        return self.operators.products_s(self.terms)


def timer_of(
    compiled: CompiledOperators, device: Device, *, path: ComputePath, stack: TrainingStack, fitted: FittedConstants
) -> OperatorTimer:
    """What times operators of a training step on a device.

    Raises:
        InputError: the device lacks the path.
    """
    if device.style is MatrixStyle.TILES:
        machine = training_machine(device, path=path, stack=stack, fitted=fitted)
        return TileTimer(compiled, machine, stack.tile_intensity)
    return ArrayTimer(
        operators=SystolicOperators(compiled, device, path),
        terms=training_terms(device, stack=stack, fitted=fitted),
        element_bytes=element_bytes(path),
        hbm_bandwidth_bytes_per_s=device.hbm_bandwidth_bytes_per_s,
    )


def training_machine(
    device: Device, *, path: ComputePath, stack: TrainingStack, fitted: FittedConstants
) -> MachineModel:
    """A GPU as the operators of a training step see it: what the stack states takes precedence.

    Raises:
        InputError: the device lacks the path.
    """
    alone = machine_model(device, path=path, fitted=fitted, setting=SETTING)
    share, is_earlier = power_share(device, stack), ComputePath.FP8 not in device.peak_flops_per_s
    reached = stack.matmul_efficiency * share * (stack.earlier_matmul if is_earlier else 1.0)
    attention = stack.attention_efficiency * share
    if is_earlier:
        attention = min(attention * stack.earlier_attention, max(attention, MOST_OF_EARLIER_ATTENTION))
    return replace(
        alone,
        launch_s=stack.kernel_s,
        matmul_efficiency=(reached or alone.matmul_efficiency) * (stack.narrow_efficiency if path in NARROW else 1.0),
        attention_efficiency=(attention or alone.attention_efficiency) / stack.scores_share,
        vector_memory_efficiency=stack.vector_efficiency or alone.vector_memory_efficiency,
        matmul_memory_efficiency=stack.vector_efficiency or alone.matmul_memory_efficiency,
        k_ramp=stack.k_ramp if stack.k_ramp >= 0 else alone.k_ramp,
        exposed_store=alone.exposed_store if stack.exposed_traffic < 0 else 0.0,
    )


def power_share(device: Device, stack: TrainingStack) -> float:
    """What the limit of power leaves of a software's share of the peak, against the usual one of the machine's class.

    A chip that has fewer watts for each FLOP than its like lowers its clock further in long matmuls.
    """
    if not (stack.power_exponent and stack.matmul_efficiency and _joules_per_flop(device)):
        return 1.0
    usual = usual_joules_per_flop(device.maker, device.style, _rate(device))
    relative = _joules_per_flop(device) / usual if usual else 1.0
    return float(min(relative**stack.power_exponent, MOST_OF_PEAK / stack.matmul_efficiency))


def usual_joules_per_flop(maker: str, style: MatrixStyle, rate: float) -> float:
    """Stated for the class of GPUs whose 16-bit rate is nearest within a fifth; 0 of a machine of no class."""
    near = [each for each in power_classes().values() if each["maker"] == maker and style is MatrixStyle.TILES]
    ratios = [
        (max(rate / own, own / rate) if rate else math.inf, each) for each in near for own in (each["tflops"] * TERA,)
    ]
    ratio, found = min(ratios, key=lambda pair: pair[0], default=(math.inf, None))
    return found["watts_per_tflops"] / TERA if found is not None and ratio < SAME_RATE else 0.0


@cache
def power_classes() -> Mapping[str, dict[str, Any]]:
    """Classes of GPUs by name: maker, rate and usual power, and the machines whose data sheets say so."""
    text = resources.files("phaze_opt.cost").joinpath(_POWER).read_text(encoding="utf-8")
    return MappingProxyType(parse_toml(text, source=_POWER).values)


def _joules_per_flop(device: Device) -> float:
    """Limit of power over the dense 16-bit rate; 0 where either is not known."""
    return device.tdp_w / _rate(device) if _rate(device) else 0.0


def _rate(device: Device) -> float:
    return device.peak_flops_per_s.get(ComputePath.BF16, 0.0)


def training_terms(device: Device, *, stack: TrainingStack, fitted: FittedConstants) -> DesignTerms:
    """What separates a step's operators on systolic arrays from their ideal: what the stack states takes precedence."""
    alone = systolic_terms(device, fitted=fitted, setting=SETTING)
    return replace(
        alone,
        launch_cycles=stack.kernel_s * device.clock_hz,
        array_efficiency=stack.matmul_efficiency or alone.array_efficiency,
        memory_efficiency=stack.vector_efficiency or alone.memory_efficiency,
        tile_intensity=stack.tile_intensity or math.inf,
    )
