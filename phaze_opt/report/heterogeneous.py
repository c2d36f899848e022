"""A heterogeneous pipeline in a table: the design of every stage, and what that gains over one design for all."""

from __future__ import annotations

import math
from itertools import groupby

from phaze_opt.objective.heterogeneous import HeterogeneousEvaluation, HeterogeneousStage
from phaze_opt.report.content import Column, TableContent, pairs_table
from phaze_opt.report.text import format_mib, format_number, format_share, format_time
from phaze_opt.units import bytes_to_gib


def heterogeneous_contents(found: HeterogeneousEvaluation) -> list[TableContent]:
    """What the pipeline is worth, then its stages."""
    return [heterogeneous_table(found), heterogeneous_stages_table(found)]


def heterogeneous_table(found: HeterogeneousEvaluation) -> TableContent:
    """Throughput, power and area, beside the best uniform design among the same candidates."""
    placement = found.placement
    degrees = (
        f"tensor {placement.tensor_parallel} x pipeline {len(placement.stages)} x data {placement.data_parallel}, "
        f"micro-batch {found.micro_batch}"
    )
    rows = (
        ("throughput", f"{format_number(found.throughput_samples_per_s)} samples/s"),
        ("over the best uniform design", _gain(found.gain)),
        ("throughput/TDP", f"{format_number(found.throughput_per_tdp)} samples/s/W"),
        ("over that uniform design", _gain(found.gain_per_tdp)),
        ("mean TDP", f"{format_number(found.mean_tdp_w)} W"),
        ("area", f"{format_number(found.mean_area_mm2)} mm2 mean, {format_number(found.largest_area_mm2)} mm2 largest"),
        ("degrees", degrees),
        ("designs", f"{found.num_designs} used of {found.num_candidates} candidates"),
    )
    note = "exact over placement and choice of designs, recomputed independently; candidates: designs of this search"
    return pairs_table("Heterogeneous pipeline", rows, note=note)


def heterogeneous_stages_table(found: HeterogeneousEvaluation) -> TableContent:
    """One line for every run of stages that are alike."""
    headings = ("TC", "VC", "GLB", "HBM GB", "time", "mm2", "W")
    columns = (Column("stages"), Column("layers"), *(Column(heading, is_number=True) for heading in headings))
    numbered = list(enumerate(found.stages, start=1))
    rows = []
    for _, run in groupby(numbered, key=lambda entry: (entry[1].point, entry[1].layers, entry[1].stage.time_s)):
        members = list(run)
        first, last = members[0][0], members[-1][0]
        rows.append(_stage_row(f"{first}" if first == last else f"{first}-{last}", members[0][1]))
    note = "TC: cores x width x depth; VC: cores x lanes; time: of one micro-batch"
    return TableContent("Design of every stage", columns, tuple(rows), note)


def _stage_row(numbers: str, stage: HeterogeneousStage) -> tuple[str, ...]:
    """One line."""
    point = stage.point
    layers = ", ".join(name if count == 1 else f"{count} x {name}" for name, count in stage.layers)
    return (
        numbers,
        layers,
        f"{point.num_tc}x{point.tc_width}x{point.tc_depth}",
        f"{point.num_vc}x{point.vc_width}",
        format_mib(point.glb_bytes),
        f"{bytes_to_gib(point.hbm_bytes):g}",
        format_time(stage.stage.time_s),
        format_number(stage.area_mm2),
        format_number(stage.tdp_w),
    )


def _gain(gain: float) -> str:
    """``+1.2 %``, or that there is nothing to compare with."""
    if math.isinf(gain):
        return "no candidate fits alone"
    return f"{'+' if gain >= 0 else '-'}{format_share(abs(gain))}"
