"""Designs one step away: along an axis, or along two so that area or the number of multipliers stays."""

from __future__ import annotations

from itertools import permutations

from phaze_opt.space.point import DesignPoint
from phaze_opt.space.search_space import SearchSpace

GLB, WIDTH, DEPTH, NUM_TC, NUM_VC, HBM = range(6)
_NUM_AXES = 6
_TRADES = tuple(permutations(range(_NUM_AXES), 2))
"""(one step up, one step down)."""


def neighbours(space: SearchSpace, point: DesignPoint, *, is_buffer_fixed: bool = False) -> tuple[DesignPoint, ...]:
    """The kept architectures around one, at its micro-batch, each once.

    Args:
        space: the points.
        point: one of them.
        is_buffer_fixed: leave GLB and HBM as they are.
    """
    here = space.positions(point)
    steps = [{axis: step} for axis in range(_NUM_AXES) for step in (1, -1)]
    steps += [{up: 1, down: -1} for up, down in _TRADES]
    steps += [{WIDTH: sign, NUM_TC: -sign, NUM_VC: -sign} for sign in (1, -1)]
    found: dict[DesignPoint, None] = {}
    for step in steps:
        if is_buffer_fixed and (GLB in step or HBM in step):
            continue
        moved = _moved(space, here, step)
        if moved is not None:
            found.setdefault(moved)
    return tuple(found)


def _moved(space: SearchSpace, here: tuple[int, ...], step: dict[int, int]) -> DesignPoint | None:
    """The point some steps away; None if it leaves an axis or the space."""
    places = [position + step.get(axis, 0) for axis, position in enumerate(here)]
    axes = space.axes
    values = (axes.glb_bytes, axes.tc_width, axes.tc_depth, axes.num_tc, axes.num_vc, axes.hbm_bytes, axes.micro_batch)
    if not all(0 <= place < len(axis) for place, axis in zip(places, values, strict=True)):
        return None
    glb, width, depth, num_tc, num_vc, hbm, micro_batch = (
        axis[place] for place, axis in zip(places, values, strict=True)
    )
    moved = DesignPoint(num_tc, num_vc, width, depth, width, glb, hbm, micro_batch)
    return moved if space.contains(moved) else None
