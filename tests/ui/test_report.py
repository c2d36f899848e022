"""The page of a study, as a phone and a keyboard have it."""

from __future__ import annotations

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
