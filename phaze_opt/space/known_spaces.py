"""The spaces that have a name, and those of files."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from phaze_opt.errors import InputError
from phaze_opt.hardware.area import area_um2_table
from phaze_opt.hardware.chip_template import AXIS, DesignPoint, PointColumns
from phaze_opt.hardware.constants import load_constants
from phaze_opt.hardware.designed_chip import chips_of
from phaze_opt.hardware.silicon.silicon import Silicon
from phaze_opt.hardware.table_coverage import buffers_of, refusal_of
from phaze_opt.space.axes import Axes, half_steps, powers_of_two
from phaze_opt.space.search_space import SearchSpace
from phaze_opt.space.space_file import read_space_file
from phaze_opt.units import GIBI, MEBI, UM2_PER_MM2, bytes_to_gib

DIE_BUDGET_MM2 = 826.0
"""Largest die of the die space: GA100, the largest at N7."""


def phaze_space(
    *,
    hbm_bytes: tuple[int, ...] | None = None,
    micro_batches: tuple[int, ...] | None = None,
    silicon: Silicon | None = None,
) -> SearchSpace:
    """The Phaze space (semantics 2): 75,712 candidate architectures of which 29,360 are kept by the tables at 22 nm.

    Args:
        hbm_bytes: HBM capacities to join, in any order; those of the axis where none are given.
        micro_batches: micro-batches to join, in any order; likewise.
        silicon: of dies with its axes, of up to 826 mm^2; by the tables unless given.
    """
    capacities = hbm_bytes or AXIS["hbm_bytes"].default_values
    batches = micro_batches or AXIS["micro_batch"].default_values
    axes = Axes(
        vc_width=(),
        **_memory(silicon, capacities),
        num_tc=powers_of_two(1, 4096),
        num_vc=powers_of_two(1, 4096),
        tc_width=powers_of_two(2, 256),
        tc_depth=powers_of_two(2, 256),
        glb_bytes=powers_of_two(2 * MEBI, 128 * MEBI),
        micro_batch=tuple(sorted(set(batches))),
    )
    return _within_budget("phaze", axes, silicon)


def _memory(silicon: Silicon | None, capacities: Iterable[int]) -> dict[str, tuple[int, ...]]:
    """Axes of capacities: as they are, or of dies as the stacks that have them.

    Raises:
        InputError: a capacity is no whole number of stacks.
    """
    wanted = tuple(sorted(set(capacities)))
    if silicon is None:
        return {"hbm_bytes": wanted}
    stack = silicon.stack.capacity_bytes
    for each in wanted:
        if each % stack:
            message = (
                f"{bytes_to_gib(each):g} GB is no whole number of stacks of {silicon.hbm_generation}, "
                f"which have {bytes_to_gib(stack):g} GB"
            )
            raise InputError(message, key="hbm_gb")
    return {"hbm_bytes": (), "hbm_stacks": tuple(each // stack for each in wanted)}


def _within_budget(
    name: str, axes: Axes, silicon: Silicon | None, *, budget_mm2: float | None = None, fraction: float | None = None
) -> SearchSpace:
    """A space with the budget and the band of its silicon where none are given."""
    if silicon is None:
        budget_um2, usual = phaze_area_budget_um2(), load_constants().value("space.min_area_fraction")
    else:
        budget_um2, usual = DIE_BUDGET_MM2 * UM2_PER_MM2, 0.0
    return SearchSpace(
        name,
        axes,
        area_budget_um2=budget_um2 if budget_mm2 is None else budget_mm2 * UM2_PER_MM2,
        min_area_fraction=usual if fraction is None else fraction,
        silicon=silicon,
    )


def die_space(
    silicon: Silicon, *, hbm_bytes: tuple[int, ...] | None = None, micro_batches: tuple[int, ...] | None = None
) -> SearchSpace:
    """Dies of up to 826 mm^2 that could be built.

    Cores go in half steps, so that a die can be filled; the rate of the buffer and the stacks of HBM are parameters.

    Args:
        silicon: what they are built of.
        hbm_bytes: capacities, in any order, in place of those that 1 to 6 stacks have.
        micro_batches: as of `phaze_space`.
    """
    axes = Axes(
        vc_width=(),
        num_tc=half_steps(1, 512),
        num_vc=half_steps(1, 512),
        tc_width=powers_of_two(32, 512),
        tc_depth=powers_of_two(32, 512),
        glb_bytes=tuple(size * MEBI for size in half_steps(4, 192)),
        micro_batch=tuple(sorted(set(micro_batches or AXIS["micro_batch"].default_values))),
        glb_bytes_per_cycle=tuple(range(1024, 16385, 1024)),
        **(_memory(silicon, hbm_bytes) if hbm_bytes else {"hbm_bytes": (), "hbm_stacks": tuple(range(1, 7))}),
    )
    return SearchSpace(
        "die", axes, area_budget_um2=DIE_BUDGET_MM2 * UM2_PER_MM2, min_area_fraction=0.0, silicon=silicon
    )


def phaze_area_budget_um2() -> float:
    """A_max of the Phaze space: the area of its TPUv4-like point, 278,826,676.31216 um^2."""
    reference = DesignPoint(
        num_tc=8, num_vc=2, tc_width=128, tc_depth=128, vc_width=128, glb_bytes=128 * MEBI, hbm_bytes=32 * GIBI,
        micro_batch=1,
    )  # fmt: skip
    return float(area_um2_table(chips_of(PointColumns.of([reference]), load_constants()))[0])


def load_space(
    path: str | Path,
    *,
    hbm_bytes: tuple[int, ...] | None = None,
    micro_batches: tuple[int, ...] | None = None,
    silicon: Silicon | None = None,
) -> SearchSpace:
    """A space from a TOML file; see `space_file.read_space_file` for its form.

    Args:
        path: the file.
        hbm_bytes: replaces the file's HBM capacities (``--hbm``).
        micro_batches: replaces the file's micro-batches (``--micro-batch``).
        silicon: of dies; by the tables at 22 nm unless given.

    Raises:
        InputError: the file is faulty, or no architecture of it is kept.
    """
    described = read_space_file(Path(path))
    stated = dict(described.axes)
    if hbm_bytes or silicon is None or not stated["hbm_stacks"]:
        stated |= _memory(silicon, hbm_bytes or stated["hbm_bytes"] or AXIS["hbm_bytes"].default_values)
    stated["micro_batch"] = micro_batches or stated["micro_batch"] or AXIS["micro_batch"].default_values
    axes = Axes(**{name: tuple(sorted(set(given))) for name, given in stated.items()})
    if silicon is None:
        _check_covered(axes, source=str(path))
    space = _within_budget(
        described.name, axes, silicon, budget_mm2=described.area_budget_mm2, fraction=described.min_area_fraction
    )
    if space.num_architectures == 0:
        message = f"none of its {space.num_candidates} architectures has an area in {space.describe_bounds()}"
        if silicon is not None:
            message += (
                "; a die is all of a chip: raise area_budget_mm2, or give --silicon phaze for the tables at 22 nm"
            )
        raise InputError(message, source=str(path))
    return space


def _check_covered(axes: Axes, *, source: str) -> None:
    """Refuse axes that reach beyond what areas and energies are known for."""
    constants = load_constants()
    last = {name: np.array([len(getattr(axes, name)) - 1]) for name in axes.stated}
    for buffer in buffers_of(chips_of(PointColumns(**axes.take(last)), constants).row(0), constants):
        if not buffer.is_covered:
            raise InputError(refusal_of(buffer), source=source, key=buffer.key)
