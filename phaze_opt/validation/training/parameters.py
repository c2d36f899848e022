"""Constants of training software: bounds, and starts that other sources give."""

from types import MappingProxyType

from phaze_opt.cost.stacks import option_group, stack_group
from phaze_opt.validation.family import FitParameter

BASE, NEXT, ZERO, PROFILE = "megatron-2021", "megatron-2022", "deepspeed-zero3-2021", "vtrain-profile"
CORE, FOUNDRY, FOUNDRY_H100, MAXTEXT = "megatron-core", "llm-foundry", "llm-foundry-h100", "maxtext"
DEEPSPEED, BRIDGE = "megatron-deepspeed", "megatron-bridge"
TITAN, FMS, PAX = "torchtitan", "fms-fsdp", "pax"

_MATMUL = "share of the peak that matmuls reach in training"
_ATTENTION = "share of the peak that fused attention reaches on the scores it computes"
_VECTOR = "share of the memory bandwidth that other operators reach"
_LINKS = "share of the innermost links' bandwidth that collectives reach"
_NETWORK = "share of the adapters' bandwidth that collectives reach"
_OVERLAP = "share of sharded parameters' traffic that hides behind compute"
_WAITING = "share of a step lost to waiting each time the number of nodes or slices doubles"
_OVERHEAD = "fixed time of a step: data, norms of gradients, the host between steps"
_INTENSITY = "FLOPs that a matmul's tiles do for each byte of operands they read"
_UNFUSED = "traffic of an element of a norm or a rotary embedding in eager kernels beyond its one pass"
_CAST = "traffic of an operand element of an 8-bit matmul for its scale and cast"
_UNALIGNED = "share of their rate that attention's products reach where the head size is no multiple of 8"
_BACKWARD = "rate of attention's backward products as a share of the forward ones'"


def _share(stack: str, name: str, bounds: tuple[float, float, float], meaning: str) -> FitParameter:
    """Lowest and highest value and start."""
    return FitParameter(stack_group(stack), name, "1", *bounds, meaning)


def _time(stack: str, name: str, bounds: tuple[float, float, float], meaning: str) -> FitParameter:
    return FitParameter(stack_group(stack), name, "s", *bounds, meaning, is_log=True)


MEGATRON_PARAMETERS = (
    _share(BASE, "matmul_efficiency", (0.5, 1.0, 0.78), "share of the peak that matmuls reach in training"),
    FitParameter(
        stack_group(BASE), "attention_traffic", "1", 0.5, 6.0, 1.6, "passes of softmax and dropout over scores"
    ),
    _share(BASE, "vector_efficiency", (0.5, 1.0, 0.85), _VECTOR),
    _share(BASE, "network_efficiency", (0.2, 1.0, 0.8), "share of the adapters that collectives and transfers reach"),
    _time(BASE, "collective_latency_s", (1e-6, 1e-3, 5e-5), "time of a tensor-parallel collective beyond its curve"),
    _time(PROFILE, "host_s_per_operator", (1e-6, 1e-3, 7e-5), "host time to launch an operator"),
    _time(PROFILE, "host_s_per_collective", (1e-6, 1e-3, 1e-4), "the same for a collective; slowest of its hosts"),
    _time(PROFILE, "collective_latency_s", (1e-6, 2e-3, 3e-4), "time of a profiled collective beyond its curve"),
    _share(PROFILE, "lone_head_efficiency", (0.1, 1.0, 0.3), "share of the matmuls' rate in a head of one device"),
)

DEEPSPEED_PARAMETERS = (
    _share(DEEPSPEED, "matmul_efficiency", (0.5, 1.0, 0.78), _MATMUL),
    _share(DEEPSPEED, "network_efficiency", (0.2, 1.0, 0.8), _NETWORK),
    _time(DEEPSPEED, "collective_latency_s", (1e-6, 1e-3, 5e-5), "time of a tensor-parallel collective beyond its curve"),
    _share(DEEPSPEED, "unaligned_efficiency", (0.02, 1.0, 0.125), _UNALIGNED),
)
"""Of Megatron-DeepSpeed, fitted after Megatron-LM's and pulled to them."""


def _of_option(option: str, name: str, unit: str, bounds: tuple[float, float, float], meaning: str) -> FitParameter:
    return FitParameter(option_group(option), name, unit, *bounds, meaning)


OPTION_PARAMETERS = (
    _of_option("eager", "unfused_bytes", "byte", (0.0, 60.0, 20.0), _UNFUSED),
    _of_option("float8-tensorwise", "cast_bytes", "byte", (0.0, 10.0, 1.0), _CAST),
    _of_option("float8-mx", "cast_bytes", "byte", (0.0, 10.0, 2.0), _CAST),
    _of_option("async-tp", "tensor_overlap", "1", (0.0, 1.0, 0.5), "share of tensor-parallel collectives that hides"),
)
"""Of options that several sources have."""

YOUNG_PARAMETERS = (
    *(_share(stack, "matmul_efficiency", (0.4, 0.95, 0.7), _MATMUL) for stack in (TITAN, FMS, PAX, BRIDGE)),
    *(_share(stack, "attention_efficiency", (0.05, 0.8, 0.3), _ATTENTION) for stack in (TITAN, PAX)),
)
"""Of software with few rows each, under a prior in common."""

MODERN_PARAMETERS = (
    _share(CORE, "matmul_efficiency", (0.4, 0.95, 0.78), _MATMUL),
    _share(CORE, "attention_efficiency", (0.35, 0.65, 0.5), _ATTENTION),
    _share(CORE, "vector_efficiency", (0.5, 1.0, 0.8), _VECTOR),
    _share(CORE, "tensor_overlap", (0.0, 1.0, 0.5), "share of tensor-parallel collectives that hides behind compute"),
    _share(CORE, "data_overlap", (0.0, 1.0, 0.5), "share of what replicas send once a step that hides behind compute"),
    FitParameter(stack_group(CORE), "step_overhead_s", "s", 0.0, 0.1, 0.02, _OVERHEAD),
    _share(FOUNDRY, "matmul_efficiency", (0.5, 0.95, 0.78), _MATMUL),
    _share(FOUNDRY, "attention_efficiency", (0.1, 0.8, 0.4), _ATTENTION),
    _share(FOUNDRY, "attention_backward", (0.4, 1.0, 0.7), _BACKWARD),
    _share(FOUNDRY, "k_ramp", (0.0, 600.0, 200.0), "inner size at which a matmul reaches half of that"),
    _share(FOUNDRY, "vector_efficiency", (0.3, 1.0, 0.6), _VECTOR),
    _share(FOUNDRY, "collective_efficiency", (0.2, 1.0, 0.8), _LINKS),
    _share(FOUNDRY, "network_efficiency", (0.2, 1.0, 0.8), _NETWORK),
    _share(FOUNDRY, "parameter_overlap", (0.0, 1.0, 0.7), _OVERLAP),
    _share(FOUNDRY, "waiting_share", (0.0, 0.05, 0.01), _WAITING),
    FitParameter(stack_group(FOUNDRY), "step_overhead_s", "s", 0.0, 0.1, 0.02, _OVERHEAD),
    _share(FOUNDRY_H100, "matmul_efficiency", (0.4, 0.95, 0.78), _MATMUL),
    _share(FOUNDRY_H100, "attention_efficiency", (0.05, 0.8, 0.22), _ATTENTION),
    _share(FOUNDRY_H100, "earlier_matmul", (0.5, 2.0, 1.0), "matmuls' share of the peak on A100 over that on H100"),
    _share(FOUNDRY_H100, "earlier_attention", (0.5, 3.0, 1.8), "attention's share of the peak on A100 over that on H100"),
    FitParameter(stack_group(MAXTEXT), "tile_intensity", "FLOP/byte", 300.0, 10000.0, 1500.0, _INTENSITY, is_log=True),
    FitParameter(stack_group(MAXTEXT), "softmax_flops", "FLOP", 1.0, 40.0, 8.0, "vector FLOPs of an attention score"),
    _share(MAXTEXT, "vector_efficiency", (0.3, 1.0, 0.6), _VECTOR),
    _share(MAXTEXT, "waiting_share", (0.0, 0.05, 0.02), _WAITING),
)
"""Groups of different software share none, so each is fitted alone."""

COMMON = MappingProxyType(
    {
        name: tuple(stack_group(stack) for stack in (FOUNDRY_H100, CORE, TITAN, FMS, PAX, BRIDGE))
        for name in ("matmul_efficiency", "attention_efficiency")
    }
)
"""Shares that software of GPUs with 8-bit matmuls has each its own of, and groups that hold them."""

EARLIER = MappingProxyType({"earlier_matmul": "matmul_efficiency", "earlier_attention": "attention_efficiency"})
"""Ratios between the A100 and the H100 of llm-foundry, by the share that each is of."""
