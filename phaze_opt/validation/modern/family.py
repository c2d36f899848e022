"""Kernels of modern GPUs against public tables: the family of three data sets."""

from collections.abc import Collection, Sequence
from types import MappingProxyType

import numpy as np

from phaze_opt.errors import InputError
from phaze_opt.estimate.kernel_constants import KernelKind, Owner, kernel_group
from phaze_opt.hardware.fitted import FittedConstants
from phaze_opt.units import MICRO
from phaze_opt.validation.family import BlockedRows, Family, FitParameter
from phaze_opt.validation.measured_row import Row, read_rows
from phaze_opt.validation.modern.blocks import KernelBlock, build_block
from phaze_opt.validation.modern.cases import ATTENTION, EXPERTS, OPERATORS, KernelCase, read_case
from phaze_opt.validation.modern.fitting import fit_block
from phaze_opt.validation.modern.parameters import kernel_parameters
from phaze_opt.validation.modern.recipes import is_suspect
from phaze_opt.validation.modern.shapes import operator_name


def _compile(rows: Sequence[Row]) -> BlockedRows[KernelBlock]:
    """Rows by kind of kernel."""
    measured = np.array([row.number("latency_us") * MICRO for row in rows])
    cases, unscored = read_rows(read_case, rows)
    by_kernel: dict[KernelKind, list[int]] = {}
    for index, case in cases.items():
        by_kernel.setdefault(case.kernel, []).append(index)
    blocks = tuple((own, build_block(kernel, [cases[index] for index in own])) for kernel, own in by_kernel.items())
    return BlockedRows(measured, unscored, blocks)


def _parameters(rows: Sequence[Row]) -> tuple[FitParameter, ...]:
    return kernel_parameters(read_rows(read_case, rows)[0].values())


def _fit(rows: Sequence[Row], start: FittedConstants) -> FittedConstants:
    """One fit for each kind of kernel: no row depends on two."""
    fitted = start
    cases = read_rows(read_case, rows)[0]
    for kernel in KernelKind:
        parameters = kernel_parameters(case for case in cases.values() if case.kernel is kernel)
        groups = {each.group for each in parameters}
        own_rows = [rows[index] for index, case in cases.items() if case.kernel is kernel and _is_own(case, groups)]
        if not own_rows:
            continue
        compiled = _compile(own_rows)
        ((_, block),) = compiled.blocks
        fitted = fit_block(block, compiled.measured_s, parameters, fitted)
    return fitted


def _is_own(case: KernelCase, groups: Collection[str]) -> bool:
    """Whether machine and recipe both have constants of their own; rows of others follow their kin."""
    machine = kernel_group(case.kernel, Owner.MACHINE, case.device.name)
    # Of some eager recipes nothing but the host shows, whose constant is the machine's.
    recipe = kernel_group(case.kernel, Owner.RECIPE, case.recipes[0])
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


def _library(row: Row) -> str:
    case = read_case(row)
    return "" if isinstance(case, str) else case.recipe.library.partition("+")[0]


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
)
"""Matmuls, fused attention, fused experts, norms and casts of GPUs from A100 on; a cell is a shape on every machine."""
