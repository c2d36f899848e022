"""What runs in other processes: they import it by name, from the folder that conftest.py makes known."""

import os
import signal
from dataclasses import dataclass
from pathlib import Path

from phaze_opt.errors import CertificateError, PluginError
from phaze_opt.record.lock import locked


@dataclass(frozen=True, slots=True)
class Faulty(Exception):  # noqa: N818
    """An error that cannot be unpickled."""

    first: str

    def __reduce__(self):
        return (Faulty, ())


class Loses:
    """Loses the word to end in its destructor, as libraries do."""

    def __del__(self) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        sum(range(10))


class SquareBench:
    """Squares numbers; names stand for faults."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def do(self, work, tell):
        tell(f"begins {work}")
        if work == "refuse":
            raise CertificateError("the rule", file="points.parquet", row=3)
        if work == "fault":
            raise Faulty("x")
        if work == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if work == "die once" and not (self.folder / "died").exists():
            (self.folder / "died").write_text("")
            os.kill(os.getpid(), signal.SIGKILL)
        if work == "lose the word":
            Loses()
            while True:
                sum(range(1000))
        return work if isinstance(work, str) else work**2


def fail_to_build():
    message = "no bench"
    raise PluginError(message)


def hold(path, channel):
    with locked(path, busy="taken"):
        channel.send("held")
        channel.recv()
