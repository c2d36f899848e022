"""Narrow terminals, poor encodings and closed streams: every figure is whole, and every command ends as it should."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from command_runs import printed
from sample_files import NETWORK

from phaze_opt.cli.output import PlainConsole
from phaze_opt.report.table import Column, DrawnTable, TableContent, numbers

COMMAND = [sys.executable, "-m", "phaze_opt"]
GRAPH = Path(__file__).parent / "two_matmuls.json"
CHIP = "num_tc=4,num_vc=4,tc_width=64,tc_depth=64,glb_mb=8,hbm_gb=17"
WORK = ["--model", "tiny", "--devices", "8", "--global-batch", "16", "--no-range"]
SHOWN = {
    "plans": ["evaluate", *WORK, "--arch", "h100"],
    "a design": ["evaluate", *WORK, "--arch", CHIP, "--details"],
    "machines": ["architectures"],
    "a schedule": ["schedule", GRAPH, "--details"],
    "a network": ["network", "show", "dgx-h100", "--devices", "16"],
    "errors": ["validate", "op_tpu_gemm", "--details"],
}
FIGURE = re.compile(r"\d[\d,.]*\d|\d")


def figures(text: str) -> set[str]:
    return set(FIGURE.findall(text))


@pytest.mark.parametrize("name", SHOWN)
def test_no_figure_is_cut_where_there_is_no_room(name, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    wide = printed(SHOWN[name], capsys)
    for width in (60, 40):
        monkeypatch.setenv("COLUMNS", str(width))
        narrow = printed(SHOWN[name], capsys)
        assert "…" not in narrow
        assert figures(wide) <= figures(narrow), sorted(figures(wide) - figures(narrow))


def test_a_table_with_room_stays_a_table():
    table = DrawnTable(TableContent("plans", (Column("name"), *numbers("tokens/s")), (("one", "75,780"),), "a note"))
    for width, is_table in ((40, True), (12, False)):
        screen = PlainConsole(width=width, file=None)
        with screen.capture() as captured:
            screen.print(table)
        assert ("──" in captured.get()) == is_table
        assert "75,780" in captured.get()
        assert "a note" in captured.get()


def ended(redirections: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """A command as a shell starts it; words between bars mark where its standard streams go."""
    line = f'"$0" "$@" {redirections}'
    return subprocess.run(
        ["/bin/sh", "-c", line, *COMMAND, *arguments],
        check=False,
        capture_output=True,
        text=True,
        encoding="ascii",
        env={"PATH": "/usr/bin:/bin", **variables},
    )


@pytest.mark.parametrize("redirections", [pytest.param(">&-", marks=pytest.mark.slow), "<&- >&- 2>&-"])
def test_closed_streams_end_in_silence(redirections):
    result = ended(redirections, "strategies")
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_what_an_encoding_lacks_is_replaced(tmp_path):
    file = tmp_path / "net.toml"
    file.write_text(NETWORK.replace('"net"', '"芯片-1"'), encoding="utf-8")
    result = ended("", "network", "show", str(file), PYTHONIOENCODING="ascii")
    assert (result.returncode, result.stderr) == (0, "")
    assert "??-1" in result.stdout
    assert "? " not in result.stdout.replace("??-1 ", "")
    own = ended("", "network", "show", str(file), PYTHONIOENCODING="ascii:backslashreplace")
    assert r"\u82af\u7247-1" in own.stdout
