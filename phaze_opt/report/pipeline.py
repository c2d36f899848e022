"""The 1F1B pipeline of a placement over time: which stage works on which micro-batch, and where the bubbles are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from phaze_opt.placement.problem import PlacementResult, Stage
from phaze_opt.report.picture import COLOURS, Boxes, Layer, Picture, PlotAxis, Rule

MAX_BARS = 2000
"""More bars than this make a page slow: fewer micro-batches are drawn then."""


class Work(StrEnum):
    """What a bar stands for."""

    FORWARD = "forward"
    BACKWARD = "backward"
    SYNC = "gradient all-reduce and update"


_COLOUR_OF = {Work.FORWARD: COLOURS[0], Work.BACKWARD: COLOURS[1], Work.SYNC: COLOURS[2]}


@dataclass(frozen=True, slots=True)
class PipelineBar:
    """One piece of work: stage from the first, micro-batch (-1 for synchronisation), begin and end, s, model chunk."""

    stage: int
    micro_batch: int
    work: Work
    begin_s: float
    end_s: float
    chunk: int = 0


def one_forward_one_backward(
    stage: int, *, num_stages: int, num_micro_batches: int, num_chunks: int = 1
) -> tuple[tuple[Work, int, int], ...]:
    """Order of work of one stage under 1F1B: warm-up forwards, alternation, remaining backwards.

    With one chunk at most min(num_stages - stage, num_micro_batches) micro-batches are in flight, as `stage_memory`
    assumes. With several (interleaved 1F1B, Narayanan et al. 2021) as many micro-batches as there are stages go through
    one chunk after the other.

    Returns:
        Work, micro-batch and chunk of each piece.
    """
    groups = [
        range(first, min(first + num_stages, num_micro_batches)) for first in range(0, num_micro_batches, num_stages)
    ]
    chunks = range(num_chunks)
    ahead = [(Work.FORWARD, number, chunk) for group in groups for chunk in chunks for number in group]
    back = [(Work.BACKWARD, number, chunk) for group in groups for chunk in reversed(chunks) for number in group]
    if num_chunks == 1:
        warm_up = num_stages - stage - 1
    elif num_micro_batches > num_stages:
        warm_up = 2 * (num_stages - stage - 1) + (num_chunks - 1) * num_stages
    else:
        warm_up = len(ahead)
    warm_up = min(warm_up, len(ahead))
    order = ahead[:warm_up]
    for pair in zip(ahead[warm_up:], back, strict=False):
        order += pair
    return (*order, *back[len(ahead) - warm_up :])


def pipeline_bars(
    forward_s: Sequence[float],
    backward_s: Sequence[float],
    *,
    sync_s: Sequence[float],
    num_micro_batches: int,
    num_chunks: int = 1,
) -> tuple[PipelineBar, ...]:
    """Replay 1F1B: each piece starts when its stage is free and its neighbour has handed over.

    Args:
        forward_s: forward time of each stage, with what it receives, s.
        backward_s: backward time of each stage, with what it receives, s.
        sync_s: synchronisation of each stage after its last backward, s.
        num_micro_batches: micro-batches to replay.
        num_chunks: model chunks of a stage, which share its time evenly; with several the micro-batches are no more
            than the stages, or a multiple of them.
    """
    num_stages = len(forward_s)
    orders = [
        one_forward_one_backward(
            stage, num_stages=num_stages, num_micro_batches=num_micro_batches, num_chunks=num_chunks
        )
        for stage in range(num_stages)
    ]
    done: dict[tuple[int, Work, int], float] = {}
    bars: list[PipelineBar] = []
    position, free_s = [0] * num_stages, [0.0] * num_stages
    last = num_stages * num_chunks - 1
    waiting = list(range(num_stages))
    while waiting:
        stage = waiting.pop()
        while position[stage] < len(orders[stage]):
            work, number, chunk = orders[stage][position[stage]]
            place = chunk * num_stages + stage
            giver, taker = (place - 1, place + 1) if work is Work.FORWARD else (place + 1, place - 1)
            if 0 <= giver <= last and (giver, work, number) not in done:
                break
            begin_s = max(free_s[stage], done.get((giver, work, number), 0.0))
            end_s = begin_s + (forward_s if work is Work.FORWARD else backward_s)[stage] / num_chunks
            bars.append(PipelineBar(stage, number, work, begin_s, end_s, chunk))
            done[place, work, number] = free_s[stage] = end_s
            position[stage] += 1
            if 0 <= taker <= last and taker % num_stages not in (stage, *waiting):
                waiting.append(taker % num_stages)
    assert len(bars) == 2 * num_micro_batches * num_stages * num_chunks, "work waits for work that waits for it"
    bars += [PipelineBar(s, -1, Work.SYNC, free_s[s], free_s[s] + sync_s[s]) for s in range(num_stages)]
    return tuple(bars)


def pipeline_picture(result: PlacementResult, *, forward_s: Sequence[float], backward_s: Sequence[float]) -> Picture:
    """Timeline of one replica's pipeline, first stage on top.

    Only as many micro-batches are drawn as a page can carry; the title says how many of how many. Of a placement the
    dotted line is the bottleneck x (micro-batches drawn + stages - 1), what `batch_time` charges for them before
    synchronisation.

    Args:
        result: a placement that fits.
        forward_s: forward time of each stage and micro-batch, without boundary transfers, s.
        backward_s: backward time of each stage, recomputation included, without boundary transfers, s.
    """
    num_stages, num_chunks = len(result.stages), 1 if result.plan is None else result.plan.interleave
    shown = min(result.num_micro_batches, max(num_stages + 2, 12), max(1, MAX_BARS // (2 * num_stages * num_chunks)))
    if num_chunks > 1:
        # Two groups of stages show that the warm-up ends; whole groups alone can be replayed.
        shown = min(result.num_micro_batches, max(2 * num_stages, shown - shown % num_stages))
    transfer_s = [
        max(0.0, stage.time_s - ahead - back) / 2
        for stage, ahead, back in zip(result.stages, forward_s, backward_s, strict=True)
    ]
    bars = pipeline_bars(
        [ahead + extra for ahead, extra in zip(forward_s, transfer_s, strict=True)],
        [back + extra for back, extra in zip(backward_s, transfer_s, strict=True)],
        sync_s=[stage.sync_s for stage in result.stages],
        num_micro_batches=shown,
        num_chunks=num_chunks,
    )
    layers: list[Layer] = []
    for work in Work:
        own = [bar for bar in bars if bar.work is work]
        layers.append(
            Boxes(
                [bar.begin_s for bar in own], [bar.stage - 0.43 for bar in own],
                [bar.end_s - bar.begin_s for bar in own], [0.86] * len(own), work.value, _COLOUR_OF[work],
                hovers=[_hover(bar, result.stages[bar.stage]) for bar in own],
                words=[str(bar.micro_batch) if bar.micro_batch >= 0 else "" for bar in own],
            )
        )  # fmt: skip
    if result.plan is None:
        layers.append(Rule(x=result.bottleneck_s * (shown + num_stages - 1), words="time charged"))
    every = max(1, num_stages // 16)
    return Picture(
        _title(result, shown),
        tuple(layers),
        PlotAxis("time (s)", span=(0.0, 1.02 * max(bar.end_s for bar in bars))),
        PlotAxis(
            "stage", span=(-0.6, num_stages - 0.4), is_flipped=True,
            ticks=tuple((float(stage), str(stage)) for stage in range(0, num_stages, every)),
        ),
        height_px=max(260, min(900, 110 + 30 * num_stages)),
    )  # fmt: skip


def _title(result: PlacementResult, shown: int) -> str:
    """What is drawn, and how much of it."""
    part = f"{shown} of its {result.num_micro_batches}" if shown < result.num_micro_batches else f"all {shown}"
    return f"Pipeline of one of {result.data_parallel} replicas, replayed with {part} micro-batches"


def _hover(bar: PipelineBar, stage: Stage) -> str:
    """What a bar says under the pointer."""
    number = f", micro-batch {bar.micro_batch}" if bar.micro_batch >= 0 else ""
    number += f", chunk {bar.chunk}" if stage.chunks and bar.micro_batch >= 0 else ""
    recomputed = ", recomputed" if stage.is_recomputed and bar.work is Work.BACKWARD else ""
    return (
        f"stage {bar.stage} (layers {stage.first} to {stage.last}){number}\n{bar.work.value}{recomputed}\n"
        f"{bar.begin_s:.6g} s to {bar.end_s:.6g} s"
    )
