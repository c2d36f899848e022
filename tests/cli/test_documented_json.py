"""The keys that docs/json.md promises are those that the commands print, on one line of strict JSON."""

import re
from pathlib import Path

import pytest
from command_runs import run_json
from kits.toy_family import HEADER, TOY, toy_lines

from phaze_opt.hardware.fitted import load_fitted
from phaze_opt.validation import registry
from phaze_opt.validation.result import GoalResult, Validation

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "json.md").read_text(encoding="utf-8")
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


def test_every_command_is_documented():
    assert {re.split(r"[.\[]", line)[0] for line in PROMISED} == set(COMMANDS)


@pytest.fixture
def printed(tmp_path, capsys, monkeypatch):
    """Runs a command and gives the line that it printed."""
    monkeypatch.setattr(registry, "FAMILIES", (TOY,))
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
