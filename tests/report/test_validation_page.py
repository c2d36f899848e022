"""The page of a validation holds what a reader needs to trust the models or not."""

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from importlib.resources import files

import numpy as np
import pytest
from kits.toy_family import HEADER, TOY, toy_lines

from phaze_opt.hardware.fitted import FittedConstants, FittedFile
from phaze_opt.report import validation_page
from phaze_opt.report.calibration import constants_table
from phaze_opt.report.document import Block, FigureBlock, Folded, Paragraph, TableBlock, all_blocks
from phaze_opt.report.page import render_html
from phaze_opt.report.picture import Marks, Rule
from phaze_opt.report.validation_figures import error_picture, overview_picture, regimes_picture, scatter_picture
from phaze_opt.report.validation_page import build_document, read_sources
from phaze_opt.report.validation_tables import (
    format_rank,
    goals_sentence,
    kinds_table,
    overview_table,
    score_sentences,
    short_table,
    worst_table,
)
from phaze_opt.validation.baselines import Baseline, Line
from phaze_opt.validation.calibrate import calibrate
from phaze_opt.validation.dataset import read_dataset
from phaze_opt.validation.result import GoalResult, score
from phaze_opt.validation.validate import validate

TIMES = ("predicted", "measured")


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "op_llmcompass.csv"
    # The other rows say 20 us + 2e6 / 2e9 s = 1020 us, which is 15 % below what is measured here.
    lines = [*toy_lines(), "A,matmul,1000,2000,fp16,1200", "<script>,mystery,8,8,fp16,3"]
    path.write_text("\n".join([HEADER, *lines]) + "\n")
    dataset = read_dataset(path)
    calibration = calibrate([TOY], [dataset], FittedConstants({}), source="test", has_held_out=False)
    baselines = {"op_llmcompass": Baseline("operators", {(): Line(0.0, 2.0)})}
    result = validate([dataset], [TOY], calibration.constants, baselines=baselines)
    sets = {"op_llmcompass": {"mape": 1.25, "cross_validated_mape": 2.5, "leave_one_device_out_mape": 33.0}}
    return result, FittedFile(format=1, groups=calibration.groups, sets=sets)


def test_sets_that_are_not_of_times_are_said_to_count_in_no_error(found):
    result, _ = found
    (times,) = result.sets
    areas = replace(times.dataset, rows=tuple(replace(row, dataset="die_area") for row in times.dataset.rows))
    assert areas.is_context
    said = {
        name: [each for each in score_sentences(replace(result, sets=sets)) if each.startswith("The least is")]
        for name, sets in {"two": (times, times), "three": (times, times, replace(times, dataset=areas))}.items()
    }
    assert len(said["two"]) == len(said["three"]) == 1
    aside = "sets that are not of times (die areas, say) count in none of these"
    assert said["three"] == [f"{said['two'][0][:-1]}; {aside}."]


def test_small_sets_of_a_kind_stand_together_and_kinds_have_what_no_fit_saw(found):
    result, _ = found
    (times,) = result.sets
    some, all_of_them = (replace(times, family="operators", rows=times.rows[:stop]) for stop in (10, 38))
    some = replace(some, scores=score(*(np.array([getattr(row, f"{name}_s") for row in some.rows]) for name in TIMES)))
    memory = replace(times, family="memory")
    many = replace(result, sets=(some, all_of_them, memory))
    small, other = short_table(many).rows
    errors = [100 * abs(row.error) for each in (some, all_of_them) for row in each.rows if not row.reason]
    assert small[:2] == ("2 small sets: operators", "47/48")
    assert float(small[2]) == pytest.approx(sum(errors) / 47, rel=0.005)
    assert small[-1] == ""
    assert other[:2] == ("1 small set: peak memory", "37/38")
    kept_out = {"op_llmcompass": {"leave_one_device_out_mape": 33.0, "leave_one_sweep_out_mape": 2.0}}
    operators, peaks = kinds_table(many, kept_out).rows
    assert operators == ("operators", "47", small[2], "machine", "47", "33.0")
    assert peaks[3:] == ("machine", "37", "33.0")
    assert kinds_table(many, {}).rows[0][3:] == ("", "", "")


def test_the_page_of_many_sets_begins_with_what_no_fit_saw(found, monkeypatch):
    result, file = found
    monkeypatch.setattr(validation_page, "MOST_SETS", 0)
    many = replace(result, sets=tuple(replace(each, family="operators") for each in result.sets))
    (first, *_) = validation_page._overview(many, file).blocks
    assert first.content.rows == kinds_table(many, file.sets).rows
    assert first.content.rows[0][3:] == ("machine", "37", "33.0")


def test_the_overview_has_every_set_and_goal(found, snapshot):
    result, _ = found
    table = overview_table(result)
    names = [row[0].strip() for row in table.rows]
    assert names == ["op_llmcompass", "A100 matmul", "MI210 matmul", "softmax/layernorm/gelu"]
    assert table.rows[0][1] == "37/38"
    assert table.rows[3][3] == "7 \N{CHECK MARK}"
    assert table.emphasised == {1, 2}
    assert goals_sentence(result) == snapshot


def test_the_worst_row_comes_first_with_its_breakdown(found, snapshot):
    result, _ = found
    table = worst_table(result.sets[0])
    row = table.rows[0]
    assert row[0] == "op_llmcompass:38"
    assert -16 < float(row[1].removesuffix(" %")) < -13
    assert (row[4], re.sub(r"\d+", "0", row[5]), table.note) == snapshot


def test_every_scored_row_is_a_point_with_its_configuration(found):
    result, _ = found
    figure = scatter_picture(result.sets[0])
    points = [each for each in figure.layers if isinstance(each, Marks)]
    assert sum(len(each.x) for each in points) == 37
    texts = [text for each in points for text in each.hovers]
    worst = next(text for text in texts if "op_llmcompass:38" in text)
    assert "m 1000" in worst
    assert "1.20 ms" in worst


def test_errors_are_drawn_in_per_cent(found):
    result, _ = found
    layers = error_picture(result.sets[0]).layers
    errors = [value for each in layers if isinstance(each, Marks) for value in each.y]
    assert sorted(errors) == pytest.approx(sorted(100 * row.error for row in result.sets[0].rows if not row.reason))
    # Without its zero a scale of a few per cent hides that all predictions are too fast.
    assert any(isinstance(each, Rule) and each.y == 0.0 for each in layers)
    assert -16 < min(errors) < -13


def test_regimes_and_overview_show_the_trivial_model(found):
    result, _ = found
    names = [each.name for each in regimes_picture(result.sets[0].regimes).layers]
    assert names[0] == "the model"
    assert "goal" not in [each.name for each in overview_picture(result).layers]


def test_constants_are_listed_with_bounds_and_marked_at_a_bound(found, snapshot):
    _, file = found
    table = constants_table("Constants", dict(file.groups))
    assert [row[1] for row in table.rows] == ["launch_s", "rate"] * 3
    assert not table.emphasised
    item = file.groups["toy/A"].constants["launch_s"].model_copy(update={"value": 1e-6})
    group = file.groups["toy/A"].model_copy(update={"constants": {"launch_s": item}})
    marked = constants_table("Constants", {"toy/A": group}, note="More.")
    assert marked.emphasised == {0}
    # Bold type is lost in a pipe.
    assert marked.rows[0][2] == "1e-06 *"
    assert not any("*" in row[2] for row in table.rows)
    assert (marked.rows[0][3], marked.note) == snapshot
    assert "bound" not in table.note


def unfolded(blocks: Iterable[Block]) -> Iterator[Block]:
    for block in blocks:
        if isinstance(block, Folded):
            yield from unfolded(block.blocks)
        else:
            yield block


def test_the_page_says_its_result_before_anything_is_unfolded(found):
    document = build_document(*found)
    assert len([block for block in all_blocks(document) if isinstance(block, FigureBlock)]) == 1
    assert not any(isinstance(block, TableBlock) for block in all_blocks(document))
    page = render_html(document)
    (*_, bias) = score_sentences(found[0])
    assert bias.startswith("They are ")
    assert bias in page
    drawings = re.findall(r"<svg .*?</svg>", page, re.DOTALL)
    assert len(drawings) == 2 * 4
    assert not any("http" in text.replace("http://www.w3.org/", "") for text in drawings)


def test_the_page_stands_alone_and_holds_every_block(found, snapshot):
    document = build_document(*found)
    blocks = list(unfolded(all_blocks(document)))
    assert {block.name for block in blocks if isinstance(block, FigureBlock)} == {
        "overview",
        "scatter-op-llmcompass",
        "errors-op-llmcompass",
        "regimes-op-llmcompass",
    }
    assert [block.content.title for block in blocks if isinstance(block, TableBlock)] == snapshot
    assert next(block.text for block in blocks if isinstance(block, Paragraph) and "1.25" in block.text) == snapshot
    page = render_html(document)
    assert '<td class="number">2.50</td>' in page
    assert not re.search(r"(src|href)=\"https?:", page)


def test_every_published_set_is_introduced_with_its_source(snapshot):
    sources = read_sources()
    folder = files("phaze_opt.validation").joinpath("data")
    assert sorted(sources) == sorted(file.name[:-4] for file in folder.iterdir() if file.name.endswith(".csv"))
    assert sources["op_llmcompass"].sentence == snapshot


def test_the_page_says_what_was_measured_and_how_far_off_it_is_without_it(found):
    page = render_html(build_document(*found))
    assert "PrincetonUniversity/LLMCompass" in page
    assert "<td>device 33.0</td>" in page
    figure = overview_picture(found[0], found[1].sets)
    marks = [list(each.x) for each in figure.layers if isinstance(each, Marks)]
    assert [2.5] in marks
    assert [33.0] in marks


@pytest.mark.parametrize(("reached", "mark"), [(0.99, "\N{CHECK MARK}"), (0.98, "\N{BALLOT X}")])
def test_a_goal_for_the_rank_is_marked_beside_it(found, reached, mark):
    goal = GoalResult("op_llmcompass", "", "spearman", 0.985, reached)
    table = overview_table(replace(found[0], goals=(goal,)))
    assert table.rows[0][-1].endswith(f" {mark}")
    assert (0 in table.emphasised) == (reached < 0.985)
    assert all(" " not in row[-1] for row in table.rows[1:])


def test_names_break_at_underscores_and_stay_text(found):
    page = render_html(build_document(*found))
    assert "<span>op_<wbr>llmcompass</span>" in page
    assert "<script>,mystery" not in page


def test_a_rank_is_never_rounded_up_to_the_goal():
    assert format_rank(0.98499) == "0.984"
    assert format_rank(0.9999999) == "0.999"
    assert format_rank(math.nextafter(1.0, 0.0)) == "1.000"
    assert format_rank(float("nan")) == ""


@pytest.mark.parametrize("ratio", [1.0, 1.02, 1.3, 2.0, 3.9, 4.1, 30.0])
@pytest.mark.parametrize("low", [3e-6, 0.0193, 0.98, 36.0])
def test_a_time_axis_has_ticks_to_read_off_by(found, low, ratio):
    """Also where all times lie within a factor of four, which holds one or none of 1, 2 and 5 times powers of ten."""
    result, _ = found
    first = result.sets[0].rows[0]
    rows = tuple(replace(first, measured_s=time, predicted_s=time, reason="") for time in (low, low * ratio))
    axis = scatter_picture(replace(result.sets[0], rows=rows)).x
    within = [value for value, _ in axis.ticks if low / 1.15 <= value <= low * ratio * 1.15]
    assert 2 <= len(within) <= 8
    units = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
    for value, text in axis.ticks:
        number, unit = text.split()
        assert units.get(unit, 1e-9) * float(number) == pytest.approx(value, rel=1e-3)
