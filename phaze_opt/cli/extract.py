"""``phaze-opt extract``: a model of transformers, torch or ONNX to a traced-model file."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

from phaze_opt.cli.options import JsonOption
from phaze_opt.cli.output import check_file_to_write, out, print_json, print_more, working
from phaze_opt.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable

    from phaze_opt.graph.traced.traced_model import TracedModel

SOURCE = "What is extracted (one of them)"
MAX_SEQUENCE = 1 << 24


OutputOption = Annotated[Path, typer.Option("--out", metavar="FILE", help="The traced-model file to write (JSON).")]
HfOption = Annotated[
    Path | None,
    typer.Option(
        "--hf",
        metavar="PATH",
        help="A Hugging Face config.json, or the folder that holds it; no weights and no code beside it are read.",
        rich_help_panel=SOURCE,
    ),
]
FactoryOption = Annotated[
    str,
    typer.Option(
        "--torch",
        metavar="MODULE:FACTORY",
        help="What makes a torch.nn.Module when it is called without arguments: torchvision.models:resnet18. It is "
        "imported and run, from the current folder too.",
        rich_help_panel=SOURCE,
    ),
]
OnnxOption = Annotated[
    Path | None, typer.Option("--onnx", metavar="FILE", help="An ONNX file.", rich_help_panel=SOURCE)
]
InputsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--input",
        metavar="SIZES[:TYPE]",
        help="Of --torch: one input by position, micro-batch first: 1,3,224,224 or 1,128:int64 or 1,s=128:int64, "
        "where s is the sequence length. Repeat it for each.",
    ),
]
SequenceOption = Annotated[
    int | None,
    typer.Option(
        "--sequence-length",
        min=2,
        max=MAX_SEQUENCE,
        help="Of --hf: the sequence that the file has as its default; the model's own unless given, at most 4096.",
    ),
]


def extract(
    *,
    output: OutputOption,
    hf: HfOption = None,
    factory: FactoryOption = "",
    onnx: OnnxOption = None,
    inputs: InputsOption = None,
    sequence_length: SequenceOption = None,
    json: JsonOption = False,
) -> None:
    """Record the training step of any PyTorch or ONNX model, without weights, in a file that --model takes.

    Needs the extra 'extract' (torch, transformers) or 'onnx'. Layers that repeat are recorded once.
    """
    from phaze_opt.graph.traced.traced_file import write_traced_model

    _check_source(hf, factory, onnx, inputs=inputs or [], sequence_length=sequence_length)
    check_file_to_write(output, option="--out", example="model.json")
    with working("recording the model") as tell:
        model = _extracted(hf, factory, onnx, inputs=inputs or [], sequence_length=sequence_length, tell=tell)
    write_traced_model(model, output)
    answer = answer_of(model, output)
    if json:
        print_json(answer)
        return
    screen = out()
    screen.print(
        f"{model.name}: {answer['parameters']:,} parameters, {answer['operations']:,} operations, of which "
        f"{answer['recorded']:,} are recorded; written to {output}",
        soft_wrap=True,
    )
    for note in model.notes:
        screen.print(f"Note: {note}", soft_wrap=True)
    print_more(f"Price it by: phaze-opt evaluate --model {quote(str(output))} --arch h100 --devices 64 --gbs 512")


def _check_source(
    hf: Path | None, factory: str, onnx: Path | None, *, inputs: list[str], sequence_length: int | None
) -> None:
    """Exactly one source, with the options that are its own."""
    given = [name for name, value in (("--hf", hf), ("--torch", factory), ("--onnx", onnx)) if value]
    if len(given) != 1:
        what = " and ".join(given) or "nothing"
        message = f"one of --hf, --torch and --onnx says what is extracted, not {what}; give one"
        raise InputError(message, source="extract")
    if inputs and not factory:
        message = f"only --torch takes inputs, {given[0]} knows its own; leave the option out"
        raise InputError(message, source="--input")
    if sequence_length and hf is None:
        message = "only --hf takes a sequence length; write s=LENGTH in --input, or leave the option out"
        raise InputError(message, source="--sequence-length")


def _extracted(
    hf: Path | None,
    factory: str,
    onnx: Path | None,
    *,
    inputs: list[str],
    sequence_length: int | None,
    tell: Callable[[str], None],
) -> TracedModel:
    """The traced model of what was named."""
    if onnx is not None:
        from phaze_opt.extract.onnx_file import read_onnx

        return read_onnx(onnx)
    if hf is not None:
        from phaze_opt.extract.hugging_face import hugging_face_model

        return hugging_face_model(hf, sequence_length=sequence_length, tell=tell)
    from phaze_opt.extract.extracting import extract as extract_step
    from phaze_opt.extract.torch_module import torch_module_step

    return extract_step(torch_module_step(factory, inputs), tell=tell)


def answer_of(model: TracedModel, file: Path) -> dict[str, Any]:
    """What was written, as JSON values."""
    from phaze_opt.extract.extracting import num_operations, num_parameters

    return {
        "model": model.name,
        "file": str(file),
        "parameters": num_parameters(model),
        "operations": num_operations(model),
        "recorded": len(model.steps) + sum(len(body.nodes) for body in model.bodies),
        "symbols": dict(model.symbols),
        "producer": dict(model.producer),
        "notes": list(model.notes),
    }
