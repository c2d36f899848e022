"""`step_times` with transfers between stages against a pipeline played out operation by operation, senders waiting."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phaze_opt.placement.step_time import StageLoads, StepRules, step_times

Operation = tuple[str, int, int]
"""``forward`` or ``backward``, model chunk of the stage, micro-batch."""


def schedule(stage: int, *, p: int, m: int, v: int) -> list[Operation]:
    """Order of one stage in (interleaved) 1F1B: some forward passes first, then one of each in turn, then the rest."""
    if v == 1:
        forward, ahead = [(0, batch) for batch in range(m)], min(p - 1 - stage, m)
    else:
        forward = [(c, batch) for first in range(0, m, p) for c in range(v) for batch in range(first, first + p)]
        ahead = min(2 * (p - 1 - stage) + (v - 1) * p, m * v)
    backward: list[Operation] = [("backward", v - 1 - chunk, batch) for chunk, batch in forward]
    found: list[Operation] = [("forward", *each) for each in forward[:ahead]]
    for place, each in enumerate(forward[ahead:]):
        found += [("forward", *each), backward[place]]
    return found + backward[len(forward) - ahead :]


def play(forward_s: list[float], backward_s: list[float], *, transfer_s: float, m: int, v: int = 1) -> float:
    """End of the last operation; whoever sends is busy for as long as the transfer takes.

    Args:
        forward_s, backward_s: one micro-batch through each stage, all of its chunks together.
        transfer_s: of one activation or gradient.
        m, v: micro-batches, and chunks a stage.
    """
    p = len(forward_s)
    last = p * v - 1
    left = [schedule(stage, p=p, m=m, v=v) for stage in range(p)]
    ready = {("forward", 0, batch): 0.0 for batch in range(m)}
    clock = [0.0] * p
    while any(left):
        for stage, operations in enumerate(left):
            while operations:
                what, chunk, batch = operations[0]
                place = chunk * p + stage
                if (what, place, batch) not in ready:
                    break
                own_s = (forward_s if what == "forward" else backward_s)[stage] / v
                clock[stage] = max(clock[stage], ready[what, place, batch]) + own_s
                following = place + 1 if what == "forward" else place - 1
                if what == "forward" and place == last:
                    ready["backward", last, batch] = clock[stage]
                elif following >= 0:
                    clock[stage] += transfer_s
                    ready[what, following, batch] = clock[stage]
                operations.pop(0)
    return max(clock)


def priced(forward_s: list[float], backward_s: list[float], *, transfer_s: float, m: int, v: int = 1) -> float:
    """The model's time: each transfer counts once for a micro-batch at either end, forward and backward in halves."""
    p = len(forward_s)
    # Chunks hand on to the next stage, the last stage back to the first: one hand-over fewer at either end.
    crossed = [2 * v - (stage in (0, p - 1)) for stage in range(p)]
    table = {field.name: np.zeros((1, p)) for field in fields(StageLoads)}
    both = [one + other for one, other in zip(forward_s, backward_s, strict=True)]
    table |= {"matmul_s": np.array([both]), "backward_s": np.array([backward_s])}
    table["transfer_s"] = transfer_s * np.array([crossed], float)
    rules = {field.name: np.zeros(1) for field in fields(StepRules)}
    rules |= {"num_micro_batches": np.array([float(m)]), "interleave": np.array([float(v)])}
    return step_times(StageLoads(**table), StepRules(**rules)).one(0).seconds


some = settings(max_examples=60, deadline=None)
shares = st.floats(0.2, 0.5)
transfers = st.floats(0.0, 0.1)


@some
@given(share=shares, transfer_s=transfers, head=st.floats(0.2, 1.0), p=st.integers(2, 8), m=st.integers(1, 24))
def test_equal_stages_and_a_head_take_what_is_played_out(share, transfer_s, head, p, m) -> None:
    """The last stage sends once a micro-batch where others send twice: with the head it is slower all the same."""
    both = [1.0] * (p - 1) + [1.0 + head]
    forward_s, backward_s = [share * time for time in both], [(1.0 - share) * time for time in both]
    found = priced(forward_s, backward_s, transfer_s=transfer_s, m=m)
    assert found == pytest.approx(play(forward_s, backward_s, transfer_s=transfer_s, m=m), rel=1e-9)


@some
@given(share=shares, transfer_s=transfers, blocks=st.integers(0, 20), p=st.integers(2, 8), m=st.integers(1, 24))
def test_stages_of_whole_blocks_are_near_what_is_played_out(share, transfer_s, blocks, p, m) -> None:
    counts = [float(1 + blocks // p + (stage < blocks % p)) for stage in range(p)]
    forward_s, backward_s = [share * time for time in counts], [(1.0 - share) * time for time in counts]
    found = priced(forward_s, backward_s, transfer_s=transfer_s, m=m)
    assert found == pytest.approx(play(forward_s, backward_s, transfer_s=transfer_s, m=m), rel=0.03)


@some
@given(share=shares, transfer_s=transfers, p=st.integers(2, 6), v=st.integers(2, 4), rounds=st.integers(1, 4))
def test_interleaved_stages_are_never_priced_below_what_is_played_out(share, transfer_s, p, v, rounds) -> None:
    """All chunks hand on, also the last stage's: a stage's transfers are v times those of one chunk."""
    forward_s, backward_s = [share] * p, [1.0 - share] * p
    found = priced(forward_s, backward_s, transfer_s=transfer_s / v, m=p * rounds, v=v)
    played = play(forward_s, backward_s, transfer_s=transfer_s / v, m=p * rounds, v=v)
    assert played * (1 - 1e-9) <= found <= 1.06 * played
