"""What the optimum of a space, or its front, is worth in other worlds: `analyse_robustness`, `prove_front`."""

import hashlib
import json
import logging
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np

from phaze_opt import __version__
from phaze_opt.certify.best_first import PROOF_SLACK
from phaze_opt.certify.certificate import (
    CERTIFICATE_FILE,
    FORMAT,
    FRONT_FILE,
    WORLDS_DIRECTORY,
    FrontOverWorlds,
    ProvedWorld,
    content_digest,
)
from phaze_opt.certify.check.files import read_front
from phaze_opt.certify.finished_tasks import Pieces, ProofPieces, open_pieces
from phaze_opt.certify.problem import CertifyOptions, CertifyProblem
from phaze_opt.certify.prove import BUSY, lock_file, require_few_rows
from phaze_opt.certify.robust.conclude import Evidence, conclude
from phaze_opt.certify.robust.front import (
    FrontProof,
    WorldFacts,
    bounded_world,
    close_front,
    require_few_bounds,
    with_rows,
    worlds_of_throughput,
)
from phaze_opt.certify.robust.least_regret import (
    KeptCost,
    MinimaxSearch,
    Restriction,
    bound_common,
    find_minimax,
    leanest_alike,
    measure_costs,
)
from phaze_opt.certify.robust.ledger import Ledger
from phaze_opt.certify.robust.prover import ObjectiveProver, ProverBench, RobustProver, SharedGraphs
from phaze_opt.certify.robust.result import RobustOptions, RobustProgress, RobustResult, RobustStage
from phaze_opt.certify.robust.worlds import Assumptions, World, build_worlds, find_assumptions, words_of
from phaze_opt.certify.tasks import Workers
from phaze_opt.certify.writing import certificate_directory, statement_line, write_certificate
from phaze_opt.errors import CertificateError
from phaze_opt.objective.reference_machines import REFERENCES
from phaze_opt.record.lock import locked
from phaze_opt.record.plain_data import read_plain, to_plain, write_plain
from phaze_opt.record.whole_file import replace_file, unwritable

ROBUST_DIRECTORY = "robust"
RESULT_FILE = "robust.json"
_JOURNAL = "journal"
_DIGITS = 16
_LOGGER = logging.getLogger(__name__)


def analyse_robustness(
    problem: CertifyProblem,
    options: CertifyOptions,
    robust: RobustOptions,
    *,
    on_progress: Callable[[RobustProgress], None] | None = None,
    prover: RobustProver | None = None,
) -> RobustResult:
    """Certify the optimum of every world, the regret of every good design, and the design of least largest regret.

    The result is also written to `result_file`. While the analysis runs, its journal stands beside that file;
    ``options.is_resumed`` goes on from it, and gives the numbers that an uninterrupted run gives; a result that is
    finished is read back.

    Args:
        problem: the nominal one.
        options: tolerance of every optimum and of the min-max regret; how many nominal best designs to compare;
            where to write.
        robust: which worlds.
        on_progress: called whenever something was proved or evaluated.
        prover: proves worlds; the real one unless given. Picklable if ``options.jobs`` is more than 1.

    Raises:
        InputError: a kept file is broken, the directory cannot be written, or there are too many dies to bound each.
    """
    require_few_rows(problem)
    with locked(lock_file(_directory(problem, options)), busy=BUSY):
        known = read_result(result_file(problem, options)) if options.is_resumed else None
        if known is not None and _is_of(known, problem, options, robust):
            return known
        return _analyse(problem, options, robust, on_progress or (lambda _: None), prover)


def _analyse(
    problem: CertifyProblem,
    options: CertifyOptions,
    robust: RobustOptions,
    on_progress: Callable[[RobustProgress], None],
    prover: RobustProver | None,
) -> RobustResult:
    """Run the analysis and write what it finds."""
    build = partial(_build_bench, problem, options) if prover is None else partial(ProverBench, prover)
    bench = build()
    with Workers(build, jobs=options.jobs, here=bench) as workers:
        analysis = _Analysis(problem, options, robust, on_progress, bench.prover, workers)
        try:
            result = analysis.run()
        finally:
            analysis.pieces.close()
    write_plain(RobustResult, result, result_file(problem, options))
    analysis.pieces.remove()
    return result


def prove_front(
    problem: CertifyProblem,
    options: CertifyOptions,
    robust: RobustOptions,
    *,
    on_progress: Callable[[RobustProgress], None] | None = None,
) -> FrontOverWorlds:
    """Prove the front over worlds (`front`), and write a certificate of each world and the statement beside them.

    The statement is `front_file`; while the proof runs, journals of its worlds stand beside it, and
    ``options.is_resumed`` goes on from them. Worlds are proved one after the other by one process, whatever the jobs.

    Args:
        problem: the nominal one, of a front.
        options: tolerance of every optimum and of the front; where to write.
        robust: which worlds.
        on_progress: called after every world and every round.

    Raises:
        InputError: the directory cannot be written, or there is too much to bound.
    """
    directory = _directory(problem, options)
    with locked(lock_file(directory), busy=BUSY):
        known = _read_finished(directory) if options.is_resumed else None
        if known is not None and _is_enough(known, problem, options, robust):
            return known
        return _FrontAnalysis(problem, options, robust, on_progress or (lambda _: None)).run()


def check_size(problem: CertifyProblem, robust: RobustOptions) -> None:
    """Refuse what is too much, before anything is proved.

    Raises:
        InputError: it is.
    """
    if not problem.axes:
        require_few_rows(problem)
        return
    assumptions = find_assumptions(problem)
    worlds = build_worlds(problem, assumptions, num_samples=robust.num_samples, seed=robust.seed)
    require_few_bounds(problem, worlds_of_throughput(problem, worlds)[0])


def front_file(problem: CertifyProblem, options: CertifyOptions) -> Path:
    """Where the statement of a front over worlds is written; the certificates of the worlds lie beside it."""
    return _directory(problem, options) / FRONT_FILE


def _read_finished(directory: Path) -> FrontOverWorlds | None:
    """The statement at hand; one that was changed is proved anew."""
    if not (directory / FRONT_FILE).exists():
        return None
    try:
        return read_front(directory)
    except CertificateError as error:
        _LOGGER.warning("%s: it is proved anew", error)
        return None


def _is_enough(known: FrontOverWorlds, problem: CertifyProblem, options: CertifyOptions, robust: RobustOptions) -> bool:
    """Whether a statement at hand is what is asked for."""
    asked = (problem.digest, robust.num_samples, robust.seed)
    is_same = (known.problem_digest, known.num_samples, known.seed) == asked
    return is_same and known.is_proved and known.tolerance <= options.tolerance


@dataclass(slots=True)
class _FrontAnalysis:
    """One run of `prove_front`."""

    problem: CertifyProblem
    options: CertifyOptions
    robust: RobustOptions
    on_progress: Callable[[RobustProgress], None]
    _started: float = field(default_factory=time.perf_counter)

    def run(self) -> FrontOverWorlds:
        """Every world's optimum, then the front, then the files."""
        problem, robust = self.problem, self.robust
        assumptions = find_assumptions(problem)
        worlds = build_worlds(problem, assumptions, num_samples=robust.num_samples, seed=robust.seed)
        posed, numbers = worlds_of_throughput(problem, worlds)
        require_few_bounds(problem, posed)
        journals = _directory(problem, self.options) / _JOURNAL
        facts, pieces = [], []
        graphs = SharedGraphs(posed[0])
        try:
            for number, (each, place) in enumerate(with_rows(posed)):
                header = {"problem_digest": each.digest, "tolerance": self.options.tolerance, "rows": each.rows.size}
                kept = open_pieces(journals / world_name(number), header=header, is_resumed=self.options.is_resumed)
                pieces.append(kept)
                facts.append(bounded_world(each, place, graphs, ProofPieces(kept), tolerance=self.options.tolerance))
                self._tell(RobustStage.WORLDS, facts, len(posed))
            front = close_front(
                problem, worlds, facts, numbers, tolerance=self.options.tolerance, tell=self._tell_round
            )
            stated = self._write(front, assumptions, worlds, numbers)
        finally:
            for kept in pieces:
                kept.close()
        shutil.rmtree(journals, ignore_errors=True)
        return stated

    def _write(
        self, front: FrontProof, assumptions: Assumptions, worlds: Sequence[World], numbers: Sequence[int]
    ) -> FrontOverWorlds:
        """The certificate of each world, then the statement, which is taken away first."""
        directory, wall_s = _directory(self.problem, self.options), time.perf_counter() - self._started
        stated = directory / FRONT_FILE
        try:
            stated.unlink(missing_ok=True)
            shutil.rmtree(directory / WORLDS_DIRECTORY, ignore_errors=True)
        except OSError as error:
            raise unwritable(stated, error, what="the front") from error
        proofs = [each.proof(self.options.tolerance) for each in front.all_facts]
        claims = [proofs[number].claim for number in numbers]
        files = {}
        for number, proof in enumerate(proofs):
            name = world_name(number)
            write_certificate(proof, directory / name, wall_s=wall_s)
            files[name] = hashlib.sha256((directory / name / CERTIFICATE_FILE).read_bytes()).hexdigest()
        gap, slack = front.gap(), max(self.options.tolerance, PROOF_SLACK)
        found = FrontOverWorlds(
            format=FORMAT,
            axes=self.problem.axes,
            scenario=self.problem.scenario,
            space=self.problem.space,
            problem_digest=self.problem.digest,
            num_samples=self.robust.num_samples,
            seed=self.robust.seed,
            tolerance=self.options.tolerance,
            worlds=tuple(
                ProvedWorld(words_of(world, assumptions), world_name(number), claim.value, claim.value_upper)
                for world, number, claim in zip(worlds, numbers, claims, strict=True)
            ),
            designs=front.designs(numbers),
            gap=gap,
            is_proved=gap <= slack and all(proof.claim.is_proved for proof in proofs),
            num_points=len(front.known.values),
            num_solved=int((front.shares() > 0.0).sum()),
            files=files,
            package_version=__version__,
            wall_s=wall_s,
        )
        found = replace(found, digest=content_digest(to_plain(FrontOverWorlds, found)))
        replace_file(stated, statement_line(FrontOverWorlds, found, name=FRONT_FILE))
        return found

    def _tell_round(self, front: FrontProof, num_open: int) -> None:
        self._tell(RobustStage.FRONT, front.all_facts, len(front.all_facts), num_open)

    def _tell(self, stage: RobustStage, facts: Sequence[WorldFacts], num_all: int, num_open: int = 0) -> None:
        """Tell how far it is."""
        self.on_progress(
            RobustProgress(
                stage=stage,
                num_worlds=len(facts),
                num_all_worlds=num_all,
                num_evaluations=sum(len(each.state.solved) for each in facts),
                regret=1.0,
                regret_lower=0.0,
                wall_s=time.perf_counter() - self._started,
                num_open=num_open,
            )
        )


def world_name(number: int) -> str:
    """Directory of the certificate of a problem of throughput, beside the statement."""
    return f"{WORLDS_DIRECTORY}/{number:03d}"


def _is_of(known: RobustResult, problem: CertifyProblem, options: CertifyOptions, robust: RobustOptions) -> bool:
    """Whether a result is the answer to what is asked, worlds that were posed otherwise before among it."""
    assumptions = find_assumptions(problem)
    worlds = build_worlds(problem, assumptions, num_samples=robust.num_samples, seed=robust.seed)
    found = (known.tolerance, known.num_best, known.options, known.assumptions, known.worlds)
    return found == (options.tolerance, options.num_best, robust, assumptions, worlds)


def result_file(problem: CertifyProblem, options: CertifyOptions) -> Path:
    """Where the result of a problem is written: beside its certificate, in a directory of their own for all of them."""
    return _directory(problem, options) / RESULT_FILE


def read_result(path: Path) -> RobustResult | None:
    """A result that was written; None if there is no such file.

    Raises:
        InputError: the file is broken.
    """
    return read_plain(RobustResult, path, what="an analysis of robustness")


def _directory(problem: CertifyProblem, options: CertifyOptions) -> Path:
    return certificate_directory(problem, among=options.directory / ROBUST_DIRECTORY)


def _build_bench(problem: CertifyProblem, options: CertifyOptions) -> ProverBench:
    """The real prover, ready for work."""
    return ProverBench(ObjectiveProver(problem, tolerance=options.tolerance, num_best=options.num_best))


@dataclass(slots=True)
class _Analysis:
    """One run of `analyse_robustness`."""

    problem: CertifyProblem
    options: CertifyOptions
    robust: RobustOptions
    on_progress: Callable[[RobustProgress], None]
    prover: RobustProver
    workers: Workers
    pieces: Pieces = field(init=False)
    evidence: Evidence = field(init=False)
    _started: float = field(default_factory=time.perf_counter)
    _stage: RobustStage = RobustStage.WORLDS

    def __post_init__(self) -> None:
        """Lay out the worlds and open the journal."""
        how = json.dumps([self.options.tolerance, self.options.num_best])
        kept = hashlib.sha256(f"{self.problem.digest} {how}".encode()).hexdigest()
        place = _directory(self.problem, self.options) / f"{_JOURNAL}-{kept[:_DIGITS]}"
        self.pieces = open_pieces(place, header={"of": "robustness of choices"}, is_resumed=self.options.is_resumed)
        assumptions = find_assumptions(self.problem)
        worlds = build_worlds(self.problem, assumptions, num_samples=self.robust.num_samples, seed=self.robust.seed)
        # Worlds in which every point is worth the same are proved once.
        twins = self.prover.find_twins(worlds)
        distinct = sorted(set(twins))
        rows = tuple(distinct.index(twin) for twin in twins)
        proved = [worlds[position] for position in distinct]
        ledger = Ledger(self.problem, proved, self.workers, self.pieces, self._report)
        self.evidence = Evidence(self.problem, self.options, self.robust, assumptions, worlds, rows, ledger)

    def run(self) -> RobustResult:
        """All steps in order; the last two again while an evaluation beats what a world's proof had found."""
        evidence, ledger, tolerance = self.evidence, self.evidence.ledger, self.options.tolerance
        nominal = ledger.prove_all()[0]
        evidence.nominal_best = tuple(entry.index for entry in nominal.best[: self.options.num_best])
        while True:
            self._stage = RobustStage.DESIGNS
            good = self._good_points()
            ledger.evaluate_all(good)
            if good != self._good_points():
                continue
            self._stage = RobustStage.MINIMAX
            good = bound_common(ledger, good, tolerance=tolerance)
            evidence.found = find_minimax(ledger, good, tolerance=tolerance)
            if ledger.best_index(0) >= 0:
                within = evidence.optimal_within
                evidence.nominal_found = find_minimax(ledger, good, tolerance=tolerance, nominal_within=within)
                evidence.costs = self._measure_costs()
            if set(self._good_points()) <= set(good):
                break
        evidence.found = self._leanest(evidence.found)
        evidence.nominal_found = self._leanest(evidence.nominal_found)
        robust = {found.index for found in (evidence.found, evidence.nominal_found) if found.index >= 0}
        ledger.evaluate_all(sorted(robust))
        ledger.evaluate_references(REFERENCES)
        self._report()
        return conclude(evidence, wall_s=time.perf_counter() - self._started)

    def _good_points(self) -> tuple[int, ...]:
        """Every world's best point, and the nominal best ones; each once."""
        ledger = self.evidence.ledger
        bests = [ledger.best_index(row) for row in range(len(ledger.worlds))]
        return tuple(dict.fromkeys([*(index for index in bests if index >= 0), *self.evidence.nominal_best]))

    def _leanest(self, found: MinimaxSearch) -> MinimaxSearch:
        """A design that was found, without what none of the worlds uses."""
        return replace(found, index=leanest_alike(self.evidence.ledger, found.index))

    def _measure_costs(self) -> dict[tuple[int, str], KeptCost]:
        """What keeping each parameter of the nominal best design costs in every world with a feasible point."""
        ledger, asked = self.evidence.ledger, []
        nominal = ledger.designs.point(ledger.best_index(0))
        for row in np.flatnonzero(ledger.optimum() > 0.0).tolist():
            points = ledger.designs.columns(ledger.own[row].indices)
            for axis in self.problem.comparable_axes():
                asked.append(Restriction(row, axis, getattr(points, axis) == getattr(nominal, axis)))
        return measure_costs(ledger, asked, tolerance=self.options.tolerance)

    def _report(self) -> None:
        """Tell how far it is."""
        ledger, found = self.evidence.ledger, self.evidence.found
        self.on_progress(
            RobustProgress(
                stage=self._stage,
                num_worlds=ledger.num_proved,
                num_all_worlds=len(ledger.worlds),
                num_evaluations=ledger.num_evaluations,
                regret=found.regret,
                regret_lower=found.regret_lower,
                wall_s=time.perf_counter() - self._started,
            )
        )
