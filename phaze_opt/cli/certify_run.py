"""From a checked problem to a printed, recorded proof."""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import typer

from phaze_opt.certify.certificate import CERTIFICATE_FILE, FRONT_FILE
from phaze_opt.certify.equal_terms import EqualTerms, TermsPosed, TermsResult, problems_on_terms_of
from phaze_opt.certify.least_within import find_least
from phaze_opt.certify.problem import CertifyOptions, CertifyProblem
from phaze_opt.certify.prove import certify, read_values, with_rows_of
from phaze_opt.certify.result import CertifyProgress, CertifyResult, RankedDesign
from phaze_opt.certify.robust.analyse import analyse_robustness, check_size, front_file, prove_front, result_file
from phaze_opt.certify.robust.front import front_beside
from phaze_opt.certify.robust.result import OverWorlds, RobustOptions, RobustProgress, RobustResult
from phaze_opt.certify.writing import set_aside
from phaze_opt.cli import certify_output, output
from phaze_opt.cli.exit_codes import EXIT_INTERRUPTED, PROOF_KEPT
from phaze_opt.cli.job_beside import JobBeside
from phaze_opt.cli.progress import progress, proof_progress
from phaze_opt.errors import CertificateError, VerificationError
from phaze_opt.hardware.constants import Constants
from phaze_opt.hardware.presets import find_machine, load_architecture
from phaze_opt.hardware.silicon.die_report import die_of
from phaze_opt.objective.bill import CostTerms
from phaze_opt.objective.caveats import Note, notes_about
from phaze_opt.objective.chip_limits import why_infeasible
from phaze_opt.objective.evaluate import Objective
from phaze_opt.objective.evaluation import Evaluation
from phaze_opt.objective.goals import Aim, goal_values
from phaze_opt.objective.headline_range import HeadlineRange, fusion_words, range_of_point
from phaze_opt.objective.least_within import LeastDesign, amounts_of, ranges_of
from phaze_opt.objective.reference_machines import MODELLED, evaluate_machines
from phaze_opt.record.interrupts import kernels_interruptible
from phaze_opt.report.certificate import (
    TIED,
    RunnerUp,
    Ties,
    best_designs_csv,
    claim_sentence,
    count_ties,
    explain_runner_up,
)
from phaze_opt.report.certificate_page import build_document
from phaze_opt.report.die import ChipBeside, dies_beside
from phaze_opt.report.document import ReportDocument
from phaze_opt.report.equal_terms import TERMS
from phaze_opt.report.front import front_sentence, members_of
from phaze_opt.report.page import write_report, write_text
from phaze_opt.track.protocol import ProofEvent, ProofFinished, ProofMoved, ProofStarted, TrackingSession

MAX_EVALUATIONS = 40
"""Points looked at for the best one of lower value; beyond that the best one seen is named as that."""
BEST_FILE = "best_designs.csv"
UNNAMED = "the chip of --equal-to"
ID_CHARACTERS = 16
"""Of the problem's digest, in the name of a proof."""


@dataclass(frozen=True, slots=True)
class Proofs:
    """What was proved.

    Attributes:
        result: of the problem itself.
        robust: over the ranges of the assumptions; None where it was not asked for, or nothing is feasible.
        equal: on the terms of a machine; None where none was named.
        over_worlds: of a front, in place of ``robust``.
        is_checked: whether independent code confirmed every certificate.
    """

    result: CertifyResult
    robust: RobustResult | None
    equal: EqualTerms | None
    over_worlds: OverWorlds | None = None
    is_checked: bool = False


@dataclass(slots=True)
class ProofRun:
    """One proof on the command line.

    Attributes:
        problem, options: what is certified and how.
        session: what records the proof.
        robust: worlds to prove besides; None for none.
        report: page to write; None for none.
        check: confirms a certificate before anything is called proved; None to leave that out.
        has_range: whether the best design is priced again under each doubt.
        costs: on what the best design's cost is said; None to say none.
        baselines: machines that the best design is held against.
        equal_to: machine on whose terms optima are proved besides; empty for none.
        is_json: print one line of JSON.
        is_detailed: print all that the answer comes from.
        job: the same on machines.
    """

    problem: CertifyProblem
    options: CertifyOptions
    session: TrackingSession[ProofEvent]
    job: JobBeside
    robust: RobustOptions | None = None
    report: Path | None = None
    check: Callable[[Path], object] | None = None
    has_range: bool = True
    equal_to: str = ""
    costs: CostTerms | None = None
    baselines: tuple[str, ...] = ()
    is_json: bool = False
    is_detailed: bool = False
    _last: CertifyProgress | None = field(default=None, init=False)
    _is_begun: bool = field(default=False, init=False)
    _told: certify_output.ProofAnswer | None = field(default=None, init=False)

    def run(self) -> None:
        """Prove, record, print; exit code 130 if interrupted, 3 if nothing is feasible."""
        try:
            found = self.find()
        except KeyboardInterrupt:
            self.record_interruption()
            if self.is_json:
                output.print_json(certify_output.interrupted_to_json(self._last, self.session))
            output.say(f"interrupted; {PROOF_KEPT}")
            raise typer.Exit(EXIT_INTERRUPTED) from None
        except Exception:
            if self._is_begun:
                self.record_interruption()
            raise
        self._conclude(found)

    def find(self) -> "Proofs":
        """Prove and check all that is asked for; nothing is printed but progress, nothing recorded but the beginning.

        Raises:
            VerificationError: the check refuses a certificate; nothing is proved then.
        """
        with kernels_interruptible():
            on_terms = self._terms()
            if self.robust is not None:
                check_size(self.problem, self.robust)
            result = self._prove(self.problem)
            is_front = bool(self.problem.axes)
            robust = None if is_front else self._analyse(result)
            over_worlds = self._prove_over_worlds(result) if is_front else None
            found = Proofs(
                result, robust, self._prove_on_terms(on_terms), over_worlds, is_checked=self.check is not None
            )
            self._check(found)
            return found

    def _check(self, found: "Proofs") -> None:
        """Have independent code confirm every certificate, where that is not left out."""
        if self.check is None:
            return
        equal = () if found.equal is None else found.equal.found
        held = [found.result.directory, *(each.result.directory for each in equal)]
        if found.over_worlds is not None:
            held.append(self._robust_file().parent)
        for directory in held:
            try:
                self.check(directory)
            except CertificateError as error:
                kept = set_aside(directory)
                refusal = f"the check refuses the certificate in {directory} ({error}), whose statement is {kept} now"
                message = f"nothing is proved: {refusal}; prove it again"
                raise VerificationError(message) from error

    def _terms(self) -> TermsPosed | None:
        """The problems on the terms of the machine; what is wrong with it is said before anything is proved."""
        if not self.equal_to:
            return None
        machine = load_architecture(self.equal_to, constants=self.problem.constants)
        return problems_on_terms_of(self.problem, machine)

    def _modelled(self, name: str) -> str:
        """What a machine is called where it is modelled as the designs are; the name of a design."""
        return name if find_machine(name) is None else MODELLED + name

    def _prove_on_terms(self, posed: TermsPosed | None) -> EqualTerms | None:
        """Further certificates, and what the machine itself comes to."""
        if posed is None:
            return None
        found = tuple(TermsResult(each.terms, self._prove(each.problem)) for each in posed.problems)
        problem, given = self.problem, self._modelled(self.equal_to)
        batches = problem.space.axes.micro_batch
        found_of = evaluate_machines(problem.scenario, batches, [given], constants=problem.constants)
        ((called, machine),) = found_of.items()
        name = called if machine.accelerator.name else UNNAMED
        return EqualTerms(name, machine, die_of(machine.accelerator, self.problem.constants), found, posed.left_out)

    def _prove(self, problem: CertifyProblem) -> CertifyResult:
        with proof_progress(goal=self.problem.goal, is_quiet=self.is_json) as show:

            def on_progress(moved: CertifyProgress) -> None:
                show(moved)
                if problem is not self.problem:
                    return
                self._begin()
                self._last = moved
                self.session.observe(ProofMoved(moved))

            return certify(problem, self.options, on_progress=on_progress)

    def _analyse(self, result: CertifyResult) -> RobustResult | None:
        """The same over the ranges of the assumptions, if asked for and if anything is feasible as they stand."""
        if self.robust is None or not result.certificate.claim.is_feasible:
            return None

        with progress("certify --robust", is_transient=self.is_json) as show:

            def on_progress(moved: RobustProgress) -> None:
                what = f"{moved.num_evaluations:,} evaluations"
                if moved.regret < 1.0:
                    what += (
                        f", largest regret {100.0 * moved.regret:.2f} % (at least {100.0 * moved.regret_lower:.2f} %)"
                    )
                show(moved.stage.value, moved.num_worlds, moved.num_all_worlds, what)

            return analyse_robustness(self.problem, self.options, self.robust, on_progress=on_progress)

    def _prove_over_worlds(self, result: CertifyResult) -> OverWorlds | None:
        """The front over worlds, if asked for and if anything is feasible as the assumptions stand."""
        if self.robust is None or not result.certificate.claim.is_feasible:
            return None

        with progress("certify --robust", is_transient=self.is_json) as show:

            def on_progress(moved: RobustProgress) -> None:
                what = f"{moved.num_evaluations:,} evaluations, {moved.num_open:,} designs open"
                show(moved.stage.value, moved.num_worlds, moved.num_all_worlds, what)

            front = prove_front(self.problem, self.options, self.robust, on_progress=on_progress)
        nominal = [each.point for each in result.front]
        with output.working("pricing the baselines in each world"):
            return front_beside(
                self.problem, self.robust, front, nominal=nominal, machines=[*map(self._modelled, self.baselines)]
            )

    def _begin(self) -> None:
        """Announce the proof to the tracker once it is under way: bad input leaves nothing behind."""
        if self._is_begun:
            return
        self._is_begun = True
        scenario = self.problem.scenario
        name = f"certify {','.join(model.name for model in scenario.models)} on {scenario.cluster.num_devices}"
        identity = f"certify-{self.problem.digest[:ID_CHARACTERS]}"
        self.session.observe(ProofStarted(identity, name, self._config(), is_resumed=self.options.is_resumed))

    def record_interruption(self) -> None:
        """The end of a proof without a claim; what the journal holds is kept by the prover."""
        self._begin()
        spent_s = 0.0 if self._last is None else self._last.wall_s
        self.session.observe(ProofFinished(claim=None, best=None, wall_s=spent_s))
        self._deliver()

    def _conclude(self, found: Proofs) -> None:
        result, equal, answer = found.result, found.equal, self.answer(found)
        if not self.is_json:
            certify_output.print_answer(answer, is_detailed=self.is_detailed)
        pages: dict[str, Path] = {}
        try:
            if self.report is not None:
                with output.spared("the page of --report"):
                    pages = write_report(self.report, self._page(answer))
                    self._write_terms(self.report, equal)
            self.record(found, pages)
        finally:
            page = next(iter(pages.values()), None)
            if self.is_json:
                output.print_json(certify_output.answer_to_json(answer, self.session, page=page))
            else:
                output.print_run(self.session)
                if result.best:
                    output.print_more(is_detailed=self.is_detailed)
        claim = result.certificate.claim
        certify_output.warn_unproved(claim)
        if not claim.is_feasible:
            output.end_infeasible(self._why_infeasible())

    def _why_infeasible(self) -> str:
        problem = self.problem
        with output.working("looking for the limit"):
            return why_infeasible(replace(problem.space, frontier=None), problem.scenario, problem.constants)

    def _page(self, answer: certify_output.ProofAnswer) -> ReportDocument:
        """The page of the proof: what is printed of it, its pictures, and all tables."""
        first = certify_output.first_of(answer)
        return build_document(
            answer.result,
            ties=answer.ties,
            runner_up=answer.runner_up,
            robust=answer.robust,
            headline=answer.headline,
            notes=answer.notes,
            beside=answer.beside,
            equal=answer.equal,
            num_held=len(answer.held),
            first=first,
            over_worlds=answer.over_worlds,
        )

    def answer(self, proofs: "Proofs") -> certify_output.ProofAnswer:
        """What is said of the proofs of this run, found once."""
        if self._told is None:
            self._told = self._answer(proofs)
        return self._told

    def _answer(self, proofs: "Proofs") -> certify_output.ProofAnswer:
        result, problem, is_front = proofs.result, self.problem, bool(self.problem.axes)
        best = result.best[0].evaluation if result.best else None
        beside, num_held = self.find_beside(best)
        has_range = self.has_range and bool(result.best) and not is_front
        return certify_output.ProofAnswer(
            result=result,
            robust=proofs.robust,
            robust_file=self._robust_file(),
            over_worlds=proofs.over_worlds,
            is_checked=proofs.is_checked,
            equal=proofs.equal,
            ties=Ties(0, 0) if is_front else count_ties(result),
            runner_up=None if is_front else find_runner_up(result, problem),
            headline=self._range(result) if has_range else None,
            notes=(
                *notes_about(best, scenario=problem.scenario, constants=problem.constants, space=problem.space),
                *_fusion_notes(problem, best),
            ),
            constants=problem.constants,
            num_held=num_held,
            beside=beside,
            least=self._least(result),
            amounts={} if best is None else amounts_of(best, problem.scenario, problem.constants, self._prices()),
            ranges=self._ranges(result) if self.has_range and is_front else {},
        )

    def _prices(self) -> Constants | None:
        return None if self.costs is None else self.costs.prices

    def _write_terms(self, report: Path, equal: EqualTerms | None) -> None:
        """A page for each certificate on a machine's terms, beside the page of the report."""
        if equal is None:
            return
        for each in equal.found:
            best = each.result.best[0].evaluation if each.result.best else None
            beside = dies_beside(best, {equal.name: equal.evaluation}, self.problem.constants)
            terms = f"{TERMS[each.terms].replace('its', 'the', 1)} of {equal.name}"
            ties = Ties(0, 0) if each.result.certificate.axes else count_ties(each.result)
            document = build_document(each.result, ties=ties, runner_up=None, beside=beside, terms=terms)
            write_report(report.with_name(f"{report.stem}-{each.terms.name.lower()}{report.suffix}"), document)

    def find_beside(self, best: Evaluation | None) -> tuple[tuple[ChipBeside, ...], int]:
        """The best design, the baselines and the references, and how many baselines there are."""
        with output.working("pricing the machines beside it"):
            return self.job.beside(best, self.baselines)

    def _range(self, result: CertifyResult) -> HeadlineRange:
        """The range of the best design's throughput."""
        best, problem = result.best[0], self.problem
        objective = Objective(problem.scenario, constants=problem.constants)
        with output.working("pricing the design under each doubt"):
            return range_of_point(objective, best.point, best.evaluation)

    def _ranges(self, result: CertifyResult) -> Mapping[int, HeadlineRange]:
        """The ranges of the fastest design of a front and of its knee, by number."""
        objective = Objective(self.problem.scenario, constants=self.problem.constants)
        with output.working("pricing two designs under each doubt"):
            return ranges_of(members_of(result), self.problem.axes, objective)

    def _least(self, result: CertifyResult) -> tuple[LeastDesign, ...]:
        """The smallest, coolest and cheapest design near the best one."""
        with output.working("looking for smaller, cooler and cheaper designs"):
            return find_least(result, self.problem, self._prices())

    def _robust_file(self) -> Path:
        is_front = bool(self.problem.axes)
        return front_file(self.problem, self.options) if is_front else result_file(self.problem, self.options)

    def record(self, found: "Proofs", pages: Mapping[str, Path]) -> None:
        """The end of the proof, the certificate's statement, the table of the best designs, and pages by name."""
        result, robust, over_worlds = found.result, found.robust, found.over_worlds
        self._begin()
        provenance = result.certificate.provenance
        totals = {"ilp_solves": float(provenance.num_ilp_solves), "placements": float(provenance.num_placements)}
        if robust is not None:
            totals |= certify_output.robust_metrics(robust)
        if over_worlds is not None:
            totals |= certify_output.over_worlds_metrics(over_worlds.front)
        self.session.observe(
            ProofFinished(
                claim=result.certificate.claim,
                best=result.best[0].evaluation if result.best else None,
                wall_s=result.wall_s,
                metrics=totals,
                tags={
                    "statement": front_sentence(result) if self.problem.axes else claim_sentence(result),
                    "file": str(result.directory),
                    "checked": str(found.is_checked).lower(),
                },
            )
        )
        if self.session.tracking_uri:
            with output.spared("the table of the best designs"), TemporaryDirectory() as folder:
                table = write_text(Path(folder) / BEST_FILE, best_designs_csv(result))
                files = {CERTIFICATE_FILE: result.directory / CERTIFICATE_FILE, BEST_FILE: table}
                files |= {
                    "certificate.html" if not index else name: path for index, (name, path) in enumerate(pages.items())
                }
                if robust is not None or over_worlds is not None:
                    files["robust.json" if over_worlds is None else FRONT_FILE] = self._robust_file()
                self.session.log_artifacts(files)
        self._deliver()

    def _deliver(self) -> None:
        """Deliver what waits for the tracker's store, and say what still does."""
        with output.working("recording"):
            delivery = self.session.close()
        output.say_undelivered(delivery)

    def _config(self) -> dict[str, Any]:
        """What is certified and how, for the record."""
        problem, options = self.problem, self.options
        return {
            "goal": str(Aim(problem.goal, problem.axes)),
            "tolerance": options.tolerance,
            "jobs": options.jobs,
            "num_points": problem.rows.size,
            "space_name": problem.space.name,
            "space_digest": problem.space.digest,
            "problem_digest": problem.digest,
            "scenario": json.loads(json.dumps(asdict(problem.scenario), default=str)),
        }


def find_runner_up(result: CertifyResult, problem: CertifyProblem) -> RunnerUp | None:
    """The best design of lower value and why it loses; None if there is none.

    It is among the best designs unless all of these tie. Then points are evaluated from the highest bound down until no
    bound is left that exceeds the best value below the optimum.

    Raises:
        InputError: the certificate's table cannot be read.
    """
    goal = problem.goal
    found = explain_runner_up(result.best, goal=goal)
    if found is not None or not result.best:
        return found
    with output.working("looking for the runner-up"):
        second, is_certain = _evaluate_below(result, problem)
    if second is None:
        return None
    explained = explain_runner_up((result.best[0], second), goal=goal)
    return None if explained is None else replace(explained, is_certain=is_certain)


def _evaluate_below(result: CertifyResult, problem: CertifyProblem) -> tuple[RankedDesign | None, bool]:
    """The best point below the optimum, and whether no other can be between."""
    known = read_values(result.certificate, result.directory)
    problem = with_rows_of(result.certificate, result.directory, problem)
    attained, upper = known.values, known.values_upper
    least = result.best[0].value * (1.0 - TIED)
    is_open = (attained < least) & (upper > 0.0)
    order = [index for index in np.argsort(-upper, kind="stable").tolist() if is_open[index]]
    num_tied = int(np.count_nonzero(attained >= least))
    objective = Objective(problem.scenario, constants=problem.constants)
    second: RankedDesign | None = None
    for count, index in enumerate(order):
        if second is not None and upper[index] <= second.value:
            return second, True
        if count == MAX_EVALUATIONS:
            return second, False
        evaluation = objective.evaluate(problem.rows.point(index))
        value = next(iter(goal_values(problem.goal, evaluation)), 0.0)
        if value >= least:
            num_tied += 1
        elif value > (0.0 if second is None else second.value):
            point = problem.rows.point(index)
            second = RankedDesign(1 + num_tied, index, point, value, float(upper[index]), evaluation)
    return second, True


def _fusion_notes(problem: CertifyProblem, best: Evaluation | None) -> tuple[Note, ...]:
    """What groups of layers gain the best design of a proof, and what of them its gap holds."""
    gain = fusion_words(best, Objective(problem.scenario, constants=problem.constants))
    if not gain:
        return ()
    sentence = (
        f"{gain}; the bound holds for layers in any groups, and takes the best place of every operator for itself: the "
        "gap has what lies between"
    )
    return (Note("layer_fusion", sentence),)
