"""Every file that a command reads, with the command that reads it."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from forked_commands import WALL_LIMIT_S, CommandRunner
from mutations import Kind

ROOT = Path(__file__).parents[2]
FILES = Path(__file__).parent / "files"
"""A file of every kind that a user writes."""
JOB = "--devices 8 --global-batch 16 --tensor-parallel 1 --micro-batch 1 --no-range --json"
EVALUATE = f"evaluate --model tiny --arch phaze-tpu-v4 {JOB}"
TINY = "--model tiny --devices 8 --global-batch 16 --space space.toml --no-tracking --no-range --json"
CERTIFY = f"certify {TINY} --as phaze --tensor-parallel 1"
ROBUST = f"{CERTIFY} --robust --robust-samples 0"
FRONT = f"{CERTIFY} --objective throughput,tdp"
CHECK = "certify --json --check DIR"
SEARCH = f"search {TINY} --as phaze --trials 8"
STUDY = "study run study.toml --no-tracking --json"
PROOF, STUDIED, WORLDS = "phaze-opt-certificates/*", "phaze-opt-studies/*", "phaze-opt-certificates/robust/*"
VALIDATE = "validate --json --data"
PLAN = "--software megatron-core --model tiny --devices 8 --global-batch 16 --micro-batch 1 --json"
OF_SOFTWARE = f"evaluate --arch h100 {PLAN}".replace("megatron-core", "STEM")
COPIES = {
    "layer.json": "tests/cli/two_matmuls.json",
    "instance.json": "tests/placement/data/01_tiny4_w1_d8.json",
    "constants.json": "phaze_opt/hardware/fitted_constants.json",
}


TRACED = ("mixtral-8x7b", "gnmt4", "resnet18", "qwen3-8b")
HAS_ONNX = find_spec("onnx") is not None
MakeOrigin = Callable[[str], Path]
"""The folder that a command leaves, by the name of the command."""


@dataclass(frozen=True, slots=True)
class Reader:
    """A file and what reads it.

    Attributes:
        origin: what made the folder it lies in, one of `ORIGINS`.
        file: a pattern below the folder; the mutant is one of those it finds.
        command: what reads it, run in the folder.
        software: folder in place of the package's files of training software, which no command takes from a user.
    """

    name: str
    origin: str
    file: str
    kind: Kind
    command: str
    software: str = ""

    def command_on(self, path: Path) -> str:
        """The command that reads a file at a path below the folder."""
        return self.command.replace("DIR", str(path.parent)).replace("FILE", str(path)).replace("STEM", path.stem)


READERS = (
    Reader("architecture", "texts", "chip.toml", Kind.TOML, EVALUATE.replace("phaze-tpu-v4", "chip.toml")),
    Reader("machine", "texts", "machine.toml", Kind.TOML, f"evaluate --arch machine.toml {PLAN}"),
    Reader("network", "texts", "fabric.toml", Kind.TOML, f"{EVALUATE} --network fabric.toml"),
    Reader("space", "texts", "space.toml", Kind.TOML, "space --space space.toml"),
    Reader("prices", "texts", "prices.toml", Kind.TOML, f"{EVALUATE} --prices prices.toml"),
    Reader("study file", "texts", "study.toml", Kind.TOML, STUDY),
    Reader("software", "software", "software/*.toml", Kind.TOML, OF_SOFTWARE, software="software"),
    Reader("model", "texts", "config.json", Kind.JSON, EVALUATE.replace("tiny", "config.json")),
    Reader("traced model", "models", "traced-*.json", Kind.TRACED, EVALUATE.replace("tiny", "FILE")),
    Reader("ONNX file", "models", "*.onnx", Kind.ONNX, "extract --onnx FILE --out out.json"),
    Reader("schedule", "texts", "layer.json", Kind.JSON, "schedule layer.json --json"),
    Reader("placement", "texts", "instance.json", Kind.JSON, "place instance.json --semantics phaze --json"),
    Reader("constants", "texts", "constants.json", Kind.JSON, f"{VALIDATE} operators.csv --constants constants.json"),
    Reader("operators", "texts", "operators.csv", Kind.CSV, f"{VALIDATE} operators.csv"),
    Reader("steps", "texts", "steps.csv", Kind.CSV, f"{VALIDATE} steps.csv"),
    Reader("certificate", "certificate", f"{PROOF}/certificate.json", Kind.JSON, CHECK),
    Reader("pool", "certificate", f"{PROOF}/pool.json", Kind.JSON, CHECK),
    Reader("solutions", "certificate", f"{PROOF}/solutions.json", Kind.JSON, CHECK),
    Reader("points", "certificate", f"{PROOF}/points.parquet", Kind.TABLE, CHECK),
    Reader("multipliers", "certificate", f"{PROOF}/multipliers.npz", Kind.ARRAYS, CHECK),
    Reader("finished proof", "certificate", f"{PROOF}/*.json", Kind.JSON, f"{CERTIFY} --resume"),
    Reader("proof's rounds", "proof", f"{PROOF}/journal/*.jsonl", Kind.LINES, f"{CERTIFY} --resume"),
    Reader("proof's bounds", "proof", f"{PROOF}/journal/*.npz", Kind.ARRAYS, f"{CERTIFY} --resume"),
    Reader("worlds", "robust", f"{PROOF}*/pieces.jsonl", Kind.LINES, f"{ROBUST} --resume"),
    Reader("worlds' bounds", "robust", f"{PROOF}*/*.npz", Kind.ARRAYS, f"{ROBUST} --resume"),
    Reader("front", "front", f"{PROOF}/certificate.json", Kind.JSON, CHECK),
    Reader("front over worlds", "worlds", f"{WORLDS}/front.json", Kind.JSON, CHECK),
    Reader("front of a world", "worlds", f"{WORLDS}/worlds/*/certificate.json", Kind.JSON, f"{CHECK}/../.."),
    Reader("trials", "search", "phaze-opt-runs/*/trials.jsonl", Kind.LINES, f"{SEARCH} --resume"),
    Reader("study's plan", "study", f"{STUDIED}/study.json", Kind.JSON, f"{STUDY} --resume"),
    Reader("study's report", "study", f"{STUDIED}/study.json", Kind.JSON, "report small --json"),
    Reader("study's searches", "study", f"{STUDIED}/cells/*.jsonl", Kind.LINES, f"{STUDY} --resume"),
    Reader("study's evaluations", "study", f"{STUDIED}/evaluations/*.jsonl", Kind.LINES, f"{STUDY} --resume"),
    Reader("study's references", "study", f"{STUDIED}/*/*.json", Kind.JSON, f"{STUDY} --resume"),
)


def make_texts(directory: Path, runner: CommandRunner) -> None:
    """Files that a user writes."""
    del runner
    shutil.copytree(FILES, directory, dirs_exist_ok=True)
    for name, path in COPIES.items():
        shutil.copyfile(ROOT / path, directory / name)


def make_software(directory: Path, runner: CommandRunner) -> None:
    """The package's files of training software."""
    del runner
    shutil.copytree(ROOT / "phaze_opt/cost/software", directory / "software")


def make_models(directory: Path, runner: CommandRunner) -> None:
    """Traced models of several kinds, and ONNX files where the library is there to make and to read them."""
    del runner
    for name in TRACED:
        shutil.copyfile(ROOT / f"tests/traced_models/{name}.json", directory / f"traced-{name}.json")
    if HAS_ONNX:
        from onnx_models import small_cnn, small_encoder

        for name, model in (("cnn", small_cnn()), ("encoder", small_encoder()), ("fixed", small_encoder(batch=2))):
            (directory / f"{name}.onnx").write_bytes(model.SerializeToString())


def run_of(command: str, interrupted_at: str = "") -> Callable[[Path, CommandRunner], None]:
    """What a command leaves."""

    def make(directory: Path, runner: CommandRunner) -> None:
        make_texts(directory, runner)
        # A fresh clone compiles kernels here.
        ended = runner.run(command.split(), directory, interrupted_at=interrupted_at, cpu_limit_s=WALL_LIMIT_S)
        assert ended.code == (130 if interrupted_at else 0), ended

    return make


ORIGINS = {
    "texts": make_texts,
    "models": make_models,
    "software": make_software,
    "certificate": run_of(CERTIFY),
    "proof": run_of(CERTIFY, "phaze_opt.certify.prove:write_certificate"),
    "front": run_of(FRONT),
    "worlds": run_of(f"{FRONT} --robust --robust-samples 0"),
    "robust": run_of(ROBUST, "phaze_opt.certify.robust.analyse:write_plain"),
    "search": run_of(SEARCH),
    "study": run_of(STUDY),
}
