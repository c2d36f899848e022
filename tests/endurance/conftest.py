"""Makes the folder's modules importable; a process that forks; folders as commands leave them."""

import os
import shutil
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
from forked_commands import CommandRunner, Ended
from readers import CERTIFY, EVALUATE, ORIGINS, READERS, MakeOrigin, make_texts


@pytest.fixture(scope="session")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandRunner]:
    """Has run what readers of a user's files need: imports and kernels are there.

    Figures of studies are drawn where many mutants are tried: `make test` draws studies elsewhere.
    """
    directory = tmp_path_factory.mktemp("warm")
    with CommandRunner(has_figures=int(os.environ.get("MUTANTS", "1")) > 1) as runner:
        make_texts(directory, runner)
        commands = dict.fromkeys(reader.command for reader in READERS if reader.origin == "texts")
        for command in (EVALUATE, CERTIFY, *commands):
            runner.run(command.split(), directory, is_warm_up=True)
        yield runner


@pytest.fixture(scope="session")
def make_origin(runner: CommandRunner, tmp_path_factory: pytest.TempPathFactory) -> MakeOrigin:
    """A folder as a command leaves it; made once."""

    @cache
    def make(name: str) -> Path:
        directory = tmp_path_factory.mktemp(name)
        ORIGINS[name](directory, runner)
        return directory

    return make


@pytest.fixture(scope="session")
def run_whole(
    runner: CommandRunner, make_origin: MakeOrigin, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str, str], Ended]:
    """How a command ends in a folder that nobody damaged, by the folder's name and the command; run once."""

    @cache
    def run(origin: str, command: str) -> Ended:
        copy = shutil.copytree(make_origin(origin), tmp_path_factory.mktemp("whole") / origin)
        return runner.run(command.split(), copy)

    return run


@pytest.fixture(scope="session")
def kept_mutants() -> Path | None:
    """Where the mutants go that a command could not bear: KEEP_MUTANTS."""
    name = os.environ.get("KEEP_MUTANTS")
    return Path(name) if name else None
