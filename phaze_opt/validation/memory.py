"""Measured peaks of training runs against the memory of their plans (decision 0287); "seconds" are GiB."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from functools import cache, partial
from importlib import resources
from types import MappingProxyType
from typing import Any

import numpy as np

from phaze_opt.cost.compiled_step import CompiledStep, StepCompiler
from phaze_opt.cost.graph_sizes import GraphSizes, graph_sizes
from phaze_opt.cost.plan_memory import StageMemory, StageRows, rows_of_plan, stage_memory
from phaze_opt.cost.stacks import MEMORY_GROUP, find_software, load_stack, no_option, software_tables
from phaze_opt.cost.suited_software import middle_place, suited_software
from phaze_opt.errors import InputError
from phaze_opt.hardware.fitted import FittedConstants
from phaze_opt.record.arrays import Floats
from phaze_opt.record.document import parse_toml
from phaze_opt.units import GIBI
from phaze_opt.validation.family import BlockedRows, Family, FitParameter, Part, compile_blocks
from phaze_opt.validation.measured_row import Row
from phaze_opt.validation.schema import PUBLISHED_SETS
from phaze_opt.validation.training.entries import said_of_run
from phaze_opt.validation.training.row import TrainingRun, read_run
from phaze_opt.workload.plan import ParallelPlan, chunked_cuts
from phaze_opt.workload.software import StackMemory

STEPS = "train_"
"""Beginning of the names of published sets of whole steps, which tables may leave out."""
TEXTS = ("table", "source", "note")
"""Columns whose words are read, in this order."""
_WORDS = "software_words.toml"

_PART_NAMES = MappingProxyType(
    {
        "weight_bytes": "weights",
        "gradient_bytes": "gradients",
        "optimizer_bytes": "optimizer state",
        "gathered_bytes": "gathered layers and buckets",
        "activation_bytes": "activations and loss",
        "reserve_bytes": "allocator",
        "device_bytes": "context and communication",
    }
)


class Counter(StrEnum):
    """Who counted a peak: what tensors take, what the allocator reserved, or what the driver says the device holds."""

    ALLOCATED = "allocated"
    RESERVED = "reserved"
    DEVICE = "nvidia-smi"

    @classmethod
    def of(cls, kind: str) -> "Counter":
        """The counter that free text names; the allocator's reserve if it names none."""
        return next((each for each in cls if each.value in kind.lower()), cls.RESERVED)

    def bytes_of(self, memory: StageMemory[Floats]) -> Floats:
        """What it counts of each stage."""
        if self is Counter.ALLOCATED:
            return memory.counted_bytes
        return memory.reserved_bytes if self is Counter.RESERVED else memory.total_bytes

    @property
    def parts(self) -> tuple[str, ...]:
        """Fields of `StageMemory` that it counts."""
        names = tuple(each.name for each in fields(StageMemory))
        return names[: {Counter.ALLOCATED: -2, Counter.RESERVED: -1, Counter.DEVICE: len(names)}[self]]


@dataclass(frozen=True, slots=True)
class _Run:
    """A row under one software: its step and options, the stages of its plan and the sizes of its graphs."""

    step: CompiledStep
    stages: StageRows
    sizes: GraphSizes
    options: tuple[str, ...]

    def memory(self, fitted: FittedConstants) -> StageMemory[Floats]:
        """What each stage holds."""
        stack = load_stack(self.step.stack.name, fitted, self.options)
        return stage_memory(self.sizes, self.stages, optimizer=self.step.training.optimizer, stack=stack)


@dataclass(frozen=True, slots=True)
class _Peak:
    """A row: the counter, and the run under each software that it may have been."""

    counter: Counter
    runs: tuple[_Run, ...]

    def seconds(self, fitted: FittedConstants) -> Floats:
        """The middle of the peaks, shape (1,), GiB."""
        peaks = self._peaks(fitted)
        return np.array([peaks[middle_place(peaks)]])

    def explain(self, fitted: FittedConstants, _: int) -> tuple[Part, ...]:
        """What fills the fullest stage under the software in the middle, GiB."""
        memory = self.runs[middle_place(self._peaks(fitted))].memory(fitted)
        stage = int(np.argmax(self.counter.bytes_of(memory)))
        return tuple(Part(_PART_NAMES[name], getattr(memory, name)[stage].item() / GIBI) for name in self.counter.parts)

    def _peaks(self, fitted: FittedConstants) -> list[float]:
        return [float(self.counter.bytes_of(run.memory(fitted)).max()) / GIBI for run in self.runs]


def _compile(rows: Sequence[Row]) -> BlockedRows[_Peak]:
    """The steps of rows, each a block; a row whose model cannot be sharded stays unscored."""
    read = partial(_read_peak, compiler=StepCompiler())
    return compile_blocks(
        rows, read=read, measured=lambda row: row.number("measured_gib"), build=lambda peaks, _: peaks[0]
    )


def _read_peak(row: Row, compiler: StepCompiler) -> _Peak:
    run = read_run(row)
    model = replace(run.model, has_hidden_dropout=False, has_attention_dropout=False)
    options = said_of_run(row)
    names = software_of(row, run)
    runs = {name: _compile_run(replace(run, model=model), name, options, compiler) for name in set(names)}
    return _Peak(Counter.of(row.text("kind", "")), tuple(runs[name] for name in names))


def _compile_run(run: TrainingRun, software: str, options: tuple[str, ...], compiler: StepCompiler) -> _Run:
    stack = load_stack(software, FittedConstants({}), options)
    plan = _cut(run.plan, run.model.num_layers, stack.memory)
    step = compiler.compile(run.model, run.training, plan, stack=stack)
    stages = rows_of_plan(plan, step.blocks, num_micro_batches=step.num_micro_batches)
    sizes = graph_sizes([[part.graph for part in step.parts]], stack.memory)
    return _Run(step, stages, sizes.take(np.zeros(len(step.blocks), np.intp)), options)


def _cut(plan: ParallelPlan, num_layers: int, habits: StackMemory) -> ParallelPlan:
    """The plan with stages cut as the software does where blocks alone do not divide evenly."""
    if not habits.counts_ends or num_layers % (plan.pipeline * plan.interleave) == 0:
        return plan
    cuts = chunked_cuts(num_layers, plan.pipeline, plan.interleave)
    return replace(plan, blocks=cuts[-1]) if cuts else plan


def software_of(row: Row, run: TrainingRun) -> tuple[str, ...]:
    """The software that a row states; where it states nothing, the one that its text speaks of, if that can run so.

    Of other rows, and of those that state one which nobody knows, all that suits machine and plan, each as often as
    data sets have it.

    Raises:
        InputError: the software that it states cannot run so.
    """
    stated = row.text("software", "")
    name = find_software(stated) if stated else told_software(row)
    fault = next(filter(None, (no_option(name, option) for option in said_of_run(row))), "") if name else ""
    if stated and fault:
        raise InputError(fault, key="software")
    if not name or fault:
        return suited_software(run.plan, row.find_device(), sequence_length=run.training.sequence_length)
    return (name,)


def _parameters(rows: Sequence[Row]) -> tuple[FitParameter, ...]:
    """The two constants, where rows say something of them."""
    if not rows:
        return ()
    habits = StackMemory()
    reserve = FitParameter(
        MEMORY_GROUP, "reserve_share", "1", 0.0, 0.2, habits.reserve_share, "what the allocator reserves beyond tensors"
    )
    group = FitParameter(
        MEMORY_GROUP, "group_bytes", "bytes", 0.1 * GIBI, 2.0 * GIBI, 0.5 * GIBI, "buffers of a group that talks", True
    )
    counters = {Counter.of(row.text("kind", "")) for row in rows}
    return (reserve, group) if Counter.DEVICE in counters else (reserve,)


def _source(row: Row) -> str:
    return row.text("table", "") or row.text("source", "").partition(" ")[0]


MEMORY = Family(
    name="memory",
    datasets=("memory",),
    parameters=_parameters,
    compile=_compile,
    is_pulled=True,
    regime=lambda row: f"{_source(row)}, {Counter.of(row.text('kind', '')).value}",
    cell=lambda row: row.joined("model", "n_devices", "tp", "pp", "micro_batch", "seq", "recompute"),
    splits=MappingProxyType({"source": _source}),
)
"""Peaks of training runs as their frameworks or the driver count them; tested on sources kept out of the fit."""


def told_software(row: Row) -> str:
    """Name of the software that a row's table, source or note speaks of; empty where none does.

    A table named like a published set is that set's. Otherwise the first of the three texts that names exactly one
    software decides: a text that names several says nothing. Words on the form of that software count in all three.
    """
    table = row.text("table", "")
    published = (_software_of_set(own) for own in (table, f"{STEPS}{table}"))
    texts = [_plain(row.text(column, "")) for column in TEXTS]
    name = next(filter(None, (*published, *map(_named, texts))), "")
    forms = _words()["forms"].get(name, {})
    return next((form for words, form in forms.items() if any(_stands(words, text) for text in texts)), name)


def _software_of_set(name: str) -> str:
    """The first software of a published set; empty of other names."""
    known = PUBLISHED_SETS.get(name)
    return "" if known is None else next(iter(known.software), "")


@cache
def _words() -> Mapping[str, dict[str, Any]]:
    """The tables of words."""
    text = resources.files("phaze_opt.validation").joinpath(_WORDS).read_text(encoding="utf-8")
    return MappingProxyType(parse_toml(text, source=_WORDS).values)


@cache
def _names() -> Mapping[str, str]:
    """Software by the words that name it."""
    return MappingProxyType({_plain(name): name for name in software_tables()} | _words()["names"])


def _named(text: str) -> str:
    """The one software that a text names; empty if it names none, or several."""
    found = _longest([words for words in _names() if _stands(words, text)])
    software = {_names()[words] for words in found}
    return software.pop() if len(software) == 1 else ""


def _longest(found: Iterable[str]) -> list[str]:
    """Names that are no part of a longer one."""
    known = list(found)
    return [words for words in known if not any(words != other and _stands(words, other) for other in known)]


def _plain(text: str) -> str:
    return re.sub(r"[-_\s]+", " ", text.lower())


def _stands(words: str, text: str) -> bool:
    """Whether words stand in a text as whole words."""
    return re.search(rf"(?<![a-z0-9]){re.escape(words)}(?![a-z0-9])", text) is not None
