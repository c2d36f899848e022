"""Gantt charts: every core that an operator takes is drawn, and nothing is drawn outside the page."""

from rich.console import Console

from phaze_opt.graph.operator import CoreType
from phaze_opt.report.gantt import gantt_picture, text_gantt
from phaze_opt.report.picture import Boxes, Rule
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


def test_every_operator_has_a_box_and_a_spread_one_all_lanes() -> None:
    result = solve_schedule(PROBLEM)
    picture = gantt_picture(PROBLEM, result, labels=LABELS, title="three")
    boxes = [each for each in picture.layers if isinstance(each, Boxes)]
    drawn = {
        word: (left, left + width, height, each.is_hatched)
        for each in boxes
        for word, left, width, height in zip(each.words, each.left, each.width, each.height, strict=True)
    }
    assert drawn == {"first": (0.0, 4.0, 0.9, False), "second": (0.0, 4.0, 0.9, False), "last": (4.0, 8.0, 1.8, True)}
    (bound,) = [each for each in picture.layers if isinstance(each, Rule)]
    assert (bound.x, bound.words) == (result.lower_bound_s, "lower bound")
