"""Load a `ModelSpec` from the zoo by name or from a Hugging Face config.json; bad input is one sentence."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from phaze_opt.errors import InputError
from phaze_opt.record.input_files import is_directory, is_file, is_there, parse_json, read_text_file
from phaze_opt.workload.families import FAMILY_CONFIGS, FamilyConfig
from phaze_opt.workload.model import ModelFamily, ModelSpec
from phaze_opt.workload.zoo import list_models, read_zoo_text

MAX_CONFIG_BYTES = 4 << 20
"""Real config.json files have a few kilobytes: more is a checkpoint or a mistake."""
MAX_SHOWN = 80
"""Characters of a user's value that an error message repeats."""
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
        remedy = f"give {inside}" if is_file(inside) else "give a Hugging Face config.json"
        message = f"is a directory where a model config file belongs; {remedy}"
        raise InputError(message, source=_shown(name_or_path))
    name = path.resolve().parent.name if path.name == "config.json" else path.stem
    return parse_config_text(read_text_file(path, kind="a Hugging Face config.json"), name=name, source=str(path))


def parse_config_text(text: str, *, name: str, source: str) -> ModelSpec:
    """The model of a config.json's text; ``source`` is named in errors.

    Raises:
        InputError: no JSON (with its line), no object, or a config that `parse_config` refuses (with the key's line).
    """
    if not text.strip():
        message = "is empty; a Hugging Face config.json belongs here"
        raise InputError(message, source=source)
    config = parse_json(text, source=source)
    if not isinstance(config, dict):
        message = f"holds a JSON {_json_type(config)} where an object belongs; give a Hugging Face config.json"
        raise InputError(message, source=source)
    try:
        return parse_config(config, name=name, source=source)
    except InputError as error:
        line = _line_of_key(text, error.key)
        if line is None:
            raise
        plain = str(error).removeprefix(f"{source}: key '{error.key}': ")
        raise InputError(plain, source=source, line=line, key=error.key) from None


def parse_config(config: Mapping[str, Any], *, name: str, source: str) -> ModelSpec:
    """The model of a parsed config; ``_source``, if given, says where the sizes come from.

    Raises:
        InputError: the family is unknown, or a key is missing, of the wrong type or breaks a rule.
    """
    family = _family(config, source)
    schema = FAMILY_CONFIGS[family]
    _refuse_near_misses(config, schema, family=family, source=source)
    try:
        parsed = schema.model_validate(dict(config))
    except ValidationError as error:
        _refuse_field(error.errors(include_url=False)[0], config, family=family, source=source)
    origin = config.get("_source")
    _check_heads(parsed, family=family, source=source)
    return parsed.to_spec(name, origin if isinstance(origin, str) else source)


def _refuse_name(given: str) -> NoReturn:
    """No zoo name and no file."""
    known = list_models()
    last = given.rstrip("/").rsplit("/", 1)[-1].lower()
    near = difflib.get_close_matches(last, known, n=3, cutoff=0.6)
    near = near or [name for name in known if last and name.startswith(last)][:3]
    hint = f"did you mean {' or '.join(near)}?" if near else f"known models: {', '.join(known)}"
    message = f"no model and no file is named '{_shown(given)}'; {hint}"
    raise InputError(message)


def _family(config: Mapping[str, Any], source: str) -> ModelFamily:
    known = [family.value for family in ModelFamily]
    given = config.get("model_type")
    if given in known:
        family = ModelFamily(given)
        _refuse_other_architecture(config, family=family, source=source)
        return family
    if given is None:
        message = f"is missing; it names the family, one of {', '.join(known)}"
        raise InputError(message, source=source, key="model_type")
    near = difflib.get_close_matches(str(given), known, n=1)
    hint = f"did you mean '{near[0]}'?" if near else f"known families: {', '.join(known)}"
    message = f"{_shown(given)} is not a known model family; {hint}"
    raise InputError(message, source=source, key="model_type")


def _refuse_other_architecture(config: Mapping[str, Any], *, family: ModelFamily, source: str) -> None:
    """A config whose ``architectures`` name another known family contradicts its ``model_type``."""
    architectures = config.get("architectures")
    for architecture in architectures if isinstance(architectures, list) else ():
        named = [other for other in ModelFamily if str(architecture).lower().startswith(other.value)]
        if named and family not in named:
            message = f"{_shown(architecture)} is of family {named[0]}, but model_type is {family}; correct one of them"
            raise InputError(message, source=source, key="architectures")


def _key_names(schema: type[FamilyConfig]) -> list[str]:
    """The keys that a family's config is read from."""
    fields = schema.model_fields.items()
    return [field if info.validation_alias is None else str(info.validation_alias) for field, info in fields]


def _refuse_near_misses(
    config: Mapping[str, Any], schema: type[FamilyConfig], *, family: ModelFamily, source: str
) -> None:
    """An unknown key that almost spells an absent known one would be ignored silently: refuse it."""
    known = _key_names(schema)
    absent = [key for key in known if key not in config]
    for key in config:
        near = [] if key in known else difflib.get_close_matches(str(key), absent, n=1, cutoff=NEAR_KEY)
        if near:
            message = f"is no key of family {family}; did you mean '{near[0]}'?"
            raise InputError(message, source=source, key=_shown(key))


def _refuse_field(details: ErrorDetails, config: Mapping[str, Any], *, family: ModelFamily, source: str) -> NoReturn:
    """Turn pydantic's first complaint into one sentence."""
    key = str(details["loc"][0])
    if details["type"] == "missing":
        near = difflib.get_close_matches(key, [str(name) for name in config], n=1, cutoff=0.75)
        hint = f"did you mean it by '{near[0]}'?" if near else "add it, or correct model_type"
        message = f"is missing; configs of family {family} need it; {hint}"
        raise InputError(message, source=source, key=key)
    rule = (
        details["msg"]
        .removeprefix("Input ")
        .replace("valid integer", "whole number")
        .replace("should", "must")
        .replace("False", "false")
    )
    shown = _shown(json.dumps(details["input"], default=str))
    message = f"{shown} {rule}; correct it"
    raise InputError(message, source=source, key=key)


def _check_heads(parsed: FamilyConfig, *, family: ModelFamily, source: str) -> None:
    """Rules that join two keys."""
    values = parsed.model_dump()
    heads_key = "n_head" if family is ModelFamily.GPT2 else "num_attention_heads"
    hidden_key = "n_embd" if family is ModelFamily.GPT2 else "hidden_size"
    heads, hidden = values[heads_key], values[hidden_key]
    if values.get("head_dim") is None and hidden % heads:
        message = f"{heads} heads must divide {hidden_key} = {hidden}; correct one of them"
        raise InputError(message, source=source, key=heads_key)
    kv_heads = values.get("num_key_value_heads")
    if kv_heads is not None and heads % kv_heads:
        message = f"{kv_heads} must divide {heads_key} = {heads}; correct one of them"
        raise InputError(message, source=source, key="num_key_value_heads")
    if values.get("num_experts_per_tok", 0) > values.get("num_local_experts", 1):
        chosen, experts = values["num_experts_per_tok"], values["num_local_experts"]
        message = f"{chosen} must not exceed num_local_experts = {experts}; correct one of them"
        raise InputError(message, source=source, key="num_experts_per_tok")


def _line_of_key(text: str, key: str | None) -> int | None:
    """Line of the first place where ``key`` is a JSON key."""
    found = None if key is None else re.search(rf'"{re.escape(key)}"\s*:', text)
    return None if found is None else text.count("\n", 0, found.start()) + 1


def _json_type(value: object) -> str:
    names = {list: "list", str: "string", bool: "boolean", int: "number", float: "number"}
    return names.get(type(value), "null")


def _shown(value: object) -> str:
    """A user's value, short and on one line."""
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    text = text.encode("ascii", "backslashreplace").decode().replace("\n", " ")
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."
