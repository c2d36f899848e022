"""One export of a training step at given sizes, on tensors that hold no data."""

import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from phaze_opt.errors import InputError
from phaze_opt.extract.fx_recording import record_program
from phaze_opt.extract.leaves import leaves_for
from phaze_opt.extract.recorded_graph import RecordedGraph
from phaze_opt.extract.simplify import simplify
from phaze_opt.extract.training_step import TrainingStep
from phaze_opt.extract.versions import TORCH

_MAX_REASON = 400


def export_step(step: TrainingStep, values: Mapping[str, int]) -> RecordedGraph:
    """The graph of a step, without what costs nothing.

    Args:
        step: the model with its loss.
        values: of the symbols of its inputs.

    Raises:
        InputError: the framework cannot export the model; says what it said.
    """
    torch = TORCH.load()
    tensors = [torch.empty(each.sizes(values), dtype=getattr(torch, each.dtype), device="meta") for each in step.inputs]
    with _quiet(), leaves_for(step.module):
        try:
            program = torch.export.export(step.module, tuple(tensors), strict=False)
        except Exception as error:  # noqa: BLE001 - the model's code may raise anything
            raise _fault(step, values, error) from error
    graph = record_program(program, canonical_names(step))
    return simplify(graph)


def canonical_names(step: TrainingStep) -> dict[str, str]:
    """The first name of every parameter, by each of its names."""
    first: dict[int, str] = {}
    return {
        name: first.setdefault(id(parameter), name)
        for name, parameter in step.module.named_parameters(remove_duplicate=False)
    }


def count_parameters(step: TrainingStep) -> int:
    """Elements of all parameters of a model, tied ones once."""
    return sum(parameter.numel() for parameter in step.module.parameters())


def _fault(step: TrainingStep, values: Mapping[str, int], error: Exception) -> InputError:
    sizes = ", ".join(f"{symbol} = {value}" for symbol, value in values.items())
    said = " ".join(str(error).split())[:_MAX_REASON] or type(error).__name__
    message = f"{step.name} cannot be exported at {sizes}: {type(error).__name__}: {said}"
    return InputError(f"{message}; change the model so that torch.export takes it, or give inputs that it takes")


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep what frameworks warn of and log to themselves."""
    level = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)
