"""Damaged files: every command that reads one ends in order, within 10 s of CPU and 1 GB; no changed line is believed.

A journal torn at any length costs nothing but time: the command goes on from what is whole, and ends with the answer of
a whole one. `make test` tries one mutant of each file and one length, MUTANTS=2000 and TRUNCATIONS=1000 as many
as one likes, KEEP_MUTANTS=folder keeps the guilty. Both stand in one file, as what commands leave is made once for it.
"""

import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from forked_commands import CommandRunner, Ended
from mutations import Kind, mutate
from readers import CERTIFY, HAS_ONNX, READERS, SEARCH, STUDY, MakeOrigin, Reader

from phaze_opt.record.journal import parse_line

NUM_MUTANTS = int(os.environ.get("MUTANTS", "1"))
FIRST_MUTANT = int(os.environ.get("FIRST_MUTANT", "0"))
NUM_TRUNCATIONS = int(os.environ.get("TRUNCATIONS", "1"))
ALIKE = (
    "worlds", "worlds' bounds", "front", "front over worlds", "front of a world",
    "study's references", "study's evaluations", "steps",
)  # fmt: skip
"""Readers that `make test` leaves to `make test-slow`."""
JOURNALS = {
    "search": ("phaze-opt-runs/*/trials.jsonl", f"{SEARCH} --resume"),
    "proof": ("phaze-opt-certificates/*/journal/pieces.jsonl", f"{CERTIFY} --resume"),
    "study": ("phaze-opt-studies/*/*/*.jsonl", f"{STUDY} --resume"),
}
ANSWER = ("best", "best_by_condition", "value", "upper_bound", "gap", "regret", "evaluations", "distinct_evaluations")
"""What a command found; the other keys say how long it took, and what was there."""


def marks(reader: Reader) -> tuple[pytest.MarkDecorator, ...]:
    """Of files that are read as others are: commands of seconds."""
    if reader.kind is Kind.ONNX and not HAS_ONNX:
        return (pytest.mark.skip(reason="needs onnx"),)
    return (pytest.mark.slow,) if reader.name in ALIKE else ()


@pytest.mark.timeout(0)
@pytest.mark.parametrize(
    "reader", [pytest.param(each, id=each.name.replace(" ", "-"), marks=marks(each)) for each in READERS]
)
def test_commands_bear_damaged_files(
    reader: Reader,
    runner: CommandRunner,
    make_origin: MakeOrigin,
    run_whole: Callable[[str, str], Ended],
    tmp_path: Path,
    kept_mutants: Path | None,
) -> None:
    origin = make_origin(reader.origin)
    paths = sorted(path.relative_to(origin) for path in origin.glob(reader.file))
    assert paths, f"nothing is {reader.file}"
    whole = run_whole(reader.origin, reader.command_on(paths[-1]))
    assert whole.code == 0, whole.words
    faults = []
    for number in range(FIRST_MUTANT, FIRST_MUTANT + NUM_MUTANTS):
        rng = random.Random(f"{reader.name}:{number}")
        path = rng.choice(paths)
        mutant = mutate((origin / path).read_bytes(), reader.kind, rng)
        ended = run_in_copy(reader, runner, origin, tmp_path / "damaged", path, mutant)
        fault = ended.fault
        if not fault and reader.kind is Kind.LINES and not is_forged(mutant, (origin / path).read_bytes()):
            fault = "" if ended.code == 0 and best(ended) == best(whole) else f"exit code {ended.code}, best changed"
        if fault:
            faults.append(f"mutant {number} of {path}: {fault}\n{ended.words[-1500:]}")
            if kept_mutants is not None:
                keep(kept_mutants / f"{reader.name.replace(' ', '-')}-{number}", path, mutant, ended)
    assert not faults, f"{len(faults)} of {NUM_MUTANTS}\n" + "\n".join(faults[:10])


def run_in_copy(reader: Reader, runner: CommandRunner, origin: Path, copy: Path, path: Path, content: bytes) -> Ended:
    """Run the reader in a copy of the folder, with one file's content replaced."""
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(origin, copy)
    (copy / path).write_bytes(content)
    return runner.run(reader.command_on(path).split(), copy, software=reader.software)


def is_forged(mutant: bytes, original: bytes) -> bool:
    """Whether a journal has a line that was not there and whose checksum holds, or no checksum is left to hold."""
    known = set(original.splitlines())
    return b'"crc32":' not in mutant or any(line not in known and is_sealed(line) for line in mutant.splitlines())


def is_sealed(line: bytes) -> bool:
    try:
        parse_line(line)
    except (ValueError, RecursionError):
        return False
    return True


def best(ended: Ended) -> object:
    return json.loads(ended.out)["best"]


def keep(directory: Path, path: Path, mutant: bytes, ended: Ended) -> None:
    """For whoever mends it."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / path.name).write_bytes(mutant)
    (directory / "words").write_text(f"{ended.fault}\n{ended.words}")


@pytest.mark.timeout(0)
@pytest.mark.parametrize("origin", JOURNALS)
def test_a_torn_journal_costs_nothing_but_time(
    origin: str, runner: CommandRunner, make_origin: MakeOrigin, run_whole: Callable[[str, str], Ended], tmp_path: Path
) -> None:
    folder = make_origin(origin)
    pattern, command = JOURNALS[origin]
    paths = sorted(path.relative_to(folder) for path in folder.glob(pattern))
    assert paths
    expected = answer(run_whole(origin, command))
    rng = random.Random(origin)
    for _ in range(NUM_TRUNCATIONS):
        path = rng.choice(paths)
        length = rng.randrange((folder / path).stat().st_size + 1)
        ended = run_torn(folder, tmp_path, path, length, command, runner)
        assert not ended.fault, f"{path} cut at {length}: {ended.fault}\n{ended.words}"
        assert answer(ended) == expected, f"{path} cut at {length}"


def run_torn(origin: Path, tmp_path: Path, path: Path, length: int, command: str, runner: CommandRunner) -> Ended:
    """Run in a copy of a folder, with a file cut short."""
    copy = tmp_path / "torn"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(origin, copy)
    os.truncate(copy / path, length)
    return runner.run(command.split(), copy)


def answer(ended: Ended) -> object:
    """What the line of JSON says that was found."""
    assert ended.code == 0, ended.words
    line = json.loads(ended.out)
    return {key: line[key] for key in ANSWER if key in line}
