"""Evaluations, searches and proofs are the same on another CPU, with other threads, locale and hash seed."""

from pathlib import Path

import pytest
from commands import run_commands, run_here
from comparison import differences
from environments import KERNELS, SURROUNDINGS

DATA = Path(__file__).parent / "data"
TASK = ["--model", "tiny", "--devices", "16", "--global-batch", "64"]
FEW = ["--tensor-parallel", "1,2", "--micro-batch", "1,4"]
QUIET = ["--no-tracking", "--seed", "3", "--strategy", "tpe"]
PLAN = ["evaluate", "--model", "bert-large", "--global-batch", "64", "--sequence-length", "512", "--arch", "a100-80g"]
PLACED, ALONE = ["--as", "phaze"], ["--no-range"]
SMALL = {
    "evaluate": ["evaluate", *TASK, *FEW[:2], "--micro-batch", "4", "--arch", "phaze-tpu-v4"],
    "evaluate-real": [*PLAN, "--devices", "16", "--software", "megatron-2021", "--top", "40"],
    "search": ["search", *TASK, *FEW, *QUIET, *ALONE, "--software", "megatron-core", "--trials", "4"],
    "search-placed": ["search", *TASK, *QUIET, *PLACED, *ALONE, *FEW[:2], "--trials", "4"],
    "certify": ["certify", *TASK, *ALONE, *FEW[:2], "--no-tracking", "--space", str(DATA / "space.toml")],
    "certify-placed": ["certify", *TASK, *PLACED, *ALONE, "--no-tracking", "--space", str(DATA / "space.toml")],
}


def outcome(said, commands):
    """What the commands printed, by name, and the files that all of them left."""
    lines = dict(zip(commands, (each.line for each in said), strict=True))
    return lines | said[-1].files


@pytest.fixture(scope="module", name="plain")
def _plain(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plain")
    return folder, outcome(run_here(list(SMALL.values()), folder), SMALL)


EVERY = {name: value for each in SURROUNDINGS.values() for name, value in each.items()}


@pytest.mark.parametrize("kernel", [pytest.param("haswell", marks=pytest.mark.slow), "oldest"])
def test_another_kernel_in_other_surroundings_chooses_the_same(kernel, plain, tmp_path):
    folder, expected = plain
    certificates = {path.parent.name: path.parent for path in folder.rglob("certificate.json")}
    assert len(certificates) == 2
    checks = {name: ["certify", "--check", str(directory)] for name, directory in certificates.items()}
    commands = SMALL | checks
    found = outcome(run_commands(list(commands.values()), tmp_path, KERNELS[kernel] | EVERY), commands)
    assert all(found.pop(name)["valid"] is True for name in checks)
    assert not differences(expected, found, is_exact=False)


@pytest.mark.slow
def test_surroundings_change_no_byte(plain, tmp_path):
    found = outcome(run_commands(list(SMALL.values()), tmp_path, EVERY), SMALL)
    assert not differences(plain[1], found, is_exact=True)
