"""The best dual vector of one design: the relaxed crash bound as a linear program, whose row duals are the vector.

Columns: y of each operator, the end c of each operator along paths (for each path flow), makespan T, and under type
one T_k per core type. Rows, with p the weight that a path flow counts ((1 - y) L, or that + y I over all paths):

    source  c_i >= p_i          of operators without predecessor
    arc     c_j >= c_i + p_j
    sink    T >= c_i            of operators without successor (T_k for paths priced by one type)
    work    T >= sum over S_k of (1 - y) L / n_k                      (T_k under type)
    spread  T >= T_k + sum over S_k of y I                            (type; under chip sum y I joins the objective)

Only the weights of y depend on latencies and cores, so the rows are built once for a block and filled in.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from phaze_opt.record.arrays import Flags, Floats, ShortInts
from phaze_opt.schedule.block_data import BlockProblem
from phaze_opt.schedule.duals import (
    SMALLEST_FLOW,
    TYPE_BITS,
    DualVector,
    PathFlow,
    balanced_flow,
    priced_vector,
    work_vector,
)
from phaze_opt.schedule.highs import new_highs
from phaze_opt.schedule.precedence import Edge
from phaze_opt.schedule.problem import Exclusivity
from phaze_opt.schedule.proof_tree import FREE, ONE_CORE, SPREAD
from phaze_opt.schedule.structure import TC_BIT, Block

_TOLERANCE = 1e-9


def best_dual(problem: BlockProblem) -> DualVector:
    """The vector with the greatest bound on one block: dual of the relaxed crash bound, by linear programming."""
    return DualProgram(problem.block, problem.exclusivity).solve(problem)


class DualProgram:
    """The rows of one block, to be solved for any latencies and cores."""

    def __init__(self, block: Block, exclusivity: Exclusivity, *, arcs: Sequence[Edge] | None = None) -> None:
        """Build the rows.

        Args:
            block: topology.
            exclusivity: what a spread operator excludes.
            arcs: what paths run over; the block's reduction unless given. Acyclic.
        """
        self.block = block
        self.exclusivity = exclusivity
        self.arcs = block.edges if arcs is None else tuple(arcs)
        self._count = len(block)
        counted: list[Flags] = [np.ones(self._count, dtype=np.bool_)]
        if exclusivity is Exclusivity.TYPE:
            counted.extend(np.array(block.masks) & bit != 0 for bit in TYPE_BITS)
        self._counted = counted
        self.rows = _Rows(self._count, self.arcs, counted, np.array(block.masks))

    def solve(self, problem: BlockProblem, modes: Sequence[int] | None = None) -> DualVector:
        """The vector with the greatest bound; the work of tensor cores where the solver fails.

        Args:
            problem: this block with its latencies.
            modes: (n,) FREE, ONE_CORE or SPREAD; all free unless given.
        """
        duals = solve_rows(self.rows, problem, modes)
        if duals is None:
            return work_vector(self.block, TC_BIT, self.exclusivity)
        return self.vector(duals)

    def vector(self, duals: Floats) -> DualVector:
        """A vector that balances from row duals, (num_rows,), its weights scaled to the sum of 1."""
        duals = np.where(duals > SMALLEST_FLOW, duals, 0.0)
        flows = []
        for layer in range(len(self._counted)):
            source = np.zeros(self._count)
            source[list(self.rows.first)] = duals[self.rows.source_rows(layer)]
            flows.append(balanced_flow(source, duals[self.rows.arc_rows(layer)], arcs=self.arcs))
        multipliers = duals[self.rows.work_rows()]
        total = float(multipliers.sum() + sum(flow.source.sum() for flow in flows))
        if total <= 0.0:
            return work_vector(self.block, TC_BIT, self.exclusivity)
        return priced_vector(
            self.block.masks,
            self.exclusivity,
            core_multipliers=multipliers / total,
            flows=tuple(PathFlow(flow.source / total, flow.sink / total, flow.flow / total) for flow in flows),
            arcs=self.arcs,
        )


class _Rows:
    """The rows in compressed form; each entry is constant + L weight x L / cores + I weight x I of one operator."""

    def __init__(self, count: int, arcs: Sequence[Edge], counted: list[Flags], masks: Any) -> None:
        """Build all rows: per layer sources, arcs, sinks; then work of both types; then spread of both types."""
        self.count, self.num_layers, self.num_arcs = count, len(counted), len(arcs)
        self.first = sorted(set(range(count)) - {after for _, after in arcs})
        self.last = sorted(set(range(count)) - {before for before, _ in arcs})
        self.is_chip = self.num_layers == 1
        self._counted = counted
        self.num_columns = count * (1 + self.num_layers) + (1 if self.is_chip else 3)
        self._starts: list[int] = [0]
        self._columns: list[int] = []
        self._constant: list[float] = []
        self._weights: list[tuple[int, float, float, int]] = []
        self._right: list[tuple[int, bool]] = []
        for layer, counts in enumerate(counted):
            self._add_paths(layer, counts, arcs)
        for k in range(2):
            self._add_work(k, masks)
        if not self.is_chip:
            for k in range(2):
                self._add_spread(k, masks)
        operators, one_core, spread, kinds = zip(*self._weights, strict=True)
        self._operators = np.array(operators)
        self._one_core = np.array(one_core)
        self._spread = np.array(spread)
        self._kinds = np.array(kinds)
        self.starts = np.array(self._starts, dtype=np.int32)
        self.columns = np.array(self._columns, dtype=np.int32)
        self._base = np.array(self._constant)
        self._right_operator = np.array([operator for operator, _ in self._right])
        self._right_counts = np.array([counts for _, counts in self._right], dtype=np.float64)
        self._of_type = [masks & bit != 0 for bit in TYPE_BITS]

    @property
    def num_rows(self) -> int:
        """Rows of all kinds."""
        return len(self.starts) - 1

    def values(self, one_core: Floats, spread: Floats, cores: Floats) -> tuple[Floats, Floats]:
        """Entries of the matrix and right-hand sides for one design; ``cores`` is 1, then those of each type."""
        values = self._base + self._one_core * one_core[self._operators] / cores[self._kinds]
        values += self._spread * spread[self._operators]
        right = self._right_counts * one_core[self._right_operator]
        for k, row in enumerate(self.work_rows()):
            right[row] = one_core[self._of_type[k]].sum() / cores[1 + k]
        return values, right

    def source_rows(self, layer: int) -> slice:
        """Rows of the operators of ``first``."""
        begin = layer * (len(self.first) + self.num_arcs + len(self.last))
        return slice(begin, begin + len(self.first))

    def arc_rows(self, layer: int) -> slice:
        """Rows of the arcs."""
        begin = self.source_rows(layer).stop
        return slice(begin, begin + self.num_arcs)

    def work_rows(self) -> list[int]:
        """Rows of both types' work."""
        begin = self.source_rows(self.num_layers).start
        return [begin, begin + 1]

    def end(self, layer: int, operator: int) -> int:
        """Column c of an operator."""
        return self.count * (1 + layer) + operator

    def span(self, layer: int) -> int:
        """Column of the makespan (0) or of T_k (k + 1)."""
        return self.count * (1 + self.num_layers) + layer

    def order_rows(
        self, before: int, after: int, one_core: float, spread: float
    ) -> list[tuple[ShortInts, Floats, float]]:
        """Columns, entries and right-hand side of one more arc in every layer; latencies of ``after``."""
        rows = []
        for layer, counts in enumerate(self._counted):
            columns = [self.end(layer, after), self.end(layer, before)]
            values = [1.0, -1.0]
            if counts[after]:
                columns.append(after)
                values.append(one_core - (spread if layer == 0 and not self.is_chip else 0.0))
            right = one_core if counts[after] else 0.0
            rows.append((np.array(columns, dtype=np.int32), np.array(values), right))
        return rows

    def _add_paths(self, layer: int, counts: Flags, arcs: Sequence[Edge]) -> None:
        """Rows of one path flow; over all paths under type, y I counts too."""
        spread = -1.0 if not self.is_chip and layer == 0 else 0.0
        for before, after in [*((-1, i) for i in self.first), *arcs]:
            row = [(self.end(layer, after), 1.0, 0.0, 0.0, 0)]
            if before >= 0:
                row.append((self.end(layer, before), -1.0, 0.0, 0.0, 0))
            if counts[after]:
                row.append((after, 0.0, 1.0, spread, 0))
            self._add(row, after, counts=bool(counts[after]))
        for i in self.last:
            self._add([(self.span(layer), 1.0, 0.0, 0.0, 0), (self.end(layer, i), -1.0, 0.0, 0.0, 0)], i)

    def _add_work(self, k: int, masks: Any) -> None:
        row = [(self.span(0 if self.is_chip else 1 + k), 1.0, 0.0, 0.0, 0)]
        row.extend((i, 0.0, 1.0, 0.0, 1 + k) for i in range(self.count) if masks[i] & TYPE_BITS[k])
        self._add(row, 0)

    def _add_spread(self, k: int, masks: Any) -> None:
        row = [(self.span(0), 1.0, 0.0, 0.0, 0), (self.span(1 + k), -1.0, 0.0, 0.0, 0)]
        row.extend((i, 0.0, 0.0, -1.0, 0) for i in range(self.count) if masks[i] & TYPE_BITS[k])
        self._add(row, 0)

    def _add(self, row: list[tuple[int, float, float, float, int]], operator: int, *, counts: bool = False) -> None:
        """One row; its entries are (column, constant, weight of L, weight of I, kind of core that L is shared by)."""
        for column, constant, one_core, spread, kind in row:
            self._columns.append(column)
            self._constant.append(constant)
            self._weights.append((column if column < self.count else 0, one_core, spread, kind))
        self._starts.append(len(self._columns))
        self._right.append((operator, counts))


def solve_rows(rows: _Rows, problem: BlockProblem, modes: Sequence[int] | None) -> Floats | None:
    """Duals of the rows at the optimum, (num_rows,); None where the solver fails."""
    solver = load_rows(rows, problem, modes)
    solver.run()
    return row_duals(solver)


def relaxed_spread(problem: BlockProblem) -> Floats:
    """(n,) how much of each operator runs spread in the relaxed crash bound; all where the solver fails."""
    program = DualProgram(problem.block, problem.exclusivity)
    solver = load_rows(program.rows, problem, None)
    solver.run()
    solution = solver.getSolution()
    if not solution.value_valid:
        return np.ones(len(problem))
    share: Floats = np.clip(np.array(solution.col_value[: len(problem)]), 0.0, 1.0)
    return share


def row_duals(solver: Any) -> Floats | None:
    """Duals of a solver that has run, (num_rows,); None where it failed."""
    solution = solver.getSolution()
    return np.maximum(np.array(solution.row_dual), 0.0) if solution.dual_valid else None


def load_rows(rows: _Rows, problem: BlockProblem, modes: Sequence[int] | None) -> Any:
    """HiGHS with the rows, latencies scaled to at most 1; not run yet."""
    import highspy

    scale = time_scale(problem)
    one_core, spread = np.array(problem.one_core) / scale, np.array(problem.spread) / scale
    values, right = rows.values(one_core, spread, np.array([1.0, *problem.cores]))
    cost, lower, upper = (np.zeros(rows.num_columns) for _ in range(3))
    cost[rows.span(0)] = 1.0
    if rows.is_chip:
        cost[: rows.count] = spread
    # Ends are free, though never negative: at a bound of theirs a flow would begin that no row tells of.
    lower[rows.count :], upper[:] = -highspy.kHighsInf, highspy.kHighsInf
    settled = np.full(rows.count, FREE) if modes is None else np.array(modes)
    lower[: rows.count], upper[: rows.count] = settled == SPREAD, settled != ONE_CORE
    # Presolve and scaling cost more than they save on so few rows.
    solver = new_highs(
        {
            "presolve": "off",
            "solver": "simplex",
            "simplex_scale_strategy": 0,
            "primal_feasibility_tolerance": _TOLERANCE,
            "dual_feasibility_tolerance": _TOLERANCE,
        }
    )
    solver.passModel(
        rows.num_columns,
        rows.num_rows,
        len(values),
        int(highspy.MatrixFormat.kRowwise),
        int(highspy.ObjSense.kMinimize),
        0.0,
        cost,
        lower,
        upper,
        right,
        np.full(rows.num_rows, highspy.kHighsInf),
        rows.starts[:-1],
        rows.columns,
        values,
        np.zeros(rows.num_columns, dtype=np.int32),
    )
    return solver


def time_scale(problem: BlockProblem) -> float:
    """Longest latency of a block, the unit in which it is solved."""
    return max(*problem.one_core, *problem.spread) or 1.0
