"""Notes reach whoever reads an answer: the table, the line of JSON and the page."""

import pytest
from command_runs import printed, refused, run_json

from phaze_opt.track.protocol import NullSession

pytestmark = pytest.mark.usefixtures("undrawn")

TINY = "--model tiny --devices 8 --tensor-parallel 1 --no-range --work-dir"
TABLES = ("--silicon", "phaze")
CHIP = "num_tc=4,num_vc=4,tc_width=64,tc_depth=64,glb_mb={glb},hbm_gb=17"


def evaluate(glb, *more):
    chip = CHIP.format(glb=glb)
    return ["evaluate", "--model", "tiny", "--devices", "8", "--arch", chip, "--no-range", *more]


def search(tmp_path, *more):
    words = f"search {TINY} {tmp_path} --global-batch 16 --trials 2 --strategy random --max-area-mm2 800".split()
    return [*words, *TABLES, *more]


def unwrapped(text):
    return " ".join(text.split())


def keys(line):
    return [note["key"] for note in line["notes"]]


def test_evaluate_prints_notes_behind_its_answer(capsys):
    arguments = evaluate(256, "--global-batch", "1", "--micro-batch", "8", "--as", "phaze")
    line = run_json(arguments, capsys)
    assert keys(line) == ["hbm_bandwidth", "extrapolated_buffers", "padded_batch"]
    out = unwrapped(printed([*arguments, "--details"], capsys))
    assert [note for note in line["notes"] if out.count(f"Note: {note['sentence']}") != 1] == []
    first = unwrapped(printed(arguments, capsys))
    assert [note["key"] for note in line["notes"] if note["sentence"] in first] == [
        "extrapolated_buffers",
        "padded_batch",
    ]


def test_plans_on_a_designed_chip_have_its_notes(capsys):
    line = run_json(evaluate(256, "--global-batch", "16", "--pipeline", "1", "--top", "1", *TABLES), capsys)
    assert sum("HBM bandwidth is taken" in note for note in line["setting"]["notes"]) == 1
    assert sum("extrapolated" in note for note in line["setting"]["notes"]) == 1
    real = run_json(
        ["evaluate", "--model", "tiny", "--devices", "8", "--arch", "h100", "--global-batch", "16", "--pipeline", "1"],
        capsys,
    )
    assert not any("HBM bandwidth is taken" in note for note in real["setting"]["notes"])


@pytest.mark.parametrize("more", [(), ("--as", "phaze")])
def test_a_chip_that_no_model_covers_is_bad_input(capsys, more):
    refused(evaluate(4096, "--global-batch", "16", *more), capsys, "glb_mb")


def test_search_notes_what_its_space_allows(tmp_path, capsys, monkeypatch):
    line = run_json(search(tmp_path, "--no-tracking"), capsys)
    assert "area_budget" in keys(line)
    assert "278.8 mm2" in next(note["sentence"] for note in line["notes"] if note["key"] == "area_budget")
    monkeypatch.setattr(NullSession, "tracking_uri", "sqlite:///record.db")  # a page is for what keeps a record
    out = printed(search(tmp_path, "--no-tracking", "--resume", "--details"), capsys)
    for note in line["notes"]:
        assert f"Note: {note['sentence']}" in unwrapped(out)
    (page,) = tmp_path.rglob("tiny-8/search.html")
    assert "The budget of 800 mm2 cannot bind" in page.read_text(encoding="utf-8")


def test_certify_notes_what_its_space_allows(tmp_path, capsys):
    space = tmp_path / "space.toml"
    space.write_text(
        "area_budget_mm2 = 60\nmin_area_fraction = 0\n[axes]\nnum_tc = [1, 2]\nnum_vc = [1, 2]\ntc_width = [64]\n"
        "tc_depth = [64]\nglb_mb = [8]\nhbm_gb = [32]\nmicro_batch = [1, 2]\n",
        encoding="utf-8",
    )
    page = tmp_path / "page.html"
    arguments = (
        f"certify {TINY} {tmp_path} --global-batch 16 --space {space} --max-area-mm2 100 --max-tdp-w 900 --no-tracking"
        " --silicon phaze"
    )
    line = run_json([*arguments.split(), "--report", page], capsys)
    assert set(keys(line)) == {"hbm_bandwidth", "area_budget", "tdp_budget", "edge_of_space"}
    power = next(note["sentence"] for note in line["notes"] if note["key"] == "tdp_budget")
    assert "within 100 mm2 has a TDP above" in power
    assert "a larger budget of area or a space file" in power
    text = page.read_text(encoding="utf-8")
    assert "The budget of 100 mm2 cannot bind" in text
    assert "at the edge of the space" in text
    out = printed([*arguments.split(), "--resume", "--details"], capsys)
    assert all(f"Note: {note['sentence']}" in unwrapped(out) for note in line["notes"])


def test_batches_that_would_use_idle_devices_do(capsys):
    """At the micro-batch that was asked for; beside replicas that were asked for no batch is named."""
    die = "num_tc=2,num_vc=8,tc_width=64,tc_depth=64,glb_mb=8,hbm_gb=32"
    job = ["evaluate", "--model", "tiny", "--arch", die, "--devices", "7", "--sequence-length", "64", "--no-range"]
    job += ["--tensor-parallel", "1", "--pipeline", "1"]

    def idle(batch, *more):
        notes = run_json([*job, "--global-batch", batch, *more], capsys)["notes"]
        return "".join(note["sentence"] for note in notes if note["key"] == "idle_devices")

    for more, nearest in (["--micro-batch", "3"], ("21", "42")), ([], ("21", "28")):
        said = idle("24", *more)
        assert said.endswith(f"not 7; {nearest[0]} or {nearest[1]} would"), said
        assert [idle(batch, *more) for batch in nearest] == ["", ""]
    assert idle("28", "--data", "1") == "6 of 7 devices stay idle: this plan has 1 replica, and 7 fit"
