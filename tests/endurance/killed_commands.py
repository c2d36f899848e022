"""Long commands in processes of their own, ended at random moments, and what they leave, without its times."""

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from itertools import chain, product
from pathlib import Path
from typing import Any

from readers import FILES
from sqlalchemy import create_engine, text

PATIENCE_S = 900
"""For a run that hangs; far above what a busy machine needs."""
TINY = "--devices 8 --global-batch 16 --space space.toml --json"
KEPT_COMMANDS = {
    "search": f"search --as phaze --model bert-large {TINY} --trials 60 --strategy tpe",
    "certify": f"certify --as phaze --model tiny {TINY}",
    "front": f"certify --as phaze --model tiny {TINY} --objective throughput,tdp",
    "robust": f"certify --as phaze --model tiny {TINY} --robust --robust-samples 1",
    "study": "study run study.toml --json",
}
"""They keep what is finished, and go on with it by ``--resume``."""
PLAIN_COMMANDS = {
    "calibrate": "calibrate --data rows.csv --out fitted.toml",
    "validate": "validate --data rows.csv --predictions predictions.csv --report validate.html --json",
    "evaluate": "evaluate --model tiny --arch phaze-tpu-v4 --devices 8 --global-batch 16 --report evaluate.html --json",
}
"""They are run again."""
CASES = (
    *((name, jobs, "files") for name in KEPT_COMMANDS for jobs in (1, 2)),
    *(("study", jobs, store) for store in ("sqlite", "postgresql", "dask") for jobs in (1, 2)),
    ("search", 2, "dask"),
    *((name, jobs, "mlflow") for name in ("search", "study") for jobs in (1, 2)),
    *((name, 2, "mlflow") for name in ("certify", "robust")),
    ("search", 1, "mlflow on postgresql"),
    *((name, 1, "output") for name in PLAIN_COMMANDS),
)
"""Command, jobs, and where it keeps what is finished, or what it finds."""
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
TIMES = {"wall_s", "overhead_s", "digest", "crc32", "charged_s", "written_s", "created", "started", "jobs"}
"""Keys whose values differ from run to run: times, the digests of what holds them, processes asked for."""
KEPT = ("phaze-opt-runs", "phaze-opt-certificates", "phaze-opt-studies")


def write_inputs(directory: Path) -> None:
    """A space and a study that take seconds."""
    directory.mkdir()
    study = (
        (FILES / "study.toml")
        .read_text()
        .replace("seeds = 1", "seeds = 4")
        .replace("evaluations = 4", "evaluations = 10")
    )
    (directory / "study.toml").write_text(study.replace('["tiny"]', '["tiny", "bert-large"]'))
    sizes = product((512, 2048, 8192), (1024, 4096, 8192))
    rows = [f"h100,matmul,{m},4096,{k},bf16,{m * k / 9e4 + 9:.1f}" for m, k in sizes]
    (directory / "rows.csv").write_text("\n".join(["hardware,op,m,n,k,dtype,latency_us", *rows, ""]))
    axes = {"glb_mb = [8, 32]": "glb_mb = [8, 16, 32]", "num_vc = [4, 64]": "num_vc = [4, 16, 64]"}
    space = (FILES / "space.toml").read_text()
    for old, new in axes.items():
        space = space.replace(old, new)
    (directory / "space.toml").write_text(space)


def start(command: str, directory: Path) -> subprocess.Popen[str]:
    """A process group of its own, as a terminal makes."""
    return subprocess.Popen(
        [sys.executable, "-m", "phaze_opt", *command.split()],
        cwd=directory,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


@dataclass(slots=True)
class Campaign:
    """Counts of one command's rounds.

    Attributes:
        landed: how often each signal found the command running.
        survived: ends with exit code 0 all the same, as where a worker alone was killed.
        num_equal: resumed runs that left what the undisturbed one left.
    """

    name: str
    landed: dict[str, int] = field(default_factory=lambda: dict.fromkeys((one.name for one in SIGNALS), 0))
    survived: int = 0
    num_rounds: int = 0
    num_equal: int = 0
    different: list[str] = field(default_factory=list)

    @property
    def num_landed(self) -> int:
        return sum(self.landed.values())


def disturb(command: str, directory: Path, campaign: Campaign, *, longest_s: float, rng: random.Random) -> str:
    """Run a command until it ends, ended early up to three times; its standard error where it is no good end."""
    for _ in range(3):
        process = start(command, directory)
        time.sleep(rng.uniform(0.2, longest_s))  # the moment is what is drawn, so no event can stand for it
        one = SIGNALS[campaign.num_landed % len(SIGNALS)]
        is_running = process.poll() is None
        if is_running:
            send(process, one, rng)
        _, words = process.communicate(timeout=PATIENCE_S)
        if is_running:
            campaign.landed[one.name] += 1
            campaign.survived += process.returncode == 0
        if "Traceback" in words:
            return words
        if process.returncode == 0:
            break
    return ""


def send(process: subprocess.Popen[str], one: signal.Signals, rng: random.Random) -> None:
    """Ctrl-C goes to all of the group, SIGTERM to the command, kill -9 to it or to one of its workers.

    Python's own resource tracker is left alone: its place is taken with a traceback of Python's.
    """
    if one is signal.SIGINT:
        os.killpg(process.pid, one)
        return
    children = children_of(process.pid)
    victim = rng.choice((process.pid, *children)) if one is signal.SIGKILL and children else process.pid
    try:
        os.kill(victim, one)
    except ProcessLookupError:
        process.kill()


def children_of(pid: int) -> list[int]:
    try:
        children = [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
        return [child for child in children if b"resource_tracker" not in Path(f"/proc/{child}/cmdline").read_bytes()]
    except OSError:
        return []


def content(directory: Path) -> dict[str, object]:
    """What a command left, by file: all but times, locks, pages and what trackers note; lines in any order.

    Processes share the files of a study, so the order of lines is chance.
    """
    found: dict[str, object] = {}
    folders = [directory.glob("*.*"), *((directory / folder).rglob("*") for folder in KEPT)]
    for path in sorted(chain(*folders)):
        name = str(path.relative_to(directory))
        if path.name.startswith("tracking") or "tracking-files" in path.parts:
            continue
        if path.suffix in (".jsonl", ".json"):
            lines = [without_times(json.loads(line)) for line in documents(path)]
            found[name] = sorted(json.dumps(line, sort_keys=True) for line in lines)
        elif path.suffix in (".parquet", ".npz") or (path.parent == directory and path.suffix in (".csv", ".toml")):
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
        elif "part" in path.suffix or "@" in path.suffix:
            found[name] = "left over"
    return found


def runs_in(address: str) -> list[tuple[object, ...]]:
    """Every run of an MLflow store: its role, how it ended, its search, its trial and what that came to."""
    tag = "left join tags as {0} on {0}.run_uuid = runs.run_uuid and {0}.key = 'phaze_opt.{0}'"
    query = f"""
        select role.value, runs.status, cell.value, trial.value, metric.value from runs
        {" ".join(map(tag.format, ("role", "cell", "trial")))}
        left join latest_metrics as metric
            on metric.run_uuid = runs.run_uuid and metric.key = 'throughput_samples_per_s'
    """
    engine = create_engine(address)
    with engine.connect() as connection:
        found = [tuple(row) for row in connection.execute(text(query))]
    engine.dispose()
    return sorted(found, key=str)


def documents(path: Path) -> list[str]:
    text = path.read_text()
    return text.splitlines() if path.suffix == ".jsonl" else [text]


def without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_times(item) for key, item in value.items() if key not in TIMES}
    return [without_times(item) for item in value] if isinstance(value, list) else value
