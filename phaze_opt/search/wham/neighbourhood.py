"""Designs one step away: along an axis, or along two so that area or the number of multipliers stays."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

from phaze_opt.hardware.template import DesignPoint
from phaze_opt.space.search_space import SearchSpace

GLB, WIDTH, DEPTH, NUM_TC, NUM_VC, HBM = range(6)
"""Positions of the axes that every space has in `moved_axes`."""
_ALWAYS = ("glb_bytes", "tc_width", "tc_depth", "num_tc", "num_vc", "hbm_bytes")


def moved_axes(space: SearchSpace) -> tuple[str, ...]:
    """The axes of an architecture: those above, then any others that the space has values for."""
    return (*_ALWAYS, *(name for name in space.axes.stated if name not in _ALWAYS and name != "micro_batch"))


def neighbours(space: SearchSpace, point: DesignPoint, *, is_buffer_fixed: bool = False) -> tuple[DesignPoint, ...]:
    """The kept architectures around one, at its micro-batch, each once.

    Args:
        space: the points.
        point: one of them.
        is_buffer_fixed: leave GLB and HBM as they are.
    """
    names, start = moved_axes(space), space.positions(point)
    here = tuple(getattr(start, name) for name in names)
    steps = [{axis: step} for axis in range(len(names)) for step in (1, -1)]
    steps += [{up: 1, down: -1} for up, down in permutations(range(len(names)), 2)]
    steps += [{WIDTH: sign, NUM_TC: -sign, NUM_VC: -sign} for sign in (1, -1)]
    found: dict[DesignPoint, None] = {}
    for step in steps:
        if is_buffer_fixed and (GLB in step or HBM in step):
            continue
        places = [position + step.get(axis, 0) for axis, position in enumerate(here)]
        if all(0 <= place < len(getattr(space.axes, name)) for place, name in zip(places, names, strict=True)):
            moved = replace(start, **dict(zip(names, places, strict=True)))
            if space.keeps(moved):
                found.setdefault(space.point_at(moved))
    return tuple(found)
