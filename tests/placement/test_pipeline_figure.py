"""The 1F1B replay: order, dependencies, micro-batches in flight, closed-form length, and the figure."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phaze_opt.placement.problem import PlacementResult, PlacementStatus, Stage
from phaze_opt.report.picture import Boxes, Rule
from phaze_opt.report.pipeline import Work, one_forward_one_backward, pipeline_bars, pipeline_picture
from phaze_opt.workload.plan import ParallelPlan


@settings(max_examples=60, deadline=None)
@given(
    times=st.lists(st.tuples(st.floats(0.1, 2.0), st.floats(0.1, 2.0)), min_size=1, max_size=6),
    micro=st.integers(1, 12),
)
def test_replay_respects_every_rule(times: list[tuple[float, float]], micro: int) -> None:
    forward, backward = [t[0] for t in times], [t[1] for t in times]
    stages = len(times)
    bars = pipeline_bars(forward, backward, sync_s=[0.5] * stages, num_micro_batches=micro)
    ends = {(bar.stage, bar.work, bar.micro_batch): bar for bar in bars}
    assert len(ends) == len(bars) == stages * (2 * micro + 1)
    for stage in range(stages):
        own = sorted((bar for bar in bars if bar.stage == stage), key=lambda bar: (bar.begin_s, bar.end_s))
        assert all(before.end_s <= after.begin_s for before, after in pairwise(own))
        in_flight = most = 0
        for bar in own[:-1]:
            in_flight += 1 if bar.work is Work.FORWARD else -1
            most = max(most, in_flight)
        assert most == min(stages - stage, micro)
        for number in range(micro):
            assert ends[stage, Work.FORWARD, number].end_s <= ends[stage, Work.BACKWARD, number].begin_s
            if stage:
                handed = ends[stage - 1, Work.FORWARD, number].end_s
                assert ends[stage, Work.FORWARD, number].begin_s >= handed
                assert ends[stage - 1, Work.BACKWARD, number].begin_s >= ends[stage, Work.BACKWARD, number].end_s
    last = max(bar.end_s for bar in bars if bar.work is not Work.SYNC)
    bottleneck = max(f + b for f, b in times)
    assert bottleneck * micro <= last * (1 + 1e-12)


def test_equal_stages_take_the_batch_time_of_semantics_5() -> None:
    """With equal stages 1F1B takes exactly (m + S - 1) x stage time."""
    bars = pipeline_bars([1.0] * 4, [2.0] * 4, sync_s=[0.0] * 4, num_micro_batches=9)
    assert max(bar.end_s for bar in bars) == pytest.approx(3.0 * (9 + 4 - 1))


def test_order_of_the_first_and_the_last_stage() -> None:
    forward, backward = Work.FORWARD, Work.BACKWARD
    first = one_forward_one_backward(0, num_stages=3, num_micro_batches=3)
    assert first == (
        (forward, 0, 0), (forward, 1, 0), (forward, 2, 0), (backward, 0, 0), (backward, 1, 0), (backward, 2, 0)
    )  # fmt: skip
    last = one_forward_one_backward(2, num_stages=3, num_micro_batches=2)
    assert last == ((forward, 0, 0), (backward, 0, 0), (forward, 1, 0), (backward, 1, 0))


@settings(max_examples=40, deadline=None)
@given(stages=st.integers(2, 5), chunks=st.integers(2, 4), groups=st.integers(1, 4), few=st.integers(1, 5))
def test_interleaved_stages_hand_over_chunk_by_chunk(stages: int, chunks: int, groups: int, few: int) -> None:
    for micro in {groups * stages, min(few, stages)}:
        bars = pipeline_bars(
            [1.0] * stages, [2.0] * stages, sync_s=[0.0] * stages, num_micro_batches=micro, num_chunks=chunks
        )
        work = [bar for bar in bars if bar.work is not Work.SYNC]
        assert len(work) == 2 * micro * stages * chunks
        found = {(bar.chunk * stages + bar.stage, bar.work, bar.micro_batch): bar for bar in work}
        for (place, kind, number), bar in found.items():
            giver = found.get((place - 1 if kind is Work.FORWARD else place + 1, kind, number))
            assert giver is None or giver.end_s <= bar.begin_s
            if kind is Work.BACKWARD:
                assert found[place, Work.FORWARD, number].end_s <= bar.begin_s
        for stage in range(stages):
            own = sorted((bar for bar in work if bar.stage == stage), key=lambda bar: bar.begin_s)
            assert all(before.end_s <= after.begin_s + 1e-12 for before, after in pairwise(own))


@pytest.mark.parametrize(("stages", "chunks", "groups"), [(4, 2, 2), (4, 3, 3), (8, 2, 4)])
def test_equal_interleaved_stages_idle_for_the_fill_over_the_chunks(stages: int, chunks: int, groups: int) -> None:
    """Narayanan et al. 2021, section 2.2.2: (p - 1) (forward + backward) / v."""
    micro = groups * stages
    bars = pipeline_bars(
        [1.0] * stages, [2.0] * stages, sync_s=[0.0] * stages, num_micro_batches=micro, num_chunks=chunks
    )
    assert max(bar.end_s for bar in bars) == pytest.approx(3.0 * (micro + (stages - 1) / chunks))


@pytest.mark.parametrize(("stages", "chunks", "micro"), [(8, 2, 64), (7, 3, 28), (4, 2, 4)])
def test_an_interleaved_pipeline_is_drawn_past_its_warm_up(stages: int, chunks: int, micro: int) -> None:
    """Of many micro-batches the last stage goes back before it has gone ahead with all that are drawn."""
    plan = ParallelPlan(pipeline=stages, interleave=chunks)
    result = replace(_result(stages, micro), plan=plan)
    figure = pipeline_picture(result, forward_s=[1.0] * stages, backward_s=[2.0] * stages)
    begins = {
        each.name: [x for x, y in zip(each.left, each.bottom, strict=True) if round(y + 0.43) == stages - 1]
        for each in figure.layers
    }
    assert (min(begins["backward"]) < max(begins["forward"])) == (micro > stages)
    assert not any(isinstance(each, Rule) for each in figure.layers), "the dotted line is what a placement is charged"


def test_a_replay_that_cannot_end_is_no_answer() -> None:
    with pytest.raises(AssertionError, match="waits for work"):
        pipeline_bars([1.0] * 4, [1.0] * 4, sync_s=[0.0] * 4, num_micro_batches=5, num_chunks=3)


def _result(num_stages: int, micro: int) -> PlacementResult:
    stages = tuple(Stage(2 * i, 2 * i + 1, i % 2 == 0, 3.5, 1e9, 0.7) for i in range(num_stages))
    return PlacementResult(PlacementStatus.OPTIMAL, 1.0, 2, 4, micro, stages)


@pytest.mark.parametrize(("num_stages", "micro"), [(1, 3), (4, 8), (64, 2048)])
def test_figure_draws_all_stages_and_says_what_is_left_out(num_stages: int, micro: int) -> None:
    figure = pipeline_picture(_result(num_stages, micro), forward_s=[1.0] * num_stages, backward_s=[2.0] * num_stages)
    boxes = [each for each in figure.layers if isinstance(each, Boxes)]
    assert {round(y + 0.43) for each in boxes for y in each.bottom} == set(range(num_stages))
    assert (" of its " in figure.title) == (micro > 12)
    assert "4 replicas" in figure.title
    assert sum(len(each.left) for each in boxes) <= 10_000
