"""Which measured software suits a plan on a machine whose software nobody named: what a row is priced as the middle of.

A software suits where it was measured on such a machine (arrays or tiles, and of those with 8-bit matmuls or before
them) and shards state as the plan does. Profiles are no software that trains.
"""

from collections.abc import Collection

from phaze_opt.cost.stacks import (
    ASSUMED_SOFTWARE,
    INTERLEAVE,
    PIPELINE,
    REPLICAS,
    TENSOR,
    ZERO_1,
    ZERO_2,
    ZERO_3,
    SoftwareRows,
    measured_rows,
    software_tables,
)
from phaze_opt.hardware.device import ComputePath, Device
from phaze_opt.hardware.device_catalogue import load_device
from phaze_opt.workload.plan import ParallelPlan

MODEL_PARALLEL = frozenset({TENSOR, PIPELINE, INTERLEAVE, REPLICAS, ZERO_1})
SHARDED = frozenset({ZERO_2, ZERO_3})
ENOUGH = 2
"""Software whose middle says something of one that nobody knows."""


def suited_software(plan: ParallelPlan, device: Device, *, without: Collection[str] = ()) -> tuple[str, ...]:
    """Names of the measured software that suits, sorted, each as often as data sets have it; at least one.

    The middle of them is so that of what was measured. Of software that shards as the plan does, that which was measured on machines of the same generation. Where that is
    one alone, software of later machines joins it, as it runs on earlier ones too. Where none was measured on a
    machine of this style, the one that is assumed.

    Args:
        plan: the plan.
        device: what it runs on.
        without: data sets that count as not measured.
    """
    known = {name: rows for name in sorted(software_tables()) if (rows := _known_rows(name, without)) is not None}
    kin = {name: {_kind(load_device(each.machine)) for each in rows.rows} for name, rows in known.items()}
    styled = [name for name in known if any(style is device.style for style, _ in kin[name])]
    asked = SHARDED if plan.zero >= 2 and plan.pipeline == 1 else MODEL_PARALLEL
    sharding = [name for name in styled if not asked.isdisjoint(known[name].reach)] or styled
    alike = [name for name in sharding if _kind(device) in kin[name]]
    later = [name for name in sharding if (device.style, True) in kin[name]]
    found = alike if len(alike) >= ENOUGH else sorted({*alike, *later})
    names = found or sharding
    if not names:
        return (ASSUMED_SOFTWARE[device.style],)
    return tuple(name for name in names for each in known[name].datasets if each not in without)


def named_software(name: str) -> str:
    """The software of this name in any case; empty of one that is not known."""
    lowered = name.strip().lower().replace("_", "-").replace(" ", "-")
    return lowered if lowered in software_tables() else ""


def _known_rows(name: str, without: Collection[str]) -> SoftwareRows | None:
    """Rows of a software outside some data sets; None of profiles, and where none is left."""
    rows = measured_rows(name)
    if rows is None or software_tables()[name].get("is_profile"):
        return None
    return rows if any(each.dataset not in without for each in rows.rows) else None


def _kind(device: Device) -> tuple[object, bool]:
    """Style, and whether its generation has 8-bit floating-point matmuls."""
    return device.style, ComputePath.FP8 in device.peak_flops_per_s
