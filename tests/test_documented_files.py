"""The examples of docs/files.md are read by the code they document."""

import re
from pathlib import Path

import pytest

from phaze_opt.hardware.device import ComputePath
from phaze_opt.hardware.device_catalogue import DeviceTable, read_devices
from phaze_opt.hardware.networks import load_network
from phaze_opt.hardware.presets import load_architecture
from phaze_opt.schedule.problem import ScheduleStatus, load_instance
from phaze_opt.schedule.solve import solve_schedule
from phaze_opt.space.known_spaces import load_space
from phaze_opt.study.files.study_file import read_study

TEXT = (Path(__file__).parents[1] / "docs" / "files.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```toml\n(.*?)```", TEXT, re.DOTALL)
TOMLS = {block.split("\n", 1)[0].removeprefix("# "): block for block in BLOCKS}


@pytest.fixture
def write(tmp_path):
    def write_example(name):
        path = tmp_path / f"{name}.toml"
        path.write_text(TOMLS[name], encoding="utf-8")
        return path

    return write_example


def test_there_is_one_example_of_each():
    assert set(TOMLS) == {"architecture", "machine", "network", "space", "study"}


def test_architecture(write):
    accelerator = load_architecture(str(write("architecture")))
    assert (accelerator.num_tc, accelerator.num_vc, accelerator.hbm_bandwidth_bytes_per_s) == (16, 64, 2e12)


def test_machine(write):
    """As a machine and, by its arrays, as a design; what the text calls optional is."""
    path = write("machine")
    device = read_devices([path]).devices[-1]
    assert (device.name, device.maker, device.network) == ("zeus-1", "olympus", "dgx-a100")
    assert device.peak(ComputePath.BF16) == 196.6e12
    chip = load_architecture(str(path))
    assert (chip.name, chip.hbm_bandwidth_bytes_per_s) == ("zeus-1", 1.2e12)
    assert chip.peak_flops_per_s == pytest.approx(196.6e12, rel=0.001)
    needed, _ = TOMLS["machine"].split("# All below may be left out.")
    path.write_text(needed, encoding="utf-8")
    assert read_devices([path]).load("zeus-1").layout is None


def test_machine_lists_every_key():
    _, _, section = TEXT.partition("## A machine of your own")
    section = section.split("\n## ")[0]
    assert [key for key in DeviceTable.model_fields if not re.search(rf"\b{key}\b", section)] == []


def test_network(write):
    inner, outer = load_network(str(write("network")), num_devices=4096).dimensions
    assert (inner.size, inner.bandwidth_bytes_per_s, inner.latency_s) == (8, 450e9, 1e-6)
    assert inner.size * outer.size == 4096


def test_space(write):
    space = load_space(write("space"))
    assert space.num_candidates == 64 * 11 * 7 * 7 * 9
    assert 0 < space.num_architectures < space.num_candidates
    assert space.size == 12 * space.num_architectures


def test_study(write):
    config = read_study(write("study"))
    assert [contender.name for contender in config.contenders] == ["random", "tpe-pruned"]
    assert [workload.name for workload in config.workloads] == ["bert-large", "gpt2-xl", "two-models"]
    assert [setting.network for setting in config.settings] == ["two-level", "phaze"]
    constants = {"vector_cycles.softmax_forward": 5.0, "residency": "planned", "fill_and_drain": "none"}
    assert config.settings[1].constants == constants


def test_schedule(tmp_path):
    (block,) = re.findall(r"```json\n(.*?)```", TEXT, re.DOTALL)
    (tmp_path / "layer.json").write_text(block)
    result = solve_schedule(load_instance(tmp_path / "layer.json").problem)
    assert result.status is ScheduleStatus.OPTIMAL
