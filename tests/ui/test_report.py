"""Pages as a phone, a keyboard and a reader in the dark have them; their figures are those of the files beside."""

import re
from pathlib import Path

import pytest

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


def test_every_picture_is_drawn_once_whatever_the_width(page, report: str) -> None:
    shown = '[...document.querySelectorAll(".drawing")].filter(item => item.checkVisibility())'
    for width in (390, 1280):
        page.set_viewport_size({"width": width, "height": 900})
        page.goto(report, wait_until="load")
        counts = page.evaluate(
            f"{shown}.map(item => [...item.querySelectorAll('svg')].filter(each => each.checkVisibility()).length)"
        )
        assert set(counts) == {1}


def test_a_pointer_over_a_mark_shows_what_it_is(page, searched) -> None:
    page.goto(searched[0].as_uri(), wait_until="load")
    mark = page.locator("#plot-area_throughput .wide use[data-tip]").first
    mark.scroll_into_view_if_needed()
    mark.hover(force=True)
    assert page.locator("#tip").inner_text().split() == (mark.get_attribute("data-tip") or "").split()


def test_a_choice_of_bands_shows_and_hides_them(page, report: str) -> None:
    page.goto(report, wait_until="load")
    chooser = page.locator("select.views").first
    plot = f"#{chooser.get_attribute('data-for')}"
    shown = "filter(each => each.style.display !== 'none')"
    count = f"[...document.querySelectorAll('{plot} .wide [data-layer]')].{shown}.length"
    before = page.evaluate(count)
    chooser.select_option(label="no bands")
    assert page.evaluate(count) < before


LENGTHS_OF_BARS = """
name => {
  const rows = {};
  for (const bar of document.querySelectorAll(`#plot-${name} .wide path[data-tip]`)) {
    const box = bar.getBBox();
    const row = Math.round(box.y);
    rows[row] = (rows[row] ?? 0) + box.width;
  }
  return Object.entries(rows).sort((one, other) => one[0] - other[0]).map(each => each[1]);
}
"""


def test_numbers_and_bars_of_a_search_are_those_of_its_line_of_json(page, searched) -> None:
    path, line = searched
    page.goto(path.as_uri(), wait_until="load")
    best, cost = line["best"], line["cost"]
    rate, area, watts, usd = page.locator("#answer tbody tr").first.locator("td").all_inner_texts()[:4]
    assert float(rate.replace(",", "")) == pytest.approx(best["throughput_samples_per_s"], rel=5e-3)
    assert float(area.replace(",", "")) == pytest.approx(best["area_mm2"], rel=5e-3)
    assert float(watts.replace(",", "")) == pytest.approx(best["tdp_w"], rel=5e-3)
    assert float(usd.replace(",", "")) == pytest.approx(cost["device_usd"], rel=5e-3)
    first, *_, last = page.evaluate(LENGTHS_OF_BARS, "die_areas")
    areas = [row["area_mm2"] for row in (best, line["references"]["phaze-tpu-v4"])]
    assert first / last == pytest.approx(areas[0] / areas[1], rel=1e-3)
    drawn = {item.name for item in path.with_name("s-figures").iterdir()}
    assert {"area_throughput.svg", "floor_plan.png", "breakdown.svg", "die_powers.svg", "dollars.svg"} <= drawn


CUT_LETTERS = """
() => {
  const isCut = item => {
    const letters = item.getBoundingClientRect(), drawing = item.closest("svg").getBoundingClientRect();
    return letters.width > 0 && (letters.right > drawing.right + 6 || letters.left < drawing.left - 6);
  };
  return [...document.querySelectorAll(".drawing svg text")].filter(isCut).map(item => item.textContent);
}
"""
"""Texts of pictures that end beyond their drawing."""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_pages_fit_and_follow_the_scheme_of_the_reader(page, searched, report: str, scheme: str, width: int) -> None:
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": width, "height": 900})
    for address in (searched[0].as_uri(), report):
        page.goto(address, wait_until="load")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.evaluate(CUT_LETTERS) == []
        ground, ink = (
            sum(map(int, re.findall(r"\d+", page.evaluate(f"getComputedStyle(document.body).{name}"))[:3]))
            for name in ("backgroundColor", "color")
        )
        letters = page.evaluate("getComputedStyle(document.querySelector('.drawing svg text')).fill")
        assert (ground < ink) == (scheme == "dark")
        assert (sum(map(int, re.findall(r"\d+", letters)[:3])) > 380) == (scheme == "dark")
