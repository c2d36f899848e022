"""Rows of the table of stages: what the layers of a stage are where stages interleave."""

from phaze_opt.placement.problem import LayerSpan, PlacementResult, PlacementStatus, Stage
from phaze_opt.report.design import placement_table


def test_stages_of_chunks_count_their_own_layers():
    """Of 50 layers on 4 stages of 12 chunks, 13, 12, 12 and 13 are a stage's own."""

    def stage(first, last, sizes):
        chunks, at = [], first
        for size in sizes:
            chunks.append(LayerSpan(at, at + size - 1))
            at += size + 3
        return Stage(first, last, False, 1.0, 1e9, 0.1, tuple(chunks))

    ends, middle = [1] * 11 + [2], [1] * 12
    stages = (stage(0, 45, [2] + [1] * 11), stage(2, 46, middle), stage(3, 47, middle), stage(4, 49, ends))
    table = placement_table(PlacementResult(PlacementStatus.OPTIMAL, 1.0, 1, 2, 8, stages))
    assert [row[1] for row in table.rows] == ["13 in 12 chunks", "12 in 12 chunks each", "13 in 12 chunks"]
