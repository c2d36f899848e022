"""Files of a user's that many tests write: a machine that nobody sells, a space and a study that take seconds."""

import tomllib
from pathlib import Path

from phaze_opt.workload.zoo import read_zoo_text

REFUSALS = Path(__file__).parent / "refusals"


def good_text(name: str) -> str:
    """The text without fault that a file of ``refusals`` begins with."""
    return str(tomllib.loads((REFUSALS / f"{name}.toml").read_text(encoding="utf-8"))["text"])


ZEUS = good_text("machine")
ARRAYS = "num_tc = 256\ntc_width = 16\ntc_depth = 16\nnum_vc = 64\nvc_width = 128\n"
NETWORK = good_text("network")


def fill_study_folder(folder: Path) -> Path:
    """Write what the study of ``refusals`` names beside it."""
    (folder / "net.toml").write_text(NETWORK)
    (folder / "mine").mkdir()
    (folder / "mine" / "config.json").write_text(read_zoo_text("tiny"))
    return folder


def space_text(*, min_area_fraction: float = 0.3, **axes: list[int]) -> str:
    """A space of a few chips; an axis not named has one value."""
    one = {"num_tc": [4], "num_vc": [16], "tc_width": [32], "tc_depth": [32], "glb_mb": [8], "hbm_gb": [32]}
    values = {**one, "micro_batch": [1], **axes}
    lines = "".join(f"{name} = {value}\n" for name, value in values.items())
    return f'name = "small"\narea_budget_mm2 = 279\nmin_area_fraction = {min_area_fraction}\n\n[axes]\n{lines}'


def study_text(
    *,
    name: str = "small",
    workloads: tuple[str, ...] = ("tiny",),
    strategies: tuple[str, ...] = ("random",),
    evaluations: int = 2,
    seeds: int = 1,
    truth: str = "enumerate",
) -> str:
    """A study of the space in ``space.toml`` beside it."""
    return f"""\
[study]
name = "{name}"
description = "A few strategies on a small space."
workloads = {list(workloads)}
strategies = {list(strategies)}
seeds = {seeds}
budget = {{ evaluations = {evaluations} }}

[cluster]
devices = 8
global_batch = 32

[training]
tensor_parallel = [1, 2]

[space]
file = "space.toml"

[statistics]
bootstrap = 200
truth = "{truth}"
"""
