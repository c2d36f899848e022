"""The job of ``extract``: a model of transformers, torch or ONNX as a traced-model file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from phaze_opt.errors import InputError

if TYPE_CHECKING:
    from phaze_opt.graph.traced.traced_model import TracedModel
    from phaze_opt.jobs.watch import Watch


@dataclass(frozen=True, slots=True)
class ExtractRequest:
    """What is recorded, and where: one of a config, a factory and an ONNX file.

    Attributes:
        output: file to write.
        hf: config.json of Hugging Face, or the folder that holds it.
        factory: ``MODULE:FACTORY`` of a torch module.
        onnx: file.
        inputs: of a factory, by position.
        sequence_length: of a config; None for its own.
    """

    output: Path
    hf: Path | None = None
    factory: str = ""
    onnx: Path | None = None
    inputs: tuple[str, ...] = ()
    sequence_length: int | None = None

    def __post_init__(self) -> None:
        """Refuse none or several sources, and options of others."""
        sources = (("--hf", self.hf), ("--torch", self.factory), ("--onnx", self.onnx))
        given = [name for name, value in sources if value]
        if len(given) != 1:
            what = " and ".join(given) or "nothing"
            message = f"one of --hf, --torch and --onnx says what is extracted, not {what}; give one"
            raise InputError(message, source="extract")
        if self.inputs and not self.factory:
            message = f"only --torch takes inputs, {given[0]} knows its own; leave the option out"
            raise InputError(message, source="--input")
        if self.sequence_length and self.hf is None:
            message = "only --hf takes a sequence length; write s=LENGTH in --input, or leave the option out"
            raise InputError(message, source="--sequence-length")


@dataclass(frozen=True, slots=True)
class ExtractAnswer:
    """What was written."""

    model: TracedModel
    file: Path
    num_parameters: int
    num_operations: int

    @property
    def num_recorded(self) -> int:
        """Operations in the file: of those that repeat one each."""
        return len(self.model.steps) + sum(len(body.nodes) for body in self.model.bodies)

    def to_json(self) -> dict[str, Any]:
        """All of it."""
        return {
            "model": self.model.name,
            "file": str(self.file),
            "parameters": self.num_parameters,
            "operations": self.num_operations,
            "recorded": self.num_recorded,
            "symbols": dict(self.model.symbols),
            "producer": dict(self.model.producer),
            "notes": list(self.model.notes),
        }


def extract_model(request: ExtractRequest, watch: Watch) -> ExtractAnswer:
    """Record a model and write its file.

    Raises:
        InputError: the model cannot be recorded, or the file cannot be written.
    """
    from phaze_opt.extract.extracting import num_operations, num_parameters
    from phaze_opt.graph.traced.traced_file import write_traced_model

    with watch.working("recording the model") as tell:
        model = _recorded(request, tell)
    write_traced_model(model, request.output)
    return ExtractAnswer(model, request.output, num_parameters(model), num_operations(model))


def _recorded(request: ExtractRequest, tell: Callable[[str], None]) -> TracedModel:
    """The traced model of what was named."""
    if request.onnx is not None:
        from phaze_opt.extract.onnx_file import read_onnx

        return read_onnx(request.onnx)
    if request.hf is not None:
        from phaze_opt.extract.hugging_face import hugging_face_model

        return hugging_face_model(request.hf, sequence_length=request.sequence_length, tell=tell)
    from phaze_opt.extract.extracting import extract
    from phaze_opt.extract.torch_module import torch_module_step

    return extract(torch_module_step(request.factory, list(request.inputs)), tell=tell)
