import numpy as np
import pytest
from made_up_studies import build_study

from phaze_opt.study.summary import equal_quality, equal_quality_ratio, evaluations_at_equal_quality, summarise


def falling(*steps: float) -> np.ndarray:
    return np.array(steps)


def test_by_hand() -> None:
    """Second ends at 0.1, 0.2, 0.3: half at 0.2 or better, after 3 and 4 evaluations; first is there after 1, 2."""
    second = [falling(0.9, 0.5, 0.15, 0.1), falling(0.9, 0.8, 0.7, 0.2), falling(0.9, 0.9, 0.9, 0.3)]
    first = [falling(0.2), falling(0.5, 0.1), falling(0.9, 0.8)]
    assert evaluations_at_equal_quality(first, second) == (2.0, 4.0, 0.2)
    ratio, low, high = equal_quality_ratio([first], [second], [1.0], confidence=0.95, num_resamples=500)
    assert ratio == pytest.approx(2.0)
    assert low <= 2.0 <= high


def test_a_strategy_against_itself_is_one() -> None:
    rng = np.random.default_rng(0)
    curves = [np.minimum.accumulate(rng.random(30)) for _ in range(9)]
    ratio, low, high = equal_quality_ratio([curves], [curves], [1.0], confidence=0.95, num_resamples=500)
    assert ratio == 1.0
    assert low <= 1.0 <= high


def test_one_that_never_gets_there_has_no_ratio() -> None:
    first, second = [falling(0.5, 0.5)], [falling(0.9, 0.1)]
    assert evaluations_at_equal_quality(first, second) == (np.inf, 2.0, 0.1)
    assert equal_quality_ratio([first], [second], [1.0], confidence=0.95, num_resamples=50) == (0.0, 0.0, 0.0)


def test_strata_are_averaged_geometrically_by_weight() -> None:
    fast, slow = [falling(0.1)], [falling(*[0.9] * 7, 0.1)]
    slower = [falling(0.9, 0.1)]
    ratio, low, high = equal_quality_ratio([fast, fast], [slow, slower], [1.0, 1.0], confidence=0.95, num_resamples=50)
    assert ratio == low == high == pytest.approx(4.0)
    assert equal_quality_ratio([fast, fast], [slow, slower], [1.0, 3.0], confidence=0.95, num_resamples=50)[
        0
    ] == pytest.approx(8**0.25 * 2**0.75)


def test_the_interval_is_that_of_a_plain_bootstrap() -> None:
    """Resampling by hand, one draw at a time."""
    rng = np.random.default_rng(5)
    first = [np.minimum.accumulate(rng.random(40) * 0.5) for _ in range(7)]
    second = [np.minimum.accumulate(rng.random(40)) for _ in range(8)]
    _, low, high = equal_quality_ratio([first], [second], [1.0], confidence=0.9, num_resamples=1000)
    ratios = []
    for _ in range(1000):
        ones = [first[i] for i in rng.integers(7, size=7)]
        others = [second[i] for i in rng.integers(8, size=8)]
        mine, yours, _ = evaluations_at_equal_quality(ones, others)
        ratios.append(yours / mine)
    expected = np.quantile(ratios, [0.05, 0.95], method="inverted_cdf")
    np.testing.assert_allclose([low, high], expected, rtol=0.25)


def test_two_contenders_of_a_study() -> None:
    """Half of slow's searches end at 90 or better, after six evaluations; fast is there after two."""
    slow = [[1.0, 1.0, 1.0, 1.0, 1.0, 90.0], [1.0, 1.0, 1.0, 1.0, 1.0, 89.0]]
    result = build_study({"m": {"fast": [[1.0, 95.0]] * 2, "slow": slow}}, truths={"m": 100.0})
    summary = summarise(result)
    found = equal_quality(summary.cells, result.config, "fast", "slow")
    assert found is not None
    assert found.ratio == pytest.approx(3.0)
    assert (found.first_evaluations, found.second_evaluations) == (2.0, 6.0)
    assert found.regret == pytest.approx(0.1)
    assert (found.num_conditions, found.num_reached) == (1, 1)
    assert summary.equal_quality == (found,)
    back = equal_quality(summary.cells, result.config, "slow", "fast")
    assert back is not None
    assert (back.ratio, back.num_reached) == (0.0, 0)
    assert equal_quality(summary.cells, result.config, "fast", "other") is None
