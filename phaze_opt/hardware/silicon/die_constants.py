"""Constants of the die model: read from die_constants.toml, those of areas as fitted to whole dies."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from functools import cache
from importlib import resources
from types import MappingProxyType

from phaze_opt.errors import InputError
from phaze_opt.hardware.constants import Constants, parse_constants
from phaze_opt.hardware.fitted import FittedConstants, load_fitted
from phaze_opt.record.document import parse_toml
from phaze_opt.record.suggestions import suggest
from phaze_opt.units import GIBI, GIGA, PICO

AREA_GROUP = "silicon/area"
"""Group of the fitted areas in fitted_constants.json."""
FITTED_AREAS = (
    "mac_um2",
    "byte_mac_share",
    "threaded_lane_um2",
    "vector_lane_um2",
    "fp64_lane_um2",
    "buffer_cell_share",
    "local_cell_share",
    "local_port_um2_per_byte",
    "network_um2_per_byte",
    "hbm_stack_mm2",
    "link_mm2_per_gb_per_s",
    "host_mm2",
    "used_share",
)
"""Constants that whole dies fit; the others of `AreaConstants` are fixed."""


class HbmGeneration(StrEnum):
    """Generations of HBM, as die_constants.toml names them."""

    HBM2 = "hbm2"
    HBM2E = "hbm2e"
    HBM3 = "hbm3"
    HBM3E = "hbm3e"
    HBM4 = "hbm4"


@dataclass(frozen=True, slots=True)
class DieProcess:
    """A process against N7: area of logic and of memory cells, and energy of an operation."""

    name: str
    logic: float
    memory: float
    energy: float


@dataclass(frozen=True, slots=True)
class HbmStack:
    """One stack of a generation; ``interface`` is the area of its PHY and controller over that of 1,024 bits."""

    generation: HbmGeneration
    capacity_bytes: int
    bandwidth_bytes_per_s: float
    j_per_bit: float
    interface: float


@dataclass(frozen=True, slots=True)
class AreaConstants:
    """Constants of areas at N7, named and in units as in die_constants.toml under ``area``."""

    mac_um2: float
    byte_mac_share: float
    threaded_lane_um2: float
    vector_lane_um2: float
    fp64_lane_um2: float
    buffer_cell_share: float
    local_cell_share: float
    local_port_um2_per_byte: float
    network_um2_per_byte: float
    hbm_stack_mm2: float
    link_mm2_per_gb_per_s: float
    host_mm2: float
    used_share: float
    sram_bit_um2: float
    register_cell_share: float
    network_reference_mm2: float
    phy_share: float
    dram_phy_mm2_per_bit: float
    bank_port_bytes: float
    bank_overhead_bytes: float
    die_to_die_mm2_per_gb_per_s: float


@dataclass(frozen=True, slots=True)
class PowerConstants:
    """Constants of powers at N7 and the reference voltage, as in die_constants.toml under ``power`` and ``voltage``."""

    mac_pj: float
    byte_mac_share: float
    threaded_lane_pj: float
    vector_lane_pj: float
    local_pj_per_byte: float
    network_pj_per_byte: float
    network_reference_mm2: float
    memory_share: float
    link_pj_per_bit: float
    die_to_die_pj_per_bit: float
    static_w_per_mm2: float
    board_w: float
    most_w_per_mm2: float
    base_v: float
    per_ghz_v: float
    reference_ghz: float


_PROCESS_OF: Mapping[float, str] = MappingProxyType(
    {28: "n28", 16: "n16", 14: "n16", 12: "n16", 10: "n8", 8: "n8", 7: "n7", 6: "n6", 5: "n5", 4: "n5", 3: "n3"}
)
"""DieProcess by nanometres; neighbours that no table tells apart are one."""


@cache
def load_die_constants() -> Constants:
    """All constants of the die model with ranges and sources; areas as expected, not as fitted."""
    text = resources.files("phaze_opt.hardware.silicon").joinpath("die_constants.toml").read_text(encoding="utf-8")
    return parse_constants(parse_toml(text, source="die_constants.toml"))


def area_constants(fitted: FittedConstants | None = None, *, known: Constants | None = None) -> AreaConstants:
    """Areas: those of ``fitted`` where its group `AREA_GROUP` has them, else what is expected.

    Args:
        fitted: the package's own unless given.
        known: all constants of the model; the package's own unless given.
    """
    values = (load_fitted() if fitted is None else fitted).groups.get(AREA_GROUP, {})
    constants = load_die_constants() if known is None else known
    names = [each.name for each in fields(AreaConstants)]
    return AreaConstants(**{name: values.get(name, constants.value(f"area.{name}")) for name in names})


def power_constants(known: Constants | None = None) -> PowerConstants:
    """Powers; ``known`` are all constants of the model, the package's own unless given."""
    constants = load_die_constants() if known is None else known
    voltages = ("base_v", "per_ghz_v", "reference_ghz")
    keys = {each.name: "voltage" if each.name in voltages else "power" for each in fields(PowerConstants)}
    return PowerConstants(**{name: constants.value(f"{table}.{name}") for name, table in keys.items()})


def process_of(nanometres: float, *, known: Constants | None = None, key: str = "node") -> DieProcess:
    """The process of a node; ``key`` is what states it, for messages.

    Raises:
        InputError: the model knows none of so many nanometres.
    """
    name = _PROCESS_OF.get(nanometres)
    if name is None:
        listed = ", ".join(f"{each:g}" for each in _PROCESS_OF)
        message = f"no process of {nanometres:g} nm is known: the die model holds for {listed} nm"
        raise InputError(message, key=key)
    constants = load_die_constants() if known is None else known
    return DieProcess(name, *(constants.value(f"process.{name}.{each}") for each in ("logic", "memory", "energy")))


def hbm_stack(name: str, *, known: Constants | None = None) -> HbmStack:
    """A stack of a generation of HBM.

    Raises:
        InputError: no generation has this name, with a near miss.
    """
    generations = tuple(each.value for each in HbmGeneration)
    if name not in generations:
        message = f"no generation of HBM is named '{name[:40]}'; {suggest(name, generations)}"
        raise InputError(message, key="hbm_generation")
    constants = load_die_constants() if known is None else known
    gib, gb_per_s, pj, interface = (
        constants.value(f"hbm.{name}.{each}") for each in ("stack_gib", "stack_gb_per_s", "pj_per_bit", "interface")
    )
    return HbmStack(HbmGeneration(name), round(gib * GIBI), gb_per_s * GIGA, pj * PICO, interface)
