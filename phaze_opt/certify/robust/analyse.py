"""`analyse_robustness`: what the optimum of a space, and what is concluded from it, is worth in other worlds."""

import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np

from phaze_opt.certify.finished_tasks import Pieces, open_pieces
from phaze_opt.certify.problem import CertifyOptions, CertifyProblem
from phaze_opt.certify.prove import BUSY, lock_file, require_few_rows
from phaze_opt.certify.robust.common_dies import bound_common, leanest_alike
from phaze_opt.certify.robust.conclude import Evidence, conclude
from phaze_opt.certify.robust.least_regret import KeptCost, MinimaxSearch, Restriction, find_minimax, measure_costs
from phaze_opt.certify.robust.ledger import Ledger
from phaze_opt.certify.robust.objective_prover import ObjectiveProver
from phaze_opt.certify.robust.prover import ProverBench, RobustProver
from phaze_opt.certify.robust.result import RobustOptions, RobustProgress, RobustResult, RobustStage
from phaze_opt.certify.robust.worlds import build_worlds, find_assumptions
from phaze_opt.certify.tasks import Workers
from phaze_opt.certify.writing import certificate_directory
from phaze_opt.objective.reference_machines import REFERENCES
from phaze_opt.record.lock import locked
from phaze_opt.record.plain_data import read_plain, write_plain

ROBUST_DIRECTORY = "robust"
RESULT_FILE = "robust.json"
_JOURNAL = "journal"
_DIGITS = 16


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
        asked = (problem.digest, options.tolerance, options.num_best, robust, find_assumptions(problem))
        if known is not None and _asked_of(known) == asked:
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


def _asked_of(known: RobustResult) -> tuple[object, ...]:
    """What a result is the answer to."""
    return known.problem_digest, known.tolerance, known.num_best, known.options, known.assumptions


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
