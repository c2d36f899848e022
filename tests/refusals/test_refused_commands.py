"""Commands that are refused say why in one sentence and leave everything as it was; the sentences are pinned here."""

import json
import shlex
import shutil
from itertools import groupby
from pathlib import Path

import pytest
from command_runs import refused
from refused_files import spelled_out
from sample_files import REFUSALS

TESTS = REFUSALS.parent
GOOD = TESTS / "placement" / "data" / "01_tiny4_w1_d8.json"
LINES = [spelled_out(line) for line in (REFUSALS / "commands.txt").read_text(encoding="utf-8").splitlines()]
COMMANDS = {name: list(lines) for name, lines in groupby(LINES, key=lambda line: line.split()[0])}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Holds what the commands may name: a placement and a schedule without fault, measurements with one, constants."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    shutil.copyfile(GOOD, "placement.json")
    node = {"id": 0, "core_type": "TC", "latency": 1.0, "intra_op_latency": 1.0}
    Path("schedule.json").write_text(json.dumps({"name": "x", "num_tc": 1, "num_vc": 1, "nodes": [node], "edges": []}))
    Path("measured.csv").write_text("hardware,op,m,n,dtype,latency_us\nA,gelu,8,8,fp16,x\n")
    Path("constants.json").write_text("as it was")
    return tmp_path


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_refusal_is_one_sentence_and_changes_nothing(command: str, folder: Path, capsys, snapshot) -> None:
    before = contents(folder)
    said = []
    for line in COMMANDS[command]:
        sentence = refused(shlex.split(line), capsys).strip().replace(str(folder), "FOLDER")
        said.append(f"{line[:200]}\n    {sentence}")
        assert contents(folder) == before, line
    assert "\n".join(said) == snapshot
