"""Graphs of layers: no line crosses an operator it does not belong to, all that is drawn is true, pages stay small."""

import re
from dataclasses import replace

import numpy as np
import pytest
from kits.profiles import profile_of, wide_profile

from phaze_opt.graph.operator import CoreType
from phaze_opt.report.graph_page import MAX_ROWS, findings, layer_table, operator_table, page_document
from phaze_opt.report.operator_graph import CORE_WORDS, MAX_DRAWN, graph_block, lanes_of
from phaze_opt.report.page import render_html
from phaze_opt.report.style import BEST_COLOUR, COLOURS


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


def markers_of(figure):
    return [trace for trace in figure.data if trace.mode == "markers" and trace.hovertext is not None]


@pytest.mark.parametrize(("name", "t"), [("bert-large", 4), ("tests/traced_models/resnet18.json", 1)])
def test_every_operator_is_drawn_once_in_the_colour_of_its_core(name: str, t: int) -> None:
    colours = {CoreType.TC: COLOURS[0], CoreType.VC: COLOURS[1], CoreType.TC_AND_VC: COLOURS[2]}
    colours[CoreType.NETWORK] = COLOURS[3]
    for layer in profile_of(name, t).layers:
        figure = graph_block(layer, name="layer").figure
        phases = [phase for phase in (layer.forward, layer.backward) if phase.operators]
        for phase, trace in zip(phases, markers_of(figure), strict=True):
            each = [profile.operator for profile in phase.operators]
            assert [re.match("<b>(.*?)</b>", text)[1] for text in trace.hovertext] == [one.name for one in each]
            wanted = [colours.get(one.core_type, "#999999") for one in each]
            assert list(trace.marker.color) == wanted
            ringed = {row for row, width in enumerate(trace.marker.line.width) if width}
            assert ringed == set(phase.critical)
        legend = {trace.name for trace in figure.data if trace.name}
        assert legend - {"critical path"} == {CORE_WORDS[one.operator.core_type] for p in phases for one in p.operators}


def lines_of(figure, colour: str):
    """Pairs of rows that lines of a colour join."""
    found = []
    for trace in (trace for trace in figure.data if trace.mode == "lines" and trace.line.color == colour):
        if trace.y is not None:
            found += [(trace.y[at], trace.y[at + 2]) for at in range(0, len(trace.y), 4) if trace.y[at] is not None]
    return found


def test_lines_are_the_edges_and_thick_ones_the_critical_path() -> None:
    layer = next(each for each in profile_of("bert-large", 4).layers if each.graph.name == "block")
    figure = graph_block(layer, name="layer").figure
    thick, thin = lines_of(figure, BEST_COLOUR), lines_of(figure, "#BBBBBB")
    both = [*layer.forward.graph.edges, *layer.backward.graph.edges]
    assert sorted(thick + thin) == sorted(both)
    assert sorted(thick) == sorted([*layer.forward.tight_edges, *layer.backward.tight_edges])


def test_of_many_operators_the_heaviest_are_drawn_and_the_page_stays_small() -> None:
    profile = wide_profile(2000)
    phase = profile.layers[0].forward
    block = graph_block(profile.layers[0], name="layer")
    (drawn,) = markers_of(block.figure)
    assert len(drawn.x) == MAX_DRAWN
    heaviest = sorted((each.latency_s for each in phase.operators), reverse=True)[:MAX_DRAWN]
    names = [re.match("<b>(.*?)</b>", text)[1] for text in drawn.hovertext]
    shown = [each.latency_s for each in phase.operators if each.operator.name in names]
    assert sorted(shown, reverse=True) == heaviest
    assert f"lines run through the other {2000 - MAX_DRAWN}" in block.alternative
    rows = operator_table(phase)
    assert (len(rows.rows), f"{2000 - MAX_ROWS} others" in rows.note) == (MAX_ROWS, True)
    assert len(render_html(page_document(profile))) < 4_000_000


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
    figure = graph_block(replace(layer, forward=forward), name="layer").figure
    assert "&lt;script&gt;" in markers_of(figure)[0].hovertext[0]
    labels = [note.text for note in figure.layout.annotations]
    assert any("&lt;script&gt;" in text for text in labels)
    assert not any("<script" in text for text in labels)
