"""Which family a Hugging Face config is of: by its ``model_type``, else by the class that it names; and what reads it.

Of a class of several models the language model's config is read, which stands inside. Only keys that change sizes are
read; those that are not read are listed, unless they are known to change no cost (`workload.family_config`). A key that
is read is checked strictly: an integer must be written as an integer. Defaults are those of the transformers library.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from types import MappingProxyType
from typing import Any, get_type_hints

from pydantic import create_model

from phaze_opt.record.document import Document
from phaze_opt.record.input_files import shorten
from phaze_opt.record.model_faults import adapter
from phaze_opt.record.suggestions import differ_by_a_letter, known_as
from phaze_opt.workload.decoder_config import DecoderConfig
from phaze_opt.workload.encoder_decoder_families import T5Config, WhisperConfig
from phaze_opt.workload.encoder_families import VitConfig
from phaze_opt.workload.family_config import FamilyConfig, read_from
from phaze_opt.workload.model_classes import (
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
from phaze_opt.workload.zoo import known_model_types, library_version

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
