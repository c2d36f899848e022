"""Runs commands in forked children of a process that has imported them already: a run costs tens of milliseconds.

As a script it is that process: a line of JSON on standard input is a run, a line on standard output is how it ended.
"""

import gc
import importlib
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
from dataclasses import asdict, dataclass, field
from functools import _lru_cache_wrapper
from pathlib import Path

CPU_LIMIT_S = 10
WALL_LIMIT_S = 300
"""For a run that waits for ever; far above what a busy machine needs."""
MEMORY_LIMIT_BYTES = 1 << 30
ADDRESS_LIMIT_BYTES = 4 << 30
"""Ends a run that takes memory without end before it harms the machine."""


@dataclass(frozen=True, slots=True)
class Run:
    """A command to run.

    Attributes:
        arguments: of phaze-opt.
        directory: where it runs.
        interrupted_at: ``module:attribute`` whose call is Ctrl-C, which leaves a run under way on disk; empty: none.
        is_warm_up: in the process itself, so that forks find loaded what it loads.
        cpu_limit_s: processor time that ends it.
        has_figures: whether pages of studies have files of their figures, which take most of their time.
        software: folder below the directory in place of the package's files of training software; empty: the package's.
    """

    arguments: list[str]
    directory: str
    interrupted_at: str = ""
    is_warm_up: bool = False
    cpu_limit_s: int = CPU_LIMIT_S
    has_figures: bool = True
    software: str = ""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a run ended.

    Attributes:
        code: exit code; minus the signal that ended it.
        memory_bytes: that it took beyond what it began with.
    """

    code: int
    out: str
    words: str
    cpu_s: float = 0.0
    memory_bytes: int = 0

    @property
    def fault(self) -> str:
        """What is wrong with such an end, whatever the input; empty if nothing."""
        if self.code == -signal.SIGXCPU:
            return f"more than {CPU_LIMIT_S} s of CPU"
        if self.code == -signal.SIGALRM:
            return f"more than {WALL_LIMIT_S} s"
        if self.memory_bytes > MEMORY_LIMIT_BYTES:
            return f"{self.memory_bytes / 1e9:.1f} GB of memory"
        if "Traceback" in self.words:
            return "a traceback"
        if self.code not in (0, 2, 3):
            return f"exit code {self.code}"
        return "" if self.code != 2 or self.words.strip() else "exit code 2 without a word"


@dataclass(slots=True)
class CommandRunner:
    """The other end: a process that forks; its runs draw figures unless it says otherwise."""

    has_figures: bool = True
    _process: subprocess.Popen[str] = field(init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __enter__(self) -> "CommandRunner":
        one_thread = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "ARROW_NUM_THREADS"), "1")
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **one_thread, "ARROW_DEFAULT_MEMORY_POOL": "system"},
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def run(self, arguments: list[str], directory: Path, **choices: str | bool | int) -> Ended:
        """Run a command; ``choices`` are the other fields of `Run`."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        request = {"arguments": arguments, "directory": str(directory), "has_figures": self.has_figures, **choices}
        with self._lock:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
        assert answer, "the process that forks has ended"
        return Ended(**json.loads(answer))


def serve() -> None:
    """Answer until standard input ends."""
    answers = os.fdopen(os.dup(1), "w")
    sink = os.open(os.devnull, os.O_WRONLY)
    os.dup2(sink, 1)
    with tempfile.TemporaryDirectory() as folder:
        for line in sys.stdin:
            request = Run(**json.loads(line))
            ended = warm_up(request) if request.is_warm_up else run_forked(request, Path(folder))
            answers.write(json.dumps(asdict(ended)) + "\n")
            answers.flush()


def warm_up(request: Run) -> Ended:
    """Run it here."""
    from highspy import Highs

    os.chdir(request.directory)
    code = call(request)
    Highs.resetGlobalScheduler(True)  # its threads would be missing in the forks
    return Ended(code, "", "")


def run_forked(request: Run, folder: Path) -> Ended:
    """Run it in a child with limits."""
    out, words = folder / "out", folder / "words"
    before_bytes = memory_bytes("VmRSS")
    child = os.fork()
    if child == 0:
        run_as_child(request, out, words)
    _, status, usage = os.wait4(child, 0)
    return Ended(
        code=os.waitstatus_to_exitcode(status),
        out=out.read_text(errors="replace"),
        words=words.read_text(errors="replace"),
        cpu_s=usage.ru_utime + usage.ru_stime,
        memory_bytes=usage.ru_maxrss * 1024 - before_bytes,
    )


def run_as_child(request: Run, out: Path, words: Path) -> None:
    """Limits, streams, the command; does not return."""
    code = 1
    try:
        for path, descriptor in ((out, 1), (words, 2)):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), descriptor)
        os.chdir(request.directory)
        resource.setrlimit(resource.RLIMIT_CPU, (request.cpu_limit_s, request.cpu_limit_s + 5))
        most = memory_bytes("VmSize") + ADDRESS_LIMIT_BYTES
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
        signal.alarm(WALL_LIMIT_S)
        code = call(request)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def call(request: Run) -> int:
    """The command's exit code; 1 with a traceback for what it does not catch."""
    from phaze_opt.cli.main import main

    if not request.has_figures:
        replace_at("phaze_opt.report.page:render_figures", lambda _: {})
    if request.software:
        replace_at("phaze_opt.cost.stacks:_FOLDER", str(Path(request.software).absolute()))
        forget()
    if request.interrupted_at:
        replace_at(request.interrupted_at, stop)
    try:
        main(request.arguments)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def forget() -> None:
    """Empty what functions of the package remember, which the process that forks read already."""
    for found in gc.get_objects():
        if isinstance(found, _lru_cache_wrapper) and found.__module__.startswith("phaze_opt."):
            found.cache_clear()


def stop(*_: object, **__: object) -> None:
    """Ctrl-C, in place of a function."""
    raise KeyboardInterrupt


def replace_at(place: str, other: object) -> None:
    """Put another in the place of a function."""
    module, _, path = place.partition(":")
    owner: object = importlib.import_module(module)
    *parents, name = path.split(".")
    for parent in parents:
        owner = getattr(owner, parent)
    setattr(owner, name, other)


def memory_bytes(key: str) -> int:
    """A figure of this process."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1]) * 1024
    raise KeyError(key)


if __name__ == "__main__":
    serve()
