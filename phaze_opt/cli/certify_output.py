"""What ``phaze-opt certify`` prints: one line of JSON, or sentences and tables for a person."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from phaze_opt.certify.certificate import Claim
from phaze_opt.certify.check.report import CheckReport
from phaze_opt.certify.equal_terms import EqualTerms
from phaze_opt.certify.result import CertifyProgress, CertifyResult, RankedDesign
from phaze_opt.certify.robust.result import RobustResult
from phaze_opt.cli.architectures import inline_architecture
from phaze_opt.cli.output import out, print_json, print_tables, say
from phaze_opt.objective.evaluation import architecture_to_json, evaluation_to_json
from phaze_opt.objective.goals import Aim
from phaze_opt.objective.headline_range import HeadlineRange
from phaze_opt.report import certificate as words
from phaze_opt.report.certificate import RunnerUp, Ties, check_sentence, unproved_sentence
from phaze_opt.report.die import DieBeside, area_table, plain_sentences
from phaze_opt.report.equal_terms import TERMS, equal_sentence, equal_table, left_out_sentences
from phaze_opt.report.front import front_sentence, front_table, front_ties_sentence, front_to_json
from phaze_opt.report.headline import range_sentence
from phaze_opt.report.robust import minimax_sentences, robust_summary
from phaze_opt.track.protocol import CertificateTrackingSession

CHECK_COUNTS = (
    "num_relaxed", "num_exact", "num_over_budget", "num_out_of_memory", "num_vectors", "num_trees", "num_searches",
    "num_schedules", "wall_s",
)  # fmt: skip


def result_to_json(
    result: CertifyResult, session: CertificateTrackingSession, *, ties: Ties, runner_up: RunnerUp | None
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
        "throughput_samples_per_s": claim.throughput_samples_per_s if claim.is_feasible else None,
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


def interrupted_to_json(progress: CertifyProgress | None, session: CertificateTrackingSession) -> dict[str, Any]:
    """What is known of a proof that was interrupted."""
    return {
        "architecture": None,
        "is_interrupted": True,
        "is_proved": False,
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


def print_result(
    result: CertifyResult, *, ties: Ties, runner_up: RunnerUp | None, headline: HeadlineRange | None
) -> None:
    """What is proved, the best designs, how flat the top is, and why the next one loses."""
    screen = out()
    if result.certificate.axes:
        _print_front(result)
        return
    screen.print(words.claim_sentence(result))
    if headline is not None:
        screen.print(range_sentence(headline))
    if result.best:
        print_tables(words.best_table(result))
        screen.print(words.ties_sentence(ties))
        for sentence in words.plan_sentences(result):
            screen.print(sentence)
        print_tables(words.flatness_table(result))
        if len(result.history) > 1:
            print_tables(words.history_table(result))
        screen.print("")
        if runner_up is not None:
            for sentence in runner_up.sentences:
                screen.print(sentence)
            if not runner_up.is_certain:
                screen.print("It is the best of those looked at; bounds leave room for others between.")
        again = inline_architecture(result.best[0].point, result.certificate.scenario)
        screen.print(f"The best design again: --arch {again}", soft_wrap=True)
    _print_end(result)


def _print_front(result: CertifyResult) -> None:
    """What is proved of a front, and its designs."""
    screen = out()
    screen.print(front_sentence(result))
    if result.front:
        screen.print(front_ties_sentence(result))
        print_tables(front_table(result))
        if len(result.history) > 1:
            print_tables(words.history_table(result))
        screen.print("")
    _print_end(result)


def _print_end(result: CertifyResult) -> None:
    """What is infeasible, what it took, and where the certificate lies."""
    screen = out()
    infeasible = words.infeasible_sentence(result)
    if infeasible:
        screen.print(infeasible)
    screen.print(words.effort_sentence(result))
    screen.print(f"The certificate: {result.directory}; check it with:", soft_wrap=True)
    screen.print(f"  phaze-opt certify --check '{result.directory}'", soft_wrap=True)


def print_dies(beside: Sequence[DieBeside], equal: EqualTerms | None, result: CertifyResult) -> None:
    """Areas of the best die by component beside those of the references, how much faster it is, and on equal terms."""
    if not beside:
        return
    print_tables(area_table({each.name: each.die for each in beside}))
    for sentence in plain_sentences(beside) if equal is None else ():
        out().print(sentence)
    if equal is not None:
        print_tables(equal_table(equal, result))
        for sentence in (equal_sentence(equal, result), *left_out_sentences(equal)):
            out().print(sentence)
        for each in equal.found:
            out().print(f"The certificate {TERMS[each.terms]}: {each.result.directory}", soft_wrap=True)


def warn_unproved(claim: Claim) -> None:
    """A yellow line for a proof that ended above its tolerance."""
    if not claim.is_proved:
        say(unproved_sentence(claim), style="yellow")


def print_check(report: CheckReport, *, is_json: bool) -> None:
    """That a certificate holds, what it states of which problem, and what was worked out again."""
    if is_json:
        counts = {name: getattr(report, name) for name in CHECK_COUNTS}
        claim = asdict(report.claim)
        models: dict[str, Any] = {"models": list(report.models), "objective": str(Aim(report.goal, report.axes))}
        models |= {"problem": list(report.problem), "differences": list(report.differences)}
        print_json({"valid": True, "reason": "", "claim": claim, **models, **counts, "file": str(report.directory)})
        return
    for sentence in (check_sentence(report), *report.problem):
        out().print(sentence)
    for sentence in report.differences:
        out().print(f"Note: {sentence}", style="yellow")


def _design_to_json(design: RankedDesign) -> dict[str, Any]:
    placement = design.evaluation.placement
    return {
        "rank": design.rank,
        "index": design.index,
        "architecture": asdict(design.point),
        "value": design.value,
        "upper_bound": design.value_upper,
        "throughput_samples_per_s": design.evaluation.throughput_samples_per_s,
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


def print_robust(result: RobustResult, file: Path) -> None:
    """Sentences and tables for a person."""
    screen = out()
    print_tables(*robust_summary(result))
    screen.print("")
    for sentence in minimax_sentences(result):
        screen.print(sentence)
    screen.print(f"All of it, every world and range among it: {file}", soft_wrap=True)
