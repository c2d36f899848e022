from __future__ import annotations

from collections.abc import Callable

import pytest

from phaze_opt.study.judging.equal_quality import equal_quality
from phaze_opt.study.result import StudyResult
from phaze_opt.study.summary import summarise


def test_by_hand(study: Callable[..., StudyResult]) -> None:
    """Half of slow's searches end at 90 or better, after six evaluations; fast is there after two."""
    slow = [[1.0, 1.0, 1.0, 1.0, 1.0, 90.0], [1.0, 1.0, 1.0, 1.0, 1.0, 89.0]]
    result = study({"m": {"fast": [[1.0, 95.0]] * 2, "slow": slow}}, truths={"m": 100.0})
    summary = summarise(result)
    found = equal_quality(summary, result.config, "fast", "slow")
    assert found is not None
    assert found.ratio == pytest.approx(3.0)
    assert (found.first_evaluations, found.second_evaluations) == (2.0, 6.0)
    assert found.regret == pytest.approx(0.1)
    assert (found.num_conditions, found.num_reached) == (1, 1)
    assert "fast takes 2 evaluations against 6: 3 times fewer" in "\n".join(summary.findings)
    back = equal_quality(summary, result.config, "slow", "fast")
    assert back is not None
    assert (back.ratio, back.num_reached) == (0.0, 0)
    assert equal_quality(summary, result.config, "fast", "other") is None
