"""What is priced where nobody says which software runs: the middle of measured software that suits plan and machine.

`evaluate`, rows of steps and rows of memory ask here, so that one plan has one answer.

A software suits where it was measured on such a machine (arrays or tiles, and of those with 8-bit matmuls or before
them) and shards state as the plan does. Profiles are no software that trains.
"""

from collections.abc import Collection, Sequence

from phaze_opt.cost.stacks import (
    ASSUMED_SOFTWARE,
    FAR,
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
from phaze_opt.hardware.device import ComputePath, Device, MatrixStyle
from phaze_opt.hardware.device_catalogue import load_device
from phaze_opt.workload.plan import ParallelPlan

MODEL_PARALLEL = frozenset({TENSOR, PIPELINE, INTERLEAVE, REPLICAS, ZERO_1})
SHARDED = frozenset({ZERO_2, ZERO_3})
ENOUGH = 2
"""Software whose middle says something of one that nobody knows."""


def middle_place(values: Sequence[float]) -> int:
    """Place of the middle one, the first of equal ones; of an even number, of the smaller of the two in the middle.

    So the middle is always what one software takes.
    """
    order = sorted(range(len(values)), key=lambda place: (values[place], place))
    chosen = values[order[(len(order) - 1) // 2]]
    return next(place for place, value in enumerate(values) if value == chosen)


def suited_software(
    plan: ParallelPlan, device: Device | None, *, sequence_length: int, without: Collection[str] = ()
) -> tuple[str, ...]:
    """Names of the measured software that suits, sorted, each as often as data sets have it; at least one.

    So the middle of them is that of what was measured. Of software that shards as the plan does, it takes that which
    was measured on machines of the same generation. Where that is one alone, software of later machines joins it.
    Software that was measured with sequences half as long leaves, if any stays. Where none was measured on a machine
    of this style, it is the one that is assumed.

    Args:
        plan: the plan.
        device: what it runs on; None of a machine that nobody knows, taken as a GPU with 8-bit matmuls.
        sequence_length: tokens.
        without: data sets that count as not measured.
    """
    known = {name: rows for name in sorted(software_tables()) if (rows := _known_rows(name, without)) is not None}
    kin = {name: {_kind(load_device(each.machine)) for each in rows.rows} for name, rows in known.items()}
    own = (MatrixStyle.TILES, True) if device is None else _kind(device)
    style_of_own = own[0]
    styled = [name for name in known if any(style is style_of_own for style, _ in kin[name])]
    asked = SHARDED if plan.zero >= 2 else MODEL_PARALLEL
    sharding = [name for name in styled if not asked.isdisjoint(known[name].reach)] or styled
    alike = [name for name in sharding if own in kin[name]]
    later = [name for name in sharding if (style_of_own, True) in kin[name]]
    found = alike if len(alike) >= ENOUGH else sorted({*alike, *later})
    found = [name for name in found if sequence_length <= FAR * known[name].longest_sequence] or found
    names = found or sharding
    if not names:
        return (ASSUMED_SOFTWARE[style_of_own],)
    return tuple(name for name in names for each in known[name].datasets if each not in without)


def software_of_machine(device: Device, *, sequence_length: int) -> tuple[str, ...]:
    """Names of the software that suits a machine whatever a plan shards, each once, sorted."""
    plans = (ParallelPlan(data=8, zero=3), ParallelPlan(tensor=8))
    return tuple(
        sorted({name for plan in plans for name in suited_software(plan, device, sequence_length=sequence_length)})
    )


def software_of_any_module(device: Device) -> str:
    """Name of the measured software that trains models which are no transformers; empty where none suits a machine.

    It is the one that was measured on the machine, else on machines of its generation, else of its style.
    """
    known = {name: rows for name in sorted(software_tables()) if (rows := _of_any_module(name)) is not None}
    kin = {name: {_kind(load_device(each.machine)) for each in rows.rows} for name, rows in known.items()}
    style = device.style
    found = (
        [name for name, rows in known.items() if device.name in rows.machines],
        [name for name in known if _kind(device) in kin[name]],
        [name for name in known if any(style is each for each, _ in kin[name])],
    )
    return next((names[0] for names in found if names), "")


def _of_any_module(name: str) -> SoftwareRows | None:
    return measured_rows(name) if software_tables()[name].get("trains_any") else None


def _known_rows(name: str, without: Collection[str]) -> SoftwareRows | None:
    """Rows of a software outside some data sets; None of profiles, and where none is left."""
    rows = measured_rows(name)
    if rows is None or software_tables()[name].get("is_profile"):
        return None
    return rows if any(each.dataset not in without for each in rows.rows) else None


def _kind(device: Device) -> tuple[MatrixStyle, bool]:
    """Style, and whether its generation has 8-bit floating-point matmuls."""
    return device.style, ComputePath.FP8 in device.peak_flops_per_s
