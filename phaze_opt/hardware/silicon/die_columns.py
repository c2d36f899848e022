"""What stands on a die, as columns of many: the input of areas, edges and powers."""

import math
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from phaze_opt.hardware.accelerator import AcceleratorTable
from phaze_opt.hardware.area import array_inputs, vc_l2_bytes_of
from phaze_opt.hardware.constants import Constants
from phaze_opt.hardware.flexibility import freedom_scale
from phaze_opt.hardware.pipelining import mac_area
from phaze_opt.hardware.silicon.chiplets import built, count_of, crossing_bytes_per_s, crossings_of
from phaze_opt.hardware.silicon.die_constants import DieProcess, HbmStack
from phaze_opt.hardware.sparse_array import choice_scale
from phaze_opt.record.arrays import Floats, Ints

REGISTER_BYTES_PER_LANE = 64
"""Registers of a vector lane: TPUv4i has 128 KiB for 2,048 lanes."""
LANE_BYTES_PER_CYCLE = 6
"""A lane reads two 16-bit elements and writes one: 12,288 bytes a cycle of TPUv4i's 2,048 lanes."""


@dataclass(frozen=True, slots=True, eq=False)
class DieColumns:
    """What stands on dies; columns of shape (num_dies,), or numbers that broadcast.

    Attributes:
        logic, memory, energy: of the process, against N7 (`die_constants.DieProcess`).
        macs: 16-bit multiply-accumulates a cycle.
        mac_area: area of one over that of one without sub-stages, without a choice of inputs and of usual freedom
            (`pipelining.mac_area`, `sparse_array.choice_scale`, `flexibility.freedom_scale`).
        mac_energy: energy of one over that of one without a choice of inputs.
        byte_macs: multiply-accumulates a cycle of arrays that have 8 bits alone.
        threaded_lanes: fp32 lanes of a GPU, with issue and registers of many threads.
        vector_lanes: lanes of vector units that one program drives.
        fp64_lanes: fp64 lanes beside them.
        register_bytes: register files.
        local_bytes, local_bytes_per_cycle: memory beside cores, and what it delivers.
        buffer_bytes, buffer_bytes_per_cycle: chip-wide memory, and what it or a network in its place delivers.
        hbm_stacks: stacks of HBM.
        hbm_interface: area of a stack's interface over that of 1,024 bits.
        dram_bits: data bits of other external memory.
        link_bytes_per_s: links to other devices, one way.
        num_hosts: 1 with a host interface; 0 for a block or a chiplet without.
        num_dies: 1 for a die; 0 for a block inside one, which has no spare area of its own.
        num_chiplets: equal dies that all of this stands on, 1 where it is not split.
        crossings: between them, of a byte of the buffer.
        crossing_bytes_per_s: of all of them together, one way.
    """

    logic: Floats
    memory: Floats
    energy: Floats
    macs: Floats
    mac_area: Floats
    mac_energy: Floats
    byte_macs: Floats
    threaded_lanes: Floats
    vector_lanes: Floats
    fp64_lanes: Floats
    register_bytes: Floats
    local_bytes: Floats
    local_bytes_per_cycle: Floats
    buffer_bytes: Floats
    buffer_bytes_per_cycle: Floats
    hbm_stacks: Floats
    hbm_interface: Floats
    dram_bits: Floats
    link_bytes_per_s: Floats
    num_hosts: Floats
    num_dies: Floats
    num_chiplets: Floats = field(default_factory=lambda: np.ones(()))
    crossings: Floats = field(default_factory=lambda: np.zeros(()))
    crossing_bytes_per_s: Floats = field(default_factory=lambda: np.zeros(()))


@dataclass(frozen=True, slots=True, eq=False)
class DieRates:
    """What dies do at full rate; columns of shape (num_dies,), or numbers that broadcast.

    Attributes:
        clock_hz: of cores, memories and the network.
        active_share: share of the units on the die that the machine enables.
        memory_bytes_per_s: external memory.
        memory_j_per_bit: of it, stacks included.
    """

    clock_hz: Floats
    active_share: Floats
    memory_bytes_per_s: Floats
    memory_j_per_bit: Floats


def dies_of(
    chips: AcceleratorTable,
    *,
    process: DieProcess,
    stack: HbmStack,
    link_bytes_per_s: float,
    most_crossing_bytes_per_s: float = math.inf,
    constants: Constants,
) -> DieColumns:
    """The dies of designed chips, all of one process and one generation of HBM.

    A tensor core's L2 feeds w + d 16-bit elements a cycle; a vector lane reads two and writes one.

    Args:
        chips: sizes and rates.
        process: of the die.
        stack: of HBM; as many as hold the capacity and reach the bandwidth.
        link_bytes_per_s: links of a device that states none, one way, all dimensions of its network together.
        most_crossing_bytes_per_s: that a chiplet sends to others.
        constants: sizing of L2 buffers, and what sub-stages and choices of inputs add.
    """
    codes = chips.chiplets
    chips = replace(chips, num_tc=built(chips.num_tc, codes), num_vc=built(chips.num_vc, codes))
    lanes = chips.num_vc * chips.vc_width
    vector_l2 = chips.num_vc * vc_l2_bytes_of(chips.vc_width, chips.vc_l2_bytes, constants=constants)
    operand_bytes = chips.dtype_bytes * chips.num_tc * array_inputs(chips)
    none = np.zeros(())
    return DieColumns(
        logic=np.array(process.logic),
        memory=np.array(process.memory),
        energy=np.array(process.energy),
        macs=_floats(chips.num_tc * chips.tc_width * chips.tc_depth),
        mac_area=mac_area(chips.pipelining, constants)
        * choice_scale(chips.sparse_array, constants)
        * freedom_scale(chips, constants),
        mac_energy=choice_scale(chips.sparse_array, constants),
        byte_macs=none,
        threaded_lanes=none,
        vector_lanes=_floats(lanes),
        fp64_lanes=none,
        register_bytes=_floats(REGISTER_BYTES_PER_LANE * lanes),
        local_bytes=_floats(chips.num_tc * chips.l2_bytes + vector_l2),
        local_bytes_per_cycle=_floats(operand_bytes + LANE_BYTES_PER_CYCLE * lanes),
        buffer_bytes=_floats(chips.glb_bytes),
        buffer_bytes_per_cycle=chips.glb_bandwidth_bytes_per_s / chips.clock_hz,
        hbm_stacks=stacks_of(chips, stack),
        hbm_interface=np.array(stack.interface),
        dram_bits=none,
        link_bytes_per_s=np.where(chips.link_bytes_per_s > 0, chips.link_bytes_per_s, link_bytes_per_s),
        num_hosts=count_of(codes),
        num_dies=np.ones(()),
        num_chiplets=count_of(codes),
        crossings=crossings_of(codes),
        crossing_bytes_per_s=crossing_bytes_per_s(chips, most_crossing_bytes_per_s),
    )


def rates_of(chips: AcceleratorTable, stack: HbmStack) -> DieRates:
    """What designed chips do at full rate: every unit, and HBM at its bandwidth."""
    return DieRates(
        clock_hz=chips.clock_hz,
        active_share=np.ones(()),
        memory_bytes_per_s=chips.hbm_bandwidth_bytes_per_s,
        memory_j_per_bit=np.array(stack.j_per_bit),
    )


def stacks_of(chips: AcceleratorTable, stack: HbmStack) -> Floats:
    """The fewest stacks that hold the capacity and reach the bandwidth, or those stated; shape (num_chips,)."""
    by_capacity = np.ceil(_floats(chips.hbm_bytes) / stack.capacity_bytes)
    fewest = np.maximum(by_capacity, stacks_for_rate(chips.hbm_bandwidth_bytes_per_s, stack))
    return np.asarray(np.maximum(fewest, chips.hbm_stacks))


def stacks_for_rate(bytes_per_s: Floats | float, stack: HbmStack) -> Floats:
    """The fewest stacks that reach a bandwidth."""
    # A rate published as 3,350 GB/s on five stacks of 670 must not ask for a sixth by its last digit.
    return np.asarray(np.ceil(np.round(bytes_per_s / stack.bandwidth_bytes_per_s, 6)))


def _floats(values: Ints) -> Floats:
    return np.asarray(values, dtype=np.float64)


def total_of(parts: Any) -> Floats:
    """The sum of a dataclass's columns, added in the order of its fields."""
    return np.asarray(sum(getattr(parts, each.name) for each in fields(parts)), np.float64)
