"""The strict pydantic model of each family's configs.

Only keys that change sizes are read; those that are not read are listed, unless they are known to change no cost
(`workload.family_config`). A key that is read is checked strictly: an integer must be written as an integer. Defaults
are those of the transformers library.
"""

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Any, get_type_hints

from pydantic import create_model

from phaze_opt.record.model_faults import adapter
from phaze_opt.workload.decoder_config import DecoderConfig
from phaze_opt.workload.encoder_decoder_families import T5Config, WhisperConfig
from phaze_opt.workload.encoder_families import BertConfig, RobertaConfig, VitConfig
from phaze_opt.workload.family_config import FamilyConfig, read_from
from phaze_opt.workload.model_classes import FamilyRow, ModelFamily, row_of

_OTHERS: Mapping[str, type[FamilyConfig]] = MappingProxyType(
    {"bert": BertConfig, "roberta": RobertaConfig, "vit": VitConfig, "t5": T5Config, "whisper": WhisperConfig}
)


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
