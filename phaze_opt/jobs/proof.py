"""The job of ``certify``: a proof of the best design of a whole space, checked, with what is said of it."""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from phaze_opt.certify.equal_terms import EqualTerms, TermsPosed, TermsResult, problems_on_terms_of
from phaze_opt.certify.events import ProofEvent, ProofFinished, ProofMoved, ProofStarted
from phaze_opt.certify.least_within import find_least
from phaze_opt.certify.problem import CertifyOptions, CertifyProblem
from phaze_opt.certify.prove import certify
from phaze_opt.certify.result import CertifyResult, ProofMove
from phaze_opt.certify.robust.analyse import analyse_robustness, check_size, front_file, prove_front, result_file
from phaze_opt.certify.robust.front import front_beside
from phaze_opt.certify.robust.result import OverWorlds, RobustOptions, RobustResult
from phaze_opt.certify.standing import SecondBest, Ties, count_ties, find_second, members_of
from phaze_opt.certify.writing import set_aside
from phaze_opt.errors import CertificateError, VerificationError
from phaze_opt.hardware.constants import Constants
from phaze_opt.hardware.presets import find_machine, load_architecture
from phaze_opt.hardware.silicon.die_report import die_of
from phaze_opt.jobs.machines_beside import ChipBeside, JobBeside
from phaze_opt.jobs.watch import Watch
from phaze_opt.objective.bill import CostTerms
from phaze_opt.objective.caveats import Note, notes_about
from phaze_opt.objective.chip_limits import why_infeasible
from phaze_opt.objective.evaluate import Objective
from phaze_opt.objective.evaluation import Evaluation
from phaze_opt.objective.goals import Aim
from phaze_opt.objective.headline_range import HeadlineRange, fusion_words, range_of_point
from phaze_opt.objective.least_within import LeastDesign, LeastOf, amounts_of, ranges_of
from phaze_opt.objective.priced_as import PricedAs, priced_as
from phaze_opt.objective.reference_machines import MODELLED, evaluate_machines
from phaze_opt.record.interrupts import kernels_interruptible

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


@dataclass(frozen=True, slots=True)
class ProofAnswer:
    """Proofs and what is said of them.

    Attributes:
        proofs: the certificate, and what was proved beside it.
        robust_file: where what is found over worlds is written.
        ties: designs that share the first place.
        second: the best design of lower value; None if there is none, or of a front.
        headline: the range of the best design's throughput; None where it was not asked for, or of a front.
        notes: what the answer rests on.
        constants: in force.
        beside: the best design, then the machines that it is held against and the references; empty if there is none.
        num_held: machines that it is held against; they are the first.
        least: the smallest, coolest and cheapest design near the best.
        amounts: what the best design takes.
        ranges: of the fastest design and the knee of a front, by number.
    """

    proofs: Proofs
    robust_file: Path
    ties: Ties
    second: SecondBest | None
    headline: HeadlineRange | None
    notes: tuple[Note, ...]
    constants: Constants
    beside: tuple[ChipBeside, ...]
    num_held: int
    least: tuple[LeastDesign, ...]
    amounts: Mapping[LeastOf, float]
    ranges: Mapping[int, HeadlineRange] = field(default_factory=dict)

    @property
    def result(self) -> CertifyResult:
        """Of the problem itself."""
        return self.proofs.result

    @property
    def held(self) -> tuple[ChipBeside, ...]:
        """The machines that the best design is held against."""
        return self.beside[1 : 1 + self.num_held]

    @property
    def priced(self) -> tuple[PricedAs, ...]:
        """What the models were priced as."""
        scenario = self.result.certificate.scenario
        return priced_as(scenario.models, scenario.sequence_length)


@dataclass(slots=True)
class ProofRun:
    """One proof.

    Attributes:
        problem, options: what is certified and how.
        watch: hears of the proof, to show it.
        job: the same on machines.
        robust: worlds to prove besides; None for none.
        check: confirms a certificate before anything is called proved; None to leave that out.
        has_range: whether the best design is priced again under each doubt.
        costs: on what the best design's cost is said; None to say none.
        baselines: machines that the best design is held against.
        equal_to: machine on whose terms optima are proved besides; empty for none.
        observe: hears of it too, to record it.
    """

    problem: CertifyProblem
    options: CertifyOptions
    watch: Watch
    job: JobBeside
    robust: RobustOptions | None = None
    check: Callable[[Path], object] | None = None
    has_range: bool = True
    equal_to: str = ""
    costs: CostTerms | None = None
    baselines: tuple[str, ...] = ()
    observe: Callable[[ProofEvent], None] = field(default=lambda _: None)
    last: ProofMove | None = field(default=None, init=False)
    """How far the proof came."""
    is_begun: bool = field(default=False, init=False)
    """Whether it was announced."""
    _answer: ProofAnswer | None = field(default=None, init=False)
    _beside: tuple[tuple[ChipBeside, ...], int] | None = field(default=None, init=False)

    def find(self) -> Proofs:
        """Prove and check all that is asked for; nothing is recorded but the beginning.

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

    def _check(self, found: Proofs) -> None:
        """Have independent code confirm every certificate, where that is not left out."""
        if self.check is None:
            return
        equal = () if found.equal is None else found.equal.found
        held = [found.result.directory, *(each.result.directory for each in equal)]
        if found.over_worlds is not None:
            held.append(self.robust_file.parent)
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
        with self.watch.proof(self.problem.goal) as show:

            def on_progress(moved: ProofMove) -> None:
                show(moved)
                if problem is not self.problem:
                    return
                self.begin()
                self.last = moved
                self.observe(ProofMoved(moved))

            return certify(problem, self.options, on_progress=on_progress)

    def _analyse(self, result: CertifyResult) -> RobustResult | None:
        """The same over the ranges of the assumptions, if asked for and if anything is feasible as they stand."""
        if self.robust is None or not result.certificate.claim.is_feasible:
            return None

        with self.watch.progress("certify --robust") as show:
            return analyse_robustness(self.problem, self.options, self.robust, on_progress=show)

    def _prove_over_worlds(self, result: CertifyResult) -> OverWorlds | None:
        """The front over worlds, if asked for and if anything is feasible as the assumptions stand."""
        if self.robust is None or not result.certificate.claim.is_feasible:
            return None

        with self.watch.progress("certify --robust") as show:
            front = prove_front(self.problem, self.options, self.robust, on_progress=show)
        nominal = [each.point for each in result.front]
        with self.watch.working("pricing the baselines in each world"):
            return front_beside(
                self.problem, self.robust, front, nominal=nominal, machines=[*map(self._modelled, self.baselines)]
            )

    def begin(self) -> None:
        """Announce the proof once it is under way: bad input leaves nothing behind."""
        if self.is_begun:
            return
        self.is_begun = True
        scenario = self.problem.scenario
        name = f"certify {','.join(model.name for model in scenario.models)} on {scenario.cluster.num_devices}"
        identity = f"certify-{self.problem.digest[:ID_CHARACTERS]}"
        self.observe(ProofStarted(identity, name, self._config(), is_resumed=self.options.is_resumed))

    def interrupt(self) -> None:
        """Tell of the end of a proof without a claim; what the journal holds is kept by the prover."""
        self.begin()
        spent_s = 0.0 if self.last is None else self.last.wall_s
        self.observe(ProofFinished(claim=None, best=None, wall_s=spent_s))

    def answer(self, proofs: Proofs) -> ProofAnswer:
        """What is said of the proofs of this run, found once."""
        if self._answer is None:
            self._answer = self._find_answer(proofs)
        return self._answer

    def _find_answer(self, proofs: Proofs) -> ProofAnswer:
        result, problem, is_front = proofs.result, self.problem, bool(self.problem.axes)
        best = result.best[0].evaluation if result.best else None
        beside, num_held = self.find_beside(best)
        has_range = self.has_range and bool(result.best)
        second = None
        if not is_front:
            with self.watch.working("looking for the runner-up"):
                second = find_second(result, problem)
        return ProofAnswer(
            proofs=proofs,
            robust_file=self.robust_file,
            ties=Ties(0, 0) if is_front else count_ties(result),
            second=second,
            headline=self._range(result) if has_range and not is_front else None,
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

    def find_beside(self, best: Evaluation | None) -> tuple[tuple[ChipBeside, ...], int]:
        """The best design, the baselines and the references, and how many baselines there are; found once."""
        if self._beside is None:
            with self.watch.working("pricing the machines beside it"):
                self._beside = self.job.beside(best, self.baselines, self.watch)
        return self._beside

    def _range(self, result: CertifyResult) -> HeadlineRange:
        """The range of the best design's throughput."""
        best, problem = result.best[0], self.problem
        objective = Objective(problem.scenario, constants=problem.constants)
        with self.watch.working("pricing the design under each doubt"):
            return range_of_point(objective, best.point, best.evaluation)

    def _ranges(self, result: CertifyResult) -> Mapping[int, HeadlineRange]:
        """The ranges of the fastest design of a front and of its knee, by number."""
        objective = Objective(self.problem.scenario, constants=self.problem.constants)
        with self.watch.working("pricing two designs under each doubt"):
            return ranges_of(members_of(result), self.problem.axes, objective)

    def _least(self, result: CertifyResult) -> tuple[LeastDesign, ...]:
        """The smallest, coolest and cheapest design near the best one."""
        with self.watch.working("looking for smaller, cooler and cheaper designs"):
            return find_least(result, self.problem, self._prices())

    @property
    def robust_file(self) -> Path:
        """Where what is found over worlds is written."""
        is_front = bool(self.problem.axes)
        return front_file(self.problem, self.options) if is_front else result_file(self.problem, self.options)

    def why_infeasible(self) -> str:
        """Which limit leaves no design."""
        problem = self.problem
        with self.watch.working("looking for the limit"):
            return why_infeasible(replace(problem.space, frontier=None), problem.scenario, problem.constants)

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
