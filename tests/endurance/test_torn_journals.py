"""Journals torn at any length: the command goes on from what is whole, and ends with the answer of a whole one.

`make test` tears at a few drawn lengths, TRUNCATIONS=1000 at as many as one likes.
"""

import json
import os
import random
import shutil
from pathlib import Path

import pytest
from forked_commands import CommandRunner, Ended
from readers import CERTIFY, SEARCH, STUDY, MakeOrigin

NUM_TRUNCATIONS = int(os.environ.get("TRUNCATIONS", "4"))
JOURNALS = {
    "search": ("phaze-opt-runs/*/trials.jsonl", f"{SEARCH} --resume"),
    "proof": ("phaze-opt-certificates/*/journal/pieces.jsonl", f"{CERTIFY} --resume"),
    "study": ("phaze-opt-studies/*/*/*.jsonl", f"{STUDY} --resume"),
}
ANSWER = ("best", "best_by_condition", "value", "upper_bound", "gap", "regret", "evaluations", "distinct_evaluations")
"""What a command found; the other keys say how long it took, and what was there."""


@pytest.mark.timeout(0)
@pytest.mark.parametrize("origin", JOURNALS)
def test_a_torn_journal_costs_nothing_but_time(
    origin: str, runner: CommandRunner, make_origin: MakeOrigin, tmp_path: Path
) -> None:
    folder = make_origin(origin)
    pattern, command = JOURNALS[origin]
    paths = sorted(path.relative_to(folder) for path in folder.glob(pattern))
    assert paths
    expected = answer(run_torn(folder, tmp_path, paths[0], None, command, runner))
    rng = random.Random(origin)
    for _ in range(NUM_TRUNCATIONS):
        path = rng.choice(paths)
        length = rng.randrange((folder / path).stat().st_size + 1)
        ended = run_torn(folder, tmp_path, path, length, command, runner)
        assert not ended.fault, f"{path} cut at {length}: {ended.fault}\n{ended.words}"
        assert answer(ended) == expected, f"{path} cut at {length}"


def run_torn(
    origin: Path, tmp_path: Path, path: Path, length: int | None, command: str, runner: CommandRunner
) -> Ended:
    """Run in a copy of a folder, with a file cut short."""
    copy = tmp_path / "torn"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(origin, copy)
    if length is not None:
        os.truncate(copy / path, length)
    return runner.run(command.split(), copy)


def answer(ended: Ended) -> object:
    """What the line of JSON says that was found."""
    assert ended.code == 0, ended.words
    line = json.loads(ended.out)
    return {key: line[key] for key in ANSWER if key in line}
