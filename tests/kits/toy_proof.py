"""A stand-in for the prover: evaluates every point, and writes what of a certificate its readers need.

Its bounds are the evaluations themselves, raised by ``looseness``; it proves nothing that a checker would accept.
"""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np

from phaze_opt import __version__
from phaze_opt.certify.certificate import (
    CERTIFICATE_FILE,
    FORMAT,
    POINTS_FILE,
    Certificate,
    CertificateProvenance,
    Claim,
    content_digest,
)
from phaze_opt.certify.problem import CertifyOptions, CertifyProblem
from phaze_opt.certify.result import CertifyResult, CertifyStage, Flatness, ProofMove, RankedDesign
from phaze_opt.objective.evaluate import Objective
from phaze_opt.objective.evaluation import Evaluation
from phaze_opt.objective.goals import goal_values
from phaze_opt.record.plain_data import to_plain

SAME = 1e-12
OnProgress = Callable[[ProofMove], None]


@final
@dataclass(slots=True)
class ToyProver:
    """Called as `certify.prove.certify` is.

    Attributes:
        looseness: relative gap that it leaves.
        stop_at: points after which Ctrl-C comes; -1 for never.
        error: raised before anything is written, if given.
    """

    looseness: float = 0.0
    stop_at: int = -1
    error: Exception | None = None

    def __call__(
        self, problem: CertifyProblem, options: CertifyOptions, *, on_progress: OnProgress | None = None
    ) -> CertifyResult:
        """Evaluate everything, report after every point, write the files."""
        if self.error is not None:
            raise self.error
        report = on_progress or (lambda _: None)
        objective = Objective(problem.scenario, constants=problem.constants)
        values: list[float] = []
        evaluations: list[Evaluation] = []
        history: list[ProofMove] = []
        for index in range(problem.space.size):
            if index == self.stop_at:
                raise KeyboardInterrupt
            evaluations.append(objective.evaluate(problem.space.point(index)))
            values.append(next(iter(goal_values(problem.goal, evaluations[-1])), 0.0))
            best = max(values)
            move = ProofMove(
                stage=CertifyStage.CLOSING,
                num_bounded=problem.space.size,
                num_points=problem.space.size,
                num_solved=index + 1,
                num_open=problem.space.size - index - 1,
                value=best,
                value_upper=2.0 * best * (1.0 + self.looseness) - best * index / max(1, problem.space.size - 1),
                wall_s=0.01 * index,
            )
            report(move)
            if best > 0.0 and (not history or history[-1].value != best):
                history.append(move)
        return self._finish(problem, options, evaluations, tuple(history))

    def _finish(
        self,
        problem: CertifyProblem,
        options: CertifyOptions,
        evaluations: list[Evaluation],
        history: tuple[ProofMove, ...],
    ) -> CertifyResult:
        values = np.array([next(iter(goal_values(problem.goal, one)), 0.0) for one in evaluations])
        claim = self._claim(problem, options, evaluations, values)
        directory = options.directory / f"toy-{problem.digest[:16]}"
        directory.mkdir(parents=True, exist_ok=True)
        self._write_points(directory / POINTS_FILE, evaluations)
        content = (directory / POINTS_FILE).read_bytes()
        certificate = Certificate(
            format=FORMAT,
            claim=claim,
            goal=problem.goal,
            scenario=problem.scenario,
            space=problem.space,
            constants_digest=problem.constants.digest,
            problem_digest=problem.digest,
            slots=(),
            files={POINTS_FILE: hashlib.sha256(content).hexdigest()},
            provenance=CertificateProvenance(__version__, "3", "toy", 0, len(evaluations), 1.0),
        )
        certificate = replace(certificate, digest=content_digest(to_plain(Certificate, certificate)))
        text = json.dumps(to_plain(Certificate, certificate))
        (directory / CERTIFICATE_FILE).write_text(text, encoding="utf-8")
        best = self._best(problem, options, evaluations, values) if claim.is_feasible else ()
        flatness = tuple(_flatness(values, within) for within in (0.001, 0.01, 0.05)) if claim.is_feasible else ()
        return CertifyResult(certificate, directory, best, flatness, history, wall_s=1.0)

    def _claim(self, problem: CertifyProblem, options: CertifyOptions, evaluations: Any, values: Any) -> Claim:
        top = int(np.argmax(values))
        is_feasible = bool(values[top] > 0.0)
        return Claim(
            is_feasible=is_feasible,
            incumbent=top if is_feasible else -1,
            point=problem.space.point(top) if is_feasible else None,
            value=float(values[top]),
            value_upper=float(values[top]) * (1.0 + self.looseness),
            throughput_samples_per_s=evaluations[top].throughput_samples_per_s,
            gap=self.looseness if is_feasible else 0.0,
            tolerance=options.tolerance,
            is_proved=self.looseness <= options.tolerance,
            num_points=len(values),
            num_solved=len(values),
        )

    def _best(
        self, problem: CertifyProblem, options: CertifyOptions, evaluations: list[Evaluation], values: Any
    ) -> tuple[RankedDesign, ...]:
        order = sorted(np.flatnonzero(values).tolist(), key=lambda index: (-values[index], evaluations[index].area_mm2))
        return tuple(
            RankedDesign(
                rank=1 + int(np.count_nonzero(values > values[index] * (1.0 + SAME))),
                index=index,
                point=problem.space.point(index),
                value=float(values[index]),
                value_upper=float(values[index]) * (1.0 + self.looseness),
                evaluation=evaluations[index],
            )
            for index in order[: options.num_best]
        )

    def _write_points(self, path: Any, evaluations: list[Evaluation]) -> None:
        from pyarrow import parquet, table

        attained = [one.throughput_samples_per_s for one in evaluations]
        columns = {
            "throughput_samples_per_s": attained,
            "throughput_upper_samples_per_s": [value * (1.0 + self.looseness) for value in attained],
            "tdp_w": [one.tdp_w for one in evaluations],
            "area_mm2": [one.area_mm2 for one in evaluations],
            "reason": ["" if one.is_feasible else "no placement fits the memory" for one in evaluations],
        }
        parquet.write_table(table(columns), path)


def _flatness(values: Any, within: float) -> Flatness:
    count = int(np.count_nonzero(values >= values.max() * (1.0 - within)))
    return Flatness(within, count, count)
