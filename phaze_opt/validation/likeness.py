"""What a user's file is like: its kind, by its columns, and the published set whose models predict it.

Names of machines, types and sharding are read in any case and by all names that the models know (decision 0195).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from phaze_opt.errors import InputError
from phaze_opt.hardware.device import ComputePath, path_of
from phaze_opt.validation.schema import DATASET_SCHEMAS, SCHEMAS, Schema
from phaze_opt.validation.training.row import zero_stage


def guess_schema(header: Sequence[str]) -> Schema:
    """The kind of file whose columns these are most."""
    for schema in SCHEMAS:
        if schema.admits(header):
            return schema
    given = set(header)
    return max(SCHEMAS, key=lambda schema: (len(given & set(schema.columns)), len(given & set(schema.required))))


def guess_like(schema: Schema, values: Sequence[Mapping[str, str]]) -> str:
    """The published set whose models suit a user's file: by its kind, then by machine and software of its first row."""
    first = values[0]
    if schema.kind == "operators":
        return _like_operators(first)
    if schema.kind == "training":
        return _like_training(first)
    return next(name for name, kind in DATASET_SCHEMAS.items() if kind is schema)


def _like_operators(values: Mapping[str, str]) -> str:
    if _is_tpu(values):
        return "op_tpu_gemm"
    is_device_clock = "host" not in values.get("timing", "")
    is_fp32 = _path(values) is ComputePath.FP32
    return "op_neusight_fp32" if is_fp32 and is_device_clock else "op_llmcompass"


def _like_training(values: Mapping[str, str]) -> str:
    if _is_tpu(values):
        return "train_maxtext_tpu"
    sharding = values.get("sharding", "").lower()
    if "shard" in sharding or zero_stage(sharding) == 3:
        return "train_llmfoundry_fsdp"
    if _path(values) is ComputePath.FP8:
        return "train_nemo_h100_fp8"
    is_hopper = values["hardware"].lower().startswith(("h100", "h200", "gh200", "b200", "b300"))
    return "train_megatron_h100" if is_hopper else "train_megatron_sc21"


def _is_tpu(values: Mapping[str, str]) -> bool:
    return values["hardware"].lower().startswith("tpu")


def _path(values: Mapping[str, str]) -> ComputePath | None:
    """Path of a row's type; None where it is blank or unknown, which the models will say."""
    try:
        return path_of(values.get("dtype", ""))
    except InputError:
        return None
