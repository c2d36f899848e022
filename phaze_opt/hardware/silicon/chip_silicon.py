"""Areas, powers, energies and limits of chips by the silicon that the constants have: dies, or the 22 nm tables."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from phaze_opt.hardware.accelerator import Accelerator, AcceleratorTable, table_of
from phaze_opt.hardware.area import AccessEnergies, access_energies, area_um2_table, tdp_w_table
from phaze_opt.hardware.constants import Constants
from phaze_opt.hardware.designed_chip import BANK_RULE
from phaze_opt.hardware.network import Network
from phaze_opt.hardware.silicon.chiplets import delivered_bytes_per_s
from phaze_opt.hardware.silicon.die_area import DieArea, die_area
from phaze_opt.hardware.silicon.die_columns import DieColumns, DieRates, dies_of, rates_of
from phaze_opt.hardware.silicon.die_edge import DieEdge, Held, Limit, all_kept, broken_limits, die_edge, number_of
from phaze_opt.hardware.silicon.die_power import DiePower, cycle_energy_scale, die_power, network_pj_per_byte
from phaze_opt.hardware.silicon.silicon import DIE_PREFIX, DieModel, die_model, has_die, link_rate
from phaze_opt.record.arrays import Flags, Floats
from phaze_opt.record.near_ties import is_at_most
from phaze_opt.units import BITS_PER_BYTE, PICO, UM2_PER_MM2

BANKS = BANK_RULE.removeprefix(DIE_PREFIX)
"""Bytes of a buffer for each byte a cycle, among the limits of a `DieModel`."""
ROUNDING = 1e-9
"""A rate of whole bytes a cycle, times the clock and over it, may exceed itself by so much."""


@dataclass(frozen=True, slots=True, eq=False)
class Dies:
    """Dies of chips, and what their areas come to, by component and in all; columns of the shape of the chips."""

    model: DieModel
    columns: DieColumns
    rates: DieRates
    area: DieArea
    area_mm2: Floats

    @classmethod
    def of(cls, chips: AcceleratorTable, constants: Constants, *, link_bytes_per_s: float | None = None) -> "Dies":
        """The dies of chips under constants that have a die.

        Args:
            chips: the chips.
            constants: that have a die (`silicon.has_die`).
            link_bytes_per_s: links one way of chips that state none; those of the constants' silicon by default.
        """
        model = die_model(constants)
        if link_bytes_per_s is not None:
            model = replace(model, link_bytes_per_s=link_bytes_per_s)
        return cls.by(model, chips, constants)

    @classmethod
    def by(cls, model: DieModel, chips: AcceleratorTable, sizing: Constants) -> "Dies":
        """The same by constants of the die model and those that size local buffers."""
        process, stack = model.process, model.stack
        columns = dies_of(
            chips,
            process=process,
            stack=stack,
            link_bytes_per_s=model.link_bytes_per_s,
            most_crossing_bytes_per_s=model.crossing_bytes_per_s,
            constants=sizing,
        )
        area = die_area(columns, model.area)
        return cls(model, columns, rates_of(chips, stack), area, area.total)

    @property
    def edge(self) -> DieEdge:
        """Edges and packages."""
        columns = self.columns
        return die_edge(
            self.area_mm2,
            columns.hbm_stacks,
            columns.link_bytes_per_s,
            self.model.limits,
            num_chiplets=columns.num_chiplets,
            crossing_bytes_per_s=columns.crossing_bytes_per_s,
        )

    @property
    def limits(self) -> Mapping[Limit, Held]:
        """Every limit of what could be built and run."""
        return {**self.edge.limits, Limit.BANKS: self._banks(), Limit.COOLING: self._cooling()}

    @property
    def is_buildable(self) -> Flags:
        """Whether each keeps to all `limits`."""
        return all_kept(self.limits)

    def _banks(self) -> Held:
        """Whether the buffer is large enough for what it delivers: banks of a size that is built."""
        size, rate, least = (
            self.columns.buffer_bytes,
            self.columns.buffer_bytes_per_cycle,
            self.model.limits.value(BANKS),
        )
        return Held(size / rate, np.asarray(least), np.asarray(size >= least * rate * (1.0 - ROUNDING)))

    def _cooling(self) -> Held:
        """Whether the power at full rate is no more than is cooled away from so large a die."""
        area_mm2, power_w, most = self.area_mm2, self.power.total, self.model.power.most_w_per_mm2
        return Held(power_w / area_mm2, np.asarray(most), is_at_most(power_w, most * area_mm2))

    @property
    def power(self) -> DiePower:
        """Powers at full rate by component."""
        return die_power(self.columns, self.rates, self.area_mm2, self.model.power)


def chip_area_mm2(chips: AcceleratorTable, constants: Constants) -> Floats:
    """Area of every chip, mm^2: of the whole die, or what the tables at 22 nm count."""
    if has_die(constants):
        return Dies.of(chips, constants).area_mm2
    return np.asarray(area_um2_table(chips, constants=constants) / UM2_PER_MM2)


def area_mm2_of(accelerator: Accelerator, constants: Constants) -> float:
    """Area of one chip, mm^2; see `chip_area_mm2`."""
    return float(chip_area_mm2(table_of(accelerator), constants)[0])


def over_reticle(accelerator: Accelerator, constants: Constants) -> tuple[float, str]:
    """By what share a die, or each chiplet of one, exceeds the reticle, and a sentence on it.

    0 and nothing of a die that does not, and of chips of the tables at 22 nm.
    """
    if not has_die(constants):
        return 0.0, ""
    held = Dies.of(table_of(accelerator), constants).edge.limits[Limit.RETICLE]
    words = broken_limits({Limit.RETICLE: held})
    return (number_of(held.has / held.allowed) - 1.0, words[0]) if words else (0.0, "")


def chip_power_w(chips: AcceleratorTable, network: Network, constants: Constants) -> Floats:
    """Power of every chip with all it has at full rate, W: that of its die, or the TDP of the tables at 22 nm.

    Args:
        chips: the chips.
        network: whose links they drive.
        constants: in force.
    """
    if has_die(constants):
        return die_power_w(chips, constants, link_bytes_per_s=link_rate(network))
    return tdp_w_table(chips, network, constants)


def die_power_w(chips: AcceleratorTable, constants: Constants, *, link_bytes_per_s: float | None = None) -> Floats:
    """The same of dies that drive links of a rate, by default those of the constants' silicon."""
    return Dies.of(chips, constants, link_bytes_per_s=link_bytes_per_s).power.total


def power_w_of(accelerator: Accelerator, network: Network, constants: Constants) -> float:
    """Power of one chip, W; see `chip_power_w`."""
    return float(chip_power_w(table_of(accelerator), network, constants)[0])


def chip_energies(chips: AcceleratorTable, constants: Constants) -> AccessEnergies:
    """Dynamic energies of every chip; on a die a multiply-accumulate comes with its registers."""
    if not has_die(constants):
        return access_energies(chips, constants)
    dies = Dies.of(chips, constants)
    power, shape = dies.model.power, np.shape(chips.num_tc)
    scale = PICO * cycle_energy_scale(dies.columns.energy, chips.clock_hz, power)
    columns = dies.columns
    network_pj = network_pj_per_byte(dies.area_mm2 / columns.num_chiplets, power)
    crossing_pj = BITS_PER_BYTE * power.die_to_die_pj_per_bit
    memory_j = BITS_PER_BYTE * power.memory_share * dies.model.stack.j_per_bit
    return AccessEnergies(
        mac_j=scale * power.mac_pj * dies.columns.mac_energy,
        l1_j_per_mac=np.zeros(shape),
        l2_j_per_byte=scale * power.local_pj_per_byte,
        glb_j_per_byte=scale * network_pj * (1.0 + columns.crossings) + PICO * crossing_pj * columns.crossings,
        hbm_j_per_byte=np.full(shape, memory_j),
        lane_j=scale * power.vector_lane_pj,
        link_j_per_byte=np.full(shape, BITS_PER_BYTE * PICO * power.link_pj_per_bit),
    )


def fed_chips(chips: AcceleratorTable, constants: Constants) -> AcceleratorTable:
    """The chips with the rate that their cores get of the buffer: of chiplets, what crossings between them leave."""
    if not (has_die(constants) and np.any(chips.chiplets > 1)):
        return chips
    rate = delivered_bytes_per_s(chips, die_model(constants).crossing_bytes_per_s)
    return replace(chips, glb_bandwidth_bytes_per_s=rate)


def link_pj_per_bit(constants: Constants) -> float:
    """Energy of a bit over a link to another device, pJ."""
    return (
        die_model(constants).power.link_pj_per_bit if has_die(constants) else constants.value("energy.link_pj_per_bit")
    )


def static_w_per_mm2(constants: Constants) -> float:
    """Leakage, W/mm^2."""
    if has_die(constants):
        return die_model(constants).power.static_w_per_mm2
    return constants.value("energy.static_w_per_mm2")
