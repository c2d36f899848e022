"""Figures hold the data they claim to; pages are whole, fetch nothing and cannot be broken by names."""

import itertools
import math
import operator
import os
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from child_process import run_python

from phaze_opt.api.shown import Plot
from phaze_opt.errors import InputError
from phaze_opt.hardware.constants import load_constants
from phaze_opt.hardware.networks import load_network
from phaze_opt.hardware.presets import load_architecture
from phaze_opt.hardware.silicon.die_report import die_of
from phaze_opt.hardware.silicon.silicon import silicon_of, with_die
from phaze_opt.report.die import COMPONENTS
from phaze_opt.report.document import FigureBlock, ReportDocument, Section
from phaze_opt.report.drawing import image_files, svg_element
from phaze_opt.report.figures import (
    area_front,
    area_throughput_picture,
    breakdown_picture,
    history_picture,
    parallel_coordinates_picture,
    pareto_picture,
    search_pictures,
)
from phaze_opt.report.page import CONTENT_POLICY, render_html, write_report
from phaze_opt.report.picture import (
    COLOURS,
    DARK_INKS,
    GROUND_COLOUR,
    MUTED_COLOUR,
    REFERENCE_COLOUR,
    Curve,
    Marks,
    Picture,
    PlotAxis,
    Words,
)
from phaze_opt.report.pictures import floor_plan, floor_plan_picture
from phaze_opt.report.search import search_document
from phaze_opt.search.result import SearchResult


def layer(picture, name: str):
    return next(each for each in picture.layers if getattr(each, "name", "") == name)


def texts_of(svg: str) -> set[str]:
    items = [item for item in ElementTree.fromstring(svg).iter() if item.tag.endswith("text")]
    return {"".join(item.itertext()).strip() for item in items}


def test_history_shows_every_trial_and_the_running_best(trials) -> None:
    figure = history_picture(trials, goal="throughput")
    feasible = [trial for trial in trials if trial.values]
    assert list(layer(figure, "trial").y) == [trial.values[0] for trial in feasible]
    assert len(layer(figure, "infeasible").x) == len(trials) - len(feasible)
    best = layer(figure, "best so far")
    assert list(best.y) == sorted(best.y)
    assert best.y[-1] == max(trial.values[0] for trial in feasible)
    assert best.x[-1] == trials[-1].number
    assert history_picture(trials, goal="throughput_per_tdp").y.label.endswith("samples/s/W")


def test_an_axis_is_logarithmic_only_where_a_quarter_of_the_trials_is_far_below_the_best(trials) -> None:
    feasible = [trial for trial in trials if trial.values]
    top = max(trial.values[0] for trial in feasible)

    def is_log(values: list[float]) -> bool:
        records = tuple(replace(feasible[index], values=(value,)) for index, value in enumerate(values))
        return history_picture(records, goal="throughput").y.is_log

    assert not is_log([top / 1000, top / 2, top / 2, top / 2, top])
    assert is_log([top / 1000, top / 1000, top / 2, top / 2, top])


def test_history_without_a_feasible_trial(trials) -> None:
    infeasible = tuple(trial for trial in trials if not trial.values)
    figure = history_picture(infeasible, goal="throughput")
    assert len(layer(figure, "infeasible").x) == len(infeasible)
    assert set(search_pictures(infeasible, goal="throughput", references={})) == {"history"}
    assert search_pictures((), goal="throughput", references={}) == {}


def test_area_marks_the_best_and_both_references(trials, references) -> None:
    picture = area_throughput_picture(trials, references=references)
    best = max((t.evaluation for t in trials if t.values), key=lambda e: e.throughput_samples_per_s)
    named = {
        name: (x, y)
        for each in picture.layers
        if isinstance(each, Marks)
        for name, x, y in zip(each.labels, each.x, each.y, strict=False)
    }
    assert named.keys() == {"best", *references}
    assert named["best"] == (best.area_mm2, best.throughput_samples_per_s)
    for name, reference in references.items():
        assert named[name][1] == reference.throughput_samples_per_s
    for is_narrow in (False, True):
        assert named.keys() <= texts_of(svg_element("area", picture, is_narrow=is_narrow))


def test_the_content_policy(snapshot) -> None:
    assert snapshot == CONTENT_POLICY


def test_parallel_coordinates_have_one_line_per_feasible_trial_best_drawn_last(trials) -> None:
    picture = parallel_coordinates_picture(trials)
    feasible = [trial for trial in trials if trial.values]
    lines = [each for each in picture.layers if isinstance(each, Curve) and each.hovers]
    names = [label for _, label in picture.x.ticks]
    assert len(lines) == len(feasible)
    assert [each.y[-1] for each in lines] == sorted(each.y[-1] for each in lines)
    assert lines[-1].width > lines[0].width
    assert {"width", "GLB, MB", "samples/s"} <= set(names)
    place = names.index("width")
    widths = {trial.point.tc_width for trial in feasible}
    assert len({each.y[place] for each in lines}) == len(widths)
    ends = {each.text for each in picture.layers if isinstance(each, Words) and each.x == place}
    assert {float(end) for end in ends} == {min(widths), max(widths)}


def test_pareto_rings_the_front(trials) -> None:
    feasible = [trial for trial in trials if trial.values]
    figure = pareto_picture(trials, front=feasible[:3])
    assert list(layer(figure, "Pareto front").x) == [trial.evaluation.tdp_w for trial in feasible[:3]]


def test_bars_of_a_design_sum_to_its_iteration_time(result: SearchResult, references) -> None:
    figure = breakdown_picture({"best": result.best, **references})
    totals = [sum(bar.width[index] for bar in figure.layers) for index in range(3)]
    times = [result.best.iteration_time_s, *(reference.iteration_time_s for reference in references.values())]
    assert totals == pytest.approx(times, rel=1e-12)


def test_a_report_is_self_contained(tmp_path: Path, result: SearchResult, references) -> None:
    document = search_document(
        result, title="bert-large, <tpe> & co", goal="throughput", references=references, space_size=352_320
    )
    paths = write_report(tmp_path / "search.html", document)
    assert list(paths)[0] == "search.html"
    drawn = {"history", "area_throughput", "breakdown", "parallel_coordinates"}
    assert set(paths) - {"search.html"} == {f"search-figures/{name}.{end}" for name in drawn for end in ("svg", "png")}
    assert all(path == tmp_path / name and path.is_file() for name, path in paths.items())
    page = paths["search.html"].read_text(encoding="utf-8")
    assert "&lt;tpe&gt; &amp;" in page
    assert not re.search(r"""(src|href)\s*=\s*["'](?!#|data:image)""", page)
    for title in ("Design", "Performance", "What is certified, and what is not"):
        assert f"<caption><span>{title}</span></caption>" in page
    assert page.count("<svg ") == 2 * len(drawn), "wide and narrow"


def test_a_legend_takes_fewer_columns_on_a_narrow_page(result, references) -> None:
    picture = breakdown_picture({"best": result.best, **references})
    heights = []
    for is_narrow in (False, True):
        svg = ElementTree.fromstring(svg_element("bars", picture, is_narrow=is_narrow))
        heights.append(float(svg.get("viewBox").split()[3]))
    assert heights[1] > heights[0]


def test_names_are_text_on_a_page(trials) -> None:
    picture = replace(history_picture(trials[:3], goal="throughput"), title="</script><script>alert(1)</script>")
    block = FigureBlock("history", picture)
    page = render_html(ReportDocument("page", (Section("all", "", (block,)),)))
    assert "<script>alert" not in page


def test_what_a_pointer_shows_is_that_of_the_mark_under_it() -> None:
    hovers = ["one <&>", "two\nlines", "three"]
    marks = Marks([1.0, 2.0, 3.0], [3.0, 2.0, 1.0], symbol=("circle", "square", "circle"), hovers=hovers)
    picture = Picture("", (marks, Curve([1.0, 3.0], [1.0, 3.0], "line")), PlotAxis("x"), PlotAxis("y"))
    svg = ElementTree.fromstring(svg_element("marks", picture))
    tips = {item.get("data-tip"): item for item in svg.iter() if item.get("data-tip")}
    assert tips.keys() == {*hovers, "line"}
    left, middle, right = (float(tips[text].get("x")) for text in hovers)
    assert middle - left == pytest.approx(right - middle)
    assert {item.get("data-layer") for item in svg.iter() if item.get("data-layer")} == {"0", "1"}
    assert svg_element("marks", picture) == svg_element("marks", picture)


def test_inks_of_a_page_are_variables_and_those_of_a_file_are_colours(result, references) -> None:
    picture = breakdown_picture({"best": result.best, **references})
    page, files = svg_element("bars", picture), image_files("bars", picture)
    for ink in DARK_INKS:
        assert ink.lower() not in page.lower()
    assert REFERENCE_COLOUR.encode() in files["bars.svg"]


@pytest.mark.parametrize("ending", ["svg", "png", "pdf"])
def test_a_picture_is_saved_as_its_file_says(tmp_path: Path, trials, ending) -> None:
    path = Plot(history_picture(trials, goal="throughput")).save(tmp_path / f"a.{ending}")
    assert path.read_bytes()[:4] in (b"<?xm", b"\x89PNG", b"%PDF")
    with pytest.raises(InputError, match="no picture is drawn as"):
        Plot(history_picture(trials, goal="throughput")).save(tmp_path / "a.html")


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

    picture = floor_plan_picture({"this design": die})
    labels = [word for each in picture.layers if hasattr(each, "words") for word in each.words if word]
    assert len(labels) == len({part.name for part in die.areas if part.value > 0.0}), "halves share a label"
    strip = next(each.place.height for each in placed if each.part.name == "hbm")
    assert strip < 2.0 < right
    assert any(re.fullmatch(rf"{COMPONENTS['hbm']} [\d.]+", label) for label in labels), "one line on a flat strip"


def test_inks_on_a_dark_ground_stand_out_and_apart() -> None:
    """WCAG's contrast of what is no text, and colours as far apart as CIE's L*a*b* of 1976 has neighbours on white."""
    dark = [DARK_INKS.get(colour, colour) for colour in COLOURS]
    for colour in (*dark, DARK_INKS[REFERENCE_COLOUR], DARK_INKS[MUTED_COLOUR]):
        assert (luminance(colour) + 0.05) / (luminance(DARK_INKS[GROUND_COLOUR]) + 0.05) > 3.0, colour
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


def test_files_have_the_words_of_their_pictures_and_are_of_their_kind(result, references) -> None:
    picture = replace(breakdown_picture({"best & <first>": result.best, **references}), title="Where it goes")
    files = image_files("breakdown", picture)
    assert set(files) == {"breakdown.svg", "breakdown.png"}
    assert files["breakdown.png"].startswith(b"\x89PNG")
    names = {bar.name for bar in picture.layers}
    words = texts_of(files["breakdown.svg"].decode())
    assert {"Where it goes", "best & <first>", "phaze-tpu-v4", "seconds an iteration"} | names <= words
    assert files == image_files("breakdown", picture)


def test_bars_of_a_drawing_are_as_long_as_what_they_show(result, references) -> None:
    """Ends of stacked bars, read back from the paths of the page: one scale from seconds to points fits all."""
    picture = breakdown_picture({"best": result.best, **references})
    svg = ElementTree.fromstring(svg_element("breakdown", picture))
    drawn = {}
    for item in svg.iter():
        if item.get("data-tip"):
            xs = [float(number) for number in re.findall(r"[ML] ([\d.]+) ", item.get("d"))]
            drawn.setdefault(item.get("data-tip"), []).append(max(xs) - min(xs))
    lengths = [sum(each) for each in drawn.values()]
    widths = {}
    for bar in picture.layers:
        for words, width in zip(bar.hovers, bar.width, strict=True):
            widths[words] = widths.get(words, 0.0) + width
    scale = sum(lengths) / sum(widths.values())
    assert [sum(drawn[words]) for words in widths] == pytest.approx(
        [scale * width for width in widths.values()], abs=0.02
    )


def test_settings_of_the_working_folder_and_of_a_user_change_no_picture(tmp_path):
    """Some of matplotlib's start other programs."""
    draw = (
        "from phaze_opt.report.picture import Curve, Picture; from phaze_opt.report.drawing import image_files; "
        "import hashlib; files = image_files('one', Picture('', (Curve([1, 2], [3, 4]),))); "
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
