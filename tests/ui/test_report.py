"""The page of a study, as a phone and a keyboard have it."""

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
