"""From a training step to a traced model: exported at several sizes, sizes fitted, runs folded, parameters counted.

Whether a few layers of a deep model stand for all: both models run, and what they run is compared.

A loop over layers may run more than its layers say: every fourth result through a product of its own, half of the
tokens after the fifth. No attribute of a layer tells. So the whole model runs once in Python, on tensors without data,
and so does the one that is exported. Each unit of a run must run the same operations in both, on the same shapes and on
results of the same operations of this unit or of those before, and so must all that runs outside of the units.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Required, TypedDict, Unpack

from phaze_opt.errors import InputError
from phaze_opt.extract.depth import KEPT, Run, shallow
from phaze_opt.extract.exporting import count_parameters, export_step, run_step
from phaze_opt.extract.folding import fold
from phaze_opt.extract.recorded_graph import RecordedGraph
from phaze_opt.extract.size_fitting import fit_sizes, sample_sizes
from phaze_opt.extract.training_step import ROOT, TrainingStep
from phaze_opt.graph.traced.traced_check import NOTHING_TO_TRAIN
from phaze_opt.graph.traced.traced_model import SEQUENCE, TracedModel, TracedRepeat, TracedRole, TracedTensor

MAX_OPERATIONS = 3_000
"""Calls of one run of what is exported: about half a minute of processor time at three sizes or four."""
_ALIKE = 2
"""How much more operations a model may run at other sizes, which masks and windows decide."""
Call = tuple[object, ...]
"""An operation with what it takes and gives, or the number of a run that stands between others."""
Unit = tuple[int, int]
"""A run, and which of its units."""


@dataclass(slots=True)
class _Work:
    """What a model runs.

    Attributes:
        units: calls of each unit, by run.
        outside: all other calls, with each row of units of a run as one entry.
        now: unit that is running.
        made: unit and place among its calls that gave a tensor, by the tensor's identity.
        alive: all tensors that were seen, so that no two have one identity.
    """

    units: list[list[list[Call]]]
    outside: list[Call] = field(default_factory=list)
    now: Unit | None = None
    made: dict[int, tuple[Unit | None, int]] = field(default_factory=dict)
    alive: list[Any] = field(default_factory=list)

    def see(self, name: str, taken: Any, given: Any) -> None:
        """Note an operation where it belongs."""
        calls = self.outside if self.now is None else self.units[self.now[0]][self.now[1]]
        calls.append((name, self._shown(taken), self._shown(given)))
        for tensor in given if isinstance(given, list | tuple) else (given,):
            self.made[id(tensor)] = (self.now, len(calls))
            self.alive.append(tensor)

    def _shown(self, value: Any) -> object:
        """Shapes of the tensors of a value, and where they were made."""
        if hasattr(value, "shape"):
            return tuple(value.shape), self._origin(value)
        return tuple(self._shown(each) for each in value) if isinstance(value, list | tuple) else None

    def _origin(self, tensor: Any) -> object:
        """Where a tensor was made, told alike for units that stand for one another; nothing for parameters."""
        unit, place = self.made.get(id(tensor), (None, 0))
        if unit is None:
            return place
        run, index = unit
        if self.now is None or self.now[0] != run:
            return run, len(self.units[run]) - index, place
        return self.now[1] - index, place

    def enter(self, run: int, unit: int) -> None:
        """Note that a unit begins."""
        self.now = (run, unit)
        if self.outside[-1:] != [(run,)]:
            self.outside.append((run,))

    def leave(self) -> None:
        """Note that a unit ends."""
        self.now = None

    def form(self) -> tuple[object, ...]:
        """What is equal for two models of which one stands for the other."""
        return (tuple(self.outside), *({tuple(unit) for unit in run} for run in self.units))


def is_told_by_few(step: TrainingStep, *, kept: int) -> bool:
    """Whether layers can be left out of a model, and those that stay stand for all at its default sizes.

    A model that does not run outside of an export does not tell.

    Args:
        step: the model with its loss.
        kept: units of each run that stay (`depth.shallow`).
    """
    with shallow(step.module, kept=kept) as runs:
        if all(len(run.units) == run.count for run in runs):
            return False
    for values in sample_sizes(step.symbols, max_sequence_length=step.max_sequence_length):
        try:
            forms = [_work(step, values[-1], kept=each).form() for each in (0, kept)]
        except Exception:  # noqa: BLE001, S112 - the model's code may raise anything
            continue
        return forms[0] == forms[1]
    return False


def check_operations(step: TrainingStep, values: Sequence[Mapping[str, int]], *, kept: int) -> bool:
    """Whether a model runs about as many operations at the least and the most of some sizes.

    A loop in Python over the sequence does not. A model that does not run outside of an export does not tell.

    Args:
        step: the model with its loss.
        values: of the symbols, ascending.
        kept: units of each run that stay (`depth.shallow`).

    Raises:
        InputError: it runs more operations than are exported in reasonable time.
    """
    with shallow(step.module, kept=kept):
        try:
            counts = [_count(step, dict(each)) for each in (values[0], values[-1])]
        except _TooManyError:
            sizes = ", ".join(f"{symbol} = {value}" for symbol, value in values[-1].items())
            message = (
                f"{step.name} runs more than {MAX_OPERATIONS:,} operations at {sizes}, with layers that are alike left "
                "out; give a shorter sequence, or write its loops over the sequence as operations on whole tensors"
            )
            raise InputError(message) from None
        except Exception:  # noqa: BLE001 - the model's code may raise anything
            return True
    return max(counts) <= _ALIKE * min(counts)


class _TooManyError(Exception):
    """More operations than are exported."""


def _count(step: TrainingStep, values: dict[str, int]) -> int:
    """Calls of the framework that a model's code makes; a recurrent layer is one, as in an export."""
    from torch.overrides import TorchFunctionMode

    count = 0

    class _Counting(TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            nonlocal count
            # Once told it is not told again: what undoes settings on the way out is a call too.
            is_first = count <= MAX_OPERATIONS
            count += getattr(func, "__name__", "") != "__get__"
            if is_first and count > MAX_OPERATIONS:
                raise _TooManyError
            return func(*args, **(kwargs or {}))

    with _Counting():
        run_step(step, values)
    return count


def _work(step: TrainingStep, values: dict[str, int], *, kept: int) -> _Work:
    """What a model with some of its units, or all (0), runs at given sizes."""
    with shallow(step.module, kept=kept) as runs:
        work = _Work([[[] for _ in run.units] for run in runs])
        with _told_of_units(step.module, runs, work), _told_of_calls(work):
            run_step(step, values)
    return work


@contextmanager
def _told_of_units(module: Any, runs: Sequence[Run], work: _Work) -> Iterator[None]:
    """Let a work know when units begin and end while the block lasts."""
    with ExitStack() as stack:
        for run, each in enumerate(runs):
            for unit, names in enumerate(each.units):
                for name in names:
                    part = module.get_submodule(".".join(filter(None, (ROOT, each.path, name))))
                    begin = part.register_forward_pre_hook(_begins(work, run, unit))
                    stack.callback(begin.remove)
                    end = part.register_forward_hook(lambda *_: work.leave())
                    stack.callback(end.remove)
        yield


def _begins(work: _Work, run: int, unit: int) -> Any:
    return lambda *_: work.enter(run, unit)


@contextmanager
def _told_of_calls(work: _Work) -> Iterator[None]:
    """Let a work know of every operation while the block lasts."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class _Calls(TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = func(*args, **(kwargs or {}))
            work.see(str(func), args, result)
            return result

    with _Calls():
        yield


class TracedFacts(TypedDict, total=False):
    """Attributes of a traced model beside its graph."""

    name: Required[str]
    producer: Required[Mapping[str, str]]
    symbols: Required[Mapping[str, int]]
    num_positions: int
    max_sequence_length: int
    notes: tuple[str, ...]


def extract(step: TrainingStep, *, tell: Callable[[str], None] = lambda _: None) -> TracedModel:
    """The traced model of a step.

    Of a deep model a few layers are exported, if they stand for all (`extract.extracting`). A model whose sizes are no
    polynomials in its sequence is exported at its default sequence alone.

    Args:
        step: the model with its loss.
        tell: told in words what is done next.

    Raises:
        InputError: the model cannot be exported.
    """
    fault: InputError | None = None
    expected = count_parameters(step)
    # What a few layers run too much of, all do: said before the whole model runs.
    for values in sample_sizes(step.symbols, max_sequence_length=step.max_sequence_length):
        check_operations(step, values, kept=KEPT)
        break
    tell(f"running {step.name} to see which of its layers are alike")
    for kept in (KEPT, 0):
        if kept and not is_told_by_few(step, kept=kept):
            continue
        with shallow(step.module, kept=kept) as runs:
            for values in sample_sizes(step.symbols, max_sequence_length=step.max_sequence_length):
                tell(f"counting the operations of {step.name}")
                if not check_operations(step, values, kept=0):
                    continue
                try:
                    graphs = [_said(step, each, tell) for each in values]
                except InputError as error:
                    if not kept:
                        raise
                    fault = error
                    break
                try:
                    return _counted(_traced(step, runs, graphs, values), expected)
                except InputError as error:
                    fault = error
    if SEQUENCE in step.symbols:
        return extract(at_default_sequence(step), tell=tell)
    raise fault or InputError(step.name)


def _said(step: TrainingStep, values: Mapping[str, int], tell: Callable[[str], None]) -> RecordedGraph:
    """One export, which is told of before."""
    tell(f"exporting {step.name} at {', '.join(f'{symbol} = {value}' for symbol, value in values.items())}")
    return export_step(step, values)


def at_default_sequence(step: TrainingStep) -> TrainingStep:
    """A step whose sequence has its default length and no other."""
    length = step.symbols[SEQUENCE]
    sizes = tuple(tuple(length if size == SEQUENCE else size for size in each.shape) for each in step.inputs)
    inputs = tuple(replace(each, shape=shape) for each, shape in zip(step.inputs, sizes, strict=True))
    note = f"the sequence is fixed at {length}: what the model runs at others differs in more than sizes"
    symbols = {symbol: value for symbol, value in step.symbols.items() if symbol != SEQUENCE}
    return replace(step, inputs=inputs, symbols=symbols, num_positions=length, notes=(*step.notes, note))


def _counted(model: TracedModel, expected: int) -> TracedModel:
    """A traced model that has the parameters of its model."""
    found = num_parameters(model)
    if found != expected:
        message = f"the traced model of {model.name} has {found} parameters and the model {expected}"
        sentence = f"{message}: layers that look alike are not; write it so that they differ in an attribute"
        raise InputError(sentence)
    return model


def num_parameters(model: TracedModel) -> int:
    """Elements of all parameters of a traced model."""
    counts = {step.body: step.count for step in model.steps if isinstance(step, TracedRepeat)}
    inner = sum(counts[body.name] * _elements(body.tensors) for body in model.bodies)
    return _elements(model.tensors) + inner


def num_operations(model: TracedModel) -> int:
    """Operations of a traced model with its repeats written out."""
    lengths = {body.name: len(body.nodes) for body in model.bodies}
    return sum(step.count * lengths[step.body] if isinstance(step, TracedRepeat) else 1 for step in model.steps)


def _elements(tensors: Sequence[TracedTensor]) -> int:
    total = 0
    for tensor in tensors:
        if tensor.role is TracedRole.PARAMETER:
            elements = 1
            for size in tensor.shape:
                elements *= size.evaluate({})
            total += elements
    return total


def _traced(
    step: TrainingStep, runs: Sequence[Run], graphs: Sequence[RecordedGraph], values: Sequence[Mapping[str, int]]
) -> TracedModel:
    model = traced_of(
        graphs,
        values,
        name=step.name,
        producer=step.producer,
        symbols=step.symbols,
        num_positions=step.num_positions,
        max_sequence_length=step.max_sequence_length,
        notes=(*step.notes, *_questions_note(graphs)),
    )
    return fold(model, runs)


def _questions_note(graphs: Sequence[RecordedGraph]) -> tuple[str, ...]:
    """That the model's code decides by values that an export does not have."""
    count = max(each.num_questions for each in graphs)
    if not count:
        return ()
    return (
        f"the model's code asks {count} times whether something holds for the values of its tensors (infinite? "
        "masked?), and is recorded as if it never did",
    )


def traced_of(
    graphs: Sequence[RecordedGraph], values: Sequence[Mapping[str, int]], **facts: Unpack[TracedFacts]
) -> TracedModel:
    """The traced model of graphs at several sizes, whose first output is the loss.

    Args:
        graphs: one a choice of sizes.
        values: of the symbols, one a graph.
        facts: what else a traced model says.

    Raises:
        InputError: as `size_fitting.fit_sizes`, or no parameter.
    """
    if not any(tensor.role is TracedRole.PARAMETER for tensor in graphs[0].tensors.values()):
        message = f"{facts['name']} has no parameters: {NOTHING_TO_TRAIN}"
        raise InputError(message)
    tensors, nodes = fit_sizes(graphs, values)
    outputs = graphs[0].outputs
    return TracedModel(tensors=tensors, steps=nodes, outputs=outputs, loss=outputs[0], **facts)
