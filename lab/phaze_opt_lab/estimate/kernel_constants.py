"""Constants of modern GPUs' kernels: of a machine or of a library's recipe, and where a row's come from.

A constant of a row is the machine's times the recipe's where both have one of a name (``efficiency`` and ``rate`` ...),
so that a library measured on some machines is known on others. Only the product of the two shows, so that a machine
that nobody measured, or one whose class lacks a recipe, takes both from one class at a time: from every measured
machine and a recipe of its class, the nearest data sheet counting most. Only the power limit does not carry over as a
share of the peak: at a limit of P watts clock and voltage fall together, P = C V^2 f, so that the rate of one chip goes
as the cube root of P, and it goes inversely as the energy of an operation, which its process decides.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from types import MappingProxyType

from phaze_opt.hardware.device import ComputePath, Device, MatrixStyle
from phaze_opt.hardware.device_catalogue import shipped_devices
from phaze_opt.hardware.fitted import FittedConstants
from phaze_opt_lab.number_format import Width


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
_CACHE_RATE = "bytes that a multiprocessor gets from the last cache in a cycle"
HOST = "host_s"
"""Constant of a machine that its host's processor decides."""
_START_HOST_S = 8e-5
FLOOR = "floor_s"
"""Constant of recipes of norms: launches of one kernel after another are hidden behind what a long one moves."""
HOST_CALLS = "host_calls"
"""Constant of a recipe of which a fit may know nothing else: where the host's launch is all that shows."""
CONSTANTS: Mapping[KernelKind, tuple[KernelConstant, ...]] = MappingProxyType(
    {
        KernelKind.MATMUL: (
            _machine("launch_s", "s", (5e-7, 3e-5, 2.5e-6), "launch of a matmul in a graph: none is shorter"),
            _machine(HOST, "s", (1e-5, 1e-3, _START_HOST_S), "an eager call under the host's clock: none is shorter"),
            _machine("memory_share", "", (0.2, 1.2, 0.8), "share of the memory's bandwidth in matmuls"),
            _machine("cache_rate", "bytes", (1.0, 100.0, 12.0), _CACHE_RATE),
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
                "unit_loads",
                "bytes",
                (0.0004, 0.2, 0.02),
                "bytes of tiles that a multiprocessor loads in the time of a FLOP at its 16-bit peak",
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
            _recipe("softmax", "", (0.01, 8.0, 0.6), "exponentials that one score's softmax takes as long as"),
            _recipe("lost_wave", "", (0.02, 3.0, 0.7), "share of the longest tile that tiles of different length lose"),
            _recipe("wide_head", "", (0.3, 8.0, 1.0), "factor of a FLOP in heads of twice `GOOD_HEAD`"),
            _recipe("odd_head", "", (0.8, 8.0, 1.1), "factor of heads that are no multiple of 16"),
            _recipe("window_keys", "", (1.0, 30000.0, 128.0), "keys outside its window that a query's tile works on"),
            _recipe("kv_passes", "", (0.1, 40.0, 1.5), "how many times keys and values are moved"),
            _recipe("overlap_norm", "", _ORDER, "order of the norm of compute and memory"),
        ),
        KernelKind.EXPERTS: (
            _machine("launch", "", (0.2, 8.0, 1.0), "launches of fused experts over the recipe's"),
            _machine("memory_share", "", (0.2, 1.2, 0.8), "share of the memory's bandwidth in reading weights"),
            _machine("cache_rate", "bytes", (1.0, 100.0, 12.0), _CACHE_RATE),
            _machine("efficiency", "", (0.02, 1.5, 0.6), "share of the peak in full waves", widths=True),
            _recipe("launch_s", "s", (1e-6, 4e-4, 2.5e-5), "launches of routing, gather, matmuls and scatter"),
            _recipe("expert_s", "s", (1e-10, 1e-5, 3e-8), "time of an expert of the rank, with rows or without"),
            _recipe("memory", "", (0.1, 1.6, 1.0), "recipe's share of the bandwidth over the machine's"),
            _recipe("rate", "", (0.05, 4.0, 1.0), "recipe's share of the peak over the machine's"),
            _recipe("k_ramp", "", (1.0, 1500.0, 64.0), "depth that takes as long as filling and draining"),
            _recipe("small_tile", "", (0.01, 3.0, 0.3), "how much more a FLOP costs in lower tiles"),
            _recipe("overlap_norm", "", _ORDER, "order of the norm of compute and memory"),
            _recipe("strangers", "", (0.01, 2.0, 0.5), "share of the work that a row of another rank's experts costs"),
            _recipe("activation_passes", "", (0.02, 20.0, 0.7), "times that activations go at the full bandwidth"),
            _recipe("token_passes", "", (0.01, 20.0, 1.0), "times that all tokens go at the full bandwidth"),
        ),
        KernelKind.STREAM: (
            _machine("launch_s", "s", (1e-7, 3e-5, 6e-7), "launch of a norm or a cast: none is shorter"),
            _machine("memory_share", "", (0.2, 1.2, 0.8), "share of the memory's bandwidth in norms and casts"),
            _machine("cache_rate", "bytes", (1.0, 100.0, 12.0), _CACHE_RATE),
            _recipe("extra_s", "s", (1e-8, 5e-5, 3e-7), "what the recipe adds to a launch"),
            _recipe(FLOOR, "s", (1e-7, 1e-4, 3e-6), "launches of an operator of several kernels: none is shorter"),
            _recipe("memory", "", (0.1, 1.6, 0.9), "recipe's share of the bandwidth over the machine's"),
            _recipe(
                "cache_copies", "", (0.5, 30.0, 2.0), "copies of operands between two uses, that must fit the cache"
            ),
            _recipe("element_s", "s", (1e-12, 5e-9, 5e-11), "time of an element of a row, which one block reads"),
            _recipe(
                "row_s", "s", (1e-12, 5e-8, 6e-10), "time of a row where rows take turns: at one sum, at one queue"
            ),
        ),
    }
)
"""All of them by kind."""

CLASS = "@"
"""Before the class of machines in the name of a recipe."""
_PAIRED = (KernelKind.MATMUL, KernelKind.ATTENTION, KernelKind.STREAM)
"""Kinds whose machines and recipes are taken together from one class. Of experts, the nearest machine and the nearest
recipe by themselves predict machines kept out better."""
SAME = 0.1
"""Distance of data sheets below which machines count alike (assumption, 0.05 to 0.5)."""
ANOTHER_LIBRARY = 4.0
"""Distance that another library counts as (assumption, 2 to 8)."""
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


@dataclass(frozen=True, slots=True)
class Donor:
    """A measured machine and a recipe of its class, in place of a machine that nobody measured and its own.

    Attributes:
        device: the machine.
        recipe: name of the recipe.
        weight: among the donors of a row, whose weights add up to one.
    """

    device: Device
    recipe: str
    weight: float


def kernel_values(
    kernel: KernelKind, device: Device, width: Width, recipes: Sequence[str], *, fitted: FittedConstants
) -> dict[str, float]:
    """Constants of a row by name, those of its machine and those of its recipe.

    Args:
        kernel: its kind.
        device: its machine.
        width: bits of its operands.
        recipes: names under which its recipe's may stand, nearest first.
        fitted: constants of measured machines and recipes.
    """
    own = machine_values(kernel, device, width, fitted=fitted) | recipe_values(kernel, recipes, fitted=fitted)
    found = () if kernel not in _PAIRED else donors(kernel, device, width, recipes, fitted=fitted)
    if not found:
        return own
    logs: dict[str, float] = {}
    for donor in found:
        values = _as_if(kernel, donor.device, device, width, fitted=fitted)
        values |= recipe_values(kernel, [donor.recipe], fitted=fitted)
        for name, value in values.items():
            logs[name] = logs.get(name, 0.0) + donor.weight * math.log(value)
    values = own | {name: math.exp(value) for name, value in logs.items()}
    return values | {name: own[name] for name in (HOST, HOST_CALLS) if name in own}


def donors(
    kernel: KernelKind, device: Device, width: Width, recipes: Sequence[str], *, fitted: FittedConstants
) -> tuple[Donor, ...]:
    """What stands in for an unmeasured machine, or for a measured one whose class lacks a recipe; else nothing.

    It is measured machines, of its maker if there are any, each with a recipe. A recipe that its class has under the
    row's own library counts more than one of another library; formats are not mixed. The nearest library that any class
    has decides whether a measured machine's own lacks it.
    """
    is_measured = fitted.has(kernel_group(kernel, Owner.MACHINE, device.name))
    if is_measured and _is_known(kernel, recipes[0], fitted):
        return ()
    measured = _measured(kernel, fitted)
    own = [each for each in measured if each.maker == device.maker]
    pairs = _pairs(kernel, own, recipes, fitted) or _pairs(kernel, measured, recipes, fitted)
    if any(each.name == device.name and rank == 0 for rank, each, _ in pairs):
        return ()
    far = [_distance(each, device, width) + ANOTHER_LIBRARY * rank for rank, each, _ in pairs]
    weights = [(SAME + value) ** -2.0 for value in far]
    total = sum(weights)
    return tuple(Donor(each, name, weight / total) for (_, each, name), weight in zip(pairs, weights, strict=True))


def _pairs(
    kernel: KernelKind, measured: Sequence[Device], recipes: Sequence[str], fitted: FittedConstants
) -> list[tuple[int, Device, str]]:
    """Measured machines with recipes of their classes, and how many libraries stand before each."""
    found: list[tuple[int, Device, str]] = []
    bases = list(dict.fromkeys(name.partition(CLASS)[0] for name in recipes))
    rank, number_format = 0, ""
    for base in bases:
        if number_format and base.rpartition("/")[2] != number_format:
            continue
        ends = {each.name: f"{CLASS}{machine_classes(each)[0]}" if CLASS in recipes[0] else "" for each in measured}
        own = [(rank, each, name) for each in measured if _is_known(kernel, name := base + ends[each.name], fitted)]
        if own:
            found += own
            rank, number_format = rank + 1, base.rpartition("/")[2]
    return found


def _is_known(kernel: KernelKind, recipe: str, fitted: FittedConstants) -> bool:
    """Whether more is fitted to a recipe than the host's calls."""
    return bool(fitted.groups.get(kernel_group(kernel, Owner.RECIPE, recipe), {}).keys() - {HOST_CALLS})


def _measured(kernel: KernelKind, fitted: FittedConstants) -> list[Device]:
    return [each for each in shipped_devices().devices if fitted.has(kernel_group(kernel, Owner.MACHINE, each.name))]


def _as_if(
    kernel: KernelKind, kin: Device, device: Device, width: Width, *, fitted: FittedConstants
) -> dict[str, float]:
    """Constants of a measured machine as another of its kind would have them."""
    found = machine_values(kernel, kin, width, fitted=fitted)
    if "sustained" in found:
        found["sustained"] = min(MOST_CARRIED, found["sustained"] * _carried_over(kin, device, width))
    return found


def machine_values(kernel: KernelKind, device: Device, width: Width, *, fitted: FittedConstants) -> dict[str, float]:
    """Constants of a machine by name, for operands of a width; of its kin where nothing was fitted to it."""
    known = fitted.groups.get(kernel_group(kernel, Owner.MACHINE, device.name))
    kin = None if known else nearest_kin(kernel, device, width, fitted=fitted)
    if kin is not None:
        found = _as_if(kernel, kin, device, width, fitted=fitted)
        return found | ({HOST: _host_s(device, width, fitted)} if HOST in found else {})
    found = {}
    for constant in CONSTANTS[kernel]:
        if constant.owner is Owner.MACHINE:
            value = (known or {}).get(constant.name, constant.start)
            found[constant.name] = (known or {}).get(f"{constant.name}.{width}", value) if constant.widths else value
    return found


def _host_s(device: Device, width: Width, fitted: FittedConstants) -> float:
    """Time of an eager call: of the nearest machine with its host where that is known, else of the nearest at all."""
    groups = {
        each.name: fitted.groups[kernel_group(KernelKind.MATMUL, Owner.MACHINE, each.name)]
        for each in _measured(KernelKind.MATMUL, fitted)
    }
    seen = [each for each in _measured(KernelKind.MATMUL, fitted) if HOST in groups[each.name]]
    alike = [each for each in seen if each.host == device.host]
    kin = min(alike or seen, key=lambda each: (_distance(each, device, width), each.name), default=None)
    return _START_HOST_S if kin is None else groups[kin.name][HOST]


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
    measured = [each for each in _measured(kernel, fitted) if each.name != device.name]
    own = [each for each in measured if each.maker == device.maker]
    alike = [each for each in own if is_board(each) == is_board(device)]
    return min(alike or own or measured, key=lambda each: (_distance(each, device, width), each.name), default=None)


def kin_distance(kernel: KernelKind, device: Device, width: Width, *, fitted: FittedConstants) -> float:
    """How far the nearest other measured machine's data sheet is, a sum of squared logarithms; infinite without one."""
    kin = nearest_kin(kernel, device, width, fitted=fitted)
    return math.inf if kin is None else _distance(kin, device, width)


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


def unit_ratio(device: Device) -> float:
    """Rate that multiprocessors are made for over the 16-bit peak: GeForce boards sum in 32 bits at half of it.

    Eight-bit integers, which no maker slows down, go at twice the whole rate.
    """
    wide = width_peak(device, Width.WIDE)
    return max(1.0, float(round(device.peak_flops_per_s.get(ComputePath.INT8, 0.0) / (2.0 * wide))))


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


def machine_classes(device: Device) -> tuple[str, ...]:
    """Class of a machine that libraries have kernels of their own for, and the others, nearest first.

    Another maker's machines are a class. NVIDIA's are told apart by the narrowest operands that their units multiply,
    16, 8 or 4 bits, and by their memory: boards with GDDR have far less of its rate for a multiprocessor.
    """
    bits = 4 if device.fp4_peak_flops_per_s else 8 if ComputePath.FP8 in device.peak_flops_per_s else 16
    return _classes(device.maker, bits, is_board=is_board(device))


@lru_cache(maxsize=64)
def _classes(maker: str, bits: int, *, is_board: bool) -> tuple[str, ...]:
    near = sorted((4, 8, 16), key=lambda each: abs(math.log2(each / bits)))
    kinds = ("board", "hbm") if is_board else ("hbm", "board")
    found = tuple(f"{kind}-{each}" for kind in kinds for each in near)
    return found if maker == "nvidia" else (maker, *found)
