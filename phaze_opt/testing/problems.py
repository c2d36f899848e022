"""Small problems with known optima that conformance suites search, and a toy search over them."""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import astuple, dataclass, replace
from functools import lru_cache

import numpy as np

from phaze_opt.hardware.accelerator import Accelerator
from phaze_opt.hardware.chip_template import DesignPoint
from phaze_opt.objective.evaluation import Effort, Evaluation, EvaluationStatus
from phaze_opt.objective.goals import Goal
from phaze_opt.search.probe import PhaseView, PointBound
from phaze_opt.space.axes import Axes, powers_of_two
from phaze_opt.space.search_space import SearchSpace
from phaze_opt.units import GIBI, GIGA, MEBI, UM2_PER_MM2

TINY_SPACE_BUDGET_MM2 = 40.0
"""Area budget of `tiny_space`; with it the largest number of cores of one kind falls as the other's rises."""
CORE_COUNTS = ("num_tc", "num_vc")
"""Fields of an `Accelerator` that count cores."""
NUM_ACCELERATORS = 40


def tiny_space() -> SearchSpace:
    """A space small enough to enumerate (920 points), with everything that makes the Phaze space awkward.

    Kept points lie in an area band, one core of a type is kept below it, the number of cores that fits depends on
    their size, and the HBM axis is not one of powers of two.
    """
    axes = Axes(
        vc_width=(),
        num_tc=powers_of_two(1, 16),
        num_vc=powers_of_two(1, 16),
        tc_width=powers_of_two(32, 128),
        tc_depth=powers_of_two(32, 64),
        glb_bytes=powers_of_two(8 * MEBI, 16 * MEBI),
        hbm_bytes=(32 * GIBI, 80 * GIBI),
        micro_batch=(1, 2),
    )
    budget_um2 = TINY_SPACE_BUDGET_MM2 * UM2_PER_MM2
    return SearchSpace("tiny", axes, area_budget_um2=budget_um2, min_area_fraction=0.3)


def largest_memory_bytes(space: SearchSpace) -> int:
    """The most memory that a chip of a space has."""
    return max(point.hbm_bytes for point in space.points())


def toy_accelerator(point: DesignPoint) -> Accelerator:
    """The accelerator of a point, with made-up bandwidths."""
    return Accelerator(
        num_tc=point.num_tc,
        num_vc=point.num_vc,
        tc_width=point.tc_width,
        tc_depth=point.tc_depth,
        vc_width=point.vc_width,
        glb_bytes=point.glb_bytes,
        glb_bandwidth_bytes_per_s=1e12,
        l2_bytes=1024,
        hbm_bytes=point.hbm_bytes,
        hbm_bandwidth_bytes_per_s=1e12,
        clock_hz=1.05e9,
    )


def example_point(rng: np.random.Generator) -> DesignPoint:
    """A random point, not necessarily one of the Phaze space."""
    width = int(2 ** rng.integers(4, 9))
    return DesignPoint(
        num_tc=int(2 ** rng.integers(0, 8)),
        num_vc=int(2 ** rng.integers(0, 9)),
        tc_width=width,
        tc_depth=int(2 ** rng.integers(4, 9)),
        vc_width=width,
        glb_bytes=int(2 ** rng.integers(1, 8)) * MEBI,
        hbm_bytes=int(rng.choice([32, 64, 80])) * GIBI,
        micro_batch=int(2 ** rng.integers(0, 4)),
    )


def example_accelerator(point: DesignPoint) -> Accelerator:
    """The accelerator of a point, with bandwidths that look like real ones."""
    chip = toy_accelerator(point)
    return replace(
        chip,
        glb_bandwidth_bytes_per_s=6144 * chip.clock_hz,
        l2_bytes=max(1024, 16 * chip.tc_width * chip.tc_depth),
        hbm_bandwidth_bytes_per_s=chip.hbm_bytes / GIBI / 16 * 400 * GIGA,
    )


def random_accelerators(seed: int, *, count: int = NUM_ACCELERATORS) -> tuple[Accelerator, ...]:
    """Designed chips of every shape, and some with core counts that are no power of two."""
    rng = np.random.default_rng(seed)
    return tuple(_random_accelerator(rng) for _ in range(count))


def _random_accelerator(rng: np.random.Generator) -> Accelerator:
    width, depth = (int(2 ** rng.integers(1, 9)) for _ in range(2))
    tensor, vector = (int(2 ** rng.integers(0, 9)) if rng.random() < 0.8 else int(rng.integers(1, 200)) for _ in "tv")
    clock_hz = float(rng.uniform(0.5e9, 2e9))
    point = DesignPoint(tensor, vector, width, depth, width, int(2 ** rng.integers(1, 8)) * MEBI, 32 * GIBI, 1)
    return replace(
        example_accelerator(point),
        glb_bandwidth_bytes_per_s=6144 * clock_hz,
        hbm_bandwidth_bytes_per_s=float(rng.choice([400e9, 800e9, 2000e9])),
        clock_hz=clock_hz,
    )


TOY_GOALS = (Goal.THROUGHPUT, Goal.THROUGHPUT_PER_TDP, Goal.PARETO)
"""Goals of the toy, which has neither prices nor energies."""
MAX_KEPT = 8192
"""Points of the toy that a process keeps, each under its scenario."""


@dataclass(frozen=True, slots=True)
class ToyScenario:
    """Stands in for a `Scenario`.

    Attributes:
        max_macs: points with more multiply-accumulate units are over area; they are most of the best ones.
        min_memory_bytes: points with less memory are out of memory, and say nothing of the area constraint.
    """

    max_macs: int = 1 << 14
    min_memory_bytes: int = 0

    @property
    def silicon(self) -> None:
        """Of the tables."""

    @property
    def estimator(self) -> str:
        """No plug-in."""
        return ""

    @property
    def digest(self) -> str:
        """SHA-256 of the fields."""
        return hashlib.sha256(repr(astuple(self)).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class ToyObjective:
    """Prices a point in closed form: more compute is better, with the best shape, buffer and micro-batch inside.

    throughput = sqrt(macs) * lanes^(1/4) / (1 + |log2 width/depth| + |log2 glb/16 MiB| / 2) * micro_batch^(1/8)
    """

    scenario: ToyScenario

    def evaluate(self, point: DesignPoint) -> Evaluation:
        """The evaluation of a point."""
        return _priced(self.scenario, point)


def toy_throughput(point: DesignPoint) -> float:
    """The formula of `ToyObjective`, samples/s, as if every point were feasible."""
    accelerator = toy_accelerator(point)
    shape = abs(math.log2(point.tc_width / point.tc_depth))
    buffer = abs(math.log2(point.glb_bytes / (16 << 20)))
    compute = math.sqrt(accelerator.num_macs) * math.pow(accelerator.num_lanes, 0.25)
    return compute / (1.0 + shape + buffer / 2.0) * math.pow(point.micro_batch, 0.125)


@dataclass(frozen=True, slots=True)
class ToyBounder:
    """Bounds of `ToyObjective`: above its throughput by up to ``looseness``, more or less from point to point.

    Attributes:
        scenario: of the objective.
        looseness: largest relative excess of a bound over the truth.
    """

    scenario: ToyScenario
    looseness: float = 0.05

    def bound(self, points: Sequence[DesignPoint], /) -> tuple[PointBound, ...]:
        """The bound of each point, in order."""
        return tuple(self._bound(point) for point in points)

    def within_budgets(self, points: Sequence[DesignPoint], /) -> tuple[bool, ...]:
        """Whether each point is feasible: every constraint of the toy is known from a point's sizes."""
        return tuple(bound.may_be_feasible for bound in self.bound(points))

    def phases(self, point: DesignPoint, /) -> tuple[PhaseView, ...]:
        """None: nothing of a toy is scheduled."""
        del point
        return ()

    def _bound(self, point: DesignPoint) -> PointBound:
        """Over area is certain; out of memory is not, as a bound need not know all that hinders."""
        evaluation = ToyObjective(self.scenario).evaluate(point)
        if evaluation.status is EvaluationStatus.OVER_AREA:
            return PointBound(0.0, 0.0, evaluation.tdp_w, evaluation.area_mm2, reason="over area")
        throughput = toy_throughput(point) * (1.0 + self.looseness * _looseness_share(point))
        return PointBound(throughput, throughput / evaluation.tdp_w, evaluation.tdp_w, evaluation.area_mm2)


@lru_cache(maxsize=MAX_KEPT)
def _priced(scenario: ToyScenario, point: DesignPoint) -> Evaluation:
    """What `ToyObjective` says of a point: suites ask for the same ones many times."""
    accelerator = toy_accelerator(point)
    excess = accelerator.num_macs / scenario.max_macs - 1.0
    shortage = scenario.min_memory_bytes / point.hbm_bytes - 1.0
    if shortage > 0:
        return _evaluation(point, EvaluationStatus.OUT_OF_MEMORY, (("memory", shortage),))
    if excess > 0:
        return _evaluation(point, EvaluationStatus.OVER_AREA, (("area", excess),))
    return _evaluation(point, EvaluationStatus.FEASIBLE, (("area", excess), ("memory", shortage)))


@lru_cache(maxsize=MAX_KEPT)
def _looseness_share(point: DesignPoint) -> float:
    """Share of the looseness that a bound of the point has, from 0 to 1."""
    return hashlib.sha256(repr(astuple(point)).encode()).digest()[0] / 255.0


def _evaluation(point: DesignPoint, status: EvaluationStatus, constraints: tuple[tuple[str, float], ...]) -> Evaluation:
    """The evaluation of a status, with rates only where feasible."""
    accelerator = toy_accelerator(point)
    is_feasible = status is EvaluationStatus.FEASIBLE
    tdp_w = 20.0 + accelerator.num_macs * 1e-3 + accelerator.num_lanes * 1e-2
    throughput = toy_throughput(point) if is_feasible else 0.0
    return Evaluation(
        model="toy",
        status=status,
        reason="" if is_feasible else f"toy point is {status.value}",
        accelerator=accelerator,
        micro_batch=point.micro_batch,
        sequence_length=128,
        num_parameters=1,
        area_mm2=accelerator.num_macs * 1e-3 + accelerator.glb_bytes * 1e-6,
        tdp_w=tdp_w,
        throughput_samples_per_s=throughput,
        throughput_per_tdp=throughput / tdp_w,
        iteration_time_s=1.0 / throughput if is_feasible else 0.0,
        constraints=constraints,
        effort=Effort(num_ilp_solves=point.num_tc % 2, num_placements=1),
    )
