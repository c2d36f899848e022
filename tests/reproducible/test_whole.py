"""All six long commands and every built-in strategy, under every environment; minutes each."""

import importlib.util
from importlib import resources
from pathlib import Path

import pytest
from commands import run_commands
from comparison import differences
from environments import KERNELS, SURROUNDINGS

from phaze_opt.plugins import PluginGroup, list_plugins

pytestmark = pytest.mark.slow
DATA = Path(__file__).parent / "data"
TASK = ["--model", "tiny", "--devices", "16", "--global-batch", "64"]
STRATEGIES = [each.name for each in list_plugins(PluginGroup.STRATEGIES) if each.value.startswith("phaze_opt.")]
NEEDS = {"gp": "torch"}
MEASURED = str(resources.files("phaze_opt.validation").joinpath("data"))


def search(strategy, *, seed):
    task = ["search", *TASK, "--no-tracking", "--strategy", strategy, "--trials", "80", "--seed", str(seed)]
    return [*task, "--objective", "throughput_per_tdp"] if seed % 2 else task


SEARCHES = {
    f"search-{name}-{seed}": search(name, seed=seed)
    for name in STRATEGIES
    if name not in NEEDS or importlib.util.find_spec(NEEDS[name])
    for seed in (1, 2)
}
WHOLE = {
    "evaluate": ["evaluate", *TASK, "--arch", "phaze-tpu-v4", "--sensitivity"],
    "plans": ["evaluate", "--model", "gpt2-xl", "--devices", "64", "--global-batch", "256", "--arch", "h100"],
    **SEARCHES,
    "certify": ["certify", *TASK, "--no-tracking", "--space", str(DATA / "space.toml")],
    "two-models": ["certify", "--models", "tiny,bert-large", "--common", "geometric", *TASK[2:], "--no-tracking",
                   "--space", str(DATA / "space.toml")],
    "robust": ["certify", *TASK, "--no-tracking", "--space", str(DATA / "space.toml"), "--robust",
               "--robust-samples", "4"],
    "study": ["study", "run", str(DATA / "study.toml"), "--no-tracking"],
    "validate": ["validate"],
    "calibrate": ["calibrate", "--data", MEASURED, "--no-held-out", "--out", "constants.json"],
}  # fmt: skip


def outcome(folder, environment):
    said = run_commands(list(WHOLE.values()), folder, environment)
    return dict(zip(WHOLE, (each.line for each in said), strict=True)) | said[-1].files


@pytest.fixture(scope="module", name="plain")
def _plain(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plain")
    return folder, outcome(folder, {})


@pytest.mark.parametrize("kernel", KERNELS)
def test_another_kernel_chooses_the_same(kernel, plain, tmp_path):
    assert not differences(plain[1], outcome(tmp_path, KERNELS[kernel]), is_exact=False)
    certificates = [str(path.parent) for path in plain[0].rglob("certificate.json")]
    assert certificates
    checks = [["certify", "--check", each] for each in certificates]
    assert all(said.line["valid"] for said in run_commands(checks, tmp_path, KERNELS[kernel]))


@pytest.mark.parametrize("surroundings", SURROUNDINGS)
def test_surroundings_change_no_byte(surroundings, plain, tmp_path):
    assert not differences(plain[1], outcome(tmp_path, SURROUNDINGS[surroundings]), is_exact=True)
