"""``phaze-opt certify``: the proved optimum of a whole space, and the check of such a proof."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from phaze_opt.cli import options
from phaze_opt.cli.exit_codes import says_what_is_kept
from phaze_opt.cli.output import check_file_to_write, print_json
from phaze_opt.cli.scenario import load_models, load_scenario, load_space, runs_directory
from phaze_opt.errors import CertificateError, InputError
from phaze_opt.objective.scenario_options import Kind, ScenarioOptions, SpaceOptions, declared
from phaze_opt.record.input_files import is_there
from phaze_opt.record.suggestions import parse_word

PROOF = "Proof"
MAX_SAMPLES = 1000
CHECK_OPTIONS = ("check", "json")
"""Parameters that the check of a certificate reads."""
ROBUST_OPTIONS = ("robust_samples", "seed")
"""Parameters that only the analysis of robustness reads."""
NEEDED = {"devices": "the number of accelerators", "global_batch": "the samples of an iteration"}
"""What a proof does not go without."""
OF_PROOFS: dict[str, Any] = dict.fromkeys(NEEDED, {"is_required": False, "default": None})
NOTHING_FOUND = {"architecture": None, "is_feasible": False, "points": 0, "file": None}
_proving = partial(declared, panel=PROOF)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofOptions:
    """What is proved, and how."""

    objective: str = _proving("throughput", "throughput or throughput_per_tdp.", Kind.WORD)
    tolerance: float = _proving(
        0.001, "How far above the best design the bound on all others may stay; 0 proves the exact optimum.", Kind.GAP
    )
    jobs: int = _proving(1, options.JOBS_HELP, Kind.COUNT, high=options.MAX_JOBS)
    resume: bool = _proving(False, "Continue the same proof where it was interrupted.", Kind.SWITCH)
    check: Path | None = _proving(
        None, "Check a certificate (its directory) by independent code instead; needs no other option.", Kind.PATH
    )
    robust: bool = _proving(
        False,
        "Also certify the optimum at the corners of the assumptions' ranges and at samples within them, and "
        "the design of least largest regret over all of them.",
        Kind.SWITCH,
    )
    has_range: bool = _proving(True, options.RANGE_HELP, Kind.SWITCH, flag="--range")
    equal_to: str = _proving(
        "",
        "Also certify the optimum of dies within the area of this machine (a preset, a file or sizes inline), within "
        "its power, and within its area with its HBM rate and its buffer.",
        Kind.TEXT,
    )
    robust_samples: int = _proving(
        8, "Samples within the ranges of the assumptions, besides their corners.", Kind.COUNT, low=0, high=MAX_SAMPLES
    )
    seed: int = _proving(0, "Of these samples; a proof has no randomness.", Kind.COUNT, low=0, high=options.MAX_SEED)


@options.with_options
def certify(
    context: typer.Context,
    *,
    models: options.ModelOptions,
    proof: ProofOptions,
    scenario: Annotated[ScenarioOptions, OF_PROOFS],
    space: SpaceOptions,
    costs: options.CostOptions,
    records: options.RecordOptions,
    report: Annotated[
        Path | None,
        typer.Option("--report", help="Also write a page with figures (HTML).", rich_help_panel=options.RECORDS),
    ] = None,
    json: options.JsonOption = False,
) -> None:
    """Prove which design of a whole space is best, within a tolerance, and write a certificate that others can check.

    Ctrl-C keeps what is done and --resume goes on from there. A proof that ends above its tolerance exits with 0 and
    says so; `is_proved` tells programs.
    """
    if proof.check is not None:
        _refuse_beside_check(context)
        _check(proof.check, is_json=json)
        return
    from phaze_opt.hardware.constants import load_constants
    from phaze_opt.objective.goals import Goal

    if not proof.robust:
        _refuse_without_robust(context)
    loaded = load_models(models)
    for name, what in NEEDED.items():
        if not options.is_given(context, name):
            message = f"is missing: give {what}; only --check goes without it"
            raise InputError(message, source=f"--{name.replace('_', '-')}")
    known, terms = load_constants(), costs.terms()
    problem_scenario = load_scenario(scenario, loaded, common=models.common, constants=known, space=space)
    constants = problem_scenario.constants_of(known)
    goal = parse_word(Goal, proof.objective, source="--objective")
    from phaze_opt.certify.problem import CertifyOptions, CertifyProblem
    from phaze_opt.certify.robust.result import RobustOptions
    from phaze_opt.cli.certify_run import ProofRun
    from phaze_opt.study.certified_truth import certificates_directory
    from phaze_opt.track.guard import open_certificate_tracker

    runs_directory(records.work_dir)
    check_file_to_write(report, option="--report", example="certificate.html")
    where = certificates_directory(records.work_dir)
    wanted = CertifyOptions(tolerance=proof.tolerance, jobs=proof.jobs, directory=where, is_resumed=proof.resume)
    points = load_space(space, problem_scenario, is_json=json, nothing=NOTHING_FOUND)
    run = ProofRun(
        CertifyProblem(problem_scenario, points, constants, goal),
        wanted,
        open_certificate_tracker(records.chosen_tracker, records.tracker_config()),
        robust=RobustOptions(num_samples=proof.robust_samples, seed=proof.seed) if proof.robust else None,
        report=report,
        has_range=proof.has_range,
        equal_to=proof.equal_to,
        costs=terms,
        is_json=json,
    )
    run.run()


def _refuse_beside_check(context: typer.Context) -> None:
    """A certificate holds its own problem: what is given beside it would be ignored."""
    extra = [
        option.opts[0]
        for option in context.command.params
        if option.name not in CHECK_OPTIONS and options.is_given(context, str(option.name))
    ]
    if extra:
        message = f"stands alone: the certificate holds its problem; leave out {', '.join(extra)}"
        raise InputError(message, source="--check")


def _refuse_without_robust(context: typer.Context) -> None:
    """Samples of the assumptions are drawn by --robust alone: without it these options would be ignored."""
    for name in ROBUST_OPTIONS:
        if options.is_given(context, name):
            message = "is of the analysis of robustness; give --robust too, or leave it out"
            raise InputError(message, source=f"--{name.replace('_', '-')}")


def _check(path: Path, *, is_json: bool) -> None:
    """Check a certificate (its directory, or a file in it) by independent code, and print what it states.

    Raises:
        InputError: there is no certificate.
        CertificateError: it is refused; the sentence names the row and the rule.
    """
    if not is_there(path):
        message = f"'{path}' does not exist; give the directory of a certificate"
        raise InputError(message, source="--check")
    from phaze_opt.certify.check.check import check_certificate
    from phaze_opt.cli.certify_output import print_check
    from phaze_opt.cli.progress import progress

    try:
        with says_what_is_kept("a check keeps nothing: run it again"), progress("check", is_transient=is_json) as show:
            report = check_certificate(
                path, on_progress=lambda moved: show(moved.stage.value, moved.num_done, moved.num_all, "")
            )
    except CertificateError as error:
        if is_json:
            print_json({"valid": False, "reason": " ".join(str(error).split()), "claim": None})
        raise
    print_check(report, is_json=is_json)
