"""What ``phaze-opt validate`` prints for a person."""

from __future__ import annotations

from typing import TYPE_CHECKING

from phaze_opt.cli.output import out, print_plain_table

if TYPE_CHECKING:
    from phaze_opt.validation.result import Validation

NUM_WORST = 5
"""Rows of largest error on a terminal; the page has more."""


def print_validation(result: Validation) -> None:
    """The table of sets, why rows are unscored, and which goals are met; of a single set its regimes and worst rows."""
    from phaze_opt.report.validation_tables import (
        goals_sentence,
        group_table,
        overview_table,
        unscored_sentences,
        worst_table,
    )

    screen = out()
    print_plain_table(overview_table(result), has_title=False)
    for sentence in unscored_sentences(result):
        screen.print(sentence)
    if len(result.sets) == 1 and result.sets[0].scores.num_rows:
        screen.print()
        print_plain_table(group_table("Error by regime", result.sets[0].regimes))
        screen.print()
        print_plain_table(worst_table(result.sets[0], limit=NUM_WORST))
    sentence = goals_sentence(result)
    if sentence:
        screen.print(sentence)
