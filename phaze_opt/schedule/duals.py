"""Dual vectors of the crash bound: one vector bounds a block's makespan on every architecture (semantics 4, last part).

A vector has multipliers mu per core type and path flows, and from these prices u, w per operator:

    LB(c) = sum_i min(I_i(c) u_i, L_i(c) (w_i + sum_{k: i in S_k} mu_k / n_k(c)))

Under chip exclusivity u = 1 and w is a source-to-sink flow of value 1 - mu_TC - mu_VC. Under type exclusivity the
weight 1 is shared between a flow over all paths (it counts spread operators too), one flow per type over the paths of
that type's operators, and the core multipliers; u_i sums what reaches operator i spread, w_i what reaches it unspread.
Flows are kept beside the prices so that anyone can check a vector (docs/certificate.md).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from phaze_opt.record.arrays import Floats
from phaze_opt.schedule.block_data import BlockProblem
from phaze_opt.schedule.precedence import Edge, topological_order
from phaze_opt.schedule.problem import Exclusivity
from phaze_opt.schedule.structure import TC_BIT, VC_BIT, Block

TYPE_BITS = (TC_BIT, VC_BIT)
SMALLEST_FLOW = 1e-11
"""Flow or multiplier that a solver leaves below this is its rounding; it is dropped."""


@dataclass(frozen=True, slots=True, eq=False)
class PathFlow:
    """A flow from source to sink over the operators of a block, all >= 0.

    Attributes:
        source, sink: (n,) what begins and ends at each operator.
        flow: (num_arcs,) what passes over each arc.
    """

    source: Floats
    sink: Floats
    flow: Floats


@dataclass(frozen=True, slots=True, eq=False)
class DualVector:
    """Prices of one block, and the flows that they follow from.

    Attributes:
        spread_price: (n,) u, weight of I.
        one_core_price: (n,) w, weight of L that does not depend on the number of cores.
        core_multipliers: (2,) mu of tensor and vector cores.
        flows: one under chip, three under type (all paths, tensor operators' and vector operators' only); none where
            all weight is on cores.
        arcs: pairs of operators that the flows run over.
    """

    spread_price: Floats
    one_core_price: Floats
    core_multipliers: Floats
    flows: tuple[PathFlow, ...] = ()
    arcs: tuple[Edge, ...] = ()


def one_core_prices(problem: BlockProblem, vector: DualVector) -> Floats:
    """Weight of L of each operator, cores included: g_i = w_i + sum of mu_k / n_k, shape (n,)."""
    per_core = vector.core_multipliers / problem.cores
    masks = np.array(problem.block.masks)
    prices: Floats = vector.one_core_price + (masks & TC_BIT != 0) * per_core[0] + (masks & VC_BIT != 0) * per_core[1]
    return prices


def dual_bound(problem: BlockProblem, vector: DualVector) -> float:
    """LB(c) of one vector on one block, straight from the formula (the oracle of `DualPool.bounds_and_choices`)."""
    unspread = np.array(problem.one_core) * one_core_prices(problem, vector)
    return float(np.minimum(np.array(problem.spread) * vector.spread_price, unspread).sum())


def work_vector(block: Block, bit: int, exclusivity: Exclusivity) -> DualVector:
    """All weight on one type's work row: sum over its operators of min(I, L / n)."""
    is_counted = np.array([exclusivity is Exclusivity.CHIP or mask & bit != 0 for mask in block.masks])
    return DualVector(
        spread_price=is_counted.astype(np.float64),
        one_core_price=np.zeros(len(block)),
        core_multipliers=np.array([float(bit == TC_BIT), float(bit == VC_BIT)]),
    )


def priced_vector(
    masks: Sequence[int],
    exclusivity: Exclusivity,
    *,
    core_multipliers: Floats,
    flows: tuple[PathFlow, ...],
    arcs: tuple[Edge, ...],
) -> DualVector:
    """The vector of flows that balance; its prices by the formulas of docs/certificate.md.

    Args:
        masks: type bits of each operator.
        exclusivity: decides the number of flows and the formulas.
        core_multipliers: (2,) mu.
        flows: one under chip, three under type.
        arcs: what they run over.
    """
    through = [_through(flow, arcs) for flow in flows]
    values = [float(flow.source.sum()) for flow in flows]
    if exclusivity is Exclusivity.CHIP:
        spread = np.full(len(masks), values[0] + float(core_multipliers.sum()))
        return DualVector(spread, through[0], core_multipliers, flows, arcs)
    spread, one_core = through[0].copy(), through[0].copy()
    for k, bit in enumerate(TYPE_BITS):
        counted = np.array(masks) & bit != 0
        spread[counted] += core_multipliers[k] + values[1 + k]
        one_core[counted] += through[1 + k][counted]
    return DualVector(spread, one_core, core_multipliers, flows, arcs)


def _through(flow: PathFlow, arcs: Sequence[Edge]) -> Floats:
    """What passes through each operator: source + flow in."""
    through = flow.source.copy()
    for arc, (_, after) in enumerate(arcs):
        through[after] += flow.flow[arc]
    return through


def balanced_flow(source: Floats, flow: Floats, *, arcs: Sequence[Edge]) -> PathFlow:
    """The path flow nearest to what a solver found, balanced as exactly as sums of floats can be.

    What enters an operator leaves it in the proportions that the solver gave; where it gave none, it ends there.

    Args:
        source: (n,) what begins at each operator, the solver's.
        flow: (num_arcs,) what passes over each arc, the solver's.
        arcs: acyclic.
    """
    count = len(source)
    begins = np.where(source > SMALLEST_FLOW, source, 0.0)
    leaving: list[list[int]] = [[] for _ in range(count)]
    for arc, (before, _) in enumerate(arcs):
        if flow[arc] > SMALLEST_FLOW:
            leaving[before].append(arc)
    through = begins.tolist()
    sink, passed = np.zeros(count), np.zeros(len(arcs))
    for operator in topological_order(count, arcs):
        wanted = sum(flow[arc] for arc in leaving[operator])
        left = through[operator]
        share = left / max(wanted, left) if left > 0.0 else 0.0
        if wanted > 0.0 and abs(wanted - left) <= 1e-7 * wanted:
            share = left / wanted
        for arc in leaving[operator]:
            passed[arc] = min(left, flow[arc] * share)
            left -= passed[arc]
            through[arcs[arc][1]] += passed[arc]
        sink[operator] = left
    return PathFlow(begins, sink, passed)
