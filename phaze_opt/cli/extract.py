"""``phaze-opt extract``: a model of transformers, torch or ONNX to a traced-model file."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from phaze_opt.cli.options import JsonOption
from phaze_opt.cli.output import check_file_to_write, out, print_json, print_more
from phaze_opt.cli.progress import TerminalWatch
from phaze_opt.jobs.extract import ExtractRequest, extract_model

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
    request = ExtractRequest(output, hf, factory, onnx, tuple(inputs or ()), sequence_length)
    check_file_to_write(output, option="--out", example="model.json")
    answer = extract_model(request, TerminalWatch())
    if json:
        print_json(answer.to_json())
        return
    screen = out()
    screen.print(
        f"{answer.model.name}: {answer.num_parameters:,} parameters, {answer.num_operations:,} operations, of which "
        f"{answer.num_recorded:,} are recorded; written to {output}",
        soft_wrap=True,
    )
    for note in answer.model.notes:
        screen.print(f"Note: {note}", soft_wrap=True)
    print_more(f"Price it by: phaze-opt evaluate --model {quote(str(output))} --arch h100 --devices 64 --gbs 512")
