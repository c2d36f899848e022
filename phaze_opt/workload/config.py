"""Load a `ModelSpec` from the zoo by name or from a Hugging Face config.json; bad input is one sentence."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from phaze_opt.errors import InputError
from phaze_opt.record.document import Document, parse_json_object
from phaze_opt.record.input_files import is_directory, is_file, is_there, read_text_file, shorten, shorten_path
from phaze_opt.record.suggestions import near, suggest
from phaze_opt.workload.families import FAMILY_CONFIGS, FamilyConfig
from phaze_opt.workload.model import ModelSpec
from phaze_opt.workload.model_family import ModelFamily
from phaze_opt.workload.zoo import list_models, read_zoo_text

_KIND = "a Hugging Face config.json"
MAX_KEYS = 10_000
NEAR_KEY = 0.9
"""Similarity above which an unknown key is taken for a misspelt optional one."""


def load_model(name_or_path: str) -> ModelSpec:
    """The model of a zoo name, or of a Hugging Face config.json.

    Raises:
        InputError: unknown name (with near misses), or a file that is no config of a known family.
    """
    if name_or_path in list_models():
        return parse_config_text(
            read_zoo_text(name_or_path), name=name_or_path, source=f"zoo_configs/{name_or_path}.json"
        )
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


def parse_config_text(text: str, *, name: str, source: str) -> ModelSpec:
    """The model of a config.json's text; ``source`` is named in errors.

    Raises:
        InputError: no JSON, no object, or a config of which the family is unknown, or a key is missing, of the wrong
            type or breaks a rule; names the line.
    """
    return _parse(parse_json_object(text, source=source, kind=_KIND), name)


def parse_config(config: Mapping[str, Any], *, name: str, source: str) -> ModelSpec:
    """The model of a parsed config; ``_source``, if given, says where the sizes come from.

    Raises:
        InputError: the family is unknown, or a key is missing, of the wrong type or breaks a rule.
    """
    return _parse(Document(dict(config), "", source, is_json=True), name)


def _parse(document: Document, name: str) -> ModelSpec:
    family = _family(document)
    schema = FAMILY_CONFIGS[family]
    _refuse_near_misses(document, schema, family=family)
    parsed = document.validate(schema, advice=f"correct it, or model_type, which is {family}")
    _check_heads(parsed, document)
    origin = document.values.get("_source")
    return parsed.to_spec(name, origin if isinstance(origin, str) else document.source, family=family)


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
    hint = suggest(given if isinstance(given, str) else "", known)
    rule = f"value {shorten(given)} is not a known model family; {hint}"
    raise document.fault(rule, "model_type")


def _refuse_other_architecture(document: Document, *, family: ModelFamily) -> None:
    """A config whose ``architectures`` name another known family contradicts its ``model_type``."""
    architectures = document.values.get("architectures")
    for architecture in architectures if isinstance(architectures, list) else ():
        named = [
            other
            for other in ModelFamily
            if isinstance(architecture, str) and architecture.lower().startswith(other.value)
        ]
        if named and family not in named:
            rule = f"{shorten(architecture)} is of family {named[0]}, but model_type is {family}; correct one of them"
            raise document.fault(rule, "architectures")


def _refuse_near_misses(document: Document, schema: type[FamilyConfig], *, family: ModelFamily) -> None:
    """An unknown key that almost spells an absent known one would be ignored silently: refuse it."""
    if len(document.values) > MAX_KEYS:
        rule = f"has {len(document.values)} keys, which no model's config has; give {_KIND}"
        raise document.fault(rule)
    known = list(schema.fields_by_key())
    absent = [key for key in known if key not in document.values]
    for key in document.values:
        meant = [] if key in known else near(key, absent, likeness=NEAR_KEY)
        if meant:
            rule = f"is no key of family {family}; did you mean {meant[0]}?"
            raise document.fault(rule, key)


def _check_heads(parsed: FamilyConfig, document: Document) -> None:
    """Rules that join two keys."""
    keys = {field: key for key, field in parsed.fields_by_key().items()}
    heads, hidden = parsed.num_heads, parsed.hidden_size
    values = dict(parsed)
    if values.get("head_size") is None and hidden % heads:
        message = f"{heads} heads must divide {keys['hidden_size']} = {hidden}; correct one of them"
        raise document.fault(message, keys["num_heads"])
    kv_heads = values.get("num_kv_heads")
    if kv_heads is not None and heads % kv_heads:
        message = f"{kv_heads} must divide {keys['num_heads']} = {heads}; correct one of them"
        raise document.fault(message, keys["num_kv_heads"])
    chosen, experts = values.get("num_active_experts", 0), values.get("num_experts", 1)
    if chosen > experts:
        message = f"{chosen} must not exceed {keys['num_experts']} = {experts}; correct one of them"
        raise document.fault(message, keys["num_active_experts"])
