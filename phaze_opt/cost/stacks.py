"""Training software by name: its constants, stated and fitted, and what was measured of it.

Each has a file of its own in ``software``. What was measured changes no time: it says which plans rest on measurements,
and which parts of a plan no measurement of its software covers: features, pairs of them, and degrees far beyond.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cache
from importlib import resources
from itertools import combinations
from types import MappingProxyType
from typing import Any, get_type_hints

from phaze_opt.errors import InputError
from phaze_opt.hardware.device import Device, MatrixStyle
from phaze_opt.hardware.fitted import FittedConstants
from phaze_opt.record.document import Document, parse_toml
from phaze_opt.record.plain_data import from_plain
from phaze_opt.record.suggestions import suggest
from phaze_opt.workload.plan import ParallelPlan, Recompute
from phaze_opt.workload.software import IDEAL_STACK, StackMemory, TrainingStack

_STACK = "stack/"
_FOLDER, _OPTIONS = "software", "software_options.toml"
_ABLE, _ROWS = "of", "rows"
"""Key of an option's table: software that has it, with all that extends it."""
TENSOR, SEQUENCE, PIPELINE, INTERLEAVE = "tensor parallel", "sequence parallel", "pipeline", "interleaving"
CONTEXT, EXPERT, REPLICAS, HYBRID = "context parallel", "expert parallel", "replicas without ZeRO", "hybrid sharding"
FOLDED = "experts folded over tensor groups"
ZERO_1, ZERO_2, ZERO_3 = "ZeRO 1", "ZeRO 2", "ZeRO 3"
DESIGN_SOFTWARE = "maxtext"
"""Training software of designed chips: the only one that was measured on systolic arrays (decision 0257)."""
MEMORY_GROUP = "memory"
"""Group of fitted constants of software with PyTorch's caching allocator: fields of `StackMemory`."""
CONTEXT_BYTES = float(1 << 30)
"""Of software with that allocator: the driver's context and the kernels' code (assumption, 0.5 to 1.5 GiB)."""
PEAK_LOW_SHARE, PEAK_HIGH_SHARE = 0.14, 0.12
"""Of such software, how far below and above a predicted peak, as shares of it, nine of ten measured ones lie, of
sources that were kept out of the fit (decision 0287; tests/validation/test_memory.py works it out again)."""
ASSUMED_SOFTWARE = MappingProxyType({MatrixStyle.TILES: "megatron-core", MatrixStyle.SYSTOLIC: DESIGN_SOFTWARE})
"""The software of machines that none was measured on, by how they multiply."""
FAR = 2
"""A degree more than so many times the largest measured one counts as not measured."""


@cache
def _files() -> Mapping[str, Document]:
    """The files of ``software``, by name."""
    folder = resources.files("phaze_opt.cost").joinpath(_FOLDER)
    files = sorted((file for file in folder.iterdir() if file.name.endswith(".toml")), key=lambda file: file.name)
    # What is no text is a mistake in TOML, too.
    texts = {file.name: file.read_bytes().decode("utf-8", "replace") for file in files}
    read = {name.removesuffix(".toml"): parse_toml(text, source=name) for name, text in texts.items()}
    return MappingProxyType(read)


@cache
def software_tables() -> Mapping[str, dict[str, Any]]:
    """What the files of ``software`` state, by name: `TrainingStack`, ``extends``, ``options`` and ``measured``.

    Raises:
        InputError: a file states what it cannot, such as software that extends itself.
    """
    files = _files()
    for name, document in files.items():
        base = _about(document).extends
        above = [name]
        while base is not None:
            if base in above or base not in files:
                rule = f"'{base}' is no other software; {suggest(base, files)}"
                raise document.fault(rule, "extends")
            above.append(base)
            base = _about(files[base]).extends
    return MappingProxyType({name: document.values for name, document in files.items()})


def _about(document: Document) -> "_About":
    """What a software's file states beside its stack."""
    of_both = {key: value for key, value in document.values.items() if key in _ABOUT}
    return replace(document, values=of_both).validate(_About)


@cache
def option_tables() -> Mapping[str, dict[str, Any]]:
    """What options of training do to most software, by name: fields of `TrainingStack`."""
    text = resources.files("phaze_opt.cost").joinpath(_OPTIONS).read_text(encoding="utf-8")
    return MappingProxyType(parse_toml(text, source=_OPTIONS).values)


def list_stacks() -> tuple[str, ...]:
    """Names of the stacks."""
    return (IDEAL_STACK.name, *software_tables())


def lineage(name: str) -> tuple[str, ...]:
    """A software and what it extends, the first of all first; one of a user's, ``BASE/NAME``, extends its base."""
    base = name.rpartition("/")[0] or software_tables().get(name, {}).get("extends")
    return (name,) if base is None else (*lineage(base), name)


def is_of_software(name: str, base: str) -> bool:
    """Whether a stack is that of a name or extends it."""
    return base in lineage(name)


def stack_group(name: str) -> str:
    """Name of a stack's own group of fitted constants."""
    return f"{_STACK}{name}"


def find_software(name: str, fitted: FittedConstants | None = None) -> str:
    """The software of a name, in any case; of a user's own that constants were fitted to, ``BASE/NAME``; else empty.

    Args:
        name: as a user wrote it.
        fitted: constants in force, which may hold software of the user's own.
    """
    lowered = name.strip().lower().replace("_", "-").replace(" ", "-")
    base, _, name_of_own = lowered.partition("/")
    if base in list_stacks() and (not name_of_own or fitted is None or fitted.has(stack_group(lowered))):
        return lowered.rstrip("/")
    groups = fitted.groups if fitted is not None else {}
    own = (group.removeprefix(_STACK) for group in sorted(groups) if group.startswith(_STACK))
    return next((each for each in own if each.rpartition("/")[::2][1] == lowered and "/" in each), "")


def expert_group(name: str) -> str:
    """Name of the group of what was fitted to a software's runs of models with experts, all else as without."""
    return f"{stack_group(name)}/experts"


def option_group(option: str) -> str:
    """Name of an option's group of fitted constants, which all software has in common."""
    return f"option/{option}"


def stack_groups(name: str) -> tuple[str, ...]:
    """Groups of fitted constants that a stack takes, the later before the earlier: of what it extends, and its own."""
    return tuple(group for each in lineage(name) for group in (stack_group(each), expert_group(each)))


def load_stack(name: str, fitted: FittedConstants, options: Sequence[str] = ()) -> TrainingStack:
    """A stack with what was fitted to it, run with some options.

    Args:
        name: of the software.
        fitted: constants; those of what a software extends come before its own.
        options: of `option_tables`; what they state comes last.

    Raises:
        InputError: an unknown name, with a near miss, or a fitted constant that stacks do not have.
    """
    if lineage(name)[0] not in list_stacks():
        message = f"no training software is named '{name}'; {suggest(name, list_stacks())}"
        raise InputError(message, key="software")
    values = {key: value for group in stack_groups(name) for key, value in fitted.groups.get(group, {}).items()}
    numbers = _numbers()
    for key in values:
        if key not in numbers:
            message = f"group '{stack_group(name)}' has no constant '{key}'; {suggest(key, numbers)}"
            raise InputError(message, key=key)
    stack: TrainingStack = replace(_stated(name), **values)  # type: ignore[arg-type]
    if stack.memory.caches:
        stack = replace(stack, memory=_with_fit(stack.memory, fitted))
    chosen: dict[str, Any] = {}
    for option in options:
        chosen |= {**_option(name, option), **fitted.groups.get(option_group(option), {})}
    stack = replace(stack, options=tuple(option for option in options if option in option_tables()))
    if not chosen:
        return stack
    plain = asdict(stack)
    habits = {**plain["memory"], **chosen.pop("memory", {})}
    return from_plain(TrainingStack, {**plain, **chosen, "memory": habits})


def _option(software: str, option: str) -> Mapping[str, Any]:
    """What a software's runs with an option do otherwise: as its own files state it, else as most software does."""
    own = software_options(software)
    found = own[option] if option in own else option_tables().get(option, {})
    return {key: value for key, value in found.items() if key not in (_ABLE, _ROWS)}


def can_run(software: str, option: str) -> bool:
    """Whether a software has an option: its own files state it, or what it extends is of those that do."""
    own = lineage(software)
    if any(option in software_tables().get(each, {}).get("cannot", ()) for each in own):
        return False
    return option in software_options(software) or not set(own).isdisjoint(
        option_tables().get(option, {}).get(_ABLE, ())
    )


def rows_of_option(option: str) -> tuple[str, ...]:
    """Data sets whose rows say an option; empty of one that no measured step ran with."""
    return tuple(option_tables().get(option, {}).get(_ROWS, ()))


def no_option(software: str, option: str) -> str:
    """Why a software does not run with an option, in words; empty where it can."""
    if can_run(software, option):
        return ""
    able = [name for name in list_stacks() if can_run(name, option)]
    return f"{software} cannot run so ({option}); {', '.join(able)} can"


def software_options(name: str) -> dict[str, dict[str, Any]]:
    """Options that a software's own files state, those of what it extends among them."""
    tables = [software_tables().get(each, {}).get("options", {}) for each in lineage(name)]
    return {option: stated for table in tables for option, stated in table.items()}


def _with_fit(habits: StackMemory, fitted: FittedConstants) -> StackMemory:
    """What a software with PyTorch's allocator holds, with what was fitted to all such software."""
    known = fitted.groups.get(MEMORY_GROUP, {})
    return replace(
        habits,
        reserve_share=known.get("reserve_share", habits.reserve_share),
        context_bytes=CONTEXT_BYTES,
        group_bytes=known.get("group_bytes", habits.group_bytes),
        low_share=PEAK_LOW_SHARE,
        high_share=PEAK_HIGH_SHARE,
    )


@cache
def _numbers() -> tuple[str, ...]:
    """Names of a stack's constants."""
    return tuple(sorted(key for key, kind in get_type_hints(TrainingStack).items() if kind is float))


@cache
def _stated(name: str) -> TrainingStack:
    """A stack as its table and that of what it extends state it."""
    if name == IDEAL_STACK.name:
        return IDEAL_STACK
    tables = [software_tables().get(each, {}) for each in lineage(name)]
    stated = {key: value for table in tables for key, value in table.items()}
    stated["name"] = name
    stated["memory"] = {key: value for table in tables for key, value in table.get("memory", {}).items()}
    file = next(each for each in reversed(lineage(name)) if each in _files())
    document = replace(_files()[file], values={key: value for key, value in stated.items() if key not in _ABOUT})
    return document.validate(TrainingStack)


@dataclass(frozen=True, slots=True)
class MeasuredOn:
    """Rows of one data set on one machine: names of the machine, the matmuls' format and the data set."""

    machine: str
    dtype: str
    dataset: str


@dataclass(frozen=True, slots=True)
class MeasuredExperts:
    """What rows of models with experts cover beside, fields as of `SoftwareRows`.

    Attributes:
        dataset: that they are of.
        num_rows: of them.
    """

    dataset: str
    num_rows: int
    recompute: frozenset[Recompute]
    reach: Mapping[str, int]
    shapes: frozenset[frozenset[str]]


@dataclass(frozen=True, slots=True)
class SoftwareRows:
    """What the rows of one software cover.

    Attributes:
        rows: machines, formats and data sets.
        recompute: recomputation choices.
        reach: largest degree of each parallel feature; of ZeRO the devices that share the state.
        longest_sequence: tokens.
        shapes: features that ran together, largest sets only.
        experts: what rows of models with experts cover beside; None if there are none.
    """

    rows: tuple[MeasuredOn, ...]
    recompute: frozenset[Recompute]
    reach: Mapping[str, int]
    longest_sequence: int
    shapes: frozenset[frozenset[str]]
    experts: MeasuredExperts | None = None

    def with_experts(self) -> "SoftwareRows":
        """The rows and those of models with experts, as plans of such models are held against."""
        more = self.experts
        if more is None:
            return self
        names = (*self.reach, *(name for name in more.reach if name not in self.reach))
        reach = {name: max(self.reach.get(name, 0), more.reach.get(name, 0)) for name in names}
        shapes, recompute = self.shapes | more.shapes, self.recompute | more.recompute
        return replace(self, reach=reach, shapes=shapes, recompute=recompute)

    @property
    def machines(self) -> tuple[str, ...]:
        """Names of the machines, each once."""
        return tuple(dict.fromkeys(each.machine for each in self.rows))

    @property
    def datasets(self) -> tuple[str, ...]:
        """Names of the data sets, each once."""
        return tuple(dict.fromkeys(each.dataset for each in self.rows))


@dataclass(frozen=True, slots=True)
class _About:
    """What a software's file states beside the fields of `TrainingStack`.

    Attributes:
        extends: the software whose file holds where this one is silent.
        options: what it can do, and fields of a stack that it then has; a stack's own are those in force.
        measured: what its rows cover.
        is_profile: whether its rows are of a profiler.
        trains_any: whether it trains any module.
        cannot: options that it lacks though what it extends has them.
    """

    extends: str | None = None
    options: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    measured: SoftwareRows | None = None
    is_profile: bool = False
    trains_any: bool = False
    cannot: tuple[str, ...] = ()


_ABOUT = tuple(each.name for each in fields(_About))


def plan_features(plan: ParallelPlan) -> dict[str, int]:
    """Parallel features that a plan uses, each with its degree."""
    shards = plan.shards if plan.zero else 0
    degrees = {
        TENSOR: plan.tensor,
        SEQUENCE: plan.tensor if plan.is_sequence_parallel else 1,
        PIPELINE: plan.pipeline,
        INTERLEAVE: plan.interleave,
        CONTEXT: plan.context,
        EXPERT: plan.expert,
        FOLDED: plan.tensor // plan.expert_tensor if plan.expert_tensor else 1,
        REPLICAS: 1 if plan.zero else plan.data * plan.context,
        HYBRID: plan.data * plan.context // shards if shards else 1,
        **{f"ZeRO {stage}": shards if plan.zero == stage else 1 for stage in (1, 2, 3)},
    }
    return {name: degree for name, degree in degrees.items() if degree > 1}


@cache
def measured_rows(software: str) -> SoftwareRows | None:
    """What was measured of a software; None of one that is not measured, such as the ideal one."""
    return _about(_files()[software]).measured if software in software_tables() else None


def measured_base(software: str) -> tuple[str, SoftwareRows | None]:
    """A software, or of a user's own the one it extends, with what was measured of it."""
    base = software.rpartition("/")[0] or software
    return base, measured_rows(base)


def rows_like(rows: SoftwareRows, *, machine: str, dtype: str) -> SoftwareRows:
    """The rows on a machine, in a format where there are such; all of them where none is on the machine."""
    own = tuple(each for each in rows.rows if each.machine == machine)
    alike = tuple(each for each in own if each.dtype == dtype)
    return replace(rows, rows=alike or own) if own else rows


def machines_of(datasets: Collection[str]) -> tuple[str, ...]:
    """Machines with rows in any of some data sets, of whatever software, sorted."""
    known = (measured_rows(name) for name in software_tables())
    return tuple(
        sorted({each.machine for rows in known if rows is not None for each in rows.rows if each.dataset in datasets})
    )


def software_measured_on(machine: str) -> str | None:
    """The software whose constants whole plans on a machine take unless another is named; None if none was measured.

    Where several were, the one whose rows have the most parallel features: a search over plans asks for them.
    """
    known = {name: measured_rows(name) for name in sorted(software_tables())}
    reach = {name: len(rows.reach) for name, rows in known.items() if rows is not None and machine in rows.machines}
    return max(reach, key=reach.__getitem__, default=None)


def usual_software(device: Device | None) -> tuple[str, bool]:
    """The software of whole plans on a machine unless another is named, and whether it was measured there.

    Args:
        device: a real machine; None for a designed chip.
    """
    if device is None:
        return DESIGN_SOFTWARE, False
    measured = software_measured_on(device.name)
    return (ASSUMED_SOFTWARE[device.style], False) if measured is None else (measured, True)


def unmeasured_parts(plan: ParallelPlan, rows: SoftwareRows) -> tuple[str, ...]:
    """What of a plan no row of its software has, in words; empty if every part was measured.

    A feature that no row has; of features that rows have, a degree more than `FAR` times theirs, or two that never ran
    together. Recomputation counts as one of the features, but not in pairs: it changes what a device computes only.

    Args:
        plan: any plan.
        rows: of the software that it is priced with.
    """
    degrees = plan_features(plan)
    if EXPERT in degrees or FOLDED in degrees:
        rows = rows.with_experts()
    parts = [name for name in degrees if name not in rows.reach]
    known = [name for name in degrees if name in rows.reach]
    parts += [
        f"{name} above {FAR} x {rows.reach[name]}"
        for name in known
        if name != SEQUENCE and degrees[name] > FAR * rows.reach[name]
    ]
    pairs = combinations([name for name in known if name != SEQUENCE], 2)
    parts += [f"{two} with {one}" for one, two in pairs if not any({one, two} <= shape for shape in rows.shapes)]
    parts += [
        "no recomputation" if each is Recompute.NONE else f"{each.value} recomputation"
        for each in dict.fromkeys(plan.recomputes)
        if each not in rows.recompute
    ]
    if plan.blocks:
        parts.append("stages cut unevenly")
    if plan.stage_recompute:
        parts.append("recomputation that differs between stages")
    return tuple(parts)


def machine_gap(
    rows: SoftwareRows | None, *, software: str, machine: str, dtype: str, is_scheduled: bool = False
) -> str:
    """One sentence where a software's constants were not measured on a machine in a number format; else empty.

    Args:
        rows: of the software.
        software: its name.
        machine: name of what plans are priced on.
        dtype: format of its matmuls.
        is_scheduled: whether it is a designed chip, whose operators are scheduled.
    """
    if rows is None:
        return ""
    formats = [each.dtype for each in rows.rows if each.machine == machine]
    if not formats and is_scheduled:
        return (
            f"{software} was not measured on {machine}: its kernels, collectives and overlaps are taken, and what "
            "operators take follows from their schedules"
        )
    if not formats:
        return (
            f"{software} was not measured on {machine}: its shares of peak and of bandwidth are assumed to be those "
            f"on {', '.join(rows.machines)}"
        )
    if dtype not in formats:
        return f"{software} was measured on {machine} in {', '.join(sorted(set(formats)))}, not in {dtype}"
    return ""


def model_gap(rows: SoftwareRows | None, *, software: str, num_experts: int, sequence_length: int) -> str:
    """One sentence where no row of a software is like the model: experts, sequences far longer; else empty."""
    if rows is None:
        return ""
    gaps = []
    if num_experts > 1:
        gaps.append(_expert_gap(rows, software))
    if sequence_length > FAR * rows.longest_sequence:
        gaps.append(f"{software} was measured with sequences up to {rows.longest_sequence:,} tokens")
    return "; ".join(gaps)


def _expert_gap(rows: SoftwareRows, software: str) -> str:
    """How much is known of a software's runs of models with experts."""
    if rows.experts is None:
        return f"no model with experts was measured with {software}"
    return f"of models with experts {rows.experts.num_rows} runs of {software} were measured ({rows.experts.dataset})"


def shared_and_own(parts: Sequence[tuple[str, ...]]) -> tuple[tuple[str, ...], tuple[tuple[str, int], ...]]:
    """Parts that all plans of a table have, and the others with how many of the plans have them, most first."""
    counts: dict[str, int] = {}
    for each in parts:
        for part in each:
            counts[part] = counts.get(part, 0) + 1
    shared = tuple(part for part, count in counts.items() if count == len(parts))
    others = sorted(((part, count) for part, count in counts.items() if count < len(parts)), key=lambda pair: -pair[1])
    return shared, tuple(others)
