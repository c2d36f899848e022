"""Readers of files that users write, and the files here that each of them refuses."""

import re
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from document_model import Whole
from sample_files import REFUSALS

from phaze_opt.hardware.constants import load_constants
from phaze_opt.hardware.device_catalogue import read_devices
from phaze_opt.hardware.economics.prices import read_prices
from phaze_opt.hardware.networks import load_network
from phaze_opt.hardware.presets import load_architecture
from phaze_opt.record.document import parse_toml
from phaze_opt.schedule.problem import load_instance
from phaze_opt.space.known_spaces import load_space
from phaze_opt.study.files.study_file import read_study
from phaze_opt.validation.dataset import read_dataset
from phaze_opt.workload.config import load_model
from phaze_opt.workload.zoo import read_zoo_text

READERS: dict[str, Callable[[Path], object]] = {
    "architecture": lambda path: load_architecture(str(path)),
    "constants": load_constants,
    "document": lambda path: parse_toml(path.read_text(), source=str(path)).validate(Whole),
    "machine": lambda path: read_devices([path]),
    "measurements": read_dataset,
    "model": lambda path: load_model(str(path)),
    "network": lambda path: load_network(str(path), num_devices=8),
    "prices": read_prices,
    "schedule": load_instance,
    "space": load_space,
    "steps": read_dataset,
    "study": read_study,
}
"""By the first word of the name of a file here."""
FILES = sorted(path.stem for path in REFUSALS.glob("*.toml"))


def read_as(name: str) -> Callable[[Path], object]:
    """The reader that a file here is for."""
    return READERS[name.partition("_")[0]]


def spelled_out(text: str) -> str:
    """A text with ``9{400}`` as four hundred nines."""
    return re.sub(r"(.)\{(\d+)\}", lambda run: run[1] * int(run[2]), text)


@dataclass(frozen=True, slots=True)
class Faulty:
    """A faulty text: what is wrong, the name of its file, and the lines where it is if that is known."""

    fault: str
    file: str
    text: str
    lines: Sequence[int] = ()


def faulty_texts(name: str) -> Iterator[Faulty]:
    """What a file here holds: a good ``text`` (or one of the ``zoo``) with ``changes``, or whole faulty ``texts``.

    A change is one piece for another, and the line of the fault where that is another one.
    """
    listed = tomllib.loads((REFUSALS / f"{name}.toml").read_text(encoding="utf-8"))
    good = listed.get("text") or (read_zoo_text(listed["zoo"]) if "zoo" in listed else "")
    for old, new, *line in listed.get("changes", ()):
        before, found, after = good.partition(spelled_out(old))
        assert found, old
        first = before.count("\n") + 1
        lines = line or range(first, first + new.count("\n") + 1) if new else ()
        yield Faulty(f"{old!r} -> {new!r}", listed["file"], before + spelled_out(new) + after, lines)
    for text in listed.get("texts", ()):
        yield Faulty(repr(text), listed["file"], spelled_out(text))
