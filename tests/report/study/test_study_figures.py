"""Figures of a study hold the figures of its summary, and never rest on colour alone."""

from dataclasses import replace

import numpy as np
import pytest

from phaze_opt.objective.goals import Goal
from phaze_opt.objective.scenario import CommonMean
from phaze_opt.report.picture import Band, Boxes, Curve, Marks, contender_look
from phaze_opt.report.study import inputs as winners
from phaze_opt.report.study.cards import describe_value, metrics_table
from phaze_opt.report.study.inputs import all_of, best_of, front_of
from phaze_opt.report.study.page import describe_ranking, pareto_picture, ranking_picture, ranks_section
from phaze_opt.report.study.prices import describe_matrix, matrix_picture
from phaze_opt.report.study.regret_curves import (
    EFFORTS,
    FLOOR,
    band_views,
    describe_curves,
    effort_curves,
    regret_picture,
    summarise_curves,
)
from phaze_opt.report.study.wording import format_mean, format_p, format_percent, format_target, mean_name
from phaze_opt.study.scores import Ranking


def first_condition(inputs):
    return [cell for cell in inputs.summary.cells if cell.key.startswith(inputs.result.conditions[0].key)]


def test_curves_are_medians_and_quartiles_over_seeds(inputs) -> None:
    cells = first_condition(inputs)
    curves = summarise_curves(cells, inputs.contenders)
    assert [item.contender for item in curves] == list(inputs.contenders)
    for item in curves:
        rows = np.array([cell.curve for cell in cells if cell.contender == item.contender])
        assert item.num_cells == len(rows) == 5
        ordered = np.sort(rows, axis=0)
        assert np.array_equal(item.median, ordered[2])
        assert np.array_equal(item.low, ordered[1])
        assert np.array_equal(item.high, ordered[3])


def test_regret_by_effort_is_the_median_of_what_each_search_had_by_then(inputs) -> None:
    """At every amount spent, each search counted by hand."""
    cells = {cell.cell.key: cell for cell in inputs.result.cells}
    scores = [score for score in inputs.summary.cells if len(score.curve)]
    for _, _, spending in EFFORTS.values():
        for curve in effort_curves(scores, cells, inputs.contenders, spending):
            own = [(list(spending(each, cells[each.key])), each.curve) for each in scores
                   if each.contender == curve.contender]  # fmt: skip
            for at, median in zip(curve.spent, curve.median, strict=True):
                had = [([1.0] + [y for x, y in zip(xs, ys, strict=True) if x <= at])[-1] for xs, ys in own]
                assert median == pytest.approx(np.median(had), rel=1e-12)
            assert np.all(np.diff(curve.spent) > 0)


def test_probes_count_before_the_first_evaluation(inputs) -> None:
    _, _, looked_at = EFFORTS["looked-at"]
    cells = {cell.cell.key: cell for cell in inputs.result.cells}
    score = max(inputs.summary.cells, key=lambda each: each.probes)
    assert list(looked_at(score, cells[score.key]))[:2] == [score.probes + 1, score.probes + 2]


def test_a_search_that_ends_early_keeps_its_regret(inputs) -> None:
    long, short = first_condition(inputs)[:2]
    short = replace(short, curve=short.curve[:3])
    (item,) = summarise_curves([long, short], inputs.contenders)
    assert len(item.median) == len(long.curve)
    assert item.low[-1] == min(long.curve[-1], short.curve[-1])
    assert item.high[-1] == max(long.curve[-1], short.curve[-1])


def test_regret_figure_draws_the_median_where_it_moves(inputs) -> None:
    curves = summarise_curves(first_condition(inputs), inputs.contenders)
    figure = regret_picture(curves, inputs)
    assert figure.y.is_log
    for item in curves:
        line = next(each for each in figure.layers if isinstance(each, Curve) and each.name == item.contender)
        drawn = dict(zip(line.x, line.y, strict=True))
        last = None
        for number, value in enumerate(item.median, start=1):
            last = drawn.get(number, last)
            assert last == max(value, FLOOR)
        assert line.is_step
        assert max(line.x) == len(item.median)


def test_views_show_and_hide_bands_alone(inputs) -> None:
    curves = summarise_curves(first_condition(inputs), inputs.contenders)
    figure = regret_picture(curves, inputs)
    views = band_views(curves)
    assert [view.label for view in views] == ["all bands", "no bands"]
    for view in views:
        assert len(view.shown) <= len(figure.layers)
        assert all(view.shown[1::2])
    many = tuple(curves) * 2
    assert sum(band_views(many)[0].shown) == len(many) + 3
    hidden = [each.is_hidden for each in regret_picture(many, inputs).layers if isinstance(each, Band)]
    assert hidden == [not shown for shown in band_views(many)[0].shown[::2]]
    assert sum(hidden) == len(many) - 3


def test_curves_in_words_name_everyone_best_first(inputs) -> None:
    curves = summarise_curves(first_condition(inputs), inputs.contenders)
    words = describe_curves(curves, "here")
    ends = sorted((float(item.median[-1]), item.contender) for item in curves)
    places = [words.index(f"{name} {format_percent(value)}") for value, name in ends]
    assert places == sorted(places)


def test_looks_differ_by_more_than_colour() -> None:
    looks = [contender_look(index) for index in range(35)]
    assert len({(look.colour, look.dash) for look in looks}) == 35
    assert len({(look.colour, look.marker) for look in looks}) == 35
    assert all(one.dash != two.dash and one.marker != two.marker for one, two in zip(looks, looks[1:], strict=False))


def test_ranks_and_groups(inputs, snapshot) -> None:
    ranks, groups = (1.2, 1.8, 3.0), ((0, 1), (2, 2))
    ranking = Ranking(("tpe", "wham", "random"), ranks, 0.01, groups, num_conditions=8, num_blocks=8)
    figure = ranking_picture(ranking, inputs)
    marks = {each.hovers[0].partition("\n")[0]: each.x[0] for each in figure.layers if isinstance(each, Marks)}
    assert marks == {"tpe": 1.2, "wham": 1.8, "random": 3.0}
    (bar,) = [each for each in figure.layers if isinstance(each, Curve) and each.hovers]
    assert bar.y[0] < 0 < 1 < bar.y[1] < 2
    assert min(bar.x) > 3.0
    assert describe_ranking(ranking, 0.95) == snapshot


def test_one_condition_has_tests_over_seeds_but_no_ranks_over_conditions(make_inputs) -> None:
    one = ranks_section(make_inputs(models=("bert-large",), goals=(Goal.THROUGHPUT,)))
    kinds = [type(block).__name__ for block in one.blocks]
    assert "FigureBlock" not in kinds
    assert kinds[-1] == "Choice"


def bare_percent(loss: float) -> str:
    return "inf." if loss >= 1.0 else format_percent(max(0.0, loss)).removesuffix("\xa0%")


def test_heat_map_carries_every_loss(inputs) -> None:
    price = inputs.summary.prices[0]
    figure = matrix_picture(price)
    heat = next(each for each in figure.layers if isinstance(each, Boxes))
    expected = [[1.0 - share for share in row] for row in price.matrix]
    columns = len(price.models) + 1
    assert len(heat.words) == len(price.models) * columns
    shown = [[heat.words[row * columns + column] for column in range(columns)] for row in range(len(price.models))]
    assert [row[:-1] for row in shown] == [[bare_percent(loss) for loss in row] for row in expected]
    assert [row[-1] for row in shown] == [bare_percent(1.0 - share) for share in price.common[0].shares]
    words = describe_matrix(price)
    assert format_percent(max(max(row) for row in expected)) in words
    assert format_percent(price.common[0].price) in words
    assert format_percent(price.common[0].worst_price) in words


def test_winner_is_the_best_trial_of_the_better_contender(inputs) -> None:
    condition = inputs.result.conditions[0]
    best = best_of(inputs, condition)
    values = [t.values[0] for cell in inputs.cells_of(condition) for t in cell.trials if t.values]
    assert best.values[0] == max(values)
    assert best.contender not in best.also_found_by


def test_ties_go_to_the_better_contender_and_name_the_others(make_inputs) -> None:
    inputs = make_inputs(models=("bert-large",), goals=(Goal.THROUGHPUT,), seeds=(0,))
    first = inputs.result.cells[0]
    cells = tuple(replace(cell, trials=first.trials) for cell in reversed(inputs.result.cells))
    tied = replace(inputs, result=replace(inputs.result, cells=cells))
    best = best_of(tied, inputs.result.conditions[0])
    assert best.contender == inputs.summary.by_condition[0].contender == "wham"
    assert set(best.also_found_by) == {"tpe", "random"}


def test_energy_is_of_one_model_alone(inputs, snapshot) -> None:
    (evaluation, *_) = inputs.evaluations[inputs.result.conditions[0].key].values()
    names = [row[0] for row in metrics_table(evaluation).rows]
    both = replace(evaluation, members=(evaluation, evaluation))
    assert [names, [row[0] for row in metrics_table(both).rows]] == snapshot


def test_pareto_marks_the_front_by_contender(inputs) -> None:
    condition = next(c for c in inputs.result.conditions if c.goal is Goal.PARETO)
    front = front_of(inputs, condition)
    figure = pareto_picture(all_of(inputs, condition), front, inputs, condition.key)
    marked = {each.name: set(zip(each.x, each.y, strict=True)) for each in figure.layers if each.name}
    for item in front:
        assert (item.values[1], item.values[0]) in marked[item.contender]
    assert sum(len(places) for places in marked.values()) == len(front)


def test_the_front_does_not_depend_on_how_it_is_split(inputs, monkeypatch) -> None:
    condition = next(c for c in inputs.result.conditions if c.goal is Goal.PARETO)
    whole = front_of(inputs, condition)
    monkeypatch.setattr(winners, "PART", 7)
    assert front_of(inputs, condition) == whole
    assert len(whole) > 7


@pytest.mark.parametrize(
    ("share", "text"),
    [(0.0, "0 %"), (1.0, "100 %"), (0.1234, "12.3 %"), (0.09999, "10.0 %"), (0.01, "1.00 %"), (0.00042, "0.042 %"),
     (0.001, "0.10 %"), (2e-5, "0.002 %"), (1e-6, "< 0.001 %"), (12.0, "1,200 %")],
)  # fmt: skip
def test_percentages_stay_readable(share: float, text: str) -> None:
    assert format_percent(share) == text.replace(" ", "\xa0")


def test_other_figures_in_words(snapshot) -> None:
    assert format_target(0.001) == "0.1\xa0%"
    assert (format_p(0.0004), format_p(0.0316)) == ("<\xa00.001", "0.032")
    assert [format_mean(value) for value in (0.0, 3.0, 12.34, 1234.5)] == ["0", "3", "12.3", "1,234"]
    assert [mean_name(mean.value) for mean in CommonMean] == ["arithmetic mean", "geometric mean", "worst case"]
    goals = (Goal.THROUGHPUT_PER_TDP, 0.0000418), (Goal.PARETO, 1234.0)
    assert [describe_value(*each) for each in goals] == snapshot
