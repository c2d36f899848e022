"""From a training step to a traced model: exported at several sizes, sizes fitted, runs folded, parameters counted."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Required, TypedDict, Unpack

from phaze_opt.errors import InputError
from phaze_opt.extract.depth import KEPT, Run, shallow
from phaze_opt.extract.exporting import count_parameters, export_step
from phaze_opt.extract.folding import fold
from phaze_opt.extract.recorded_graph import RecordedGraph
from phaze_opt.extract.size_fitting import fit_sizes, sample_sizes
from phaze_opt.extract.training_step import TrainingStep
from phaze_opt.extract.whole_model import check_operations, is_told_by_few
from phaze_opt.graph.traced.traced_check import NOTHING_TO_TRAIN
from phaze_opt.graph.traced.traced_model import SEQUENCE, TracedModel, TracedRepeat, TracedRole, TracedTensor


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

    Of a deep model a few layers are exported, if they stand for all (`extract.whole_model`). A model whose sizes are no
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
