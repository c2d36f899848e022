"""A parameter of the chip is added by its declaration and its meaning: all else follows."""

from pathlib import Path

import pytest
from command_runs import run_json
from kits.changed_package import UNCHANGED, copy_package, run

TASK = ["--model", "tiny", "--devices", "16", "--global-batch", "64", "--tensor-parallel", "1,2", "--silicon", "phaze"]
SPACE = """
name = "more"
area_budget_mm2 = 900
min_area_fraction = 0.0

[axes]
num_tc = [1, 4]
num_vc = [16, 64]
tc_width = [64]
tc_depth = [64]
glb_mb = [8]
hbm_gb = [80]
micro_batch = [1, 4]
"""
STUDY = """
[study]
name = "more"
objective = "throughput"
workloads = ["tiny"]
strategies = ["digamma"]
seeds = 1
budget = { evaluations = 4 }

[cluster]
devices = 16
global_batch = 64

[training]
tensor_parallel = [1, 2]

[budgets]
silicon = "phaze"

[space]
file = "space.toml"
"""
LAST_AXIS = "default_values=(1, 2, 4, 8),\n    )  # fmt: skip\n"
CLOCK = (
    "    clock_mhz: T = axis(\n"
    '        AxisRole.JOINED, "a clock of {} MHz", plural="clocks", bounds=counts(10_000), default=1050\n    )\n'
)
ADDED = {
    "hardware/chip_template.py": ((LAST_AXIS, LAST_AXIS + CLOCK),),
    "hardware/designed_chip.py": (('constants.value("design.clock_hz")', "points.clock_mhz * 1e6"),),
}
"""A clock as one more parameter: one line declares it, one line says what it means."""


@pytest.fixture(name="package", scope="module")
def _package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_package(tmp_path_factory.mktemp("package"), ADDED)


def work_on(package: Path, folder: Path, axis: str, strategies: list[str], *more: list[str]) -> list[dict]:
    """Answers over a space with one more axis: of searches, a proof, a study, a check of the proof, other commands."""
    (folder / "space.toml").write_text(SPACE + axis)
    (folder / "study.toml").write_text(STUDY)
    given = [*TASK, "--no-tracking", "--space", "space.toml"]
    return run(package, folder, [
        *(["search", *given, "--no-range", "--strategy", name, "--trials", "8"] for name in strategies),
        ["certify", *given, "--no-range"], ["space", "--space", "space.toml", "--silicon", "phaze"],
        ["study", "run", "study.toml", "--no-tracking"],  # writes the report, from what it reads back
        ["certify", "--check", "phaze-opt-certificates/*"], *more,
    ])  # fmt: skip


@pytest.mark.slow
def test_an_added_parameter_is_searched_proved_and_reported(package: Path, tmp_path: Path) -> None:
    chip = "num_tc=4,num_vc=16,tc_width=64,tc_depth=64,glb_mb=8,hbm_gb=80,clock_mhz="
    evaluations = [["evaluate", *TASK, "--arch", f"{chip}{clock}", "--no-range"] for clock in (700, 1400)]
    axis = "clock_mhz = [700, 1050, 1400]\n"
    found, proof, space, study, check, slow, fast = work_on(package, tmp_path, axis, ["tpe"], *evaluations)
    assert space["ranges"]["clock_mhz"]["values"] == [700, 1050, 1400]
    assert proof["points"] == space["points"] == 12
    assert proof["is_proved"]
    assert check["valid"]
    assert proof["architecture"]["clock_hz"] == 1.4e9
    assert found["best"]["architecture"]["clock_hz"] in (0.7e9, 1.05e9, 1.4e9)
    assert slow["throughput_samples_per_s"] < fast["throughput_samples_per_s"]
    assert study["is_complete"]
    winners = (tmp_path / study["directory"] / "report" / "winners.csv").read_text()
    assert "clock_mhz" in winners
    trials = [path.read_text() for path in tmp_path.rglob("trials.jsonl")]
    assert any('"clock_mhz":' in text for text in trials)


@pytest.mark.slow
def test_without_it_all_is_as_it_was(package: Path, tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    command = ["certify", *TASK, "--no-range", "--no-tracking", "--space", "space.toml", "--work-dir"]
    (tmp_path / "space.toml").write_text(SPACE)
    old = run_json([*command, "before"], capsys)
    check, new = run(package, tmp_path, [["certify", "--check", old["file"]], [*command, "after"]])
    assert check["valid"]
    before, after = Path(old["file"]), Path(new["file"])
    assert after.name == before.name, "a digest has changed"
    assert (new["value"], new["upper_bound"]) == (old["value"], old["upper_bound"])
    tables = [
        {path.name: path.read_bytes() for path in (tmp_path / file).rglob("*.parquet")} for file in (before, after)
    ]
    assert tables[0] == tables[1] != {}


@pytest.mark.slow
def test_vector_cores_of_their_own_width(tmp_path: Path) -> None:
    """`vc_width` follows the arrays' width, until a space gives it values."""
    strategies = ["digamma", "wham", "spotlight", "confuciux", "phaze", "grid"]
    axis = "vc_width = [32, 64, 128]\n"
    *searches, proof, space, _, check, _ = work_on(UNCHANGED, tmp_path, axis, strategies, ["report", "more"])
    assert space["ranges"]["vc_width"]["values"] == [32, 64, 128]
    assert check["valid"]
    assert proof["points"] == space["points"] == 12
    assert proof["architecture"]["vc_width"] == 128
    assert {found["best"]["architecture"]["vc_width"] for found in searches} <= {32, 64, 128}
    best = max(found["best"]["throughput_samples_per_s"] for found in searches)
    assert best <= proof["upper_bound_samples_per_s"]
