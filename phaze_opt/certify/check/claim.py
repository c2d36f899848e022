"""The claim against the rows: the incumbent is the best, no bound exceeds what the gap allows."""

import numpy as np

from phaze_opt.certify.certificate import CERTIFICATE_FILE, Certificate, CertificateProvenance, Claim, Infeasibility
from phaze_opt.certify.check.front import check_columns, check_front
from phaze_opt.certify.check.points_table import EXACT, PointsTable
from phaze_opt.certify.check.problem_data import goal_value
from phaze_opt.certify.check.report import demand, refuse
from phaze_opt.hardware.chip_template import AXIS
from phaze_opt.record.arrays import Floats

GAP_TOLERANCE = 1e-8
"""Width of a gap that the rounding of bounds explains."""


def check_claim(certificate: Certificate, points: PointsTable) -> None:
    """The claim follows from the rows, which have been checked.

    Raises:
        CertificateError: names what does not follow.
    """
    check_columns(certificate, points)
    claim = certificate.claim
    attained, upper = (
        goal_value(certificate, rate, tdp_w=points.tdp_w, device_usd=points.cost_usd)
        for rate in (points.throughput_samples_per_s, points.throughput_upper_samples_per_s)
    )
    demand(
        attained <= upper * (1.0 + GAP_TOLERANCE),
        "throughput_upper_samples_per_s is below throughput_samples_per_s, which is attained",
    )
    _same("num_points", claim.num_points, len(points) + claim.num_left_out)
    _require(claim.num_left_out >= 0, f"num_left_out is {claim.num_left_out}")
    _same("num_solved", claim.num_solved, int(points.is_solved.sum()))
    _require(0.0 <= claim.tolerance < 1.0, f"tolerance is {claim.tolerance}")
    is_feasible = bool((points.reason == Infeasibility.FEASIBLE.value).any())
    _require(claim.is_feasible == is_feasible, f"is_feasible is {claim.is_feasible} but the rows say {is_feasible}")
    if is_feasible:
        _check_incumbent(claim, points, attained)
        _check_bounds(certificate, points, upper)
        _check_proved(claim)
    else:
        _check_nothing(claim)
    _check_provenance(certificate.provenance)


def _check_incumbent(claim: Claim, points: PointsTable, attained: Floats) -> None:
    """The incumbent is the best solved row, and the claim repeats it."""
    row = claim.incumbent
    _require(0 <= row < len(points) and bool(points.is_solved[row]), f"incumbent is row {row}, which is not solved")
    demand(
        attained <= attained[row] * (1.0 + EXACT),
        lambda better: f"attains {attained[better]:.9g}, more than the {attained[row]:.9g} of the incumbent, row {row}",
    )
    _close("value", claim.value, float(attained[row]))
    _close("throughput_samples_per_s", claim.throughput_samples_per_s, float(points.throughput_samples_per_s[row]))
    for name in AXIS:
        _same(f"point.{name}", getattr(claim.point, name, None), int(getattr(points.points, name)[row]))


def _check_bounds(certificate: Certificate, points: PointsTable, upper: Floats) -> None:
    """value_upper is the largest bound, and the gap follows: from both, or of a front from all rows."""
    claim = certificate.claim
    if certificate.axes:
        _close("value_upper", claim.value_upper, float(upper.max()))
        check_front(certificate, points)
        return
    _require(not claim.front, "names a front though there is one goal")
    demand(
        upper <= claim.value * (1.0 + claim.gap) * (1.0 + EXACT),
        lambda row: f"its upper bound is {upper[row]:.9g}, more than the claim's gap of {claim.gap:.9g} allows",
    )
    _close("value_upper", claim.value_upper, float(upper.max()))
    gap = claim.value_upper / claim.value - 1.0
    _require(
        abs(claim.gap - gap) <= EXACT * (1.0 + gap), f"gap is {claim.gap:.9g} but value and value_upper give {gap:.9g}"
    )


def _check_proved(claim: Claim) -> None:
    """Proved only, and always, within the tolerance."""
    stated, tolerance = f"the gap of {claim.gap:.9g}", f"the tolerance of {claim.tolerance:.9g}"
    if claim.is_proved:
        is_within = claim.gap <= claim.tolerance + GAP_TOLERANCE
        _require(is_within, f"is_proved though {stated} exceeds {tolerance}")
    else:
        is_beyond = claim.gap > claim.tolerance - GAP_TOLERANCE
        _require(is_beyond, f"is not is_proved though {stated} is within {tolerance}")


def _check_nothing(claim: Claim) -> None:
    """Where nothing is feasible nothing is claimed."""
    numbers = (claim.value, claim.value_upper, claim.throughput_samples_per_s, claim.gap)
    _require(not claim.front, "names a front though no row is feasible")
    _require(claim.incumbent == -1 and claim.point is None, "names an incumbent though no row is feasible")
    _require(all(number == 0.0 for number in numbers), "states a value though no row is feasible")
    _require(claim.is_proved, "is not is_proved though every row is infeasible")


def _check_provenance(provenance: CertificateProvenance) -> None:
    """Nothing rests on it; what it says must be possible."""
    is_possible = min(provenance.num_ilp_solves, provenance.num_placements) >= 0 and 0.0 <= provenance.wall_s < np.inf
    _require(is_possible, "its provenance holds a number that is not finite and at least 0")


def _close(name: str, stated: float, expected: float) -> None:
    """Equal but for rounding."""
    is_close = abs(stated - expected) <= EXACT * abs(expected)
    _require(is_close, f"{name} is {stated:.9g} but the rows give {expected:.9g}")


def _same(name: str, stated: int | None, expected: int) -> None:
    """Equal."""
    _require(stated == expected, f"{name} is {stated} but the rows give {expected}")


def _require(good: bool, rule: str) -> None:
    """Refuse a fault of the claim."""
    if not good:
        refuse(f"claim: {rule}", file=CERTIFICATE_FILE)
