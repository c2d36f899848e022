"""The kernel over runs of equal stages against the plain formula over stages."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from phaze_opt.cost.price_kernel import (
    GATHER,
    GRADIENT,
    LENGTH,
    PARAMETER,
    REDUCTION,
    RUN_AGAIN,
    SELECTIVE,
    TRANSFER,
    PriceRows,
    plan_bounds_s,
    plan_prices_s,
)
from phaze_opt.cost.step_time import StageLoads, StepRules, lower_s, step_times

seconds = st.one_of(st.just(0.0), st.floats(1e-3, 10.0))
shares = st.sampled_from([0.0, 0.3, 1.0])


@st.composite
def pipelines(draw) -> tuple[PriceRows, np.ndarray]:
    """Runs, plan and software as the kernel takes them, of up to three kinds of units, and layer times of two chips."""
    count = draw(st.integers(1, 4))
    lengths = np.array([draw(st.integers(1, 9)) for _ in range(count)])
    kinds = draw(st.integers(1, 3))
    counts = np.array([[0.0, *(draw(st.integers(0, 3)) for _ in range(kinds)), 0.0] for _ in lengths])
    counts[0, 0] = counts[-1, -1] = 1.0
    runs = np.array([[float(length), *[0.0] * 8] for length in lengths])
    runs[0, LENGTH] = runs[-1, LENGTH] = 1.0
    sent = st.sampled_from(
        [(TRANSFER, GRADIENT), (TRANSFER, PARAMETER, GATHER, GRADIENT), (TRANSFER, REDUCTION, GRADIENT)]
    )
    for column in draw(sent):
        runs[:, column] = [draw(seconds) for _ in range(count)]
    # A gather of forward is part of what is sent for parameters.
    runs[:, GATHER] = np.minimum(runs[:, GATHER], runs[:, PARAMETER] / 2)
    # Each run recomputes in its own way.
    runs[:, RUN_AGAIN] = [draw(st.integers(0, 1)) for _ in range(count)]
    runs[:, SELECTIVE] = [draw(st.integers(0, 1 - int(again))) for again in runs[:, RUN_AGAIN]]
    m, v = float(draw(st.integers(1, 14))), float(draw(st.integers(1, 2)) if runs[:, 0].sum() > 1 else 1)
    plan = np.array([[m, (m - 1) / m, v, 0.1]], float)
    updated = np.array([[0.5] * (kinds + 1) + [0.25]])
    software = np.array([draw(shares), draw(shares), 0.0, 0.2])
    software[2] = draw(shares) * (1 - software[1])
    parts = kinds + 2
    layer_s = np.array([[draw(st.lists(seconds, min_size=5, max_size=5)) for _ in range(parts)] for _ in range(2)])
    start, group = np.array([0, len(runs)]), np.zeros(1, np.int64)
    return PriceRows(start, group, plan, updated, runs, counts, software), layer_s


def plain(rows: PriceRows, layer_s: np.ndarray) -> tuple[float, float]:
    """Price and bound of `step_time`, stage by stage."""
    (plan,), software = rows.plans, rows.software
    lengths = rows.runs[:, LENGTH].astype(int)
    stages, layers = np.repeat(rows.runs, lengths, axis=0), np.repeat(rows.counts, lengths, axis=0)
    forward, backward, again, attention, update = layer_s.T
    forward_s = (layers * forward).sum(axis=1)
    again_s = stages[:, [RUN_AGAIN]] * again
    backward_s = (layers * (backward + stages[:, [SELECTIVE]] * attention + again_s)).sum(axis=1)
    own_update = update * rows.updated[0]
    nothing = np.zeros_like(forward_s)
    times = {
        "matmul_s": forward_s + backward_s,
        "backward_s": backward_s,
        "transfer_s": stages[:, TRANSFER],
        "parameter_s": stages[:, PARAMETER] - software[2] * np.minimum(stages[:, GATHER], forward_s),
        "reduction_s": stages[:, REDUCTION],
        "gradient_s": stages[:, GRADIENT],
        "update_s": (layers * own_update).sum(axis=1),
    }
    loads = StageLoads(**{name: times.get(name, nothing)[None] for name in StageLoads.__dataclass_fields__})
    rules = (plan[0], plan[2], software[0], software[1], software[3], plan[3])
    made = StepRules(*(np.array([value]) for value in rules))
    return step_times(loads, made).seconds[0], lower_s(loads, made)[0]


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(made=pipelines())
def test_runs_are_priced_as_their_stages_are(made) -> None:
    """Runs of up to nine stages, up to fourteen micro-batches; stages ahead come below m - 1 anywhere."""
    rows, layer_s = made
    prices, bounds = plan_prices_s(rows, layer_s[:, None]), plan_bounds_s(rows, layer_s[:, None])
    for chip in range(2):
        price, bound = plain(rows, layer_s[chip])
        assert prices[chip, 0] == pytest.approx(price, rel=1e-12)
        assert bounds[chip, 0] == pytest.approx(bound, rel=1e-12)
        assert bounds[chip, 0] <= prices[chip, 0] * (1 + 1e-12)


@pytest.mark.parametrize("m", [1, 2, 5, 8, 11, 40])
def test_the_end_never_falls_along_a_run_of_equal_stages(m: int) -> None:
    """Which is why the kernel looks at the last of them only; at random loads in front and behind."""
    rng = np.random.default_rng(m)
    for _ in range(400):
        length, behind = 10, int(rng.integers(0, 6))
        forward, backward = rng.uniform(0, 3, (2, 1 + length + behind))
        forward[1 : length + 1], backward[1 : length + 1] = forward[1], backward[1]
        load = forward + backward
        ends = []
        for stage in range(1, length + 1):
            ahead = len(load) - 1 - stage
            own = min(ahead, m - 1)
            waits = [max(0.0, load[stage + 1 :].sum() - own * passed[stage]) for passed in (forward, backward)]
            ends.append(load[:stage].sum() + m * load[stage] + (sum(waits) if m - 1 > ahead else max(waits)))
        assert (np.diff(ends) >= -1e-12 * max(ends)).all()
