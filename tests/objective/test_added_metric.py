"""A metric is added by its declaration and its computation: JSON, tables, frames, CSV files and MLflow follow."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from kits.changed_package import copy_package, run

JOB = ["--model", "tiny", "--devices", "16", "--global-batch", "64", "--as", "phaze"]
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
"""
BEFORE = "    @property\n    def rate_gap"
ADDED = {
    "objective/evaluation.py": (
        (
            BEFORE,
            "    @property\n"
            '    @declares("samples/s per mm2", "samples/s/mm2", better=Better.HIGHER, is_headline=True)\n'
            "    def throughput_per_area(self) -> float:\n"
            "        return self.throughput_samples_per_s / self.area_mm2\n\n" + BEFORE,
        ),
    )
}
"""Throughput for each mm2 of a chip: one line declares it, one computes it."""
ELSEWHERE = """
import json, sys
import phaze_opt as po
from phaze_opt.report.design import performance_table
from phaze_opt.track.records import evaluation_metrics

found = po.evaluate(model="tiny", devices=16, global_batch=64, arch="phaze-tpu-v4", published_form="phaze")
rows = performance_table(found.evaluation, references={}).rows
print(json.dumps({
    "facts": found.facts["throughput_per_area"], "frame": list(found.to_frame()["throughput_per_area"]),
    "mlflow": evaluation_metrics(found.evaluation)["throughput_per_area"], "table": [row[0] for row in rows],
}))
"""


@pytest.fixture(name="package", scope="module")
def _package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_package(tmp_path_factory.mktemp("package"), ADDED)


def test_an_added_metric_is_in_documents_and_files(package: Path, tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text(STUDY)
    evaluate = ["evaluate", "--arch", "phaze-tpu-v4", *JOB]
    found, study = run(package, tmp_path, [evaluate, ["study", "run", "study.toml", "--no-tracking"]])
    assert found["throughput_per_area"] == pytest.approx(found["throughput_samples_per_s"] / found["area_mm2"])
    report = tmp_path / study["directory"] / "report"
    assert "throughput_per_area" in (report / "winners.csv").read_text().splitlines()[0]
    assert "samples/s per mm2" in (report / "report.html").read_text()


def test_an_added_metric_is_in_tables_frames_and_mlflow(package: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ELSEWHERE], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(package)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["facts"] == found["mlflow"] == found["frame"][0] > 0.0
    assert "samples/s per mm2" in found["table"]
