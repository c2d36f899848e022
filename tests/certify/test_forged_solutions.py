"""Forged solutions are refused with one sentence that names file, row and rule, though every digest is right again."""

from collections.abc import Callable
from typing import Any

import pytest
from forger import ATTAINED, REPLAYED, SOLVED, Forger

from phaze_opt.certify.certificate import POINTS_FILE, SOLUTIONS_FILE


def change_solution(forger: Forger, change: Callable[[Any, Any], object], number: int = 0) -> int:
    """Change one solution, given its first model and itself; its row."""

    def of_file(data: Any) -> None:
        solution = data["solutions"][number]
        change(solution["models"][0], solution)

    forger.json(SOLUTIONS_FILE, of_file)
    return int(forger.read(SOLUTIONS_FILE)["solutions"][number]["index"])


def long_schedule(model: Any) -> Any:
    return max(model["schedules"], key=lambda schedule: len(schedule["start_s"]))


def start_at_once(model: Any, _: Any) -> None:
    schedule = long_schedule(model)
    schedule["start_s"] = [0.0] * len(schedule["start_s"])


def start_before_time(model: Any, _: Any) -> None:
    schedule = long_schedule(model)
    schedule["start_s"] = [start - 1.0 for start in schedule["start_s"]]


def delay(model: Any, _: Any) -> None:
    """A valid schedule that takes longer than the row says."""
    for schedule in model["schedules"]:
        schedule["start_s"] = [start + 1e-3 for start in schedule["start_s"]]


def recompute_otherwise(model: Any, _: Any) -> None:
    for stage in model["stages"]:
        stage["is_recomputed"] = not stage["is_recomputed"]


def leave_out_a_layer(model: Any, _: Any) -> None:
    model["stages"][-1]["last"] -= 1


OF_LAYER = "schedule of layer 1, .*: "
SOLUTIONS = {
    "started at once": (start_at_once, f"{OF_LAYER}operator .* starts before operator .*, which it needs, ends"),
    "negative start": (start_before_time, f"{OF_LAYER}has a start that is not finite and at least 0"),
    "short schedule": (
        lambda model, _: long_schedule(model)["start_s"].pop(),
        OF_LAYER + r"lists \d+ starts and \d+ modes of \d+ operators",
    ),
    "missing schedule": (
        lambda model, _: model["schedules"].pop(),
        "does not schedule every distinct layer's phases once",
    ),
    "other recomputation": (
        recompute_otherwise,
        "stage 0 (recomputes: True, which policy 'auto' forbids|takes .* bytes of)",
    ),
    "layers left out": (leave_out_a_layer, r"its stages do not hold each of \d+ layers once and in order"),
    "too many devices": (lambda m, _: m.update(data_parallel=17), r"its placement uses \d+ devices of 16"),
    "other tensor degree": (lambda m, _: m.update(tensor_parallel=8), "tensor degree 8 is none of the model's"),
    "model too many": (lambda model, solution: solution["models"].append(model), "has 2 models, not 1"),
}


@pytest.mark.parametrize("name", SOLUTIONS)
def test_a_forgery_is_refused_by_row_and_rule(name: str, forger: Forger) -> None:
    change, rule = SOLUTIONS[name]
    forger.assert_refused(SOLUTIONS_FILE, rule, row=change_solution(forger, change))


@pytest.mark.parametrize("change", [delay, lambda model, _: model.update(data_parallel=1)], ids=["delay", "degree"])
def test_a_solution_that_attains_less_is_refused(change: Callable[[Any, Any], object], forger: Forger) -> None:
    forger.assert_refused(POINTS_FILE, REPLAYED, row=change_solution(forger, change))


def test_other_modes_break_a_schedule(forger: Forger) -> None:
    """Operators that ran alone now run beside others."""

    def change(model: Any, _: Any) -> None:
        for schedule in model["schedules"]:
            schedule["is_spread"] = [not mode for mode in schedule["is_spread"]]

    forger.assert_refused(SOLUTIONS_FILE, "", row=change_solution(forger, change))


def test_a_stage_over_memory_is_refused(forger: Forger) -> None:
    """A solution of the large HBM given to the same chip with a small one, where only longer pipelines fit."""
    row = forger.row(**SOLVED, hbm_bytes=8 * 2**30)
    attained, other = forger.columns()[ATTAINED][row], row - 2
    assert forger.columns()["reason"][other] == ""
    number = [solution["index"] for solution in forger.read(SOLUTIONS_FILE)["solutions"]].index(row)
    forger.put(f"solutions.{number}.index", other, name=SOLUTIONS_FILE)
    forger.cells(other, **SOLVED, **{ATTAINED: attained})
    forger.cells(row, status="pruned-by-bound", **{ATTAINED: 0.0})
    forger.assert_refused(SOLUTIONS_FILE, "stage 0 takes .* bytes of", row=other)


def test_a_solution_twice_is_refused(forger: Forger) -> None:
    forger.json(SOLUTIONS_FILE, lambda data: data["solutions"].insert(0, data["solutions"][0]))
    forger.assert_refused(SOLUTIONS_FILE, "its solutions do not rise in index")


def test_a_solution_of_no_row_is_refused(forger: Forger) -> None:
    forger.put("solutions.-1.index", 9999, name=SOLUTIONS_FILE)
    forger.assert_refused(SOLUTIONS_FILE, "has a solution of row 9999, which there is not")
