"""`step_times` against a pipeline played out, with transfers too, against placement's batch time; its monotonicity."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kits.pipelines import play, step

from phaze_opt.cost.step_time import BACKWARD_SHARE, StageLoads, StepRules, lower_s, step_times
from phaze_opt.estimate.collectives import collective_s, group_dimensions, transfer_s
from phaze_opt.graph.operator import CollectiveKind
from phaze_opt.hardware.network import Cluster
from phaze_opt.hardware.networks import load_network
from phaze_opt.placement.problem import LayerCosts, PlacementProblem, RecomputePolicy
from phaze_opt.placement.solve import evaluate_placement

some = settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
seconds = st.floats(1e-3, 10.0)
loads = st.lists(seconds, min_size=1, max_size=6)


@some
@given(forward=seconds, backward=seconds, p=st.integers(1, 6), rounds=st.integers(1, 4), v=st.integers(1, 4))
def test_equal_stages_take_what_the_schedule_takes(forward, backward, p, rounds, v) -> None:
    """1F1B, plain and interleaved, played out operation by operation."""
    v, m = (v if p > 1 else 1), p * rounds
    expected = play([forward] * p, [backward] * p, m, v)
    assert step(m, v=v, matmul_s=[forward + backward] * p).seconds == pytest.approx(expected, rel=1e-9)


@some
@given(block=st.tuples(seconds, seconds), head=st.tuples(seconds, seconds), p=st.integers(2, 6), v=st.integers(1, 4))
def test_a_head_on_the_last_chunk_takes_what_the_schedule_takes(block, head, p, v) -> None:
    """Interleaved too: only the last stage is slower, so the others' fill is divided by v."""
    expected = play([block[0]] * p, [block[1]] * p, 3 * p, v, head_s=head)
    both = [sum(block)] * (p - 1) + [sum(block) + sum(head)]
    backward = [block[1]] * (p - 1) + [block[1] + head[1]]
    assert step(3 * p, v=v, matmul_s=both, backward_s=backward).seconds == pytest.approx(expected, rel=1e-9)


@some
@given(times=st.lists(st.tuples(seconds, seconds), min_size=2, max_size=6), m=st.integers(1, 14))
def test_uneven_stages_never_finish_sooner_than_said(times, m) -> None:
    """Whatever stages take forward and backward; all that is said is what each must do or wait for."""
    forward, backward = (list(each) for each in zip(*times, strict=True))
    both = [f + b for f, b in times]
    found, played = step(m, matmul_s=both, backward_s=backward).seconds, play(forward, backward, m)
    assert m * max(both) <= found <= played * (1 + 1e-12)
    assert found <= (m * max(both) + sum(both) - max(both)) * (1 + 1e-12)
    if m == 1:
        assert found == pytest.approx(sum(both))


@some
@given(
    share=st.floats(0.25, 0.5),
    p=st.integers(2, 8),
    blocks=st.integers(8, 40),
    head=st.floats(0, 2),
    embedding=st.floats(0, 0.3),
    m=st.integers(1, 40),
)
def test_stages_of_whole_blocks_take_what_the_schedule_takes(share, p, blocks, head, embedding, m) -> None:
    """Blocks as even as they can be, larger shares in front: within 8 %, exact where the last stage is slowest."""
    counts = [blocks // p + (stage < blocks % p) for stage in range(p)]
    both = [float(count) for count in counts]
    both[0] += embedding
    both[-1] += head
    forward, backward = [share * time for time in both], [(1 - share) * time for time in both]
    found, played = step(m, matmul_s=both, backward_s=backward).seconds, play(forward, backward, m)
    assert 0.92 * played <= found <= played * (1 + 1e-12)
    if both[-1] == max(both):
        assert found == pytest.approx(played, rel=1e-9)


@some
@given(times=loads, sync=st.lists(seconds, min_size=6, max_size=6), m=st.integers(1, 20), v=st.integers(1, 4))
def test_step_is_monotone(times, sync, m, v) -> None:
    gradient = sync[: len(times)]
    base = step(m, v=v, matmul_s=times, gradient_s=gradient).seconds
    assert step(m + 1, v=v, matmul_s=times, gradient_s=gradient).seconds > base
    assert step(m, v=v + 1, matmul_s=times, gradient_s=gradient).seconds <= base
    assert step(m, v=v, matmul_s=[1.1 * time for time in times], gradient_s=gradient).seconds > base
    assert step(m, v=v, matmul_s=times, gradient_s=[1.1 * time for time in gradient]).seconds >= base


@some
@given(times=loads, traffic=seconds, m=st.integers(1, 8), overlaps=st.lists(st.floats(0, 1), min_size=2, max_size=2))
def test_more_overlap_is_never_slower_and_hides_no_more_than_the_compute(times, traffic, m, overlaps) -> None:
    less, more = sorted(overlaps)
    half = [time / 2 for time in times]

    def gradients(overlap: float) -> float:
        given = {"matmul_s": times, "backward_s": half, "gradient_s": [traffic] * len(times)}
        return step(m, data_overlap=overlap, **given).gradient_s

    def parameters(overlap: float) -> float:
        return step(m, parameter_overlap=overlap, matmul_s=times, parameter_s=[traffic] * len(times)).seconds

    assert gradients(more) <= gradients(less) * (1 + 1e-12)
    assert parameters(more) <= parameters(less) * (1 + 1e-12)
    assert gradients(0.0) == pytest.approx(traffic)
    assert gradients(1.0) == pytest.approx(max(0.0, traffic - min(half)), abs=1e-12)
    for overlap, shown in ((0.0, [traffic] * len(times)), (1.0, [max(0.0, traffic - time) for time in times])):
        busy = [time + each for time, each in zip(times, shown, strict=True)]
        backward = [BACKWARD_SHARE * each for each in shown]
        assert parameters(overlap) == pytest.approx(step(m, matmul_s=busy, backward_s=backward).seconds)


@some
@given(compute=st.tuples(seconds, seconds), gather=seconds, p=st.integers(1, 6), rounds=st.integers(1, 4))
def test_stages_that_gather_and_scatter_every_micro_batch_take_what_the_schedule_takes(
    compute, gather, p, rounds
) -> None:
    """ZeRO 3 without overlap: a gather before forward, one before backward and as much again for the gradients."""
    forward, backward = compute
    expected = play([forward + gather] * p, [backward + 2 * gather] * p, rounds * p)
    busy = {"matmul_s": [forward + backward] * p, "backward_s": [backward] * p}
    found = step(rounds * p, parameter_s=[3 * gather] * p, **busy)
    assert found.seconds == pytest.approx(expected, rel=1e-9)
    assert found.parameter_s == pytest.approx(3 * rounds * p * gather)


@some
@given(compute=st.tuples(seconds, seconds), scatter=seconds, gather=seconds, m=st.integers(1, 9))
def test_zero_2_scatters_every_micro_batch_and_gathers_once(compute, scatter, gather, m) -> None:
    """Without stages: m scatters, one gather. The last scatter and the gather hide behind the last backward pass."""
    forward, backward = compute
    given_s = {"matmul_s": [forward + backward], "backward_s": [backward], "reduction_s": [scatter]}
    shown = step(m, gradient_s=[scatter + gather], **given_s)
    assert shown.seconds == pytest.approx(m * (forward + backward + scatter) + gather)
    assert shown.gradient_s == pytest.approx(m * scatter + gather)
    overlaps = {"data_overlap": 1.0, "parameter_overlap": 1.0}
    hidden = step(m, gradient_s=[scatter + gather], **overlaps, **given_s)
    expected = (m - 1) * max(0.0, scatter - forward - backward) + max(0.0, scatter + gather - backward)
    assert hidden.gradient_s == pytest.approx(expected, abs=1e-12)


@some
@given(compute=st.tuples(seconds, seconds), scatter=seconds, p=st.integers(2, 6), rounds=st.integers(1, 5))
def test_zero_2_of_stages_lies_between_all_scattered_and_all_but_one(compute, scatter, p, rounds) -> None:
    """1F1B where every backward pass scatters; the last one's is counted with the gradients, here nothing."""
    forward, backward = compute
    busy = {"matmul_s": [forward + backward] * p, "backward_s": [backward] * p}
    found = step(rounds * p, reduction_s=[scatter] * p, **busy).seconds
    every = play([forward] * p, [backward + scatter] * p, rounds * p)
    assert every - p * scatter <= found * (1 + 1e-12)
    assert found <= every * (1 + 1e-12)


def test_interleaving_divides_the_bubble_and_nothing_else() -> None:
    parts = [step(8, v=v, matmul_s=[2.0, 3.0, 2.5, 1.0], gradient_s=[0.5] * 4).parts for v in (1, 2, 4)]
    assert [part.pop("bubble_s") for part in parts] == pytest.approx([5.5, 2.75, 1.375])
    assert parts[0] == parts[1] == parts[2]


@some
@given(
    time=st.tuples(seconds, seconds, seconds),
    shape=st.sampled_from([(1, 1, 4), (1, 2, 3), (2, 4, 1), (4, 2, 8), (8, 4, 2), (1, 8, 2)]),
    output=st.floats(0, 1e9),
    gradient=st.floats(0, 1e11),
    m=st.integers(1, 9),
    uneven=st.booleans(),
)
def test_placement_agrees(time, shape, output, gradient, m, uneven) -> None:
    """`batch_time` of semantics 5 by `evaluate_placement`: equal for equal stages, never below for others."""
    t, p, d = shape
    forward, backward, update = time
    n = 2 * p
    scale = np.linspace(1, 2, n) if uneven else np.ones(n)
    sizes = [np.full(n, 1.0), np.full(n, gradient), np.zeros(n), np.zeros(n), np.zeros(n), np.full(n, output)]
    costs = LayerCosts(t, scale * forward, scale * backward, scale * update, *sizes)
    cluster = Cluster(t * p * d, load_network("two-level", num_devices=t * p * d))
    problem = PlacementProblem((costs,), cluster, 1e15, m * d, 1, RecomputePolicy.NEVER)
    cuts = [2 * stage for stage in range(1, p)]
    placed = evaluate_placement(problem, tensor_parallel=t, data_parallel=d, cuts=cuts)
    bounds = [0, *cuts, n]
    own = [(forward + backward) * scale[start:stop].sum() for start, stop in pairwise(bounds)]
    # Stages are packed from the last one on.
    edges = [0.0, *(transfer_s(cluster.network, position=(p - b) * t, payload_bytes=output) for b in range(1, p)), 0.0]
    group = group_dimensions(cluster.network, size=d, stride=t * p, is_aligned=True)
    found = step(
        m,
        matmul_s=own,
        backward_s=[time * backward / (forward + backward) for time in own],
        transfer_s=[before + after for before, after in pairwise(edges)],
        gradient_s=[collective_s(CollectiveKind.ALL_REDUCE, 2 * gradient, group)] * p,
        update_s=[update * scale[start:stop].sum() for start, stop in pairwise(bounds)],
    )
    for stage, (load, (before, after)) in enumerate(zip(own, pairwise(edges), strict=True)):
        assert placed.stages[stage].time_s == pytest.approx(load + before + after, rel=1e-12)
    fill = sum(stage.time_s for stage in placed.stages) - placed.bottleneck_s
    shortest = m * placed.bottleneck_s + placed.sync_s
    assert shortest * (1 - 1e-9) <= found.seconds <= (shortest + fill) * (1 + 1e-9)
    if placed.stages[-1].time_s == placed.bottleneck_s:
        assert found.seconds == pytest.approx(shortest + fill, rel=1e-9)
    # Of more than two stages the inner ones have two boundaries, so equal layers are unequal stages.
    if p <= 2 and not uneven:
        assert found.seconds == pytest.approx(placed.batch_time_s, rel=1e-9)


def priced(forward_s: list[float], backward_s: list[float], *, transfer_s: float, m: int, v: int = 1) -> float:
    """The model's time: each transfer counts once for a micro-batch at either end, forward and backward in halves."""
    p = len(forward_s)
    # Chunks hand on to the next stage, the last stage back to the first: one hand-over fewer at either end.
    crossed = [2 * v - (stage in (0, p - 1)) for stage in range(p)]
    both = [one + other for one, other in zip(forward_s, backward_s, strict=True)]
    sent_s = [transfer_s * count for count in crossed]
    return step(m, v=v, matmul_s=both, backward_s=backward_s, transfer_s=sent_s).seconds


shares, transfers = st.floats(0.2, 0.5), st.floats(0.0, 0.1)


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


TIMES = ("matmul_s", "transfer_s", "parameter_s", "reduction_s", "gradient_s", "update_s")


@st.composite
def stages_and_rules(draw) -> tuple[dict[str, np.ndarray], StepRules]:
    """Stages of any times, most of them with traffic that hides; ZeRO 2 and 3 are not in one plan."""
    p = draw(st.integers(1, 5))
    times = {name: np.array([draw(st.lists(seconds, min_size=p, max_size=p))]) for name in TIMES}
    times[draw(st.sampled_from(["parameter_s", "reduction_s"]))][:] = 0.0
    share = draw(st.floats(0, 1))
    times["backward_s"] = share * times["matmul_s"]
    rules = (draw(st.integers(1, 9)), draw(st.integers(1, 3)) if p > 1 else 1, *draw(st.tuples(*[st.floats(0, 1)] * 2)))
    return times, StepRules(*(np.array([float(value)]) for value in (*rules, 0.1, 0.05)))


def loads_of(times: dict[str, np.ndarray]) -> StageLoads:
    nothing = np.zeros_like(times["matmul_s"])
    return StageLoads(**{field: times.get(field, nothing) for field in StageLoads.__dataclass_fields__})


@settings(some, max_examples=400)
@given(made=stages_and_rules(), data=st.data())
def test_the_bound_below_a_step_never_exceeds_it_and_never_falls(made, data) -> None:
    """Whatever time rises: matmuls rise as forward, as backward or as both."""
    times, rules = made
    before, price = lower_s(loads_of(times), rules)[0], step_times(loads_of(times), rules).seconds[0]
    assert before <= price * (1 + 1e-12)
    name, stage = data.draw(st.sampled_from(TIMES)), data.draw(st.integers(0, times["matmul_s"].shape[1] - 1))
    raised = {key: values.copy() for key, values in times.items()}
    more = data.draw(st.floats(0, 5))
    raised[name][0, stage] += more
    raised["backward_s"][0, stage] += data.draw(st.floats(0, 1)) * more if name == "matmul_s" else 0.0
    assert lower_s(loads_of(raised), rules)[0] >= before * (1 - 1e-12)


@some
@given(load=seconds, gradient=seconds, p=st.integers(1, 6), m=st.integers(1, 9), v=st.integers(1, 3))
def test_the_bound_of_equal_stages_without_overlap_is_the_price(load, gradient, p, m, v) -> None:
    times = {"matmul_s": [load] * p, "backward_s": [load / 2] * p, "gradient_s": [gradient] * p}
    rules = StepRules(*(np.array([float(value)]) for value in (m, v if p > 1 else 1, 0, 0, 0.1, 0.05)))
    stages = loads_of({name: np.array([each]) for name, each in times.items()})
    assert lower_s(stages, rules)[0] == pytest.approx(step_times(stages, rules).seconds[0], rel=1e-12)


@pytest.mark.parametrize(
    ("rules", "forward", "backward", "gradient", "more", "prices"),
    [
        ((8, 4, 0.7, 0), (1, 1), (1, 2), (9, 1), (0.5, 0), (32.8, 32.575)),
        ((8, 1, 0.7, 0), (3, 0.5), (6, 0.5), (1, 9), (0, 0.5), (80.65, 80.3)),
    ],
)
def test_the_price_falls_where_a_stage_that_is_not_the_slowest_hides_more(
    rules, forward, backward, gradient, more, prices
) -> None:
    """Why a bound of its own is needed: a longer backward pass hides gradients and costs less time than it hides."""
    found = []
    made = StepRules(*(np.array([float(value)]) for value in (*rules, 0, 0)))
    for added in ((0, 0), more):
        after = np.add(backward, added)
        times = {"matmul_s": np.add(forward, after), "backward_s": after, "gradient_s": gradient}
        stages = loads_of({name: np.array([each], float) for name, each in times.items()})
        found.append((step_times(stages, made).seconds[0], lower_s(stages, made)[0]))
    assert [price for price, _ in found] == pytest.approx(prices)
    assert found[0][1] <= found[1][1] <= prices[1]
