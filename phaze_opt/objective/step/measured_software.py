"""What was measured of each training software: machines, number formats, parallel features and how far they went.

Stated here because rows of measurements are not part of the package; tests/objective/step/test_measured_software.py
derives the same from the public rows. Nothing here changes a time: it says which plans rest on measurements.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from phaze_opt.workload.plan import ParallelPlan, Recompute

TENSOR, SEQUENCE, PIPELINE, INTERLEAVE = "tensor parallel", "sequence parallel", "pipeline", "interleaving"
CONTEXT, EXPERT, REPLICAS, HYBRID = "context parallel", "expert parallel", "replicas without ZeRO", "hybrid sharding"
ZERO_1, ZERO_2, ZERO_3 = "ZeRO 1", "ZeRO 2", "ZeRO 3"


@dataclass(frozen=True, slots=True)
class MeasuredOn:
    """Rows of one data set on one machine: names of the machine, the matmuls' format and the data set."""

    machine: str
    dtype: str
    dataset: str


@dataclass(frozen=True, slots=True)
class SoftwareRows:
    """What the rows of one software cover.

    Attributes:
        rows: machines, formats and data sets.
        recompute: recomputation choices.
        reach: largest degree of each parallel feature; of ZeRO the devices that share the state.
        longest_sequence: tokens.
        shapes: features that ran together, largest sets only.
    """

    rows: tuple[MeasuredOn, ...]
    recompute: frozenset[Recompute]
    reach: Mapping[str, int]
    longest_sequence: int
    shapes: frozenset[frozenset[str]]

    @property
    def machines(self) -> tuple[str, ...]:
        """Names of the machines, each once."""
        return tuple(dict.fromkeys(each.machine for each in self.rows))

    @property
    def datasets(self) -> tuple[str, ...]:
        """Names of the data sets, each once."""
        return tuple(dict.fromkeys(each.dataset for each in self.rows))


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
        REPLICAS: 1 if plan.zero else plan.data * plan.context,
        HYBRID: plan.data * plan.context // shards if shards else 1,
        **{f"ZeRO {stage}": shards if plan.zero == stage else 1 for stage in (1, 2, 3)},
    }
    return {name: degree for name, degree in degrees.items() if degree > 1}


def measured_rows(software: str) -> SoftwareRows | None:
    """What was measured of a software; None of one that is not measured, such as the ideal one."""
    return _ROWS.get(software)


def usual_zero(software: str) -> int:
    """ZeRO stage of a software's plans unless another is named: none where that ran, else the least that did."""
    rows = measured_rows(software)
    if rows is None or REPLICAS in rows.reach:
        return 0
    return next((stage for stage in (1, 2, 3) if f"ZeRO {stage}" in rows.reach), 0)


def software_measured_on(machine: str) -> str | None:
    """The software whose constants whole plans on a machine take unless another is named; None if none was measured.

    Where several were, the one whose rows have the most parallel features: a search over plans asks for them.
    """
    names = [name for name, rows in _ROWS.items() if machine in rows.machines]
    return max(names, key=lambda name: len(_ROWS[name].reach), default=None)


_ROWS = MappingProxyType(
    {
        "deepspeed-zero3-2021": SoftwareRows(
            rows=(MeasuredOn("a100-80g", "bf16", "train_megatron_sc21"),),
            recompute=frozenset({Recompute.FULL}),
            reach=MappingProxyType({ZERO_3: 768}),
            longest_sequence=2048,
            shapes=frozenset({frozenset({ZERO_3})}),
        ),
        "llm-foundry": SoftwareRows(
            rows=(MeasuredOn("a100-80g", "bf16", "train_llmfoundry_fsdp"),),
            recompute=frozenset({Recompute.NONE, Recompute.FULL}),
            reach=MappingProxyType({ZERO_3: 8}),
            longest_sequence=65536,
            shapes=frozenset({frozenset({ZERO_3})}),
        ),
        "llm-foundry-h100": SoftwareRows(
            rows=(
                MeasuredOn("h100", "bf16", "train_llmfoundry_fsdp"),
                MeasuredOn("h100", "fp8", "train_llmfoundry_fsdp"),
            ),
            recompute=frozenset({Recompute.NONE, Recompute.FULL}),
            reach=MappingProxyType({ZERO_2: 512, ZERO_3: 512}),
            longest_sequence=65536,
            shapes=frozenset({frozenset({ZERO_2}), frozenset({ZERO_3})}),
        ),
        "llm-foundry-pure": SoftwareRows(
            rows=(
                MeasuredOn("a100-40g", "bf16", "train_llmfoundry_fsdp"),
                MeasuredOn("a100-80g", "bf16", "train_llmfoundry_fsdp"),
            ),
            recompute=frozenset({Recompute.NONE, Recompute.FULL}),
            reach=MappingProxyType({ZERO_3: 128}),
            longest_sequence=32768,
            shapes=frozenset({frozenset({ZERO_3})}),
        ),
        "maxtext": SoftwareRows(
            rows=(
                MeasuredOn("tpu-v5e", "bf16", "train_maxtext_tpu"),
                MeasuredOn("tpu-v5p", "bf16", "train_maxtext_tpu"),
            ),
            recompute=frozenset({Recompute.SELECTIVE, Recompute.FULL}),
            reach=MappingProxyType({TENSOR: 16, SEQUENCE: 16, HYBRID: 32, ZERO_3: 256}),
            longest_sequence=2048,
            shapes=frozenset({frozenset({TENSOR, SEQUENCE, HYBRID, ZERO_3})}),
        ),
        "maxtext-offload": SoftwareRows(
            rows=(
                MeasuredOn("tpu-v5p", "bf16", "train_maxtext_tpu"),
                MeasuredOn("tpu-v6e", "bf16", "train_maxtext_tpu"),
                MeasuredOn("tpu-v7", "bf16", "train_maxtext_tpu"),
                MeasuredOn("tpu-v7", "fp8", "train_maxtext_tpu"),
            ),
            recompute=frozenset({Recompute.FULL}),
            reach=MappingProxyType({ZERO_3: 512}),
            longest_sequence=8192,
            shapes=frozenset({frozenset({ZERO_3})}),
        ),
        "maxtext-unfused": SoftwareRows(
            rows=(MeasuredOn("tpu-v4-published", "bf16", "train_maxtext_tpu"),),
            recompute=frozenset({Recompute.FULL}),
            reach=MappingProxyType({HYBRID: 4, ZERO_3: 192}),
            longest_sequence=2048,
            shapes=frozenset({frozenset({HYBRID, ZERO_3})}),
        ),
        "megatron-2021": SoftwareRows(
            rows=(
                MeasuredOn("a100-40g", "bf16", "train_megatron_tp_scaling"),
                MeasuredOn("a100-80g", "bf16", "train_large_runs"),
                MeasuredOn("a100-80g", "bf16", "train_megatron_sc21"),
                MeasuredOn("a100-80g", "bf16", "train_vtrain_multinode"),
                MeasuredOn("v100-sxm3", "bf16", "train_megatron_tp_scaling"),
            ),
            recompute=frozenset({Recompute.FULL}),
            reach=MappingProxyType({TENSOR: 16, PIPELINE: 35, REPLICAS: 128}),
            longest_sequence=2048,
            shapes=frozenset({frozenset({TENSOR, PIPELINE, REPLICAS})}),
        ),
        "megatron-2022": SoftwareRows(
            rows=(
                MeasuredOn("a100-80g", "bf16", "layer_korthikanti22"),
                MeasuredOn("a100-80g", "bf16", "train_korthikanti22"),
            ),
            recompute=frozenset({Recompute.NONE, Recompute.SELECTIVE, Recompute.FULL}),
            reach=MappingProxyType({TENSOR: 8, SEQUENCE: 8, PIPELINE: 35, INTERLEAVE: 3, REPLICAS: 8}),
            longest_sequence=2048,
            shapes=frozenset({frozenset({TENSOR, SEQUENCE, PIPELINE, INTERLEAVE, REPLICAS})}),
        ),
        "megatron-core": SoftwareRows(
            rows=(
                MeasuredOn("h100", "bf16", "train_megatron_h100"),
                MeasuredOn("h100", "fp8", "train_nemo_h100_fp8"),
            ),
            recompute=frozenset({Recompute.NONE}),
            reach=MappingProxyType({TENSOR: 8, SEQUENCE: 8, PIPELINE: 16, INTERLEAVE: 42, ZERO_1: 64, ZERO_3: 8}),
            longest_sequence=8192,
            shapes=frozenset({frozenset({TENSOR, SEQUENCE, PIPELINE, INTERLEAVE, ZERO_1}), frozenset({ZERO_3})}),
        ),
        "vtrain-profile": SoftwareRows(
            rows=(MeasuredOn("a100-80g", "bf16", "train_vtrain_singlenode"),),
            recompute=frozenset({Recompute.NONE}),
            reach=MappingProxyType({TENSOR: 8, PIPELINE: 4, REPLICAS: 8}),
            longest_sequence=1024,
            shapes=frozenset({frozenset({TENSOR, PIPELINE, REPLICAS})}),
        ),
    }
)
"""By software; vtrain-profile is Megatron-LM under a profiler, which no plan of a user runs in."""
