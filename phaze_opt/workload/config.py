"""Load a model from the zoo by name or from a Hugging Face config.json; bad input is one sentence."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import inf, nan
from pathlib import Path
from types import MappingProxyType
from typing import Any, NoReturn, get_type_hints

from pydantic import create_model

from phaze_opt.errors import InputError
from phaze_opt.record.document import Document, parse_json_object
from phaze_opt.record.input_files import is_directory, is_file, is_there, read_text_file, shorten, shorten_path
from phaze_opt.record.model_faults import adapter
from phaze_opt.record.suggestions import differ_by_a_letter, known_as, near, suggest
from phaze_opt.workload.decoder_config import DecoderConfig
from phaze_opt.workload.encoder_families import T5Config, VitConfig, WhisperConfig
from phaze_opt.workload.family_config import (
    ACTIVATION_FIELDS,
    ACTIVATIONS,
    FamilyConfig,
    Origin,
    harmless_keys,
    read_from,
    unread_keys,
)
from phaze_opt.workload.model import ModelSpec
from phaze_opt.workload.model_classes import (
    CLASSIFYING_HEADS,
    FamilyRow,
    HeadKind,
    ModelFamily,
    class_name,
    families_by_type,
    families_of_class,
    family_of_class,
    head_of_class,
    row_of,
)
from phaze_opt.workload.transformer import TransformerSpec
from phaze_opt.workload.zoo import known_model_types, library_version, list_models, read_zoo_text

TYPE, CLASSES, TEXT_CONFIG = "model_type", "architectures", "text_config"
"""Keys of the family, of the classes, and of the language model's config where a config has several models."""
MAX_CLASS_NAME = 100
_VERSION = re.compile("[0-9]")
EXTRACT_ADVICE = (
    "`phaze-opt extract --hf PATH --out FILE` (pip install 'phaze-opt[extract]') records it in a file that --model "
    "takes"
)
WRITE_ADVICE = "write the model in torch for `phaze-opt extract --torch`, or give the config of a model that is like it"


_OTHERS: Mapping[str, type[FamilyConfig]] = MappingProxyType(
    {"vit": VitConfig, "t5": T5Config, "whisper": WhisperConfig}
)


@dataclass(frozen=True, slots=True)
class ConfigFamily:
    """The family of a config.

    Attributes:
        family: whose keys it has.
        inside: path of the part that is read; nothing for all of it.
        head: of the class that is priced.
        notes: how it was found, a sentence each.
        has_unknown_class: whether it names a class of no known family, so that the family's usual one is priced.
    """

    family: ModelFamily
    inside: tuple[str, ...]
    head: HeadKind
    notes: tuple[str, ...] = ()
    has_unknown_class: bool = False


def find_family(document: Document) -> ConfigFamily:
    """The family of a config.

    Raises:
        InputError: none that is read, a class of another family, or a head that is not priced.
    """
    values = document.values
    text = values.get(TEXT_CONFIG)
    if _is_plain(values) or not isinstance(text, dict):
        return _of_part(document, values, ())
    # The type of the whole stands for that of the part that has none.
    inner = text if _family_of(text) else text | {TYPE: values.get(TYPE)}
    found = _of_part(document, inner, (TEXT_CONFIG,))
    whole = first_class(values) or values.get(TYPE)
    note = f"of {shorten(whole)} the language model alone is priced, as {class_name(found.family, found.head)}"
    return replace(found, notes=(note, *found.notes))


def _of_part(document: Document, values: Mapping[str, Any], inside: tuple[str, ...]) -> ConfigFamily:
    """The family of a config of one model."""
    family, named = _family_of(values), first_class(values) or ""
    if family is None:
        raise _unknown(document)
    usual, given = row_of(family).heads[0], values[TYPE]
    if given not in families_by_type():
        note = f"{TYPE} {shorten(given)} is read as {family}, the family of its class {named}"
        return ConfigFamily(family, inside, head_of_class(named, family) or usual, (note,))
    _refuse_other_class(document, values, family, inside)
    if not named or not _is_plain(values) or family not in families_of_class(named):
        is_unknown = bool(named) and not inside and not families_of_class(named)
        return ConfigFamily(family, inside, usual, has_unknown_class=is_unknown)
    head = head_of_class(named, family)
    if head is None:
        priced = ", ".join(class_name(family, each) for each in row_of(family).heads)
        rule = f"{shorten(named)} has a head that is not priced; those that are: {priced}; {EXTRACT_ADVICE}"
        raise document.fault(rule, *inside, CLASSES)
    return ConfigFamily(family, inside, head)


def _is_plain(values: Mapping[str, Any]) -> bool:
    """Whether the type is a family's own."""
    return str(values.get(TYPE)) in set(ModelFamily)


def _family_of(values: Mapping[str, Any]) -> ModelFamily | None:
    """The family of a part of a config; None if it is none that is read.

    The class decides where nobody knows the type: one that transformers has is of other classes.
    """
    given, named = values.get(TYPE), first_class(values) or ""
    if not isinstance(given, str):
        return None
    by_class = None if given in known_model_types() else family_of_class(named)
    return families_by_type().get(given, by_class)


def first_class(values: Mapping[str, Any]) -> str | None:
    """The class that a config names first, if any."""
    stated = values.get(CLASSES)
    first = stated[0] if isinstance(stated, list) and stated else None
    return first[:MAX_CLASS_NAME] if isinstance(first, str) else None


def _refuse_other_class(
    document: Document, values: Mapping[str, Any], family: ModelFamily, inside: tuple[str, ...]
) -> None:
    """A config whose classes are of another known family contradicts its type."""
    classes = values.get(CLASSES)
    for each in classes if isinstance(classes, list) else ():
        named = families_of_class(each[:MAX_CLASS_NAME]) if isinstance(each, str) else ()
        if named and family not in named:
            rule = f"{shorten(each)} is of family {named[0]}, but {TYPE} is {family}; correct one of them"
            raise document.fault(rule, *inside, CLASSES)


def _unknown(document: Document) -> Exception:
    """The error of a config of no family that is read."""
    given, known = document.values.get(TYPE), sorted(families_by_type())
    if given is None:
        return document.fault(f"is missing; it names the family, one of {', '.join(known)}", TYPE)
    return document.fault(f"value {shorten(given)} {_why_unknown(given, known, first_class(document.values))}", TYPE)


def _why_unknown(given: object, known: Sequence[str], named: str | None) -> str:
    """What to say of a family that is not read: another is offered only for a slip of one letter, or of case."""
    if not isinstance(given, str):
        return f"is no family of models; give one of {', '.join(known)}"
    library = known_model_types()
    of_class = (each for each in library if named is not None and _is_class_of(named, each))
    found = given if given in library else next(of_class, None)
    if found is not None:
        why_not = library[found]
        advice = f"extraction does not take it: {why_not}; {WRITE_ADVICE}" if why_not else EXTRACT_ADVICE
        return f"is a family whose configs are not read; {advice}"
    alike = known_as(given, known)
    meant = [alike] if alike in known else [each for each in known if _is_slip(given, each)]
    if meant:
        return f"is no family of models; did you mean {' or '.join(meant)}?"
    return f"is no family that is read, and transformers {library_version()} has none of this name; {WRITE_ADVICE}"


def _is_slip(given: str, known: str) -> bool:
    """Whether a name differs by a letter from a known one, and not by its version."""
    is_version = any(map(str.isdigit, given)) and _VERSION.sub("", given) == _VERSION.sub("", known)
    return differ_by_a_letter(given, known) and not is_version


def _is_class_of(name: str, model_type: str) -> bool:
    """Whether a class is of a type by its name: both without case and underscores, up to a head."""
    letters = model_type.replace("_", "").replace("-", "")
    return name.lower().replace("_", "") in {f"{letters}{head.lower()}" for head in HeadKind}


@cache
def config_of(family: ModelFamily) -> type[FamilyConfig]:
    """What reads the configs of a family."""
    row = row_of(family)
    return _decoder_config(row) if row.config == "decoder" else _OTHERS[row.config]


def _decoder_config(row: FamilyRow) -> type[FamilyConfig]:
    """`DecoderConfig` with the keys, the defaults and the fixed values of a row."""
    base, hints = DecoderConfig.model_fields, get_type_hints(DecoderConfig, include_extras=True)
    keys = {field: row.keys.get(field, str(info.validation_alias or field)) for field, info in base.items()}
    common = {keys[field] for field in DecoderConfig.COMMON} - set(row.ignores)
    read = (common | row.reads.keys() | set(row.requires)) - {keys[field] for field in row.has}
    fields: dict[str, Any] = {}
    for field, key in keys.items():
        hint = hints[field]
        if field in row.has:
            fields[field] = (hint, read_from(key, default=adapter(hint).validate_python(row.has[field])))
        elif key in row.reads:
            default = row.reads[key]
            fields[field] = (hint if default is not None else hint | None, read_from(key, default=default))
        elif key in row.requires or (field in row.keys and base[field].is_required()):
            fields[field] = (hint, read_from(key))
        elif field in row.keys:
            fields[field] = (hint, read_from(key, default=base[field].default))
    config = create_model(f"{row.prefix}Config", __base__=DecoderConfig, **fields)
    config.ignored_keys = frozenset(keys.values()) - read
    return config


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
