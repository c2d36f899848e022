"""What a study adds to its searches: reference machines, true optima and the table of the generality question."""

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from phaze_opt.certify.check.check import check_certificate
from phaze_opt.certify.check.files import keep_check
from phaze_opt.certify.problem import CertifyOptions, CertifyProblem
from phaze_opt.certify.prove import certify, has_too_many_rows
from phaze_opt.certify.result import ProofMove
from phaze_opt.hardware.chip_template import DesignPoint
from phaze_opt.objective.evaluation import Evaluation, evaluation_to_json
from phaze_opt.objective.goals import goal_directions, is_provable
from phaze_opt.record.journal import write_value
from phaze_opt.record.plain_data import write_plain
from phaze_opt.record.progress import Progress
from phaze_opt.search.evaluators import SerialEvaluator
from phaze_opt.search.probe import PointBound
from phaze_opt.study.config import Condition, StudyConfig, TruthForm
from phaze_opt.study.directory import StudyDirectory
from phaze_opt.study.engine import CompiledConditions, StudyEngine
from phaze_opt.study.events import StudyStage
from phaze_opt.study.generality import build_chip_table, candidate_chips
from phaze_opt.study.load import find_fault, load_study
from phaze_opt.study.result import ChipTable
from phaze_opt.study.stores.store import EvaluationStore, StoreEvaluator
from phaze_opt.study.truth import FindFault, find_truth, keep_truth, known_truth

_LOGGER = logging.getLogger(__name__)


@dataclass(slots=True)
class StudyCompletion:
    """Adds what is missing; everything found from an earlier run stays.

    Attributes:
        config, conditions, directory, engine: of the study.
        on_item: told of a stage, what is at hand, how many items are done and of how many.
        jobs: processes of a proof.
    """

    config: StudyConfig
    conditions: tuple[Condition, ...]
    directory: StudyDirectory
    engine: StudyEngine
    on_item: Callable[[StudyStage, str, int, int], None]
    jobs: int = 1
    _compiled: CompiledConditions = field(init=False)

    def __post_init__(self) -> None:
        """Nothing is compiled yet."""
        self._compiled = CompiledConditions(self.engine)

    def add_all(self) -> None:
        """References, then true optima if they are asked for, then the generality question if it is asked."""
        self.add_references()
        if self.config.judgement.truth is not TruthForm.BEST_KNOWN:
            self.add_truths()
        if self.config.generality is not None:
            self.add_chip_tables()

    def add_references(self) -> None:
        """Evaluate the reference machines, once for conditions that differ in goal or budgets of the space only."""
        if self.engine.find_references is None:
            return
        found: dict[tuple[str, tuple[int, ...]], Mapping[str, Evaluation]] = {}
        for number, condition in enumerate(self.conditions):
            path = self.directory.references(condition.key)
            if path.exists():
                continue
            self.on_item(StudyStage.REFERENCES, condition.key, number, len(self.conditions))
            key = (condition.evaluations_digest, condition.space.axes.micro_batch)
            if key not in found:
                found[key] = self.engine.find_references(condition)
            rows = {name: evaluation_to_json(evaluation) for name, evaluation in found[key].items()}
            write_value(path, rows)

    def add_truths(self) -> None:
        """Find the true optimum of every condition of one objective; of several the front, where it is to be proved.

        Optima are kept beside all studies of the working directory, as they depend on the problem alone; a study has a
        copy, so that its directory says all. A certificate of the problem makes an enumeration or a proof needless.
        """
        shared = self.directory.path.parent / "truths"
        for number, condition in enumerate(self.conditions):
            problem = condition.problem_digest
            against = partial(find_fault, self.directory, condition.evaluations_digest, condition.goal)
            known = known_truth(problem, cache_dir=self.directory.truths, find_fault=against)
            has_several = len(goal_directions(condition.goal)) > 1
            if known is not None or (has_several and self.config.judgement.truth is not TruthForm.CERTIFY):
                continue
            self.on_item(StudyStage.TRUTHS, condition.key, number, len(self.conditions))
            look = partial(known_truth, problem, certificates=self.directory.certificates, find_fault=against)
            if look(cache_dir=shared) is None:
                if self.config.judgement.truth is TruthForm.CERTIFY:
                    self._prove(number, condition)
                else:
                    self._enumerate(number, condition, shared, against)
            record = look(cache_dir=shared)
            if record is not None:
                keep_truth(record, cache_dir=self.directory.truths)

    def _prove(self, number: int, condition: Condition) -> None:
        """Prove the optimum, check the proof, and leave it where `phaze-opt certify` does; what does not close is said.

        Raises:
            CertificateError: the check refuses it: a bug.
        """
        if not is_provable(condition.goal):
            _LOGGER.warning(
                "%s is not proved: certificates are of no goal of energy; an enumeration as truth bounds and evaluates "
                "the space instead",
                condition.key,
            )
            return
        problem = CertifyProblem(condition.scenario, condition.space, condition.constants, condition.goal)
        if problem.axes and has_too_many_rows(problem) and not problem.is_covered:
            message = "%s has too many dies for a front to be proved: regret there is against the best that is known"
            _LOGGER.warning(message, condition.key)
            return
        options = CertifyOptions(jobs=self.jobs, directory=self.directory.certificates, is_resumed=True)
        result = certify(problem, options, on_progress=partial(self._note_proof, number, condition.key))
        claim = result.certificate.claim
        if not claim.is_proved:
            _LOGGER.warning(
                "%s is proved within %.2f %% and not %g %%: regret there is against the best that is known",
                condition.key,
                100.0 * claim.gap,
                100.0 * options.tolerance,
            )
            return
        # The truth that searches are judged by is one that other code confirms.
        keep_check(result.directory, check_certificate(result.directory).digest)

    def _note_proof(self, number: int, key: str, progress: ProofMove) -> None:
        """Pass the progress of a proof on."""
        done = f"{progress.num_bounded:,} of {progress.num_points:,} rows bounded, {progress.num_solved:,} solved"
        self.on_item(StudyStage.TRUTHS, f"{key}: {done}", number, len(self.conditions))

    def _enumerate(self, number: int, condition: Condition, shared: Path, find_fault: FindFault) -> None:
        """Bound every point, and evaluate what bounds leave open."""
        digest, has_bounds = condition.evaluations_digest, self.engine.build_bounder is not None
        find_truth(
            condition,
            cache_dir=shared,
            certificates=self.directory.certificates,
            on_progress=partial(self._note_truth, number, condition.key),
            objective=self._compiled.objective(digest, condition),
            bounder=self._compiled.bounder(digest, condition) if has_bounds else None,
            find_fault=find_fault,
        )

    def _note_truth(self, number: int, key: str, progress: Progress) -> None:
        """Pass the progress of an enumeration on."""
        done = f"{progress.num_done:,} of {progress.num_all:,} {progress.phase}, {progress.what}"
        self.on_item(StudyStage.TRUTHS, f"{key}: {done}", number, len(self.conditions))

    def add_chip_tables(self) -> None:
        """Evaluate the chips that searches found on every single model, setting by setting.

        Made anew at the end of every run: evaluations are known by then, and weights may have changed.
        """
        cells = load_study(self.directory.path).cells
        with closing(self.engine.open_store(self.directory.evaluations)) as store:
            for number, setting in enumerate(self.config.settings):
                conditions = [
                    one for one in self.conditions if one.setting == setting and len(one.workload.models) == 1
                ]
                chips = candidate_chips(cells, setting.name)
                if len(conditions) < 2 or len(goal_directions(setting.goal)) > 1 or not chips:
                    continue
                self.on_item(StudyStage.CHIPS, setting.name, number, len(self.config.settings))
                table = build_chip_table(
                    conditions,
                    chips,
                    evaluate=partial(_evaluate, store, self._compiled),
                    bound=partial(_bound, self._compiled),
                )
                write_plain(ChipTable, table, self.directory.chips(setting.name))


def _evaluate(
    store: EvaluationStore, compiled: CompiledConditions, condition: Condition, points: Sequence[DesignPoint]
) -> list[Evaluation]:
    """Evaluations of points, from the store where it has them."""
    digest = condition.evaluations_digest
    evaluator = StoreEvaluator(store, digest, SerialEvaluator(partial(compiled.objective, digest, condition)))
    return [pending.result()[0] for pending in evaluator.submit(points)]


def _bound(compiled: CompiledConditions, condition: Condition, points: Sequence[DesignPoint]) -> Sequence[PointBound]:
    """Bounds of points; none at all where the engine has no bounds."""
    if compiled.engine.build_bounder is None:
        return [PointBound(math.inf, math.inf, tdp_w=0.0, area_mm2=0.0)] * len(points)
    return compiled.bounder(condition.evaluations_digest, condition).bound(points)
