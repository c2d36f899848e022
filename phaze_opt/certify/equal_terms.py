"""The problem of a certificate on the terms of one machine: within its area, its power, or its area with its memories.

A proof over dies of up to 826 mm2 bounds all of them, but the best within a smaller area is none of the points that it
solves. So each set of terms is a problem of its own, over the same space with tighter budgets or shorter axes, and its
optimum has a certificate of its own. Terms that no die of the space can keep to are left out, with the reason.
"""

from collections.abc import Mapping
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
from phaze_opt.units import GIGA, bytes_to_mib, um2_to_mm2

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
class TermsLeftOut:
    """Terms that no die of the space keeps to, and why not."""

    terms: Terms
    reason: str


@dataclass(frozen=True, slots=True)
class TermsPosed:
    """The sets of terms that have a problem, and those that have none."""

    problems: tuple[TermsProblem, ...]
    left_out: tuple[TermsLeftOut, ...]


@dataclass(frozen=True, slots=True)
class TermsResult:
    """What was proved on some terms."""

    terms: Terms
    result: CertifyResult


@dataclass(frozen=True, slots=True)
class EqualTerms:
    """A machine as a die, what it comes to, the optima on its terms, and the terms that have none."""

    name: str
    evaluation: Evaluation
    die: DieReport
    found: tuple[TermsResult, ...]
    left_out: tuple[TermsLeftOut, ...] = ()

    def ratio(self, result: CertifyResult) -> float:
        """Throughput of a proved optimum over the machine's; 0 where either is infeasible."""
        own = self.evaluation.throughput_samples_per_s
        return result.best[0].evaluation.throughput_samples_per_s / own if result.best and own > 0.0 else 0.0


def problems_on_terms_of(problem: CertifyProblem, machine: Accelerator) -> TermsPosed:
    """A problem for each set of terms of a machine, priced as a die of the space's silicon.

    HBM of the same rate is the fewest stacks of the space's generation that reach it; the buffer is of the same size.
    A budget of the problem that is tighter stays.

    Raises:
        InputError: chips are not dies.
    """
    if problem.space.silicon is None:
        message = "compares dies: the 22 nm tables price neither HBM nor the edge; leave out --silicon phaze"
        raise InputError(message, source=SOURCE)
    die = die_of(machine, problem.constants)
    scenario = problem.scenario
    watts = replace(scenario, max_tdp_w=_least(scenario.max_tdp_w, die.power_w))
    posed = (
        _within_area(problem, Terms.AREA, machine, die),
        TermsProblem(Terms.WATTS, replace(problem, scenario=watts)),
        _within_area(problem, Terms.AREA_AND_MEMORIES, machine, die),
    )
    return TermsPosed(
        problems=tuple(each for each in posed if isinstance(each, TermsProblem)),
        left_out=tuple(each for each in posed if isinstance(each, TermsLeftOut)),
    )


def _within_area(
    problem: CertifyProblem, terms: Terms, machine: Accelerator, die: DieReport
) -> TermsProblem | TermsLeftOut:
    """The problem within the machine's area, by its memories too if the terms say so."""
    limit_mm2 = _least(problem.scenario.max_area_mm2, die.area_mm2)
    wanted = _memories(problem.space, machine) if terms is Terms.AREA_AND_MEMORIES else {}
    restricted = _restricted(problem.space, limit_mm2, wanted)
    if restricted is None:
        return TermsLeftOut(terms, _reason(problem.space, machine, limit_mm2, wanted))
    scenario = replace(problem.scenario, max_area_mm2=limit_mm2)
    return TermsProblem(terms, replace(problem, scenario=scenario, space=restricted))


def _memories(space: SearchSpace, machine: Accelerator) -> dict[str, int]:
    """The stacks that have the machine's HBM rate, and its buffer, by axis."""
    assert space.silicon is not None
    stacks = stacks_for_rate(machine.hbm_bandwidth_bytes_per_s, space.silicon.stack)
    return {"hbm_stacks": int(stacks), "glb_bytes": machine.glb_bytes}


def _restricted(space: SearchSpace, limit_mm2: float, wanted: Mapping[str, int]) -> SearchSpace | None:
    """The dies of the space within an area that have what is wanted; None where there is none."""
    axes = replace(space.axes, **{name: (value,) for name, value in wanted.items()})
    try:
        return replace(space, axes=axes).restrict(max_area_mm2=limit_mm2)
    except InputError:
        return None


def _reason(space: SearchSpace, machine: Accelerator, limit_mm2: float, wanted: Mapping[str, int]) -> str:
    """Why no die of the space has what is wanted: the first that none has by itself, else all of it together."""
    assert space.silicon is not None
    rate, stack = machine.hbm_bandwidth_bytes_per_s / GIGA, space.silicon.stack.generation.value.upper()
    words = {
        "hbm_stacks": f"the {wanted.get('hbm_stacks')} stacks of {stack} that its {rate:,.0f} GB/s take",
        "glb_bytes": f"a buffer of {bytes_to_mib(machine.glb_bytes):.6g} MB",
    }
    alone = [name for name, value in wanted.items() if _restricted(space, limit_mm2, {name: value}) is None]
    has = " and ".join(words[name] for name in alone[:1] or wanted)
    cap_mm2 = min(limit_mm2, um2_to_mm2(min(space.area_budget_um2, space.max_area_um2)))
    if not has:
        return f"no die of the space has at most {cap_mm2:.0f} mm2"
    return f"no die of the space of at most {cap_mm2:.0f} mm2 has {has}"


def _least(budget: float | None, value: float) -> float:
    return value if budget is None else min(budget, value)
