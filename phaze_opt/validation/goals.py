"""What the models are to reach on published measurements: mean errors, and the order of configurations."""

from __future__ import annotations

from dataclasses import dataclass

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
    ErrorGoal("train_vtrain_singlenode", BY_CELL, 7.0),
    ErrorGoal("train_vtrain_multinode", "", 6.0),
    ErrorGoal("train_megatron_sc21", "", 2.5),
    ErrorGoal("train_korthikanti22", "", 3.5),
    ErrorGoal("train_megatron_h100", "", 2.5),
    ErrorGoal("train_nemo_h100_fp8", "", 4.0),
    ErrorGoal("train_llmfoundry_fsdp", "", 4.0),
    ErrorGoal("train_maxtext_tpu", "", 5.0),
)
RANK_GOALS = (("train_vtrain_singlenode", 0.985), ("train_vtrain_multinode", 0.985))
"""Least Spearman correlation by set: what a search needs is the right order."""


def error_goals(dataset: str) -> tuple[ErrorGoal, ...]:
    """Goals of a set; none for a user's own."""
    return tuple(goal for goal in ERROR_GOALS if goal.dataset == dataset)


def rank_goal(dataset: str) -> float | None:
    """Least Spearman correlation of a set; None if there is no such goal."""
    return dict(RANK_GOALS).get(dataset)
