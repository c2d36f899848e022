"""What ``phaze-opt certify`` prints: one line of JSON, or sentences and tables for a person."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from phaze_opt.certify.certificate import Claim
from phaze_opt.certify.check.report import CheckReport
from phaze_opt.certify.check.worlds import FrontReport
from phaze_opt.certify.equal_terms import EqualTerms
from phaze_opt.certify.result import CertifyResult
from phaze_opt.certify.robust.result import RobustResult
from phaze_opt.certify.standing import Ties, members_of
from phaze_opt.cli import output
from phaze_opt.cli.output import out, print_bills, print_json, print_more, print_notes, print_priced, print_tables, say
from phaze_opt.jobs.machines_beside import ChipBeside, bills_in, dies_in
from phaze_opt.jobs.proof import ProofAnswer
from phaze_opt.objective.goals import Aim, Goal
from phaze_opt.objective.headline_range import HeadlineRange
from phaze_opt.report import certificate as words
from phaze_opt.report.answer import is_told, range_sentence
from phaze_opt.report.certificate import RunnerUp, check_sentence, unproved_sentence
from phaze_opt.report.chip import arch_option
from phaze_opt.report.die import area_table, plain_sentences
from phaze_opt.report.equal_terms import TERMS, left_out_sentences
from phaze_opt.report.front import again_lines, arch_lines, front_ties_sentence
from phaze_opt.report.proof import first_of, runner_up_of
from phaze_opt.report.robust import (
    ONLY_ONCE,
    front_check_sentence,
    front_over_worlds_to_json,
    minimax_sentences,
    robust_summary,
)

FRONT_COUNTS: tuple[str, ...] = ("num_certificates", "wall_s")
CHECK_COUNTS: tuple[str, ...] = (
    "num_relaxed", "num_exact", "num_over_budget", "num_out_of_memory", "num_vectors", "num_trees", "num_searches",
    "num_schedules", "wall_s",
)  # fmt: skip


def print_answer(answer: ProofAnswer, *, is_detailed: bool) -> None:
    """What is proved, and how to go on; with all that it comes from if that is asked for."""
    result = answer.result
    output.print_answer(first_of(answer))
    if is_detailed:
        print_result(result, ties=answer.ties, runner_up=runner_up_of(answer), headline=answer.headline)
        print_dies(answer.beside, answer.proofs.equal)
        print_bills(bills_in(answer.beside))
    print_priced(answer.priced if result.best else (), is_told=is_detailed)
    if is_detailed:
        print_notes([note for note in answer.notes if not is_told(note)])
    if answer.proofs.equal is not None:
        for sentence in left_out_sentences(answer.proofs.equal):
            out().print(sentence)
        print_more(
            *(f"The certificate {TERMS[each.terms]}: {each.result.directory}" for each in answer.proofs.equal.found)
        )
    if answer.proofs.robust is not None:
        print_robust(answer.proofs.robust, answer.robust_file)
    held = [result.directory, *([] if answer.proofs.over_worlds is None else [answer.robust_file.parent])]
    what = "the certificate" if len(held) == 1 else "the certificate and the front over worlds"
    what = f"Independent code checked {what}; again:" if answer.proofs.is_checked else f"Check {what} with:"
    print_more(*_again(result), what, *(f"  phaze-opt certify --check '{each}'" for each in held))


def _again(result: CertifyResult) -> tuple[str, ...]:
    """How to evaluate the best design, or designs of a front."""
    scenario, axes = result.certificate.scenario, result.certificate.axes
    if axes:
        return again_lines(members_of(result), axes, scenario)
    return tuple(f"The best design again: {arch_option(each.point, scenario)}" for each in result.best[:1])


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


def print_robust(result: RobustResult, file: Path) -> None:
    """Sentences and tables for a person."""
    screen = out()
    print_tables(*robust_summary(result))
    screen.print("")
    for sentence in (*minimax_sentences(result), ONLY_ONCE):
        screen.print(sentence)
    screen.print(f"All of it, every world and range among it: {file}", soft_wrap=True)
