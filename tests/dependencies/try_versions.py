"""Runs the main job and the quick tests with other versions of the dependencies than the pinned ones.

    python tests/dependencies/try_versions.py lowest 3.11 3.13

Every Python gets an environment of its own, made anew without ``constraints.txt``. "newest" is what pip chooses,
"lowest" the least version that ``pyproject.toml`` states of every package that it names. Python and pip are enough.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
EXTRAS = ("test", "dask", "postgres")
"""Extras of ``pyproject.toml`` that the quick tests use."""
OWN = "phaze-opt["
REQUIREMENT = re.compile(r"(?P<name>[\w.-]+)(?:\[[\w,.-]+\])?>=(?P<lowest>[\w.]+)(?:,<[\w.]+)?")
MAIN_JOB = Path(__file__).with_name("main_job.py")
QUICK = "not long and not slow and not reference and not ui"
"""What `make check` runs."""


@dataclass(frozen=True, slots=True)
class Environment:
    """A virtual environment with one choice of versions.

    Attributes:
        choice: "newest" or "lowest".
        python: such as "3.11".
    """

    choice: str
    python: str

    @property
    def folder(self) -> Path:
        return ROOT / f".venv-{self.choice}-{self.python}"

    def command(self, name: str) -> str:
        return str(self.folder / "bin" / name)

    def run(self, *command: str) -> None:
        """Run a command with kernels of its own: those of another numba would be compiled over.

        Raises:
            CalledProcessError: it failed; it has said why.
        """
        variables = {**os.environ, "NUMBA_CACHE_DIR": str(self.folder / "kernels"), "PHAZE_OPT_QUIET": "1"}
        variables.pop("PYTHONDONTWRITEBYTECODE", None)
        subprocess.run(command, cwd=ROOT, env=variables, check=True)

    def make(self) -> None:
        """Make it anew and install the package in it."""
        subprocess.run([find_python(self.python), "-m", "venv", "--clear", str(self.folder)], check=True)
        chosen = []
        if self.choice == "lowest":
            constraints = self.folder / "lowest.txt"
            constraints.write_text("".join(f"{name}=={version}\n" for name, version in lowest_versions()))
            chosen = ["-c", str(constraints)]
        pip = [self.command("python"), "-m", "pip", "--disable-pip-version-check", "install", "--progress-bar", "off"]
        command = [*pip, *chosen, "-e", f".[{','.join(EXTRAS)}]"]
        told = subprocess.run(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
        if told.returncode:
            say("\n".join(told.stdout.splitlines()[-20:]))
            told.check_returncode()

    def versions(self) -> str:
        """Version of Python and of every package that ``pyproject.toml`` names."""
        names = [name for name, _ in lowest_versions()]
        code = (
            "import platform, sys; from importlib.metadata import version\n"
            "told = [f'{name} {version(name)}' for name in sys.argv[1:]]\n"
            "print(f'Python {platform.python_version()}', *told, sep=', ')"
        )
        told = subprocess.run([self.command("python"), "-c", code, *names], capture_output=True, text=True, check=True)
        return told.stdout.strip()


def lowest_versions() -> Iterator[tuple[str, str]]:
    """Name and least version of every dependency, and of those of the extras that tests use.

    Raises:
        ValueError: a requirement states no least version.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    for requirement in (*project["dependencies"], *(each for extra in EXTRAS for each in extras[extra])):
        if requirement.startswith(OWN):
            continue
        found = REQUIREMENT.fullmatch(requirement)
        if found is None:
            message = f"pyproject.toml: {requirement!r} is not of the form NAME>=LOWEST or NAME>=LOWEST,<ABOVE"
            raise ValueError(message)
        yield found["name"], found["lowest"]


def find_python(version: str) -> str:
    """Path of an interpreter: on the PATH, or of pyenv.

    Raises:
        FileNotFoundError: there is none.
    """
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    of_pyenv = sorted(pyenv.glob(f"{version}.*/bin/python{version}"))
    for candidate in (shutil.which(f"python{version}"), *map(str, of_pyenv)):
        # A shim of pyenv is there and fails where its version is not chosen.
        if candidate and subprocess.run([candidate, "--version"], capture_output=True, check=False).returncode == 0:
            return candidate
    message = f"python{version} is not installed: install it or leave {version} out of PYTHONS"
    raise FileNotFoundError(message)


def try_versions(choice: str, python: str, jobs: int) -> str:
    """Make an environment, run the main job and the quick tests in it.

    Returns:
        One line for the end: what passed, how long it took, with which versions.

    Raises:
        CalledProcessError: something failed; it has said what.
    """
    environment = Environment(choice, python)
    began = time.monotonic()
    say(f"{choice} dependencies on Python {python}: {environment.folder.name}")
    environment.make()
    installed = time.monotonic()
    versions = environment.versions()
    say(versions)
    environment.run(environment.command("python"), str(MAIN_JOB))
    done = time.monotonic()
    pytest = [environment.command("pytest"), "-q", "-n", str(jobs), "--dist", "loadfile", "--no-loadscope-reorder"]
    environment.run(*pytest, "-p", "no:cacheprovider", "-m", QUICK)
    ended = time.monotonic()
    seconds = f"installed in {installed - began:.0f} s, main job {done - installed:.0f} s, tests {ended - done:.0f} s"
    return f"{choice} on Python {python} passed ({seconds}): {versions}"


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("choice", choices=("newest", "lowest"))
    parser.add_argument("pythons", nargs="+", help="such as 3.11 3.13")
    parser.add_argument("--jobs", type=int, default=2, help="processes of pytest")
    given = parser.parse_args()
    passed, failed = [], []
    for python in given.pythons:
        try:
            passed.append(try_versions(given.choice, python, given.jobs))
        except (subprocess.CalledProcessError, FileNotFoundError, ValueError) as error:
            failed.append(f"{given.choice} on Python {python} failed: {error}")
    for line in (*passed, *failed):
        say(line)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
