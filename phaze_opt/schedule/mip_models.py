"""The two models of one block in Pyomo: the exact ordering model, in named constraint groups, and the crash bound.

The ordering model (semantics 4, step 5) has the variables y_i spread, s_i start, a_i,j operator i ends before j starts
(only pairs that precedence leaves open and where the order can matter), c_i potentials of the crash rows, makespan T.
The crash bound (step 3) leaves ordering out: y, c and T.

Groups are functions so that a test can leave one out by name: without a defining group the answer is wrong, without a
strengthening group the root bound falls.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import combinations, islice
from typing import Any

from phaze_opt.schedule.block_data import BlockProblem
from phaze_opt.schedule.highs import HighsSolver, MipAnswer
from phaze_opt.schedule.structure import TC_BIT, VC_BIT

# Core rows are all built at once where they are this few; else only Turan's, the others being lazy ...
MAX_EAGER_ROWS = 60
# ... until a first round has not closed the block, when this many are added.
MAX_SECOND_ROWS = 400
MAX_ROWS_PER_ROUND = 60
# Latencies are scaled so that the makespan is this; suits HiGHS's absolute tolerances of 1e-9.
SCALE = 100.0


class GroupRole(StrEnum):
    """DEFINING groups make the model right, STRENGTHENING groups make its relaxation tight.

    IMPLIED groups do neither: they follow from the others at integer points and leave the root bound where it is.
    """

    DEFINING = "defining"
    STRENGTHENING = "strengthening"
    IMPLIED = "implied"


@dataclass(frozen=True, slots=True)
class ConstraintGroup:
    """A named set of rows: ``build(model, problem, upper)`` adds them."""

    name: str
    role: GroupRole
    build: Callable[[Any, BlockProblem, float], None]


def build_ordering_model(
    problem: BlockProblem, upper: float, *, groups: Iterable[ConstraintGroup] | None = None
) -> Any:
    """Pyomo model whose optimum is the block's makespan if that is at most ``upper``.

    Args:
        problem: the block; latencies around 1 to 1000 suit the solver's tolerances.
        upper: makespan of a known schedule.
        groups: constraint groups; all by default.

    Returns:
        A ConcreteModel with variables ``spread``, ``start``, ``before``, ``potential``, ``makespan``. Core rows are
        lazy: see `core_row`.
    """
    import pyomo.environ as pyo

    chosen = tuple(GROUPS.values()) if groups is None else tuple(groups)
    model = pyo.ConcreteModel()
    operators = range(len(problem))
    pairs = [pair for i, j in problem.ordered_pairs for pair in ((i, j), (j, i))]
    model.spread = pyo.Var(operators, domain=pyo.Binary)
    model.start = pyo.Var(operators, bounds=(0.0, upper))
    model.before = pyo.Var(pairs, domain=pyo.Binary)
    model.potential = pyo.Var(operators, range(3), bounds=(0.0, upper))
    model.makespan = pyo.Var(bounds=(0.0, upper))
    model.objective = pyo.Objective(expr=model.makespan)
    model.core_rows = pyo.ConstraintList()
    names = {group.name for group in chosen}
    model.has_tight_big_m = "tight_big_m" in names
    for i in operators:
        if i not in problem.spreadable:
            model.spread[i].fix(0)
    for group in chosen:
        group.build(model, problem, upper)
    return model


def duration(model: Any, problem: BlockProblem, operator: int) -> Any:
    """p_i = L_i + (I_i - L_i) y_i."""
    slope = problem.spread[operator] - problem.one_core[operator]
    return problem.one_core[operator] + slope * model.spread[operator]


def core_row(model: Any, problem: BlockProblem, operators: Iterable[int], *, num_cores: int) -> Any:
    """Of operators that all need one type of ``num_cores`` cores, enough pairs must be ordered.

    For ``num_cores + 1`` operators: at least one. For more, Turan's theorem gives the number: the overlap graph is
    an interval graph without a clique larger than the cores, hence colourable with that many classes, and pairs
    inside a class are ordered.
    """
    chosen = sorted(operators)
    quotient, rest = divmod(len(chosen), num_cores)
    required = rest * (quotient + 1) * quotient // 2 + (num_cores - rest) * quotient * (quotient - 1) // 2
    terms = []
    for position, i in enumerate(chosen):
        for j in chosen[position + 1 :]:
            if problem.block.after[i] >> j & 1 or problem.block.after[j] >> i & 1:
                required -= 1
            else:
                terms.append(model.before[i, j] + model.before[j, i])
    return sum(terms) >= required


def _add_rows(model: Any, name: str, rows: Iterable[Any]) -> None:
    import pyomo.environ as pyo

    setattr(model, name, pyo.ConstraintList())
    for row in rows:
        getattr(model, name).add(row)


def _precedence(model: Any, problem: BlockProblem, upper: float) -> None:
    """s_j >= s_i + p_i on reduction edges."""
    ends = ((j, model.start[i] + duration(model, problem, i)) for i, j in problem.block.edges)
    _add_rows(model, "precedence", (model.start[j] >= end for j, end in ends))


def _makespan(model: Any, problem: BlockProblem, upper: float) -> None:
    """T >= s_i + p_i."""
    ends = (model.start[i] + duration(model, problem, i) for i in range(len(problem)))
    _add_rows(model, "ends", (model.makespan >= end for end in ends))


def _big_m_ordering(model: Any, problem: BlockProblem, upper: float) -> None:
    """s_j >= s_i + p_i - M (1 - a_ij).

    Tight M = (UB - tail_i) - head_j: i ends by UB - tail_i and j starts no earlier than head_j; loose M = UB.
    """

    def row(i: int, j: int) -> Any:
        big = upper - problem.tails[i] - problem.heads[j] if model.has_tight_big_m else upper
        return model.start[j] >= model.start[i] + duration(model, problem, i) - max(0.0, big) * (1 - model.before[i, j])

    _add_rows(model, "ordering", (row(*pair) for pair in model.before))


def _exclusivity(model: Any, problem: BlockProblem, upper: float) -> None:
    """a_ij + a_ji >= y_i and >= y_j where i or j, spread, excludes the other."""
    pairs = [pair for pair in problem.ordered_pairs if problem.excludes(*pair)]
    rows = [(i, j, k) for i, j in pairs for k in (i, j) if k in problem.spreadable]
    _add_rows(model, "exclusivity", (model.before[i, j] + model.before[j, i] >= model.spread[k] for i, j, k in rows))


def _core_pairs(model: Any, problem: BlockProblem, upper: float) -> None:
    """Core rows of all antichains of one operator too many, where they are few; Turan's row over all of a type."""
    for bit in problem.scarce_types:
        model.core_rows.add(core_row(model, problem, problem.of_type(bit), num_cores=problem.cores_of(bit)))
    for row in antichain_rows(model, problem, limit=MAX_EAGER_ROWS):
        model.core_rows.add(row)


def antichain_rows(model: Any, problem: BlockProblem, *, limit: int) -> list[Any]:
    """Core rows of all sets of one operator too many that could run at once, for types with at most ``limit`` sets."""
    rows: list[Any] = []
    for bit in problem.scarce_types:
        num_cores = problem.cores_of(bit)
        sets = list(islice(_antichains(problem, problem.of_type(bit), size=num_cores + 1), limit + 1))
        if len(sets) <= limit:
            rows.extend(core_row(model, problem, crowd, num_cores=num_cores) for crowd in sets)
    return rows


def _antichains(problem: BlockProblem, operators: Sequence[int], *, size: int) -> Iterator[tuple[int, ...]]:
    """Sets of ``size`` pairwise incomparable operators."""

    def extend(chosen: tuple[int, ...], rest: Sequence[int]) -> Iterator[tuple[int, ...]]:
        if len(chosen) == size:
            yield chosen
            return
        for position, i in enumerate(rest):
            later = [j for j in rest[position + 1 :] if not problem.block.after[i] >> j & 1]
            yield from extend((*chosen, i), later)

    return extend((), sorted(operators))


def _bound_rows(model: Any, problem: BlockProblem, upper: float) -> None:
    """The rows of the crash bound (step 3)."""
    add_crash_rows(model, problem)


def add_crash_rows(model: Any, problem: BlockProblem) -> None:
    """Crash rows on ``model.spread``, ``model.potential`` and ``model.makespan``.

    chip: T >= sum y I + longest path under (1 - y) L, and the work row of each type.
    type: longest path under p; for each type alone the two chip rows of its operators.
    """
    import pyomo.environ as pyo

    operators = range(len(problem))
    model.crash = pyo.ConstraintList()
    if problem.is_chip:
        _add_path_rows(model, problem, layer=0, operators=operators, total=_spread_sum(model, problem, operators))
    else:
        for i, j in problem.block.edges:
            model.crash.add(model.potential[j, 0] >= model.potential[i, 0] + duration(model, problem, i))
        for i in operators:
            model.crash.add(model.makespan >= model.potential[i, 0] + duration(model, problem, i))
    for layer, bit in ((1, TC_BIT), (2, VC_BIT)):
        members = problem.of_type(bit)
        total = _spread_sum(model, problem, operators if problem.is_chip else members)
        if not problem.is_chip and members:
            _add_path_rows(model, problem, layer=layer, operators=members, total=total)
        if bit in problem.scarce_types:
            work = sum(problem.one_core[i] * (1 - model.spread[i]) for i in members)
            model.crash.add(model.makespan >= total + work / problem.cores_of(bit))


def _spread_sum(model: Any, problem: BlockProblem, operators: Iterable[int]) -> Any:
    return sum(problem.spread[i] * model.spread[i] for i in operators if i in problem.spreadable)


def _add_path_rows(model: Any, problem: BlockProblem, *, layer: int, operators: Iterable[int], total: Any) -> None:
    chosen = set(operators)

    def rest(i: int) -> Any:
        return problem.one_core[i] * (1 - model.spread[i]) if i in chosen else 0.0

    for i, j in problem.block.edges:
        model.crash.add(model.potential[j, layer] >= model.potential[i, layer] + rest(i))
    for i in range(len(problem)):
        model.crash.add(model.makespan >= total + model.potential[i, layer] + rest(i))


def _head_tail_fixings(model: Any, problem: BlockProblem, upper: float) -> None:
    """a_ij = 0 when head_i + min_i + min_j + tail_j > UB; windows of the starts; tails behind the ends.

    head_i <= s_i <= UB - min_i - tail_i and T >= s_i + p_i + tail_i, where ``tail`` is what must follow the end of
    an operator and ``min`` the shorter of its latencies.
    """
    heads, tails, shortest = problem.heads, problem.tails, problem.shortest
    slack = 1e-9 * upper
    for i, j in model.before:
        if heads[i] + shortest[i] + shortest[j] + tails[j] > upper + slack:
            model.before[i, j].fix(0)
    for i in range(len(problem)):
        model.start[i].setlb(heads[i])
        model.start[i].setub(max(heads[i], upper - shortest[i] - tails[i]))
    ends = (model.start[i] + duration(model, problem, i) + tails[i] for i in range(len(problem)))
    _add_rows(model, "finish", (model.makespan >= end for end in ends))


def _antisymmetry(model: Any, problem: BlockProblem, upper: float) -> None:
    """a_ij + a_ji <= 1."""
    _add_rows(model, "antisymmetry", (model.before[i, j] + model.before[j, i] <= 1 for i, j in problem.ordered_pairs))


def _no_rows(model: Any, problem: BlockProblem, upper: float) -> None:
    """``tight_big_m`` adds no rows of its own: it changes the M of ``big_m_ordering``."""


_ALL_GROUPS = (
    ConstraintGroup("precedence", GroupRole.DEFINING, _precedence),
    ConstraintGroup("makespan", GroupRole.DEFINING, _makespan),
    ConstraintGroup("big_m_ordering", GroupRole.DEFINING, _big_m_ordering),
    ConstraintGroup("exclusivity", GroupRole.DEFINING, _exclusivity),
    ConstraintGroup("antisymmetry", GroupRole.IMPLIED, _antisymmetry),
    ConstraintGroup("core_pairs", GroupRole.STRENGTHENING, _core_pairs),
    ConstraintGroup("bound_rows", GroupRole.STRENGTHENING, _bound_rows),
    ConstraintGroup("head_tail_fixings", GroupRole.STRENGTHENING, _head_tail_fixings),
    ConstraintGroup("tight_big_m", GroupRole.STRENGTHENING, _no_rows),
)
GROUPS: Mapping[str, ConstraintGroup] = {group.name: group for group in _ALL_GROUPS}


def broken_core_rows(model: Any, problem: BlockProblem, answer: MipAnswer) -> list[Any]:
    """Rows for the sets of operators that run at once on too few cores in a model's answer (lazy core rows)."""
    rows: list[Any] = []
    start = [answer.value(model.start[i]) for i in range(len(problem))]
    is_spread = [i in problem.spreadable and answer.value(model.spread[i]) > 0.5 for i in range(len(problem))]
    for bit in problem.scarce_types:
        num_cores = problem.cores_of(bit)
        for crowd in crowds(problem, start, is_spread, operators=problem.of_type(bit), num_cores=num_cores):
            rows.append(core_row(model, problem, crowd, num_cores=num_cores))
            chosen = islice(combinations(crowd, num_cores + 1), MAX_ROWS_PER_ROUND)
            if len(crowd) > num_cores + 1:
                rows.extend(core_row(model, problem, part, num_cores=num_cores) for part in chosen)
    return rows


def crowds(
    problem: BlockProblem,
    start: Sequence[float],
    is_spread: Sequence[bool],
    *,
    operators: Sequence[int],
    num_cores: int,
) -> list[tuple[int, ...]]:
    """Maximal sets of unspread operators that overlap at the start of one of them and exceed the cores."""
    slack = 1e-7 * SCALE
    found: list[tuple[int, ...]] = []
    for probe in operators:
        now = start[probe] + slack
        crowd = tuple(
            i
            for i in operators
            if not is_spread[i] and start[i] <= now and start[i] + problem.one_core[i] > now + slack
        )
        if len(crowd) > num_cores and crowd not in found:
            found.append(crowd)
    return found


@dataclass(frozen=True, slots=True)
class CrashAnswer:
    """Lower bound of a block's makespan and the modes that attain it (None: no incumbent in time)."""

    lower: float
    is_spread: tuple[bool, ...] | None


def build_crash_model(problem: BlockProblem) -> Any:
    """Pyomo model of the crash bound: y binary, path potentials, makespan."""
    import pyomo.environ as pyo

    model = pyo.ConcreteModel()
    operators = range(len(problem))
    model.spread = pyo.Var(operators, domain=pyo.Binary)
    model.potential = pyo.Var(operators, range(1 if problem.is_chip else 3), domain=pyo.NonNegativeReals)
    model.makespan = pyo.Var(domain=pyo.NonNegativeReals)
    model.objective = pyo.Objective(expr=model.makespan)
    for i in operators:
        if i not in problem.spreadable:
            model.spread[i].fix(0)
    add_crash_rows(model, problem)
    return model


def solve_crash_bound(problem: BlockProblem, *, time_limit_s: float, max_nodes: int = 0) -> CrashAnswer:
    """Solve the crash MIP; the bound is valid however early the solver stops."""
    model = build_crash_model(problem)
    answer = HighsSolver(model).solve(time_limit_s=time_limit_s, max_nodes=max_nodes)
    modes = None
    if answer.has_solution:
        modes = tuple(i in problem.spreadable and answer.value(model.spread[i]) > 0.5 for i in range(len(problem)))
    return CrashAnswer(lower=max(0.0, answer.bound), is_spread=modes)
