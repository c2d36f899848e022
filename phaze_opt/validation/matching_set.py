"""What a user's file is like: its kind, by its columns, and for every row the published set whose models predict it.

Names of machines, types and sharding are read in any case and by all names that the models know (decision 0195).
"""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType

from phaze_opt.cost.stacks import find_software
from phaze_opt.errors import InputError
from phaze_opt.hardware.device import ComputePath, Device, MatrixStyle, path_of
from phaze_opt.hardware.device_catalogue import DeviceCatalogue, find_device
from phaze_opt.validation.schema import DATASET_SCHEMAS, PUBLISHED_SETS, SCHEMAS, Schema
from phaze_opt.validation.training.row import zero_stage

SETS_OF_SOFTWARE: Mapping[str, str] = MappingProxyType(
    {software: name for name, each in PUBLISHED_SETS.items() for software in each.software}
)
"""Published set whose models predict rows of a software; megatron-core in fp8 is NeMo's."""

MAKERS_OF_KERNELS = frozenset({"nvidia", "amd", "intel"})
"""Makers of GPUs whose matmuls were measured under the device's clock."""
_QUANTISED = re.compile(r"includes (the )?dynamic quantisation|with dynamic \w+ quantisation")


def guess_schema(header: Sequence[str]) -> Schema:
    """The kind of file whose columns these are most."""
    for schema in SCHEMAS:
        if schema.admits(header):
            return schema
    given = set(header)
    return max(SCHEMAS, key=lambda schema: (len(given & set(schema.columns)), len(given & set(schema.required))))


def guess_like(schema: Schema, values: Mapping[str, str], machines: DeviceCatalogue | None = None) -> str:
    """The published set whose models suit a row of a user's file: by its kind, then by its own machine and software.

    Args:
        schema: kind of the file.
        values: of the row.
        machines: what the row may name; the package's machines unless given.
    """
    name = values.get("hardware", "")
    device = find_device(name) if machines is None else machines.find(name)
    if schema.kind == "operators":
        return "op_modern" if is_modern(values, device) else _like_operators(values, device)
    if schema.kind == "collectives":
        return "collective_kinds"
    if schema.kind == "training":
        return like_software(values) or _like_training(values, device)
    return next(name for name, kind in DATASET_SCHEMAS.items() if kind is schema)


def like_software(values: Mapping[str, str]) -> str:
    """The published set of the software that a row states; empty if it states none, or one that is not known.

    Of models with experts one set has rows, whatever the software.
    """
    if values.get("experts", "").strip() not in ("", "1"):
        return "moe"
    name = find_software(values.get("software", "")).partition("/")[0]
    if name == "megatron-core" and _path(values) is ComputePath.FP8:
        return "train_nemo_h100_fp8"
    return SETS_OF_SOFTWARE.get(name, "")


def _like_operators(values: Mapping[str, str], device: Device | None) -> str:
    if is_tpu(values["hardware"], device):
        return "op_tpu_gemm"
    is_device_clock = "host" not in values.get("timing", "")
    is_fp32 = _path(values) is ComputePath.FP32
    return "op_neusight_fp32" if is_fp32 and is_device_clock else "op_llmcompass"


def is_modern(values: Mapping[str, str], device: Device | None) -> bool:
    """Whether a row of an operator is predicted as one of a GPU's library kernels.

    Its machine is a GPU and it is no fp32 on ordinary cores; what the host's clock timed must state its library, and of
    a maker whose kernels nobody measured it must say that the device's clock timed it.
    """
    if device is None or device.style is not MatrixStyle.TILES:
        return False
    note = values.get("note", "")
    if _path(values) is ComputePath.FP32:
        return "narrower type" in note
    if values.get("library", "") or says_quantised(note):
        return True
    timing = values.get("timing", "")
    return "device" in timing or ("host" not in timing and device.maker in MAKERS_OF_KERNELS)


@lru_cache(maxsize=4096)
def says_quantised(note: str) -> bool:
    """Whether a note says that quantisation is part of the time."""
    return bool(_QUANTISED.search(note))


def _like_training(values: Mapping[str, str], device: Device | None) -> str:
    if is_tpu(values["hardware"], device):
        return "train_maxtext_tpu"
    sharding = values.get("sharding", "").lower()
    if "shard" in sharding or zero_stage(sharding) == 3:
        return "train_llmfoundry_fsdp"
    if _path(values) is ComputePath.FP8:
        return "train_nemo_h100_fp8"
    is_like_hopper = device is not None and ComputePath.FP8 in device.peak_flops_per_s
    return "train_megatron_h100" if is_like_hopper else "train_megatron_sc21"


def is_tpu(hardware: str, device: Device | None) -> bool:
    """Whether a row is of a TPU, by its machine's maker; of an unknown machine, by the name that the row gives."""
    return hardware.lower().startswith("tpu") if device is None else device.maker == "google"


def _path(values: Mapping[str, str]) -> ComputePath | None:
    """Path of a row's type; None where it is blank or unknown, which the models will say."""
    try:
        return path_of(values.get("dtype", ""))
    except InputError:
        return None
