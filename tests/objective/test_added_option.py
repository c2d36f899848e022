"""An option of a scenario is added by its declaration and its meaning: commands, studies and reports follow."""

from pathlib import Path

import pytest
from kits.changed_package import copy_package, run

JOB = ["--model", "tiny", "--devices", "16", "--global-batch", "64", "--as", "phaze"]
CHIP = ["evaluate", "--arch", "phaze-tpu-v4", *JOB]
TASK = [*JOB, "--no-tracking", "--micro-batch", "1"]
STUDY = """
[study]
name = "more"
workloads = ["tiny"]
strategies = ["random"]
seeds = 1
budget = { evaluations = 2 }

[cluster]
devices = 16
global_batch = 64

[training]
as = "phaze"
max_tensor = 2

[[setting]]
name = "narrow"
max_tensor = 1

[[setting]]
name = "wide"
"""
ADDED = {
    "objective/scenario_options.py": (
        (
            "    estimator: str | None = _of_choices(",
            '    max_tensor: int | None = _of_choices(None, "Largest tensor degree.", Kind.COUNT)\n'
            "    estimator: str | None = _of_choices(",
        ),
    ),
    "objective/scenario.py": (
        (
            "    schedule_nodes: int = LIMITED_NODES\n",
            "    schedule_nodes: int = LIMITED_NODES\n    max_tensor: int | None = None\n",
        ),
        ("degree <= self.cluster.num_devices]", "degree <= (self.max_tensor or self.cluster.num_devices)]"),
    ),
}
"""A largest degree of tensor parallelism: its declaration, its field, its meaning."""


@pytest.fixture(name="package", scope="module")
def _package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_package(tmp_path_factory.mktemp("package"), ADDED)


def test_an_added_option_is_one_of_commands_and_studies(package: Path, tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text(STUDY)
    study_run = ["study", "run", "study.toml", "--no-tracking"]  # writes the report, from what it reads back
    free, narrow, study = run(package, tmp_path, [CHIP, [*CHIP, "--max-tensor", "1"], study_run])
    assert narrow["placement"]["tensor_parallel"] == 1 < free["placement"]["tensor_parallel"]
    assert study["is_complete"]
    page = (tmp_path / study["directory"] / "report" / "report.html").read_text()
    assert "max tensor" in page
