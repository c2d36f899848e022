"""From a training step to a traced model: exports at several sizes, sizes as polynomials, runs folded, parameters counted."""

from collections.abc import Sequence

from phaze_opt.errors import InputError, VerificationError
from phaze_opt.extract.depth import KEPT, Run, shallow
from phaze_opt.extract.exporting import count_parameters, export_step
from phaze_opt.extract.folding import fold
from phaze_opt.extract.size_fitting import fit_sizes, sample_sizes
from phaze_opt.extract.training_step import TrainingStep
from phaze_opt.graph.traced.traced_model import TracedModel, TracedRole, TracedTensor


def extract(step: TrainingStep) -> TracedModel:
    """The traced model of a step; of a deep model a few layers are exported, if they can stand for all.

    Raises:
        InputError: the model cannot be exported.
        VerificationError: the traced model has other parameters than the model.
    """
    with shallow(step.module, kept=KEPT) as runs:
        is_shallow = any(len(run.units) < run.count for run in runs)
        model = _attempt(step, runs) if is_shallow else None
    if model is not None and num_parameters(model) == count_parameters(step):
        return model
    with shallow(step.module, kept=0) as runs:
        model = _traced(step, runs)
    found, expected = num_parameters(model), count_parameters(step)
    if found != expected:
        message = f"the traced model of {step.name} has {found} parameters, the model {expected}"
        raise VerificationError(message)
    return model


def num_parameters(model: TracedModel) -> int:
    """Elements of all parameters of a traced model."""
    counts = {step.body: step.count for step in model.steps if not hasattr(step, "op")}
    inner = sum(counts[body.name] * _elements(body.tensors) for body in model.bodies)
    return _elements(model.tensors) + inner


def _elements(tensors: Sequence[TracedTensor]) -> int:
    total = 0
    for tensor in tensors:
        if tensor.role is TracedRole.PARAMETER:
            elements = 1
            for size in tensor.shape:
                elements *= size.evaluate({})
            total += elements
    return total


def _attempt(step: TrainingStep, runs: Sequence[Run]) -> TracedModel | None:
    """A shallow export; nothing where the model does not run without some of its layers, or these are not alike."""
    try:
        return _traced(step, runs)
    except InputError:
        return None


def _traced(step: TrainingStep, runs: Sequence[Run]) -> TracedModel:
    values = sample_sizes(step.symbols, max_sequence_length=step.max_sequence_length)
    graphs = [export_step(step, each) for each in values]
    tensors, nodes = fit_sizes(graphs, values)
    flat = TracedModel(
        name=step.name,
        producer=step.producer,
        symbols=step.symbols,
        tensors=tensors,
        steps=nodes,
        outputs=graphs[0].outputs,
        loss=graphs[0].outputs[0],
        num_positions=step.num_positions,
        max_sequence_length=step.max_sequence_length,
        notes=step.notes,
    )
    return fold(flat, runs)
