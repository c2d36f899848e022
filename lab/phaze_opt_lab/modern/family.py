"""Kernels of modern GPUs against public tables: the family of three data sets."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import networkx as nx

from phaze_opt.errors import InputError
from phaze_opt.hardware.fitted import FittedConstants
from phaze_opt.hardware.spreads import octave
from phaze_opt.validation.family import Family, FitParameter, compile_blocks
from phaze_opt.validation.measured_row import Row, latency_s, read_rows
from phaze_opt.validation.packs import known_constants
from phaze_opt_lab.estimate.kernel_constants import KernelKind, Owner, kernel_group, kin_distance
from phaze_opt_lab.modern.blocks import KernelRows, build_block
from phaze_opt_lab.modern.cases import ATTENTION, EXPERTS, OPERATORS, KernelCase, read_case
from phaze_opt_lab.modern.fitting import fit_block
from phaze_opt_lab.modern.parameters import kernel_parameters
from phaze_opt_lab.modern.recipes import is_suspect
from phaze_opt_lab.modern.shapes import operator_name
from phaze_opt_lab.number_format import facts_of


def _compile(rows: Sequence[Row]) -> KernelRows:
    """Rows by kind of kernel."""
    compiled = compile_blocks(
        rows,
        read=read_case,
        measured=latency_s,
        build=lambda cases, _: build_block(cases),
        key=lambda case: case.kernel,
    )
    return KernelRows(compiled.measured_s, compiled.unscored, compiled.blocks)


def _parameters(rows: Sequence[Row]) -> tuple[FitParameter, ...]:
    """Those that a row of a machine and a recipe with constants moves."""
    cases = read_rows(read_case, rows)[0].values()
    parameters = kernel_parameters(cases)
    groups = {each.group for each in parameters}
    seen = {group for case in cases if _is_own(case, groups) for group in _groups(case)}
    return tuple(each for each in parameters if each.group in seen)


def _fit(rows: Sequence[Row], start: FittedConstants) -> FittedConstants:
    """One fit for each kind of kernel and all machines and recipes that rows tie together: no row depends on two."""
    fitted = start
    cases = read_rows(read_case, rows)[0]
    parameters = kernel_parameters(cases.values())
    groups = {each.group for each in parameters}
    for own in _tied({index: _groups(case) for index, case in cases.items() if _is_own(case, groups)}):
        compiled = _compile([rows[index] for index in own])
        ((_, block),) = compiled.blocks
        seen = {group for index in own for group in _groups(cases[index])}
        # Rows of one library say the product of machine and library alone: what is known of either is kept near.
        moved = [_known(each, start) for each in parameters if each.group in seen]
        known = FittedConstants({name: start.groups[name] for name in sorted(seen) if name in start.groups})
        fitted = fitted.updated(fit_block(block, compiled.measured_s, moved, known).groups)
    return fitted


def _known(parameter: FitParameter, start: FittedConstants) -> FitParameter:
    """A parameter that is expected where earlier measurements have it."""
    value = start.groups.get(parameter.group, {}).get(parameter.name)
    return parameter if value is None else replace(parameter, start=value)


def _groups(case: KernelCase) -> tuple[str, str]:
    """Groups of its machine and of its recipe."""
    machine = kernel_group(case.kernel, Owner.MACHINE, case.device.name)
    return machine, kernel_group(case.kernel, Owner.RECIPE, case.recipes[0])


def _tied(groups: Mapping[int, tuple[str, str]]) -> list[list[int]]:
    """Rows by what ties them together: a row ties its machine to its recipe."""
    graph = nx.Graph(groups.values())
    place = {name: number for number, names in enumerate(nx.connected_components(graph)) for name in names}
    found: dict[int, list[int]] = {}
    for index, (machine, _) in groups.items():
        found.setdefault(place[machine], []).append(index)
    return list(found.values())


def _is_own(case: KernelCase, groups: Collection[str]) -> bool:
    """Whether machine and recipe both have constants of their own; rows of others follow their kin."""
    # Of some eager recipes nothing but the host shows, whose constant is the machine's.
    machine, recipe = _groups(case)
    return machine in groups and (recipe in groups or case.recipe.is_eager)


def _regime(row: Row) -> str:
    """Kind of kernel and its format; of experts and attention also what decides their speed."""
    try:
        case = read_case(row)
    except InputError:
        return "other"
    if isinstance(case, str):
        return "other"
    if case.kernel is KernelKind.STREAM:
        return operator_name(row)
    return f"{case.kernel} {case.number_format}{' eager' if case.recipe.is_eager else ''}"


SCALED_BY = (
    "set",
    "machine",
    "recipe, term",
    "machine, recipe",
    "term, size",
    "term, m",
    "term, n",
    "term, k",
    "recipe, head_dim",
    "recipe, window",
    "term, head_dim",
    "term, causal",
    "term, rows of an expert",
    "ffn",
)
"""What errors of kernels differ by: whose kernel, its longest term, and its shape, of each kind its own."""


def _facts(row: Row) -> Mapping[str, str]:
    """Recipe of a kernel and its shape in octaves; its machine is nobody's where no such kernel was measured on it."""
    case = read_case(row)
    if isinstance(case, str):
        return {}
    machine, _ = _groups(case)
    unmeasured = {} if known_constants().has(machine) else {"machine": ""}
    return {"recipe": case.recipes[0], **_shape(case, row), **unmeasured}


def _shape(case: KernelCase, row: Row) -> Mapping[str, str]:
    if case.kernel is KernelKind.MATMUL:
        _, m, n, k, _ = case.sizes
        return {"m": octave(m), "n": octave(n, 2), "k": octave(k, 2)}
    if case.kernel is KernelKind.ATTENTION:
        window = "window" if row.number("window", 0.0) else "none"
        is_causal = f"{row.number('causal', 0.0):g}"
        return {"head_dim": f"{row.number('head_dim'):g}", "window": window, "causal": is_causal}
    if case.kernel is KernelKind.EXPERTS:
        _, _, _, rows, active, _, ffn, *_ = case.sizes
        return {"rows of an expert": octave(rows / active), "ffn": octave(ffn)}
    return {}


NEAR = 0.5
"""Distance of data sheets within which a machine has kin: H100 and H200, B200 and its sisters, not A100 or a board."""


def _nearness(row: Row) -> str:
    """Whether another machine with constants is nearly the same."""
    try:
        case = read_case(row)
    except InputError:
        return ""
    if isinstance(case, str):
        return ""
    far = kin_distance(case.kernel, case.device, facts_of(case.number_format).width, fitted=known_constants())
    return "kin near" if far < NEAR else "kin far"


_CELL = ("op", "b", "m", "n", "k", "seq_q", "seq_kv", "heads", "kv_heads", "head_dim", "causal", "window", "tokens",
         "hidden", "ffn", "experts", "experts_per_token", "tp", "ep", "distribution")  # fmt: skip

MODERN = Family(
    name="modern",
    datasets=(OPERATORS, ATTENTION, EXPERTS),
    parameters=_parameters,
    compile=_compile,
    fit=_fit,
    regime=_regime,
    cell=lambda row: row.joined(*_CELL),
    splits=MappingProxyType({"device": lambda row: row.text("hardware")}),
    is_fitted=lambda row: not is_suspect(row),
    nearness=_nearness,
    facts=_facts,
    scaled_by=SCALED_BY,
)
"""Matmuls, fused attention, fused experts, norms and casts of GPUs from A100 on; a cell is a shape on every machine."""
