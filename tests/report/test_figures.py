"""Figures hold the data they claim to; pages are whole, fetch nothing and cannot be broken by names."""

import base64
import gzip
import itertools
import json
import math
import operator
import os
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import plotly.graph_objects as go
import pytest
from child_process import run_python

from phaze_opt.errors import InputError
from phaze_opt.hardware.constants import load_constants
from phaze_opt.hardware.networks import load_network
from phaze_opt.hardware.presets import load_architecture
from phaze_opt.hardware.silicon.die_report import die_of
from phaze_opt.hardware.silicon.silicon import silicon_of, with_die
from phaze_opt.report.figures import (
    area_front,
    area_throughput_figure,
    breakdown_figure,
    history_figure,
    parallel_coordinates_figure,
    pareto_figure,
    search_figures,
)
from phaze_opt.report.floor_plan import floor_plan, floor_plan_figure
from phaze_opt.report.image_files import render_images
from phaze_opt.report.page import CONTENT_POLICY, render_figure, write_report
from phaze_opt.report.search import search_document
from phaze_opt.report.style import (
    COLOURS,
    DARK_INKS,
    MUTED_COLOUR,
    REFERENCE_COLOUR,
    Frame,
    Mark,
    add_marks,
    figure_block,
)
from phaze_opt.search.result import SearchResult


def trace(figure, name: str):
    return next(item for item in figure.data if item.name == name)


def test_history_shows_every_trial_and_the_running_best(trials) -> None:
    figure = history_figure(trials, goal="throughput")
    feasible = [trial for trial in trials if trial.values]
    assert list(trace(figure, "trial").y) == [trial.values[0] for trial in feasible]
    assert len(trace(figure, "infeasible").x) == len(trials) - len(feasible)
    best = trace(figure, "best so far")
    assert list(best.y) == sorted(best.y)
    assert best.y[-1] == max(trial.values[0] for trial in feasible)
    assert best.x[-1] == trials[-1].number
    assert history_figure(trials, goal="throughput_per_tdp").layout.yaxis.title.text.endswith("samples/s/W")


def test_an_axis_is_logarithmic_only_where_a_quarter_of_the_trials_is_far_below_the_best(trials) -> None:
    feasible = [trial for trial in trials if trial.values]
    top = max(trial.values[0] for trial in feasible)

    def scale(values: list[float]) -> str | None:
        records = tuple(replace(feasible[index], values=(value,)) for index, value in enumerate(values))
        return history_figure(records, goal="throughput").layout.yaxis.type

    assert scale([top / 1000, top / 2, top / 2, top / 2, top]) is None
    assert scale([top / 1000, top / 1000, top / 2, top / 2, top]) == "log"


def test_history_without_a_feasible_trial(trials) -> None:
    infeasible = tuple(trial for trial in trials if not trial.values)
    figure = history_figure(infeasible, goal="throughput")
    assert len(trace(figure, "infeasible").x) == len(infeasible)
    assert set(search_figures(infeasible, goal="throughput", references={})) == {"history"}
    assert search_figures((), goal="throughput", references={}) == {}


def test_area_marks_the_best_and_both_references(trials, references) -> None:
    figure = area_throughput_figure(trials, references=references)
    best = max((t.evaluation for t in trials if t.values), key=lambda e: e.throughput_samples_per_s)
    assert trace(figure, "best").x == (best.area_mm2,)
    for name, reference in references.items():
        assert trace(figure, name).y == (reference.throughput_samples_per_s,)
    assert {note.text for note in figure.layout.annotations} == {"best", *references}
    narrow = figure.layout.meta["narrow"]["annotations"]
    assert {note["text"] for note in narrow} == {"best", *references}
    assert {(note["x"], note["y"]) for note in narrow} == {(note.x, note.y) for note in figure.layout.annotations}


def test_names_on_a_logarithmic_axis_stand_at_exponents() -> None:
    frame = Frame.around([(400.0, 2.0), (500.0, 2000.0)], is_log=True)
    figure = go.Figure()
    add_marks(figure, [Mark("far", 400.0, 1000.0, "diamond", 12, "#222222", "")], crowd=[(500.0, 2.0)], frame=frame)
    assert frame.px((frame.x[0], frame.y[0]), (640.0, 330.0)) == (0.0, 0.0)
    assert frame.px((frame.x[1], frame.y[1]), (640.0, 330.0)) == pytest.approx((640.0, 330.0))
    assert figure.layout.annotations[0].y == pytest.approx(3.0)
    assert figure.layout.yaxis.range == pytest.approx([math.log10(end) for end in frame.y])


def test_the_content_policy_lets_parallel_coordinates_compile_code(snapshot) -> None:
    assert snapshot == CONTENT_POLICY


def test_parallel_coordinates_have_one_line_per_feasible_trial_best_drawn_last(trials) -> None:
    (lines,) = parallel_coordinates_figure(trials).data
    feasible = [trial for trial in trials if trial.values]
    axes = {dimension.label: dimension for dimension in lines.dimensions}
    rates = list(axes["samples/s"].values)
    assert rates == sorted(trial.values[0] for trial in feasible)
    assert set(axes["width"].ticktext) == {str(trial.point.tc_width) for trial in feasible}
    assert "GLB, MB" in axes


def test_pareto_rings_the_front(trials) -> None:
    feasible = [trial for trial in trials if trial.values]
    figure = pareto_figure(trials, front=feasible[:3])
    assert list(trace(figure, "Pareto front").x) == [trial.evaluation.tdp_w for trial in feasible[:3]]


def test_bars_of_a_design_sum_to_its_iteration_time(result: SearchResult, references) -> None:
    figure = breakdown_figure({"best": result.best, **references})
    totals = [sum(bar.x[index] for bar in figure.data) for index in range(3)]
    times = [result.best.iteration_time_s, *(reference.iteration_time_s for reference in references.values())]
    assert totals == pytest.approx(times, rel=1e-12)


def unpacked(text: str) -> bytes:
    return gzip.decompress(base64.b64decode(text))


def test_a_report_is_self_contained(tmp_path: Path, result: SearchResult, references) -> None:
    document = search_document(
        result, title="bert-large, <tpe> & co", goal="throughput", references=references, space_size=352_320
    )
    paths = write_report(tmp_path / "search.html", document)
    assert list(paths)[0] == "search.html"
    drawn = {"history", "area_throughput", "breakdown"}
    assert set(paths) - {"search.html"} == {f"search-figures/{name}.{end}" for name in drawn for end in ("svg", "png")}
    assert all(path == tmp_path / name and path.is_file() for name, path in paths.items())
    page = paths["search.html"].read_text(encoding="utf-8")
    assert "&lt;tpe&gt; &amp;" in page
    assert not re.search(r"""(src|href)\s*=\s*["'](?!#)""", page)
    for title in ("Design", "Performance", "What is certified, and what is not"):
        assert f"<caption><span>{title}</span></caption>" in page
    packed = re.search(r'id="plotly">([^<]+)<', page)
    assert b"Plotly" in unpacked(packed[1])[-3_000_000:]
    figures = [unpacked(text) for text in re.findall(r'<script type="text/plain" id="data-[^"]+">([^<]+)<', page)]
    assert len(figures) == len(drawn) + 1, "parallel coordinates stand on the page alone"
    assert all({"data", "layout"} <= set(json.loads(figure)) for figure in figures)


def test_a_narrow_page_has_legends_below_figures_and_room_for_many_axes(trials, result, references) -> None:
    bars = figure_block("breakdown", breakdown_figure({"best": result.best, **references}))
    layout = bars.figure.layout
    narrow, num_bars = layout.meta["narrow"], len(bars.figure.data)
    assert bars.title
    assert layout.title.text is None
    assert narrow["height"] == layout.height + 22 * num_bars
    assert narrow["legend"]["yref"] == "container"
    lines = figure_block("lines", parallel_coordinates_figure(trials))
    assert lines.figure.layout.meta["narrow"]["width"] == 760


def test_names_cannot_end_the_script_that_carries_them(trials) -> None:
    figure = history_figure(trials[:3], goal="throughput")
    figure.update_layout(title="</script><script>alert(1)</script>")
    page = render_figure("page", "history", figure)
    assert "</script><script>alert" not in page


def test_pages_of_equal_results_are_equal(tmp_path: Path, result: SearchResult) -> None:
    texts = []
    for name in ("one", "two"):
        document = search_document(result, title="t", goal="throughput", references={})
        paths = write_report(tmp_path / name / "search.html", document)
        texts.append({key: path.read_bytes() for key, path in paths.items()})
    assert texts[0] == texts[1]


def test_an_unwritable_place_is_named(tmp_path: Path, result: SearchResult) -> None:
    (tmp_path / "file").write_text("")
    small = replace(result, trials=())
    with pytest.raises(InputError, match=str(tmp_path)):
        write_report(
            tmp_path / "file" / "search.html", search_document(small, title="t", goal="throughput", references={})
        )


def test_a_floor_plan_has_every_component_once_in_a_die_without_gaps_or_overlaps() -> None:
    constants = with_die(load_constants(), silicon_of(7, load_network("two-level", num_devices=8)))
    chip = "num_tc=6,num_vc=8,tc_width=128,tc_depth=128,glb_mb=8,glb_bytes_per_cycle=2048,hbm_stacks=2"
    die = die_of(load_architecture(chip, constants=constants), constants)
    placed = floor_plan(die)
    areas: dict[str, float] = {}
    for each in placed:
        areas[each.part.name] = areas.get(each.part.name, 0.0) + each.place.width * each.place.height
    assert areas == pytest.approx({part.name: part.value for part in die.areas if part.value > 0.0}, rel=1e-9)
    whole = sum(part.value for part in die.areas)
    right = max(each.place.x + each.place.width for each in placed)
    top = max(each.place.y + each.place.height for each in placed)
    assert right * top == pytest.approx(whole, rel=1e-9)
    for index, one in enumerate(placed):
        for other in placed[index + 1 :]:
            shared = min(one.place.x + one.place.width, other.place.x + other.place.width)
            shared -= max(one.place.x, other.place.x)
            both = min(one.place.y + one.place.height, other.place.y + other.place.height)
            both -= max(one.place.y, other.place.y)
            assert min(shared, both) < 1e-9, (one.part.name, other.part.name)

    figure = floor_plan_figure({"this design": die})
    labels = [note.text for note in figure.layout.annotations if "sup" not in note.text]
    assert len(labels) == len({re.split(r"<br>| (?=[\d.]+$)", label)[0] for label in labels}), "halves share a label"
    strip = next(each.place.height for each in placed if each.part.name == "hbm")
    assert strip < 2.0 < right
    assert any(re.fullmatch(r"HBM interfaces [\d.]+", label) for label in labels), "one line on a flat strip"


def test_inks_on_a_dark_ground_stand_out_and_apart() -> None:
    """WCAG's contrast of what is no text, and colours as far apart as CIE's L*a*b* of 1976 has neighbours on white."""
    dark = [DARK_INKS.get(colour, colour) for colour in COLOURS]
    for colour in (*dark, DARK_INKS[REFERENCE_COLOUR], DARK_INKS[MUTED_COLOUR]):
        assert (luminance(colour) + 0.05) / (luminance("#16181C") + 0.05) > 3.0, colour
    for one, other in itertools.combinations(dark, 2):
        assert math.dist(lightness_and_hue(one), lightness_and_hue(other)) > 20.0, (one, other)


def linear(colour: str) -> list[float]:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    return [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]


def luminance(colour: str) -> float:
    return sum(map(operator.mul, (0.2126, 0.7152, 0.0722), linear(colour)))


def lightness_and_hue(colour: str) -> tuple[float, float, float]:
    red, green, blue = linear(colour)
    x = (0.4124 * red + 0.3576 * green + 0.1805 * blue) / 0.9505
    z = (0.0193 * red + 0.1192 * green + 0.9505 * blue) / 1.089
    roots = [each ** (1 / 3) if each > 0.008856 else 7.787 * each + 16 / 116 for each in (x, luminance(colour), z)]
    return 116 * roots[1] - 16, 500 * (roots[0] - roots[1]), 200 * (roots[1] - roots[2])


def test_the_front_of_area_is_what_no_design_beats(trials) -> None:
    designs = [trial.evaluation for trial in trials if trial.values]

    def is_beaten(one) -> bool:
        return any(
            other.area_mm2 <= one.area_mm2
            and other.throughput_samples_per_s >= one.throughput_samples_per_s
            and (other.area_mm2, other.throughput_samples_per_s) != (one.area_mm2, one.throughput_samples_per_s)
            for other in designs
        )

    kept = {(each.area_mm2, each.throughput_samples_per_s) for each in designs if not is_beaten(each)}
    assert {(each.area_mm2, each.throughput_samples_per_s) for each in area_front(designs)} == kept
    assert 1 < len(kept) < len(designs)


def test_drawings_have_the_words_of_their_figures_and_are_files_of_their_kind(result, references) -> None:
    figure = breakdown_figure({"best & <first>": result.best, **references})
    files = render_images("breakdown", figure, "Where it goes")
    svg = files["breakdown.svg"].decode()
    assert set(files) == {"breakdown.svg", "breakdown.png"}
    assert files["breakdown.png"].startswith(b"\x89PNG")
    items = [item for item in ElementTree.fromstring(svg).iter() if item.tag.endswith("text")]
    words = {"".join(item.itertext()).strip() for item in items}
    names = {bar.name for bar in figure.data}
    assert {"Where it goes", "best & <first>", "phaze-tpu-v4", "seconds an iteration"} | names <= words
    assert files == render_images("breakdown", figure, "Where it goes")
    lines = parallel_coordinates_figure(result.trials)
    assert render_images("lines", lines, "") == {}
    room = figure_block("lines", lines).figure.layout.meta["narrow"]["margin.r"]
    assert room > 3.5 * len(lines.data[0].dimensions[-1].label), "half the name of the last axis stands right of it"


def test_bars_of_a_drawing_are_as_long_as_what_they_show(result, references) -> None:
    """Ends of stacked bars, read back from the paths of the file: one scale from seconds to points fits all."""
    figure = breakdown_figure({"best": result.best, **references})
    svg = ElementTree.fromstring(render_images("breakdown", figure, "")["breakdown.svg"])
    ends = []
    for item in svg.iter():
        if item.tag.endswith("path") and "clip-path" in item.attrib and "stroke: #ffffff" in item.get("style", ""):
            xs = [float(number) for number in re.findall(r"[ML] ([\d.]+) ", item.get("d"))]
            ends.append((min(xs), max(xs)))
    widths = [value for bar in figure.data for value in bar.x]
    assert len(ends) == len(widths)
    scale = sum(end - begin for begin, end in ends) / sum(widths)
    assert [end - begin for begin, end in ends] == pytest.approx([scale * width for width in widths], abs=0.01)


def test_settings_of_the_working_folder_and_of_a_user_change_no_picture(tmp_path):
    """Some of matplotlib's start other programs."""
    draw = (
        "import plotly.graph_objects as go; from phaze_opt.report.image_files import render_images; "
        "import hashlib; files = render_images('one', go.Figure(go.Scatter(x=[1, 2], y=[3, 4])), ''); "
        "print([hashlib.sha256(each).hexdigest() for each in files.values()])"
    )
    drawn = []
    for text in ("", "text.usetex: True\naxes.facecolor: red\n"):
        (tmp_path / "matplotlibrc").write_text(text)
        home = tmp_path / "home" / "matplotlib"
        home.mkdir(parents=True, exist_ok=True)
        (home / "matplotlibrc").write_text(text.replace("text.usetex: True", ""))
        environment = {**os.environ, "MPLCONFIGDIR": str(home)}
        drawn.append(run_python("-c", draw, cwd=tmp_path, env=environment, check=True).stdout)
    assert drawn[0] == drawn[1]
    assert "[]" not in drawn[0]
