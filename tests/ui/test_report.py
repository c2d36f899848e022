"""Pages as a phone, a keyboard and a reader in the dark have them; their figures are those of the files beside."""

import csv
import re
from pathlib import Path

import pytest

from phaze_opt.report.page import render_figure

pytestmark = [pytest.mark.ui, pytest.mark.timeout(900)]

PHONE = {"width": 375, "height": 812}
FOCUSABLE = "a[href], button, summary, [tabindex='0'], input, select"


@pytest.fixture(scope="session")
def report(study_dir: Path) -> str:
    (path,) = study_dir.glob("phaze-opt-studies/*/report/report.html")
    return path.as_uri()


def test_it_asks_nothing_of_the_network(page, report: str) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(report, wait_until="load")
    page.wait_for_timeout(1000)
    assert [url for url in asked if not url.startswith(("file:", "data:", "blob:"))] == []


def test_it_fits_a_phone(page, report: str) -> None:
    page.set_viewport_size(PHONE)
    page.goto(report, wait_until="load")
    page.wait_for_timeout(1000)
    width = page.evaluate("document.documentElement.scrollWidth")
    assert width <= PHONE["width"], f"the page is {width} px wide on a phone of {PHONE['width']} px"


def test_a_keyboard_reaches_what_can_be_used(page, report: str) -> None:
    page.goto(report, wait_until="load")
    visible = f'[...document.querySelectorAll("{FOCUSABLE}")].filter(item => item.checkVisibility())'
    count = page.evaluate(f"{visible}.length")
    assert count > 0
    seen = set()
    for _ in range(count + 5):
        page.keyboard.press("Tab")
        seen.add(page.evaluate(f"{visible}.indexOf(document.activeElement)"))
    assert seen >= set(range(count)), f"{count - len(seen & set(range(count)))} of {count} are out of reach"


def test_every_figure_is_drawn_on_paper_without_scrolling(page, report: str) -> None:
    page.goto(report, wait_until="load")
    page.wait_for_timeout(2500)
    visible = '[...document.querySelectorAll(".plot")].filter(item => item.offsetParent)'
    drawn = f"{visible}.filter(item => item.querySelector('.main-svg')).length"
    page.evaluate("addEventListener('beforeprint', () => { window.onPaper = [" + f"{visible}.length, {drawn}" + "]; })")
    page.pdf(format="A4")
    count, on_paper = page.evaluate("onPaper")
    assert on_paper == count > 0
    first = f"{visible}[0]"
    page.evaluate(f"{first}.scrollIntoView()")
    page.wait_for_timeout(1000)
    widths = page.evaluate(f"[{first}, {first}.querySelector('.main-svg')].map(item => item.clientWidth)")
    assert widths[0] == pytest.approx(widths[1], abs=2), "after printing a figure has the width of the page again"


def test_the_content_policy_lets_parallel_coordinates_draw(page, tmp_path: Path) -> None:
    """They compile code of their own; where that is refused, Plotly says that the browser has no WebGL."""
    from plotly.graph_objects import Figure, Parcoords

    lines = Figure(Parcoords(dimensions=[{"label": name, "values": [1, 2, 3]} for name in "ab"]))
    path = tmp_path / "page.html"
    path.write_text(render_figure("lines", "lines", lines), encoding="utf-8")
    page.goto(path.as_uri(), wait_until="load")
    page.locator(".parcoords").first.wait_for(state="attached")
    page.wait_for_timeout(1000)
    assert "WebGL is not supported" not in page.locator("body").inner_text()


SUM_OF_BARS = """
name => {
  const plot = document.getElementById(`plot-${name}`);
  const total = {};
  for (const bar of plot.data) bar.y.forEach((key, place) => { total[key] = (total[key] ?? 0) + bar.x[place]; });
  return total;
}
"""


def test_numbers_and_bars_of_a_search_are_those_of_its_line_of_json(page, searched) -> None:
    path, line = searched
    page.goto(path.as_uri(), wait_until="load")
    for name in ("die_areas", "die_powers", "dollars", "breakdown"):
        page.locator(f"#plot-{name}").scroll_into_view_if_needed()
        page.locator(f"#plot-{name} .main-svg").first.wait_for()
    best, cost = line["best"], line["cost"]
    rate, area, watts, usd = page.locator("#answer tbody tr").first.locator("td").all_inner_texts()[:4]
    assert float(rate.replace(",", "")) == pytest.approx(best["throughput_samples_per_s"], rel=5e-3)
    assert float(area.replace(",", "")) == pytest.approx(best["area_mm2"], rel=5e-3)
    assert float(watts.replace(",", "")) == pytest.approx(best["tdp_w"], rel=5e-3)
    assert float(usd.replace(",", "")) == pytest.approx(cost["device_usd"], rel=5e-3)
    sums = {name: page.evaluate(SUM_OF_BARS, name) for name in ("die_areas", "die_powers", "dollars", "breakdown")}
    assert sums["die_areas"]["this design"] == pytest.approx(best["area_mm2"], rel=1e-9)
    assert sums["die_powers"]["this design"] == pytest.approx(best["tdp_w"], rel=1e-9)
    assert sums["dollars"]["this design"] == pytest.approx(cost["tco_usd"] / 8, rel=1e-9)
    assert sums["breakdown"]["best design"] == pytest.approx(best["iteration_time_s"], rel=1e-9)
    drawn = {item.name for item in path.with_name("s-figures").iterdir()}
    assert {"area_throughput.svg", "floor_plan.png", "breakdown.svg", "die_powers.svg", "dollars.svg"} <= drawn


CUT_LETTERS = """
async () => {
  for (const plot of document.querySelectorAll(".plot")) {
    plot.scrollIntoView();
    for (let wait = 0; plot.offsetParent && !plot.querySelector(".main-svg") && wait < 100; wait += 1)
      await new Promise(done => setTimeout(done, 100));
  }
  const isCut = item => {
    const letters = item.getBoundingClientRect(), drawing = item.closest("svg").getBoundingClientRect();
    return letters.width > 0 && (letters.right > drawing.right + 2 || letters.left < drawing.left - 2);
  };
  return [...document.querySelectorAll(".plot svg text")].filter(isCut).map(item => item.textContent);
}
"""
"""Texts of figures that end beyond their drawing."""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_pages_fit_and_follow_the_scheme_of_the_reader(page, searched, report: str, scheme: str, width: int) -> None:
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": width, "height": 900})
    for address in (searched[0].as_uri(), report):
        page.goto(address, wait_until="load")
        page.locator(".plot .main-svg").first.wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.evaluate(CUT_LETTERS) == []
        ground, ink = (
            sum(map(int, re.findall(r"\d+", page.evaluate(f"getComputedStyle(document.body).{name}"))[:3]))
            for name in ("backgroundColor", "color")
        )
        letters = page.evaluate("getComputedStyle(document.querySelector('.plot .xtick text')).fill")
        assert (ground < ink) == (scheme == "dark")
        assert (sum(map(int, re.findall(r"\d+", letters)[:3])) > 380) == (scheme == "dark")


def test_the_panels_of_a_study_end_where_its_file_of_curves_does(page, report: str, study_dir: Path) -> None:
    page.goto(report, wait_until="load")
    page.locator("#plot-regret-by-looked-at .main-svg").first.wait_for()
    (path,) = study_dir.glob("phaze-opt-studies/*/report/curves.csv")
    rows = list(csv.DictReader(path.read_text().splitlines()))
    for name, column in (("evaluations", "evaluations"), ("time", "charged_s"), ("looked-at", "looked_at")):
        ends = page.evaluate(
            "name => Object.fromEntries(document.getElementById(name)._fullData.map("
            "line => [line.name, line.x[line.x.length - 1]]))",
            f"plot-regret-by-{name}",
        )
        for strategy, end in ends.items():
            largest = max(float(row[column]) for row in rows if row["contender"] == strategy)
            assert end == pytest.approx(largest, rel=1e-9)
