"""What ``phaze-opt certify`` prints: one line of JSON, or sentences and tables for a person."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from phaze_opt.certify.certificate import Claim, FrontOverWorlds
from phaze_opt.certify.check.report import CheckReport
from phaze_opt.certify.check.worlds import FrontReport
from phaze_opt.certify.equal_terms import EqualTerms
from phaze_opt.certify.result import CertifyProgress, CertifyResult, RankedDesign
from phaze_opt.certify.robust.result import OverWorlds, RobustResult
from phaze_opt.cli import output
from phaze_opt.cli.output import out, print_json, print_tables, say
from phaze_opt.hardware.constants import Constants
from phaze_opt.objective.caveats import Note, notes_to_json
from phaze_opt.objective.evaluation import architecture_to_json, evaluation_to_json
from phaze_opt.objective.goals import Aim, Goal
from phaze_opt.objective.headline_range import HeadlineRange
from phaze_opt.objective.least_within import LeastDesign, LeastOf
from phaze_opt.objective.priced_as import PricedAs, priced_as, priced_to_json
from phaze_opt.report import certificate as words
from phaze_opt.report.answer import (
    ShortAnswer,
    design_sentences,
    is_told,
    near_sentence,
    range_sentence,
    range_to_json,
    told_notes,
)
from phaze_opt.report.bill import bills_to_json
from phaze_opt.report.certificate import RunnerUp, Ties, check_sentence, unproved_sentence
from phaze_opt.report.chip import arch_option
from phaze_opt.report.design import members_table
from phaze_opt.report.die import ChipBeside, area_table, beside_to_json, bills_in, dies_in, plain_sentences
from phaze_opt.report.equal_terms import TERMS, equal_sentence, equal_table, equal_to_json, left_out_sentences
from phaze_opt.report.front import (
    again_lines,
    arch_lines,
    choices_to_json,
    front_sentences,
    front_table,
    front_ties_sentence,
    front_to_json,
    machines_beside,
    machines_to_json,
    members_of,
)
from phaze_opt.report.least_within import NearBest, least_to_json, near_table
from phaze_opt.report.robust import (
    front_check_sentence,
    front_over_worlds_to_json,
    minimax_sentences,
    over_worlds_sentences,
    over_worlds_table,
    over_worlds_to_json,
    robust_summary,
)
from phaze_opt.report.table import TableContent
from phaze_opt.track.protocol import ProofEvent, TrackingSession

FRONT_COUNTS: tuple[str, ...] = ("num_certificates", "wall_s")
CHECK_COUNTS: tuple[str, ...] = (
    "num_relaxed", "num_exact", "num_over_budget", "num_out_of_memory", "num_vectors", "num_trees", "num_searches",
    "num_schedules", "wall_s",
)  # fmt: skip
LOOKED_AT = "the designs looked at"
NOT_CHECKED = "This proof was not checked."


@dataclass(frozen=True, slots=True)
class ProofAnswer:
    """A proof and what is said of it.

    Attributes:
        result: of the problem itself.
        robust, robust_file: over the ranges of the assumptions, None where it was not asked for; where it is written.
        over_worlds: of a front, in place of ``robust``.
        is_checked: whether independent code confirmed every certificate.
        equal: on the terms of a machine; None where none was named.
        ties: designs that share the first place.
        runner_up: the best design of lower value; None if there is none, or of a front.
        headline: the range of the best design's throughput; None where it was not asked for, or of a front.
        notes: what the answer rests on.
        constants: in force.
        beside: the best design, then the machines that it is held against and the references; empty if there is none.
        num_held: machines that it is held against; they are the first.
        least: the smallest, coolest and cheapest design near the best.
        amounts: what the best design takes.
        ranges: of the fastest design and the knee of a front, by number.
    """

    result: CertifyResult
    robust: RobustResult | None
    robust_file: Path
    equal: EqualTerms | None
    ties: Ties
    runner_up: RunnerUp | None
    headline: HeadlineRange | None
    notes: Sequence[Note]
    constants: Constants
    beside: tuple[ChipBeside, ...]
    num_held: int
    least: tuple[LeastDesign, ...]
    amounts: Mapping[LeastOf, float]
    ranges: Mapping[int, HeadlineRange] = field(default_factory=dict)
    over_worlds: OverWorlds | None = None
    is_checked: bool = False

    @property
    def held(self) -> tuple[ChipBeside, ...]:
        """The machines that the best design is held against."""
        return self.beside[1 : 1 + self.num_held]

    @property
    def priced(self) -> tuple[PricedAs, ...]:
        """What the models were priced as."""
        scenario = self.result.certificate.scenario
        return priced_as(scenario.models, scenario.sequence_length)


def answer_to_json(
    answer: ProofAnswer, session: TrackingSession[ProofEvent], *, page: Path | None = None
) -> dict[str, Any]:
    """The line that ``--json`` prints; ``page`` is that of ``--report``."""
    data = result_to_json(answer.result, session, ties=answer.ties, runner_up=answer.runner_up)
    front, certificate = members_of(answer.result), answer.result.certificate
    return {
        **data,
        "checked": answer.is_checked,
        "priced_as": priced_to_json(answer.priced),
        "notes": notes_to_json(answer.notes),
        "range": range_to_json(answer.headline),
        "robust": worlds_to_json(answer.robust, answer.over_worlds, str(answer.robust_file)),
        **beside_to_json(answer.beside),
        **bills_to_json(bills_in(answer.beside)),
        "least_within": least_to_json(answer.least),
        "choices": choices_to_json(front, certificate.axes, certificate.scenario, ranges=answer.ranges),
        "baselines": machines_to_json(front, certificate.axes, machines_beside(answer.held)),
        "equal_to": equal_to_json(answer.equal, answer.result, answer.constants),
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
    return first if answer.is_checked else replace(first, sentences=(*first.sentences, NOT_CHECKED))


def _first_of(answer: ProofAnswer) -> ShortAnswer:
    result, certificate = answer.result, answer.result.certificate
    notes = told_notes(answer.notes)
    if certificate.axes:
        front, axes = members_of(result), certificate.axes
        sentences = front_sentences(result, machines_beside(answer.held))
        if answer.equal is not None:
            sentences = (*sentences, equal_sentence(answer.equal, result))
        tables = (
            *_equal_tables(answer),
            *((front_table(front, axes, has_plans=certificate.scenario.plans is not None),) if front else ()),
        )
        if answer.over_worlds is not None:
            over = answer.over_worlds
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
    if answer.equal is not None:
        sentences = (*sentences, equal_sentence(answer.equal, result))
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
    return () if answer.equal is None else (equal_table(answer.equal, answer.result),)


def print_answer(answer: ProofAnswer, *, is_detailed: bool) -> None:
    """What is proved, and how to go on; with all that it comes from if that is asked for."""
    result = answer.result
    output.print_answer(first_of(answer))
    if is_detailed:
        print_result(result, ties=answer.ties, runner_up=answer.runner_up, headline=answer.headline)
        print_dies(answer.beside, answer.equal)
        output.print_bills(bills_in(answer.beside))
    output.print_priced(answer.priced if result.best else (), is_told=is_detailed)
    if is_detailed:
        output.print_notes([note for note in answer.notes if not is_told(note)])
    if answer.equal is not None:
        for sentence in left_out_sentences(answer.equal):
            out().print(sentence)
        output.print_more(
            *(f"The certificate {TERMS[each.terms]}: {each.result.directory}" for each in answer.equal.found)
        )
    if answer.robust is not None:
        print_robust(answer.robust, answer.robust_file)
    held = [result.directory, *([] if answer.over_worlds is None else [answer.robust_file.parent])]
    what = "the certificate" if len(held) == 1 else "the certificate and the front over worlds"
    what = f"Independent code checked {what}; again:" if answer.is_checked else f"Check {what} with:"
    output.print_more(*_again(result), what, *(f"  phaze-opt certify --check '{each}'" for each in held))


def _again(result: CertifyResult) -> tuple[str, ...]:
    """How to evaluate the best design, or designs of a front."""
    scenario, axes = result.certificate.scenario, result.certificate.axes
    if axes:
        return again_lines(members_of(result), axes, scenario)
    return tuple(f"The best design again: {arch_option(each.point, scenario)}" for each in result.best[:1])


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


def interrupted_to_json(progress: CertifyProgress | None, session: TrackingSession[ProofEvent]) -> dict[str, Any]:
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
        screen.print(words.ties_sentence(ties, words.rows_words(result)))
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
    _print_end(result)


def _print_front(result: CertifyResult) -> None:
    """What equals designs of a front, and how it was proved."""
    if result.front:
        out().print(front_ties_sentence(result))
        certificate = result.certificate
        for line in arch_lines(members_of(result), certificate.axes, certificate.scenario):
            out().print(line, soft_wrap=True)
    if result.front and len(result.history) > 1:
        print_tables(words.history_table(result))
        out().print("")
    _print_end(result)


def _print_end(result: CertifyResult) -> None:
    """What is infeasible, and what it took."""
    screen = out()
    infeasible = words.infeasible_sentence(result)
    if infeasible:
        screen.print(infeasible)
    screen.print(words.effort_sentence(result))


def print_dies(beside: Sequence[ChipBeside], equal: EqualTerms | None) -> None:
    """Areas of the best die by component beside those of the references, and how much faster it is."""
    dies = dies_in(beside)
    if not dies:
        return
    print_tables(area_table(dies))
    for sentence in plain_sentences(beside) if equal is None else ():
        out().print(sentence)


def warn_unproved(claim: Claim) -> None:
    """A yellow line for a proof that ended above its tolerance."""
    if not claim.is_proved:
        say(unproved_sentence(claim), style="yellow")


def over_worlds_metrics(front: FrontOverWorlds) -> dict[str, float]:
    """What the tracker shows of a front over worlds."""
    return {
        "robust.front_designs": float(len(front.designs)),
        "robust.front_gap": front.gap,
        "robust.num_worlds": float(len(front.worlds)),
        "robust.largest_share": max((design.share for design in front.designs), default=0.0),
    }


def print_check(report: CheckReport | FrontReport, *, is_json: bool) -> None:
    """That a certificate holds, what it states of which problem, and what was worked out again."""
    if isinstance(report, FrontReport):
        holds, claim = front_check_sentence(report), front_over_worlds_to_json(report.front)
        objective, counted = Aim(Goal.PARETO, report.front.axes), FRONT_COUNTS
    else:
        holds, claim = check_sentence(report), asdict(report.claim)
        objective, counted = Aim(report.goal, report.axes), CHECK_COUNTS
    if is_json:
        told: dict[str, Any] = {"models": list(report.models), "objective": str(objective)}
        told |= {"problem": list(report.problem), "differences": list(report.differences)}
        told |= {name: getattr(report, name) for name in counted}
        print_json({"valid": True, "reason": "", "claim": claim, **told, "file": str(report.directory)})
        return
    for sentence in (holds, *report.problem):
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


def print_robust(result: RobustResult, file: Path) -> None:
    """Sentences and tables for a person."""
    screen = out()
    print_tables(*robust_summary(result))
    screen.print("")
    for sentence in minimax_sentences(result):
        screen.print(sentence)
    screen.print(f"All of it, every world and range among it: {file}", soft_wrap=True)
