"""The claim of a front against the rows: every row is matched by a solved one, and the rows on the front are listed.

A row is matched, within a gap, by a solved one that is no worse in each goal that is known (TDP, area, cost) and
attains the row's bound on throughput over one and the gap.
"""

import numpy as np

from phaze_opt.certify.certificate import CERTIFICATE_FILE, POINTS_FILE, Certificate, Claim
from phaze_opt.certify.check.points_table import EXACT, PointsTable
from phaze_opt.certify.check.report import demand, refuse
from phaze_opt.objective.goals import FrontAxis, has_costs
from phaze_opt.record.arrays import Floats, Ints

_COLUMNS = {FrontAxis.TDP: "tdp_w", FrontAxis.AREA: "area_mm2", FrontAxis.COST: "cost_usd"}
_CHUNK = 1 << 16


def check_columns(certificate: Certificate, points: PointsTable) -> None:
    """The table has costs where, and only where, a goal or a budget is of them.

    Raises:
        CertificateError: it has not.
    """
    wants = has_costs(certificate.scenario, certificate.goal, certificate.axes)
    if bool(points.cost_usd.size) != (wants and bool(len(points))):
        refuse(f"column cost_usd is {'missing' if wants else 'of no goal'}", file=POINTS_FILE)
    if not certificate.claim.front:
        demand(points.arch == "", "arch names a design though there is no front")


def minimised(certificate: Certificate, columns: dict[str, Floats]) -> Floats:
    """The known goals of a front, a column each, from columns by their names in the table."""
    return np.column_stack([columns[_COLUMNS[axis]] for axis in certificate.axes if axis in _COLUMNS])


def known_of(certificate: Certificate, points: PointsTable) -> Floats:
    """The same of the rows."""
    return minimised(certificate, {"tdp_w": points.tdp_w, "area_mm2": points.area_mm2, "cost_usd": points.cost_usd})


def counted(certificate: Certificate, rates: Floats) -> Floats:
    """What throughputs count for: where throughput is no goal, all that there is counts alike."""
    return rates if FrontAxis.THROUGHPUT in certificate.axes else np.sign(rates)


class Matches:
    """What the solved rows of a certificate attain for designs: the most of those no worse in the known goals."""

    def __init__(self, certificate: Certificate, points: PointsTable) -> None:
        """Take the front alone: what is not on it is matched by what is."""
        known, worth = known_of(certificate, points), counted(certificate, points.throughput_samples_per_s)
        solved = np.flatnonzero(points.is_solved)
        self._order = solved[np.argsort(-worth[solved], kind="stable")]
        self._known, self._worth = known[self._order], worth[self._order]
        self.front = front_rows(known, worth, solved)
        is_front = np.isin(self._order, self.front)
        self._known, self._worth = self._known[is_front], self._worth[is_front]

    def of(self, known: Floats) -> Floats:
        """The most attained for designs with these known goals, shape (num_designs,); 0 where nothing matches."""
        return most_attained(known, self._known, self._worth)


def most_attained(known: Floats, front: Floats, worth: Floats) -> Floats:
    """The most that designs on a front attain for others, shape (num_designs,); 0 where none is no worse.

    Args:
        known: goals of the others, shape (num_designs, num_known).
        front: goals of designs on a front, shape (num_front, num_known), the largest worth first.
        worth: theirs.
    """
    best = np.zeros(len(known))
    for first in range(0, len(known), _CHUNK):
        left = np.arange(first, min(first + _CHUNK, len(known)))
        # The fastest come first, so the first that is no worse decides.
        for mine, attained in zip(front, worth, strict=True):
            is_matched = np.ones(len(left), dtype=np.bool_)
            for column, value in enumerate(mine):
                is_matched &= value <= known[left, column] * (1.0 + EXACT)
            best[left[is_matched]] = attained
            left = left[~is_matched]
            if not len(left):
                break
    return best


def front_rows(known: Floats, worth: Floats, solved: Ints) -> Ints:
    """Rows that no solved row beats, of equal ones the first: no worse in any goal, better in one; rising."""
    kept = []
    for row in solved.tolist():
        least = (known[solved] <= known[row] * (1.0 + EXACT)).all(axis=1)
        rivals = solved[least & (worth[solved] >= worth[row] * (1.0 - EXACT))]
        is_better = (worth[rivals] * (1.0 - EXACT) > worth[row]) | (known[rivals] * (1.0 + EXACT) < known[row]).any(
            axis=1
        )
        if not is_better.any() and not (rivals < row).any():
            kept.append(row)
    return np.array(kept, dtype=np.int64)


def check_front(certificate: Certificate, points: PointsTable) -> None:
    """The front is what the solved rows say, and its gap what the bounds of all rows leave.

    Raises:
        CertificateError: names the row, or what the claim says otherwise.
    """
    claim, matches = certificate.claim, Matches(certificate, points)
    listed = np.array(claim.front, dtype=np.int64)
    if not np.array_equal(listed, matches.front):
        other = sorted(set(claim.front) ^ set(matches.front.tolist())) or [-1]
        refuse(f"claim: front is not that of the solved rows (row {other[0]} among others)", file=CERTIFICATE_FILE)
    _check_archs(points, matches.front)
    excess = excess_of_rows(certificate, points, matches)
    allowed = (1.0 + claim.gap) * (1.0 + EXACT)
    demand(
        excess <= allowed,
        lambda row: (
            f"its upper bound exceeds what the rows no worse in the other goals attain by {excess[row] - 1.0:.9g}, "
            f"more than the claim's gap of {claim.gap:.9g} allows"
        ),
    )
    if not claim.num_left_out:
        check_gap(claim, excess)


def _check_archs(points: PointsTable, front: Ints) -> None:
    """The designs of the front in words are those of their rows, and no other row has any."""
    if not len(points.arch):
        return
    expected = np.full(len(points), "", dtype=object)
    expected[front] = [points.points.point(row).inline() for row in front.tolist()]
    demand(points.arch == expected, lambda row: f"arch is '{points.arch[row]:.80}', not '{expected[row]:.80}'")


def excess_of_rows(certificate: Certificate, points: PointsTable, matches: Matches) -> Floats:
    """Upper bound of each row over the most that rows attain which are no worse in the known goals, shape (num_rows,).

    1 where nothing is feasible, infinite where nothing matches.
    """
    upper = counted(certificate, points.throughput_upper_samples_per_s)
    return excess_over(matches.of(known_of(certificate, points)), upper)


def excess_over(best: Floats, upper: Floats) -> Floats:
    """Upper bounds over what is attained for them."""
    over = np.divide(upper, best, out=np.full(len(best), np.inf), where=best > 0.0)
    return np.where(upper > 0.0, over, 1.0)


def check_gap(claim: Claim, excess: Floats) -> None:
    """The gap of a front is the largest excess, of its rows and of dies without one.

    Raises:
        CertificateError: it is another.
    """
    gap = float(excess.max(initial=1.0)) - 1.0
    if np.isfinite(gap) and abs(claim.gap - max(gap, 0.0)) > EXACT * (1.0 + gap):
        refuse(f"claim: gap is {claim.gap:.9g} but the rows give {gap:.9g}", file=CERTIFICATE_FILE)
