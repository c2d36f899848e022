"""The references that every design is measured against: two TPUv4 machines, and hand placements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from phaze_opt.hardware.constants import Constants
from phaze_opt.hardware.presets import load_architecture
from phaze_opt.objective.evaluate import Objective
from phaze_opt.objective.evaluation import Evaluation
from phaze_opt.objective.experts import evaluate_experts
from phaze_opt.objective.scenario import Scenario

REFERENCES = ("tpu-v4", "tpu-v4-published")
"""Phaze's TPUv4-like point (256 vector lanes), and the published machine (2,048 lanes, 1,200 GB/s)."""


def evaluate_references(
    scenario: Scenario, micro_batches: Sequence[int], *, constants: Constants
) -> Mapping[str, Evaluation]:
    """Each reference at its best micro-batch of those given; budgets do not apply to references.

    Returns:
        By name: the machines of `REFERENCES` with the best placement there is, then hand placements where the models
        have any (`experts.evaluate_experts`), which may be infeasible.
    """
    objective = Objective(replace(scenario, max_area_mm2=None, max_tdp_w=None), constants=constants)
    best: dict[str, Evaluation] = {}
    for name in REFERENCES:
        accelerator = load_architecture(name, constants=constants)
        evaluations = [objective.evaluate_accelerator(accelerator, micro_batch) for micro_batch in micro_batches]
        best[name] = max(evaluations, key=lambda evaluation: evaluation.throughput_samples_per_s)
    return {**best, **evaluate_experts(scenario, micro_batches, constants=constants)}
