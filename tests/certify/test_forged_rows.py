"""Forged rows are refused with one sentence that names file, row and rule, though every digest is right again."""

import math

import pytest
from forger import AREA, ATTAINED, FEASIBLE, MEMORY, RECOMPUTED, REPLAYED, SOLVED, TDP, UPPER, Forger, times

from phaze_opt.certify.certificate import POINTS_FILE, SOLUTIONS_FILE

FULL = {"reason": MEMORY}
NOT_BOUNDED = {"bound": "none", UPPER: 0.0, "multipliers_index": -1}
BOUNDED = {"reason": "", "bound": "relaxed", UPPER: 1.0, "multipliers_index": 0}
OF_280 = "but the design takes .* of a budget of 280"
OF_230 = "but the design takes .* of a budget of 230"
CELLS = {
    "raised bound": (FEASIBLE, {UPPER: times(1 + 1e-6)}, RECOMPUTED),
    "lowered bound": (FEASIBLE, {UPPER: times(1 - 1e-6)}, RECOMPUTED),
    "lowered exact bound": ({"reason": "", "bound": "exact"}, {UPPER: times(1 - 1e-6)}, RECOMPUTED),
    "raised attained": (SOLVED, {ATTAINED: times(1 + 1e-6)}, REPLAYED),
    "lowered attained": (SOLVED, {ATTAINED: times(1 - 1e-6)}, REPLAYED),
    "other area": ({"index": 7}, {"area_mm2": times(1.01)}, "area_mm2 is .* but the architecture gives"),
    "other TDP": ({"index": 7}, {"tdp_w": times(1.01)}, "tdp_w is .* but the architecture gives"),
    "not a number": (FEASIBLE, {UPPER: math.nan}, f"{UPPER} is nan, which is no finite number"),
    "infinite": (SOLVED, {ATTAINED: math.inf}, f"{ATTAINED} is inf, which is no finite number"),
    "called too large": (FEASIBLE, {"reason": MEMORY, UPPER: 0.0}, f"reason is '{MEMORY}' but a placement fits"),
    "called feasible": (FULL, {"reason": "", UPPER: 1.0}, "no placement fits the memory but the row is not infeasible"),
    "over TDP though within": (FEASIBLE, {"reason": TDP, **NOT_BOUNDED}, f"reason is '{TDP}' {OF_280}"),
    "over area though within": (FEASIBLE, {"reason": AREA, **NOT_BOUNDED}, f"reason is '{AREA}' {OF_230}"),
    "within TDP though over": ({"reason": TDP}, BOUNDED, f"reason is '' {OF_280}"),
    "bound none": (FEASIBLE, {"bound": "none"}, "bound is none where, and only where, a budget is broken"),
    "no multipliers": (FEASIBLE, {"multipliers_index": -1}, "multipliers_index is -1 where, and only where, bound is"),
    "infeasible with bound": (FULL, {UPPER: 1.0}, f"{UPPER} is not 0 though the row is infeasible"),
    "feasible without bound": (FEASIBLE, {UPPER: 0.0}, f"{UPPER} is 0 though the row is not infeasible"),
    "infeasible but solved": (FULL, SOLVED, "an infeasible row cannot be solved"),
    "solved without value": (FEASIBLE, SOLVED, f"{ATTAINED} is above 0 where, and only where, the row is solved"),
    "no solution": (FEASIBLE, {**SOLVED, ATTAINED: 1.0}, f"status is solved but {SOLUTIONS_FILE} has no solution of"),
    "solution of a pruned row": (
        SOLVED,
        {"status": "pruned-by-bound", ATTAINED: 0.0},
        f"status is not solved but {SOLUTIONS_FILE} has a solution of it",
    ),
    "unknown word": ({"index": 5}, {"status": "skipped"}, "status is 'skipped', which is no status of a certificate"),
    "no such multipliers": (
        FEASIBLE,
        {"multipliers_index": 10_000},
        "multipliers_index is 10000 but mb. of multipliers.npz has",
    ),
}


@pytest.mark.parametrize("name", CELLS)
def test_a_forgery_is_refused_by_row_and_rule(name: str, forger: Forger) -> None:
    wanted, values, rule = CELLS[name]
    forger.assert_refused(POINTS_FILE, rule, row=forger.cells(forger.row(**wanted), **values))


def drop_and_renumber(columns: dict[str, list]) -> None:
    for column in columns.values():
        column.pop(100)
    columns["index"] = list(range(len(columns["index"])))


def swap(columns: dict[str, list]) -> None:
    for name, column in columns.items():
        if name != "index":
            column[100], column[106] = column[106], column[100]


@pytest.mark.parametrize(
    ("change", "row", "rule"),
    [
        (lambda columns: [column.pop(100) for column in columns.values()], 100, "index is 101, not 100"),
        (lambda columns: [c.pop() for c in columns.values()], 455, "holds 455 rows but the space has 456 points"),
        (lambda columns: [c.insert(100, c[100]) for c in columns.values()], 101, "index is 100, not 101"),
        (drop_and_renumber, 100, "micro_batch is 4 but the space has 1 there"),
        (swap, 100, "num_[tv]c is .* but the space has"),
    ],
    ids=["dropped", "last dropped", "twice", "renumbered", "swapped"],
)
def test_a_row_that_is_not_in_its_place_is_refused(change, row: int, rule: str, forger: Forger) -> None:
    forger.points(change)
    forger.assert_refused(POINTS_FILE, rule, row=row)
