"""The page of a study: whole, offline, safe, and with words for every figure."""

import re
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from phaze_opt.errors import InputError
from phaze_opt.objective.goals import Goal
from phaze_opt.report.document import Choice, Folded, Paragraph, ReportDocument, all_blocks, figures_of
from phaze_opt.report.page import render_html, render_markdown, render_prose
from phaze_opt.report.study.page import build_document, write_study_report
from phaze_opt.report.study.plan_section import notices, plan_table
from phaze_opt.report.study.wording import format_percent
from phaze_opt.study.config import Budget

VOID = {"meta", "link", "br", "img", "input", "hr"}
ATTACK = '"><img src=x onerror=alert(1)><script>alert(2)</script><a href="https://evil.example">x</a>'


class Page(HTMLParser):
    """Elements with their attributes and the text of cells, as a browser would have them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, str] = {}
        self.rows: list[list[str]] = []
        self._open: list[tuple[str, str | None]] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.elements.append((tag, attributes))
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
        if tag not in VOID:
            self._open.append((tag, attributes.get("id")))

    def handle_endtag(self, tag):
        assert self._open.pop()[0] == tag

    def handle_data(self, data):
        for tag, name in self._open:
            if name:
                self.texts[name] = self.texts.get(name, "") + data
            if tag in ("td", "th"):
                self.rows[-1][-1] += data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.fixture(scope="module")
def text(inputs) -> str:
    return render_html(build_document(inputs))


@pytest.fixture(scope="module")
def page(text) -> Page:
    return Page(text)


def test_nothing_is_fetched(page, text) -> None:
    assert not page.all("link")
    assert not page.all("img")
    assert not page.all("iframe")
    assert not [script for script in page.all("script") if "src" in script]
    assert not re.search(r"@import|url\((?!#)", text)
    policy = next(meta["content"] for meta in page.all("meta") if "http-equiv" in meta)
    assert "default-src 'none'" in policy
    assert "http" not in policy


def test_every_figure_has_a_title_and_words_and_its_data(page, inputs) -> None:
    plots = [item for item in page.all("div") if item.get("class") == "drawing"]
    expected = list(figures_of(all_blocks(build_document(inputs))))
    assert len(plots) == len(expected) > 5
    for plot, block in zip(plots, expected, strict=True):
        assert plot["role"] == "img"
        assert page.texts[plot["aria-labelledby"]] == block.picture.title
        assert page.texts[plot["aria-describedby"]] == block.alternative
        assert len(block.alternative) > 40
    assert len(plots) < len(page.all("svg")) <= 2 * len(plots)


def test_names_of_elements_are_unique_and_references_resolve(page) -> None:
    ids = Counter(attributes["id"] for _, attributes in page.elements if "id" in attributes)
    assert max(ids.values()) == 1
    for _, attributes in page.elements:
        for key in ("aria-labelledby", "aria-describedby", "for", "data-for"):
            assert key not in attributes or attributes[key] in ids
    local = [item["href"][1:] for item in page.all("a") if (item["href"] or "").startswith("#")]
    assert {"main", "contenders", "curves", "ranks", "generality", "pareto", "designs", "plan"} == set(local)
    assert set(local) <= set(ids)


def test_structure_serves_keyboard_and_reader(page) -> None:
    assert page.all("html")[0]["lang"] == "en"
    tags = [tag for tag, _ in page.elements]
    assert page.all("a")[0]["class"] == "skip"
    assert tags.count("h1") == 1
    levels = [int(tag[1]) for tag in tags if re.fullmatch(r"h[1-6]", tag)]
    assert all(after <= before + 1 for before, after in zip(levels, levels[1:], strict=False))
    assert tags.count("caption") == tags.count("table")
    boxes = [item for item in page.all("div") if item.get("class") == "scroll"]
    assert len(boxes) == tags.count("table")
    assert all(box["tabindex"] == "0" and box["role"] == "region" and box["aria-label"] for box in boxes)
    assert all(cell.get("scope") in ("row", "col") for cell in page.all("th"))


def test_contenders_on_the_page_are_those_of_the_summary(page, inputs) -> None:
    for score in (*inputs.summary.contenders, *inputs.summary.by_condition):
        interval = f"{format_percent(score.low_regret)} to {format_percent(score.high_regret)}"
        (*_, searches) = row = next(
            row for row in page.rows if row[0] == score.contender and interval in row
            and row[3] == format_percent(score.mean_regret)
        )  # fmt: skip
        assert row[2] == format_percent(score.median_regret)
        assert row[5] == format_percent(score.mean_area_under_curve)
        assert searches == str(score.num_cells)
    assert page.texts["contenders"].index("wham") < page.texts["contenders"].index("random")


def test_winners_name_their_search_and_trial(page, inputs) -> None:
    for condition in inputs.result.conditions:
        trials = [(c, t) for c in inputs.cells_of(condition) for t in c.trials if t.values]
        best = max(trial.values[0] for _, trial in trials)
        row = next(row for row in page.rows if row[0] == condition.key and len(row) == 7)
        cell, number = row[5].split(" trial ")
        found = next(c for c in inputs.result.cells if c.cell.key == cell).trials[int(number)]
        assert found.values[0] == best
        assert cell.startswith(condition.key)


def test_prices_on_the_page_are_those_of_the_summary(page, inputs) -> None:
    for price in inputs.summary.prices:
        for row, model in enumerate(price.models):
            losses = [format_percent(1.0 - share) for share in price.matrix[row]]
            assert any(line[0] == model and line[1 : 1 + len(losses)] == losses for line in page.rows)
    assert ["1", "arithmetic mean", *["2.50\xa0% (5.00\xa0%)"] * 2] in page.rows


def test_runs_are_named_where_known(make_inputs, snapshot) -> None:
    inputs = make_inputs(models=("bert-large",), goals=(Goal.THROUGHPUT,), seeds=(0, 1))
    first = inputs.result.cells[0].cell.key
    known = replace(inputs, run_ids={cell.cell.key: f"run-of-{cell.cell.seed}" for cell in inputs.result.cells})
    assert known.describe_run(first, 3) == snapshot
    assert "run-of-" in render_html(build_document(known))


def test_names_and_descriptions_cannot_inject(make_inputs) -> None:
    hostile = make_inputs(
        names=(f"wham{ATTACK}", "tpe"), goals=(Goal.THROUGHPUT,), description=f"{ATTACK}\n\n![x](https://picture.example/a.png)"
    )  # fmt: skip
    assert any(ATTACK in finding for finding in build_document(hostile).findings)
    text = render_html(build_document(hostile))
    page = Page(text)
    assert len(page.all("img")) == 0
    assert not any("onerror" in attributes for _, attributes in page.elements)
    assert not any("evil.example" in (item.get("href") or "") for item in page.all("a"))
    assert all(not item or set(item) <= {"type", "id"} for item in page.all("script"))
    assert any(ATTACK in row[0] for row in page.rows)
    markdown = render_markdown(build_document(hostile))
    quoted = [line for line in markdown.splitlines() if not line.startswith("    ")]
    assert not any(re.search(r"(?<!\\)<", line) for line in quoted)


def test_prose_renders_a_safe_part_of_markdown(snapshot) -> None:
    text = "# Head\n\n*a* `b` [c](https://d.example) [e](javascript:alert(1)) <i>f</i>\n\n| x |\n|---|\n| y |"
    assert render_prose(text) == snapshot


@pytest.mark.parametrize(
    "case",
    [
        {"seeds": (3,)},
        {"names": ("wham",)},
        {"models": ("bert-large",), "goals": (Goal.THROUGHPUT,)},
        {"is_feasible": False},
        {"num_missing": 6},
        {"num_missing": 3},
        {"budget": 1, "names": ("wham",), "seeds": (0,), "models": ("bert-large",), "goals": (Goal.PARETO,)},
        {"description": "  "},
    ],
    ids=["one seed", "one contender", "one condition", "infeasible", "nothing", "part", "one trial", "undescribed"],
)
def test_a_poor_study_still_has_a_readable_page(make_inputs, case) -> None:
    inputs = make_inputs(**{"models": ("bert-large",), "goals": (Goal.PARETO,), "seeds": (0, 1), **case})
    document = build_document(inputs)
    page = Page(render_html(document))
    assert page.texts["plan"].count("finished") >= 1
    assert "nan" not in page.texts["main"].lower().split()
    assert render_markdown(document).startswith("# ")


def sentences(document: ReportDocument) -> list[str]:
    """Paragraphs and headings of folds, also those under a choice."""
    found: list[str] = []
    blocks = [block for section in document.sections for block in section.blocks]
    while blocks:
        match blocks.pop(0):
            case Paragraph(text=text):
                found.append(text)
            case Folded(summary=title, blocks=inner):
                found.append(title)
                blocks = [*inner, *blocks]
            case Choice(options=options):
                blocks = [*(block for option in options for block in option.blocks), *blocks]
    return found


def test_what_is_missing_is_said(make_inputs, snapshot) -> None:
    inputs = make_inputs(num_missing=31)
    page = Page(render_html(build_document(inputs)))
    assert "pareto.gpt2-xl.random.2" in page.texts["main"]
    nothing = build_document(make_inputs(num_missing=60))
    assert [notices(inputs), plan_table(inputs).rows, *map(sentences, (build_document(inputs), nothing))] == snapshot
    assert not list(
        figures_of(block for section in nothing.sections for block in section.blocks if section.anchor == "curves")
    )


def test_what_is_infeasible_or_not_kept_is_said(inputs, make_inputs, snapshot) -> None:
    documents = build_document(make_inputs(is_feasible=False)), build_document(replace(inputs, evaluations={}))
    assert list(map(sentences, documents)) == snapshot


def test_seconds_are_for_use_not_for_claims(inputs, snapshot) -> None:
    config = replace(inputs.result.config, budget=Budget(60, seconds=30.0))
    timed = replace(inputs, result=replace(inputs.result, config=config))
    assert sorted(set(notices(timed)) - set(notices(inputs))) == snapshot


def test_all_files_are_written_beside_each_other(make_inputs, tmp_path: Path) -> None:
    inputs = make_inputs(goals=(Goal.PARETO,), seeds=(0, 1))
    paths = write_study_report(inputs, tmp_path / "out")
    assert next(iter(paths)) == "report.html"
    assert {"report.md", "contenders.tex", "report-figures/regret-by-looked-at.svg"} <= set(paths)
    written = {str(path.relative_to(tmp_path / "out")) for path in (tmp_path / "out").rglob("*") if path.is_file()}
    assert written == set(paths)
    page = Page(paths["report.html"].read_text(encoding="utf-8"))
    links = {item["href"] for item in page.all("a") if not (item["href"] or "").startswith("#")}
    assert links <= set(paths)
    again = write_study_report(inputs, tmp_path / "again")
    assert all(paths[name].read_bytes() == again[name].read_bytes() for name in paths)


def test_a_place_that_cannot_be_written_is_refused(inputs, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError) as caught:
        write_study_report(inputs, tmp_path / "file" / "out")
    assert str(tmp_path) in str(caught.value)
