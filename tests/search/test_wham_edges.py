"""Edges of `wham`: designs of one core of a type, or filled up to the area band, on formulas of known optimum."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest

from phaze_opt.hardware.template import DesignPoint
from phaze_opt.search.probe import PhaseView
from phaze_opt.search.wham.edges import Edge, EdgeClimb
from phaze_opt.search.wham.local_search import Metric, Scout
from phaze_opt.space.axes import Axes, powers_of_two
from phaze_opt.space.search_space import SearchSpace
from phaze_opt.units import GIBI, MEBI, UM2_PER_MM2

MICRO_BATCHES = (1, 2)


@dataclass(slots=True)
class FormulaProbe:
    """Bounds by a formula."""

    formula: Callable[[DesignPoint], float]
    looked_at: list[DesignPoint] = field(default_factory=list)
    num_left: int = 10**6

    @property
    def num_probes(self) -> int:
        return len(self.looked_at)

    def bounds(self, points: Sequence[DesignPoint]) -> tuple[tuple[float, ...], ...]:
        self.looked_at += points
        return tuple((self.formula(point),) for point in points)

    def within_budgets(self, points: Sequence[DesignPoint]) -> tuple[bool, ...]:
        return (True,) * len(points)

    def phases(self, point: DesignPoint) -> tuple[PhaseView, ...]:
        raise AssertionError(point)


def banded_space() -> SearchSpace:
    """Designs between 40 and 80 mm^2, and those below with one core of a type."""
    axes = Axes(
        vc_width=(),
        num_tc=powers_of_two(1, 64),
        num_vc=powers_of_two(1, 256),
        tc_width=powers_of_two(16, 128),
        tc_depth=powers_of_two(16, 128),
        glb_bytes=(2 * MEBI, 4 * MEBI, 8 * MEBI),
        hbm_bytes=(32 * GIBI, 64 * GIBI),
        micro_batch=MICRO_BATCHES,
    )
    return SearchSpace("banded", axes, area_budget_um2=80.0 * UM2_PER_MM2, min_area_fraction=0.5)


def is_on(edge: Edge, space: SearchSpace, point: DesignPoint) -> bool:
    """Whether a kept design lies on an edge, told by its neighbour of fewer vector cores."""
    if edge is Edge.ONE_VC:
        return point.num_vc == 1
    if edge is Edge.ONE_TC:
        return point.num_tc == 1
    in_band = [
        other
        for other in space.points()
        if rest_of(other) == rest_of(point) and (other.num_vc > 1 or point.num_vc == 1)
    ]
    return point.num_vc == min(other.num_vc for other in in_band)


def rest_of(point: DesignPoint) -> tuple[int, ...]:
    """All but the vector cores."""
    return point.num_tc, point.tc_width, point.tc_depth, point.glb_bytes, point.hbm_bytes, point.micro_batch


def climb(formula: Callable[[DesignPoint], float], *, limit: int = 200) -> tuple[SearchSpace, FormulaProbe, Scout]:
    """From the largest kept design in the middle of the axes."""
    space, probe = banded_space(), FormulaProbe(formula)
    scout = Scout(probe, MICRO_BATCHES, limit)
    start = max(space.points(), key=lambda point: (point.num_tc, point.num_vc, point.hbm_bytes))
    EdgeClimb(space, scout, Metric(("maximize",)), 1).climb(start)
    return space, probe, scout


def closeness(target: tuple[int, int, int]) -> Callable[[DesignPoint], float]:
    """Falls with the distance of multipliers, shape and lanes from a target (multipliers, width, lanes)."""

    def value(point: DesignPoint) -> float:
        macs, lanes = point.num_tc * point.tc_width * point.tc_depth, point.num_vc * point.vc_width
        here = (macs, point.tc_width, lanes)
        far = sum(abs(math.log2(a / b)) for a, b in zip(here, target, strict=True))
        return 100.0 - far - point.hbm_bytes / (100 * GIBI) - point.glb_bytes / (100 * MEBI) + point.micro_batch / 1e6

    return value


@pytest.mark.parametrize(
    "target", [(2048, 64, 64), (16384, 128, 128), (16384, 128, 2048), (1024, 32, 32), (4096, 64, 256)]
)
def test_reaches_the_best_design_of_few_cores(target: tuple[int, int, int]) -> None:
    formula = closeness(target)
    space, probe, _ = climb(formula)
    single = [point for point in space.points() if point.num_vc == 1 or point.num_tc == 1]
    assert max(map(formula, probe.looked_at)) >= max(map(formula, single))
    assert len(probe.looked_at) < len(single)


def test_looks_only_at_kept_designs_on_edges() -> None:
    space, probe, scout = climb(closeness((2048, 64, 2048)))
    assert probe.looked_at
    for point in probe.looked_at[:: len(MICRO_BATCHES)]:
        assert space.contains(point)
        assert any(is_on(edge, space, point) for edge in Edge)
    assert len(scout.bounds) == len(probe.looked_at)


def test_stops_at_its_share_of_probes() -> None:
    _, probe, scout = climb(closeness((2048, 64, 64)), limit=9)
    assert len(probe.looked_at) == 9 * len(MICRO_BATCHES)
    assert scout.num_left == 0


def test_gives_up_where_nothing_rises() -> None:
    space, probe, _ = climb(lambda _: 1.0)
    architectures = len(probe.looked_at) // len(MICRO_BATCHES)
    # A flat formula: every edge's lines once in both directions, then two designs more.
    assert 0 < architectures <= 5 * (2 * 8 + 1)
    assert architectures < space.num_architectures * len(space.axes.hbm_bytes)
