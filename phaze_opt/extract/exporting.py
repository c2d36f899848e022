"""One export, or one run, of a training step at given sizes, on tensors that hold no data."""

import logging
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from phaze_opt.errors import InputError
from phaze_opt.extract.fx_recording import record_program
from phaze_opt.extract.own_operations import leaves_for
from phaze_opt.extract.recorded_graph import RecordedGraph, simplify
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
    with quiet(), leaves_for(step.module):
        export = partial(torch.export.export, step.module, _inputs(step, values), strict=False)
        try:
            program, questions = _answered(export)
        except Exception as error:  # noqa: BLE001 - the model's code may raise anything
            raise _fault(step, values, error) from error
    graph = record_program(program, canonical_names(step))
    return simplify(replace(graph, num_questions=questions))


def run_step(step: TrainingStep, values: Mapping[str, int]) -> None:
    """Run the forward pass of a step in Python; whatever its code raises comes out.

    Its code is told that it is exported, so that it looks at no values and takes the paths that an export takes.

    Args:
        step: the model with its loss.
        values: of the symbols of its inputs.
    """
    torch = TORCH.load()
    with quiet(), leaves_for(step.module), torch.no_grad(), _as_exported(torch.compiler):
        _answered(partial(step.module, *_inputs(step, values)))


def _answered(run: Callable[[], Any]) -> tuple[Any, int]:
    """What a run of a model's code gives, and how often it asked for the truth of a tensor, which holds no data.

    Each time the answer is no: no element is infinite, none is masked, none has global attention.
    """
    with _saying_no() as questions:
        return run(), len(questions)


@contextmanager
def _saying_no() -> Iterator[list[str]]:
    """Let tensors without data be false while the block lasts; gives the questions that were asked."""
    torch = TORCH.load()
    from torch.overrides import TorchFunctionMode

    questions: list[str] = []

    class _No(TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            name = getattr(func, "__name__", "")
            is_asked = name == "__bool__" or (name == "item" and args[0].dtype is torch.bool)
            if is_asked and args[0].device.type == "meta" and getattr(args[0], "constant", None) is None:
                questions.append(name)
                return False
            return func(*args, **(kwargs or {}))

    with _No():
        yield questions


@contextmanager
def _as_exported(compiler: Any) -> Iterator[None]:
    """Let torch say, while the block lasts, that code is exported."""
    flags = ("_is_compiling_flag", "_is_exporting_flag")
    before = {flag: getattr(compiler, flag, False) for flag in flags}
    try:
        for flag in flags:
            setattr(compiler, flag, True)
        yield
    finally:
        for flag, value in before.items():
            setattr(compiler, flag, value)


def _inputs(step: TrainingStep, values: Mapping[str, int]) -> tuple[Any, ...]:
    torch = TORCH.load()
    kinds = [getattr(torch, each.dtype) for each in step.inputs]
    sizes = [each.sizes(values) for each in step.inputs]
    return tuple(torch.empty(size, dtype=kind, device="meta") for size, kind in zip(sizes, kinds, strict=True))


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
    taken = "give inputs that it takes"
    if not any(each.name for each in step.inputs):
        shapes = " and ".join(str(list(each.sizes(values))) for each in step.inputs)
        taken = f"give --input as it takes them, the micro-batch first (it was given {shapes})"
    return InputError(f"{message}; {taken}, or change the model so that torch.export takes it")


@contextmanager
def quiet() -> Iterator[None]:
    """Keep what frameworks warn of and log to themselves."""
    level = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)
