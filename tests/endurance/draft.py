"""A certificate to be forged: each forgery states something false, and every digest is right again.

A true certificate of another problem, and a weaker statement, are no forgeries. So bounds go below what a design
attains as the package prices it, and what is attained goes above a bound. Left alone are names, bounds that only rise,
`relaxed` for `exact`, another ZeRO stage at the same time, larger tolerances and what nothing reads.
"""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from drawn_certificates import Original
from forger import ATTAINED, UPPER, Forger

from phaze_opt.certify.certificate import CERTIFICATE_FILE, SOLUTIONS_FILE, Certificate
from phaze_opt.certify.check.front import counted, excess_over, front_rows, minimised, most_attained
from phaze_opt.certify.check.problem_data import goal_value
from phaze_opt.hardware.chip_template import AXIS, DesignPoint
from phaze_opt.record.plain_data import from_plain

CLEAR = 1e-6
"""Relative width by which what is stated is false, at least: far above the rounding that a check allows."""


class NotApplicableError(Exception):
    """The certificate has nothing that this forgery could change."""


def need(good: object) -> None:
    if not good:
        raise NotApplicableError


class Draft(Forger):
    """A copy of a certificate to be forged; what is not changed on purpose is made to agree."""

    def __init__(self, original: Original, target: Path, rng: random.Random) -> None:
        super().__init__(original.statement, target)
        self.original, self.rng = original, rng
        self.before: dict[str, Any] = self.read(CERTIFICATE_FILE)
        self.rows: dict[str, list[Any]] = self.columns()
        self.solutions: list[dict[str, Any]] = self.read(SOLUTIONS_FILE)["solutions"]

    @property
    def claimed(self) -> dict[str, Any]:
        found: dict[str, Any] = self.before["claim"]
        return found

    @property
    def solved(self) -> list[int]:
        return [row for row, status in enumerate(self.rows["status"]) if status == "solved"]

    @property
    def pruned(self) -> list[int]:
        """Rows that their bounds rule out, and that can train."""
        words = zip(self.rows["status"], self.rows["reason"], strict=True)
        return [row for row, (status, reason) in enumerate(words) if status != "solved" and not reason]

    def share(self, low: float = -5.0, high: float = -0.5) -> float:
        """A share, by the powers of ten between which it lies."""
        return float(10.0 ** self.rng.uniform(low, high))

    def pick(self, found: Any) -> Any:
        """One of some things, if there are any."""
        listed = list(found)
        need(listed)
        return self.rng.choice(listed)

    def point(self, row: int) -> DesignPoint:
        return DesignPoint(**{name: int(self.rows[name][row]) for name in AXIS if name in self.rows})

    def rate(self, row: int) -> float:
        """What the row's design attains as the package prices it, samples/s."""
        rate = self.original.rate(self.point(row))
        need(rate > 0.0)
        return rate

    def pose(self, place: str, value: object) -> None:
        """Change the problem."""
        self.put(place, value)

    def solve(self, change: Callable[[Any], object], number: int | None = None) -> int:
        """Change a model of one of the solutions, or of the one with a number; its row."""
        number = self.rng.randrange(len(self.solutions)) if number is None else number
        self.json(SOLUTIONS_FILE, lambda data: change(self.rng.choice(data["solutions"][number]["models"])))
        return int(self.solutions[number]["index"])

    def lie(self, row: int) -> None:
        """Say that a solved row attains more than it can."""
        most = self.rows[UPPER][row] * (1.0 + self.share(-5.0, -0.3))
        self.cells(row, **{ATTAINED: most, UPPER: most * (1.0 + 1e-4)})
        self.claim_again()

    def below(self, row: int) -> None:
        """Bound a row below what its design attains."""
        self.cells(row, **{UPPER: self.rate(row) * (1.0 - CLEAR - self.share())})
        self.claim_again()

    def values(self, columns: dict[str, Any], name: str) -> Any:
        """Of the goal, by what a column has of throughput."""
        costs = np.array(columns.get("cost_usd", ()))
        certificate = from_plain(Certificate, self.before)
        return goal_value(certificate, np.array(columns[name]), tdp_w=np.array(columns["tdp_w"]), device_usd=costs)

    def claim_again(self) -> None:
        """Make the claim say what the rows do."""
        columns, claim = {name: np.array(values) for name, values in self.columns().items()}, dict(self.claimed)
        first = claim["incumbent"]
        value, upper = (self.values(columns, name) for name in (ATTAINED, UPPER))
        is_solved = columns["status"] == "solved"
        need(is_solved.any())
        best = int(np.argmax(np.where(is_solved, value, -1.0)))
        if first < len(value) and is_solved[first] and value[first] >= value[best] * (1.0 - 1e-10):
            best = first
        claim |= {
            "incumbent": best,
            "point": {name: int(columns[name][best]) if name in columns else 0 for name in claim["point"]},
            "value": float(value[best]),
            "value_upper": float(upper.max()),
            "throughput_samples_per_s": float(columns[ATTAINED][best]),
            "num_points": len(value) + claim.get("num_left_out", 0),
            "num_solved": int(is_solved.sum()),
        }
        claim["gap"] = claim["value_upper"] / claim["value"] - 1.0
        if claim.get("front"):
            claim |= self._front_of(columns, np.flatnonzero(is_solved))
        claim["is_proved"] = claim["gap"] <= claim["tolerance"] + 1e-8
        self.put("claim", claim)

    def _front_of(self, columns: dict[str, Any], solved: Any) -> dict[str, Any]:
        """The front of the rows and its gap; its designs in words go into the table."""
        certificate = from_plain(Certificate, self.before)
        known, worth = minimised(certificate, columns), counted(certificate, columns[ATTAINED])
        front = front_rows(known, worth, solved)
        order = front[np.argsort(-worth[front], kind="stable")]
        excess = excess_over(most_attained(known, known[order], worth[order]), counted(certificate, columns[UPPER]))
        need(np.isfinite(excess).all())
        self.rows = self.columns()
        words = [self.point(row).inline() if row in front else "" for row in range(len(known))]
        self.points(lambda each: each.update(arch=words))
        return {"front": front.tolist(), "gap": max(float(excess.max()) - 1.0, 0.0)}


Forgery = Callable[[Draft], object]
