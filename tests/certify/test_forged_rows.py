"""Forged rows are refused with one sentence that names file, row and rule, though every digest is right again."""

import math
import re
from collections.abc import Callable

import pytest
from forger import Forger
from forger_words import (
    AREA,
    ATTAINED,
    MEMORY,
    TDP,
    UPPER,
    a_feasible_row,
    in_points,
    refusal,
    row_where,
)

from phaze_opt.certify.certificate import (
    SOLUTIONS_FILE,
)


def raised_bound(forger: Forger) -> str:
    row = a_feasible_row(forger)
    forger.cell(UPPER, row, lambda value: value * (1 + 1e-6))
    return in_points(row, f"{UPPER} is .* but its multipliers give")


def lowered_bound(forger: Forger) -> str:
    row = a_feasible_row(forger)
    forger.cell(UPPER, row, lambda value: value * (1 - 1e-6))
    return in_points(row, f"{UPPER} is .* but its multipliers give")


def lowered_exact_bound(forger: Forger) -> str:
    row = row_where(forger, reason="", bound="exact")
    forger.cell(UPPER, row, lambda value: value * (1 - 1e-6))
    return in_points(row, f"{UPPER} is .* but its multipliers give")


def raised_attained(forger: Forger) -> str:
    row = row_where(forger, status="solved")
    forger.cell(ATTAINED, row, lambda value: value * (1 + 1e-6))
    return in_points(row, f"{ATTAINED} is .* but its solution attains")


def lowered_attained(forger: Forger) -> str:
    row = row_where(forger, status="solved")
    forger.cell(ATTAINED, row, lambda value: value * (1 - 1e-6))
    return in_points(row, f"{ATTAINED} is .* but its solution attains")


def dropped_row(forger: Forger) -> str:
    forger.points(lambda columns: [column.pop(100) for column in columns.values()])
    return in_points(100, "index is 101, not 100")


def dropped_last_row(forger: Forger) -> str:
    forger.points(lambda columns: [column.pop() for column in columns.values()])
    return in_points(455, "holds 455 rows but the space has 456 points")


def dropped_and_renumbered(forger: Forger) -> str:
    def change(columns: dict[str, list]) -> None:
        for column in columns.values():
            column.pop(100)
        columns["index"] = list(range(len(columns["index"])))

    forger.points(change)
    return in_points(100, "micro_batch is 4 but the space has 1 there")


def duplicated_row(forger: Forger) -> str:
    forger.points(lambda columns: [column.insert(100, column[100]) for column in columns.values()])
    return in_points(101, "index is 100, not 101")


def swapped_rows(forger: Forger) -> str:
    def change(columns: dict[str, list]) -> None:
        for name, column in columns.items():
            if name != "index":
                column[100], column[106] = column[106], column[100]

    forger.points(change)
    return in_points(100, "num_[tv]c is .* but the space has")


def other_area(forger: Forger) -> str:
    forger.cell("area_mm2", 7, lambda value: value * 1.01)
    return in_points(7, "area_mm2 is .* but the architecture gives")


def other_tdp(forger: Forger) -> str:
    forger.cell("tdp_w", 7, lambda value: value * 1.01)
    return in_points(7, "tdp_w is .* but the architecture gives")


def not_a_number(forger: Forger) -> str:
    row = a_feasible_row(forger)
    forger.cell(UPPER, row, math.nan)
    return in_points(row, f"{UPPER} is nan, which is no finite number")


def infinite_attained(forger: Forger) -> str:
    row = row_where(forger, status="solved")
    forger.cell(ATTAINED, row, math.inf)
    return in_points(row, f"{ATTAINED} is inf, which is no finite number")


def out_of_memory_though_feasible(forger: Forger) -> str:
    row = a_feasible_row(forger)

    def change(columns: dict[str, list]) -> None:
        columns["reason"][row], columns[UPPER][row] = MEMORY, 0.0

    forger.points(change)
    return in_points(row, f"reason is '{MEMORY}' but a placement fits")


def feasible_though_out_of_memory(forger: Forger) -> str:
    row = row_where(forger, reason=MEMORY)

    def change(columns: dict[str, list]) -> None:
        columns["reason"][row], columns[UPPER][row] = "", 1.0

    forger.points(change)
    return in_points(row, "no placement fits the memory but the row is not infeasible")


def over_budget(forger: Forger, row: int, reason: str) -> None:
    def change(columns: dict[str, list]) -> None:
        columns["reason"][row], columns["bound"][row] = reason, "none"
        columns[UPPER][row], columns["multipliers_index"][row] = 0.0, -1

    forger.points(change)


def over_tdp_though_within(forger: Forger) -> str:
    row = a_feasible_row(forger)
    over_budget(forger, row, TDP)
    return in_points(row, f"reason is '{TDP}' but the design takes .* of a budget of 280")


def over_area_though_within(forger: Forger) -> str:
    row = a_feasible_row(forger)
    over_budget(forger, row, AREA)
    return in_points(row, f"reason is '{AREA}' but the design takes .* of a budget of 230")


def within_tdp_though_over(forger: Forger) -> str:
    row = row_where(forger, reason=TDP)

    def change(columns: dict[str, list]) -> None:
        columns["reason"][row], columns["bound"][row] = "", "relaxed"
        columns[UPPER][row], columns["multipliers_index"][row] = 1.0, 0

    forger.points(change)
    return in_points(row, "reason is '' but the design takes .* of a budget of 280")


def bound_none_without_broken_budget(forger: Forger) -> str:
    row = a_feasible_row(forger)
    forger.cell("bound", row, "none")
    return in_points(row, "bound is none where, and only where, a budget is broken")


def no_multipliers(forger: Forger) -> str:
    row = a_feasible_row(forger)
    forger.cell("multipliers_index", row, -1)
    return in_points(row, "multipliers_index is -1 where, and only where, bound is none")


def infeasible_with_bound(forger: Forger) -> str:
    row = row_where(forger, reason=MEMORY)
    forger.cell(UPPER, row, 1.0)
    return in_points(row, f"{UPPER} is not 0 though the row is infeasible")


def feasible_without_bound(forger: Forger) -> str:
    row = a_feasible_row(forger)
    forger.cell(UPPER, row, 0.0)
    return in_points(row, f"{UPPER} is 0 though the row is not infeasible")


def infeasible_but_solved(forger: Forger) -> str:
    row = row_where(forger, reason=MEMORY)
    forger.cell("status", row, "solved")
    return in_points(row, "an infeasible row cannot be solved")


def solved_without_value(forger: Forger) -> str:
    row = a_feasible_row(forger)
    forger.cell("status", row, "solved")
    return in_points(row, f"{ATTAINED} is above 0 where, and only where, the row is solved")


def solved_without_solution(forger: Forger) -> str:
    row = a_feasible_row(forger)
    forger.cell("status", row, "solved")
    forger.cell(ATTAINED, row, 1.0)
    return in_points(row, f"status is solved but {SOLUTIONS_FILE} has no solution of it")


def solution_of_a_pruned_row(forger: Forger) -> str:
    row = row_where(forger, status="solved")
    forger.cell("status", row, "pruned-by-bound")
    forger.cell(ATTAINED, row, 0.0)
    return in_points(row, f"status is not solved but {SOLUTIONS_FILE} has a solution of it")


def unknown_word(forger: Forger) -> str:
    forger.cell("status", 5, "skipped")
    return in_points(5, "status is 'skipped', which is no status of a certificate")


def multipliers_index_out_of_range(forger: Forger) -> str:
    row = a_feasible_row(forger)
    forger.cell("multipliers_index", row, 10_000)
    return in_points(row, "multipliers_index is 10000 but mb. of multipliers.npz has")


FORGERIES = (
    raised_bound,
    lowered_bound,
    lowered_exact_bound,
    raised_attained,
    lowered_attained,
    dropped_row,
    dropped_last_row,
    dropped_and_renumbered,
    duplicated_row,
    swapped_rows,
    other_area,
    other_tdp,
    not_a_number,
    infinite_attained,
    out_of_memory_though_feasible,
    feasible_though_out_of_memory,
    over_tdp_though_within,
    over_area_though_within,
    within_tdp_though_over,
    bound_none_without_broken_budget,
    no_multipliers,
    infeasible_with_bound,
    feasible_without_bound,
    infeasible_but_solved,
    solved_without_value,
    solved_without_solution,
    solution_of_a_pruned_row,
    unknown_word,
    multipliers_index_out_of_range,
)


@pytest.mark.parametrize("forge", FORGERIES, ids=lambda forge: forge.__name__)
def test_a_forgery_is_refused_by_row_and_rule(forge: Callable[[Forger], str], forger: Forger) -> None:
    expected = forge(forger)
    sentence = refusal(forger)
    assert re.match(expected, sentence), sentence
