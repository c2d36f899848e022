"""What is scored of published measurements, and what is to be reached: mean errors, and the order of configurations."""

from dataclasses import dataclass
from types import MappingProxyType

from phaze_opt.validation.measured_row import Row

BY_CELL = "by cell"


@dataclass(frozen=True, slots=True)
class ErrorGoal:
    """A mean absolute percentage error not to exceed, of a set or of a group of its rows."""

    dataset: str
    group: str
    percent: float


ERROR_GOALS = (
    ErrorGoal("op_llmcompass", "A100 matmul", 2.5),
    ErrorGoal("op_llmcompass", "MI210 matmul", 4.0),
    ErrorGoal("op_llmcompass", "softmax/layernorm/gelu", 7.0),
    ErrorGoal("op_neusight_fp32", "", 9.0),
    ErrorGoal("op_tpu_gemm", "", 8.0),
    ErrorGoal("collective_all_reduce", "", 8.0),
    ErrorGoal("collective_kinds", "", 12.0),
    ErrorGoal("expert_exchange", "", 12.0),
    ErrorGoal("train_vtrain_singlenode", BY_CELL, 7.0),
    ErrorGoal("train_vtrain_multinode", "", 6.0),
    ErrorGoal("train_megatron_sc21", "", 2.5),
    ErrorGoal("train_korthikanti22", "", 3.5),
    ErrorGoal("train_megatron_h100", "", 2.5),
    ErrorGoal("train_nemo_h100_fp8", "", 4.0),
    ErrorGoal("train_llmfoundry_fsdp", "", 4.0),
    ErrorGoal("train_maxtext_tpu", "", 5.0),
    ErrorGoal("moe", "", 15.0),
    ErrorGoal("memory", "", 10.0),
)
RANK_GOALS = MappingProxyType({"train_vtrain_singlenode": 0.985, "train_vtrain_multinode": 0.985, "memory": 0.93})
"""Least Spearman correlation by set: what a search needs is the right order."""
GROUP_COLUMNS = MappingProxyType(
    {
        "op_neusight_fp32": ("op", "hardware"),
        "op_tpu_gemm": ("hardware", "dtype"),
        "collective_all_reduce": ("hardware",),
        "collective_kinds": ("hardware", "collective"),
        "expert_exchange": ("hardware", "collective"),
        "train_vtrain_multinode": ("model",),
        "train_llmfoundry_fsdp": ("hardware",),
        "train_maxtext_tpu": ("hardware",),
        "e2e_neusight_fp32": ("hardware", "mode"),
        "op_best_matmul": ("dtype",),
        "train_megatron_tp_scaling": ("hardware",),
        "memory": ("table",),
        "dies": ("use",),
    }
)
"""Columns whose values are groups, by set."""
NORMS = "softmax/layernorm/gelu"


def group_labels(row: Row) -> tuple[str, ...]:
    """Groups that a row belongs to."""
    if row.dataset == "op_llmcompass":
        device, op = row.text("hardware").split("-")[0], row.text("op")
        return (f"{device} {op}",) if op == "matmul" else (NORMS, f"{device} {op}")
    return tuple(row.text(column) for column in GROUP_COLUMNS.get(row.dataset, ()) if row.text(column, ""))
