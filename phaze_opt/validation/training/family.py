"""Families of training steps: A100 and V100 clusters, later machines, models with experts; left-out sources.

Of models with experts launches and exchanges of experts are fitted, all else is as without: no figure of those depends
on these rows. Tried and left out, as the rows ask for none of it: another rate for the products of several experts than
for others (it came out at the bound, 1.2), and more memory traffic of permutations than one copy each way (it came out
at 1). A source is a publication. Kept out whole, its rows leave the fit of every constant, and are priced as rows of a
user whose software is not among those measured elsewhere: by all that suit machine and sharding, as the middle of them.
They are also priced as rows of a user who names the software, with what other publications say of its constants.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from types import MappingProxyType

import numpy as np

from phaze_opt.cost.stacks import expert_group, load_stack, option_group, stack_group, stack_groups
from phaze_opt.hardware.fitted import FittedConstants, load_fitted
from phaze_opt.hardware.spreads import UNSEEN
from phaze_opt.validation.family import Family, FitParameter, Label
from phaze_opt.validation.fit import Progress, fit_family, fit_towards_starts, with_starts, without_groups
from phaze_opt.validation.measured_row import Row, read_rows
from phaze_opt.validation.training.compiled import StepRows, compile_training
from phaze_opt.validation.training.entries import (
    BIGSCIENCE,
    BLACKWELL,
    FMS_FSDP,
    KORTHIKANTI,
    LARGE,
    LAYER,
    LLM_FOUNDRY,
    MAXTEXT,
    MEGATRON,
    MOE,
    MULTI,
    NEMO,
    PAX_H100,
    SC21,
    SCALING,
    SETS,
    SINGLE,
    TORCHTITAN,
    options_of,
    read_entries,
    read_row,
    stack_of,
)
from phaze_opt.validation.training.parameters import (
    BASE,
    COMMON,
    CORE,
    DEEPSPEED,
    DEEPSPEED_PARAMETERS,
    EARLIER,
    FOUNDRY,
    FOUNDRY_H100,
    MEGATRON_PARAMETERS,
    MODERN_PARAMETERS,
    OPTION_PARAMETERS,
    YOUNG_PARAMETERS,
    own_parameters,
)
from phaze_opt.validation.training.row import TrainingRow, expert_capacity

NODE_DEVICES = 8
FITTED = (SINGLE, MULTI, SC21, KORTHIKANTI)
"""Sets of the first family whose rows are fitted, each set with one weight in all; the others are scored only."""
_TOGETHER = ((MEGATRON, NEMO), (LLM_FOUNDRY,), (MAXTEXT,))
"""Sets of the second family whose constants are fitted together; none is shared between the three."""
_YOUNG = (BLACKWELL, TORCHTITAN, FMS_FSDP, PAX_H100)
"""Sets of software that takes most constants of what it extends: a few of its own, and those of options, are fitted
together after those, pulled to the mean over software."""
_ROUNDS = 2
"""Fits after each of which that mean is taken anew; a third moves no share by more than 0.003."""


def _compile(rows: Sequence[Row]) -> StepRows:
    return compile_training(rows, read_entries)


def _step_parameters(rows: Sequence[Row]) -> tuple[FitParameter, ...]:
    """Constants of the software that the rows ran, of what it came of, and of options that rows say."""
    read = list(read_rows(read_row, rows)[0].values())
    published = [each for each in read if "/" not in stack_of(each)]
    used = {group for each in published for group in stack_groups(stack_of(each))}
    used |= {option_group(option) for each in published for option in options_of(each.row, stack_of(each))}
    known = (*MEGATRON_PARAMETERS, *DEEPSPEED_PARAMETERS, *MODERN_PARAMETERS, *YOUNG_PARAMETERS, *OPTION_PARAMETERS)
    return (*(each for each in known if each.group in used), *_own(read))


def _own(read: Sequence[TrainingRow]) -> list[FitParameter]:
    """Constants of users' own software."""
    names = sorted({name for name in map(stack_of, read) if "/" in name})
    bases = {name: asdict(load_stack(name.rpartition("/")[0], load_fitted())) for name in names}
    return [parameter for name, base in bases.items() for parameter in own_parameters(name, base)]


def _is_own(row: Row) -> bool:
    """Whether a row is of a user's own software."""
    return "/" in row.text("software", "")


def _with_own(rows: Sequence[Row], fitted: FittedConstants) -> FittedConstants:
    """Constants of users' own software fitted to its rows, all else as it is."""
    own = [row for row in rows if _is_own(row)]
    if not own:
        return fitted
    parameters = _own(list(read_rows(read_row, own)[0].values()))
    return fit_towards_starts(_compile(own), parameters, fitted)


def _fit_by_set(rows: Sequence[Row], start: FittedConstants) -> FittedConstants:
    """By least squares in which every set counts alike, however many rows it has; Megatron-DeepSpeed's own after them.

    A pull to the starts weighs as much as one row of the smallest set (decision 0176): few rows must not decide a
    constant alone. Megatron-DeepSpeed is pulled to what Megatron-LM reaches.
    """
    published = [row for row in rows if not _is_own(row)]
    if len(published) < len(rows):
        return _with_own(rows, _fit_by_set(published, start) if published else start)
    older = [row for row in rows if row.dataset != BIGSCIENCE]
    counts = Counter(row.dataset for row in older)
    scale = (len(older) / max(1, len(counts))) ** 0.5
    weights = scale * np.array([counts[row.dataset] ** -0.5 if row.dataset in FITTED else 0.0 for row in older])
    fitted = start
    if older:
        parameters = [each for each in _step_parameters(older) if each.group != stack_group(DEEPSPEED)]
        fitted = fit_towards_starts(_compile(older), parameters, start, weights=weights)
    younger = [row for row in rows if row.dataset == BIGSCIENCE]
    own = [_near(each, _kin(each, fitted)) for each in DEEPSPEED_PARAMETERS]
    if not younger:
        return with_starts(fitted, own)
    return fit_towards_starts(_compile(younger), own, with_starts(fitted, MEGATRON_PARAMETERS))


def _kin(parameter: FitParameter, fitted: FittedConstants) -> float:
    """What Megatron-LM has of a constant of Megatron-DeepSpeed."""
    return fitted.groups.get(stack_group(BASE), {}).get(parameter.name, parameter.start)


def _near(parameter: FitParameter, value: float) -> FitParameter:
    """The constant with another start, within its bounds."""
    return replace(parameter, start=min(max(value, parameter.low), parameter.high))


def _fit_by_software(rows: Sequence[Row], start: FittedConstants) -> FittedConstants:
    """Each software's constants on its own rows, pulled to what other sources say; unseen ones stay there.

    Software with few rows follows, all of it at once: pulled to the mean over software, which moves with it.
    """
    published = [row for row in rows if not _is_own(row)]
    if len(published) < len(rows):
        return _with_own(rows, _fit_by_software(published, start) if published else start)
    fitted = with_starts(start, MODERN_PARAMETERS)
    for sets in _TOGETHER:
        own = [row for row in rows if row.dataset in sets]
        if own:
            fitted = fit_towards_starts(_compile(own), _older(own), fitted)
    fitted = _with_earlier(fitted)
    own = [row for row in rows if row.dataset in _YOUNG]
    young = [each for each in _step_parameters(own) if each in (*YOUNG_PARAMETERS, *OPTION_PARAMETERS)]
    compiled = _compile(own)
    for _ in range(_ROUNDS if own else 0):
        near = [_near(each, _mean_over_software(each, fitted)) for each in young]
        fitted = fit_towards_starts(compiled, near, fitted)
    # Of software without rows the mean over the others is expected.
    return with_starts(fitted, [_near(each, _mean_over_software(each, fitted)) for each in YOUNG_PARAMETERS])


def _with_earlier(fitted: FittedConstants) -> FittedConstants:
    """With what llm-foundry's two fits, of A100s and of H100s, say of software that was measured on H100s alone."""
    earlier, later = fitted.groups[stack_group(FOUNDRY)], fitted.groups[stack_group(FOUNDRY_H100)]
    ratios = {name: earlier[share] / later[share] for name, share in EARLIER.items()}
    return fitted.updated({stack_group(FOUNDRY_H100): ratios})


def _older(rows: Sequence[Row]) -> list[FitParameter]:
    return [each for each in _step_parameters(rows) if each in MODERN_PARAMETERS]


def _mean_over_software(parameter: FitParameter, fitted: FittedConstants) -> float:
    """Mean of a share over the software of modern GPUs that has a value of it; the start of a constant of one alone."""
    groups = COMMON.get(parameter.name, ()) if parameter in YOUNG_PARAMETERS else ()
    values = [
        fitted.groups[group][parameter.name] for group in groups if parameter.name in fitted.groups.get(group, {})
    ]
    return float(np.mean(values)) if values else parameter.start


def _degrees(row: Row) -> str:
    """Tensor degree, with or without stages; tensor groups that cross nodes apart."""
    tensor, pipeline = row.integer("tp", 1), row.integer("pp", 1)
    where = " across nodes" if tensor > NODE_DEVICES else ""
    return f"tp {tensor}{where}, pp {'1' if pipeline == 1 else '> 1'}"


def _modern_regime(row: Row) -> str:
    """What tells the rows of a set apart: chip, length, recomputation, or degrees."""
    recompute = row.text("recompute", "none")
    if row.dataset == MAXTEXT:
        return f"{row.text('hardware')}, {recompute} recompute"
    if row.dataset == LLM_FOUNDRY:
        length = "up to 4096" if row.integer("seq") <= 4096 else "above 4096"
        machine = f"{row.text('hardware')} {row.text('dtype', 'bf16')}"
        return f"{machine}, {_nodes(row)}, {length} tokens, {recompute} recompute"
    stages = "stages" if row.integer("pp", 1) > 1 else "no stages"
    return f"{row.text('dtype', 'bf16')}, {stages}"


def _nodes(row: Row) -> str:
    return "one node" if row.integer("n_devices") <= NODE_DEVICES else "several nodes"


def _cell(row: Row) -> str:
    """Composed rows share hidden size, degrees and micro-batch; others are configurations of their own."""
    if row.dataset == SINGLE:
        columns: tuple[str, ...] = ("hidden", "tp", "pp", "dp", "micro_batch")
    else:
        columns = ("model", "n_devices", "tp", "pp", "dp", "micro_batch", "interleave", "global_batch", "sharding")
    return f"{row.dataset}|{row.joined(*columns)}"


def _shape(row: Row) -> str:
    """What makes two models one: GPT-175B and GPT-174.6B are, whatever a table calls them."""
    columns = ("layers", "hidden", "heads", "kv_heads", "ffn", "mlp_matrices")
    return row.joined(*columns)


def _only(label: Label, *datasets: str) -> Label:
    """The label of rows of some sets; empty for others."""
    return lambda row: label(row) if row.dataset in datasets else ""


def _column(name: str, *datasets: str) -> Label:
    return _only(lambda row: row.text(name, ""), *datasets)


TRAINING = Family(
    name="training",
    datasets=(SINGLE, MULTI, SC21, KORTHIKANTI, LAYER, SCALING, LARGE, BIGSCIENCE),
    parameters=_step_parameters,
    compile=_compile,
    fit=_fit_by_set,
    unseen=UNSEEN,
    regime=_degrees,
    cell=_cell,
    splits=MappingProxyType({"hidden": _column("hidden", SINGLE), "model": _only(_shape, MULTI, SC21, KORTHIKANTI)}),
)
"""Megatron-LM of 2021 and 2022 and what came of it; tested on hidden sizes of the composed rows, models of others."""

MODERN_TRAINING = Family(
    name="modern-training",
    datasets=(MEGATRON, NEMO, LLM_FOUNDRY, MAXTEXT, BLACKWELL, TORCHTITAN, FMS_FSDP, PAX_H100),
    parameters=_step_parameters,
    compile=_compile,
    fit=_fit_by_software,
    unseen=UNSEEN,
    regime=_modern_regime,
    cell=lambda row: row.joined("hardware", "model", "n_devices", "seq", "dtype", "tp", "pp", "sharding"),
    splits=MappingProxyType(
        {
            "nodes": _only(_nodes, LLM_FOUNDRY),
            "devices": _column("n_devices", LLM_FOUNDRY),
            "machine": _column("hardware", LLM_FOUNDRY),
            "chip": _column("hardware", MAXTEXT),
            "model": _shape,
        }
    ),
)
"""Megatron-Core, NeMo in fp8, llm-foundry (FSDP) and MaxText; tested on one node or several, device counts and machines
of llm-foundry, chips of MaxText and models of all."""


_LAUNCH = "host time to launch a product of one expert or a permutation"
_SHARE = "share of the links' and adapters' bandwidth that tokens on their way to experts and back reach"
EXPERT_PARAMETERS = (
    FitParameter(expert_group(CORE), "host_s_per_expert", "s", 1e-5, 1.5e-4, 3e-5, _LAUNCH, is_log=True),
    FitParameter(expert_group(CORE), "expert_efficiency", "1", 0.5, 1.0, 0.8, _SHARE),
)
"""Starts: what PyTorch takes to launch (`estimate.machine.HOST_CALL_S`), and what DeepEP reaches of an adapter between
nodes (43 to 58 of 50 GB/s by its tables, copies within a node left out)."""


def _experts_regime(row: Row) -> str:
    """Whether tokens are dropped beyond a capacity, or how many experts a device has."""
    if expert_capacity(row):
        return "fixed capacity"
    return f"{row.integer('experts', 1) // row.integer('ep', 1)} experts a device"


EXPERTS = Family(
    name="experts",
    datasets=(MOE,),
    parameters=lambda rows: EXPERT_PARAMETERS,
    compile=_compile,
    is_pulled=True,
    unseen=UNSEEN,
    regime=_experts_regime,
    cell=lambda row: row.joined("hardware", "model", "n_devices", "micro_batch", "pp", "capacity"),
    splits=MappingProxyType(
        {"machine": lambda row: row.text("hardware"), "model": lambda row: row.joined("layers", "hidden", "experts")}
    ),
)
"""Megatron-Core with experts on H100, B200, GB200 and GB300; tested on machines and models kept out."""


BRIDGE_PAGE = "Megatron-Bridge"
"""Word in the source of rows of `NEMO` that are of the publication of `BLACKWELL`."""

SOURCES: Mapping[str, str] = MappingProxyType({name: own.publication for name, own in SETS.items() if own.publication})
"""Publication by data set."""


@dataclass(frozen=True, slots=True)
class LeftOutRow:
    """A row predicted without its source.

    Attributes:
        source: publication.
        row: as read.
        predicted_s: the middle of the software that suits, s.
        low_s, high_s: least and most of them, s.
        measured_s: as published, s.
        named_s: as a step of its own software, of which only what others say is known, s.
    """

    source: str
    row: Row
    predicted_s: float
    low_s: float
    high_s: float
    measured_s: float
    named_s: float

    @property
    def error(self) -> float:
        """Predicted / measured - 1."""
        return self.predicted_s / self.measured_s - 1.0


def source_of(row: Row) -> str:
    """Publication of a row."""
    if row.dataset == NEMO and BRIDGE_PAGE in row.text("source", ""):
        return SOURCES[BLACKWELL]
    return SOURCES[row.dataset]


def predict_left_out(
    rows: Sequence[Row], start: FittedConstants, *, on_progress: Progress | None = None
) -> tuple[LeftOutRow, ...]:
    """Every row predicted by constants fitted without its source, and without its software; those unscored left away.

    Args:
        rows: of training sets, of both families.
        start: constants of other families; those of training are dropped.
        on_progress: told each source.
    """
    families = (TRAINING, MODERN_TRAINING)
    own = {parameter.group for family in families for parameter in family.parameters(_of(rows, family))}
    bare = without_groups(start, own)
    sources = [source_of(row) for row in rows]
    found: list[LeftOutRow] = []
    known: dict[tuple[str, bool | str], FittedConstants] = {}
    for source in dict.fromkeys(sources):
        if on_progress is not None:
            on_progress(f"without {source}")
        kept = [row for row, name in zip(rows, sources, strict=True) if name != source]
        left = [row for row, name in zip(rows, sources, strict=True) if name == source]
        fitted = bare
        for family in families:
            seen = _of(kept, family)
            # The constants of a family do not depend on the other's: the fit to all its rows is made once.
            key = family.name, len(seen) == len(_of(rows, family)) or source
            if key not in known:
                known[key] = with_starts(fit_family(family, seen, bare), family.parameters(_of(rows, family)))
            fitted = fitted.updated(known[key].groups)
        gone = {row.dataset for row in left} - {row.dataset for row in kept}
        found += _predicted(source, left, fitted, gone)
    return tuple(found)


def _of(rows: Sequence[Row], family: Family) -> list[Row]:
    return [row for row in rows if row.dataset in family.datasets]


def _predicted(source: str, rows: Sequence[Row], fitted: FittedConstants, gone: set[str]) -> list[LeftOutRow]:
    """Rows of a source under the software of the others, and under their own."""
    compiled, named = (compile_training(rows, read) for read in (partial(read_entries, without=gone), read_entries))
    columns = (compiled.seconds(fitted), *compiled.range_s(fitted), compiled.measured_s, named.seconds(fitted))
    times = np.stack(columns, axis=1).tolist()
    return [LeftOutRow(source, row, *times[at]) for at, row in enumerate(rows) if at not in compiled.unscored]
