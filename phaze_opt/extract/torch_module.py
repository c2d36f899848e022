"""Models of torch by a factory: ``module:factory`` is imported and called on no device, which runs the user's code."""

import importlib
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from phaze_opt.errors import InputError
from phaze_opt.extract.training_step import Size, StepInput, TrainingStep, step_module
from phaze_opt.extract.versions import TORCH
from phaze_opt.graph.traced.traced_model import BATCH, SEQUENCE, TracedDtype

EXAMPLE = "torchvision.models:resnet18"
INPUT_EXAMPLE = "1,3,224,224"
MAX_SIZE = 1 << 31
_SIZES = re.compile(r"[a-z0-9=,\s]+")


def torch_module_step(factory: str, inputs: Sequence[str]) -> TrainingStep:
    """The training step of the model that a factory makes.

    Args:
        factory: ``module:name`` of what is called without arguments and gives a model.
        inputs: of the model, by position, each as `parse_input` reads it.

    Raises:
        InputError: no such factory, it fails or gives no model, or an input is none.
    """
    if not inputs:
        message = f"a torch model needs its inputs; give each, such as --input {INPUT_EXAMPLE}"
        raise InputError(message, source="--input")
    symbols = {BATCH: 1}
    parsed = tuple(parse_input(text, symbols) for text in inputs)
    torch = TORCH.load()
    model = _made(factory, torch)
    return TrainingStep(
        name=factory.rpartition(":")[2],
        module=step_module(model, [each.name for each in parsed]),
        inputs=parsed,
        symbols=symbols,
        producer={"torch": TORCH.version(torch), **_origin(factory)},
        notes=(f"factory {factory}",),
    )


def parse_input(text: str, symbols: dict[str, int]) -> StepInput:
    """An input such as ``1,3,224,224`` or ``b,s=50:int64``: sizes and an element type, ``float32`` unless given.

    The first size is the micro-batch, whatever it says; ``s`` is the sequence, with its default where it comes first.

    Args:
        text: the input.
        symbols: defaults by symbol, to which that of the sequence is added.

    Raises:
        InputError: it is no such text.
    """
    sizes, _, dtype = text.partition(":")
    dtype = dtype.strip() or TracedDtype.FLOAT32.value
    if dtype not in set(TracedDtype) - {TracedDtype.FLOAT8}:
        message = (
            f"'{dtype[:40]}' is no element type; known: {', '.join(each for each in TracedDtype if each != 'float8')}"
        )
        raise InputError(message, source="--input")
    parts = [part.strip() for part in sizes.split(",")]
    if not _SIZES.fullmatch(sizes) or not all(parts):
        message = (
            f"'{text[:60]}' is no input; give sizes and, if it is not float32, the type: {INPUT_EXAMPLE} or 1,128:int64"
        )
        raise InputError(message, source="--input")
    shape: list[Size] = [BATCH, *(_size(part, symbols, text) for part in parts[1:])]
    if parts[0] != BATCH:
        _size(parts[0], symbols, text)
    return StepInput("", tuple(shape), dtype)


def _size(part: str, symbols: dict[str, int], text: str) -> Size:
    """One size of an input."""
    name, equals, number = part.partition("=")
    if name == SEQUENCE and (number if equals else SEQUENCE in symbols):
        if equals:
            symbols[SEQUENCE] = _number(number, text)
        return SEQUENCE
    if name == SEQUENCE:
        message = f"'{text[:60]}' names the sequence s without its length; give it where it comes first, such as s=128"
        raise InputError(message, source="--input")
    return _number(part, text)


def _number(part: str, text: str) -> int:
    if not part.isdecimal() or not 1 <= int(part[:12]) <= MAX_SIZE:
        message = f"size '{part[:20]}' of '{text[:60]}' must be an integer from 1 to {MAX_SIZE}, or s=LENGTH"
        raise InputError(message, source="--input")
    return int(part)


def _made(factory: str, torch: Any) -> Any:
    """The model, without data."""
    module_name, colon, name = factory.partition(":")
    if not colon or not module_name or not name:
        message = f"'{factory[:100]}' is no factory; give module:name, such as {EXAMPLE}"
        raise InputError(message, source="--torch")
    with _current_folder():
        try:
            found: Any = importlib.import_module(module_name)
            for part in name.split("."):
                found = getattr(found, part)
        except Exception as error:  # noqa: BLE001 - the user's code may raise anything
            raise _fault(factory, "cannot be imported", error) from error
        try:
            model = _called(found, torch)
        except Exception as error:  # noqa: BLE001 - as above
            raise _fault(factory, "fails without arguments", error) from error
    if not isinstance(model, torch.nn.Module):
        message = f"'{factory}' gives a {type(model).__name__}; it must give a torch.nn.Module"
        raise InputError(message, source="--torch")
    return model.to("meta")


def _called(factory: Any, torch: Any) -> Any:
    """What a factory gives without data; with data first, where it computes sizes by values of tensors."""
    try:
        with torch.device("meta"):
            return factory()
    except (NotImplementedError, RuntimeError):
        return factory()


def _fault(factory: str, what: str, error: Exception) -> InputError:
    said = " ".join(str(error).split())[:300]
    message = f"'{factory[:100]}' {what}: {type(error).__name__}: {said}; give module:name, such as {EXAMPLE}"
    return InputError(message, source="--torch")


@contextmanager
def _current_folder() -> Iterator[None]:
    """Let modules of the current folder be imported, as ``python`` does."""
    folder = str(Path.cwd())
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.path.remove(folder)


def _origin(factory: str) -> dict[str, str]:
    """Package of the factory with its version, if it has one."""
    package = factory.partition(":")[0].partition(".")[0]
    version = getattr(sys.modules.get(package), "__version__", None)
    return {package: str(version).partition("+")[0]} if version else {}
