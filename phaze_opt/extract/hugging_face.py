"""Models of transformers, from the config alone: no weights, no code but that of transformers."""

import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from inspect import signature
from pathlib import Path
from typing import Any

from phaze_opt.errors import InputError
from phaze_opt.extract.exporting import ATTENTION_KERNEL, count_parameters, quiet, register_attention
from phaze_opt.extract.extracting import extract
from phaze_opt.extract.training_step import Size, StepInput, TrainingStep, step_module
from phaze_opt.extract.versions import TORCH, TRANSFORMERS
from phaze_opt.graph.traced.traced_model import BATCH, SEQUENCE, TracedModel
from phaze_opt.record.document import Document
from phaze_opt.record.input_files import shorten
from phaze_opt.record.suggestions import near
from phaze_opt.workload.config import CONFIG_FILE, config_path, first_class, read_config

ATTENTION_KERNELS = (ATTENTION_KERNEL, "sdpa", "eager")
"""Of transformers, in the order in which they are tried: an operation of ours, one of torch, products and a softmax."""
MOST_TOKENS = 4096
"""Sequence that a model is exported for whose own is longer."""
LENGTHS = ("max_position_embeddings", "n_positions", "max_target_positions", "max_seq_len", "seq_length")
"""Keys of configs that hold the longest sequence."""
WITHOUT_LENGTH, PAIRED_LENGTH = 1024, 512
"""Sequence of a model that takes any; of one with an encoder and a decoder."""
AT_RANDOM = {"apply_spec_augment": False, "layerdrop": 0.0, "encoder_layerdrop": 0.0, "decoder_layerdrop": 0.0}
"""Keys of what is drawn on the host in every step: input that is masked, layers that are left out; none is."""
HEADS = (
    "PRETRAINING",
    "CAUSAL_LM",
    "IMAGE_CLASSIFICATION",
    "IMAGE_TEXT_TO_TEXT",
    "MASKED_LM",
    "CTC",
    "AUDIO_CLASSIFICATION",
    "SEMANTIC_SEGMENTATION",
    "OBJECT_DETECTION",
    "DEPTH_ESTIMATION",
    "ZERO_SHOT_IMAGE_CLASSIFICATION",
)
"""Heads that models are trained with, the first that a family has (transformers' names of its tables)."""
PAIRED_HEADS = ("PRETRAINING", "SEQ_TO_SEQ_CAUSAL_LM", "SPEECH_SEQ_2_SEQ")
"""Those of a family with an encoder and a decoder come first."""
_LIBRARY = re.compile(r"requires the `?([\w.-]+)`? library")
"""The library that transformers says it misses."""
TOWER_HEADS = ("ZERO_SHOT_IMAGE_CLASSIFICATION",)
"""Those of a family that compares texts with images come first."""


def hugging_face_model(
    path: Path, *, sequence_length: int | None = None, tell: Callable[[str], None] = lambda _: None
) -> TracedModel:
    """The traced model of a config: with attention as one operation, else by the first kernel with which it exports.

    Of a class of several models that does not run on text alone the language model is taken.

    Args:
        path: a ``config.json``, or the folder that holds it.
        sequence_length: default of the sequence; the model's own unless given, at most 4,096.
        tell: told in words what is done next.

    Raises:
        InputError: as `hugging_face_step`, or the model cannot be exported.
    """
    fault: InputError | None = None
    build = partial(hugging_face_step, path, sequence_length=sequence_length)
    for kernel in ATTENTION_KERNELS:
        step = build(kernel=kernel)
        try:
            return extract(step, tell=tell)
        except InputError as error:
            fault = fault or error
    language_model = _language_model_of(build())
    if language_model is not None:
        return extract(language_model, tell=tell)
    raise fault or InputError(str(path))


def _language_model_of(step: TrainingStep) -> TrainingStep | None:
    """The step of the language model alone, if the class is of several and has one with outputs for tokens."""
    whole = step.module.step
    inner = getattr(whole, "language_model", None)
    if inner is None or not hasattr(inner, "get_output_embeddings") or inner.get_output_embeddings() is None:
        return None
    module = step_module(inner, [each.name for each in step.inputs])
    rest = count_parameters(step) - sum(each.numel() for each in inner.parameters())
    note = f"its language model alone, {type(inner).__name__}, is recorded: {rest:,} other parameters are left out"
    return replace(step, module=module, notes=(*step.notes, note))


def hugging_face_step(
    path: Path, *, sequence_length: int | None = None, kernel: str = ATTENTION_KERNEL
) -> TrainingStep:
    """The training step of a config.

    Args:
        path: a ``config.json``, or the folder that holds it.
        sequence_length: default of the sequence; the model's own unless given, at most 4,096.
        kernel: of `ATTENTION_KERNELS`; where the class refuses it, the next that it takes.

    Raises:
        InputError: no usable config, a family that transformers does not have or a class that it cannot build.
    """
    file = config_path(path)
    document = read_config(file)
    with quiet():
        torch, transformers = TORCH.load(), TRANSFORMERS.load()
        config, notes = _config(document, transformers)
        kind = _class_of(document, config, transformers)
        model = _build(kind, config, document, kernel=kernel)
    inputs = _inputs(model, config, document)
    longest = _longest_sequence(config.get_text_config(), model)
    symbols = {BATCH: 1}
    if any(SEQUENCE in each.shape for each in inputs):
        default = longest or (PAIRED_LENGTH if _is_paired(config) else WITHOUT_LENGTH)
        if longest and sequence_length and sequence_length > longest:
            message = (
                f"{sequence_length} is longer than the {longest} tokens that the config allows; give at most these"
            )
            raise InputError(message, source="--sequence-length")
        symbols[SEQUENCE] = sequence_length or min(default, MOST_TOKENS)
    return TrainingStep(
        name=_name(document, file),
        module=step_module(model, [each.name for each in inputs]),
        inputs=inputs,
        symbols=symbols,
        producer={"torch": TORCH.version(torch), "transformers": TRANSFORMERS.version(transformers)},
        num_positions=_num_positions(model),
        max_sequence_length=longest if SEQUENCE in symbols else 0,
        notes=(f"class {kind.__name__}", *notes),
    )


def _config(document: Document, transformers: Any) -> tuple[Any, tuple[str, ...]]:
    """The config as transformers understands it, and how its family was found; one of remote code is refused."""
    family, notes = document.values.get("model_type"), tuple[str, ...]()
    known = transformers.models.auto.configuration_auto.CONFIG_MAPPING_NAMES
    named = first_class(document.values)
    by_class = getattr(getattr(transformers, named or "", None), "config_class", None)
    if isinstance(family, str) and family not in known and by_class is not None:
        notes = (f"model_type {shorten(family)} is read as {by_class.model_type}, the family of its class {named}",)
        family = by_class.model_type
    if not isinstance(family, str) or family not in known:
        likely = near(str(family), known) if isinstance(family, str) else []
        also = f" (near it: {likely[0]})" if likely else ""
        rule = f"value {shorten(family)} is no family of transformers {transformers.__version__}{also}"
        remedy = "install a version that has it, or write the model for --torch; code beside a config is never run"
        sentence = f"{rule}; {remedy}"
        raise document.fault(sentence, "model_type")
    try:
        return transformers.AutoConfig.for_model(**_plain(document.values) | {"model_type": family}), notes
    except Exception as error:  # noqa: BLE001 - checks of many families
        raise _refused(document, "config", error) from error


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    """Keys of the file without those that name code or weights of another place."""
    return {key: value for key, value in values.items() if key not in ("auto_map", "quantization_config")}


def _class_of(document: Document, config: Any, transformers: Any) -> Any:
    """The class that the config names, else the one with the head that the family is trained with."""
    named = first_class(document.values)
    if named is not None:
        found = getattr(transformers, named, None)
        if found is None or not hasattr(found, "_from_config"):
            rule = f"{shorten(named)} is no class of transformers {transformers.__version__}"
            sentence = f"{rule}; name one of the family, or leave the key out"
            raise document.fault(sentence, "architectures")
        return found
    tables = transformers.models.auto.modeling_auto
    first = PAIRED_HEADS if _is_paired(config) else TOWER_HEADS if _has_two_towers(config) else ()
    heads = (*first, *HEADS)
    for table in (*(f"MODEL_FOR_{head}_MAPPING" for head in heads), "MODEL_MAPPING"):
        if type(config) in getattr(tables, table, {}):
            found = getattr(tables, table)[type(config)]
            return found[0] if isinstance(found, tuple) else found
    rule = f"family {shorten(config.model_type)} has no model to train"
    sentence = f"{rule}; name a class under 'architectures'"
    raise document.fault(sentence, "model_type")


def _build(kind: Any, config: Any, document: Document, *, kernel: str) -> Any:
    """The model without data, with the kernel of attention, or the next that its class takes."""
    torch = TORCH.load()
    register_attention()
    config.use_cache = False
    config.return_dict = True
    for key, value in AT_RANDOM.items():
        if hasattr(config, key):
            setattr(config, key, value)
    refused: Exception | None = None
    for choice in ATTENTION_KERNELS[ATTENTION_KERNELS.index(kernel) :]:
        try:
            with torch.device("meta"):
                model = kind._from_config(config, attn_implementation=choice, dtype=torch.float32)
            # Some parameters are made without asking for the device.
            return model.to("meta")
        except Exception as error:  # noqa: BLE001 - classes refuse in ways of their own
            refused = refused or error
    raise _refused(document, kind.__name__, refused or ValueError()) from refused


def _refused(document: Document, what: str, error: Exception) -> InputError:
    said = " ".join(str(error).split())[:400]
    if isinstance(error, ImportError):
        library = _LIBRARY.search(said)
        remedy = f"pip install {library[1]}" if library else "install what it misses"
        message = f"transformers needs a library that is not installed to build its {what}; {remedy}"
        return InputError(message, source=document.source)
    message = f"transformers cannot build its {what}: {type(error).__name__}: {said}; correct the config"
    return InputError(message, source=document.source)


def _is_paired(config: Any) -> bool:
    return bool(getattr(config, "is_encoder_decoder", False))


def _inputs(model: Any, config: Any, document: Document) -> tuple[StepInput, ...]:
    """What the model takes: its main input and, of an encoder and a decoder, the decoder's tokens."""
    name = model.main_input_name
    tokens: tuple[Size, ...] = (BATCH, SEQUENCE)
    main = {
        "input_ids": StepInput("input_ids", tokens, "int64"),
        "pixel_values": StepInput("pixel_values", (BATCH, *_image(config)), "float32"),
        "input_features": StepInput("input_features", (BATCH, *_spectrogram(config)), "float32"),
        "input_values": StepInput("input_values", (BATCH, *_sound(config)), "float32"),
    }
    if name not in main:
        rule = f"the model takes '{name}', of which only a program can say what it is"
        sentence = f"{rule}; write a factory and give --torch and --input"
        raise document.fault(sentence, "model_type")
    inputs = [main[name]]
    if _is_paired(config):
        inputs.append(StepInput("decoder_input_ids", tokens, "int64"))
    if _has_two_towers(config):
        inputs = [main["input_ids"], StepInput("pixel_values", (BATCH, *_image(config.vision_config)), "float32")]
    taken = signature(model.forward).parameters
    return tuple(each for each in inputs if each.name in taken) or (main[name],)


def _has_two_towers(config: Any) -> bool:
    """Whether a family compares texts with images."""
    tables = TRANSFORMERS.load().models.auto.modeling_auto
    return type(config) in tables.MODEL_FOR_ZERO_SHOT_IMAGE_CLASSIFICATION_MAPPING


def _image(config: Any) -> tuple[int, int, int]:
    """Channels, height and width of an image."""
    own = config if getattr(config, "image_size", None) else getattr(config, "vision_config", config)
    size = getattr(own, "image_size", None) or 224
    height, width = size if isinstance(size, list | tuple) else (size, size)
    return getattr(own, "num_channels", 3), height, width


def _sound(config: Any) -> tuple[int, ...]:
    """A second of sound, with an axis of channels where the config counts them."""
    channels = getattr(config, "audio_channels", None)
    return (16_000,) if channels is None else (channels, 16_000)


def _spectrogram(config: Any) -> tuple[int, int]:
    """Bands and frames of a spectrogram; the first convolutions halve the frames."""
    return getattr(config, "num_mel_bins", 80), 2 * getattr(config, "max_source_positions", 1500)


def _longest_sequence(config: Any, model: Any) -> int:
    """Longest sequence of a config, 0 if it says none; rows of positions before the first token do not count."""
    longest = next((int(getattr(config, key)) for key in LENGTHS if isinstance(getattr(config, key, None), int)), 0)
    for name, module in model.named_modules():
        if name.endswith("position_embeddings") and getattr(module, "padding_idx", None) is not None:
            return longest - int(module.padding_idx) - 1
    return max(longest, 0)


def _num_positions(model: Any) -> int:
    """Positions of a sample without a sequence, by the model's table of them; 1 of what has none."""
    for name, parameter in model.named_parameters():
        if name.endswith(("position_embeddings", "pos_embed")) and parameter.dim() == 3 and parameter.shape[0] == 1:  # noqa: PLR2004
            return int(parameter.shape[1])
    return 1


def _name(document: Document, file: Path) -> str:
    """What the config calls its model, else its file, else its folder."""
    named = document.values.get("_name_or_path")
    last = str(named).rstrip("/").rpartition("/")[2] if isinstance(named, str) else ""
    return (last or (file.stem if file.name != CONFIG_FILE else file.absolute().parent.name))[:200] or CONFIG_FILE
