"""What devices cost to make, part by part, and what making them emits; columns of many designs."""

from dataclasses import dataclass, field, fields

import numpy as np

from phaze_opt.hardware.constants import Constants
from phaze_opt.hardware.economics.prices import MM2_PER_CM2, Wafer, figures_of, grid_g_per_kwh
from phaze_opt.record.arrays import Floats
from phaze_opt.units import GIBI, GIGA

G_PER_KG = 1000.0
MAKERS_GRID = "taiwan"
"""Where dies are made."""


@dataclass(frozen=True, slots=True)
class DeviceParts:
    """What costs are made of; columns of shape (num_designs,), or numbers that broadcast.

    Attributes:
        process: name in the die model, such as ``n7``.
        die_mm2: of one die, a chiplet where the die is split.
        package_mm2: of all dies and stacks of HBM.
        num_stacks: of HBM.
        memory_bytes: capacity; makers and prices count it in binary GB.
        link_bytes_per_s: of all links, one way.
        tdp_w: at full rate.
        num_dies: equal dies of a package, all of one design.
    """

    process: str
    die_mm2: Floats
    package_mm2: Floats
    num_stacks: Floats
    memory_bytes: Floats
    link_bytes_per_s: Floats
    tdp_w: Floats
    num_dies: Floats = field(default_factory=lambda: np.ones(()))


@dataclass(frozen=True, slots=True)
class DeviceCost:
    """USD a device, by part; columns of shape (num_designs,).

    Attributes:
        dies: good ones, of several each known to be.
        package: substrate and interposer, and dies and stacks that bonding loses.
        memory: HBM.
        board: board, power delivery, cooling, its share of host and rack.
        links: its share of cables, adapters and switches.
        design: its share of what designing the chip cost, once for equal chiplets, with the interface between them.
    """

    dies: Floats
    package: Floats
    memory: Floats
    board: Floats
    links: Floats
    design: Floats

    @property
    def usd(self) -> Floats:
        """All of it."""
        return np.asarray(sum(getattr(self, each.name) for each in fields(self)))


def device_cost(parts: DeviceParts, known: Constants) -> DeviceCost:
    """What a device costs; inf of a die that fits on no wafer."""
    figures = figures_of(parts.process, known)
    tests = known.value("chiplets.test_usd") * (parts.num_dies - 1.0)
    dies = parts.num_dies * figures.wafer.usd_of_good_die(parts.die_mm2) + tests
    interface = known.value("chiplets.design_share") * (parts.num_dies > 1.0)
    memory = known.value("memory.hbm_usd_per_gb") * parts.memory_bytes / GIBI
    return DeviceCost(
        dies=dies,
        package=_package_usd(parts, dies + memory, known),
        memory=memory,
        board=known.value("board.usd") + known.value("board.usd_per_w") * parts.tdp_w,
        links=known.value("links.usd_per_gb_per_s") * parts.link_bytes_per_s / GIGA,
        design=np.full(np.shape(dies), figures.design_usd / known.value("volume.devices")) * (1.0 + interface),
    )


def _package_usd(parts: DeviceParts, contents_usd: Floats, known: Constants) -> Floats:
    """Interposer and substrate with what both bondings lose: a failed one costs all that was bonded before.

    Every die and stack is bonded to the interposer, and the whole to the substrate once.
    """
    value = known.value
    interposer_mm2 = value("package.interposer_area_factor") * parts.package_mm2
    wafer = Wafer(
        value("package.interposer_wafer_usd"),
        value("package.interposer_defects_per_cm2"),
        value("package.interposer_clusters"),
        *(value(f"wafer.{name}") for name in ("diameter_mm", "scribe_mm", "edge_mm")),
    )
    interposer = wafer.usd_of_good_die(interposer_mm2)
    substrate = value("package.substrate_usd_per_mm2") * value("package.substrate_area_factor") * parts.package_mm2
    attempts = value("package.bond_yield") ** -(parts.num_dies + parts.num_stacks)
    shipped = 1.0 / value("package.substrate_bond_yield")
    lost_usd = contents_usd * (attempts * shipped - 1.0)
    return np.asarray(lost_usd + (interposer * attempts + substrate) * shipped)


def embodied_kg(parts: DeviceParts, known: Constants, *, grid: str = MAKERS_GRID) -> Floats:
    """CO2e of making a device, kg, after ACT (Gupta et al., ISCA 2022): packaging, dies by their yield, and memory."""
    figures = figures_of(parts.process, known)
    per_cm2 = die_g_per_cm2(parts.process, known, grid=grid) / figures.wafer.share_good(parts.die_mm2)
    dies_g = parts.num_dies * parts.die_mm2 / MM2_PER_CM2 * per_cm2
    chips = parts.num_dies + parts.num_stacks
    memory_g = known.value("memory.hbm_g_per_gb") * parts.memory_bytes / GIBI
    return np.asarray((chips * known.value("carbon.package_g") + dies_g + memory_g) / G_PER_KG)


def die_g_per_cm2(process: str, known: Constants, *, grid: str = MAKERS_GRID) -> float:
    """CO2e of a square centimetre of wafer, g: electricity, gases, materials."""
    figures = figures_of(process, known)
    electricity = grid_g_per_kwh(grid, known) * figures.kwh_per_cm2
    return electricity + figures.gas_g_per_cm2 + known.value("carbon.material_g_per_cm2")
