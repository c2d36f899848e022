"""HiGHS started without output, and through Pyomo's persistent interface with a wall-clock cap from outside."""

import ctypes
import math
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from threading import Lock
from typing import Any

from phaze_opt.errors import SolverError

NO_NODE_LIMIT = 2**31 - 1
_QUIET = {"output_flag": False, "threads": 1}
_MIP = {
    "random_seed": 0,
    "mip_abs_gap": 0.0,
    "primal_feasibility_tolerance": 1e-9,
    "dual_feasibility_tolerance": 1e-9,
    "mip_feasibility_tolerance": 1e-9,
}
_STARTING = Lock()


@cache
def solver_words() -> str:
    """Name and version of the solver and of what it is driven through; packages are asked once a process."""
    return f"HiGHS {version('highspy')} through Pyomo {version('pyomo')}"


def new_highs(options: Mapping[str, object]) -> Any:
    """Start HiGHS without Pyomo: one thread, no output, and these options."""
    import highspy

    with _starting_silently():
        highs = highspy._core._Highs()
        _set_options(highs, options)
    return highs


def _set_options(highs: Any, options: Mapping[str, object]) -> None:
    for name, value in {**_QUIET, **options}.items():
        highs.setOptionValue(name, value)


@cache
def _library() -> ctypes.CDLL:
    """The C library, whose stream of standard output holds lines back."""
    return ctypes.CDLL(None)


@contextmanager
def _starting_silently() -> Iterator[None]:
    """Lead descriptor 1 nowhere until HiGHS can be told to be silent: some versions greet as soon as they exist."""
    with _STARTING, ExitStack() as afterwards:
        with suppress(OSError):  # closed
            kept = os.dup(1)
            afterwards.callback(os.close, kept)
            afterwards.callback(os.dup2, kept, 1)
            afterwards.callback(_library().fflush, None)
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, 1)
            os.close(nowhere)
        yield


@dataclass(frozen=True, slots=True)
class MipAnswer:
    """What a MIP solve ended with.

    Attributes:
        is_optimal: proven within the solver's tolerances.
        is_infeasible: proven to have no solution.
        bound: best proven bound of the objective (minus infinity where none).
        values: value of each Pyomo variable, by its id; empty where there is no incumbent.
    """

    is_optimal: bool
    is_infeasible: bool
    bound: float
    values: dict[int, float]

    def value(self, variable: Any) -> float:
        """Value of a Pyomo variable in the incumbent; its lower bound, or 0, where no row mentions it."""
        return self.values.get(id(variable), variable.lb or 0.0)

    @property
    def has_solution(self) -> bool:
        """Whether there is an incumbent."""
        return bool(self.values)


class HighsSolver:
    """One Pyomo model held in HiGHS; rows may be added between solves."""

    def __init__(self, model: Any) -> None:
        """Pass the model to HiGHS.

        Args:
            model: a Pyomo ConcreteModel.
        """
        from pyomo.contrib.appsi.solvers.highs import Highs

        interface = Highs()
        if not interface.available():
            message = "HiGHS is not available to Pyomo: install highspy"
            raise SolverError(message)
        interface.config.load_solution = False
        with _starting_silently():
            interface.set_instance(model)
            _set_options(interface._solver_model, _MIP)
        self._interface = interface

    def add_rows(self, rows: Iterable[Any]) -> None:
        """Add Pyomo constraints of the model that were built after it was passed to HiGHS."""
        self._interface.add_constraints(list(rows))

    def solve(self, *, time_limit_s: float, relative_gap: float = 0.0, max_nodes: int = 0) -> MipAnswer:
        """Minimise until optimal within ``relative_gap``; returns soon after ``time_limit_s`` at the latest.

        Args:
            time_limit_s: wall clock, s.
            relative_gap: of the objective, at which to stop.
            max_nodes: branch-and-bound nodes at most; 0 is no limit.

        Raises:
            SolverError: HiGHS reports an error.
        """
        # Pyomo offers no interrupt, so its HiGHS object is driven directly.
        highs = self._interface._solver_model
        highs.setOptionValue("mip_rel_gap", relative_gap)
        highs.setOptionValue("mip_max_nodes", max_nodes or NO_NODE_LIMIT)
        # HiGHS counts the time of earlier runs of the same object too.
        highs.setOptionValue("time_limit", highs.getRunTime() + max(1e-3, time_limit_s))
        self._run(highs, time_limit_s)
        return self._answer(highs)

    def _run(self, highs: Any, time_limit_s: float) -> None:
        """Run with a watch of our own on the interrupt callbacks: HiGHS looks at its clock too seldom."""
        import highspy

        deadline = time.monotonic() + time_limit_s
        interrupts: list[KeyboardInterrupt] = []

        def watch(kind: object, message: str, data_out: object, data_in: Any, user_data: object) -> None:
            try:
                if data_in is not None and (interrupts or time.monotonic() >= deadline):
                    data_in.user_interrupt = True
            except KeyboardInterrupt as interrupt:
                # An exception must not travel through the solver; it is raised again once the solver has stopped.
                interrupts.append(interrupt)

        highspy.highs._Highs.setCallback(highs, watch, None)
        for kind in (
            highspy.cb.HighsCallbackType.kCallbackMipInterrupt,
            highspy.cb.HighsCallbackType.kCallbackSimplexInterrupt,
        ):
            highspy.highs._Highs.startCallback(highs, kind)
        try:
            highspy.highs._Highs.run(highs)
        finally:
            highspy.highs._Highs.setCallback(highs, None, None)
        if interrupts:
            raise interrupts[0]

    def _answer(self, highs: Any) -> MipAnswer:
        import highspy

        status = highs.getModelStatus()
        failed = (
            highspy.HighsModelStatus.kModelError,
            highspy.HighsModelStatus.kSolveError,
            highspy.HighsModelStatus.kLoadError,
        )
        if status in failed:
            message = f"HiGHS failed on a schedule model: {status}"
            raise SolverError(message)
        info = highs.getInfo()
        is_optimal = status == highspy.HighsModelStatus.kOptimal
        bound = info.mip_dual_bound if info.mip_node_count >= 0 else info.objective_function_value
        if not is_optimal and info.mip_node_count < 0:
            bound = -math.inf
        return MipAnswer(
            is_optimal=is_optimal,
            is_infeasible=status == highspy.HighsModelStatus.kInfeasible,
            bound=float(bound),
            values=self._values(highs),
        )

    def _values(self, highs: Any) -> dict[int, float]:
        solution = highs.getSolution()
        if not solution.value_valid:
            return {}
        columns = solution.col_value
        return {key: float(columns[column]) for key, column in self._interface._pyomo_var_to_solver_var_map.items()}
