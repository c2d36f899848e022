"""A chip as it is printed: the only file of the reports that names the parameters of a design."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TypeVar

from phaze_opt.hardware import chip_template
from phaze_opt.hardware.accelerator import Accelerator
from phaze_opt.hardware.chip_template import DesignPoint
from phaze_opt.hardware.device import Device
from phaze_opt.hardware.flexibility import SWITCHES, flexibility_class, stated_switches
from phaze_opt.hardware.pipelining import pipelining_of
from phaze_opt.hardware.sparse_array import sparse_array_of
from phaze_opt.objective.evaluation import Evaluation
from phaze_opt.objective.scenario import Scenario
from phaze_opt.report.table import Fields, number
from phaze_opt.report.text import format_capacity, format_mib
from phaze_opt.units import GIGA, KIBI, bytes_to_gib, bytes_to_mib

T = TypeVar("T")
OTHER_AXES = tuple(axis for axis in chip_template.AXES if axis.default is not None)
"""Parameters beyond those that the sentences and columns below name: each gets a phrase of its own where it is stated,
and a column where it has a value of its own; those that else follow from size and capacity stand with these."""


def _printed(axis: chip_template.Axis, point: DesignPoint) -> float:
    """A parameter in its unit; kinds by their number, as charts ask for one."""
    return axis.amount(getattr(point, axis.name))


CHIP_NOTE = "TC: cores x width x depth; VC: cores x lanes"
POINT_NOTE = f"{CHIP_NOTE}; mb: samples a micro-batch"
AXES: tuple[tuple[str, Callable[[DesignPoint], float]], ...] = (
    ("tensor cores", lambda point: point.num_tc),
    ("width", lambda point: point.tc_width),
    ("depth", lambda point: point.tc_depth),
    ("vector cores", lambda point: point.num_vc),
    ("GLB, MB", lambda point: bytes_to_mib(point.glb_bytes)),
    ("HBM, GB", lambda point: bytes_to_gib(point.hbm_bytes)),
    ("micro-batch", lambda point: point.micro_batch),
    *((axis.key, partial(_printed, axis)) for axis in OTHER_AXES),
)
"""Parameters of a design in the units they are printed in; 0 where it does not state one."""


def chip_fields(point_of: Callable[[T], DesignPoint]) -> Fields[T]:
    """Columns of a table that say what chip an item has; `CHIP_NOTE` explains them."""
    return (
        number("TC", lambda item: _tensor_cell(point_of(item))),
        number("VC", lambda item: _vector_cell(point_of(item))),
        number("GLB", lambda item: _buffer(point_of(item))),
        number("HBM GB", lambda item: _hbm(point_of(item))),
        *(number(axis.key, partial(_cell, axis, point_of)) for axis in OTHER_AXES if axis.default),
    )


def chip_note(points: Iterable[DesignPoint], *, has_micro_batch: bool = False) -> str:
    """What the columns of `chip_fields`, or of `trained_fields`, say of these chips."""
    note, chips = POINT_NOTE if has_micro_batch else CHIP_NOTE, list(points)
    is_stated = any(point.glb_bytes_per_cycle or point.hbm_stacks for point in chips)
    words = (
        ("; GLB: size @ bytes a cycle; HBM: stacks x GB", is_stated),
        ("; TC @ GHz", any(point.clock_hz for point in chips)),
        ("; 0 or 1: rigid or free in tiles, orders, splits and shapes", any(stated_switches(point) for point in chips)),
        ("; TC /N: on N chiplets", any(point.chiplets > 1 for point in chips)),
        ("; +K: KiB of L2 a core", any(point.l2_bytes or point.vc_l2_bytes for point in chips)),
        ("; HBM / GB/s of links", any(point.link_bytes_per_s for point in chips)),
    )
    return note + "".join(each for each, is_told in words if is_told)


def _tensor_cell(point: DesignPoint) -> str:
    clock = f" @{point.clock_hz / GIGA:g}" if point.clock_hz else ""
    kinds = f"{_kind(point.pipelining)}{_zeros(point.sparse_array)}{_mappings(point)}"
    split = f" /{point.chiplets}" if point.chiplets > 1 else ""
    return f"{_tensor_cores(point)}{_local(point.l2_bytes)}{clock}{kinds}{split}"


def _vector_cell(point: DesignPoint) -> str:
    return f"{_vector_cores(point)}{_local(point.vc_l2_bytes)}"


def _mappings(point: DesignPoint) -> str:
    """The class of freedom, and what a rigid order or split is, where a design states any."""
    stated = stated_switches(point)
    rigid = [stated[name] for name in ("loop_order", "core_split") if stated.get(name, "full") != "full"]
    return "".join(f" {each}" for each in [flexibility_class(point), *rigid]) if stated else ""


def _zeros(sparse_array: int) -> str:
    return f" {sparse_array_of(sparse_array).key}" if sparse_array else ""


def _kind(pipelining: int) -> str:
    return f" {pipelining_of(pipelining).key}" if pipelining else ""


def _local(l2_bytes: int) -> str:
    return f" +{l2_bytes / KIBI:g}K" if l2_bytes else ""


def _buffer(point: DesignPoint) -> str:
    size = format_mib(point.glb_bytes)
    return f"{size} @{point.glb_bytes_per_cycle}" if point.glb_bytes_per_cycle else size


def _hbm(point: DesignPoint) -> str:
    capacity, stacks = bytes_to_gib(point.hbm_bytes), point.hbm_stacks
    links = f" /{point.link_bytes_per_s / GIGA:g}" if point.link_bytes_per_s else ""
    return f"{stacks}x{capacity / stacks:g}{links}" if stacks else f"{capacity:g}{links}"


def trained_fields(point_of: Callable[[T], DesignPoint], evaluation_of: Callable[[T], Evaluation]) -> Fields[T]:
    """The chip and the micro-batch, of each model where each has its own; `POINT_NOTE` explains them."""
    return (*chip_fields(point_of), number("mb", lambda item: " ".join(map(str, evaluation_of(item).micro_batches))))


def arch_of(point: DesignPoint, scenario: Scenario) -> str:
    """The design as ``evaluate --arch`` takes it; beside Phaze's placements with its micro-batch, else a plan's."""
    return point.inline() + ("" if scenario.plans is not None else f" --micro-batch {point.micro_batch}")


def arch_option(point: DesignPoint, scenario: Scenario) -> str:
    """The design as an option of ``evaluate``, with those that say what it trains and how its layers run."""
    sparse = f" --sparsity {scenario.sparsity.option}" if scenario.sparsity is not None else ""
    fused = f" --layer-fusion {scenario.layer_fusion}" if scenario.layer_fusion else ""
    return f"--arch {arch_of(point, scenario)}{sparse}{fused}"


def describe_chip(point: DesignPoint) -> str:
    """The chip of a point: ``16 TC 128x128, 64 VC 128, GLB 32 MB, HBM 80 GB``."""
    return (
        f"{point.num_tc} TC {point.tc_width}x{point.tc_depth}, {point.num_vc} VC {point.vc_width}, "
        f"GLB {format_mib(point.glb_bytes)}, HBM {bytes_to_gib(point.hbm_bytes):g} GB{_others(point)}"
    )


def describe_point(point: DesignPoint) -> str:
    """The chip and the micro-batch."""
    return f"{describe_chip(point)}, micro-batch {point.micro_batch}"


def short_point(point: DesignPoint) -> str:
    """``16x128x128 TC, 128x128 VC, 8 MB, 80 GB, mb 8``: all axes, GLB before HBM: designs may differ in one."""
    return (
        f"{_tensor_cores(point)} TC, {_vector_cores(point)} VC, {format_mib(point.glb_bytes)}, "
        f"{format_capacity(point.hbm_bytes)}, mb {point.micro_batch}{_others(point)}"
    )


def describe_cores(chip: Accelerator) -> str:
    """Tensor and vector cores: ``16 tensor cores 128x128, 64 vector cores of 128``."""
    tensor = f"{chip.num_tc} tensor core{'s' if chip.num_tc > 1 else ''} {chip.tc_width}x{chip.tc_depth}"
    vector = f"{chip.num_vc} vector core{'s' if chip.num_vc > 1 else ''} of {chip.vc_width}"
    return f"{tensor}, {vector}"


def chip_words(chip: Accelerator) -> str:
    """What a chip is built of, without an abbreviation but HBM."""
    rate = f"{chip.hbm_bandwidth_bytes_per_s / GIGA:,.0f} GB/s"
    buffer, memory = format_mib(chip.glb_bytes), format_capacity(chip.hbm_bytes)
    split = f", on {chip.chiplets} chiplets" if chip.chiplets > 1 else ""
    return f"{describe_cores(chip)}, {buffer} of buffer, {memory} of HBM at {rate}{_kinds(chip)}{split}"


def _kinds(chip: Accelerator) -> str:
    """What its arrays can do beyond what is usual, where a chip states any of it."""
    zeros, overlap = sparse_array_of(chip.sparse_array), pipelining_of(chip.pipelining)
    usual = sparse_array_of(0), pipelining_of(0)
    switches = (chip_template.AXIS[name] for name in SWITCHES)
    words = (
        f"arrays that skip {zeros.key} zeros" if zeros != usual[0] else "",
        f"{overlap.key} sub-stages" if overlap != usual[1] else "",
        *(axis.describe(getattr(chip, axis.name)) for axis in switches if getattr(chip, axis.name)),
    )
    return "".join(f", {each}" for each in words if each)


def describe_memories(chip: Accelerator) -> str:
    """Buffer, memory and its bandwidth."""
    bandwidth = chip.hbm_bandwidth_bytes_per_s / 1e9
    return f"GLB {format_mib(chip.glb_bytes)}, HBM {format_capacity(chip.hbm_bytes)} at {bandwidth:,.0f} GB/s"


def compared_parts(old: Accelerator, new: Accelerator) -> Sequence[tuple[str, str, str]]:
    """Parts of two chips as (sentence part, its value on the old one, on the new one)."""
    return (
        ("{}", describe_cores(old), describe_cores(new)),
        ("a GLB of {}", *_buffers(old, new)),
        ("HBM of {}", format_capacity(old.hbm_bytes), format_capacity(new.hbm_bytes)),
        ("a clock of {}", f"{old.clock_hz / GIGA:g} GHz", f"{new.clock_hz / GIGA:g} GHz"),
        ("links of {}", f"{old.link_bytes_per_s / GIGA:g} GB/s", f"{new.link_bytes_per_s / GIGA:g} GB/s"),
        ("an L2 of {} a tensor core", *_local_sizes(old, new)),
        ("{} arrays", pipelining_of(old.pipelining).key, pipelining_of(new.pipelining).key),
        ("{} arrays", sparse_array_of(old.sparse_array).key, sparse_array_of(new.sparse_array).key),
        *(
            (axis.words, str(axis.printed(getattr(old, axis.name))), str(axis.printed(getattr(new, axis.name))))
            for axis in (chip_template.AXIS[name] for name in SWITCHES)
        ),
        ("{}", _chiplets(old), _chiplets(new)),
        ("an L2 of {} a vector core", f"{old.vc_l2_bytes / KIBI:g} KB", f"{new.vc_l2_bytes / KIBI:g} KB"),
    )


def _chiplets(chip: Accelerator) -> str:
    return chip_template.AXIS["chiplets"].phrase(f"{max(1, chip.chiplets)}")


def _local_sizes(old: Accelerator, new: Accelerator) -> tuple[str, str]:
    """L2s of tensor cores where these differ beyond what their arrays make them."""
    each = [chip.l2_bytes / (chip.tc_width * chip.tc_depth) for chip in (old, new)]
    is_alike = each[0] == each[1]
    return ("", "") if is_alike else (f"{old.l2_bytes / KIBI:g} KB", f"{new.l2_bytes / KIBI:g} KB")


def _buffers(old: Accelerator, new: Accelerator) -> tuple[str, str]:
    """Sizes of two buffers, with their rates where these differ."""
    rates = [chip.glb_bandwidth_bytes_per_s / chip.clock_hz for chip in (old, new)]
    sizes = [format_mib(chip.glb_bytes) for chip in (old, new)]
    if rates[0] == rates[1]:
        return sizes[0], sizes[1]
    first, second = (f"{size} at {rate:,.0f} bytes a cycle" for size, rate in zip(sizes, rates, strict=True))
    return first, second


def silicon_words(chip: Accelerator) -> str:
    """By what its area and power are priced."""
    return f"as a die with {chip.hbm_generation.upper()}" if chip.hbm_generation else "at 22 nm"


def is_chip_of(chip: Accelerator, device: Device) -> bool:
    """Whether a chip is the description of that machine as a design, and not another under its name."""
    return device.name == chip.name and device.layout is not None and device.layout.num_tc == chip.num_tc


def _tensor_cores(point: DesignPoint) -> str:
    return f"{point.num_tc}x{point.tc_width}x{point.tc_depth}"


def _vector_cores(point: DesignPoint) -> str:
    return f"{point.num_vc}x{point.vc_width}"


def _cell(axis: chip_template.Axis, point_of: Callable[[T], DesignPoint], item: T) -> str:
    return f"{_printed(axis, point_of(item)):g}"


def _others(point: DesignPoint) -> str:
    """What sets a design apart beyond the parameters that every design has."""
    different = (axis for axis in OTHER_AXES if getattr(point, axis.name) != axis.default)
    return "".join(f", {axis.describe(getattr(point, axis.name))}" for axis in different)
