"""Constants of modern GPUs' kernels: of a machine or of a library's recipe, and where a row's come from.

A constant of a row is the machine's times the recipe's where both have one of a name (``efficiency`` and ``rate`` ...),
so that a library measured on some machines is known on others, and a machine that nobody measured takes those of the
measured machine whose data sheet is nearest. Only the power limit does not carry over as a share of the peak: at a
limit of P watts clock and voltage fall together, P = C V^2 f, so that the rate of one chip goes as the cube root of P,
and it goes inversely as the energy of an operation, which its process decides.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from phaze_opt.hardware.device import ComputePath, Device, MatrixStyle
from phaze_opt.hardware.device_catalogue import shipped_devices
from phaze_opt.hardware.fitted import FittedConstants
from phaze_opt.hardware.number_format import Width


class KernelKind(StrEnum):
    """Kinds of kernels that have constants of their own; the value is part of their groups' names."""

    MATMUL = "matmul"
    ATTENTION = "attention"
    EXPERTS = "experts"
    STREAM = "stream"


class Owner(StrEnum):
    """Whose a constant is."""

    MACHINE = "machines"
    RECIPE = "recipes"


@dataclass(frozen=True, slots=True)
class KernelConstant:
    """A constant that may be fitted; SI units, all by their logarithm.

    Attributes:
        name: in the group.
        owner: whose it is.
        unit, low, high, start: as of a parameter; the start is what is expected.
        meaning: in words.
        widths: also one of its own for operands of 8 and 4 bits, ``name.8``; where none is fitted, that of 16 serves.
    """

    name: str
    owner: Owner
    unit: str
    low: float
    high: float
    start: float
    meaning: str
    widths: bool = False


def _machine(
    name: str, unit: str, span: tuple[float, float, float], meaning: str, *, widths: bool = False
) -> KernelConstant:
    return KernelConstant(name, Owner.MACHINE, unit, *span, meaning, widths)


def _recipe(name: str, unit: str, span: tuple[float, float, float], meaning: str) -> KernelConstant:
    return KernelConstant(name, Owner.RECIPE, unit, *span, meaning)


_ORDER = (1.0, 12.0, 3.0)
HOST_CALLS = "host_calls"
"""Constant of a recipe of which a fit may know nothing else: where the host's launch is all that shows."""
CONSTANTS: Mapping[KernelKind, tuple[KernelConstant, ...]] = MappingProxyType(
    {
        KernelKind.MATMUL: (
            _machine("launch_s", "s", (5e-7, 3e-5, 2.5e-6), "launch of a matmul in a graph: none is shorter"),
            _machine("host_s", "s", (1e-5, 1e-3, 8e-5), "an eager call under the host's clock: none is shorter"),
            _machine("memory_share", "", (0.2, 1.2, 0.8), "share of the memory's bandwidth in matmuls"),
            _machine("cache_ratio", "", (1.0, 8.0, 2.0), "rate from the last cache over that of memory"),
            _machine(
                "efficiency", "", (0.1, 1.5, 0.9), "share of the peak in full waves of the best tile", widths=True
            ),
            _machine("sustained", "", (0.1, 1.3, 0.75), "share of the peak that the power limit leaves", widths=True),
            _recipe("extra_s", "s", (1e-8, 5e-5, 3e-7), "what the recipe adds to a launch"),
            _recipe("memory", "", (0.3, 1.6, 1.0), "recipe's share of the bandwidth over the machine's"),
            _recipe("rate", "", (0.2, 2.5, 1.0), "recipe's share of the peak in full waves over the machine's"),
            _recipe("power", "", (0.4, 2.0, 1.0), "recipe's share of the peak at the power limit over the machine's"),
            _recipe("k_ramp", "", (4.0, 1500.0, 100.0), "inner size that takes as long as filling and draining"),
            _recipe("small_tile", "", (0.02, 2.5, 0.5), "how much more a FLOP costs in smaller tiles"),
            _recipe("overlap_norm", "", _ORDER, "order of the norm of compute and memory"),
            _recipe(
                "cache_copies", "", (1.0, 30.0, 5.0), "copies of operands between two uses, that must fit the cache"
            ),
            _recipe("quantise_s", "s", (1e-7, 5e-5, 3e-6), "launches of quantising the left operand"),
            _recipe("quantise_share", "", (0.05, 1.5, 0.6), "share of the bandwidth in quantising the left operand"),
            _recipe(
                "quantise_element_s",
                "s",
                (1e-12, 5e-9, 5e-11),
                "time of an element of a row in quantising, by one block",
            ),
            _recipe(
                "quantise_row_s",
                "s",
                (1e-12, 5e-8, 6e-10),
                "time of a row in quantising, where rows take turns at a sum",
            ),
            _recipe(
                "unit_loads", "", (0.5, 50.0, 4.0), "rate of a multiprocessor's loads over its part of the memory's"
            ),
            _recipe("split_sums", "", (0.2, 100.0, 1.0), "what partial sums of a split k cost over what they move"),
            _recipe(HOST_CALLS, "", (0.2, 6.0, 1.0), "an eager call of the recipe over the machine's"),
        ),
        KernelKind.ATTENTION: (
            _machine("launch_s", "s", (3e-7, 5e-5, 8e-6), "launch of fused attention: none is shorter"),
            _machine("memory_share", "", (0.1, 1.5, 0.7), "share of the memory's bandwidth in fused attention"),
            _machine("efficiency", "", (0.05, 2.5, 0.8), "share of the peak in long rows of wide heads", widths=True),
            _recipe("extra_s", "s", (1e-8, 5e-5, 1e-6), "what the recipe adds to a launch"),
            _recipe("memory", "", (0.1, 3.0, 1.0), "recipe's share of the bandwidth over the machine's"),
            _recipe("rate", "", (0.02, 3.0, 1.0), "recipe's share of the peak over the machine's"),
            _recipe("ramp", "", (1.0, 2000.0, 100.0), "keys that take as long as starting a tile"),
            _recipe(
                "softmax", "", (1.0, 800.0, 80.0), "multiply-accumulates that one score's softmax takes as long as"
            ),
            _recipe("lost_wave", "", (0.02, 3.0, 0.7), "share of a wave that tiles of different length lose"),
            _recipe("odd_head", "", (0.8, 8.0, 1.1), "factor of heads that are no multiple of 16"),
            _recipe("window_use", "", (0.01, 1.0, 0.8), "how much of what a window masks is skipped"),
            _recipe("kv_passes", "", (0.1, 40.0, 1.5), "how many times keys and values are moved"),
            _recipe("overlap_norm", "", _ORDER, "order of the norm of compute and memory"),
        ),
        KernelKind.EXPERTS: (
            _machine("launch", "", (0.2, 8.0, 1.0), "launches of fused experts over the recipe's"),
            _machine("memory_share", "", (0.2, 1.2, 0.8), "share of the memory's bandwidth in reading weights"),
            _machine("cache_ratio", "", (1.0, 8.0, 2.0), "rate from the last cache over that of memory"),
            _machine("efficiency", "", (0.02, 1.5, 0.6), "share of the peak in full waves", widths=True),
            _recipe("launch_s", "s", (1e-6, 4e-4, 2.5e-5), "launches of routing, gather, matmuls and scatter"),
            _recipe("memory", "", (0.1, 1.6, 1.0), "recipe's share of the bandwidth over the machine's"),
            _recipe("rate", "", (0.05, 4.0, 1.0), "recipe's share of the peak over the machine's"),
            _recipe("k_ramp", "", (1.0, 1500.0, 64.0), "depth that takes as long as filling and draining"),
            _recipe("small_tile", "", (0.01, 3.0, 0.3), "how much more a FLOP costs in lower tiles"),
            _recipe("overlap_norm", "", _ORDER, "order of the norm of compute and memory"),
            _recipe("activation_passes", "", (0.02, 20.0, 0.7), "times that activations go at the full bandwidth"),
            _recipe("token_passes", "", (0.01, 20.0, 1.0), "times that all tokens go at the full bandwidth"),
        ),
        KernelKind.STREAM: (
            _machine("launch_s", "s", (3e-7, 3e-5, 2e-6), "launch of a norm or a cast: none is shorter"),
            _machine("memory_share", "", (0.2, 1.2, 0.8), "share of the memory's bandwidth in norms and casts"),
            _machine("cache_ratio", "", (1.0, 8.0, 2.0), "rate from the last cache over that of memory"),
            _recipe("extra_s", "s", (1e-8, 5e-5, 3e-7), "what the recipe adds to a launch"),
            _recipe("memory", "", (0.1, 1.6, 0.9), "recipe's share of the bandwidth over the machine's"),
            _recipe(
                "cache_copies", "", (1.0, 30.0, 2.0), "copies of operands between two uses, that must fit the cache"
            ),
            _recipe("element_s", "s", (1e-12, 5e-9, 5e-11), "time of an element of a row, which one block reads"),
            _recipe(
                "row_s", "s", (1e-12, 5e-8, 6e-10), "time of a row where rows take turns: at one sum, at one queue"
            ),
        ),
    }
)
"""All of them by kind."""

MOST_CARRIED = 0.95
"""Share of the peak that no machine is expected to pass, however many watts it has (assumption, 0.9 to 1)."""
BOARD_BYTES_PER_S = 11.5e9
"""Memory rate of a multiprocessor below which a machine is a board with GDDR memory."""
ENERGY_EXPONENT = 0.51
"""Of the energy of an operation over the nanometres in the name of its process (docs/silicon.md)."""
USUAL_NANOMETRES = 5.0
POWER_EXPONENT = 1.0 / 3.0
"""Of the rate of one chip over its power limit (P = C V^2 f with V as f)."""


def kernel_group(kernel: KernelKind, owner: Owner, name: str) -> str:
    """Name of the group of a machine's or a recipe's constants."""
    return f"kernels/{kernel}/{owner}/{name}"


def machine_values(kernel: KernelKind, device: Device, width: Width, *, fitted: FittedConstants) -> dict[str, float]:
    """Constants of a machine by name, for operands of a width; of its kin where nothing was fitted to it."""
    known = fitted.groups.get(kernel_group(kernel, Owner.MACHINE, device.name))
    kin = None if known else nearest_kin(kernel, device, width, fitted=fitted)
    if kin is not None:
        known = fitted.groups[kernel_group(kernel, Owner.MACHINE, kin.name)]
    found = {}
    for constant in CONSTANTS[kernel]:
        if constant.owner is Owner.MACHINE:
            value = (known or {}).get(constant.name, constant.start)
            found[constant.name] = (known or {}).get(f"{constant.name}.{width}", value) if constant.widths else value
    if kin is not None and "sustained" in found:
        found["sustained"] = min(MOST_CARRIED, found["sustained"] * _carried_over(kin, device, width))
    return found


def recipe_values(kernel: KernelKind, names: Sequence[str], *, fitted: FittedConstants) -> dict[str, float]:
    """Constants of a recipe by name: of the first of some names that anything was fitted to, else the expected ones."""
    groups = [fitted.groups.get(kernel_group(kernel, Owner.RECIPE, name), {}) for name in names]
    known = dict(next((group for group in groups if group.keys() - {HOST_CALLS}), {}))
    known |= next(({HOST_CALLS: group[HOST_CALLS]} for group in groups if HOST_CALLS in group), {})
    return {
        constant.name: known.get(constant.name, constant.start)
        for constant in CONSTANTS[kernel]
        if constant.owner is Owner.RECIPE
    }


def nearest_kin(kernel: KernelKind, device: Device, width: Width, *, fitted: FittedConstants) -> Device | None:
    """The measured machine whose data sheet is nearest for a width; of its own maker and memory if one was measured."""
    measured = [
        each
        for each in shipped_devices().devices
        if each.name != device.name and fitted.has(kernel_group(kernel, Owner.MACHINE, each.name))
    ]
    own = [each for each in measured if each.maker == device.maker]
    alike = [each for each in own if is_board(each) == is_board(device)]
    return min(alike or own or measured, key=lambda each: (_distance(each, device, width), each.name), default=None)


def _distance(one: Device, other: Device, width: Width) -> float:
    """Sum of squared logarithms of what operators see of a machine: rates, units, cache and power."""
    pairs = (
        (width_peak(one, width), width_peak(other, width)),
        (one.hbm_bandwidth_bytes_per_s, other.hbm_bandwidth_bytes_per_s),
        (float(one.num_multiprocessors), float(other.num_multiprocessors)),
        (one.cache_bytes, other.cache_bytes),
        (one.tdp_w or 1.0, other.tdp_w or 1.0),
    )
    return sum(math.log(left / right) ** 2 for left, right in pairs)


def width_peak(device: Device, width: Width) -> float:
    """Peak for operands of a width, of the next wider one where the machine has no units for it, FLOP/s."""
    wide = device.peak_flops_per_s.get(ComputePath.BF16) or max(device.peak_flops_per_s.values())
    eight = device.peak_flops_per_s.get(ComputePath.FP8, wide)
    return {Width.WIDE: wide, Width.EIGHT: eight, Width.FOUR: device.fp4_peak_flops_per_s or eight}[width]


def _carried_over(kin: Device, device: Device, width: Width) -> float:
    """Share of the peak at the power limit over the kin's, by watts, peak and process of a multiprocessor."""
    if not (kin.tdp_w and device.tdp_w):
        return 1.0
    watts = (device.tdp_w / device.num_multiprocessors) / (kin.tdp_w / kin.num_multiprocessors)
    peaks = _unit_peak(device, width) / _unit_peak(kin, width)
    energy = (_nanometres(device) / _nanometres(kin)) ** ENERGY_EXPONENT
    return float(watts**POWER_EXPONENT / (peaks * energy))


def _nanometres(device: Device) -> float:
    """Number in the name of a process; that of most machines here where it has none."""
    found = re.search(r"\d+", device.process)
    return float(found.group()) if found else USUAL_NANOMETRES


def _unit_peak(device: Device, width: Width) -> float:
    return width_peak(device, width) / device.num_multiprocessors


def is_board(device: Device) -> bool:
    """Whether its memory is far slower for a multiprocessor than HBM: a board with GDDR."""
    return device.hbm_bandwidth_bytes_per_s / device.num_multiprocessors < BOARD_BYTES_PER_S


def is_priced(device: Device) -> bool:
    """Whether the machine is a GPU, whose matmuls are tiles in waves."""
    return device.style is MatrixStyle.TILES
