"""Gantt charts: every core that an operator takes is drawn, and nothing is drawn outside the page."""

from rich.console import Console

from phaze_opt.graph.operator import CoreType
from phaze_opt.report.gantt import gantt_figure, text_gantt
from phaze_opt.report.style import finish_figure
from phaze_opt.schedule.problem import Cores, ScheduleProblem
from phaze_opt.schedule.solve import solve_schedule

PROBLEM = ScheduleProblem(
    core_types=(CoreType.VC, CoreType.VC, CoreType.VC),
    one_core_s=(4.0, 4.0, 8.0),
    spread_s=(3.0, 3.0, 4.0),
    edges=((0, 2), (1, 2)),
    cores=Cores(1, 2),
)
LABELS = ("first", "second", "last")


def test_a_spread_operator_takes_every_lane_of_its_kind_on_the_terminal() -> None:
    result = solve_schedule(PROBLEM)
    assert result.is_spread == (False, False, True)
    screen = Console(width=80, record=True, file=None, color_system=None)
    with screen.capture() as capture:
        screen.print(text_gantt(PROBLEM, result, labels=LABELS, width=40))
    lanes = [line for line in capture.get().splitlines() if line.startswith("VC ")]
    assert len(lanes) == 2
    first, second = (lane.partition("VC ")[2][2:].strip() for lane in lanes)
    assert first.endswith("[last" + "#" * 15)
    assert second.endswith("#" * 20)
    assert all(len(lane) <= 80 for lane in lanes)


def test_the_lower_bounds_label_is_left_of_its_line_and_in_no_bar() -> None:
    result = solve_schedule(PROBLEM)
    figure = gantt_figure(PROBLEM, result, labels=LABELS, title="three")
    (label,) = figure.layout.annotations
    assert label.text == "lower bound"
    assert label.xanchor == "right"
    tops = [bar.y[0] + bar.width[0] / 2 for bar in figure.data if bar.y is not None and bar.y[0] is not None]
    assert label.y >= max(tops)


def test_hatched_bars_keep_their_colour() -> None:
    """Plotly replaces the colour of a hatched bar unless told to lay the lines over it."""
    figure = finish_figure(gantt_figure(PROBLEM, solve_schedule(PROBLEM), labels=LABELS, title=""), height=300)
    hatched = [trace for trace in figure.data if trace.marker.pattern.shape == "/"]
    assert hatched
    assert all(trace.marker.pattern.fillmode == "overlay" and trace.marker.color for trace in hatched)
