"""Fronts over worlds: which designs no other is as good as, whatever the assumptions turn out to be.

Of a design throughput counts by the least share of a world's optimum that it attains in any world (one less its largest
regret), and watts, area and dollars by the most that they are in any world: a front over worlds is that of these.
Worlds where nothing is feasible blame no design; one that cannot be built, breaks a budget or has no plan in any of the
others attains nothing.

So what a front asks of one world (`certify.front`) is asked of all: a design is off it, within a tolerance, where one
that is solved in every world is no worse in what is known, and its share attains the least of the design's bounds, each
over its world's optimum. One world is enough to rule a design out; to put it on the front, all are needed.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from phaze_opt.certify.best_first import FIRST_ROUND, LARGEST_ROUND, MAX_STAIRS, PROOF_SLACK, STAIRS, ClosingLoop
from phaze_opt.certify.certificate import DesignOverWorlds, FrontOverWorlds
from phaze_opt.certify.covered import listed_rows
from phaze_opt.certify.exact_solution import NUM_EFFORTS
from phaze_opt.certify.finished_tasks import ProofPieces
from phaze_opt.certify.front import KnownGoals, Reach, staircase
from phaze_opt.certify.point_table import MultiplierTable, ProofState
from phaze_opt.certify.problem import CertifyProblem
from phaze_opt.certify.proof import CHUNK_POINTS, Proof, claim_of, do_round
from phaze_opt.certify.robust.prover import SharedGraphs
from phaze_opt.certify.robust.result import MachineOverWorlds, OverWorlds, RobustOptions
from phaze_opt.certify.robust.worlds import World, build_worlds, find_assumptions, problem_in, throughput_in
from phaze_opt.certify.tasks import BoundWork, ProofBench, Workers
from phaze_opt.errors import InputError
from phaze_opt.hardware.accelerator import AcceleratorTable, table_of
from phaze_opt.hardware.chip_template import DesignPoint, PointColumns
from phaze_opt.hardware.designed_chip import chips_of
from phaze_opt.hardware.silicon.chip_silicon import chip_area_mm2, chip_power_w
from phaze_opt.objective.bill import device_usd
from phaze_opt.objective.goals import FrontAxis
from phaze_opt.objective.reference_machines import machines_under
from phaze_opt.record.arrays import Floats, Ints
from phaze_opt.space.grid import Grid, PartOfSpace
from phaze_opt.space.search_space import SearchSpace

AHEAD = 64
"""Designs that lead a front and are bounded exactly before a round is chosen among them."""
MOST_BOUNDS = 4_000_000
"""Designs times worlds that are bounded: more take hours."""
NO_ROW = -1


@dataclass(slots=True, eq=False)
class WorldFacts:
    """What is proved of throughput in the worlds that pose one problem of it.

    Attributes:
        problem: with the rows that are bounded.
        loop: bounds, solutions, and how they are closed.
        bench: pools behind them.
        place: row of each design of the nominal world; `NO_ROW` where it cannot be built within the budgets.
        tried: designs that were solved here, feasible or not.
    """

    problem: CertifyProblem
    loop: ClosingLoop
    bench: ProofBench
    place: Ints
    tried: set[int] = field(default_factory=set)

    @property
    def state(self) -> ProofState:
        """Bounds and solutions."""
        return self.loop.state

    @property
    def optimum(self) -> float:
        """The most that is attained; 0 where nothing is feasible."""
        return 0.0 if self.state.best is None else self.state.best.value

    def visits(self, design: int) -> int:
        """How often a design was taken up to be closed here."""
        return int(self.state.visits[self.place[design]])

    def shares_upper(self) -> Floats:
        """Bounds on the share of the optimum that each design attains, shape (num_designs,)."""
        return self._of_designs(self.state.rate_upper)

    def shares(self) -> Floats:
        """What they attain; 0 where a design is not solved."""
        return self._of_designs(self.state.attained())

    def _of_designs(self, rates: Floats) -> Floats:
        has_row, found = self.place >= 0, np.zeros(len(self.place))
        found[has_row] = rates[self.place[has_row]] / self.optimum
        return found

    def set_limits(self, shares: Floats) -> None:
        """Leave open here what exceeds a share of the optimum, by design; rows of no design do not count."""
        has_row = self.place >= 0
        floor = np.full(len(self.state.rate_upper), np.inf)
        floor[self.place[has_row]] = shares[has_row] * self.optimum
        self.state.outer_limits = floor

    def proof(self, tolerance: float) -> Proof:
        """What is proved of this world's throughput, to be written."""
        self.state.outer_limits = None
        claim = claim_of(self.state, tolerance)
        return Proof(self.state, self.bench.bounder, claim, (), (), self.loop.effort)


def worlds_of_throughput(problem: CertifyProblem, worlds: Sequence[World]) -> tuple[list[CertifyProblem], list[int]]:
    """The problems of throughput that worlds pose, each once, and which of them each world poses."""
    posed, place, numbers = list[CertifyProblem](), dict[str, int](), []
    for world in worlds:
        each = throughput_in(problem, world)
        if each.digest not in place:
            place[each.digest] = len(posed)
            posed.append(each)
        numbers.append(place[each.digest])
    return posed, numbers


def with_rows(posed: Sequence[CertifyProblem]) -> Iterator[tuple[CertifyProblem, Ints]]:
    """Each problem with the rows to bound, and the row of each design of the first.

    Of dies the rows are the frontier, which bounds all that could be built, and each die of the first world within the
    budgets of both; of others they are the space.
    """
    if posed[0].space.silicon is None:
        size = posed[0].space.size
        yield from ((problem, np.arange(size, dtype=np.int64)) for problem in posed)
        return
    first = _within_budgets(posed[0])
    designs: Ints | None = None
    for problem in posed:
        within = first if problem is posed[0] else _within_budgets(problem)
        mine, leading = np.intersect1d(first, within), np.zeros(0, dtype=np.int64)
        if len(within):
            joined = int(np.prod(problem.space.axes.joined_shape))
            leading = Grid(problem.space).of(problem.within_budgets) // joined
        rows = PartOfSpace.of(problem.space, listed_rows(problem.space.axes, np.concatenate([mine, leading])))
        indices = Grid(problem.space).of(rows)
        designs = indices if designs is None else designs
        place = np.full(len(designs), NO_ROW, dtype=np.int64)
        _, at, found = np.intersect1d(designs, indices, assume_unique=True, return_indices=True)
        place[at] = found
        yield replace(problem, listed=rows), place


def _within_budgets(problem: CertifyProblem) -> Ints:
    """Dies within the budgets, by their architecture among all combinations of the axes."""
    space = problem.space.within(problem.scenario.max_area_mm2)
    mask = space.allowed(problem.scenario.max_tdp_w, capex=problem.capex)
    return np.flatnonzero(mask.ravel())


def unbuilt(
    problem: CertifyProblem, worlds: Sequence[World], points: Sequence[DesignPoint]
) -> tuple[tuple[DesignPoint, ...], ...]:
    """Which of some designs of the nominal world cannot be built within the budgets, in each world."""
    grid, found = Grid(problem.space), []
    indices = np.array([grid.index(point) for point in points], dtype=np.int64)
    for world in worlds:
        posed = problem_in(problem, world)
        space = posed.space.within(posed.scenario.max_area_mm2)
        is_built = grid.holds(space.allowed(posed.scenario.max_tdp_w, capex=posed.capex), indices)
        found.append(tuple(point for point, built in zip(points, is_built.tolist(), strict=True) if not built))
    return tuple(found)


def known_in_worlds(
    problem: CertifyProblem, worlds: Sequence[World], columns: PointColumns
) -> tuple[KnownGoals, Mapping[str, Floats]]:
    """The most that each design takes in any world, and that by name: ``area_mm2``, ``tdp_w``, ``cost_usd``."""
    posed = [problem_in(problem, world) for world in worlds]
    most = _most_taken((each, chips_of(columns, each.constants)) for each in posed)
    nothing = {name: np.zeros(len(columns)) for name in ("area_mm2", "tdp_w", "cost_usd")}
    return KnownGoals.of(problem.axes, **(nothing | most)), most


def _most_taken(chips_in: Iterable[tuple[CertifyProblem, AcceleratorTable]]) -> dict[str, Floats]:
    """The most that chips take, each of some problems having its own of them; costs where these are a goal."""
    most = dict[str, Floats]()
    for posed, chips in chips_in:
        scenario, known = posed.scenario, posed.constants
        takes = {"area_mm2": chip_area_mm2(chips, known), "tdp_w": chip_power_w(chips, scenario.cluster.network, known)}
        if FrontAxis.COST in posed.axes:
            takes["cost_usd"] = device_usd(chips, scenario, known)
        most = {name: np.maximum(values, most.get(name, values)) for name, values in takes.items()}
    return most


def front_beside(
    problem: CertifyProblem,
    robust: RobustOptions,
    front: FrontOverWorlds,
    *,
    nominal: Sequence[DesignPoint],
    machines: Sequence[str],
) -> OverWorlds:
    """A front over worlds beside the nominal one, and beside machines as each world has them.

    Args:
        problem: the nominal one.
        robust: which worlds.
        front: over these.
        nominal: the front as the assumptions stand, the fastest design first.
        machines: presets, files or sizes inline.
    """
    worlds = build_worlds(problem, find_assumptions(problem), num_samples=robust.num_samples, seed=robust.seed)
    posed, numbers = worlds_of_throughput(problem, worlds)
    free = [replace(each, scenario=each.scenario.without_budgets()) for each in posed]
    graphs, batches = SharedGraphs(free[0]), problem.space.axes.micro_batch
    found = [machines_under(graphs.objective(each), batches, machines) if machines else {} for each in free]
    beside = []
    for name in found[0]:
        rows = list(zip(worlds, front.worlds, [found[number][name] for number in numbers], strict=True))
        shares = [each.throughput_samples_per_s / own.value if own.value > 0.0 else 0.0 for _, own, each in rows]
        counted = ((problem_in(problem, world), table_of(each.accelerator)) for world, own, each in rows if own.value)
        takes = {key: float(values[0]) for key, values in _most_taken(counted).items()}
        beside.append(MachineOverWorlds(name, tuple(shares), takes))
    return OverWorlds(front, tuple(nominal), unbuilt(problem, worlds, nominal), tuple(beside))


@dataclass(slots=True, eq=False)
class FrontProof:
    """The closing of a front over worlds.

    Attributes:
        all_facts: of all worlds, a problem of throughput each.
        known: the most that each design takes.
        most: the same by name.
        points: designs, the rows of the nominal world.
        slack: relative excess of a bound that counts as none.
        facts: of the worlds in which something is feasible.
        reach: what designs that are solved in every world attain.
        given_up: designs that no effort closes.
    """

    all_facts: Sequence[WorldFacts]
    known: KnownGoals
    most: Mapping[str, Floats]
    points: SearchSpace
    slack: float
    facts: Sequence[WorldFacts] = field(init=False)
    reach: Reach = field(init=False)
    given_up: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        """Take in what proofs of optima solved."""
        self.facts = [each for each in self.all_facts if each.optimum > 0.0]
        self._take_in()

    def designs(self, numbers: Sequence[int]) -> tuple[DesignOverWorlds, ...]:
        """The designs on the front, by rising row.

        Args:
            numbers: which of ``all_facts`` each world has.
        """
        upper, rates = self.shares_upper(), self.all_facts[0].state.attained()
        none = np.zeros(len(self.known.values))
        shares_of = [each.shares() if each.optimum > 0.0 else none for each in self.all_facts]
        counted = [at for at, number in enumerate(numbers) if self.all_facts[number].optimum > 0.0]
        found = []
        for row in self.known.on_front(self.shares()).tolist():
            shares = tuple(float(shares_of[number][row]) for number in numbers)
            worst = min(counted, key=shares.__getitem__)
            takes = {name: float(values[row]) for name, values in self.most.items()}
            found.append(
                DesignOverWorlds(
                    row=row,
                    point=self.points.point(row),
                    share=shares[worst],
                    share_upper=float(upper[row]),
                    worst_world=worst,
                    throughput_samples_per_s=float(rates[row]),
                    tdp_w=takes["tdp_w"],
                    area_mm2=takes["area_mm2"],
                    cost_usd=takes.get("cost_usd"),
                    shares=shares,
                )
            )
        return tuple(found)

    def shares_upper(self) -> Floats:
        """The least bound of each design, as a share of its world's optimum."""
        return np.asarray(np.min([each.shares_upper() for each in self.facts], axis=0))

    def shares(self) -> Floats:
        """What each design attains everywhere; 0 where it is not solved in every world."""
        return np.asarray(np.min([each.shares() for each in self.facts], axis=0))

    def close(self, on_round: Callable[["FrontProof", int], None]) -> None:
        """Run rounds until no design is open."""
        size = FIRST_ROUND
        while picked := self._pick(size):
            self._work_on(picked)
            self._take_in()
            on_round(self, len(self._open(self.shares_upper())))
            size = min(2 * size, LARGEST_ROUND)

    def gap(self) -> float:
        """The largest excess of a bound over what is attained for its design."""
        return self.reach.gap(self.shares_upper())

    def _take_in(self) -> None:
        """Count again what is attained: an optimum that was beaten lowers all shares of its world."""
        shares, self.reach = self.shares(), Reach.of(self.known)
        for design in np.flatnonzero(shares > 0.0).tolist():
            self.reach.take(self.known.values[design], float(shares[design]))

    def _open(self, upper: Floats) -> Ints:
        """Designs that may be on the front and are not settled, the largest bound first."""
        is_open = upper > self.reach.limits(self.slack)
        is_open[list(self.given_up)] = False
        rows = np.flatnonzero(is_open)
        return rows[np.argsort(-upper[rows], kind="stable")]

    def _pick(self, size: int) -> list[int]:
        """Designs of the next round: those of which no other open one is as good by its bound."""
        for _ in range(MAX_STAIRS):
            stairs = self._stairs()
            least = np.argmin([each.shares_upper()[stairs] for each in self.facts], axis=0) if len(stairs) else stairs
            # A list, so that every world is asked.
            if not any([each.loop.sharpen(each.place[stairs[least == row]]) for row, each in enumerate(self.facts)]):
                break
        return [int(design) for design in self._stairs()[:size]]

    def _stairs(self) -> Ints:
        upper = self.shares_upper()
        rows = self._open(upper)[:STAIRS]
        return rows[staircase(self.known.worth(upper[rows]), self.known.values[rows], most=AHEAD)]

    def _work_on(self, picked: Sequence[int]) -> None:
        """Close each in the world that bounds it most; what that leaves is solved in all, then closed where worst."""
        closed: list[list[int]] = [[] for _ in self.facts]
        solved: list[list[int]] = [[] for _ in self.facts]
        upper, attained = (np.array([getattr(each, name)()[picked] for each in self.facts]) for name in _SHARES)
        for place, design in enumerate(picked):
            row = int(upper[:, place].argmin())
            missing = [other for other, each in enumerate(self.facts) if design not in each.tried]
            # Where throughput is no goal, it only counts whether there is any: nothing is to be closed.
            is_worth_closing = self.known.has_throughput and self.facts[row].visits(design) < NUM_EFFORTS
            if row in missing and is_worth_closing:
                closed[row].append(design)
            elif missing:
                for other in missing:
                    solved[other].append(design)
            else:
                row = int(attained[:, place].argmin())
                if self.facts[row].visits(design) >= NUM_EFFORTS:
                    self.given_up.add(design)
                else:
                    closed[row].append(design)
        # What another world rules out is open in none.
        limits, least = self.reach.limits(self.slack), self.shares_upper()
        limits = np.where(least > limits, limits, np.inf)
        for each, mine, others in zip(self.facts, closed, solved, strict=True):
            each.set_limits(limits)
            each.loop.take_up(each.place[mine].tolist())
            each.loop.take_up(each.place[others].tolist(), is_solved_at_once=True)
            each.tried.update(others)
            # A design that has no plan after all is bounded by 0 once its bound is exact.
            each.loop.sharpen(each.place[[one for one in others if int(each.place[one]) not in each.state.solved]])
            # What its bound alone rules out is not solved, and open in no world.
            each.tried.update(design for design in mine if int(each.place[design]) in each.state.solved)


_SHARES = ("shares_upper", "shares")


def bounded_world(
    problem: CertifyProblem, place: Ints, graphs: SharedGraphs, pieces: ProofPieces, *, tolerance: float
) -> WorldFacts:
    """The optimum of one world's throughput, every row of it bounded."""
    bench = ProofBench(problem, objective=graphs.objective(problem), pools=graphs.pools(problem).copied())
    state = ProofState(problem, MultiplierTable(problem.rows.axes.micro_batch, len(bench.bounder.slots)))
    workers = Workers(partial(ProofBench, problem), jobs=1, here=bench)
    size = problem.rows.size
    for number, start in enumerate(range(0, size, CHUNK_POINTS)):
        chunk = pieces.chunk(number)
        if chunk is None:
            (chunk,) = workers.map([BoundWork(start, min(start + CHUNK_POINTS, size))])
            pieces.keep_chunk(number, chunk)
        state.fill(start, chunk.rows, chunk.row_of)
    loop = ClosingLoop(state, bench, refine=partial(do_round, workers, pieces), tolerance=tolerance)
    loop.close(lambda: None)
    facts = WorldFacts(problem, loop, bench, place)
    facts.tried.update(np.flatnonzero(np.isin(place, list(state.solved))).tolist())
    return facts


def close_front(
    problem: CertifyProblem,
    worlds: Sequence[World],
    facts: Sequence[WorldFacts],
    numbers: Sequence[int],
    *,
    tolerance: float,
    tell: Callable[[FrontProof, int], None],
) -> FrontProof:
    """The front over worlds whose optima are proved.

    Args:
        problem: the nominal one.
        worlds: all of them.
        facts: of each problem of throughput, the nominal one first.
        numbers: which of these each world poses.
        tolerance: relative, of shares.
        tell: told of each round, and of the designs still open.
    """
    rows = facts[0].problem.rows
    counted = [world for world, number in zip(worlds, numbers, strict=True) if facts[number].optimum > 0.0]
    known, most = known_in_worlds(problem, counted, rows.columns(np.arange(rows.size, dtype=np.int64)))
    front = FrontProof(facts, known, most, rows, max(tolerance, PROOF_SLACK))
    front.close(tell)
    return front


def require_few_bounds(problem: CertifyProblem, posed: Sequence[CertifyProblem]) -> None:
    """Refuse what is too much to bound: every design of the nominal world by itself in every other world."""
    num_bounds = problem.space.size * len(posed)
    if num_bounds > MOST_BOUNDS:
        message = (
            f"a front over worlds bounds each of the {problem.space.size:,} points of the space {problem.space.name} "
            f"in each of {len(posed)} worlds, {num_bounds:,} bounds of at most {MOST_BOUNDS:,}; give a space file with "
            "fewer values (--space), fewer samples (--robust-samples), or one goal"
        )
        raise InputError(message, key="space")
