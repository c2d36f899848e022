"""Names from files steer no terminal and are no markup: every command that prints one shows it as plain text."""

import json
import logging
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from command_runs import refused, run
from sample_files import space_text

from phaze_opt.cli.output import PlainConsole, warn
from phaze_opt.record.printable import printable
from phaze_opt.report.document import FigureBlock, ReportDocument, Section, TableBlock
from phaze_opt.report.drawing import svg_element
from phaze_opt.report.page import write_report, write_text
from phaze_opt.report.picture import Boxes, Curve, Picture, PlotAxis
from phaze_opt.report.table import Column, TableContent

HOSTILE = "\x1b]0;PWN\x07[/red]:smile:\u202e"
SHOWN = "\\x1b]0;PWN\\x07[/red]:smile:\\u202e"
STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
ROOT = Path(__file__).parents[2]
ZOO = ROOT / "phaze_opt" / "workload" / "zoo_configs"
SIZES = "num_tc = 4\nnum_vc = 8\ntc_width = 128\ntc_depth = 128\nglb_mb = 64\nhbm_gb = 32\n"
SPACE = space_text(min_area_fraction=0.0, num_tc=[1, 2], num_vc=[1, 2], tc_width=[8], tc_depth=[8], glb_mb=[4])
NETWORK = "topology = 'ring'\nsize = 8\nbandwidth_gb_per_s = 450\nlatency_us = 1\n"
WORK = ["--devices", "8", "--global-batch", "16", "--tensor-parallel", "1", "--micro-batch", "1", "--no-range"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    name = json.dumps(HOSTILE)
    model = tmp_path / HOSTILE.replace("/", "") / "config.json"
    model.parent.mkdir()
    config = json.loads(next(ZOO.glob("tiny*.json")).read_text())
    model.write_text(json.dumps(config))
    (tmp_path / "chip.toml").write_text(f"name = {name}\n{SIZES}")
    (tmp_path / "space.toml").write_text(SPACE.replace('"small"', name))
    (tmp_path / "network.toml").write_text(f"name = {name}\n\n[[dimensions]]\n{NETWORK}")
    node = {"id": HOSTILE, "core_type": "TC", "latency": 10.0, "intra_op_latency": 6.0}
    (tmp_path / "layer.json").write_text(
        json.dumps({"name": HOSTILE, "num_tc": 2, "num_vc": 2, "nodes": [node], "edges": []})
    )
    return tmp_path


COMMANDS = {
    "evaluate": lambda at: ["evaluate", "--model", model_of(at), "--arch", at / "chip.toml", *WORK],
    "plans": lambda at: ["evaluate", "--model", model_of(at), "--arch", at / "chip.toml", *WORK, "--pipeline", "1,2"],
    "search": lambda at: [
        *("search", "--model", model_of(at), *WORK, "--no-tracking", "--trials", "2", "--strategy", "random"),
        *("--space", at / "space.toml", "--work-dir", at),
    ],
    "certify": lambda at: [
        *("certify", "--model", model_of(at), *WORK, "--no-tracking", "--space", at / "space.toml", "--work-dir", at)
    ],
    "space": lambda at: ["space", "--space", at / "space.toml"],
    "network": lambda at: ["network", "show", at / "network.toml"],
    "schedule": lambda at: ["schedule", at / "layer.json"],
    "graph": lambda at: ["graph", "show", model_of(at), "--arch", at / "chip.toml"],
}


def model_of(folder):
    return next(folder.glob("*/config.json"))


@pytest.mark.parametrize("command", COMMANDS)
def test_a_result_shows_hostile_names_as_plain_text(command, folder, capsys):
    code, out, err = run(COMMANDS[command](folder), capsys)
    assert code == 0, err
    assert not STEERING.search(out + err)
    if command in ("space", "network", "schedule", "graph"):
        assert SHOWN in out


@pytest.mark.parametrize(
    "arguments",
    [
        ["evaluate", "--model", HOSTILE, "--arch", "phaze-tpu-v4", *WORK],
        ["evaluate", "--model", "tiny", "--arch", HOSTILE, *WORK],
        ["evaluate", "--model", "tiny", "--arch", "phaze-tpu-v4", "--network", HOSTILE, *WORK],
        ["search", "--model", "tiny", *WORK, "--no-tracking", "--strategy", HOSTILE],
        ["search", "--model", "tiny", *WORK, "--tracking-uri", HOSTILE],
        ["certify", "--check", HOSTILE],
        ["validate", "--data", HOSTILE],
        ["schedule", HOSTILE],
        ["place", HOSTILE],
        ["study", "run", HOSTILE],
        ["report", HOSTILE],
        ["space", "--space", HOSTILE],
        [HOSTILE],
    ],
)
@pytest.mark.parametrize("name", [HOSTILE, "A" * 10000, "a\0b", "/".join(["a" * 200] * 60) + ".toml", "a\udcffb"])
def test_a_hostile_argument_is_one_sentence(arguments, name, capsys):
    err = refused([name if argument == HOSTILE else argument for argument in arguments], capsys)
    assert not STEERING.search(err)


@pytest.mark.parametrize(
    "arguments",
    [
        ["search", "--model", "tiny", *WORK, "--work-dir"],
        ["certify", "--model", "tiny", *WORK, "--work-dir"],
        ["certify", "--model", "tiny", *WORK, "--report"],
        ["validate", "op_tpu_gemm", "--report"],
        ["calibrate", "--data", ROOT / "phaze_opt" / "validation" / "data" / "op_tpu_gemm.csv", "--out"],
        ["schedule", ROOT / "tests" / "cli" / "two_matmuls.json", "--figure"],
        ["study", "list", "--work-dir"],
        ["study", "run", ROOT / "studies" / "quickstart.toml", "--work-dir"],
        ["report", "some", "--work-dir"],
        ["ui", "--work-dir"],
    ],
)
@pytest.mark.parametrize("name", ["A" * 10000, "a\0b"])
def test_a_place_that_cannot_be_is_refused_before_anything_runs(arguments, name, capsys):
    refused([*arguments, name], capsys)


def test_warnings_and_what_is_logged_are_plain_text_too(capsys):
    warn(HOSTILE)
    from phaze_opt.cli.main import escape_logged_names

    escape_logged_names()
    logging.lastResort.emit(logging.makeLogRecord({"msg": HOSTILE, "levelno": logging.WARNING}))
    assert capsys.readouterr().err.replace("\n", "") == f"warning: {SHOWN}{SHOWN}"


def test_a_console_escapes_what_is_no_plain_text():
    from rich.table import Table
    from rich.text import Text

    screen = PlainConsole(width=120, record=True, file=None)
    table = Table(title=HOSTILE)
    table.add_column(HOSTILE)
    table.add_row(Text(HOSTILE))
    with screen.capture() as captured:
        screen.print(table)
    assert not STEERING.search(captured.get())
    assert captured.get().count("[/red]:smile:") == 3


def test_pictures_pages_and_files_for_people_hold_nothing_that_steers(tmp_path):
    bars = Boxes([0.0, 0.0], [0.0, 1.0], [1.0, 2.0], [0.8, 0.8], HOSTILE, hovers=[HOSTILE, "a"], words=[HOSTILE, "a"])
    names = tuple(enumerate((HOSTILE, "芯片")))
    picture = Picture(HOSTILE, (bars, Curve([0.0, 1.0], [0.0, 1.0], "b")), PlotAxis(HOSTILE), PlotAxis(ticks=names))
    block = FigureBlock("bars", picture, HOSTILE)
    table = TableBlock(TableContent(HOSTILE, (Column(HOSTILE),), ((HOSTILE,),), HOSTILE))
    document = ReportDocument(HOSTILE, (Section("all", HOSTILE, (block, table)),), description=HOSTILE)
    for path in write_report(tmp_path / "page.html", document).values():
        if path.suffix != ".png":
            assert not STEERING.search(path.read_text(encoding="utf-8")), path
    ElementTree.fromstring((tmp_path / "page-figures" / "bars.svg").read_bytes())
    tips = [item.get("data-tip") for item in ElementTree.fromstring(svg_element("bars", picture)).iter()]
    assert SHOWN in tips
    assert not STEERING.search(write_text(tmp_path / "a.csv", f"a,{HOSTILE}\n").read_text(encoding="utf-8"))


def test_text_without_controls_stays_as_it_is():
    assert printable("Größe 3 mm², 日本\tα\n") == "Größe 3 mm², 日本\tα\n"
