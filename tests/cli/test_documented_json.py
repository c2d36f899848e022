"""The keys that docs/json.md promises are those that the commands print, on one line of strict JSON."""

import os
import re
from pathlib import Path

import pytest
from command_runs import run_json
from kits.toy_family import HEADER, TOY, toy_lines

from phaze_opt.certify.result import FrontDesign
from phaze_opt.hardware.fitted import load_fitted
from phaze_opt.objective.bill import Bill
from phaze_opt.objective.evaluation import Evaluation
from phaze_opt.record.result_fields import fields_of
from phaze_opt.validation import predict
from phaze_opt.validation.result import GoalResult, Validation

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "json.md"
TEXT = PAGE.read_text(encoding="utf-8")
FIGURES = {"an evaluation": Evaluation, "a bill": Bill, "a design on a front": FrontDesign}
TINY = "--model tiny --devices 8 --global-batch 16 --tensor-parallel 1"
COMMANDS = {
    "evaluate": f"evaluate {TINY} --arch phaze-tpu-v4",
    "search": f"search {TINY} --trials 1 --strategy random --heterogeneous --no-tracking --work-dir WORK",
    "validate": "validate --data MINE --dataset op_llmcompass --constants WORK/c.json",
    "calibrate": "calibrate --data MINE --out WORK/c.json --no-held-out",
    "network list": "network list",
    "network show": "network show two-level",
    "network optimise": "network optimise --model tiny --devices 8",
    "graph show": "graph show tiny",
    "graph chakra": "graph chakra tiny --out WORK/et",
    "models": "models",
    "architectures": "architectures",
    "strategies": "strategies",
    "pruners": "pruners",
    "space": "space --as phaze --micro-batch 1 --hbm 32",
    "schedule": f"schedule {ROOT / 'tests' / 'cli' / 'two_matmuls.json'}",
    "place": f"place {ROOT / 'tests' / 'placement' / 'data' / '01_tiny4_w1_d8.json'}",
}
PROMISED = {
    line: set(re.findall(r"`([^`]+)`", keys))
    for line, keys in re.findall(r"^\| `([^`]+)` \| (`.*`) \|$", TEXT, re.MULTILINE)
}


def figures_table() -> str:
    """The declared figures, a row each."""
    rows = [
        f"| {'' if place else whose} | `{each.name}` | {each.unit or '1'} | {each.better} | {each.meaning} |"
        for whose, kind in FIGURES.items()
        for place, each in enumerate(fields_of(kind))
    ]
    return "\n".join(["| of | key | unit | better | what it is |", "|---|---|---|---|---|", *rows, ""])


def test_figures_are_documented_as_they_are_declared():
    """``WRITE=1`` writes the table anew."""
    before, _, rest = TEXT.partition("<!-- figures -->\n")
    after = rest.partition("<!-- /figures -->\n")[2]
    wanted = f"{before}<!-- figures -->\n{figures_table()}<!-- /figures -->\n{after}"
    if os.environ.get("WRITE"):
        PAGE.write_text(wanted, encoding="utf-8")
    assert wanted == PAGE.read_text(encoding="utf-8")


def test_every_command_is_documented():
    assert {re.split(r"[.\[]", line)[0] for line in PROMISED} == set(COMMANDS)


@pytest.fixture
def printed(tmp_path, capsys, monkeypatch):
    """Runs a command and gives the line that it printed."""
    monkeypatch.setattr(predict, "FAMILIES", (TOY,))
    mine = tmp_path / "mine.csv"
    mine.write_text("\n".join([HEADER, *toy_lines()]) + "\n")

    def run(command):
        words = [word.replace("WORK", str(tmp_path)).replace("MINE", str(mine)) for word in COMMANDS[command].split()]
        return run_json(words, capsys)

    return run


@pytest.mark.parametrize("command", COMMANDS)
def test_lines_have_the_keys_that_are_promised(command, printed):
    if command == "validate":
        printed("calibrate")
    value = printed(command)
    lines = [line for line in PROMISED if re.split(r"[.\[]", line)[0] == command]
    assert lines
    for line in lines:
        part = value
        for name in line.removeprefix(command).removesuffix("[]").split("."):
            part = part[name] if name else part
        each = part if line.endswith("[]") else list(part.values()) if line in BY_NAME else [part]
        for one in each:
            assert set(one) == PROMISED[line], line


BESIDE = {"name", "same_software_throughput_samples_per_s", "throughput_ratio"}
"""What a baseline has beside its line."""
MACHINES = ("a100-80g --pipeline 1 --top 1 --baseline mi300x", "phaze-tpu-v4 --software ideal --micro-batch 1")


@pytest.mark.parametrize("machine", MACHINES)
def test_plans_have_the_keys_of_a_placement(machine, capsys):
    """Of a real machine and of a design; a baseline is a line of its own."""
    value = run_json(f"evaluate {TINY} --arch {machine}".split(), capsys)
    assert set(value) == PROMISED["evaluate"]
    assert value["plans"]
    for one in value["plans"]:
        assert set(one) == PROMISED["evaluate.plans[]"]
        assert set(one["launch"]) == {"megatron", "fsdp", "maxtext", "unsaid"}
    assert set(value["setting"]) == PROMISED["evaluate.setting"]
    for one in value["baselines"]:
        assert set(one) == PROMISED["evaluate"] - {"baselines", "priced_as"} | BESIDE


def test_goals_have_the_keys_that_are_promised():
    """Users' files have none, and the published sets take seconds."""
    goal = GoalResult("op_tpu_gemm", "", "mape", 8.0, 6.3)
    (line,) = Validation(load_fitted(), (), (goal,)).to_json()["goals"]
    assert set(line) == PROMISED["validate.goals[]"]


BY_NAME = ("validate.datasets", "calibrate.families")
"""Objects by name, of which every one has these keys."""
