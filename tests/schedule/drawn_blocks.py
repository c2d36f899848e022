"""Small drawn problems, their blocks and the optimum of a block, shared by the tests of bounds and searches."""

from hypothesis import strategies as st
from kits.schedulers import brute_force_makespan

from phaze_opt.graph.operator import CoreType
from phaze_opt.schedule.block_data import BlockProblem
from phaze_opt.schedule.problem import Cores, Exclusivity, ScheduleProblem
from phaze_opt.schedule.structure import compile_structure

TYPES = (CoreType.TC, CoreType.VC, CoreType.TC_AND_VC)


@st.composite
def problems(draw, max_operators=6, max_latency=12):
    """Problems with few distinct latencies, zero among them, so that some operators are alike."""
    count = draw(st.integers(2, max_operators))
    pairs = [(i, j) for i in range(count) for j in range(i + 1, count)]
    latencies = st.integers(0, max_latency)
    return ScheduleProblem(
        core_types=tuple(draw(st.lists(st.sampled_from(TYPES), min_size=count, max_size=count))),
        one_core_s=tuple(float(v) for v in draw(st.lists(latencies, min_size=count, max_size=count))),
        spread_s=tuple(float(v) for v in draw(st.lists(latencies, min_size=count, max_size=count))),
        edges=tuple(draw(st.lists(st.sampled_from(pairs), unique=True, max_size=6))),
        cores=Cores(draw(st.integers(1, 3)), draw(st.integers(1, 3))),
        exclusivity=draw(st.sampled_from(Exclusivity)),
    )


def blocks_of(problem):
    """All blocks of a problem with its numbers."""
    for block in compile_structure(problem.core_types, problem.edges).blocks:
        pick = [tuple(values[i] for i in block.operators) for values in (problem.one_core_s, problem.spread_s)]
        yield BlockProblem(block, *pick, problem.cores, problem.exclusivity)


def whole_problem(block):
    """A block as a problem of its own."""
    types = tuple(TYPES[mask - 1] for mask in block.block.masks)
    return ScheduleProblem(types, block.one_core, block.spread, block.block.edges, block.cores, block.exclusivity)


def optimum(block):
    """Of one block, by brute force."""
    return brute_force_makespan(whole_problem(block))
