"""The words and tables of an analysis of robustness say what the result holds."""

import io
import re
from dataclasses import replace

import pytest
from rich.console import Console
from robust_toys import PowerProver, make_problem

from phaze_opt.certify.problem import CertifyOptions
from phaze_opt.certify.robust.analyse import analyse_robustness
from phaze_opt.certify.robust.result import ConclusionKind, RobustOptions, RobustResult, worlds_of_result
from phaze_opt.hardware.chip_template import AXIS
from phaze_opt.objective.goals import Goal
from phaze_opt.report.chip import short_point
from phaze_opt.report.robust import (
    conclusions_table,
    designs_table,
    effects_table,
    minimax_sentences,
    robust_contents,
    worlds_table,
)
from phaze_opt.report.table import DrawnTable

PROBLEM = make_problem()
NUM_WORLDS = 1 + 2**4 + 5 + 2
"""The nominal one, corners, five choices made otherwise, samples."""


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> RobustResult:
    """Of the toy whose worlds differ much."""
    options = CertifyOptions(tolerance=0.001, num_best=3, directory=tmp_path_factory.mktemp("words"))
    prover = PowerProver(PROBLEM.space.size, 1)
    return analyse_robustness(PROBLEM, options, RobustOptions(num_samples=2), prover=prover)


def test_every_table_fits_a_terminal(result: RobustResult) -> None:
    console = Console(width=80, record=True, file=io.StringIO())
    for content in robust_contents(result):
        assert all(len(row) == len(content.columns) for row in content.rows)
        console.print(DrawnTable(content))
    lines = console.export_text().splitlines()
    assert max(map(len, lines)) <= 80
    assert not [line for line in lines if "…" in line]


def test_conclusions_count_worlds(result: RobustResult) -> None:
    table = conclusions_table(result)
    for row, conclusion in zip(table.rows, result.conclusions, strict=True):
        assert row[0] == conclusion.statement
        assert row[1].startswith(f"{sum(conclusion.holds)}/{NUM_WORLDS}")
        is_open = conclusion.kind in (ConclusionKind.NOMINAL_BEST, ConclusionKind.SHAPE) and not all(
            conclusion.is_proved
        )
        assert ("?" in row[1]) == is_open
    assert {table.rows.index(row) for row in table.rows if row[1] == f"{NUM_WORLDS}/{NUM_WORLDS}"} == set(
        table.emphasised
    )
    corners = {row[3] for row in table.rows if row[3].startswith("corner ")}
    assert corners
    assert all(f"; {name}: vector operators" in table.note for name in corners)
    assert table.note.startswith(f"{sum(c.survives for c in result.conclusions)} of {len(result.conclusions)} ")


def test_designs_rise_in_regret_and_references_come_last(result: RobustResult) -> None:
    table = designs_table(result)
    in_space = sorted(d.worst_regret for d in result.designs if d.point is not None)[:8]
    shown = [float(row[2].removesuffix(" %")) for row in table.rows]
    assert shown[: len(in_space)] == pytest.approx([100 * regret for regret in in_space], rel=0.05)
    assert {row[0] for row in table.rows[-2:]} == {"phaze-tpu-v4", "modelled tpu-v4"}
    named = {name for row in table.rows for name in re.findall(r"corner \d+", f"{row[0]} {row[5]}")}
    assert named == set(re.findall(r"; (corner \d+): ", table.note))
    (best,) = table.emphasised
    assert table.rows[best][1] == short_point(PROBLEM.space.point(result.minimax.index))


def test_worlds_and_effects(result: RobustResult) -> None:
    table = worlds_table(result)
    assert [row[0] for row in table.rows] == [world.name for world in result.worlds]
    assert table.rows[0][:4] == ("nominal", "nominal", f"{result.optima[0].value:.2f}", "1.00x")
    low, last = (worlds_of_result(result)[row] for row in (1, 16))
    share = 100 * (1 - 225 / 400)
    assert table.rows[1][1] == low.words
    assert low.words == f"vector operators twice as fast, buffer and network half as fast, HBM {share:.0f} % slower"
    assert last.words == "vector operators half as fast, buffer and network twice as fast, HBM 50 % faster"
    assert (low.place, worlds_of_result(result)[0].place) == (f"with {low.words}", "as the assumptions stand")
    assert len(effects_table(result).rows) == 4
    moved = [abs(float(row[1].removesuffix("x")) - 1.0) for row in effects_table(result).rows]
    assert moved[0] == max(moved)


def test_designs_that_differ_on_one_axis_read_differently() -> None:
    point = PROBLEM.space.point(0)
    changed = [replace(point, **{axis: 2 * getattr(point, axis) or 3}) for axis in AXIS]
    assert len({short_point(each) for each in (point, *changed)}) == 1 + len(AXIS)


def test_sentences(result: RobustResult) -> None:
    first, second = minimax_sentences(result)
    nominal = next(design for design in result.designs if design.index == result.optima[0].index)
    assert f"forgoes up to {100 * nominal.worst_regret:.3g} %" in first
    assert f"forgoes at most {100 * result.minimax.regret:.3g} %" in second
    assert second.endswith("(proved).")
    still = replace(result, minimax=replace(result.minimax, regret=0.0))
    (only,) = minimax_sentences(still)
    assert f"is within 0.1 % of the optimum in every one of the {NUM_WORLDS} worlds" in only
    nothing = replace(result, minimax=replace(result.minimax, index=-1, point=None))
    assert minimax_sentences(nothing) == (f"None of the 24 points is feasible in any of the {NUM_WORLDS} worlds.",)


def test_per_watt_is_told_per_kilowatt(result: RobustResult) -> None:
    table = worlds_table(replace(result, goal=Goal.THROUGHPUT_PER_TDP.value))
    assert table.columns[2].heading == "samples/s/kW"
    assert float(table.rows[0][2].replace(",", "")) == pytest.approx(1000 * result.optima[0].value, rel=0.01)


def test_a_world_without_a_point_is_told(result: RobustResult) -> None:
    infeasible = replace(result.optima[1], is_feasible=False, index=-1, point=None, value=0.0, value_upper=0.0)
    table = worlds_table(replace(result, optima=(result.optima[0], infeasible, *result.optima[2:])))
    assert table.rows[1][2:] == ("infeasible", "-", "-", "-", "-")
