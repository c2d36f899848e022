"""What people call the columns of files of measurements, for the sentence about a column that is not known."""

from __future__ import annotations

from types import MappingProxyType

from phaze_opt.record.spelling import suggest
from phaze_opt.validation.schema import Schema

OTHER_NAMES = MappingProxyType(
    {
        "hardware": "gpu device machine accelerator chip gpu_type gpu_name",
        "n_devices": "gpus devices num_gpus num_devices ngpus world_size n_gpus chips",
        "layers": "num_layers n_layers num_hidden_layers depth blocks",
        "hidden": "hidden_size d_model embed_dim width",
        "heads": "num_heads n_heads num_attention_heads",
        "kv_heads": "num_kv_heads num_key_value_heads n_kv_heads",
        "ffn": "ffn_size intermediate_size ffn_hidden_size d_ff",
        "vocab": "vocab_size vocabulary",
        "seq": "seq_len seq_length sequence_length sequence context_length max_seq_len tokens",
        "global_batch": "batch_size gbs global_batch_size",
        "micro_batch": "mbs micro_batch_size microbatch",
        "tp": "tensor_parallel tensor tensor_parallel_size",
        "pp": "pipeline_parallel pipeline pipeline_parallel_size",
        "cp": "context_parallel context_parallel_size",
        "dp": "data_parallel data_parallel_size",
        "interleave": "virtual_stages vpp vp num_chunks",
        "sharding": "zero zero_stage fsdp strategy",
        "recompute": "checkpointing activation_checkpointing recomputation remat",
        "dtype": "precision data_type type",
        "software": "framework stack library",
        "iter_time_s": "time step_time step_time_s iteration_time iter_time time_s seconds iter_time_ms step_time_ms "
        "time_ms latency_s",
        "latency_us": "latency time time_us duration latency_ms time_ms runtime_us latency_s",
        "bytes": "size message_size payload",
        "n_nodes": "nodes num_nodes",
        "op": "operator kernel operation",
        "b": "batch",
        "batch": "batch_size",
        "e2e_ms": "latency time time_ms latency_ms",
    }
)
"""Names by column, separated by spaces; the column's name says its unit."""


def suggest_column(name: str, schema: Schema) -> str:
    """The column that is meant, or all columns of the kind, none cut away."""
    lowered = name.lower().replace(" ", "_").replace("-", "_")
    for column, others in OTHER_NAMES.items():
        if column in schema.columns and lowered in others.split():
            return f"did you mean {column}?"
    found = suggest(lowered, schema.columns)
    return f"known: {', '.join(schema.columns)}" if found.startswith("known: ") else found
