"""The answer of ``certify`` as sentences, one line of JSON, pages, and a record of the tracker."""

from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from phaze_opt.certify.certificate import CERTIFICATE_FILE, FRONT_FILE, FrontOverWorlds
from phaze_opt.certify.events import ProofEvent, ProofFinished
from phaze_opt.certify.result import CertifyResult, ProofMove, RankedDesign
from phaze_opt.certify.robust.result import OverWorlds, RobustResult
from phaze_opt.certify.standing import Ties, count_ties, members_of
from phaze_opt.jobs.machines_beside import bills_in, dies_beside
from phaze_opt.jobs.proof import ProofAnswer, ProofRun, Proofs
from phaze_opt.jobs.watch import spared
from phaze_opt.objective.caveats import notes_to_json
from phaze_opt.objective.evaluation import THROUGHPUT, architecture_to_json, evaluation_to_json
from phaze_opt.objective.goals import Aim
from phaze_opt.objective.priced_as import priced_to_json
from phaze_opt.report import certificate as words
from phaze_opt.report.answer import ShortAnswer, design_sentences, near_sentence, range_to_json, told_notes
from phaze_opt.report.bill import bills_to_json
from phaze_opt.report.certificate import RunnerUp, explain_second
from phaze_opt.report.certificate_page import build_document
from phaze_opt.report.design import members_table
from phaze_opt.report.die import beside_to_json
from phaze_opt.report.document import ReportDocument
from phaze_opt.report.equal_terms import TERMS, equal_sentence, equal_table, equal_to_json
from phaze_opt.report.front import (
    choices_to_json,
    front_sentence,
    front_sentences,
    front_table,
    front_to_json,
    machines_beside,
    machines_to_json,
)
from phaze_opt.report.least_within import NearBest, least_to_json, near_table
from phaze_opt.report.page import write_report, write_text
from phaze_opt.report.robust import over_worlds_sentences, over_worlds_table, over_worlds_to_json
from phaze_opt.report.table import TableContent
from phaze_opt.track.protocol import Delivery, TrackingSession

LOOKED_AT = "the designs looked at"
NOT_CHECKED = "This proof was not checked."
BEST_FILE = "best_designs.csv"


def runner_up_of(answer: ProofAnswer) -> RunnerUp | None:
    """Why the best design of lower value loses; None if there is none."""
    result = answer.result
    return explain_second(result.best, answer.second, goal=result.certificate.goal)


def page_of(answer: ProofAnswer) -> ReportDocument:
    """The page of a proof: what is printed of it, its pictures, and all tables."""
    return build_document(
        answer.result,
        ties=answer.ties,
        runner_up=runner_up_of(answer),
        robust=answer.proofs.robust,
        headline=answer.headline,
        notes=answer.notes,
        beside=answer.beside,
        equal=answer.proofs.equal,
        num_held=len(answer.held),
        first=first_of(answer),
        over_worlds=answer.proofs.over_worlds,
    )


def write_pages(path: Path, answer: ProofAnswer) -> dict[str, Path]:
    """Write the page and its figures, and a page for each certificate on a machine's terms beside it.

    Returns:
        Paths of the page and its figures by artifact name, the page first.
    """
    pages, equal = write_report(path, page_of(answer)), answer.proofs.equal
    if equal is None:
        return pages
    for each in equal.found:
        best = each.result.best[0].evaluation if each.result.best else None
        beside = dies_beside(best, {equal.name: equal.evaluation}, answer.constants)
        terms = f"{TERMS[each.terms].replace('its', 'the', 1)} of {equal.name}"
        ties = Ties(0, 0) if each.result.certificate.axes else count_ties(each.result)
        document = build_document(each.result, ties=ties, runner_up=None, beside=beside, terms=terms)
        write_report(path.with_name(f"{path.stem}-{each.terms.name.lower()}{path.suffix}"), document)
    return pages


def record_proof(
    run: ProofRun, found: Proofs, pages: Mapping[str, Path], session: TrackingSession[ProofEvent]
) -> Delivery:
    """Tell of the end of a proof, hand its certificate, the table of its best designs and pages by name to the tracker.

    Returns:
        What has reached the tracker's store.
    """
    result, robust, over_worlds, axes = found.result, found.robust, found.over_worlds, run.problem.axes
    run.begin()
    provenance = result.certificate.provenance
    totals = {"ilp_solves": float(provenance.num_ilp_solves), "placements": float(provenance.num_placements)}
    totals |= {} if robust is None else robust_metrics(robust)
    totals |= {} if over_worlds is None else over_worlds_metrics(over_worlds.front)
    session.observe(
        ProofFinished(
            claim=result.certificate.claim,
            best=result.best[0].evaluation if result.best else None,
            wall_s=result.wall_s,
            metrics=totals,
            tags={
                "statement": front_sentence(result) if axes else words.claim_sentence(result),
                "file": str(result.directory),
                "checked": str(found.is_checked).lower(),
            },
        )
    )
    if session.tracking_uri:
        with spared("the table of the best designs", run.watch), TemporaryDirectory() as folder:
            table = write_text(Path(folder) / BEST_FILE, words.best_designs_csv(result))
            files = {CERTIFICATE_FILE: result.directory / CERTIFICATE_FILE, BEST_FILE: table}
            files |= {
                "certificate.html" if not index else name: path for index, (name, path) in enumerate(pages.items())
            }
            if robust is not None or over_worlds is not None:
                files["robust.json" if over_worlds is None else FRONT_FILE] = run.robust_file
            session.log_artifacts(files)
    with run.watch.working("recording"):
        return session.close()


def answer_to_json(
    answer: ProofAnswer, session: TrackingSession[ProofEvent], *, page: Path | None = None
) -> dict[str, Any]:
    """The line that ``--json`` prints; ``page`` is that of ``--report``."""
    data = result_to_json(answer.result, session, ties=answer.ties, runner_up=runner_up_of(answer))
    front, certificate = members_of(answer.result), answer.result.certificate
    return {
        **data,
        "checked": answer.proofs.is_checked,
        "priced_as": priced_to_json(answer.priced),
        "notes": notes_to_json(answer.notes),
        "range": range_to_json(answer.headline),
        "robust": worlds_to_json(answer.proofs.robust, answer.proofs.over_worlds, str(answer.robust_file)),
        **beside_to_json(answer.beside),
        **bills_to_json(bills_in(answer.beside)),
        "least_within": least_to_json(answer.least),
        "choices": choices_to_json(front, certificate.axes, certificate.scenario, ranges=answer.ranges),
        "baselines": machines_to_json(front, certificate.axes, machines_beside(answer.held)),
        "equal_to": equal_to_json(answer.proofs.equal, answer.result, answer.constants),
        "report": None if page is None else str(page),
    }


def worlds_to_json(robust: RobustResult | None, over_worlds: OverWorlds | None, file: str) -> dict[str, Any] | None:
    """What is found out over worlds, of one goal or of a front; None where that was not asked for."""
    if over_worlds is not None:
        return {**over_worlds_to_json(over_worlds), "file": file}
    return None if robust is None else robust_to_json(robust, file)


def first_of(answer: ProofAnswer) -> ShortAnswer:
    """What is said of a proof first, and that it was not checked where it was not."""
    first = _first_of(answer)
    return first if answer.proofs.is_checked else replace(first, sentences=(*first.sentences, NOT_CHECKED))


def _first_of(answer: ProofAnswer) -> ShortAnswer:
    result, certificate = answer.result, answer.result.certificate
    notes = told_notes(answer.notes)
    if certificate.axes:
        front, axes = members_of(result), certificate.axes
        sentences = front_sentences(result, machines_beside(answer.held))
        if answer.proofs.equal is not None:
            sentences = (*sentences, equal_sentence(answer.proofs.equal, result))
        tables = (
            *_equal_tables(answer),
            *((front_table(front, axes, has_plans=certificate.scenario.plans is not None),) if front else ()),
        )
        if answer.proofs.over_worlds is not None:
            over = answer.proofs.over_worlds
            sentences = (*sentences, *over_worlds_sentences(over))
            tables = (*tables, over_worlds_table(over.front)) if over.front.designs else tables
        return ShortAnswer(sentences, tables, notes)
    if not result.best:
        return ShortAnswer((words.claim_sentence(result),), (), notes)
    best, goal = result.best[0], certificate.goal
    sentences = design_sentences(
        best.evaluation,
        goal=goal,
        scenario=certificate.scenario,
        standing=words.proved_words(result),
        held=answer.held,
        bill=answer.beside[0].bill,
        headline=answer.headline,
    )
    if answer.proofs.equal is not None:
        sentences = (*sentences, equal_sentence(answer.proofs.equal, result))
    near = near_sentence(
        [best.value, *(design.value for design in result.best if design.rank > 1)], words.rows_words(result)
    )
    ties = words.ties_sentence(answer.ties).rstrip(".") if answer.ties.at_most > 1 else ""
    table = near_table(
        NearBest(("best",), best.point, best.value, answer.amounts),
        answer.least,
        goal=goal,
        looked_at=LOOKED_AT,
        note="; ".join(filter(None, (ties, near))),
        is_mean=bool(best.evaluation.members),
    )
    tables = (members_table(best.evaluation), table) if best.evaluation.members else (table,)
    return ShortAnswer(sentences, (*_equal_tables(answer), *tables), notes)


def _equal_tables(answer: ProofAnswer) -> tuple[TableContent, ...]:
    """Optima on the terms of a machine, where one was named."""
    return () if answer.proofs.equal is None else (equal_table(answer.proofs.equal, answer.result),)


def result_to_json(
    result: CertifyResult, session: TrackingSession[ProofEvent], *, ties: Ties, runner_up: RunnerUp | None
) -> dict[str, Any]:
    """The line that ``--json`` prints.

    ``value`` and ``upper_bound`` are of the goal. ``upper_bound_samples_per_s`` is the throughput that the incumbent
    would have at the upper bound: for throughput itself the bound on every point.
    """
    certificate, claim = result.certificate, result.certificate.claim
    best = result.best[0].evaluation if result.best else None
    upper_samples_per_s = claim.throughput_samples_per_s * (1.0 + claim.gap) if claim.is_feasible else None
    if certificate.axes:
        upper_samples_per_s = claim.value_upper if claim.is_feasible else None
    return {
        "architecture": None if best is None else architecture_to_json(best.accelerator),
        "micro_batch": None if best is None else best.micro_batch,
        THROUGHPUT: claim.throughput_samples_per_s if claim.is_feasible else None,
        "upper_bound_samples_per_s": upper_samples_per_s,
        "gap": claim.gap if claim.is_feasible else None,
        "points": claim.num_points,
        "num_solved": claim.num_solved,
        "ilp_solves": certificate.provenance.num_ilp_solves,
        "placements": certificate.provenance.num_placements,
        "wall_s": result.wall_s,
        "file": str(result.directory),
        "is_feasible": claim.is_feasible,
        "is_proved": claim.is_proved,
        "is_interrupted": False,
        "tolerance": claim.tolerance,
        "objective": str(Aim(certificate.goal, certificate.axes)),
        "value": claim.value if claim.is_feasible else None,
        "upper_bound": claim.value_upper if claim.is_feasible else None,
        "num_best": {"at_least": ties.at_least, "at_most": ties.at_most},
        "designs": [_design_to_json(design) for design in result.best],
        "flatness": [asdict(flat) for flat in result.flatness],
        "front": front_to_json(result),
        "runner_up": None if runner_up is None else _runner_up_to_json(runner_up),
        "best": None if best is None else evaluation_to_json(best),
        "problem_digest": certificate.problem_digest,
        "tracking_uri": session.tracking_uri,
        "run_id": session.run_id,
    }


def interrupted_to_json(progress: ProofMove | None, session: TrackingSession[ProofEvent]) -> dict[str, Any]:
    """What is known of a proof that was interrupted."""
    return {
        "architecture": None,
        "is_interrupted": True,
        "is_proved": False,
        "checked": False,
        "value": None if progress is None or progress.value <= 0.0 else progress.value,
        "upper_bound": None if progress is None else progress.value_upper,
        "gap": None if progress is None else progress.gap,
        "points": None if progress is None else progress.num_points,
        "num_solved": 0 if progress is None else progress.num_solved,
        "wall_s": 0.0 if progress is None else progress.wall_s,
        "file": None,
        "tracking_uri": session.tracking_uri,
        "run_id": session.run_id,
    }


def over_worlds_metrics(front: FrontOverWorlds) -> dict[str, float]:
    """What the tracker shows of a front over worlds."""
    return {
        "robust.front_designs": float(len(front.designs)),
        "robust.front_gap": front.gap,
        "robust.num_worlds": float(len(front.worlds)),
        "robust.largest_share": max((design.share for design in front.designs), default=0.0),
    }


def _design_to_json(design: RankedDesign) -> dict[str, Any]:
    placement = design.evaluation.placement
    return {
        "rank": design.rank,
        "index": design.index,
        "architecture": asdict(design.point),
        "value": design.value,
        "upper_bound": design.value_upper,
        THROUGHPUT: design.evaluation.throughput_samples_per_s,
        "area_mm2": design.evaluation.area_mm2,
        "tdp_w": design.evaluation.tdp_w,
        "tensor_parallel": None if placement is None else placement.tensor_parallel,
        "pipeline_stages": None if placement is None else len(placement.stages),
        "data_parallel": None if placement is None else placement.data_parallel,
    }


def _runner_up_to_json(runner_up: RunnerUp) -> dict[str, Any]:
    return {
        "rank": runner_up.design.rank,
        "architecture": asdict(runner_up.design.point),
        "is_certain": runner_up.is_certain,
        "falls_short": runner_up.falls_short,
        "model": runner_up.model,
        "longer_iteration_s": runner_up.more_s,
        "causes": {change.cause: change.more_s for change in runner_up.causes},
        "why": " ".join(runner_up.sentences),
    }


def robust_to_json(result: RobustResult, file: str) -> dict[str, Any]:
    """An analysis as JSON: conclusions, regrets and the optimum of every world."""
    return {
        "minimax": asdict(result.minimax),
        "nominal_minimax": asdict(result.nominal_minimax),
        "effects": [asdict(effect) for effect in result.effects],
        "conclusions": [
            {
                "statement": conclusion.statement,
                "survives": conclusion.survives,
                "share": conclusion.share,
                "worst_world": "" if conclusion.worst_world < 0 else result.worlds[conclusion.worst_world].name,
            }
            for conclusion in result.conclusions
        ],
        "designs": [
            {
                "name": design.name,
                "roles": list(design.roles),
                "architecture": None if design.point is None else asdict(design.point),
                "worst_regret": design.worst_regret,
                "num_infeasible": design.num_infeasible,
                "worst_world": result.worlds[design.worst_world].name,
                "regrets": list(design.regrets),
            }
            for design in result.designs
        ],
        "worlds": [
            {
                "name": world.name,
                "kind": world.kind.value,
                "ends": [end.value for end in world.ends],
                "architecture": None if optimum.point is None else asdict(optimum.point),
                "value": optimum.value,
                "upper_bound": optimum.value_upper,
                "gap": optimum.gap,
            }
            for world, optimum in zip(result.worlds, result.optima, strict=True)
        ],
        "alternatives": [each.name for each in result.assumptions.alternatives],
        "not_varied": {each.name: each.reason for each in result.assumptions.not_varied},
        "wall_s": result.wall_s,
        "file": file,
    }


def robust_metrics(result: RobustResult) -> dict[str, float]:
    """What the tracker shows of an analysis."""
    minimax = result.minimax
    return {
        "robust.minimax_regret": minimax.regret,
        "robust.minimax_regret_lower": minimax.regret_lower,
        "robust.num_worlds": float(len(result.worlds)),
        "robust.conclusions": float(len(result.conclusions)),
        "robust.conclusions_surviving": float(sum(conclusion.survives for conclusion in result.conclusions)),
    }
