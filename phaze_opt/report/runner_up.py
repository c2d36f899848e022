"""Why the runner-up loses: two designs compared by what their iterations spend their time on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from phaze_opt.certify.result import RankedDesign
from phaze_opt.objective.evaluation import Evaluation
from phaze_opt.objective.goals import Goal
from phaze_opt.placement.problem import PlacementResult
from phaze_opt.report.design import CAUSES, describe_degrees
from phaze_opt.report.goal_values import UNITS, format_value
from phaze_opt.report.text import (
    describe_cores,
    format_gib,
    format_mib,
    format_number,
    format_percentage,
    format_time,
)

NOTICEABLE = 0.02
"""Causes with less than this share of the largest change are left out."""
MAX_CAUSES = 3


@dataclass(frozen=True, slots=True)
class CauseChange:
    """How much more time an iteration of the runner-up spends on one cause, s; negative if less."""

    cause: str
    more_s: float


@dataclass(frozen=True, slots=True)
class RunnerUp:
    """The best design of lower value beside the best one.

    Attributes:
        design: the runner-up.
        falls_short: relative to the best value.
        causes: what an iteration spends more or less on, largest change first; of the model that loses most where
            there are several.
        model: that model.
        more_s: longer iteration of that model, s.
        sentences: all of it in words.
        is_certain: no other design can lie between it and the best; otherwise it is the best of those looked at.
    """

    design: RankedDesign
    falls_short: float
    causes: tuple[CauseChange, ...]
    model: str
    more_s: float
    sentences: tuple[str, ...]
    is_certain: bool = True


def explain_runner_up(best: Sequence[RankedDesign], *, goal: Goal) -> RunnerUp | None:
    """The first design of lower value and why it loses; None if all designs tie.

    Args:
        best: by rank, the best design first.
        goal: what is maximised.
    """
    second = next((design for design in best if design.rank > 1), None)
    if second is None:
        return None
    first = best[0]
    winner, loser = _most_apart(first.evaluation, second.evaluation)
    causes = cause_changes(winner, loser)
    more_s = loser.iteration_time_s - winner.iteration_time_s
    falls_short = 1.0 - second.value / first.value
    share = sum(design.rank == second.rank for design in best)
    sentences = (
        _what_it_reaches(second, goal=goal, falls_short=falls_short, num_tied=share),
        _where_time_goes(winner, loser, causes, is_one_of_many=bool(first.evaluation.members)),
        _power(first.evaluation, second.evaluation) if goal is Goal.THROUGHPUT_PER_TDP else "",
        _what_differs(first.evaluation, second.evaluation, models=(winner, loser)),
    )
    return RunnerUp(second, falls_short, causes, loser.model, more_s, tuple(filter(None, sentences)))


def cause_changes(winner: Evaluation, loser: Evaluation) -> tuple[CauseChange, ...]:
    """Differences of two time breakdowns, largest first; they sum to the difference of the iteration times."""
    changes = (
        CauseChange(name, getattr(loser.breakdown, field) - getattr(winner.breakdown, field))
        for field, name, _ in CAUSES
    )
    return tuple(sorted((change for change in changes if change.more_s), key=lambda change: -abs(change.more_s)))


def _most_apart(first: Evaluation, second: Evaluation) -> tuple[Evaluation, Evaluation]:
    """The model on which the second design loses most; the designs themselves where there is one model."""
    pairs = list(zip(first.members, second.members, strict=True)) or [(first, second)]
    return max(pairs, key=lambda pair: pair[1].iteration_time_s / pair[0].iteration_time_s)


def _what_it_reaches(second: RankedDesign, *, goal: Goal, falls_short: float, num_tied: int) -> str:
    value = f"{format_value(goal, second.value)} {UNITS[goal]}"
    if goal is not Goal.THROUGHPUT:
        value += f" ({format_number(second.evaluation.throughput_samples_per_s)} samples/s)"
    tied = f", shared by {num_tied} designs" if num_tied > 1 else ""
    return f"The runner-up (rank {second.rank}{tied}) falls {format_percentage(falls_short)} short with {value}."


def _where_time_goes(
    winner: Evaluation, loser: Evaluation, causes: Sequence[CauseChange], *, is_one_of_many: bool
) -> str:
    more_s = loser.iteration_time_s - winner.iteration_time_s
    of_model = f" of {loser.model}, on which it loses most," if is_one_of_many else ""
    if not causes:
        return f"An iteration{of_model} takes as long on both."
    times = f"{_digits(loser.iteration_time_s)} in place of {_digits(winner.iteration_time_s)}"
    floor = NOTICEABLE * abs(causes[0].more_s)
    shown = [change for change in causes if abs(change.more_s) >= floor][:MAX_CAUSES]
    lost = [f"{change.cause} {format_time(change.more_s)} more" for change in shown if change.more_s > 0.0]
    saved = [f"{change.cause} {format_time(-change.more_s)} less" for change in shown if change.more_s < 0.0]
    longer = "longer" if more_s > 0.0 else "shorter"
    parts = f"{_listed(lost)}, though {_listed(saved)}" if lost and saved else _listed(lost or saved)
    return f"An iteration{of_model} is {format_time(abs(more_s))} {longer} ({times}): {parts}."


def _power(first: Evaluation, second: Evaluation) -> str:
    now, before = format_number(second.tdp_w), format_number(first.tdp_w)
    return f"Its TDP is {now} W in place of {before} W." if now != before else ""


def _what_differs(first: Evaluation, second: Evaluation, *, models: tuple[Evaluation, Evaluation]) -> str:
    """Architecture, micro-batch and placement, as far as they differ."""
    old, new = first.accelerator, second.accelerator
    pairs = [
        ("{}", describe_cores(old), describe_cores(new)),
        ("a GLB of {}", format_mib(old.glb_bytes), format_mib(new.glb_bytes)),
        ("HBM of {}", format_gib(old.hbm_bytes), format_gib(new.hbm_bytes)),
        ("micro-batches of {}", str(first.micro_batch), str(second.micro_batch)),
    ]
    winner, loser = (model.placement for model in models)
    if winner is not None and loser is not None:
        pairs.append(("tensor x pipeline x data of {}", describe_degrees(winner), describe_degrees(loser)))
        pairs.append(("{} recomputed stages", str(_num_recomputed(winner)), str(_num_recomputed(loser))))
    parts = [f"{template.format(now)} in place of {before}" for template, before, now in pairs if now != before]
    return f"It has {'; '.join(parts)}." if parts else ""


def _num_recomputed(placement: PlacementResult) -> int:
    return sum(stage.is_recomputed for stage in placement.stages)


def _digits(seconds: float) -> str:
    """An iteration time with enough digits to tell two close ones apart."""
    return f"{1000.0 * seconds:.5g} ms" if seconds < 1.0 else f"{seconds:.5g} s"


def _listed(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
