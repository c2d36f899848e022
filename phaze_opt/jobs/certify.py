"""The job of ``certify``: what is proved and how, and the check of a proof by independent code."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from phaze_opt.errors import CertificateError, InputError
from phaze_opt.jobs.options import (
    JOBS_HELP,
    MAX_JOBS,
    MAX_SEED,
    RANGE_HELP,
    BaselineOptions,
    CostOptions,
    ModelOptions,
    RecordOptions,
)
from phaze_opt.jobs.scenario import check_machines, load_scenario, load_space, runs_directory
from phaze_opt.objective.scenario_options import Kind, ScenarioOptions, SpaceOptions, declared
from phaze_opt.record.input_files import is_there

if TYPE_CHECKING:
    from phaze_opt.certify.check.report import CheckReport
    from phaze_opt.certify.check.worlds import FrontReport
    from phaze_opt.graph.any_model import AnyModel
    from phaze_opt.jobs.proof import ProofRun
    from phaze_opt.jobs.watch import Watch
    from phaze_opt.objective.bill import CostTerms
    from phaze_opt.objective.goals import Aim
    from phaze_opt.objective.scenario import Scenario

PROOF = "Proof"
MAX_SAMPLES = 1000
MOST_HELD = 5
"""Certificates that a refusal names."""
ROBUST_OPTIONS = ("robust_samples", "seed")
"""Parameters that only the analysis of robustness reads."""
NEEDED = ("devices", "global_batch")
"""What a proof does not go without."""
OF_PROOFS: dict[str, Any] = dict.fromkeys(NEEDED, {"is_required": False, "default": None})
_proving = partial(declared, panel=PROOF)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofOptions:
    """What is proved, and how."""

    objective: str = _proving(
        "throughput",
        "throughput, throughput_per_tdp, throughput_per_usd, or a front of two to four of throughput, tdp, area and "
        "cost, with commas between (pareto: throughput,tdp,area).",
        Kind.TEXT,
    )
    tolerance: float = _proving(
        0.001, "How far above the best design the bound on all others may stay; 0 proves the exact optimum.", Kind.GAP
    )
    jobs: int = _proving(1, JOBS_HELP, Kind.COUNT, high=MAX_JOBS)
    resume: bool = _proving(False, "Continue the same proof where it was interrupted.", Kind.SWITCH)
    check: Path | None = _proving(
        None, "Check a certificate (its directory) by independent code instead; needs no other option.", Kind.PATH
    )
    no_check: bool = _proving(
        False, "Leave out the check by independent code that comes before anything is called proved.", Kind.SWITCH
    )
    robust: bool = _proving(
        False,
        "Also certify the optimum at the corners of the assumptions' ranges and at samples within them, and "
        "the design of least largest regret over all of them; of a front the front over all of them.",
        Kind.SWITCH,
    )
    has_range: bool = _proving(True, RANGE_HELP, Kind.SWITCH, flag="--range")
    equal_to: str = _proving(
        "",
        "Also certify the optimum of dies within the area of this machine (a preset, a file or sizes inline), within "
        "its power, and within its area with its HBM rate and its buffer.",
        Kind.TEXT,
    )
    robust_samples: int = _proving(
        8, "Samples within the ranges of the assumptions, besides their corners.", Kind.COUNT, low=0, high=MAX_SAMPLES
    )
    seed: int = _proving(0, "Of these samples; a proof has no randomness.", Kind.COUNT, low=0, high=MAX_SEED)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofRequest:
    """What a proof is asked, and which of the options were given."""

    models: ModelOptions
    proof: ProofOptions
    scenario: Annotated[ScenarioOptions, OF_PROOFS]
    space: SpaceOptions
    costs: CostOptions
    beside: BaselineOptions
    records: RecordOptions
    given: frozenset[str] = frozenset()


def pose_proof(asked: ProofRequest, loaded: tuple["AnyModel", ...], watch: "Watch") -> "ProofRun":
    """A proof that is ready to run.

    Args:
        asked: its options.
        loaded: the models.
        watch: hears of the proof, to show it.

    Raises:
        InputError: an option breaks a rule.
        NothingLeftError: budgets leave no design.
    """
    from phaze_opt.certify.problem import CertifyOptions, CertifyProblem
    from phaze_opt.certify.robust.result import RobustOptions
    from phaze_opt.hardware.constants import load_constants
    from phaze_opt.jobs.machines_beside import JobBeside, job_request
    from phaze_opt.jobs.proof import ProofRun
    from phaze_opt.objective.goals import Aim, has_costs
    from phaze_opt.study.truth import certificates_directory

    known, proof, space = load_constants(), asked.proof, asked.space
    problem_scenario = load_scenario(asked.scenario, loaded, common=asked.models.common, constants=known, space=space)
    constants = problem_scenario.constants_of(known)
    aim = Aim.parse(proof.objective, source="--objective")
    terms = asked.costs.terms()
    if has_costs(problem_scenario, aim.goal, aim.axes):
        problem_scenario = replace(problem_scenario, prices=_prices_of(problem_scenario, aim, terms))
    work_dir, baselines = asked.records.work_dir, asked.beside.names
    runs_directory(work_dir)
    check_machines(baselines, problem_scenario, constants)
    where = certificates_directory(work_dir)
    wanted = CertifyOptions(tolerance=proof.tolerance, jobs=proof.jobs, directory=where, is_resumed=proof.resume)
    problem = CertifyProblem(problem_scenario, load_space(space, problem_scenario), constants, aim.goal, axes=aim.axes)
    network = asked.scenario.network if "network" in asked.given else None
    request = job_request(loaded, asked.scenario, space, terms, network=network)
    return ProofRun(
        problem,
        wanted,
        watch,
        JobBeside(problem_scenario, constants, request, problem.space.axes.micro_batch),
        robust=RobustOptions(num_samples=proof.robust_samples, seed=proof.seed) if proof.robust else None,
        check=None if proof.no_check else partial(checked, watch=watch),
        has_range=proof.has_range,
        equal_to=proof.equal_to,
        costs=terms,
        baselines=baselines,
    )


def _prices_of(scenario: "Scenario", aim: "Aim", terms: "CostTerms") -> tuple[tuple[str, float], ...] | None:
    """Prices of a proof of money; of a front over cost alone none are stated where they are the package's."""
    from phaze_opt.hardware.economics.prices import changed_prices
    from phaze_opt.objective.goals import Goal

    changed = changed_prices(terms.prices)
    is_stated = bool(changed) or aim.goal is Goal.THROUGHPUT_PER_USD or scenario.max_capex_usd is not None
    return changed if is_stated else None


def check_given(given: Collection[str], *, is_robust: bool) -> None:
    """Samples of the assumptions are drawn by --robust alone: without it these options would be ignored.

    Raises:
        InputError: one of them is given.
    """
    for name in () if is_robust else ROBUST_OPTIONS:
        if name in given:
            message = "is of the analysis of robustness; give --robust too, or leave it out"
            raise InputError(message, source=f"--{name.replace('_', '-')}")


def checked(path: Path, watch: "Watch") -> "CheckReport | FrontReport":
    """A certificate (its directory, or a file in it), checked by independent code; a record of that lies beside it.

    Raises:
        InputError: there is no certificate.
        CertificateError: it is refused; the sentence names the row and the rule.
    """
    from phaze_opt.certify.certificate import CERTIFICATE_FILE, FRONT_FILE
    from phaze_opt.certify.check.check import check_certificate
    from phaze_opt.certify.check.files import forget_check, keep_check
    from phaze_opt.certify.check.worlds import check_front_over_worlds
    from phaze_opt.record.input_files import is_directory, is_file

    directory = path if is_directory(path) else path.parent
    is_over_worlds = is_file(directory / FRONT_FILE)
    if not is_there(path) or not (is_over_worlds or is_file(directory / CERTIFICATE_FILE)):
        what = "holds no certificate" if is_there(path) else "does not exist"
        message = f"'{path}' {what}; {_held_words(path, (CERTIFICATE_FILE, FRONT_FILE))}"
        raise InputError(message, source="--check")

    try:
        with watch.progress("check") as show:
            report = (
                check_front_over_worlds(directory, on_progress=show)
                if is_over_worlds
                else check_certificate(path, on_progress=show)
            )
    except CertificateError:
        forget_check(directory)
        raise
    keep_check(directory, report.digest)
    return report


def _held_words(path: Path, names: Collection[str]) -> str:
    """The certificates below a folder, or beside what does not exist, the newest first; else what to give."""
    from phaze_opt.record.input_files import is_directory

    folder = path if is_directory(path) else path.parent
    files = [each for name in names for depth in ("*", "*/*") for each in folder.glob(f"{depth}/{name}")]
    held = list(dict.fromkeys(str(each.parent) for each in sorted(files, key=lambda each: -each.stat().st_mtime)))
    if not held:
        return "give the directory of a certificate"
    more = f" and {len(held) - MOST_HELD} more" if len(held) > MOST_HELD else ""
    return f"{folder} has {', '.join(held[:MOST_HELD])}{more}: give one of them"
