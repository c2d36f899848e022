"""Modules in a row that are alike, by what they look like."""

from itertools import product

import pytest

from phaze_opt.extract.depth import LONGEST_PERIOD, Stretch, find_stretches


@pytest.mark.parametrize(
    ("row", "stretches"),
    [
        ("aaaa", [(0, 1, 4)]),
        ("abab", [(0, 2, 2)]),
        ("dddmmmmm", [(0, 1, 3), (3, 1, 5)]),
        ("llllglllllg", [(0, 1, 4), (5, 1, 5)]),
        ("lllllg" * 4 + "ll", [(0, 6, 4), (24, 1, 2)]),
        ("abcd", []),
        ("aab", [(0, 1, 2)]),
    ],
)
def test_runs_of_rows(row, stretches):
    assert find_stretches(row) == tuple(Stretch(*each) for each in stretches)


def test_stretches_of_every_short_row_repeat_and_do_not_overlap():
    for row in map("".join, product("ab", repeat=7)):
        end = 0
        for each in find_stretches(row):
            assert each.start >= end
            assert each.count > 1
            assert each.period <= LONGEST_PERIOD
            end = each.start + each.count * each.period
            assert row[each.start : end] == row[each.start : each.start + each.period] * each.count
