"""CSV and Markdown of a study hold the figures of its summary, in full."""

import csv
import io
import re
from dataclasses import replace

import pytest

from phaze_opt.objective.goals import Goal
from phaze_opt.report.page import escape, render_markdown
from phaze_opt.report.study.exports import render_exports, render_latex
from phaze_opt.report.study.page import build_document
from phaze_opt.report.study.wording import format_percent


@pytest.fixture(scope="module")
def tables(inputs) -> dict[str, list[dict[str, str]]]:
    return {name: list(csv.DictReader(io.StringIO(text))) for name, text in render_exports(inputs).items()}


def test_contenders_are_exact(tables, inputs) -> None:
    scores = (*inputs.summary.contenders, *inputs.summary.by_condition)
    assert len(tables["contenders.csv"]) == len(scores)
    for row, score in zip(tables["contenders.csv"], scores, strict=True):
        assert (row["contender"], row["condition"]) == (score.contender, score.condition)
        for name in ("median_regret", "mean_regret", "low_regret", "high_regret", "mean_area_under_curve"):
            assert float(row[name]) == getattr(score, name)
        for target in (0.05, 0.01, 0.001):
            assert float(row[f"share_reached_{target:g}"]) == score.share_reached[target]
            count = score.median_evaluations_to.get(target)
            assert row[f"median_evaluations_to_{target:g}"] == ("" if count is None else str(count))


def test_cells_are_exact(tables, inputs) -> None:
    for row, score in zip(tables["cells.csv"], inputs.summary.cells, strict=True):
        assert row["key"] == score.key
        assert float(row["regret"]) == score.regret
        assert int(row["probes"]) == score.probes
        assert float(row["charged_s"]) == score.charged_s


def test_curves_give_every_curve_back(tables, inputs) -> None:
    for score in inputs.summary.cells:
        rows = [row for row in tables["curves.csv"] if row["key"] == score.key]
        steps = {int(row["evaluations"]): float(row["regret"]) for row in rows}
        rebuilt, last = [], 1.0
        for number in range(1, len(score.curve) + 1):
            last = steps.get(number, last)
            rebuilt.append(last)
        assert rebuilt == list(score.curve)
        assert int(rows[-1]["evaluations"]) == len(score.curve)


def test_tests_truths_and_winners(tables, inputs) -> None:
    assert [row["p_value"] for row in tables["tests.csv"]] == [repr(test.p_value) for test in inputs.summary.tests]
    assert {row["condition"]: float(row["value"]) for row in tables["truths.csv"]} == {
        key: truth.value for key, truth in inputs.summary.truths.items()
    }
    for row in tables["winners.csv"]:
        cell = next(cell for cell in inputs.result.cells if cell.cell.key == row["cell"])
        trial = cell.trials[int(row["trial"])]
        assert float(row["value"]) == trial.values[0]
        assert int(row["num_tc"]) == trial.point.num_tc
        evaluation = inputs.evaluations[row["condition"]][trial.point]
        assert float(row["throughput_samples_per_s"]) == evaluation.throughput_samples_per_s


def test_prices_and_portfolios(tables, inputs) -> None:
    for price in inputs.summary.prices:
        own = [row for row in tables["price_matrix.csv"] if row["setting"] == price.setting]
        losses = [[float(row["loss"]) for row in own if row["design"] == f"best of {m}"] for m in price.models]
        assert losses == [[1.0 - row[place] for row in price.matrix] for place in range(len(price.models))]
        rows = [row for row in tables["portfolios.csv"] if row["setting"] == price.setting]
        assert len(rows) == len(price.models) * len(price.portfolios)
        assert {float(row["price"]) for row in rows if row["num_chips"] == "1"} == {price.common[0].price}


def test_front_is_not_dominated(tables, inputs) -> None:
    keys = [condition.key for condition in inputs.result.conditions if condition.goal is Goal.PARETO]
    assert {row["condition"] for row in tables["pareto.csv"]} == set(keys)
    for key in keys:
        names = ("throughput_samples_per_s", "tdp_w", "area_mm2")
        front = [tuple(float(row[name]) for name in names) for row in tables["pareto.csv"] if row["condition"] == key]
        found = {
            trial.values
            for cell in inputs.result.cells
            if cell.cell.condition.key == key
            for trial in cell.trials
            if trial.values
        }

        def is_dominated(one, found=found) -> bool:
            return any(o[0] >= one[0] and o[1] <= one[1] and o[2] <= one[2] and o != one for o in found)

        assert sorted(front) == sorted(one for one in found if not is_dominated(one))


def test_what_is_not_asked_has_no_file(make_inputs) -> None:
    plain = make_inputs(models=("bert-large",), goals=(Goal.THROUGHPUT,))
    assert not {"pareto.csv", "price_matrix.csv", "portfolios.csv"} & set(render_exports(plain))


def test_names_that_look_like_formulas_are_quoted(make_inputs) -> None:
    plain = make_inputs(names=("=1+1", "tpe"), models=("bert-large",), goals=(Goal.THROUGHPUT,), seeds=(0,))
    rows = list(csv.DictReader(io.StringIO(render_exports(plain)["contenders.csv"])))
    assert {row["contender"] for row in rows} == {"'=1+1", "tpe"}


def test_markdown_has_the_tables_of_the_page(inputs) -> None:
    text = render_markdown(build_document(inputs))
    lines = text.splitlines()
    for score in (*inputs.summary.contenders, *inputs.summary.by_condition):
        starts = (f"| {escape(score.contender)} |", f"| **{escape(score.contender)}** |")
        assert any(line.startswith(starts) and format_percent(score.mean_regret) in line for line in lines)
    for price in inputs.summary.prices:
        assert any(line.startswith("### ") and line.endswith(escape(price.setting)) for line in lines)
    for finding in build_document(inputs).findings:
        assert f"- {escape(finding)}" in lines
    assert "example-0123456789ab" in text
    assert sum(line.startswith("*Figure: ") for line in lines) > 5


def test_tables_of_markdown_are_rectangular(inputs) -> None:
    widths: list[int] = []
    for line in render_markdown(build_document(inputs)).splitlines():
        if line.startswith("|"):
            widths.append(len(re.findall(r"(?<!\\)\|", line)))
        else:
            assert len(set(widths)) <= 1
            widths = []


def test_markdown_escapes_what_it_would_read(snapshot) -> None:
    assert escape("a|b\n<b> *c* [d](e) `f`") == snapshot


def test_missing_evaluations_leave_figures_empty(inputs) -> None:
    bare = replace(inputs, evaluations={})
    rows = list(csv.DictReader(io.StringIO(render_exports(bare)["winners.csv"])))
    assert {row["mfu"] for row in rows} == {""}
    assert "nan" not in render_markdown(build_document(bare)).lower().split()


def test_curves_say_what_was_spent_by_then(tables, inputs) -> None:
    cells = {cell.cell.key: cell for cell in inputs.result.cells}
    assert any(cell.probes for cell in cells.values())
    for row in tables["curves.csv"]:
        cell, count = cells[row["key"]], int(row["evaluations"])
        spent_s = sum(trial.wall_s for trial in cell.trials[:count]) + cell.overhead_s * count / len(cell.trials)
        assert float(row["charged_s"]) == pytest.approx(spent_s, rel=1e-12)
        assert int(row["looked_at"]) == cell.probes + count


def test_the_latex_table_has_the_figures_of_the_summary(inputs) -> None:
    hostile = replace(inputs.summary.contenders[0], contender="a_b & <50 %")
    summary = replace(inputs.summary, contenders=(hostile, *inputs.summary.contenders[1:]))
    text = render_latex(replace(inputs, summary=summary))
    assert r"a\_b \& $<$50 \%" in text
    rows = [line.removesuffix(r" \\").split(" & ") for line in text.splitlines() if line.endswith(r"\\")]
    assert len(rows) == 1 + len(summary.contenders)
    for cells, score in zip(rows[2:], summary.contenders[1:], strict=True):
        assert cells[0] == score.contender
        assert cells[2] == format_percent(score.median_regret).replace("%", r"\%")
    assert len({len(cells) for cells in [rows[0], *rows[2:]]}) == 1
