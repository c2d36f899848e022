"""What ``phaze-opt search`` prints: one line of JSON, or sentences and tables for a person."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from phaze_opt.cli import output
from phaze_opt.cli.exit_codes import TRIALS_KEPT
from phaze_opt.jobs.machines_beside import dies_in
from phaze_opt.jobs.search_answer import SearchAnswer
from phaze_opt.report.answer import is_told, range_sentence
from phaze_opt.report.design import limits_sentence
from phaze_opt.report.die import area_table, plain_sentences
from phaze_opt.report.search import search_contents
from phaze_opt.report.search_answer import answer_to_json, first_of, priced_of
from phaze_opt.report.text import counted
from phaze_opt.track.protocol import TrackingSession


def print_answer(answer: SearchAnswer, *, is_json: bool, is_detailed: bool) -> None:
    """What a hardware architect acts on, before anything is written; `print_record` prints what a program reads."""
    result = answer.result
    if result.is_interrupted:
        output.say(f"interrupted after {counted(result.evaluations, 'trial')}; {TRIALS_KEPT}")
    if is_json:
        return

    first = first_of(answer)
    output.print_answer(first)
    if is_detailed:
        _print_details(answer)
    output.print_priced(priced_of(answer) if answer.result.best is not None else (), is_told=is_detailed)
    if is_detailed:
        output.print_notes([note for note in answer.notes if not is_told(note)])
    output.print_more(*first.more)


def _print_details(answer: SearchAnswer) -> None:
    """All that the answer comes from."""
    result, screen = answer.result, output.out()
    if result.best is not None:
        contents = search_contents(
            result,
            references=answer.references,
            space_size=answer.space.size,
            optimum=answer.optimum,
            own=answer.own,
            later_s=answer.later_s,
        )
        output.print_tables(*contents)
        dies = dies_in(answer.beside)
        if dies:
            output.print_tables(area_table(dies))
        for sentence in plain_sentences(answer.beside):
            screen.print(sentence)
        output.print_bills(answer.bills)
        if answer.headline is not None:
            screen.print(range_sentence(answer.headline))
        screen.print(limits_sentence(result.best))


def print_record(
    answer: SearchAnswer, session: TrackingSession[Any], page: Path | None, *, is_json: bool, is_detailed: bool
) -> None:
    """Where the search is recorded; as one line of JSON with the answer, as the record's names belong to it."""
    if is_json:
        output.print_json({**answer_to_json(answer, session), "report": None if page is None else str(page)})
        return
    output.print_run(session)
    if page is not None:
        output.print_more(f"The same as a page, with figures: {page}")
    if answer.result.best is not None:
        output.print_more(is_detailed=is_detailed)
