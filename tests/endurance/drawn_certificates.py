"""Small certificates of every kind, drawn from a number: of at most 200 designs each."""

import random
from dataclasses import dataclass, field, replace
from pathlib import Path

from planned_certificate import planned_scenario
from small_problems import MODELS, small_model, small_scenario, small_space

from phaze_opt.certify.check.check import check_certificate
from phaze_opt.certify.check.worlds import check_front_over_worlds
from phaze_opt.certify.problem import CertifyOptions, CertifyProblem
from phaze_opt.certify.prove import certify
from phaze_opt.certify.robust.analyse import front_file, prove_front
from phaze_opt.certify.robust.result import RobustOptions
from phaze_opt.errors import InputError
from phaze_opt.hardware.chip_template import DesignPoint
from phaze_opt.hardware.silicon.silicon import silicon_of
from phaze_opt.objective.evaluate import Objective
from phaze_opt.objective.goals import FrontAxis, Goal
from phaze_opt.objective.scenario import CommonMean, Scenario
from phaze_opt.placement.problem import RecomputePolicy
from phaze_opt.schedule.problem import Exclusivity
from phaze_opt.space.axes import Axes
from phaze_opt.space.search_space import SearchSpace
from phaze_opt.units import GIBI, MEBI
from phaze_opt.workload.model import ModelSpec
from phaze_opt.workload.plan import PlanChoices
from phaze_opt.workload.training import AttentionForm

KINDS = ("plain", "front", "plans", "fused")
WORLDS = "worlds"
EVERY = 10
"""One certificate of so many is a front over worlds."""
MOST_DESIGNS = 200
SOFTWARE = ("maxtext", "megatron-core", "llm-foundry", "megatron-2022", "ideal", "pax")
WIDE = small_model("wide", hidden_size=512, num_heads=8, num_kv_heads=8, ffn_size=2048, embedding_size=512)


@dataclass(slots=True)
class Original:
    """A certificate as the prover wrote it.

    Attributes:
        kind: of it.
        problem: that it is of.
        directory: where it lies.
    """

    kind: str
    problem: CertifyProblem
    directory: Path
    _objective: Objective = field(init=False)
    _rates: dict[DesignPoint, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Price by the package, whatever the certificate says."""
        self._objective = Objective(self.problem.scenario, constants=self.problem.constants)

    @property
    def statement(self) -> Path:
        """Where the certificate lies that is forged; of worlds that of the nominal one."""
        return self.directory / "worlds/000" if self.kind == WORLDS else self.directory

    def rate(self, point: DesignPoint) -> float:
        """What a design attains, samples/s; 0 where it cannot train."""
        if point not in self._rates:
            found = self._objective.evaluate(point)
            self._rates[point] = found.throughput_samples_per_s if found.is_feasible else 0.0
        return self._rates[point]

    def check(self, directory: Path) -> None:
        """Check it, or a copy of it."""
        if self.kind == WORLDS:
            check_front_over_worlds(directory)
        else:
            check_certificate(directory)


def kind_of(number: int) -> str:
    """Kinds in a cycle, and worlds one in ten."""
    return WORLDS if number % EVERY == EVERY - 1 else KINDS[number % len(KINDS)]


def draw_certificate(number: int, directory: Path) -> Original:
    """Prove drawn problems of the number's kind until something is feasible in one."""
    kind = kind_of(number)
    for attempt in range(100):
        rng = random.Random(f"{kind}:{number}:{attempt}")
        problem = DRAWS[kind](rng)
        options = CertifyOptions(tolerance=rng.choice((0.0, 1e-3, 1e-2)), num_best=2, directory=directory)
        try:
            if kind == WORLDS:
                options = replace(options, tolerance=1e-2)
                front = prove_front(problem, options, RobustOptions(num_samples=rng.choice((0, 1)), seed=number))
                if front.designs:
                    return Original(kind, problem, front_file(problem, options).parent)
            else:
                result = certify(problem, options)
                if result.certificate.claim.is_feasible:
                    return Original(kind, problem, result.directory)
        except InputError:
            continue
    raise AssertionError(f"nothing of {kind} {number} is feasible")


def some(rng: random.Random, values: tuple[int, ...], most: int = 2) -> tuple[int, ...]:
    """One to ``most`` of some values, rising."""
    return tuple(sorted(rng.sample(values, rng.randint(1, most))))


def draw_models(rng: random.Random, most: int = 2) -> tuple[ModelSpec, ...]:
    return tuple(rng.sample(MODELS, rng.choice((1, 1, most))))


def budgets(rng: random.Random) -> dict[str, object]:
    """None in most problems."""
    return {
        "max_tdp_w": rng.choice((None, None, None, 180.0, 220.0)),
        "max_area_mm2": rng.choice((None, None, None, 60.0, 420.0)),
    }


def table_space(rng: random.Random) -> SearchSpace:
    """Of Phaze's tables."""
    return small_space(
        num_tc=some(rng, (8, 12, 16, 32), 3),
        num_vc=some(rng, (8, 16, 32, 64)),
        tc_width=some(rng, (16, 32, 64, 128), 3),
        tc_depth=some(rng, (32, 64, 128)),
        glb_bytes=tuple(size * MEBI for size in some(rng, (2, 4, 8))),
        micro_batch=some(rng, (1, 2, 3)),
        hbm_bytes=rng.choice(((32 * GIBI,), (4 * MEBI, 32 * GIBI))),
    )


def die_space(rng: random.Random, scenario: Scenario, micro_batch: tuple[int, ...] = (1,)) -> SearchSpace:
    """Of dies of 7 nm."""
    axes = Axes(
        num_tc=some(rng, (4, 8, 12), 3), num_vc=some(rng, (8, 16)), tc_width=some(rng, (64, 128)),
        tc_depth=(128,), vc_width=(), glb_bytes=tuple(size * MEBI for size in some(rng, (4, 8, 16, 32), 3)),
        glb_bytes_per_cycle=some(rng, (2048, 4096, 6144)), hbm_bytes=(), hbm_stacks=some(rng, (1, 2, 4, 6), 3),
        micro_batch=micro_batch,
    )  # fmt: skip
    silicon = silicon_of(7, scenario.cluster.network)
    return SearchSpace("dies", axes, rng.choice((400e6, 560e6, 858e6)), rng.choice((0.0, 0.3)), silicon=silicon)


def posed(rng: random.Random, scenario: Scenario, *, is_die: bool, goals: tuple[Goal, ...]) -> CertifyProblem:
    """A problem of a space that is small enough; money is of dies alone."""
    goal = rng.choice(goals if is_die else goals[:2])
    while True:
        space = die_space(rng, scenario) if is_die else table_space(rng)
        if 12 <= space.size <= MOST_DESIGNS:
            break
    if is_die:
        prices = () if goal is Goal.THROUGHPUT_PER_USD else None
        scenario = replace(scenario, silicon=space.silicon, prices=prices)
    return CertifyProblem(scenario, space, scenario.constants_of(), goal)


GOALS = (Goal.THROUGHPUT, Goal.THROUGHPUT_PER_TDP, Goal.THROUGHPUT_PER_USD)


def draw_plain(rng: random.Random) -> CertifyProblem:
    """Placements of the published form."""
    scenario = small_scenario(
        *draw_models(rng),
        devices=rng.choice((2, 4, 6, 8)),
        network=rng.choice(("two-level", "phaze")),
        tensor_parallel=rng.choice(((1,), (1, 2))),
        exclusivity=rng.choice(tuple(Exclusivity)),
        attention=rng.choice(tuple(AttentionForm)),
        recompute=rng.choice(tuple(RecomputePolicy)),
        common=rng.choice(tuple(CommonMean)),
        **budgets(rng),
    )
    is_die = scenario.cluster.network.name == "two-level" and rng.random() < 0.5
    return posed(rng, scenario, is_die=is_die, goals=GOALS)


def draw_planned(rng: random.Random) -> CertifyProblem:
    """Full plans of measured software."""
    scenario = planned_scenario(
        rng.choice(SOFTWARE),
        *draw_models(rng),
        devices=rng.choice((4, 8)),
        global_batch=rng.choice((16, 32)),
        plans=draw_choices(rng),
        exclusivity=rng.choice(tuple(Exclusivity)),
        common=rng.choice(tuple(CommonMean)),
        **budgets(rng),
    )
    return posed(rng, scenario, is_die=rng.random() < 0.5, goals=GOALS)


def draw_choices(rng: random.Random) -> PlanChoices:
    return PlanChoices(
        tensor=rng.choice(((1,), (1, 2))),
        pipeline=rng.choice(((), (1, 2))),
        interleave=rng.choice(((), (1,))),
        micro_batch=rng.choice(((1, 2), (2, 4))),
        zero=some(rng, (0, 1, 2, 3)),
    )


def draw_front(rng: random.Random) -> CertifyProblem:
    """Two to four goals of what the others draw."""
    problem = rng.choice((draw_plain, draw_planned))(rng)
    known = tuple(axis for axis in FrontAxis if axis is not FrontAxis.COST or problem.space.silicon is not None)
    axes = rng.sample(known, rng.randint(2, len(known)))
    return of_front(problem, *axes)


def of_front(problem: CertifyProblem, *axes: FrontAxis) -> CertifyProblem:
    """The same of a front; prices are stated where a price decides."""
    prices = () if FrontAxis.COST in axes else None
    scenario = replace(problem.scenario, prices=prices)
    ordered = tuple(axis for axis in FrontAxis if axis in axes)
    return CertifyProblem(scenario, problem.space, problem.constants, Goal.PARETO, axes=ordered)


def draw_fused(rng: random.Random) -> CertifyProblem:
    """Dies whose arrays wait for memory, of layers in groups."""
    plans = PlanChoices(
        tensor=rng.choice(((1,), (1, 2))),
        pipeline=rng.choice(((1,), (1, 2))),
        interleave=(1,),
        micro_batch=rng.choice(((2,), (4,), (2, 4))),
        zero=(1,),
    )
    scenario = planned_scenario(
        rng.choice(("ideal", "maxtext", "megatron-core")),
        replace(WIDE, num_layers=rng.choice((2, 4, 6))),
        estimator=rng.choice(("calibrated", "analytic")),
        plans=plans,
        global_batch=rng.choice((32, 64)),
    )
    silicon = silicon_of(7, scenario.cluster.network)
    axes = Axes(
        num_tc=(8,), num_vc=(16,), tc_width=(128,), tc_depth=(128,), vc_width=(128,),
        glb_bytes=tuple(size * MEBI for size in some(rng, (8, 16, 32))), glb_bytes_per_cycle=(4096,), hbm_bytes=(),
        hbm_stacks=some(rng, (1, 2)), micro_batch=(1,),
    )  # fmt: skip
    space = SearchSpace("fused", axes, area_budget_um2=858e6, min_area_fraction=0.0, silicon=silicon)
    scenario = replace(scenario, silicon=silicon, layer_fusion="exact")
    return CertifyProblem(scenario, space, scenario.constants_of(), rng.choice(GOALS[:2]))


def draw_worlds(rng: random.Random) -> CertifyProblem:
    """A few dies in all worlds of the package's ranges."""
    model = small_model("wide", hidden_size=1024, num_heads=16, num_kv_heads=16, ffn_size=4096, embedding_size=1024)
    scenario = small_scenario(rng.choice((WIDE, model)), network="two-level", devices=rng.choice((4, 8)))
    silicon = silicon_of(7, scenario.cluster.network)
    axes = Axes(
        num_tc=(8,), num_vc=(8,), tc_width=some(rng, (64, 128)), tc_depth=(128,), vc_width=(),
        glb_bytes=tuple(size * MEBI for size in some(rng, (8, 16, 32))), glb_bytes_per_cycle=(2048,), hbm_bytes=(),
        hbm_stacks=some(rng, (1, 2)), micro_batch=(1,),
    )  # fmt: skip
    space = SearchSpace("dies", axes, area_budget_um2=560e6, min_area_fraction=0.0, silicon=silicon)
    scenario = replace(scenario, silicon=silicon)
    problem = CertifyProblem(scenario, space, scenario.constants_of())
    return of_front(problem, FrontAxis.THROUGHPUT, *rng.sample((FrontAxis.TDP, FrontAxis.AREA, FrontAxis.COST), 2))


DRAWS = {"plain": draw_plain, "front": draw_front, "plans": draw_planned, "fused": draw_fused, WORLDS: draw_worlds}
