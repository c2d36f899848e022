"""The problem of a certificate on the terms of one machine: within its area, its power, or its area with its memories.

A proof over dies of up to 826 mm2 bounds all of them, but the best within a smaller area is none of the points that it
solves. So each set of terms is a problem of its own, over the same space with tighter budgets or shorter axes, and its
optimum has a certificate of its own.
"""

from dataclasses import dataclass, replace
from enum import StrEnum

from phaze_opt.certify.problem import CertifyProblem
from phaze_opt.certify.result import CertifyResult
from phaze_opt.errors import InputError
from phaze_opt.hardware.accelerator import Accelerator
from phaze_opt.hardware.silicon.die_columns import stacks_for_rate
from phaze_opt.hardware.silicon.die_report import DieReport, die_of
from phaze_opt.objective.evaluation import Evaluation
from phaze_opt.space.search_space import SearchSpace

SOURCE = "--equal-to"


class Terms(StrEnum):
    """What a design has no more of than the machine that it is compared with."""

    AREA = "area"
    WATTS = "watts"
    AREA_AND_MEMORIES = "area, HBM rate and buffer"


@dataclass(frozen=True, slots=True)
class TermsProblem:
    """A problem on some terms of a machine."""

    terms: Terms
    problem: CertifyProblem


@dataclass(frozen=True, slots=True)
class TermsResult:
    """What was proved on some terms."""

    terms: Terms
    result: CertifyResult


@dataclass(frozen=True, slots=True)
class EqualTerms:
    """A machine as a die, what it comes to, and the optima on its terms."""

    name: str
    evaluation: Evaluation
    die: DieReport
    found: tuple[TermsResult, ...]

    def ratio(self, result: CertifyResult) -> float:
        """Throughput of a proved optimum over the machine's; 0 where either is infeasible."""
        own = self.evaluation.throughput_samples_per_s
        return result.best[0].evaluation.throughput_samples_per_s / own if result.best and own > 0.0 else 0.0


def problems_on_terms_of(problem: CertifyProblem, machine: Accelerator) -> tuple[TermsProblem, ...]:
    """A problem for each set of terms of a machine, priced as a die of the space's silicon.

    HBM of the same rate is the fewest stacks of the space's generation that reach it; the buffer is of the same size.
    A budget of the problem that is tighter stays.

    Raises:
        InputError: chips are not dies, or the space has nothing on some terms.
    """
    if problem.space.silicon is None:
        message = "compares dies: the 22 nm tables price neither HBM nor the edge; leave out --silicon phaze"
        raise InputError(message, source=SOURCE)
    die = die_of(machine, problem.constants)
    scenario = problem.scenario
    watts = _least(scenario.max_tdp_w, die.power_w)
    memories = _with_memories(problem.space, machine)
    return (
        _within_area(problem, Terms.AREA, problem.space, die.area_mm2),
        TermsProblem(Terms.WATTS, replace(problem, scenario=replace(scenario, max_tdp_w=watts))),
        _within_area(problem, Terms.AREA_AND_MEMORIES, memories, die.area_mm2),
    )


def _within_area(problem: CertifyProblem, terms: Terms, space: SearchSpace, area_mm2: float) -> TermsProblem:
    limit_mm2 = _least(problem.scenario.max_area_mm2, area_mm2)
    try:
        restricted = space.restrict(max_area_mm2=limit_mm2)
    except InputError as error:
        message = f"with the machine's {terms.value}: {error}"
        raise InputError(message, source=SOURCE) from error
    scenario = replace(problem.scenario, max_area_mm2=limit_mm2)
    return TermsProblem(terms, replace(problem, scenario=scenario, space=restricted))


def _with_memories(space: SearchSpace, machine: Accelerator) -> SearchSpace:
    """The space with the machine's buffer and the stacks that have its HBM rate."""
    assert space.silicon is not None
    stacks = int(stacks_for_rate(machine.hbm_bandwidth_bytes_per_s, space.silicon.stack))
    return replace(space, axes=replace(space.axes, hbm_stacks=(stacks,), glb_bytes=(machine.glb_bytes,)))


def _least(budget: float | None, value: float) -> float:
    return value if budget is None else min(budget, value)
