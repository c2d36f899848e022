"""Areas of whole dies against the die model of designed chips; thirteen constants are fitted (docs/silicon.md)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from types import MappingProxyType

import numpy as np

from phaze_opt.errors import InputError
from phaze_opt.hardware.fitted import FittedConstants
from phaze_opt.hardware.silicon.die_area import DieArea, die_area
from phaze_opt.hardware.silicon.die_columns import DieColumns
from phaze_opt.hardware.silicon.die_constants import (
    AREA_GROUP,
    FITTED_AREAS,
    HbmGeneration,
    area_constants,
    hbm_stack,
    load_die_constants,
    process_of,
)
from phaze_opt.record.arrays import Floats
from phaze_opt.record.suggestions import suggest
from phaze_opt.units import GIGA, MEBI
from phaze_opt.validation.family import BlockedRows, Family, FitParameter, Part, compile_blocks
from phaze_opt.validation.fit import Expectation, fit_parameters
from phaze_opt.validation.measured_row import Row

DIE_ERROR = 0.15
"""Log error that a die is expected to have; a constant's is its stated deviation."""
DEVIATIONS = 3.0
"""Deviations of a constant within which it is fitted."""
MOST_USED = 0.98
"""Largest share of a die that components can fill."""
SMALLEST_DIE_MM2 = 10.0
"""Dies below are blocks and test chips: predicted, and marked as outside the model's range."""
KEPT_APART = "kept apart"
"""Column ``use`` of dies that are never fitted."""
BLOCK = "ip block"
STYLES = ("gpu", "systolic", "tile", BLOCK)
"""Styles with a model: lanes of a GPU run many threads, those of the others one program; a block is inside a die."""
OUTSIDE = "under 10 mm2, outside the range"
_MEANINGS = MappingProxyType(
    {
        "mac_um2": "area of a 16-bit multiply-accumulate with its registers",
        "byte_mac_share": "area of an 8-bit multiply-accumulate over a 16-bit one",
        "threaded_lane_um2": "area of an fp32 lane of a GPU with its share of issue and of other units",
        "vector_lane_um2": "area of a lane of a vector unit",
        "fp64_lane_um2": "area of an fp64 lane",
        "buffer_cell_share": "cells' share of the chip-wide buffer",
        "local_cell_share": "cells' share of memory beside cores without its ports",
        "local_port_um2_per_byte": "ports of memory beside cores",
        "network_um2_per_byte": "network of the chip-wide buffer on a die of 800 mm^2",
        "hbm_stack_mm2": "PHY and controller of a stack of HBM",
        "link_mm2_per_gb_per_s": "interfaces to other devices, one way",
        "host_mm2": "host interface and control",
        "used_share": "share of the die that components fill",
    }
)

_FAMILY_OF_DIE = MappingProxyType(
    {"GV": "NVIDIA", "GA": "NVIDIA", "GH": "NVIDIA", "GP": "NVIDIA", "TU": "NVIDIA", "AD": "NVIDIA", "Ald": "AMD",
     "MI": "AMD", "TPU": "TPU", "GC": "tiles", "MTIA": "tiles"}
)  # fmt: skip


UNPUBLISHED = "no die area is published"


def why_unpredicted(row: Row) -> str:
    """Why the model has no area for a row; empty if it has."""
    if row.text("style") == "wafer":
        return "a wafer is many dies with redundant cores, and the model is of one die"
    process_of(row.number("node"))
    if row.text("style") not in STYLES:
        return f"no model of a die of style '{row.text('style')}' is known; {suggest(row.text('style'), STYLES)}"
    if not row.values.get("die_mm2"):
        return UNPUBLISHED
    most = load_die_constants().value("package.reticle_mm2")
    if row.number("die_mm2") > most:
        return f"{row.number('die_mm2'):g} mm^2 are more than a reticle's {most:g}: no single die"
    if not _has_units(row):
        return "neither multipliers nor lanes are published"
    return ""


def _has_units(row: Row) -> bool:
    """Whether multipliers or lanes of a die are published."""
    return any(row.number(name, 0) for name in ("mac16_full", "mac8_only", "fp32_lanes_full"))


def unpublished_areas(rows: Sequence[Row], fitted: FittedConstants) -> dict[int, float]:
    """Areas of dies that nobody published, mm^2, by index of the row: predicted, and scored against nothing."""
    own = [index for index, row in enumerate(rows) if _is_unpublished(row)]
    if not own:
        return {}
    areas = die_area(dies_of_rows([rows[index] for index in own]), area_constants(fitted)).total
    return dict(zip(own, np.asarray(areas).tolist(), strict=True))


def _is_unpublished(row: Row) -> bool:
    try:
        return why_unpredicted(row) == UNPUBLISHED and _has_units(row)
    except InputError:
        return False


def dies_of_rows(rows: Sequence[Row]) -> DieColumns:
    """What stands on the dies of rows; a blank is none.

    Raises:
        InputError: a malformed value, or a process that the model does not know.
    """
    processes = [process_of(row.number("node")) for row in rows]

    def column(name: str, unit: float = 1.0) -> Floats:
        return np.array([row.number(name, 0) * unit for row in rows])

    is_threaded = np.array([row.text("style") == "gpu" for row in rows])
    lanes = column("fp32_lanes_full")
    return DieColumns(
        logic=np.array([process.logic for process in processes]),
        memory=np.array([process.memory for process in processes]),
        energy=np.array([process.energy for process in processes]),
        macs=column("mac16_full"),
        mac_area=np.ones(len(rows)),
        mac_energy=np.ones(len(rows)),
        byte_macs=column("mac8_only"),
        threaded_lanes=np.where(is_threaded, lanes, 0.0),
        vector_lanes=np.where(is_threaded, 0.0, lanes),
        fp64_lanes=column("fp64_lanes_full"),
        register_bytes=column("rf_mb", MEBI),
        local_bytes=column("l1_mb", MEBI),
        local_bytes_per_cycle=column("local_bytes_per_cycle"),
        buffer_bytes=column("glb_mb", MEBI),
        buffer_bytes_per_cycle=column("glb_bytes_per_cycle"),
        hbm_stacks=column("hbm_stacks_full"),
        hbm_interface=np.array([_hbm_interface(row) for row in rows]),
        dram_bits=np.array([_dram_bits(row) for row in rows]),
        link_bytes_per_s=column("link_gbytes_s_oneway", GIGA),
        num_hosts=np.array([float(_has_host(row)) for row in rows]),
        num_dies=np.array([float(row.text("style") != BLOCK) for row in rows]),
    )


def _has_host(row: Row) -> bool:
    """Whether a die has a host interface: one that nobody published counts as there, but on a block."""
    return row.text("style") != BLOCK and not row.text("pcie", "").startswith("none")


def _hbm_interface(row: Row) -> float:
    """Area of the interface of a stack, by the generation that the column ``ext_dram`` names."""
    name = row.text("ext_dram", "").partition(" ")[0].lower()
    return hbm_stack(name).interface if name in tuple(HbmGeneration) else 1.0


def _dram_bits(row: Row) -> float:
    """Data bits of ``gddr6-384``; HBM and none have none."""
    bits = row.text("ext_dram", "").rpartition("-")[2]
    return float(bits) if bits.isdigit() else 0.0


@dataclass(frozen=True, slots=True, eq=False)
class DieBlock:
    """Dies of rows; "seconds" are mm^2."""

    dies: DieColumns

    def seconds(self, fitted: FittedConstants) -> Floats:
        """Predicted areas, shape (num_rows,), mm^2."""
        return np.asarray(self.areas(fitted).total)

    def areas(self, fitted: FittedConstants) -> DieArea:
        """Areas by component."""
        return die_area(self.dies, area_constants(fitted))

    def explain(self, fitted: FittedConstants, index: int) -> tuple[Part, ...]:
        """The components of one die, mm^2."""
        areas = self.areas(fitted)
        columns = {each.name: np.broadcast_to(getattr(areas, each.name), areas.total.shape) for each in fields(areas)}
        return tuple(Part(name, float(values[index])) for name, values in columns.items())


def compile_dies(rows: Sequence[Row]) -> BlockedRows[DieBlock]:
    """All dies whose area was published as one block."""
    return compile_blocks(
        rows,
        read=_published_mm2,
        measured=lambda row: row.number("die_mm2", math.nan),
        build=lambda _, own: DieBlock(dies_of_rows(own)),
        key=type,
    )


def _published_mm2(row: Row) -> float | str:
    """Published area, or why the row is not predicted."""
    return why_unpredicted(row) or row.number("die_mm2")


def area_parameters(rows: Sequence[Row]) -> tuple[FitParameter, ...]:
    """The constants that whole dies fit; none if no row is a whole die that may be fitted."""
    if not any(is_fitted(row) for row in rows):
        return ()
    return tuple(_parameter(name) for name in FITTED_AREAS)


def _parameter(name: str) -> FitParameter:
    entry, reach = load_die_constants().entries[f"area.{name}"], math.exp(DEVIATIONS * deviation(name))
    most = MOST_USED if name == "used_share" else 1.0 if name.endswith("cell_share") else math.inf
    bounds = entry.value / reach, min(entry.value * reach, most)
    return FitParameter(AREA_GROUP, name, _unit(name), *bounds, entry.value, _MEANINGS[name], is_log=True)


def _unit(name: str) -> str:
    """Unit of an area by the end of its name."""
    units = {"um2_per_byte": "um^2 a byte/cycle", "mm2_per_gb_per_s": "mm^2 a GB/s", "um2": "um^2", "mm2": "mm^2"}
    return next((unit for end, unit in units.items() if name.endswith(end)), "share")


def deviation(name: str) -> float:
    """Deviation of the logarithm of an area's constant from what is expected."""
    entry = load_die_constants().entries[f"area.{name}"]
    return math.log(entry.high / entry.low) / 2.0


def is_fitted(row: Row) -> bool:
    """Whether a row may be fitted: a die of 10 mm^2 or more that has a model and is not kept apart."""
    try:
        reason = why_unpredicted(row)
    except InputError:
        return False
    return not reason and row.text("use", "") != KEPT_APART and row.number("die_mm2") >= SMALLEST_DIE_MM2


def fit_areas(rows: Sequence[Row], start: FittedConstants) -> FittedConstants:
    """Areas fitted to whole dies, a constant pulled to what is expected of it as strongly as its source is sure."""
    parameters = area_parameters(rows)
    expectations = tuple(Expectation(each, DIE_ERROR / deviation(each.name)) for each in parameters)
    bare = FittedConstants({name: values for name, values in start.groups.items() if name != AREA_GROUP})
    return fit_parameters(compile_dies(rows), parameters, bare, soft_error=DIE_ERROR, expectations=expectations)


def is_outside(row: Row) -> bool:
    """Whether a die is smaller than what the model is for."""
    return bool(row.values.get("die_mm2")) and row.number("die_mm2") < SMALLEST_DIE_MM2


def maker_label(row: Row) -> str:
    """Family of a whole die that has a model; empty of others, which no fold keeps out."""
    if not is_fitted(row) and row.text("use", "") != KEPT_APART:
        return ""
    die = row.text("die", row.text("chip"))
    return next((family for start, family in _FAMILY_OF_DIE.items() if die.startswith(start)), "others")


DIES = Family(
    name="dies",
    datasets=("dies",),
    parameters=area_parameters,
    compile=compile_dies,
    regime=lambda row: OUTSIDE if is_outside(row) else row.text("style"),
    cell=lambda row: row.text("chip"),
    fit=fit_areas,
    is_fitted=is_fitted,
    predict_unmeasured=unpublished_areas,
    splits={"chip": lambda row: row.text("chip") if maker_label(row) else "", "family": maker_label},
)
"""Whole dies, by component."""
