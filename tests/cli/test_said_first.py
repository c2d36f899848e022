"""What a command says first: two or three sentences, one table, how to see more; all of it on a small screen."""

import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pyarrow.parquet as pq
import pytest
from command_runs import printed, run_json
from sample_files import space_text

from phaze_opt.certify.check.check import check_certificate
from phaze_opt.objective.goals import PARETO_AXES, FrontAxis
from phaze_opt.objective.headline_range import HeadlineRange, RangePart, machine_error
from phaze_opt.objective.least_within import FrontMember, LeastDesign, LeastOf, choices_of
from phaze_opt.objective.priced_as import PriceSetting
from phaze_opt.report.answer import near_sentence, overturn_sentence
from phaze_opt.report.front import (
    FrontMachine,
    beside_sentences,
    front_figures,
    machines_to_json,
    shown_members,
    spans_words,
    trade_off_sentences,
)
from phaze_opt.report.least_within import NearBest, near_rows
from phaze_opt.report.text import numbers_apart
from phaze_opt.space.search_space import DesignPoint

SPACE = space_text(min_area_fraction=0.0, num_tc=[1, 2], num_vc=[1, 2], tc_width=[64], tc_depth=[64], glb_mb=[4])
LINES, WIDTH = 50, 80
COPIED = (
    "Megatron-LM: ",
    "This design again: ",
    "The best design again: ",
    "The fastest again: ",
    "The knee again: ",
    "  phaze-opt ",
    "The same as a page",
    "The certificate: ",
)
"""Beginnings of lines that stay whole, as they are copied."""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", str(WIDTH))
    (tmp_path / "space.toml").write_text(SPACE)
    return tmp_path


def fits(out):
    lines = out.splitlines()
    assert len(lines) <= LINES
    assert [line for line in lines if len(line.rstrip()) > WIDTH and not line.startswith(COPIED)] == []


JOB = "--model tiny --devices 8 --global-batch 16"
SEARCH = f"search {JOB} --space space.toml --trials 4 --strategy exhaustive --no-tracking --tp 1"


def test_a_search_says_what_to_build_how_much_better_and_its_range(folder, capsys):
    out = printed(SEARCH.split(), capsys)
    fits(out)
    answer = run_json([*SEARCH.split(), "--resume"], capsys)
    best = answer["best"]
    first, second, third = [line for line in " ".join(out.split("\n\n")[0].split()).split(". ")][:3]
    assert first.startswith("Build ")
    assert "8 of them train tiny at" in first
    assert f"{best['area_mm2']:,.0f} mm2" in first
    reference, other = answer["references"]  # pictures have the first beside the design, as the sentence does
    assert (reference["name"], other["name"]) == ("tpu-v4", "phaze-tpu-v4")
    assert f"{reference['ratio']:.2f} times the throughput" in second
    dollars = answer["cost"]["throughput_per_usd"] / answer["cost_references"]["tpu-v4"]["throughput_per_usd"]
    assert f"{dollars:.2f} times per dollar of tpu-v4" in second
    assert "proven to be the best of the space: all 4 designs were evaluated" in " ".join(out.split())
    assert third.startswith("It may be ")
    assert "This design again: --arch" in out
    assert "--details" in out
    assert "Hand placements" not in out
    more = printed([*SEARCH.split(), "--resume", "--details"], capsys)
    assert "What is certified, and what is not" in more
    assert "tiny is priced as" in more


def test_a_proof_says_what_to_build_and_that_it_is_proved(folder, capsys):
    own = "num_tc=1,num_vc=1,tc_width=64,tc_depth=64,glb_mb=4,hbm_gb=32"
    command = f"certify {JOB} --space space.toml --no-tracking --tp 1 --baseline H100,{own}"
    out = printed(command.split(), capsys)
    fits(out)
    text = " ".join(out.split())
    assert text.startswith("Build ")
    assert "814 mm2, 700 W" in text
    assert text.count("times the throughput") == 2
    assert re.search(r"proved(?: within 0.1 %)?: none of all 4 points", text)
    answer = run_json([*command.split(), "--resume"], capsys)
    for least in answer["least_within"]:
        assert f"{100 * least['within']:g} % {least['saving']}" in out
        amounts = {"mm2": least["area_mm2"], "W": least["tdp_w"], "USD": least["device_usd"]}
        assert least["amount"] == amounts[least["unit"]]


def front_of(*designs):
    """Designs of samples/s, mm2 and W."""
    point = DesignPoint(
        num_tc=1, num_vc=1, tc_width=64, tc_depth=64, vc_width=64, glb_bytes=4 << 20, hbm_bytes=32 << 30, micro_batch=1
    )
    return [
        FrontMember(number, replace(point, num_tc=number + 1), rate, {FrontAxis.AREA: area, FrontAxis.TDP: watts})
        for number, (rate, area, watts) in enumerate(designs)
    ]


def test_designs_of_a_front_are_named_by_what_they_are(folder):
    front = front_of(
        (100.0, 900.0, 500.0), (99.5, 850.0, 520.0), (96.0, 700.0, 300.0), (60.0, 200.0, 100.0), (9.0, 90.0, 90.0)
    )
    named = {each.words: each.member.number for each in choices_of(front, PARETO_AXES)}
    assert named == {
        "fastest": 0, "1 % smallest": 1, "1 % coolest": 0, "5 % smallest": 2, "5 % coolest": 2,
        "knee": 3, "smallest": 4, "coolest": 4,
    }  # fmt: skip
    ends, near, knee = trade_off_sentences(front, PARETO_AXES)
    assert re.search(r"^The fastest is 1 TC .*100 samples/s.*; the smallest and coolest is 5 TC .*9.00 samples/s", ends)
    assert near == (
        "Within 1 % of the fastest the smallest takes 850 mm2 and the coolest takes 500 W; "
        "within 5 % of the fastest the smallest takes 700 mm2 and the coolest takes 300 W."
    )
    assert knee.startswith("Its knee is 4 TC ")
    spans = "throughput (100 down to 9.00 samples/s), TDP (520 down to 90.0 W) and area (900 down to 90.0 mm2)"
    assert spans_words(front, PARETO_AXES) == spans
    long = front_of(*((1000.0 - n, 1000.0 - n * n, 900.0 - n) for n in range(30)))
    shown = [each.number for each in shown_members(long, PARETO_AXES)]
    assert len(shown) == 12
    assert shown == sorted(shown)
    assert {0, 29} < set(shown)
    # Without throughput nothing is fastest, and nothing near it.
    assert {each.words for each in choices_of(front, (FrontAxis.TDP, FrontAxis.AREA))} == {
        "knee",
        "smallest",
        "coolest",
    }


def test_a_searched_front_says_the_front_first_and_ranges_are_of_their_designs(folder, capsys):
    command = f"{SEARCH} --objective pareto"
    out = printed(command.split(), capsys)
    fits(out)
    text = " ".join(out.split())
    answer = run_json([*command.split(), "--resume"], capsys)
    count, rates = len(answer["pareto_front"]), [each["values"][0] for each in answer["pareto_front"]]
    assert text.startswith(
        f"Of 4 designs evaluated {count} designs are on the front of throughput ({max(rates):,.0f} down to"
    )
    assert "The fastest is" in text
    assert "Build " not in text
    choices = {name: each for each in answer["choices"] for name in each["names"]}
    assert choices["fastest"]["range"] == answer["range"]
    for name in ("fastest", "knee"):
        each = choices[name]
        trial = next(one for one in answer["pareto_front"] if one["number"] == each["number"])
        assert trial["values"][0] == each["throughput_samples_per_s"]
        error = machine_error()
        assert each["range"]["low"] <= each["throughput_samples_per_s"] / (1 + error) * (1 + 1e-12)
        assert f"The {name} again: --arch {each['arch']}" in out or choices["fastest"] is choices["knee"]


def test_a_proved_front_says_the_front_first(folder, capsys):
    command = f"certify {JOB} --space space.toml --no-tracking --tp 1 --objective throughput,tdp,area,cost"
    out = printed(command.split(), capsys)
    fits(out)
    answer = run_json([*command.split(), "--resume"], capsys)
    assert " ".join(out.split()).startswith("Proved within 0.1 %: of all 4 points ")
    table = pq.read_table(Path(answer["file"]) / "points.parquet").to_pydict()
    archs = {design["index"]: design["arch"] for design in answer["front"]}
    assert [arch for arch in table["arch"] if arch] == [archs[index] for index in sorted(archs)]
    assert {each["arch"] for each in answer["choices"]} <= set(archs.values())
    details = printed([*command.split(), "--resume", "--details"], capsys).splitlines()
    for each in answer["choices"]:  # whole lines, to be copied
        assert f"{each['number']}: --arch {each['arch']}" in details


def test_machines_stand_beside_a_front_in_what_is_known_of_them_and_names_cover_no_point():
    axes = (FrontAxis.THROUGHPUT, FrontAxis.TDP, FrontAxis.COST)
    front = [
        replace(each, amounts={**each.amounts, FrontAxis.COST: 10.0 * each.amounts[FrontAxis.AREA]})
        for each in front_of(*((100.0 * n**0.5, 20.0 * n, 15.0 * n) for n in range(1, 41)))
    ]
    machines = [
        FrontMachine("one", 450.0, {FrontAxis.TDP: 300.0, FrontAxis.COST: 6000.0}),
        FrontMachine("of unknown price", 451.0, {FrontAxis.TDP: 300.0}),
    ]
    said = dict(zip(("one", "other"), beside_sentences(front, axes, machines), strict=True))
    # 20 designs take 300 W or less, the fastest of them 100 sqrt(20); 450 samples/s need n = 21: 315 W, 4,200 USD.
    assert said["one"] == (
        "Beside one (450 samples/s, 300 W, 6,000 USD): at no more of each the front has 0.99 times its "
        "speed; at no less speed it takes as little as 1.05 times its W or 0.70 times its USD."
    )
    assert "(451 samples/s, 300 W): at no more of it " in said["other"]
    (alone,) = beside_sentences(front, axes, [FrontMachine("far", 1e4, {FrontAxis.TDP: 1.0, FrontAxis.COST: 1.0})])
    assert alone.endswith(": nothing on it takes as little; nothing on it is as fast.")
    assert beside_sentences(front, axes[1:], machines) == ()
    told = {each["name"]: each for each in machines_to_json(front, axes, machines)}
    assert told["one"]["times_speed"] == pytest.approx(100.0 * 20.0**0.5 / 450.0)
    assert told["one"]["times_taken"] == pytest.approx({"tdp_w": 315.0 / 300.0, "cost_usd": 4200.0 / 6000.0})
    assert "cost_usd" not in {**told["of unknown price"], **told["of unknown price"]["times_taken"]}
    (lone,) = machines_to_json(front, axes, [FrontMachine("far", 1e4, {FrontAxis.TDP: 1.0})])
    assert (lone["times_speed"], lone["times_taken"], lone["tdp_w"]) == (None, {}, 1.0)
    assert machines_to_json((), axes, machines) == []
    figures = front_figures(front, axes, machines)
    assert list(figures) == ["front", "front_cost"]
    named = {name: [note.text for note in figure.layout.annotations] for name, figure in figures.items()}
    assert named["front_cost"] == ["fastest", "knee", "cheapest", "one"]
    assert named["front"] == ["fastest", "knee", "coolest", "one", "of unknown price"]
    diamonds = {trace.name: trace.x for trace in figures["front_cost"].data if trace.marker.symbol == "diamond"}
    assert diamonds == {"one": (6000.0,)}
    for figure in figures.values():
        boxes = [box_of(note, figure) for note in figure.layout.annotations]
        crowd = [place_of(x, y, figure) for trace in figure.data for x, y in zip(trace.x, trace.y, strict=True)]
        assert not [box for box in boxes for x, y in crowd if box[0] < x < box[1] and box[2] < y < box[3]]
        assert not [
            (one, other)
            for place, one in enumerate(boxes)
            for other in boxes[:place]
            if one[0] < other[1] and other[0] < one[1] and one[2] < other[3] and other[2] < one[3]
        ]


def place_of(x, y, figure):
    """A point of a figure, px of a drawing 640 wide and 330 high."""
    (left, right), (low, high) = figure.layout.xaxis.range, figure.layout.yaxis.range
    return 640 * (x - left) / (right - left), 330 * (y - low) / (high - low)


def box_of(note, figure):
    """What a name of letters of 7 px covers."""
    x, y = place_of(note.x, note.y, figure)
    half = 3.5 * len(note.text)
    return x + note.ax - half, x + note.ax + half, y - note.ay - 8, y - note.ay + 8


@pytest.mark.parametrize("objective", ["throughput", "throughput,cost"])
def test_a_capex_that_no_die_keeps_to_is_proved_so(folder, capsys, objective):
    command = f"certify {JOB} --space space.toml --no-tracking --tp 1 --objective {objective} --max-capex-usd 1"
    line = run_json(command.split(), capsys, code=3)
    claim = check_certificate(Path(line["file"])).claim
    assert (claim.is_proved, claim.incumbent, line["is_proved"]) == (True, -1, True)


def test_a_common_design_has_means_that_are_called_means(folder, capsys):
    command = "search --models tiny,bert-large --common geometric --devices 8 --global-batch 16 --space space.toml"
    few = ["--trials", "2", "--strategy", "random", "--no-tracking", "--no-own", "--no-range"]
    out = printed([*command.split(), *few], capsys)
    assert "samples/s (geometric mean)" in " ".join(out.split())
    assert "mean samples/s" in out


def test_a_plan_to_run_is_said_first(folder, capsys):
    command = "evaluate --model llama-2-7b --arch h100 --devices 8 --gbs 64 --pp 1 --zero 1,3 --recompute none --top 4"
    out = printed(command.split(), capsys)
    fits(out)
    assert out.startswith("Run llama-2-7b on 8 h100 under tensor ")
    plans = run_json([*command.split(), "--top", "1000"], capsys)["plans"]
    near = [plan for plan in plans if plan["is_within_error"]]
    chosen = next((plan for plan in near if not plan["is_to_the_brim"]), plans[0])
    assert f"{chosen['peak_memory_bytes'] / 2**30:.1f} of 80.0 GiB" in " ".join(out.split())
    assert "Megatron-LM: --micro-batch-size" in out
    assert "Where a step" not in out
    assert "Where a step" in printed([*command.split(), "--details"], capsys)


def test_how_many_plans_are_shown_does_not_change_which_one_is_run(capsys):
    command = "evaluate --model llama-2-7b --arch h100 --devices 64 --gbs 512 --cp 1 --interleave 1 --no-range --top"
    document = run_json([*command.split(), "1000"], capsys)
    plans = document["plans"]
    rank = next(rank for rank, plan in enumerate(plans, 1) if plan["is_within_error"] and not plan["is_to_the_brim"])
    assert rank > 1
    assert document["plan_to_run"] == plans[rank - 1]
    shown, more = (printed([*command.split(), top], capsys) for top in ("1", "1000"))
    assert shown.partition(".\n")[0] == more.partition(".\n")[0]
    assert any(line.split()[:1] in ([f"{rank}*~"], [f"{rank}~"]) for line in shown.splitlines())


def plan_of(seconds, gib):
    memory = SimpleNamespace(peak_bytes=gib * 2.0**30, is_to_the_brim=lambda held: gib * 1.12 * 2.0**30 > held)
    return SimpleNamespace(time=SimpleNamespace(seconds=seconds), memory=memory)


@pytest.mark.parametrize(
    ("error", "sizes", "place"),
    [
        (0.2, [92.0, 79.0, 60.0], 2),
        (0.2, [92.0, 79.0, 79.0], 1),
        (0.05, [92.0, 85.0, 60.0], 2),
        (None, [92.0, 79.0, 60.0], 1),
        (0.2, [92.0, 90.0, 85.0], 0),
        (None, [79.0, 60.0, 50.0], 0),
    ],
)
def test_no_plan_that_exceeds_the_memory_is_named_where_one_fits(error, sizes, place):
    setting = PriceSetting(
        "m", "s", "n", "model", 8, 1, 1.0, 1.0, memory_bytes=80.0 * 2**30, error_share=error, is_real=True
    )
    plans = [plan_of(seconds, gib) for seconds, gib in zip((1.0, 1.04, 1.1), sizes, strict=True)]
    assert setting.place_to_run(plans) == place
    assert replace(setting, is_real=False).place_to_run(plans) == 0


def test_of_several_baselines_those_are_named_that_stay_beaten():
    parts = (RangePart("software", 80.0, 100.0, "slow", "as it is"),)
    text = overturn_sentence(HeadlineRange(100.0, parts), {"faster": 120.0, "slower": 50.0})
    assert text.endswith("none of these doubts alone takes it below slower as priced here.")


def test_ties_are_said_and_what_the_error_cannot_tell_apart():
    error = machine_error()
    text = near_sentence([100.0, 100.0, 99.0, 100.0 * (1.0 - 2.0 * error)])
    assert "1 more ties with the best" in text
    assert "the next falls 1 % short at most" in text
    assert near_sentence([1.0]) == ""


@pytest.mark.parametrize(
    ("baseline", "says"), [(50.0, "none of these doubts"), (90.0, "overturn"), (120.0, "samples/s")]
)
def test_what_would_overturn_an_answer(baseline, says):
    parts = (
        RangePart("software", 80.0, 100.0, "slow", "as it is"),
        RangePart("options", 100.0, 130.0, "as it is", "x"),
    )
    text = overturn_sentence(HeadlineRange(100.0, parts), {"other": baseline})
    assert text.startswith("It may be 80.0 (software slow) to 130 samples/s (x)")
    assert says in text
    assert ("overturn" in text) == (80.0 < baseline < 100.0)


def test_figures_have_the_digits_that_tell_them_apart():
    assert numbers_apart([132.01, 132.0, 131.5]) == ("132.01", "132.00", "131.50")
    assert numbers_apart([132.0, 132.0 * (1 + 1e-12)]) == ("132", "132")
    assert numbers_apart([183386.2, 175812.4]) == ("183,386", "175,812")
    assert numbers_apart([1.0, 1.0 + 1e-8]) == ("1.000000", "1.000000")


def test_a_design_has_one_row_with_all_that_it_is_least_of():
    points = [
        DesignPoint(num_tc=n, num_vc=1, tc_width=8, tc_depth=8, glb_bytes=1, hbm_bytes=1, micro_batch=1, vc_width=8)
        for n in (1, 2)
    ]
    amounts = {LeastOf.SMALLEST: 1.0, LeastOf.COOLEST: 2.0}
    best = NearBest(("best",), points[0], 10.0, amounts)
    found = [
        LeastDesign(0.01, LeastOf.SMALLEST, points[0], 10.0, amounts, is_proved=True),
        LeastDesign(0.01, LeastOf.COOLEST, points[1], 9.9, amounts),
        LeastDesign(0.05, LeastOf.COOLEST, points[1], 9.9, amounts, is_proved=True),
    ]
    rows = near_rows(best, found)
    assert [row.what for row in rows] == [("best", "1 % smallest"), ("1 % coolest*", "5 % coolest")]


@pytest.mark.slow
def test_the_demo_fits_a_screen(folder, capsys):
    """The command of ``make demo``, as the Makefile has it."""
    makefile = (Path(__file__).parents[2] / "Makefile").read_text()
    command = next(line for line in makefile.splitlines() if "phaze-opt search" in line)
    words = command.partition("phaze-opt ")[2].replace("$(DEMO)", str(folder)).split()
    out = printed(words, capsys)
    fits(out)
    text = " ".join(out.split())
    for said in ("Build ", "of them train bert-large at", "of tpu-v4", "not proven to be the best", "It may be "):
        assert said in text
    assert all(f"{within} % {saving}" in out for within in (1, 5) for saving in ("smallest", "coolest", "cheapest"))


@pytest.mark.parametrize("command", ["models", "architectures", "strategies", "pruners", "software", "network list"])
def test_lists_say_how_many_there_are_before_the_table(folder, capsys, command):
    out = printed(command.split(), capsys)
    assert out.startswith(f"{len(run_json(command.split(), capsys))} ")
    said = " ".join(out.split())
    assert re.match(r"\d+ [^│─]+?\. (Models|Architectures|Strategies|Pruners|Training software|Networks) ", said)
    assert not [line for line in out.splitlines() if len(line.rstrip()) > WIDTH]


def test_a_network_says_what_an_all_reduce_takes_and_keeps_its_columns(folder, capsys):
    words = ["network", "show", "dgx-h100", "--devices", "64"]
    out, found = printed(words, capsys), run_json(words, capsys)
    row = next(each for each in found["all_reduce"] if each["bytes"] == 2**30)
    first = " ".join(out.split("Network dgx-h100")[0].split())
    for name in ("8 devices", "64 devices"):
        seconds = row["seconds"][name]
        assert f"{1e3 * seconds:.3f} ms over {name} ({2**30 / seconds / 1e9:.3g} GB/s of payload)" in first
    assert "level   topology   devices   GB/s   hop us" in out


def test_a_model_on_a_chip_says_its_size_before_the_table(folder, capsys):
    assert printed(["graph", "show", "tiny"], capsys).startswith("17,067,008 parameters in 6 layers")
