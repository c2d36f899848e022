"""`step_times` with transfers between stages against a pipeline played out operation by operation, senders waiting."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kits.pipelines import play, step


def priced(forward_s: list[float], backward_s: list[float], *, transfer_s: float, m: int, v: int = 1) -> float:
    """The model's time: each transfer counts once for a micro-batch at either end, forward and backward in halves."""
    p = len(forward_s)
    # Chunks hand on to the next stage, the last stage back to the first: one hand-over fewer at either end.
    crossed = [2 * v - (stage in (0, p - 1)) for stage in range(p)]
    both = [one + other for one, other in zip(forward_s, backward_s, strict=True)]
    sent_s = [transfer_s * count for count in crossed]
    return step(m, v=v, matmul_s=both, backward_s=backward_s, transfer_s=sent_s).seconds


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
