"""Training software by name: choices that its documentation states, and numbers fitted to measurements."""

from __future__ import annotations

from dataclasses import fields, replace
from types import MappingProxyType

from phaze_opt.errors import InputError
from phaze_opt.hardware.fitted import FittedConstants
from phaze_opt.record.spelling import suggest
from phaze_opt.workload.stack import IDEAL_STACK, FusionLevel, RankOrder, TrainingStack
from phaze_opt.workload.training import AttentionForm

_MEGATRON_2021 = TrainingStack(
    name="megatron-2021",
    fusion=FusionLevel.ELEMENTWISE,
    attention=AttentionForm.UNFUSED,
    order=RankOrder.DATA_INNER,
    combines_qkv=True,
    gradient_bytes=2,
    gradient_source="Megatron-LM's default for fp16, which the measured runs trained in; for bf16 it is 32",
    has_scatter_gather=True,
    attention_efficiency=0.5,
    vector_efficiency=0.85,
    loss_traffic=2.0,
    accumulation_bytes=8.0,
    kernel_s=3e-6,
    k_ramp=0.0,
    exposed_traffic=0.0,
    logit_bytes=4,
)
"""Megatron-LM of 2021 (Narayanan et al. 2021): elementwise chains fused, attention
not, loss in fp32, gradients added up every micro-batch (6 bytes in 16 bits, 10 in 32) and all-reduced after the last
one, stage boundaries scattered over the tensor group. Figures here are round: fits barely depend on them (0173)."""

_DEEPSPEED_2021 = replace(
    _MEGATRON_2021,
    name="deepspeed-zero3-2021",
    gradient_source="DeepSpeed's default for fp16",
    is_parameter_ring_flat=True,
    prefetches_forward=True,
)
"""DeepSpeed's ZeRO 3 of 2021 with the kernels of Megatron-LM: parameters are fetched ahead in the order of forward;
in backward, gathers, recomputation and reductions of gradients take turns (decision 0202)."""

_MEGATRON_CORE = TrainingStack(
    name="megatron-core",
    fusion=FusionLevel.NONE,
    order=RankOrder.DATA_INNER,
    combines_qkv=True,
    gradient_bytes=2,
    gradient_source="as the measured runs; Megatron-LM's default for bf16 is 32",
    scores_share=0.5,
    tensor_overlap=0.5,
    data_overlap=0.5,
    parameter_overlap=0.9,
    transfer_overlap=0.7,
    vector_efficiency=0.8,
    loss_traffic=2.0,
    k_ramp=0.0,
    exposed_traffic=0.0,
    logit_bytes=4,
    whole_sets=3,
)
"""Megatron-Core and NeMo on H100 (2024): causal fused attention, distributed optimizer, 16-bit gradients, every kind
of collective overlapped, loss in fp32. Norms, casts and activations each read and write memory: leaving them unfused
predicts better than chains do. With fp8, attention and the output matmul stay in bf16. Gradients: decision 0217."""

_LLM_FOUNDRY = TrainingStack(
    name="llm-foundry",
    fusion=FusionLevel.NONE,
    combines_qkv=True,
    gradient_bytes=4,
    gradient_source="FSDP's mixed precision as the measured runs set it",
    scores_share=0.5,
    data_overlap=0.7,
    loss_traffic=2.0,
    exposed_traffic=0.0,
    kept_operators=("mlp_down", "mlp_output_bias", "mlp_dropout", "mlp_residual"),
    whole_sets=3,
)
"""MosaicML's llm-foundry on PyTorch FSDP: causal fused attention, nothing else fused, parameters gathered in 16 bits,
gradients reduced in 32 bits every micro-batch, loss in fp32; checkpointed blocks stop before their last matmul, which
no gradient needs (PyTorch from 2.1 on). "Pure" are its runs of early 2023: 16-bit gradients, blocks run again whole."""

_MAXTEXT = TrainingStack(
    name="maxtext",
    fusion=FusionLevel.EPILOGUE,
    combines_qkv=True,
    gradient_bytes=2,
    scores_share=0.5,
    matmul_efficiency=1.0,
    loss_traffic=2.0,
    exposed_traffic=0.0,
    kept_operators=("mlp_down", "mlp_residual"),
)
"""MaxText on TPUs: XLA fuses into matmuls and drops recomputation that nothing needs; fp32 loss. Arrays and links run
at their specified rates and nothing hides behind compute; hiding a share, or less than those rates, predicts no
better."""

_STACKS = MappingProxyType(
    {
        stack.name: stack
        for stack in (
            IDEAL_STACK,
            _MEGATRON_2021,
            replace(_MEGATRON_2021, name="megatron-2022", hides_input_reductions=True),
            _DEEPSPEED_2021,
            replace(_MEGATRON_2021, name="vtrain-profile"),
            _MEGATRON_CORE,
            _LLM_FOUNDRY,
            replace(_LLM_FOUNDRY, name="llm-foundry-h100"),
            replace(_LLM_FOUNDRY, name="llm-foundry-pure", gradient_bytes=2, kept_operators=()),
            _MAXTEXT,
            replace(_MAXTEXT, name="maxtext-unfused", attention=AttentionForm.UNFUSED, scores_share=1.0),
            replace(
                _MAXTEXT,
                name="maxtext-offload",
                kept_operators=("query_key_value", *_MAXTEXT.kept_operators),
                keeps_on_host=True,
            ),
        )
    }
)

_NUMBERS = frozenset(field.name for field in fields(TrainingStack) if field.type == "float")

PARENTS = MappingProxyType(
    {
        "megatron-2022": "megatron-2021",
        "deepspeed-zero3-2021": "megatron-2021",
        "vtrain-profile": "megatron-2021",
        "llm-foundry-h100": "llm-foundry",
        "llm-foundry-pure": "llm-foundry",
        "maxtext-unfused": "maxtext",
        "maxtext-offload": "maxtext",
    }
)
"""Stacks that share the constants of another and state only what differs."""


def list_stacks() -> tuple[str, ...]:
    """Names of the stacks."""
    return tuple(_STACKS)


def stack_group(name: str) -> str:
    """Name of a stack's group of fitted constants."""
    return f"stack/{name}"


def load_stack(name: str, fitted: FittedConstants) -> TrainingStack:
    """A stack with what was fitted to it.

    Raises:
        InputError: an unknown name, with a near miss, or a fitted constant that stacks do not have.
    """
    if name not in _STACKS:
        message = f"no training software is named '{name}'; {suggest(name, tuple(_STACKS))}"
        raise InputError(message, key="software")
    values: dict[str, float] = {}
    for each in (PARENTS.get(name, name), name):
        values.update(fitted.groups.get(stack_group(each), {}))
    for key in values:
        if key not in _NUMBERS:
            message = f"group '{stack_group(name)}' has no constant '{key}'; {suggest(key, tuple(sorted(_NUMBERS)))}"
            raise InputError(message, key=key)
    return replace(_STACKS[name], **values)  # type: ignore[arg-type]
