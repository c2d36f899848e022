"""What a device costs are made of: of a designed die, and of machines that exist where their parts are published."""

import re

import numpy as np

from phaze_opt.errors import InputError
from phaze_opt.hardware.accelerator import Accelerator, AcceleratorTable, table_of
from phaze_opt.hardware.constants import Constants
from phaze_opt.hardware.device import Device
from phaze_opt.hardware.device_catalogue import told_name
from phaze_opt.hardware.economics.device_cost import DeviceCost, DeviceParts, device_cost
from phaze_opt.hardware.economics.prices import load_prices
from phaze_opt.hardware.silicon.chip_silicon import Dies
from phaze_opt.hardware.silicon.die_constants import load_die_constants

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
