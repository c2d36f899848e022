"""Load a model from the zoo by name or from a Hugging Face config.json; bad input is one sentence."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from phaze_opt.errors import InputError
from phaze_opt.record.document import Document, parse_json_object
from phaze_opt.record.input_files import is_directory, is_file, is_there, read_text_file, shorten, shorten_path
from phaze_opt.record.suggestions import differ_by_a_letter, known_as, near, suggest
from phaze_opt.workload.families import FAMILY_CONFIGS
from phaze_opt.workload.family_config import (
    ACTIVATION_FIELDS,
    ACTIVATIONS,
    NESTED_FAMILIES,
    TEXT_CONFIG,
    FamilyConfig,
    Origin,
    harmless_keys,
    text_family,
    unread_keys,
)
from phaze_opt.workload.model import ModelSpec
from phaze_opt.workload.model_classes import (
    CLASSIFYING_HEADS,
    HeadKind,
    ModelFamily,
    class_name,
    families_of_class,
    head_of_class,
    heads_of,
)
from phaze_opt.workload.transformer import TransformerSpec
from phaze_opt.workload.zoo import known_model_types, list_models, read_zoo_text

_KIND = "a Hugging Face config.json"
_CLASSES = "architectures"
"""Key of the classes that a config is of."""
MAX_KEYS = 10_000
NEAR_KEY = 0.9
"""Similarity above which an unknown key is taken for a misspelt optional one."""
DEFAULT_LABELS, MAX_LABELS, MAX_CLASS_NAME = 2, 1 << 20, 100
EXTRACT_ADVICE = (
    "`phaze-opt extract --hf PATH --out FILE` (pip install 'phaze-opt[extract]') records it in a file that --model "
    "takes"
)
Model = ModelSpec | TransformerSpec
"""What a config describes: the short form of a transformer of equal plain blocks, or the long one."""


def load_model(name_or_path: str) -> Model:
    """The model of a zoo name, or of a Hugging Face config.json.

    Raises:
        InputError: unknown name (with near misses), or a file that is no config of a known family.
    """
    zoo_name = known_as(name_or_path, list_models())
    if zoo_name in list_models():
        return parse_config_text(read_zoo_text(zoo_name), name=zoo_name, source=f"zoo_configs/{zoo_name}.json")
    path = Path(name_or_path)
    if not name_or_path.strip() or not is_there(path):
        _refuse_name(name_or_path)
    if is_directory(path):
        inside = path / "config.json"
        remedy = f"give {inside}" if is_file(inside) else f"give {_KIND}"
        message = f"is a directory where a model config file belongs; {remedy}"
        raise InputError(message, source=shorten_path(path))
    name = path.resolve().parent.name if path.name == "config.json" else path.stem
    return parse_config_text(read_text_file(path, kind=_KIND), name=name, source=shorten_path(path))


def parse_config_text(text: str, *, name: str, source: str) -> Model:
    """The model of a config.json's text; ``source`` is named in errors.

    Raises:
        InputError: no JSON, no object, or a config of which the family is unknown, or a key is missing, of the wrong
            type or breaks a rule; names the line.
    """
    return _parse(parse_json_object(text, source=source, kind=_KIND), name)


def parse_config(config: Mapping[str, Any], *, name: str, source: str) -> Model:
    """The model of a parsed config; ``_source``, if given, says where the sizes come from.

    Raises:
        InputError: the family is unknown, or a key is missing, of the wrong type or breaks a rule.
    """
    return _parse(Document(dict(config), "", source, is_json=True), name)


def _parse(document: Document, name: str) -> Model:
    family = _family(document)
    schema, inside = FAMILY_CONFIGS[family], _inside(document, family)
    values = document.values[inside[0]] if inside else document.values
    _refuse_near_misses(document, schema, inside, values, family=family)
    parsed = document.validate(schema, *inside, advice=f"correct it, or model_type, which is {family}")
    _check_heads(parsed, document, inside)
    _check_activation(parsed, document, inside)
    stated = document.values.get("_source")
    source = stated if isinstance(stated, str) else document.source
    unread = unread_keys(document.values, schema, inside)
    named = _named_class(document)
    if named is not None and not families_of_class(named[:MAX_CLASS_NAME]):
        unread = tuple(sorted((*unread, _CLASSES)))
    head = _head_of(document, family)
    num_labels = _num_labels(document) if head in CLASSIFYING_HEADS else DEFAULT_LABELS
    origin = Origin(name, source, text_family(family), head, num_labels, unread)
    try:
        return parsed.to_model(origin)
    except InputError as error:
        if error.source is not None:
            raise
        rule = str(error).removeprefix(f"'{error.key}': ")
        raise document.fault(rule, *inside, *(() if error.key is None else (error.key,))) from error


def _inside(document: Document, family: ModelFamily) -> tuple[str, ...]:
    """Where the language model's config stands in one of several models."""
    if family in NESTED_FAMILIES and isinstance(document.values.get(TEXT_CONFIG), dict):
        return (TEXT_CONFIG,)
    return ()


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


def _named_class(document: Document) -> str | None:
    """The class that the config names first, if any."""
    stated = document.values.get(_CLASSES)
    return stated[0] if isinstance(stated, list) and stated and isinstance(stated[0], str) else None


def _head_of(document: Document, family: ModelFamily) -> HeadKind:
    """The head of the class that the config names, else the family's usual one."""
    named, usual = _named_class(document), heads_of(family)[0]
    if named is None or family in NESTED_FAMILIES or family not in families_of_class(named):
        return usual
    head = head_of_class(named, family)
    if head is None:
        priced = ", ".join(class_name(family, each) for each in heads_of(family))
        rule = f"{shorten(named)} has a head that is not priced; those that are: {priced}; {EXTRACT_ADVICE}"
        raise document.fault(rule, _CLASSES)
    return head


def _refuse_name(given: str) -> NoReturn:
    """No zoo name and no file."""
    last = given.rstrip("/").rsplit("/", 1)[-1]
    message = f"no model and no file is named {shorten(given)}; {suggest(last, list_models())}"
    raise InputError(message)


def _family(document: Document) -> ModelFamily:
    known = [family.value for family in ModelFamily]
    given = document.values.get("model_type")
    if given in known:
        family = ModelFamily(given)
        _refuse_other_architecture(document, family=family)
        return family
    if given is None:
        rule = f"is missing; it names the family, one of {', '.join(known)}"
        raise document.fault(rule, "model_type")
    rule = f"value {shorten(given)} {_why_unknown(given, known)}"
    raise document.fault(rule, "model_type")


def _why_unknown(given: object, known: Sequence[str]) -> str:
    """What to say of a family that is not read: another is offered only for a slip of one letter."""
    if isinstance(given, str) and given in known_model_types():
        return f"is a family whose configs are not read; {EXTRACT_ADVICE}"
    meant = [each for each in known if isinstance(given, str) and differ_by_a_letter(given, each)]
    if meant:
        return f"is no family of models; did you mean {' or '.join(meant)}?"
    return f"is no family of models that is known: {', '.join(known)}; {EXTRACT_ADVICE}"


def _refuse_other_architecture(document: Document, *, family: ModelFamily) -> None:
    """A config whose ``architectures`` name another known family contradicts its ``model_type``."""
    architectures = document.values.get(_CLASSES)
    for architecture in architectures if isinstance(architectures, list) else ():
        named = families_of_class(architecture[:MAX_CLASS_NAME]) if isinstance(architecture, str) else ()
        if named and family not in named:
            rule = f"{shorten(architecture)} is of family {named[0]}, but model_type is {family}; correct one of them"
            raise document.fault(rule, _CLASSES)


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
            rule = f"has {len(each)} keys, which no model's config has; give {_KIND}"
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
