"""Standard output is for answers: whatever a version of HiGHS prints as it starts, none of it gets there."""

import ctypes
import os
import threading

import highspy
import pytest

from phaze_opt.schedule.highs import HighsSolver, new_highs


def greeting(solver):
    """A solver that prints as soon as it exists: at once, and held back by the C library."""

    class Greeting(solver):
        def __init__(self):
            super().__init__()
            os.write(1, b"Running HiGHS 9.0\n")
            ctypes.CDLL(None).puts(b"Copyright")

    return Greeting


def start_directly():
    new_highs({"presolve": "off"}).run()


def start_through_pyomo():
    import pyomo.environ as pyo

    model = pyo.ConcreteModel()
    model.x = pyo.Var(bounds=(1, 3), domain=pyo.Integers)
    model.cost = pyo.Objective(expr=model.x)
    answer = HighsSolver(model).solve(time_limit_s=60)
    assert answer.value(model.x) == 1


def start_in_threads():
    threads = [threading.Thread(target=start_directly) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@pytest.mark.parametrize("start", [start_directly, start_through_pyomo, start_in_threads])
def test_nothing_of_a_solver_that_greets_is_printed(start, capfd, monkeypatch):
    monkeypatch.setattr(highspy._core, "_Highs", greeting(highspy._core._Highs))
    monkeypatch.setattr(highspy, "Highs", greeting(highspy.Highs))
    start()
    os.write(1, b"the answer\n")
    assert capfd.readouterr() == ("the answer\n", "")


def test_a_closed_standard_output_is_no_reason_to_fail(capfd):
    kept = os.dup(1)
    os.close(1)
    try:
        start_directly()
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(1)
    finally:
        os.dup2(kept, 1)
        os.close(kept)
