"""Forged solutions are refused with one sentence that names file, row and rule, though every digest is right again."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from forger import Forger
from forger_words import (
    ATTAINED,
    in_file,
    in_points,
    refusal,
    row_where,
)

from phaze_opt.certify.certificate import (
    POINTS_FILE,
    SOLUTIONS_FILE,
)


def change_solution(forger: Forger, change: Callable[[Any, Any], object], number: int = 0) -> int:
    """Change one solution; its row."""

    def of_file(data: Any) -> None:
        solution = data["solutions"][number]
        change(solution["models"][0], solution)

    forger.json(SOLUTIONS_FILE, of_file)
    return int(forger.read(SOLUTIONS_FILE)["solutions"][number]["index"])


def in_solutions(row: int, rule: str) -> str:
    return rf"^{re.escape(SOLUTIONS_FILE)}, row {row}: {rule}"


def long_schedule(model: Any) -> Any:
    return max(model["schedules"], key=lambda schedule: len(schedule["start_s"]))


def shifted_start(forger: Forger) -> str:
    """Everything at once."""

    def change(model: Any, _: Any) -> None:
        schedule = long_schedule(model)
        schedule["start_s"] = [0.0] * len(schedule["start_s"])

    row = change_solution(forger, change)
    return in_solutions(row, "schedule of layer 1, .*: operator .* starts before operator .*, which it needs, ends")


def negative_start(forger: Forger) -> str:
    def change(model: Any, _: Any) -> None:
        schedule = long_schedule(model)
        schedule["start_s"] = [start - 1.0 for start in schedule["start_s"]]

    row = change_solution(forger, change)
    return in_solutions(row, "schedule of layer 1, .*: has a start that is not finite and at least 0")


def delayed_schedule(forger: Forger) -> str:
    """A valid schedule that takes longer than the row says."""

    def change(model: Any, _: Any) -> None:
        for schedule in model["schedules"]:
            schedule["start_s"] = [start + 1e-3 for start in schedule["start_s"]]

    row = change_solution(forger, change)
    return in_points(row, f"{ATTAINED} is .* but its solution attains")


def flipped_modes(forger: Forger) -> str:
    """Every operator in the other mode: those that ran alone now run beside others, or longer."""

    def change(model: Any, _: Any) -> None:
        for schedule in model["schedules"]:
            schedule["is_spread"] = [not mode for mode in schedule["is_spread"]]

    row = change_solution(forger, change)
    return rf"^({re.escape(SOLUTIONS_FILE)}|{re.escape(POINTS_FILE)}), row {row}: "


def short_schedule(forger: Forger) -> str:
    row = change_solution(forger, lambda model, _: long_schedule(model)["start_s"].pop())
    return in_solutions(row, r"schedule of layer 1, .*: lists \d+ starts and \d+ modes of \d+ operators")


def missing_schedule(forger: Forger) -> str:
    row = change_solution(forger, lambda model, _: model["schedules"].pop())
    return in_solutions(row, "does not schedule every distinct layer's phases once")


def other_recomputation(forger: Forger) -> str:
    def change(model: Any, _: Any) -> None:
        for stage in model["stages"]:
            stage["is_recomputed"] = not stage["is_recomputed"]

    row = change_solution(forger, change)
    return in_solutions(row, "stage 0 (recomputes: True, which policy 'auto' forbids|takes .* bytes of)")


def stage_over_memory(forger: Forger) -> str:
    """A solution of the large HBM given to the same chip with a small one, where only longer pipelines fit."""
    row = row_where(forger, status="solved", hbm_bytes=8 * 2**30)
    other = row - 2

    def move_solution(data: Any) -> None:
        chosen = next(solution for solution in data["solutions"] if solution["index"] == row)
        chosen["index"] = other

    def move_value(columns: dict[str, list]) -> None:
        assert columns["reason"][other] == ""
        columns["status"][other], columns[ATTAINED][other] = "solved", columns[ATTAINED][row]
        columns["status"][row], columns[ATTAINED][row] = "pruned-by-bound", 0.0

    forger.json(SOLUTIONS_FILE, move_solution)
    forger.points(move_value)
    return in_solutions(other, "stage 0 takes .* bytes of")


def layers_left_out(forger: Forger) -> str:
    def change(model: Any, _: Any) -> None:
        model["stages"][-1]["last"] -= 1

    row = change_solution(forger, change)
    return in_solutions(row, r"its stages do not hold each of \d+ layers once and in order")


def too_many_devices(forger: Forger) -> str:
    row = change_solution(forger, lambda model, _: model.update(data_parallel=17))
    return in_solutions(row, r"its placement uses \d+ devices of 16")


def other_data_degree(forger: Forger) -> str:
    row = change_solution(forger, lambda model, _: model.update(data_parallel=1))
    return in_points(row, f"{ATTAINED} is .* but its solution attains")


def other_tensor_degree(forger: Forger) -> str:
    row = change_solution(forger, lambda model, _: model.update(tensor_parallel=8))
    return in_solutions(row, "tensor degree 8 is none of the model's")


def model_too_many(forger: Forger) -> str:
    row = change_solution(forger, lambda model, solution: solution["models"].append(model))
    return in_solutions(row, "has 2 models, not 1")


def solution_twice(forger: Forger) -> str:
    forger.json(SOLUTIONS_FILE, lambda data: data["solutions"].insert(0, data["solutions"][0]))
    return in_file(SOLUTIONS_FILE, "its solutions do not rise in index")


def solution_of_no_row(forger: Forger) -> str:
    change_solution(forger, lambda _, solution: solution.update(index=9999), number=-1)
    return in_file(SOLUTIONS_FILE, "has a solution of row 9999, which there is not")


FORGERIES = (
    shifted_start,
    negative_start,
    delayed_schedule,
    flipped_modes,
    short_schedule,
    missing_schedule,
    other_recomputation,
    stage_over_memory,
    layers_left_out,
    too_many_devices,
    other_data_degree,
    other_tensor_degree,
    model_too_many,
    solution_twice,
    solution_of_no_row,
)


@pytest.mark.parametrize("forge", FORGERIES, ids=lambda forge: forge.__name__)
def test_a_forgery_is_refused_by_row_and_rule(forge: Callable[[Forger], str], forger: Forger) -> None:
    expected = forge(forger)
    sentence = refusal(forger)
    assert re.match(expected, sentence), sentence
