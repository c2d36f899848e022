"""Hand placements in reports: a row each, apart from the machines, and what does not fit says why."""

from __future__ import annotations

from dataclasses import replace

from rich.console import Console

from phaze_opt.objective.evaluation import Evaluation, EvaluationStatus
from phaze_opt.report.design import experts_table, performance_table
from phaze_opt.report.figures import search_figures
from phaze_opt.report.tables import search_contents, search_tables
from phaze_opt.search.result import SearchResult


def with_experts(references: dict[str, Evaluation]) -> dict[str, Evaluation]:
    machine = references["tpu-v4"]
    broken = replace(
        machine,
        status=EvaluationStatus.OUT_OF_MEMORY,
        reason="the stage of layers 0 to 3 needs 24 GiB; give devices more",
        throughput_samples_per_s=0.0,
        placement=None,
    )
    return {**references, "expert on tpu-v4": machine, "expert on nvdla-like": broken}


def test_every_hand_placement_is_a_row(result: SearchResult, references: dict[str, Evaluation]) -> None:
    everything = with_experts(references)
    (content,) = [
        each for each in search_contents(result, references=everything) if each.title.startswith("Hand placements")
    ]
    assert result.best is not None
    ratio = result.best.throughput_samples_per_s / references["tpu-v4"].throughput_samples_per_s
    assert [row[0] for row in content.rows] == ["tpu-v4", "nvdla-like"]
    assert content.rows[0][-1] == f"{ratio:.2f}x"
    assert content.rows[1][3:] == ("infeasible", "infeasible", "-")
    assert "expert on nvdla-like is infeasible: the stage of layers 0 to 3 needs 24 GiB" in content.note
    assert "give devices" not in content.note


def test_machines_keep_their_table_and_the_figures(result: SearchResult, references: dict[str, Evaluation]) -> None:
    everything = with_experts(references)
    assert result.best is not None
    assert performance_table(result.best, references=everything) == performance_table(
        result.best, references=references
    )
    figures = search_figures(result.trials, goal="throughput", references=everything, best=result.best)
    assert figures == search_figures(result.trials, goal="throughput", references=references, best=result.best)


def test_no_table_without_hand_placements(result: SearchResult, references: dict[str, Evaluation]) -> None:
    titles = [content.title for content in search_contents(result, references=references)]
    assert not [title for title in titles if "expert" in title]


def test_it_fits_the_terminal(result: SearchResult, references: dict[str, Evaluation]) -> None:
    console = Console(width=80, highlight=False)
    with console.capture() as capture:
        for table in search_tables(result, references=with_experts(references)):
            console.print(table)
    assert max(map(len, capture.get().splitlines())) <= 80
    assert "…" not in capture.get()
    assert experts_table(references["tpu-v4"], experts={}).rows == ()
