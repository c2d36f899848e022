"""SIGTERM, SIGHUP and Ctrl-C at chosen moments: one sentence, the signal's exit code, no traceback."""

import os
import signal
import sys

import pytest
from child_process import run_python

SEARCH = [
    "search",
    "--as",
    "phaze",
    "--model",
    "tiny",
    "--devices",
    "8",
    "--global-batch",
    "16",
    "--no-tracking",
    "--strategy",
    "random",
    "--no-range",
    "--tensor-parallel",
    "1",
    "--trials",
    "2",
]
AT_IMPORT = """
import os, signal, sys

numbers, module = map(int, sys.argv[1].split(",")), sys.argv[2]

class Sender:
    def find_spec(self, name, path=None, target=None):
        if name == module:
            sys.meta_path.remove(self)
            for number in numbers:
                os.kill(os.getpid(), number)

sys.meta_path.insert(0, Sender())
from phaze_opt.cli.entry import main
sys.argv[1:] = sys.argv[3:]
main()
"""
IN_DESTRUCTOR = """
import os, signal
from phaze_opt.cli import entry
from phaze_opt.search import run

class Loses:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)
        sum(range(10))

def run_search(*arguments, **options):
    loses = Loses()
    del loses
    while True:
        sum(range(1000))

run.run_search = run_search
entry.main()
"""
CODES = [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]


def run_child(code, *arguments, folder, prepare=None):
    ended = run_python("-c", code, *arguments, cwd=folder, timeout=200, preexec_fn=prepare)
    assert "Traceback" not in ended.stderr
    assert "Exception ignored" not in ended.stderr
    return ended


@pytest.mark.parametrize(("number", "code"), CODES)
def test_a_signal_while_the_command_line_loads_ends_it_at_once(number, code, tmp_path):
    ended = run_child(AT_IMPORT, int(number), "typer.core", *SEARCH, folder=tmp_path)
    assert ended.returncode == code
    assert ended.stderr.startswith("phaze-opt: interrupted; nothing is kept")
    assert ended.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("module", ["phaze_opt.cli.search", "pydantic_core", "numba.core.types"])
def test_a_signal_within_an_import_waits_until_it_is_over(module, tmp_path):
    """Compiled modules would make other errors of it, or lose it."""
    ended = run_child(AT_IMPORT, int(signal.SIGTERM), module, *SEARCH, "--json", folder=tmp_path)
    assert ended.returncode == 143
    assert "trials that had ended are kept: run the same command again with --resume" in ended.stderr
    assert ended.stderr.count("\n") == 1


def test_a_signal_that_a_destructor_swallows_comes_again(tmp_path):
    ended = run_child(IN_DESTRUCTOR, *SEARCH, folder=tmp_path)
    assert ended.returncode == 143
    assert "trials that had ended are kept" in ended.stderr


def test_what_whoever_started_the_command_ignores_stays_ignored(tmp_path):
    """A shell's background and nohup."""
    ignored = (signal.SIGINT, signal.SIGHUP)

    def ignore():
        for number in ignored:
            signal.signal(number, signal.SIG_IGN)

    numbers = ",".join(str(int(number)) for number in ignored)
    ended = run_child(AT_IMPORT, numbers, "phaze_opt.search.run", *SEARCH, folder=tmp_path, prepare=ignore)
    assert ended.returncode == 0, ended.stderr


def test_the_entry_imports_nothing_that_takes_a_while():
    code = "import sys, phaze_opt.cli.entry; print(*sorted(name.partition('.')[0] for name in sys.modules))"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ended = run_python("-S", "-c", code, check=True, env=environment)
    heavy = {"typer", "click", "rich", "pydantic", "numpy", "numba", "importlib.metadata", "asyncio"}
    assert not heavy & set(ended.stdout.split())
