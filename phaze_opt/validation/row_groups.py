"""Groups of a set's rows that are scored besides the whole set: devices, operators, models."""

from __future__ import annotations

from types import MappingProxyType

from phaze_opt.validation.row import Row

_COLUMNS = MappingProxyType(
    {
        "op_neusight_fp32": ("op", "hardware"),
        "op_tpu_gemm": ("hardware", "dtype"),
        "collective_all_reduce": ("hardware",),
        "train_vtrain_multinode": ("model",),
        "train_llmfoundry_fsdp": ("hardware",),
        "train_maxtext_tpu": ("hardware",),
        "e2e_neusight_fp32": ("hardware", "mode"),
        "op_best_matmul": ("dtype",),
        "train_megatron_tp_scaling": ("hardware",),
    }
)
"""Columns whose values are groups, by set."""
NORMS = "softmax/layernorm/gelu"


def group_labels(row: Row) -> tuple[str, ...]:
    """Groups that a row belongs to."""
    if row.dataset == "op_llmcompass":
        device, op = row.text("hardware").split("-")[0], row.text("op")
        return (f"{device} {op}",) if op == "matmul" else (NORMS, f"{device} {op}")
    return tuple(row.text(column) for column in _COLUMNS.get(row.dataset, ()) if row.text(column, ""))
