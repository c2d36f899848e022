"""Load a model from the zoo by name or from a Hugging Face config.json; bad input is one sentence."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import inf, nan
from pathlib import Path
from typing import Any, NoReturn

from phaze_opt.errors import InputError
from phaze_opt.record.document import Document, parse_json_object
from phaze_opt.record.input_files import is_directory, is_file, is_there, read_text_file, shorten, shorten_path
from phaze_opt.record.suggestions import known_as, near, suggest
from phaze_opt.workload.config_family import CLASSES, EXTRACT_ADVICE, TEXT_CONFIG, config_of, find_family
from phaze_opt.workload.family_config import (
    ACTIVATION_FIELDS,
    ACTIVATIONS,
    FamilyConfig,
    Origin,
    harmless_keys,
    unread_keys,
)
from phaze_opt.workload.model import ModelSpec
from phaze_opt.workload.model_classes import CLASSIFYING_HEADS, ModelFamily
from phaze_opt.workload.transformer import TransformerSpec
from phaze_opt.workload.zoo import list_models, read_zoo_text

KIND = "a Hugging Face config.json"
CONFIG_FILE = "config.json"
_FLOAT = "__float__"
"""The one key of an object that transformers writes in place of a number that is not finite."""
_FLOATS = {"Infinity": inf, "-Infinity": -inf, "NaN": nan}
SPARSE_KEYS = "index_topk"
"""Key of the number of keys that a query of sparse attention meets."""
MAX_KEYS = 10_000
NEAR_KEY = 0.9
"""Similarity above which an unknown key is taken for a misspelt optional one."""
INHERITED = ("tie_word_embeddings",)
"""Keys that a config of several models has for all of them, unless the language model's says otherwise."""
DEFAULT_LABELS, MAX_LABELS = 2, 1 << 20
Model = ModelSpec | TransformerSpec
"""What a config describes: the short form of a transformer of equal plain blocks, or the long one."""


def load_model(name_or_path: str) -> Model:
    """The model of a zoo name, of a Hugging Face config.json, or of the folder that holds it.

    Raises:
        InputError: unknown name (with near misses), or a file that is no config of a known family.
    """
    zoo_name = known_as(name_or_path, list_models())
    if zoo_name in list_models():
        return parse_config_text(read_zoo_text(zoo_name), name=zoo_name, source=f"zoo_configs/{zoo_name}.json")
    path = Path(name_or_path)
    if not name_or_path.strip() or not is_there(path):
        _refuse_name(name_or_path)
    file = config_path(path)
    name = file.resolve().parent.name if file.name == CONFIG_FILE else file.stem
    return _parse(read_config(file), name)


def config_path(path: Path) -> Path:
    """The file of a config: itself, or the ``config.json`` of a folder.

    Raises:
        InputError: a folder without one.
    """
    if not is_directory(path):
        return path
    inside = path / CONFIG_FILE
    if not is_file(inside):
        message = f"is a directory without a {CONFIG_FILE}; give {KIND}, or the folder that holds it"
        raise InputError(message, source=shorten_path(path))
    return inside


def read_config(path: Path) -> Document:
    """The config of a file, or of the folder that holds it.

    Raises:
        InputError: as `config_path` and `parse_config_object`, or the file cannot be read.
    """
    file = config_path(path)
    return parse_config_object(read_text_file(file, kind=KIND), source=shorten_path(file))


def parse_config_object(text: str, *, source: str) -> Document:
    """The config of a text, with infinities as transformers saves them.

    Raises:
        InputError: no JSON object.
    """
    document = parse_json_object(text, source=source, kind=KIND)
    return replace(document, values={key: _decoded(value) for key, value in document.values.items()})


def _decoded(value: Any) -> Any:
    if isinstance(value, dict):
        tag = value.get(_FLOAT) if len(value) == 1 else None
        number = _FLOATS.get(tag) if isinstance(tag, str) else None
        return {key: _decoded(each) for key, each in value.items()} if number is None else number
    return [_decoded(each) for each in value] if isinstance(value, list) else value


def parse_config_text(text: str, *, name: str, source: str) -> Model:
    """The model of a config.json's text; ``source`` is named in errors.

    Raises:
        InputError: no JSON, no object, or a config of which the family is unknown, or a key is missing, of the wrong
            type or breaks a rule; names the line.
    """
    return _parse(parse_config_object(text, source=source), name)


def parse_config(config: Mapping[str, Any], *, name: str, source: str) -> Model:
    """The model of a parsed config; ``_source``, if given, says where the sizes come from.

    Raises:
        InputError: the family is unknown, or a key is missing, of the wrong type or breaks a rule.
    """
    return _parse(Document(dict(config), "", source, is_json=True), name)


def _parse(document: Document, name: str) -> Model:
    found = find_family(document)
    family, inside = found.family, found.inside
    document = _with_inherited(document) if inside else document
    schema, values = config_of(family), document.values[TEXT_CONFIG] if inside else document.values
    _refuse_near_misses(document, schema, inside, values, family=family)
    advice = f"correct it, or {EXTRACT_ADVICE}" if inside else f"correct it, or model_type, which is {family}"
    parsed = document.validate(schema, *inside, advice=advice)
    _check_heads(parsed, document, inside)
    _check_activation(parsed, document, inside)
    stated = document.values.get("_source")
    source = stated if isinstance(stated, str) else document.source
    unread = (*unread_keys(document.values, schema, inside), *(CLASSES,) * found.has_unknown_class)
    num_labels = _num_labels(document) if found.head in CLASSIFYING_HEADS else DEFAULT_LABELS
    notes = (*found.notes, *_notes(values))
    origin = Origin(name, source, family, found.head, num_labels, tuple(sorted(unread)), notes)
    try:
        return parsed.to_model(origin)
    except InputError as error:
        if error.source is not None:
            raise
        rule = str(error).removeprefix(f"'{error.key}': ")
        raise document.fault(rule, *inside, *(() if error.key is None else (error.key,))) from error


def _with_inherited(document: Document) -> Document:
    """The config of several models whose language model's has what is said of all of them alone."""
    values = {key: value for key, value in document.values.items() if key not in INHERITED}
    given = {key: value for key, value in document.values.items() if key in INHERITED}
    return replace(document, values=values | {TEXT_CONFIG: given | document.values[TEXT_CONFIG]})


def _notes(values: Mapping[str, Any]) -> Iterator[str]:
    """Of keys that change what is priced otherwise than by sizes."""
    saved, keys = values.get("quantization_config"), values.get(SPARSE_KEYS)
    if isinstance(saved, dict):
        kind = saved.get("quant_method") or saved.get("quant_algo")
        yield f"its weights are saved quantised ({shorten(kind)}), which changes the file and not the model"
    if isinstance(keys, int) and keys > 0:
        yield f"its attention is sparse ({SPARSE_KEYS} {keys:,}) and is priced as dense"


def _num_labels(document: Document) -> int:
    """Classes of a classifying head; two unless stated."""
    labels, number = document.values.get("id2label"), document.values.get("num_labels")
    if isinstance(labels, dict) and labels:
        return len(labels)
    if number is None:
        return DEFAULT_LABELS
    if not isinstance(number, int) or isinstance(number, bool) or not 0 < number <= MAX_LABELS:
        rule = f"{shorten(number)} is no number of classes; give 1 to {MAX_LABELS:,}"
        raise document.fault(rule, "num_labels")
    return number


def _refuse_name(given: str) -> NoReturn:
    """No zoo name and no file."""
    last = given.rstrip("/").rsplit("/", 1)[-1]
    message = f"no model and no file is named {shorten(given)}; {suggest(last, list_models())}"
    raise InputError(message)


def _refuse_near_misses(
    document: Document,
    schema: type[FamilyConfig],
    inside: tuple[str, ...],
    values: Mapping[str, Any],
    *,
    family: ModelFamily,
) -> None:
    """An unknown key that almost spells an absent known one is refused rather than listed as unread."""
    for each in (document.values, values):
        if len(each) > MAX_KEYS:
            rule = f"has {len(each)} keys, which no model's config has; give {KIND}"
            raise document.fault(rule)
    known = list(schema.fields_by_key())
    absent = [key for key in known if key not in values]
    for key in values:
        meant = [] if key in known or key in harmless_keys() else near(key, absent, likeness=NEAR_KEY)
        if meant:
            rule = f"is no key of family {family}; did you mean {meant[0]}?"
            raise document.fault(rule, *inside, key)


def _check_activation(parsed: FamilyConfig, document: Document, inside: tuple[str, ...]) -> None:
    """Refuse an activation that transformers does not have; T5 says before it whether it is gated."""
    for key, field in parsed.fields_by_key().items():
        given = getattr(parsed, field) if field in ACTIVATION_FIELDS else None
        name = given.removeprefix("gated-") if isinstance(given, str) else ""
        if name and name not in ACTIVATIONS:
            rule = f"value {shorten(given)} is no activation; {suggest(name, ACTIVATIONS)}"
            raise document.fault(rule, *inside, key)


def _check_heads(parsed: FamilyConfig, document: Document, inside: tuple[str, ...]) -> None:
    """Rules that join two keys."""
    keys = {field: key for key, field in parsed.fields_by_key().items()}
    values = dict(parsed)
    hidden = values["hidden_size"]
    for field in parsed.head_fields:
        heads = values[field]
        if values.get("head_size") is None and hidden % heads:
            message = f"{heads} heads must divide {keys['hidden_size']} = {hidden}; correct one of them"
            raise document.fault(message, *inside, keys[field])
        kv_heads = values.get("num_kv_heads")
        if kv_heads is not None and heads % kv_heads:
            message = f"{kv_heads} must divide {keys[field]} = {heads}; correct one of them"
            raise document.fault(message, *inside, keys["num_kv_heads"])
    chosen, experts = values.get("num_active_experts") or 0, values.get("num_experts") or MAX_KEYS
    if chosen > experts:
        message = f"{chosen} must not exceed {keys['num_experts']} = {experts}; correct one of them"
        raise document.fault(message, *inside, keys["num_active_experts"])
