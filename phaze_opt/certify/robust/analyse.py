"""`analyse_robustness`: what the optimum of a space, and what is concluded from it, is worth in other worlds."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from phaze_opt.certify.certificate import BOUND_SLACK
from phaze_opt.certify.closing import PROOF_SLACK
from phaze_opt.certify.problem import CertifyOptions, CertifyProblem
from phaze_opt.certify.robust.assumptions import find_assumptions
from phaze_opt.certify.robust.conclusions import Findings, draw_conclusions
from phaze_opt.certify.robust.effects import measure_effects
from phaze_opt.certify.robust.journal import RobustJournal, write_whole
from phaze_opt.certify.robust.ledger import Ledger
from phaze_opt.certify.robust.minimax import MinimaxSearch, find_minimax
from phaze_opt.certify.robust.prover import RobustProver
from phaze_opt.certify.robust.result import (
    NOT_IN_SPACE,
    Conclusion,
    Minimax,
    RobustDesign,
    RobustOptions,
    RobustProgress,
    RobustResult,
    RobustStage,
    WorldOptimum,
)
from phaze_opt.certify.robust.tasks import ProverBench
from phaze_opt.certify.robust.worlds import World, build_worlds
from phaze_opt.certify.workers import Workers
from phaze_opt.objective.references import REFERENCES
from phaze_opt.plain_data import read_plain, to_plain

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
    ``options.is_resumed`` goes on from it, and gives the numbers that an uninterrupted run gives.

    Args:
        problem: the nominal one.
        options: tolerance of every optimum and of the min-max regret; how many nominal best designs to compare;
            where to write.
        robust: which worlds.
        on_progress: called whenever something was proved or evaluated.
        prover: proves worlds; the real one unless given. Picklable if ``options.jobs`` is more than 1.

    Raises:
        InputError: a kept file is broken, or the directory cannot be written.
    """
    build = partial(_build_bench, problem, options) if prover is None else partial(ProverBench, prover)
    bench = build()
    workers = Workers(build, jobs=options.jobs, here=bench)
    is_hurried = True
    try:
        analysis = _Analysis(problem, options, robust, on_progress or (lambda _: None), bench.prover, workers)
        result = analysis.run()
        is_hurried = False
    finally:
        workers.close(is_hurried=is_hurried)
    write_whole(result_file(problem, options), json.dumps(to_plain(RobustResult, result), indent=1) + "\n")
    analysis.journal.remove()
    return result


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
    models = "-".join(model.name for model in problem.scenario.models)
    return options.directory / ROBUST_DIRECTORY / f"{models}-{problem.digest[:_DIGITS]}"


def _build_bench(problem: CertifyProblem, options: CertifyOptions) -> ProverBench:
    """The real prover, ready for work."""
    from phaze_opt.certify.robust.objective_prover import ObjectiveProver

    return ProverBench(ObjectiveProver(problem, tolerance=options.tolerance, num_best=options.num_best))


@dataclass(slots=True)
class _Analysis:
    """One run of `analyse_robustness`.

    Attributes:
        rows: of every world the position of its twin among the distinct ones.
    """

    problem: CertifyProblem
    options: CertifyOptions
    robust: RobustOptions
    on_progress: Callable[[RobustProgress], None]
    prover: RobustProver
    workers: Workers
    journal: RobustJournal = field(init=False)
    worlds: tuple[World, ...] = field(init=False)
    rows: tuple[int, ...] = field(init=False)
    ledger: Ledger = field(init=False)
    _started: float = field(default_factory=time.perf_counter)
    _stage: RobustStage = RobustStage.WORLDS
    _found: MinimaxSearch = field(default_factory=lambda: MinimaxSearch(NOT_IN_SPACE, 1.0, 0.0))
    _nominal_found: MinimaxSearch = field(default_factory=lambda: MinimaxSearch(NOT_IN_SPACE, 1.0, 0.0))

    def __post_init__(self) -> None:
        """Lay out the worlds and open the journal."""
        how = json.dumps([self.options.tolerance, self.options.num_best])
        kept = hashlib.sha256(f"{self.problem.digest} {how}".encode()).hexdigest()
        self.journal = RobustJournal(_directory(self.problem, self.options) / f"{_JOURNAL}-{kept[:_DIGITS]}")
        if not self.options.is_resumed:
            self.journal.remove()
        assumptions = find_assumptions(self.problem)
        self.worlds = build_worlds(
            self.problem, assumptions, num_samples=self.robust.num_samples, seed=self.robust.seed
        )
        twins = self.prover.find_twins(self.worlds)
        distinct = sorted(set(twins))
        self.rows = tuple(distinct.index(twin) for twin in twins)
        self.ledger = Ledger(
            self.problem, [self.worlds[position] for position in distinct], self.workers, self.journal, self._report
        )

    def run(self) -> RobustResult:
        """All steps in order; the last two again while an evaluation beats what a world's proof had found."""
        nominal = self.ledger.prove_all()[0]
        nominal_best = tuple(entry.index for entry in nominal.best[: self.options.num_best])
        while True:
            self._stage = RobustStage.DESIGNS
            good = self._good_points(nominal_best)
            self.ledger.evaluate_all(good)
            if good != self._good_points(nominal_best):
                continue
            self._stage = RobustStage.MINIMAX
            self._found = find_minimax(self.ledger, good, tolerance=self.options.tolerance)
            if self.ledger.best_index(0) >= 0:
                within = max(self.options.tolerance, PROOF_SLACK)
                self._nominal_found = find_minimax(
                    self.ledger, good, tolerance=self.options.tolerance, nominal_within=within
                )
            if good == self._good_points(nominal_best):
                break
        robust = {found.index for found in (self._found, self._nominal_found) if found.index >= 0}
        self.ledger.evaluate_all(sorted(robust))
        self.ledger.evaluate_references(REFERENCES)
        return self._conclude(nominal_best)

    def _good_points(self, nominal_best: Sequence[int]) -> tuple[int, ...]:
        """Every world's best point, and the nominal best ones; each once."""
        bests = [self.ledger.best_index(row) for row in range(len(self.ledger.worlds))]
        return tuple(dict.fromkeys([*(index for index in bests if index >= 0), *nominal_best]))

    def _conclude(self, nominal_best: Sequence[int]) -> RobustResult:
        """Everything that follows from what is known."""
        optima = tuple(self._optimum(row) for row in self.rows)
        designs = self._designs(optima, nominal_best)
        assumptions = find_assumptions(self.problem)
        minimax, nominal_minimax = (self._minimax(found, designs) for found in (self._found, self._nominal_found))
        self._report()
        return RobustResult(
            problem_digest=self.problem.digest,
            goal=self.problem.goal.value,
            tolerance=self.options.tolerance,
            options=self.robust,
            assumptions=assumptions,
            worlds=self.worlds,
            optima=optima,
            designs=designs,
            minimax=minimax,
            nominal_minimax=nominal_minimax,
            conclusions=self._conclusions(optima, designs),
            effects=measure_effects(assumptions, self.worlds, optima),
            num_distinct_worlds=len(self.ledger.worlds),
            wall_s=time.perf_counter() - self._started,
        )

    def _optimum(self, row: int) -> WorldOptimum:
        """The optimum of a distinct world."""
        index = self.ledger.best_index(row)
        if index < 0:
            return WorldOptimum(False, NOT_IN_SPACE, None, 0.0, 0.0, ())
        worth = self.ledger.known[row][index]
        upper = max(float(self.ledger.value_upper[row]), worth.value)
        return WorldOptimum(True, index, self.problem.space.point(index), worth.value, upper, worth.models)

    def _designs(self, optima: Sequence[WorldOptimum], nominal_best: Sequence[int]) -> tuple[RobustDesign, ...]:
        """The good points and the references, the min-max-regret design first, then by largest regret."""
        roles: dict[int, list[str]] = {}
        for role, found in (("min-max regret", self._found), ("nominal min-max regret", self._nominal_found)):
            if found.index >= 0:
                roles.setdefault(found.index, []).append(role)
        for rank, index in enumerate(nominal_best, start=1):
            roles.setdefault(index, []).append(f"nominal rank {rank}")
        for world, optimum in zip(self.worlds[1:], optima[1:], strict=True):
            if optimum.is_feasible:
                roles.setdefault(optimum.index, []).append(f"best in {world.name}")
        if optima[0].is_feasible:
            roles.setdefault(optima[0].index, [])
        designs = []
        for number, (index, why) in enumerate(roles.items(), start=1):
            values = [self.ledger.worth(row, index).value for row in self.rows]
            designs.append(self._design(f"design {number}", tuple(why), index, values, optima))
        for name in REFERENCES:
            values = [self.ledger.reference(row, name).value for row in self.rows]
            designs.append(self._design(name, ("reference",), NOT_IN_SPACE, values, optima))
        return tuple(designs)

    def _design(
        self,
        name: str,
        roles: tuple[str, ...],
        index: int,
        values: Sequence[float],
        optima: Sequence[WorldOptimum],
    ) -> RobustDesign:
        """A design with its regrets."""
        pairs = list(zip(values, optima, strict=True))
        regrets = tuple(1.0 - value / optimum.value if optimum.is_feasible else 0.0 for value, optimum in pairs)
        worst = max(regrets)
        return RobustDesign(
            name=name,
            roles=roles,
            index=index,
            point=self.problem.space.point(index) if index >= 0 else None,
            values=tuple(values),
            regrets=regrets,
            regrets_upper=tuple(1.0 - v / optimum.value_upper if optimum.is_feasible else 0.0 for v, optimum in pairs),
            worst_regret=worst,
            worst_world=regrets.index(worst),
        )

    def _minimax(self, found: MinimaxSearch, designs: Sequence[RobustDesign]) -> Minimax:
        """A min-max-regret design with its proof."""
        size = self.problem.space.size
        if found.index < 0:
            return Minimax(NOT_IN_SPACE, None, 0.0, 0.0, 0, 0.0, True, size, 0, 0)
        design = next(design for design in designs if design.index == found.index)
        return Minimax(
            index=found.index,
            point=design.point,
            regret=design.worst_regret,
            regret_upper=max(design.regrets_upper),
            worst_world=design.worst_world,
            regret_lower=found.regret_lower,
            is_proved=found.regret - found.regret_lower <= self.options.tolerance + BOUND_SLACK,
            num_points=size,
            num_points_evaluated=len(set().union(*self.ledger.known)),
            num_evaluations=sum(map(len, self.ledger.known)),
        )

    def _conclusions(self, optima: Sequence[WorldOptimum], designs: Sequence[RobustDesign]) -> tuple[Conclusion, ...]:
        """None if the nominal world has no feasible point to conclude from."""
        if not optima[0].is_feasible:
            return ()
        by_index = {design.index: design for design in designs if design.index >= 0}
        findings = Findings(
            problem=self.problem,
            optima=optima,
            nominal_best=by_index[optima[0].index],
            minimax=by_index[self._found.index],
            references=[design for design in designs if design.index < 0],
            upper=[self.ledger.upper[row] for row in self.rows],
        )
        return draw_conclusions(findings)

    def _report(self) -> None:
        """Tell how far it is."""
        self.on_progress(
            RobustProgress(
                stage=self._stage,
                num_worlds=self.ledger.num_proved,
                num_all_worlds=len(self.ledger.worlds),
                num_evaluations=self.ledger.num_evaluations,
                regret=self._found.regret,
                regret_lower=self._found.regret_lower,
                wall_s=time.perf_counter() - self._started,
            )
        )
