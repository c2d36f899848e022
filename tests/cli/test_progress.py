"""A line a minute where standard error is no terminal: what is done, of how many, about how long left."""

import threading

import pytest

from phaze_opt.certify.result import CertifyStage, ProofMove
from phaze_opt.cli import output
from phaze_opt.cli import progress as module
from phaze_opt.cli.progress import MinuteLines, describe_duration, progress
from phaze_opt.objective.goals import Goal
from phaze_opt.record.progress import Progress
from phaze_opt.report.certificate import progress_words


def test_a_line_says_what_is_done_and_about_how_long_is_left():
    now = [100.0]
    lines = MinuteLines("search", clock=lambda: now[0])
    now[0] = 160.0
    assert lines.line() == "search: preparing; 1 min so far"
    lines.note(Progress("trials", 40, 100, "best 7.0"))
    assert "left" not in lines.line()  # those 40 were there before: nothing is known of the pace
    now[0] = 220.0
    lines.note(Progress("trials", 60, 100, "best 8.0"))
    assert lines.line() == "search: trials 60 of 100, best 8.0; 2 min so far, about 2 min of trials left"


def test_the_pace_is_that_of_the_stage_even_where_stages_alternate():
    now = [0.0]
    lines = MinuteLines("study s", clock=lambda: now[0])
    for step in range(4):
        now[0] = 10.0 * step
        lines.note(Progress("trials", 100, 100, ""))
        lines.note(Progress("true optima", step, 6, "gpt"))
    assert lines.line().endswith("30 s so far, about 30 s of true optima left")


def test_an_unknown_total_has_no_time_left():
    lines = MinuteLines("certify", clock=lambda: 0.0)
    lines.note(Progress("worlds", 3, None, ""))
    assert lines.line() == "certify: worlds 3; 0 s so far"


def test_a_proof_tells_time_left_only_where_pieces_are_alike():
    """Bounds are chunks of one size; of open points one solution settles thousands or none."""
    now, lines_of = [0.0], {}
    for stage, moves in {
        CertifyStage.BOUNDING: ((10, 0, 0), (20, 0, 0)),
        CertifyStage.COVERING: ((40, 1, 30), (40, 6, 0), (40, 6, 25)),
        CertifyStage.CLOSING: ((40, 10, 4000), (40, 20, 4500), (40, 60, 12)),
    }.items():
        lines, said = MinuteLines("certify", clock=lambda: now[0]), []
        for num_bounded, num_solved, num_open in moves:
            now[0] += 10.0
            known = (0.0, 0.0) if stage is CertifyStage.BOUNDING else (700.0, 770.0)
            moved = ProofMove(stage, num_bounded, 40, num_solved, num_open, *known, now[0])
            lines.note(progress_words(moved, Goal.THROUGHPUT))
            said.append(lines.line())
        lines_of[stage] = said
    assert lines_of[CertifyStage.BOUNDING][-1] == "certify: bounding 20 of 40; 20 s so far, about 20 s of bounding left"
    assert lines_of[CertifyStage.COVERING][-1].startswith("certify: covering 6 solved, 25 open, incumbent 700")
    assert lines_of[CertifyStage.CLOSING][1].startswith("certify: closing 20 solved, 4,500 open, incumbent 700")
    for stage in (CertifyStage.COVERING, CertifyStage.CLOSING):
        assert all(line.endswith("so far") for line in lines_of[stage])


def test_lines_are_printed_from_aside_until_the_block_ends(monkeypatch, capsys):
    """The main thread may sit in a solver for an hour without a call."""
    printed = threading.Event()
    monkeypatch.setattr(module, "PERIOD_S", 0.01)
    original = MinuteLines.line

    def line(lines):
        printed.set()
        return original(lines)

    monkeypatch.setattr(MinuteLines, "line", line)
    with progress("search", is_transient=True) as show:
        show(Progress("trials", 1, 3, "[/red]\x1b]0;PWN"))
        assert printed.wait(60)
    assert not capsys.readouterr().out


@pytest.mark.parametrize(
    ("seconds", "words"), [(59, "59 s"), (61, "1 min"), (7199, "120 min"), (7200, "2 h"), (3e5, "3 d")]
)
def test_durations_have_one_unit(seconds, words):
    assert describe_duration(seconds) == words


def test_elsewhere_than_on_a_terminal_slow_work_says_a_line_a_few_seconds(monkeypatch, capsys):
    now = [50.0]
    monkeypatch.setattr(output.time, "monotonic", lambda: now[0])
    with output.working("recording") as tell:
        for seconds, words in ((1, "first"), (4, "second"), (8, "third"), (11, "fourth")):
            now[0] = 50.0 + seconds
            tell(words)
    assert capsys.readouterr() == ("", "third\n")
    monkeypatch.setattr(output, "LINE_PERIOD_S", 3.0)
    with output.working("recording") as tell:
        now[0] += 3.0
        tell("fifth")
    assert capsys.readouterr().err == "fifth\n"
