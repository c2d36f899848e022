"""The bound below the price of a step, over all shipped software."""

import runpy
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "experiments" / "plans" / "lower.py"


def test_the_bound_of_no_shipped_software_falls_or_exceeds_the_price(monkeypatch: pytest.MonkeyPatch) -> None:
    """As experiments/plans/lower.py measures it, on fewer plans and perturbations; the price itself does fall."""
    monkeypatch.syspath_prepend(SCRIPT.parent)
    found = runpy.run_path(str(SCRIPT))["measure"](rounds=2, seed=1, plans=7)
    assert not {name for name, each in found.items() if each["falls_of_the_bound"] or each["bound_above_price"]}
    assert min(each["ratio_median"] for each in found.values()) > 0.98
    assert sum(each["falls_of_the_price"] for each in found.values()) > 0
