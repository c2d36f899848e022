"""The die model against published dies and floorplans, and dies of designs; writes dies.json beside this file.

    python experiments/validation/dies.py

Every die is also predicted by constants fitted without it, and without its whole family. The areas of
fitted_constants.json are fitted by calibrate.py, and used here as they are. Powers: die_powers.py.
"""

import json
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from phaze_opt.hardware.area import glb_area_um2
from phaze_opt.hardware.constants import load_constants
from phaze_opt.hardware.fitted import FittedConstants, load_fitted
from phaze_opt.hardware.networks import load_network
from phaze_opt.hardware.presets import load_architecture
from phaze_opt.hardware.silicon.die_area import die_area
from phaze_opt.hardware.silicon.die_constants import AREA_GROUP, FITTED_AREAS, area_constants, load_die_constants
from phaze_opt.hardware.silicon.die_edge import die_edge
from phaze_opt.hardware.silicon.die_report import DieReport, die_report
from phaze_opt.record.arrays import Floats
from phaze_opt.units import GIGA, MEBI, um2_to_mm2
from phaze_opt.validation.dataset import read_datasets
from phaze_opt.validation.dies import (
    DIE_ERROR,
    DIES,
    KEPT_APART,
    compile_dies,
    deviation,
    dies_of_rows,
    fit_areas,
    is_fitted,
)
from phaze_opt.validation.measured_row import Row
from phaze_opt.validation.predict import leave_one_out, predict_held_out
from phaze_opt.validation.silicon import area_factor

OUT = Path(__file__).with_name("dies.json")

FLOORPLANNED = ("GA100", "Aldebaran GCD", "TPUv1", "TPUv4i")
"""Dies whose parts set what constants are expected to be: leaving them out of the fit does not make them unseen."""


@dataclass(frozen=True, slots=True)
class Floorplan:
    """A part of a die photograph or floorplan, and the components of the model that it holds.

    ``has_spare``: the parts of this die add up to all of it, so that each holds its share of spare area.
    """

    die: str
    part: str
    area_mm2: float
    components: tuple[str, ...]
    has_spare: bool


FLOORPLANS = (
    Floorplan("GA100", "cores", 476.25, ("arrays", "lanes", "local"), has_spare=True),
    Floorplan("GA100", "L2 and interconnect", 76.44 + 119.31, ("buffer", "network"), has_spare=True),
    Floorplan("GA100", "HBM PHYs and controllers", 58 + 31.77, ("hbm",), has_spare=True),
    Floorplan("GA100", "links, host, other", 20.95 + 40, ("links", "host"), has_spare=True),
    Floorplan("Aldebaran GCD", "cores", 446.22, ("arrays", "lanes", "local"), has_spare=True),
    Floorplan("Aldebaran GCD", "L2 and interconnect", 33 + 25.2, ("buffer", "network"), has_spare=True),
    Floorplan("Aldebaran GCD", "HBM PHYs and controllers", 83.26 + 40.83, ("hbm",), has_spare=True),
    Floorplan("Aldebaran GCD", "links, host, other", 45.52 + 42 + 4, ("links", "host"), has_spare=True),
    Floorplan("TPUv4i", "arrays", 4 * 14, ("arrays",), has_spare=False),
    Floorplan("TPUv4i", "CMEM", 112, ("buffer", "network"), has_spare=False),
    Floorplan("TPUv4i", "VMEM, if 51 mm^2 are all of it", 51, ("local",), has_spare=False),
    Floorplan("TPUv4i", "scalar and vector units", 8.7, ("lanes",), has_spare=False),
    Floorplan("TPUv1", "array", 0.24 * 331, ("arrays",), has_spare=False),
    Floorplan("TPUv1", "unified buffer", 0.29 * 331, ("buffer", "network"), has_spare=False),
)
"""LLMCompass (die photographs), ISCA 2021 fig. 6 through accelforge, ISCA 2017."""

DESIGNS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "optimum of the demo, published form": (
            "num_tc=32,tc_width=128,tc_depth=64,num_vc=64,vc_width=128,glb_mb=4,hbm_gb=80",
            "hbm2e",
        ),
        "the same with 16 MB": (
            "num_tc=32,tc_width=128,tc_depth=64,num_vc=64,vc_width=128,glb_mb=16,hbm_gb=80",
            "hbm2e",
        ),
        "phaze-tpu-v4": ("phaze-tpu-v4", "hbm2e"),
        "modelled tpu-v4": ("tpu-v4", "hbm2"),
    }
)
"""Chips on N7 with 500 GB/s of links (two-level)."""

INT8_SHARE = 0.25
"""Area of an 8-bit multiplier over that of the tables' 16-bit one: a multiplier grows with bits squared."""
PROCESS_NAMES = MappingProxyType({28: "28 nm", 16: "16 nm", 8: "Samsung 8N", 7: "7 nm", 6: "TSMC N6", 5: "TSMC N5"})

PROTOTYPE: Mapping[str, float] = MappingProxyType(
    {"mac": 865e-6, "byte": 0.265, "simt": 21700e-6, "simd": 5600e-6, "fp64": 6530e-6, "buffer": 0.272, "local": 0.73,
     "port": 0.0013, "network": 0.0166, "hbm": 22.3, "link": 0.063, "io": 40.0, "used": 0.836}
)  # fmt: skip
"""Constants of the prototype that this model follows, mm^2 at N7."""
PROTOTYPE_LOGIC = MappingProxyType({28: 4.93, 16: 2.53, 8: 1.46, 7: 1.0, 6: 0.93, 5: 0.60})
PROTOTYPE_MEMORY = MappingProxyType({28: 4.70, 16: 2.59, 8: 1.48, 7: 1.0, 6: 1.0, 5: 0.778})


def whole_dies() -> tuple[Row, ...]:
    """The 17 dies with a published area and a model, in the order of the file."""
    (dataset,), _ = read_datasets(None, ("dies",))
    return tuple(row for row in dataset.rows if is_fitted(row) or row.values.get("use") == KEPT_APART)


def leave_out(rows: Sequence[Row], test: str) -> Floats:
    """Areas predicted without what a test keeps out in turn, over those published, shape (num_rows,)."""
    folds = leave_one_out([DIES.splits[test](row) for row in rows])
    return predict_held_out(DIES, rows, folds, FittedConstants({})) / compile_dies(rows).measured_s


def summary(ratios: Floats) -> dict[str, float]:
    """Mean absolute error in per cent, mean ratio, and mean and largest factor either way."""
    factors = np.exp(np.abs(np.log(ratios)))
    return {
        "num": len(ratios),
        "mean_error_percent": round(float(np.abs(ratios - 1).mean()) * 100, 2),
        "mean_ratio": round(float(ratios.mean()), 3),
        "mean_factor": round(float(factors.mean()), 3),
        "worst_factor": round(float(factors.max()), 3),
    }


def area_figures(rows: Sequence[Row]) -> dict[str, Any]:
    """Ratios of predicted to published areas of every die, by how the constants were come by, and their summaries."""
    compiled = compile_dies(rows)
    ratios = {
        "expected": compiled.seconds(FittedConstants({})) / compiled.measured_s,
        "fitted": compiled.seconds(load_fitted()) / compiled.measured_s,
        "chip_left_out": leave_out(rows, "chip"),
        "family_left_out": leave_out(rows, "family"),
    }
    is_kept = np.array([row.values.get("use") == KEPT_APART for row in rows])
    is_planned = np.array([row.text("die") in FLOORPLANNED for row in rows])
    choices = {"all": np.ones(len(rows), bool), "kept_apart": is_kept, "no_floorplan": ~is_planned}
    dies = [
        {"die": row.text("die"), "family": DIES.splits["family"](row), "is_kept_apart": bool(is_kept[place])}
        | {name: round(float(values[place]), 3) for name, values in ratios.items()}
        for place, row in enumerate(rows)
    ]
    summaries = {
        choice: {name: summary(values[chosen]) for name, values in ratios.items()} for choice, chosen in choices.items()
    }
    families = sorted({die["family"] for die in dies})
    by_family = {
        family: summary(ratios["family_left_out"][[die["family"] == family for die in dies]]) for family in families
    }
    return {"dies": dies, "summary": summaries, "family_left_out": by_family}


def other_sixes(rows: Sequence[Row], count: int = 60) -> dict[str, float]:
    """Mean errors of other sixes kept apart, drawn from the dies without a floorplan, by fits to the eleven others."""
    generator = np.random.default_rng(0)
    places = [index for index, row in enumerate(rows) if row.text("die") not in FLOORPLANNED]
    errors, worst = [], []
    for _ in range(count):
        kept = set(generator.choice(places, 6, replace=False).tolist())
        fitted = fit_areas([row for index, row in enumerate(rows) if index not in kept], FittedConstants({}))
        compiled = compile_dies([rows[index] for index in sorted(kept)])
        found = summary(compiled.seconds(fitted) / compiled.measured_s)
        errors.append(found["mean_error_percent"])
        worst.append(found["worst_factor"])
    return {
        "draws": count,
        "mean_error_percent": round(float(np.mean(errors)), 2),
        "least_error_percent": round(min(errors), 2),
        "largest_error_percent": round(max(errors), 2),
        "worst_factor": round(max(worst), 3),
    }


def table_mm2(row: Row) -> float:
    """A die by the 22 nm tables of designed chips, scaled to its process as `phaze_opt.validation.silicon` does."""
    constants = load_constants()
    macs = row.number("mac16_full", 0) + INT8_SHARE * row.number("mac8_only", 0)
    units_um2 = macs * (constants.value("area.mac_um2") + constants.value("area.mac_register_um2"))
    units_um2 += row.number("fp32_lanes_full", 0) * constants.value("area.mac_um2")
    memories_um2 = sum(
        float(glb_area_um2(np.array([size * MEBI]))[0])
        for size in (row.number("l1_mb", 0), row.number("glb_mb", 0))
        if size
    )
    return um2_to_mm2(units_um2 + memories_um2) * area_factor(PROCESS_NAMES[int(row.number("node"))])


def other_models(rows: Sequence[Row]) -> dict[str, dict[str, float]]:
    """What less would say: the mean of the other dies, and the 22 nm tables, as they are and times a constant."""
    measured = np.array([row.number("die_mm2") for row in rows])
    logs, tables = np.log(measured), np.array([table_mm2(row) for row in rows]) / measured
    others = np.exp((logs.sum() - logs) / (len(rows) - 1))
    return {
        "mean_of_the_others": summary(others / measured),
        "tables_at_22_nm": summary(tables),
        "tables_times_a_constant": summary(tables / math.exp(np.log(tables).mean())),
    }


def floorplan_figures(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Components of dies whose parts are published, by the fitted constants."""
    areas = die_area(dies_of_rows(rows), area_constants())
    used = area_constants().used_share
    found = []
    for plan in FLOORPLANS:
        place = next(index for index, row in enumerate(rows) if row.text("die") == plan.die)
        parts = (np.broadcast_to(getattr(areas, name), len(rows))[place] for name in plan.components)
        predicted = float(sum(parts)) / (used if plan.has_spare else 1.0)
        found.append(
            {
                "die": plan.die,
                "part": plan.part,
                "published_mm2": round(plan.area_mm2, 1),
                "predicted_mm2": round(predicted, 1),
                "ratio": round(predicted / plan.area_mm2, 3),
            }
        )
    return found


def posterior(rows: Sequence[Row]) -> dict[str, dict[str, float]]:
    """Fitted areas, what was expected, and one deviation of each before and after the fit, as factors."""
    fitted = load_fitted()
    own = [row for row in rows if is_fitted(row)]
    compiled, step = compile_dies(own), 1e-4
    values = {name: fitted.value(AREA_GROUP, name) for name in FITTED_AREAS}
    slopes = []
    for name, value in values.items():
        sides = [
            np.log(compiled.seconds(fitted.updated({AREA_GROUP: {name: value * math.exp(s)}}))) for s in (step, -step)
        ]
        slopes.append((sides[0] - sides[1]) / (2 * step))
    before = np.array([deviation(name) for name in FITTED_AREAS])
    precision = np.array(slopes) @ np.array(slopes).T / DIE_ERROR**2 + np.diag(1 / before**2)
    after = np.sqrt(np.diag(np.linalg.inv(precision)))
    expected = load_die_constants()
    return {
        name: {
            "expected": expected.value(f"area.{name}"),
            "fitted": value,
            "factor_before": round(math.exp(before[place]), 3),
            "factor_after": round(math.exp(after[place]), 3),
        }
        for place, (name, value) in enumerate(values.items())
    }


def report_of(arch: str, generation: str) -> DieReport:
    """The die of a chip of `DESIGNS`."""
    chip = load_architecture(arch, constants=load_constants())
    return die_report(chip, load_network("two-level", num_devices=1024), hbm_generation=generation)


def design_figures() -> list[dict[str, Any]]:
    """Dies of designs by component."""
    found = []
    for name, (arch, generation) in DESIGNS.items():
        report = report_of(arch, generation)
        found.append(
            {
                "design": name,
                "area_mm2": round(report.area_mm2, 1),
                "power_w": round(report.power_w, 1),
                "num_stacks": report.num_stacks,
                "stack_places": report.stack_places,
                "broken": list(report.broken),
                "areas_mm2": {part.name: round(part.value, 1) for part in report.areas},
                "powers_w": {part.name: round(part.value, 1) for part in report.powers},
            }
        )
    return found


def edge_figures(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Places for stacks on the dies that have HBM, by their published areas."""
    own = [row for row in rows if row.number("hbm_stacks_full", 0)]
    area = np.array([row.number("die_mm2") for row in own])
    stacks = np.array([row.number("hbm_stacks_full") for row in own])
    links = np.array([row.number("link_gbytes_s_oneway", 0) * GIGA for row in own])
    edge = die_edge(area, stacks, links, load_die_constants())
    return [
        {"die": row.text("die"), "stacks": int(stacks[place]), "places": int(edge.stack_places[place]),
         "is_buildable": bool(edge.is_buildable[place])}
        for place, row in enumerate(own)
    ]  # fmt: skip


def prototype_mm2(row: Row, used: Mapping[str, float] = PROTOTYPE) -> float:
    """A die by the prototype's own equation and constants, its fixed point by iteration."""
    node = int(row.number("node"))
    logic, memory, area = PROTOTYPE_LOGIC[node], PROTOTYPE_MEMORY[node], 500.0
    lane = used["simt" if row.text("style") == "gpu" else "simd"]
    for _ in range(200):
        units = logic * (
            used["mac"] * (row.number("mac16_full", 0) + used["byte"] * row.number("mac8_only", 0))
            + lane * row.number("fp32_lanes_full", 0)
            + used["fp64"] * row.number("fp64_lanes_full", 0)
            + used["port"] * row.number("local_bytes_per_cycle", 0)
            + used["network"] * row.number("glb_bytes_per_cycle", 0) * math.sqrt(area / 800)
        )
        cells = (
            memory
            * 0.2265
            * (
                row.number("l1_mb", 0) / used["local"]
                + row.number("rf_mb", 0) / (0.6 * used["local"])
                + row.number("glb_mb", 0) / used["buffer"]
            )
        )
        edge = row.number("hbm_stacks_full", 0) * used["hbm"] + row.number("link_gbytes_s_oneway", 0) * used["link"]
        area = (units + cells + edge + used["io"]) / used["used"]
    return area


def prototype_figures(rows: Sequence[Row]) -> dict[str, Any]:
    """The prototype's errors on these dies, and what it makes of Phaze's reference with one share of cells or two."""
    reference = load_architecture("phaze-tpu-v4", constants=load_constants())
    lanes = reference.num_lanes
    operand_bytes = 2 * reference.num_tc * (reference.tc_width + reference.tc_depth)
    columns = {
        "mac16_full": reference.num_macs,
        "fp32_lanes_full": lanes,
        "l1_mb": reference.num_tc * reference.l2_bytes / MEBI,
        "glb_mb": reference.glb_bytes / MEBI,
        "glb_bytes_per_cycle": reference.glb_bandwidth_bytes_per_s / reference.clock_hz,
        "local_bytes_per_cycle": operand_bytes + 6 * lanes,
        "hbm_stacks_full": 2,
        "link_gbytes_s_oneway": 500,
    }
    values = {"style": "tile", "node": "7", **{name: str(value) for name, value in columns.items()}}
    row = Row("dies", "phaze-tpu-v4", 1, MappingProxyType(values))
    one_share = {**PROTOTYPE, "buffer": 0.38, "local": 0.38}
    return {
        "dies": summary(np.array([prototype_mm2(row) / row.number("die_mm2") for row in rows])),
        "tpu_v4_mm2": round(prototype_mm2(row), 1),
        "tpu_v4_with_one_share_of_cells_mm2": round(prototype_mm2(row, one_share), 1),
    }


def main() -> None:
    """Work it out and write it."""
    rows = whole_dies()
    areas = area_figures(rows)
    record = {
        "_meta": {
            "command": "python experiments/validation/dies.py",
            "versions": {name: version(name) for name in ("phaze-opt", "numpy", "scipy")},
        },
        "constants": posterior(rows),
        "areas": areas,
        "other_sixes": other_sixes(rows),
        "other_models": other_models(rows),
        "floorplans": floorplan_figures(rows),
        "edges": edge_figures(rows),
        "designs": design_figures(),
        "prototype": prototype_figures(rows),
    }
    OUT.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(areas["summary"], indent=1), file=sys.stderr)


if __name__ == "__main__":
    main()
