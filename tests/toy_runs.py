"""Strategies and searches run on the toy objective."""

from phaze_opt.hardware.chip_template import DesignPoint
from phaze_opt.search.config import SearchConfig
from phaze_opt.search.result import SearchResult
from phaze_opt.search.run import run_search
from phaze_opt.search.strategy import StrategyContext, StrategyRun
from phaze_opt.space.axes import Axes
from phaze_opt.space.search_space import SearchSpace
from phaze_opt.testing.problems import ToyBounder, ToyObjective, ToyScenario, tiny_space, toy_throughput
from phaze_opt.testing.strategies import Judge
from phaze_opt.units import GIBI, MEBI

SPACE = tiny_space()


def toy_context(*directions, space=SPACE, num_trials=60, seed=0, **options) -> StrategyContext:
    """What a strategy starts from; without directions its one objective rises."""
    return StrategyContext(space, directions or ("maximize",), num_trials, seed, options)


def search_toy(config: SearchConfig, **changes) -> SearchResult:
    """A search of the tiny space, unless told otherwise."""
    toy = {"scenario": ToyScenario(), "space": SPACE, "objective_factory": ToyObjective, "bounder_factory": ToyBounder}
    return run_search(config, **(toy | changes))


def fill(run: StrategyRun, count: int, judge: Judge) -> list[DesignPoint]:
    """Points that a run proposes, four at a time, each told its outcome."""
    points: list[DesignPoint] = []
    while len(points) < count:
        asked = run.ask(4)
        run.tell([judge(len(points) + position, point) for position, point in enumerate(asked)])
        points.extend(asked)
    return points


def toy_optimum(space: SearchSpace = SPACE) -> float:
    """The largest throughput of a feasible point, by enumeration."""
    return max(map(feasible_throughput, space.points()))


def feasible_throughput(point: DesignPoint) -> float:
    """The formula where a point keeps to the toy's area, 0 elsewhere."""
    macs = point.num_tc * point.tc_width * point.tc_depth
    return toy_throughput(point) if macs <= ToyScenario().max_macs else 0.0


def few_points(num_tc: tuple[int, ...] = (1, 2), *, micro_batch: tuple[int, ...] = (1,)) -> SearchSpace:
    """A space of one chip or two."""
    axes = Axes(num_tc, (1,), (64,), (64,), (), (8 * MEBI,), (32 * GIBI,), micro_batch)
    return SearchSpace("few", axes, area_budget_um2=1e9, min_area_fraction=0.0)
