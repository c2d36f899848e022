"""``po.search`` and ``po.certify``: the best design of a space, found or proved."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from phaze_opt.api.kept_words import KeptWords
from phaze_opt.api.keywords import said_of, with_keywords
from phaze_opt.api.own_plugins import plugin_name
from phaze_opt.api.pricing import FIGURES, cost_facts, plan_words
from phaze_opt.api.shown import Fact, Result
from phaze_opt.certify.check.report import CheckReport
from phaze_opt.certify.check.worlds import FrontReport
from phaze_opt.certify.events import ProofEvent
from phaze_opt.certify.result import CertifyResult
from phaze_opt.errors import InputError
from phaze_opt.hardware.chip_template import DesignPoint
from phaze_opt.jobs.certify import NEEDED, ProofRequest, check_given, checked, pose_proof
from phaze_opt.jobs.proof import ProofRun, Proofs
from phaze_opt.jobs.scenario import load_models, load_space
from phaze_opt.jobs.search import SearchRequest, pose_search
from phaze_opt.jobs.search_answer import SearchAnswer
from phaze_opt.objective.bill import Bill
from phaze_opt.objective.evaluation import Evaluation
from phaze_opt.objective.goals import Aim, Goal
from phaze_opt.record.result_fields import values_of
from phaze_opt.report.certificate_page import gap_picture
from phaze_opt.report.figures import history_picture, pareto_picture
from phaze_opt.report.proof import answer_to_json as proof_to_json
from phaze_opt.report.proof import record_proof
from phaze_opt.report.search_answer import answer_to_json, record_and_deliver, write_pages
from phaze_opt.search.events import SearchEvent
from phaze_opt.search.result import SearchResult
from phaze_opt.track.protocol import TrackingSession, config_of, open_tracker

if TYPE_CHECKING:
    from phaze_opt.report.picture import Picture

UNTRACKED: dict[str, Any] = {"tracking": {"default": False}}
"""From Python a run is recorded where that is asked for; the result is at hand."""


@dataclass(frozen=True, slots=True, repr=False)
class SearchedDesign(Result):
    """What a search found.

    Attributes:
        answer: the search with what is said of it.
        session: what recorded it.
        notes: sentences on what the figures rest on.
    """

    answer: SearchAnswer
    session: TrackingSession[SearchEvent]
    notes: tuple[str, ...] = ()

    @property
    def result(self) -> SearchResult:
        """Trials and counts, as `run_search` returns them."""
        return self.answer.result

    @property
    def best(self) -> Evaluation | None:
        """The best design; None where nothing is feasible."""
        return self.result.best

    @property
    def arch(self) -> str:
        """The best design as ``po.evaluate(arch=...)`` takes it; empty where there is none."""
        return "" if self.best is None else self.result.trials[self.result.best_number].point.inline()

    @property
    def throughput_samples_per_s(self) -> float | None:
        """Of the best design."""
        return None if self.best is None else float(self.best.throughput_samples_per_s)

    @property
    def bill(self) -> Bill | None:
        """What a cluster of the best design costs; None by the 22 nm tables."""
        return next(iter(self.answer.bills.values()), None)

    @property
    def regret(self) -> float | None:
        """Share of the best value known that is missed; None where no certificate or study here knows one."""
        return self.answer.regret

    @property
    def facts(self) -> Mapping[str, Fact]:
        """The best design and the effort."""
        result = self.result
        effort: dict[str, Fact] = {
            "evaluations": result.evaluations,
            "wall_s": float(result.wall_s),
            "search_id": result.search_id,
        }
        if result.is_interrupted:
            effort["is_interrupted"] = True
        if result.best is None:
            return {"is_feasible": False, **effort}
        return {**_design_facts(result.best, self.arch, self.bill), "regret": self.regret, **effort}

    def rows(self) -> Iterable[Mapping[str, Fact]]:
        """A row a trial: its values, its status, figures and the point."""
        for trial in self.result.trials:
            values: dict[str, Fact] = {f"value_{place}": float(value) for place, value in enumerate(trial.values)}
            yield {
                "number": trial.number,
                "value": float(trial.values[0]) if trial.values else None,
                **(values if len(trial.values) > 1 else {}),
                "status": trial.status.value,
                **{name: trial.evaluation.known(name) if trial.values else None for name in FIGURES},
                **_sizes(trial.point),
                "wall_s": float(trial.wall_s),
                "is_repeat": trial.is_repeat,
            }

    def to_dict(self) -> dict[str, Any]:
        """The document of ``search --json``."""
        return answer_to_json(self.answer, self.session)

    def picture(self) -> Picture:
        """Every trial and the best so far; of several objectives the front."""
        goal = self.answer.config.goal
        if goal is Goal.PARETO:
            return pareto_picture(self.result.trials, front=self.result.pareto_front)
        return history_picture(self.result.trials, goal=goal.value)


@dataclass(frozen=True, slots=True, repr=False)
class ProvedDesign(Result):
    """A certificate, and the best designs of the space.

    Attributes:
        proofs: the certificate, and what was proved beside it.
        run: what proved it.
        session: what recorded it.
        notes: sentences that were said on the way.
    """

    proofs: Proofs
    run: ProofRun
    session: TrackingSession[ProofEvent]
    notes: tuple[str, ...] = ()

    @property
    def result(self) -> CertifyResult:
        """The certificate, ranked designs and history, as `certify.prove.certify` returns them."""
        return self.proofs.result

    @property
    def best(self) -> Evaluation | None:
        """The best design; None where nothing is feasible."""
        return self.result.best[0].evaluation if self.result.best else None

    @property
    def arch(self) -> str:
        """The best design as ``po.evaluate(arch=...)`` takes it; empty where there is none."""
        return self.result.best[0].point.inline() if self.result.best else ""

    @property
    def throughput_samples_per_s(self) -> float | None:
        """Of the best design."""
        return None if self.best is None else float(self.best.throughput_samples_per_s)

    @property
    def bill(self) -> Bill | None:
        """What a cluster of the best design costs; None by the 22 nm tables."""
        beside, _ = self.run.find_beside(self.best)
        return beside[0].bill if beside else None

    @property
    def gap(self) -> float:
        """How far above the best design the bound on all others stays."""
        return float(self.result.certificate.claim.gap)

    @property
    def is_proved(self) -> bool:
        """Whether the gap is within the tolerance."""
        return self.result.certificate.claim.is_proved

    @property
    def checked(self) -> bool:
        """Whether independent code confirmed the certificate before it was returned."""
        return self.proofs.is_checked

    @property
    def directory(self) -> Path:
        """Where the certificate lies."""
        return self.result.directory

    @property
    def facts(self) -> Mapping[str, Fact]:
        """The claim and the best design."""
        claim = self.result.certificate.claim
        counts: dict[str, Fact] = {"num_points": claim.num_points, "num_solved": claim.num_solved}
        counts |= {"wall_s": float(self.result.wall_s), "directory": str(self.directory)}
        if self.best is None:
            return {"is_feasible": False, **counts}
        return {
            "is_proved": claim.is_proved,
            "checked": self.checked,
            "gap": self.gap,
            **_design_facts(self.best, self.arch, self.bill),
            **counts,
        }

    def rows(self) -> Iterable[Mapping[str, Fact]]:
        """A row for each of the best designs, best first; of a front for each design on it, fastest first."""
        for design in self.result.front:
            known = {name: value for name, value in values_of(design).items() if value is not None}
            yield {**known, **_sizes(design.point)}
        if self.result.certificate.axes:
            return
        for each in self.result.best:
            yield {
                "rank": each.rank,
                "value": float(each.value),
                "value_upper": float(each.value_upper),
                **{name: each.evaluation.known(name) for name in FIGURES},
                **_sizes(each.point),
            }

    def to_dict(self) -> dict[str, Any]:
        """The document of ``certify --json``."""
        return proof_to_json(self.run.answer(self.proofs), self.session)

    def picture(self) -> Picture:
        """Incumbent and bound over time."""
        return gap_picture(self.result.history, goal=self.result.certificate.goal, end_s=self.result.wall_s)

    def check(self) -> CheckedProof:
        """Check the certificate by code that shares nothing with what proved it.

        Raises:
            CertificateError: it is refused.
        """
        return CheckedProof(checked(self.directory, KeptWords(None)))


@dataclass(frozen=True, slots=True, repr=False)
class CheckedProof(Result):
    """A certificate that independent code found to hold.

    Attributes:
        report: what was checked.
    """

    report: CheckReport | FrontReport

    @property
    def facts(self) -> Mapping[str, Fact]:
        """The claim, now confirmed."""
        if isinstance(self.report, FrontReport):
            front = self.report.front
            return {
                "is_valid": True,
                "models": ", ".join(self.report.models),
                "objective": str(Aim(Goal.PARETO, front.axes)),
                "num_worlds": len(front.worlds),
                "num_designs": len(front.designs),
                "num_points": front.num_points,
                "wall_s": float(self.report.wall_s),
                "directory": str(self.report.directory),
            }
        claim = self.report.claim
        return {
            "is_valid": True,
            "models": ", ".join(self.report.models),
            "objective": str(Aim(self.report.goal, self.report.axes)),
            "value": float(claim.value),
            "value_upper": float(claim.value_upper),
            "num_points": claim.num_points,
            "wall_s": float(self.report.wall_s),
            "directory": str(self.report.directory),
        }

    def rows(self) -> Iterable[Mapping[str, Fact]]:
        """One row: the facts."""
        yield self.facts

    def to_dict(self) -> dict[str, Any]:
        """The facts."""
        return dict(self.facts)

    def picture(self) -> Picture:
        """Refuse: what was checked has no figure; the certificate that was proved does.

        Raises:
            InputError: always.
        """
        message = "a check has no figure; plot what po.certify(model=...) returned"
        raise InputError(message)


@partial(with_keywords, reads={"strategy": plugin_name, "pruner": plugin_name})
def search(*, asked: Annotated[SearchRequest, UNTRACKED], watch: KeptWords) -> SearchedDesign:
    """Search for the accelerator, placement and schedule that train a model (or several) fastest.

    ``strategy`` and ``pruner`` may be objects too; options of theirs may be a mapping. Ctrl-C ends the search with what
    it has found.
    """
    with said_of("model" if asked.models.model else "models"):
        loaded = load_models(asked.models, is_heterogeneous=asked.options.heterogeneous)
    posed = pose_search(asked, loaded)
    points = load_space(asked.space, posed.scenario)
    session = open_tracker(asked.records.chosen_tracker, config_of(asked.records))
    answer = posed.answer(points, (session,), watch)
    record_and_deliver(session, write_pages(answer, None, watch, is_tracked=bool(session.tracking_uri)), watch)
    return SearchedDesign(answer, session, (*watch.sentences, *(note.sentence for note in answer.notes)))


@with_keywords
def certify(*, asked: Annotated[ProofRequest, UNTRACKED], watch: KeptWords) -> ProvedDesign | CheckedProof:
    """Prove which design of a whole space is best, within a tolerance; ``check=DIRECTORY`` checks such a proof.

    Ctrl-C keeps what is done; ``resume=True`` goes on from there.
    """
    given, proof = asked.given, asked.proof
    if proof.check is not None:
        extra = sorted(given - {"check"})
        if extra:
            message = f"stands alone: the certificate holds its problem; leave out {', '.join(extra)}"
            raise InputError(message, key="check")
        return CheckedProof(checked(proof.check, watch))
    check_given(given, is_robust=proof.robust)
    missing = [name for name in NEEDED if name not in given]
    if missing:
        message = f"must be given: certify({', '.join(f'{name}=...' for name in missing)})"
        raise InputError(message, key=", ".join(missing))
    with said_of("model" if asked.models.model else "models"):
        loaded = load_models(asked.models)
    run = pose_proof(asked, loaded, watch)
    session = open_tracker(asked.records.chosen_tracker, config_of(asked.records), "proof")
    run.observe = session.observe
    try:
        proofs = run.find()
    except BaseException:
        run.interrupt()
        session.close()
        raise
    record_proof(run, proofs, {}, session)
    run.find_beside(proofs.result.best[0].evaluation if proofs.result.best else None)
    return ProvedDesign(proofs, run, session, watch.sentences)


def _design_facts(best: Evaluation, arch: str, bill: Bill | None) -> dict[str, Fact]:
    """Figures of a best design, its sizes, its plan and its cost."""
    plan = None if best.placement is None else best.placement.plan
    figures: dict[str, Fact] = {name: best.known(name) for name in FIGURES[:1] + FIGURES[3:]}
    return {"arch": arch, **figures, **({} if plan is None else {"plan": plan_words(plan)}), **cost_facts(bill)}


def _sizes(point: DesignPoint) -> dict[str, Fact]:
    """A design's parameters, by field."""
    return dict(asdict(point))
