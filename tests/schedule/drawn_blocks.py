"""Small drawn problems and their blocks, shared by the tests of bounds and searches."""

from hypothesis import strategies as st

from phaze_opt.graph.operator import CoreType
from phaze_opt.schedule.block_data import BlockProblem
from phaze_opt.schedule.problem import Exclusivity, ScheduleProblem
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
        num_tc=draw(st.integers(1, 3)),
        num_vc=draw(st.integers(1, 3)),
        exclusivity=draw(st.sampled_from(Exclusivity)),
    )


def blocks_of(problem):
    for block in compile_structure(problem.core_types, problem.edges).blocks:
        pick = [tuple(values[i] for i in block.operators) for values in (problem.one_core_s, problem.spread_s)]
        yield BlockProblem(block, *pick, problem.num_tc, problem.num_vc, problem.exclusivity)
