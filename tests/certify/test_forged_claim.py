"""Forged claims are refused with one sentence that names file, row and rule, though every digest is right again."""

import re
from collections.abc import Callable

import pytest
from forger import Forger
from forger_words import (
    ATTAINED,
    UPPER,
    a_feasible_row,
    claim_says,
    refusal,
)

from phaze_opt.certify.certificate import (
    POINTS_FILE,
)


def false_incumbent(forger: Forger) -> str:
    """Another solved row is named, with all its numbers."""
    columns = forger.columns()
    best = max(columns[ATTAINED])
    row = next(i for i in columns["index"] if 0 < columns[ATTAINED][i] < best * (1 - 1e-6))
    value = columns[ATTAINED][row]
    upper = max(columns[UPPER])
    forger.claim(incumbent=row, value=value, throughput_samples_per_s=value, gap=upper / value - 1.0, is_proved=False)
    return rf"^{re.escape(POINTS_FILE)}, row \d+: attains .*, more than the .* of the incumbent, row {row}"


def unsolved_incumbent(forger: Forger) -> str:
    row = a_feasible_row(forger)
    forger.claim(incumbent=row)
    return claim_says(f"incumbent is row {row}, which is not solved")


def raised_value(forger: Forger) -> str:
    forger.certificate(lambda data: data["claim"].update(value=data["claim"]["value"] * 1.001))
    return claim_says("value is .* but the rows give")


def other_throughput(forger: Forger) -> str:
    forger.claim(throughput_samples_per_s=1.0)
    return claim_says("throughput_samples_per_s is 1 but the rows give")


def other_point(forger: Forger) -> str:
    forger.certificate(lambda data: data["claim"]["point"].update(num_tc=2))
    return claim_says("point.num_tc is 2 but the rows give")


def no_point(forger: Forger) -> str:
    forger.claim(point=None)
    return claim_says("point.num_tc is None but the rows give")


def smaller_gap(forger: Forger) -> str:
    """A loose bound hidden: valid multipliers, a gap too small for them."""
    forger.certificate(lambda data: data["claim"].update(gap=data["claim"]["gap"] - 1e-6))
    return rf"^{re.escape(POINTS_FILE)}, row \d+: its upper bound is .*, more than the claim's gap"


def larger_gap(forger: Forger) -> str:
    forger.claim(gap=0.5, is_proved=False)
    return claim_says("gap is 0.5 but value and value_upper give")


def lower_value_upper(forger: Forger) -> str:
    forger.certificate(lambda data: data["claim"].update(value_upper=data["claim"]["value_upper"] * 0.999))
    return claim_says("value_upper is .* but the rows give")


def other_counts(forger: Forger) -> str:
    forger.claim(num_solved=1000)
    return claim_says("num_solved is 1000 but the rows give")


def other_size(forger: Forger) -> str:
    forger.claim(num_points=1000)
    return claim_says("num_points is 1000 but the rows give 456")


def negative_tolerance(forger: Forger) -> str:
    forger.claim(tolerance=-1.0)
    return claim_says("tolerance is -1.0")


def infeasible_claim(forger: Forger) -> str:
    forger.claim(is_feasible=False)
    return claim_says("is_feasible is False but the rows say True")


FORGERIES = (
    false_incumbent,
    unsolved_incumbent,
    raised_value,
    other_throughput,
    other_point,
    no_point,
    smaller_gap,
    larger_gap,
    lower_value_upper,
    other_counts,
    other_size,
    negative_tolerance,
    infeasible_claim,
)


@pytest.mark.parametrize("forge", FORGERIES, ids=lambda forge: forge.__name__)
def test_a_forgery_is_refused_by_row_and_rule(forge: Callable[[Forger], str], forger: Forger) -> None:
    expected = forge(forger)
    sentence = refusal(forger)
    assert re.match(expected, sentence), sentence
