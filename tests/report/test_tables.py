"""Tables: every figure is the evaluation's, they fit 80 columns, and claims of proof hold."""

import math
from dataclasses import replace

import pytest
from rich.console import Console

from phaze_opt.hardware.presets import load_architecture
from phaze_opt.objective.evaluation import Evaluation, EvaluationStatus, TimeBreakdown
from phaze_opt.objective.goals import Goal, front_indices
from phaze_opt.objective.headline_range import SensitivityRow
from phaze_opt.report.design import (
    design_table,
    evaluation_contents,
    experts_table,
    limits_sentence,
    performance_table,
    placement_table,
    sensitivity_content,
    time_shares,
)
from phaze_opt.report.figures import search_pictures
from phaze_opt.report.search import best_records, own_contents, runners_up_table, search_contents, standing_table
from phaze_opt.report.table import DrawnTable, TableContent
from phaze_opt.report.text import format_capacity, format_gib
from phaze_opt.search.result import OwnBest, SearchResult, open_gap_of
from phaze_opt.study.result import Truth, TruthKind

SENSITIVITY = (
    SensitivityRow("", "", "nominal", 69420.0, 0.2, 2.5, 1.6),
    SensitivityRow("vector_cycles.softmax_forward", "4 cycles/element", "low", 72000.0, 0.2, 2.4, 1.5),
    SensitivityRow("vector_cycles.softmax_forward", "16 cycles/element", "high", 60000.0, 0.2, 2.9, 1.9),
    SensitivityRow("network.two_level.inner_bandwidth_bytes_per_s", "1e+11 B/s", "low", 69400.0, 0.2, 2.5, 1.6),
    SensitivityRow("network.two_level.inner_bandwidth_bytes_per_s", "9e+11 B/s", "high", 69430.0, 0.2, 2.5, 1.6),
    SensitivityRow("energy.hbm", "2.5 pJ/bit", "low", 69420.0, 0.3, 2.5, 1.6),
    SensitivityRow("energy.hbm", "10 pJ/bit", "high", 69420.0, 0.1, 2.5, 1.6),
    SensitivityRow("multicast", "ideal", "option", 69420.0, 0.2, 2.5, 1.6),
    SensitivityRow("fill_and_drain", "overlapped", "option", 90000.0, 0.2, 2.0, 1.0),
)


def cells(content: TableContent) -> str:
    return " | ".join(cell for row in content.rows for cell in row)


def drawn(contents, width: int) -> str:
    console = Console(width=width, highlight=False)
    with console.capture() as capture:
        for content in contents:
            console.print(DrawnTable(content))
    return capture.get()


def with_experts(references: dict[str, Evaluation]) -> dict[str, Evaluation]:
    machine = references["phaze-tpu-v4"]
    broken = replace(
        machine,
        status=EvaluationStatus.OUT_OF_MEMORY,
        reason="the stage of layers 0 to 3 needs 24 GiB; give devices more",
        throughput_samples_per_s=0.0,
        placement=None,
    )
    return {**references, "expert on phaze-tpu-v4": machine, "expert on nvdla-like": broken}


@pytest.mark.parametrize("width", [80, 120])
def test_tables_fit_the_terminal_without_losing_a_character(width: int, result: SearchResult, references) -> None:
    contents = [
        *search_contents(result, references=with_experts(references), space_size=352_320),
        *evaluation_contents(result.best, references=references),
        sensitivity_content(SENSITIVITY),
    ]
    text = drawn(contents, width)
    assert max(len(line) for line in text.splitlines()) <= width
    assert "…" not in text


def standing(result: SearchResult, **options) -> tuple[str, ...]:
    """What is said of the best design's place in the space."""
    return next(row[1:] for row in standing_table(result, **options).rows if "space" in row[0])


def test_a_machine_that_exists_is_told_from_a_design(result: SearchResult, snapshot) -> None:
    chip = load_architecture("h100")
    machines = (chip, load_architecture("tpu-v5e"))
    assert [design_table(replace(result.best, accelerator=machine)).note for machine in machines] == snapshot
    for design in (result.best.accelerator, load_architecture("phaze-tpu-v4"), replace(chip, num_tc=64)):
        assert design_table(replace(result.best, accelerator=design)).note == ""
    real = replace(result.best, accelerator=chip, unknown=("energy_per_iteration_j",))
    assert design_table(real).note == ""
    assert performance_table(real, references={}).note == "area and TDP as published"


def test_performance_is_the_evaluations_and_the_ratio_is_design_over_reference(result, references) -> None:
    best = result.best
    rates, ratios, *_ = (row[1:] for row in performance_table(best, references=references).rows)
    assert rates[0] == f"{best.throughput_samples_per_s:,.0f}"
    others = [other.throughput_samples_per_s for other in references.values()]
    assert ratios == ("", *(f"{best.throughput_samples_per_s / other:.2f}x" for other in others))


def test_an_infeasible_reference_is_said_and_not_divided_by(result: SearchResult, references) -> None:
    broken = replace(
        references["phaze-tpu-v4"],
        status=EvaluationStatus.OUT_OF_MEMORY,
        reason="layer 3 does not fit",
        throughput_samples_per_s=0.0,
    )
    content = performance_table(result.best, references={"phaze-tpu-v4": broken})
    assert "infeasible" in cells(content)
    assert broken.reason in content.note


def test_shares_sum_to_one_and_name_the_largest_first(result: SearchResult) -> None:
    shares = time_shares(result.best.breakdown)
    assert sum(share for _, _, share in shares) == pytest.approx(1.0, abs=1e-12)
    assert shares[0][0] == "tensor cores"
    assert all(share == 0 for _, _, share in time_shares(TimeBreakdown()))


def test_the_sentence_names_what_takes_most_time(result: SearchResult, snapshot) -> None:
    breakdowns = (
        TimeBreakdown(vector_cores_s=3, bubble_s=1),
        TimeBreakdown(bubble_s=3, update_s=1),
        TimeBreakdown(gradient_all_reduce_s=1),
    )
    assert [limits_sentence(replace(result.best, breakdown=breakdown)) for breakdown in breakdowns] == snapshot


def test_an_infeasible_design_is_told_with_its_reason(trials) -> None:
    infeasible = next(trial.evaluation for trial in trials if not trial.values)
    assert infeasible.reason in limits_sentence(infeasible)
    assert len(evaluation_contents(infeasible, references={})) == 1


def test_like_stages_share_a_row(result: SearchResult, snapshot) -> None:
    placement = result.best.placement
    stage = placement.stages[1]
    stages = tuple(replace(stage, first=7 * index, last=7 * index + 6) for index in range(4))
    content = placement_table(replace(placement, stages=stages))
    assert len(content.rows) == 1
    assert content.rows[0][:3] == snapshot
    assert len(placement_table(placement).rows) == 4


def test_the_estimator_is_named(result: SearchResult, snapshot) -> None:
    origin = result.best.provenance
    named = [replace(result.best, provenance=replace(origin, estimator=name)) for name in ("calibrated", "oracle")]
    tables = [standing_table(replace(result, best=best)) for best in (result.best, *named)]
    assert [table.rows[-1] for table in tables] == snapshot


def test_a_gap_is_bounded(result: SearchResult) -> None:
    schedules, plan = standing_table(result).rows[:2]
    assert schedules[:2] == ("operator schedules", "bounded")
    assert plan[:2] == ("placement", "bounded")
    assert f"{result.best.throughput_bound_samples_per_s:,.0f}" in plan[2]
    solved = standing_table(replace(result, best=_without_gaps(result.best))).rows
    assert [row[1] for row in solved[:2]] == ["proven", "proven"]


def test_what_open_schedules_leave_of_any_design_keeps_the_best_from_being_proven(result: SearchResult) -> None:
    """Of one goal the design with the highest bound counts, of several that of each which none beats at its bound."""
    assert standing(replace(result, open_gap=0.002), space_size=40)[0] == "bounded"
    best, other = best_records(result.trials)[:2]
    sure = replace(best, evaluation=_without_gaps(best.evaluation))
    rate = other.evaluation.throughput_samples_per_s
    near = replace(other, evaluation=replace(other.evaluation, throughput_bound_samples_per_s=2 * rate))
    for goal in (Goal.THROUGHPUT, Goal.THROUGHPUT_PER_JOULE):
        assert open_gap_of(goal, [sure], [sure]) == 0.0
    assert open_gap_of(Goal.THROUGHPUT, [sure], [sure, near]) == pytest.approx(2 * rate / best.values[0] - 1)
    assert open_gap_of(Goal.THROUGHPUT_PER_JOULE, [sure], [sure, near]) == math.inf
    front = [replace(each, values=(each.values[0], number)) for number, each in ((2.0, sure), (1.0, near))]
    assert open_gap_of(Goal.PARETO, front, front) == pytest.approx(1.0)


def test_what_is_known_of_the_space_is_said(result: SearchResult, snapshot) -> None:
    """A space is proven by evaluating it all, by pruning the rest safely, or by a certificate or an enumeration."""
    record = result.trials[result.best_number]
    best = record.values[0]
    certified = Truth(TruthKind.CERTIFIED, best, record.point)
    truths = (
        certified,
        replace(certified, gap=0.0004),
        replace(certified, kind=TruthKind.ENUMERATED),
        replace(certified, value=best / 0.97),
    )
    assert standing(replace(result, best=None), optimum=certified)[0] == "not proven"
    assert [
        standing(result, space_size=1000),
        standing(result, space_size=40),
        *(standing(result, space_size=1000, optimum=truth) for truth in truths),
        standing(replace(result, pruned=960, is_pruning_safe=True), space_size=1000),
        standing(replace(result, pruned=960, is_pruning_safe=False), space_size=1000),
        standing(replace(result, pruned=959, is_pruning_safe=True), space_size=1000),
    ] == snapshot


def _without_gaps(evaluation: Evaluation) -> Evaluation:
    solved = tuple(replace(item, lower_bound_s=item.makespan_s) for item in evaluation.schedules)
    rate = evaluation.throughput_samples_per_s
    return replace(evaluation, schedules=solved, throughput_bound_samples_per_s=rate)


def test_runners_up_are_the_best_distinct_trials(result: SearchResult) -> None:
    best = best_records(result.trials)
    rates = [record.values[0] for record in best]
    assert rates == sorted((t.values[0] for t in result.trials if t.values), reverse=True)[:5]
    repeated = (*result.trials, replace(best[0], number=99, is_repeat=True))
    assert best_records(repeated) == best


def test_several_objectives_show_their_front(result: SearchResult) -> None:
    pareto = [
        replace(t, values=(t.values[0], t.evaluation.tdp_w, t.evaluation.area_mm2)) for t in result.trials if t.values
    ]
    rows = front_indices([t.values for t in pareto], ("maximize", "minimize", "minimize"))
    front = tuple(sorted((pareto[row] for row in rows), key=lambda t: -t.values[0]))
    content = runners_up_table(replace(result, trials=tuple(pareto), pareto_front=front))
    assert content.title.startswith("Pareto front")
    assert content.rows[0][0] == str(front[0].number)


def test_nothing_feasible_still_gives_tables(result: SearchResult) -> None:
    nothing = replace(result, best=None, best_number=-1, trials=tuple(t for t in result.trials if not t.values))
    text = drawn(search_contents(nothing, references={}), 80)
    assert "over area" in text


def test_sensitivity_is_sorted_by_what_moves_most_and_joins_both_ends(snapshot) -> None:
    content = sensitivity_content(SENSITIVITY)
    assert (content.rows, content.note) == snapshot


def test_every_hand_placement_is_a_row(result: SearchResult, references, snapshot) -> None:
    everything = with_experts(references)
    (content,) = [
        each for each in search_contents(result, references=everything) if each.title.startswith("Hand placements")
    ]
    ratio = result.best.throughput_samples_per_s / references["phaze-tpu-v4"].throughput_samples_per_s
    assert [row[0] for row in content.rows] == ["phaze-tpu-v4", "nvdla-like"]
    assert content.rows[0][-1] == f"{ratio:.2f}x"
    assert content.rows[1][3:] == ("infeasible", "infeasible", "-")
    assert content.note == snapshot


def test_machines_keep_their_table_and_the_figures(result: SearchResult, references) -> None:
    everything = with_experts(references)
    assert performance_table(result.best, references=everything) == performance_table(
        result.best, references=references
    )
    figures = search_pictures(result.trials, goal="throughput", references=everything, best=result.best)
    assert figures == search_pictures(result.trials, goal="throughput", references=references, best=result.best)


def test_no_table_without_hand_placements(result: SearchResult, references) -> None:
    titles = [content.title for content in search_contents(result, references=references)]
    assert not [title for title in titles if "expert" in title]
    assert experts_table(references["phaze-tpu-v4"], experts={}).rows == ()


def test_own_best_chips_fit_a_narrow_terminal_each_in_a_line(result: SearchResult) -> None:
    """Two tables: what the chips give, and the chips."""
    best = replace(result.best, model="megatron-gpt2-72")
    point = result.trials[result.best_number].point
    own = OwnBest(best, point, replace(best, throughput_samples_per_s=2 * best.throughput_samples_per_s), 0.5, 12.0)
    contents = own_contents([own])
    assert [len(content.rows) for content in contents] == [1, 1]
    lines = drawn(contents, 80).splitlines()
    assert sum("megatron-gpt2-72" in line for line in lines) == 2
    for content in contents:
        assert any(all(cell in line for cell in content.rows[0]) for line in lines), "no cell is broken"
    assert "50.0" in contents[0].rows[0][3]


def test_what_is_held_is_in_gib_and_a_capacity_in_its_makers_gb() -> None:
    assert format_gib(80 * 2**30) == "80 GiB"
    assert format_capacity(80 * 2**30) == "80 GB"
