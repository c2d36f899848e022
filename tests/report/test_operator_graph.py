"""Graphs of layers: no line crosses an operator it does not belong to, all that is drawn is true, pages stay small."""

import re
from dataclasses import replace

import numpy as np
import pytest
from kits.profiles import profile_of, wide_profile

from phaze_opt.graph.operator import CoreType
from phaze_opt.report.drawing import svg_element
from phaze_opt.report.graph_page import (
    CORE_WORDS,
    MAX_DRAWN,
    MAX_ROWS,
    findings,
    graph_block,
    lanes_of,
    layer_table,
    operator_table,
    page_document,
)
from phaze_opt.report.page import render_html
from phaze_opt.report.picture import BEST_COLOUR, COLOURS, Curve, Marks, Words


@pytest.mark.parametrize("seed", range(40))
def test_a_lane_is_one_operators_until_its_last_reader(seed: int) -> None:
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 15))
    edges = [(a, b) for a in range(count) for b in range(a + 1, count) if rng.random() < 0.25]
    lanes = lanes_of(count, edges)
    for source, target in edges:
        for row in range(source + 1, target):
            assert lanes[row] != lanes[source], (source, target, row)
    alive = [{s for s, t in edges if s < row <= t} for row in range(count)]
    assert max(lanes) <= max(len(live) for live in alive), "no more lanes than results alive, and the operator's own"


def drawn_of(picture):
    """Colour, first line of what a pointer shows, and whether it is ringed, by row."""
    return {
        row: (marks.colour, hover.partition("\n")[0], place in marks.ringed)
        for marks in picture.layers
        if isinstance(marks, Marks)
        for place, (row, hover) in enumerate(zip(marks.y, marks.hovers, strict=True))
    }


@pytest.mark.parametrize(("name", "t"), [("bert-large", 4), ("tests/traced_models/resnet18.json", 1)])
def test_every_operator_is_drawn_once_in_the_colour_of_its_core(name: str, t: int) -> None:
    colours = {CoreType.TC: COLOURS[0], CoreType.VC: COLOURS[1], CoreType.TC_AND_VC: COLOURS[2]}
    colours[CoreType.NETWORK] = COLOURS[3]
    for layer in profile_of(name, t).layers:
        phases = [phase for phase in (layer.forward, layer.backward) if phase.operators]
        for phase, block in zip(phases, graph_block(layer, name="layer").blocks, strict=True):
            each = [profile.operator for profile in phase.operators]
            drawn = drawn_of(block.picture)
            assert drawn == {
                row: (colours.get(one.core_type, "#999999"), one.name, row in phase.critical)
                for row, one in enumerate(each)
            }
            legend = {marks.name for marks in block.picture.layers if isinstance(marks, Marks)}
            assert legend == {CORE_WORDS[one.core_type] for one in each}


def lines_of(picture, colour: str):
    """Pairs of rows that lines of a colour join."""
    found = []
    for line in (each for each in picture.layers if isinstance(each, Curve) and each.colour == colour):
        found += [(line.y[at], line.y[at + 2]) for at in range(0, len(line.y), 4)]
    return found


def test_lines_are_the_edges_and_thick_ones_the_critical_path() -> None:
    layer = next(each for each in profile_of("bert-large", 4).layers if each.graph.name == "block")
    blocks = graph_block(layer, name="layer").blocks
    for phase, block in zip((layer.forward, layer.backward), blocks, strict=True):
        thick, thin = lines_of(block.picture, BEST_COLOUR), lines_of(block.picture, "#BBBBBB")
        assert sorted(thick + thin) == sorted(phase.graph.edges)
        assert sorted(thick) == sorted(phase.tight_edges)


def test_of_many_operators_the_heaviest_are_drawn_and_the_page_stays_small() -> None:
    profile = wide_profile(2000)
    phase = profile.layers[0].forward
    (block,) = graph_block(profile.layers[0], name="layer").blocks
    drawn = drawn_of(block.picture)
    assert len(drawn) == MAX_DRAWN
    heaviest = sorted((each.latency_s for each in phase.operators), reverse=True)[:MAX_DRAWN]
    names = [name for _, name, _ in drawn.values()]
    shown = [each.latency_s for each in phase.operators if each.operator.name in names]
    assert sorted(shown, reverse=True) == heaviest
    assert f"lines run through the other {2000 - MAX_DRAWN}" in block.alternative
    rows = operator_table(phase)
    assert (len(rows.rows), f"{2000 - MAX_ROWS} others" in rows.note) == (MAX_ROWS, True)
    assert len(render_html(page_document(profile))) < 400_000


def test_the_page_says_what_the_profile_says() -> None:
    profile = profile_of("bert-large", 4)
    page = render_html(page_document(profile))
    assert "336,226,108 parameters" in page
    assert "block (24 times)" in page
    assert "//" not in re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)
    rows = {row[0]: row for row in layer_table(profile).rows}
    assert [rows[name][1] for name in ("embedding", "block", "head", "all layers")] == ["1", "24", "1", "26"]
    assert rows["all layers"][2] == f"{profile.num_operators:,}"
    assert f"{profile.num_parameters:,} on each of 4 devices" in findings(profile)[0]


def test_a_name_is_no_markup() -> None:
    layer = profile_of("bert-large", 4).layers[1]
    first = layer.forward.operators[0]
    named = replace(first, operator=replace(first.operator, name="<b>x</b><script>"))
    forward = replace(layer.forward, operators=(named, *layer.forward.operators[1:]))
    block = graph_block(replace(layer, forward=forward), name="layer").blocks[0]
    assert any("<script>" in each.text for each in block.picture.layers if isinstance(each, Words))
    assert "<script" not in svg_element("graph", block.picture)
