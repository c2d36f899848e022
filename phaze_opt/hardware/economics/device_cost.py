"""What devices cost to make, part by part, and what making them emits; columns of many designs.

What a device costs are made of: of a designed die, and of machines that exist where their parts are published.
"""

import re
from dataclasses import dataclass, field, fields

import numpy as np

from phaze_opt.errors import InputError
from phaze_opt.hardware.accelerator import Accelerator, AcceleratorTable, table_of
from phaze_opt.hardware.constants import Constants
from phaze_opt.hardware.device import Device
from phaze_opt.hardware.device_catalogue import told_name
from phaze_opt.hardware.economics.prices import MM2_PER_CM2, Wafer, figures_of, grid_g_per_kwh, load_prices
from phaze_opt.hardware.silicon.chip_silicon import Dies
from phaze_opt.hardware.silicon.die_constants import load_die_constants
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


_PROCESS = {28: "n28", 16: "n16", 12: "n16", 8: "n8", 7: "n7", 6: "n6", 5: "n5", 4: "n5", 3: "n3"}
"""Processes with prices by nanometres: 12 nm is a form of 16, 4 nm one of 5."""
COLUMNS = ("die_mm2", "package_mm2", "num_stacks", "memory_bytes", "link_bytes_per_s", "tdp_w", "num_dies")
"""Figures of `DeviceParts` that each chip has."""


def parts_of_chips(chips: AcceleratorTable, constants: Constants, *, link_bytes_per_s: float) -> DeviceParts:
    """Parts of designed chips, columns of shape (num_chips,).

    Args:
        chips: the chips.
        constants: that have a die.
        link_bytes_per_s: links one way of chips that state none.
    """
    dies = Dies.of(chips, constants, link_bytes_per_s=link_bytes_per_s)
    return DeviceParts(
        dies.model.process.name,
        die_mm2=dies.area_mm2 / dies.columns.num_chiplets,
        package_mm2=dies.edge.package_mm2,
        num_stacks=dies.columns.hbm_stacks,
        memory_bytes=np.asarray(chips.hbm_bytes, dtype=np.float64),
        link_bytes_per_s=dies.columns.link_bytes_per_s,
        tdp_w=dies.power.total,
        num_dies=dies.columns.num_chiplets,
    )


def chip_cost(
    chips: AcceleratorTable, constants: Constants, *, link_bytes_per_s: float, prices: Constants | None = None
) -> DeviceCost:
    """Cost of every device by part, USD.

    Args:
        chips: the chips.
        constants: that have a die (`silicon.has_die`).
        link_bytes_per_s: links one way of chips that state none: those of the network, or of the space's silicon.
        prices: in force; the package's by default.
    """
    parts = parts_of_chips(chips, constants, link_bytes_per_s=link_bytes_per_s)
    return device_cost(parts, load_prices() if prices is None else prices)


def parts_of_chip(chip: Accelerator, constants: Constants, *, link_bytes_per_s: float) -> DeviceParts:
    """Parts of one designed chip; see `parts_of_chips`."""
    parts = parts_of_chips(table_of(chip), constants, link_bytes_per_s=link_bytes_per_s)
    columns = {name: np.broadcast_to(getattr(parts, name), 1)[0] for name in COLUMNS}
    return _parts(parts.process, **{name: float(value) for name, value in columns.items()})


def parts_of_machine(device: Device, known: Constants, *, link_bytes_per_s: float) -> DeviceParts:
    """Parts of a machine that exists.

    Raises:
        InputError: die, process, stacks of HBM or power are not published, or it has several dies.
    """
    limits = load_die_constants()
    stacks, process = stacks_of_machine(device, known), priced_process(device.process)
    missing = [
        name
        for name, is_known in (
            ("die", device.die_mm2 > 0.0),
            ("process", bool(process)),
            ("stacks of HBM", stacks > 0),
            ("power", device.tdp_w > 0.0),
        )
        if not is_known
    ]
    if missing:
        named = " and ".join(filter(None, (", ".join(missing[:-1]), missing[-1])))
        message = f"what {told_name(device)} costs is not known: its {named} are not published as one die's"
        raise InputError(message, key="cost")
    if device.die_mm2 > limits.value("package.reticle_mm2"):
        message = f"what {told_name(device)} costs is not known: {device.die_mm2:,.0f} mm2 are several dies"
        raise InputError(message, key="cost")
    return _parts(
        process,
        die_mm2=device.die_mm2,
        package_mm2=device.die_mm2 + limits.value("package.stack_mm2") * stacks,
        num_stacks=stacks,
        memory_bytes=device.hbm_bytes,
        link_bytes_per_s=link_bytes_per_s,
        tdp_w=device.tdp_w,
        num_dies=1.0,
    )


def stacks_of_machine(device: Device, known: Constants) -> int:
    """Published stacks of HBM beside one die; 0 where none are."""
    if device.layout is not None and device.layout.hbm_stacks:
        return device.layout.hbm_stacks
    entry = known.entries.get(f"machine.{device.name}.hbm_stacks")
    return 0 if entry is None else round(entry.value)


def priced_process(words: str) -> str:
    """The process with prices that a maker's words name, such as ``n7`` of TSMC N7; empty of several, or of none."""
    found = [int(each) for each in re.findall(r"\d+", words)]
    return _PROCESS.get(found[0], "") if len(found) == 1 else ""


def _parts(process: str, **figures: float) -> DeviceParts:
    return DeviceParts(process, *(np.asarray(float(figures[name])) for name in COLUMNS))
