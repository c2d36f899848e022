"""What a person sees of a finished study in MLflow's interface, without a click more than it takes to get there."""

import pytest

pytestmark = [pytest.mark.ui, pytest.mark.timeout(900)]

STRATEGIES = ("random", "tpe")
CELLS_BESIDE = """
name => {
  const cells = [...document.querySelectorAll(".ReactVirtualized__Grid__innerScrollContainer > *")];
  const head = cells.find(cell => cell.innerText.trim() === name);
  const y = cell => Math.round(cell.getBoundingClientRect().y);
  return cells.filter(cell => cell !== head && y(cell) === y(head)).map(cell => cell.innerText.trim());
}
"""
"""Texts in the line of the compare page's table that has this name."""


def row(page, name: str):
    """The row of the run list that holds a run of this name (its pinned part, with the expander)."""
    return page.locator(".ag-pinned-left-cols-container .ag-row, .ag-center-cols-container .ag-row").filter(
        has=page.get_by_role("link", name=name, exact=True)
    )


def expand(page, name: str) -> None:
    row(page, name).first.locator("button").filter(has=page.locator("svg")).last.click()


def link(page, name: str):
    return page.get_by_role("link", name=name, exact=True)


def test_the_list_of_experiments_has_the_study(page, server: str) -> None:
    page.goto(f"{server}/#/experiments?workflowType=machine_learning")
    link(page, "ui-check").first.wait_for()


def test_the_run_list_shows_study_strategy_seed_and_trial(page, experiment_url) -> None:
    page.goto(experiment_url())
    link(page, "ui-check").last.wait_for()
    for name in STRATEGIES:
        link(page, name).wait_for()  # the study's row is open at once
    assert link(page, "seed 0 bert-large tpe").count() == 0
    expand(page, "tpe")
    for workload in ("bert-large", "gpt2-xl"):
        for seed in (0, 1):
            link(page, f"seed {seed} {workload} tpe").wait_for()
    expand(page, "seed 0 bert-large tpe")
    for number in range(6):
        link(page, f"trial {number:04d}").wait_for()


def test_the_note_shows_the_description_and_links_to_views(page, experiment_url) -> None:
    page.goto(experiment_url())
    description = page.get_by_text("Does random search or TPE find the better design")
    description.wait_for()
    assert description.bounding_box()["height"] > 10
    with page.expect_popup() as opened:
        link(page, "strategies").click()
    view = opened.value
    view.get_by_text("You're viewing a shared view").wait_for()
    view.get_by_text("median_regret_pct").first.wait_for()


def test_the_view_of_strategies_has_their_regrets_in_columns(page, experiment_url) -> None:
    page.goto(experiment_url("&viewStateShareKey=strategies"))
    for name in STRATEGIES:
        link(page, name).wait_for()
    wanted = ["median_regret_pct", "mean_regret_pct", "mean_rank", "win_share"]
    places = []
    for name in wanted:
        header = page.get_by_role("columnheader", name=name).first
        header.wait_for()
        places.append(header.bounding_box()["x"])
    assert places == sorted(places)
    cells = page.locator('.ag-row [col-id="metrics.`median_regret_pct`"]')
    values = [float(text) for text in cells.all_inner_texts()]
    assert len(values) == len(STRATEGIES)
    assert values == sorted(values), "the best strategy comes first"


def test_comparing_strategies_shows_their_regret_side_by_side(page, experiment_url) -> None:
    page.goto(experiment_url())
    with page.expect_popup() as opened:
        link(page, "compare").click()
    page = opened.value
    page.get_by_text("Comparing 2 Runs").wait_for()
    link(page, "median_regret_pct").wait_for()
    values = page.evaluate(CELLS_BESIDE, "median_regret_pct")
    assert len(values) == len(STRATEGIES)
    assert all(0 <= float(value) <= 100 for value in values)
    page.locator(".parcoords").first.wait_for()


def test_the_charts_of_strategies_are_drawn(page, experiment_url) -> None:
    page.goto(experiment_url("&viewStateShareKey=strategies&compareRunsMode=CHART"))
    for name in ("median_regret_pct", "regret_curve_pct", "mean_rank"):
        page.get_by_text(name, exact=True).first.wait_for()
    page.locator(".barlayer .point").first.wait_for()
    page.locator(".scatterlayer .trace").first.wait_for()
    assert page.locator(".scatterlayer .trace").count() >= len(STRATEGIES)


def test_parallel_coordinates_of_trials_have_architecture_and_metrics(page, experiment_url) -> None:
    page.goto(experiment_url("&viewStateShareKey=trials&compareRunsMode=CHART"))
    page.locator(".parcoords").first.wait_for()
    axes = page.locator(".parcoords .axis-title, .parcoords .y-axis text, .parcoords text").all_text_contents()
    for name in ("num_tc", "glb_mb", "micro_batch", "tdp_w", "area_mm2"):
        assert any(name in axis for axis in axes), name


def test_the_view_by_workload_groups_seeds(page, experiment_url) -> None:
    page.goto(experiment_url("&viewStateShareKey=conditions"))
    groups = page.get_by_text("workload: ")
    groups.first.wait_for()
    names = set(groups.all_inner_texts())
    assert len(names) == 2 * len(STRATEGIES)
    assert any("gpt2-xl" in name and "tpe" in name for name in names)


def test_a_trial_has_params_metrics_and_status(page, experiment_url) -> None:
    page.goto(experiment_url("&viewStateShareKey=trials"))
    link(page, "trial 0000").first.click()
    for name in ("num_tc", "tc_width", "area_mm2", "tdp_w", "status"):
        page.get_by_text(name, exact=True).first.wait_for()
