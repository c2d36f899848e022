"""What files of measurements hold: their kinds, the type and need of every column, and what people call it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

from phaze_opt.record.suggestions import suggest
from phaze_opt.workload.run_options import RUN_OPTIONS


class ColumnType(StrEnum):
    """What a value may be: TEXT anything, COUNT a whole number from 1, POSITIVE above 0, AMOUNT from 0, FLAG 0 or 1."""

    TEXT = "text"
    COUNT = "a whole number of at least 1"
    POSITIVE = "a number above 0"
    AMOUNT = "a number of at least 0"
    FLAG = "0 or 1"


@dataclass(frozen=True, slots=True)
class MeasuredColumn:
    """A column of a kind of file; a required one must be there and never be blank.

    Attributes:
        name: as in the header.
        type: of its values.
        is_required: whether it must be there.
        most: largest value that is no slip of the pen.
        words: closed set of its values, in lower case; any unless given.
    """

    name: str
    type: ColumnType
    is_required: bool
    most: float
    words: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Schema:
    """A kind of file.

    Attributes:
        kind: its name, such as ``operators``.
        columns: by name.
        identity: columns in which rows of one id must agree; measurements may be repeated, ids not reused.
    """

    kind: str
    columns: Mapping[str, MeasuredColumn]
    identity: tuple[str, ...]

    @property
    def required(self) -> tuple[str, ...]:
        """Columns without which a row says nothing."""
        return tuple(column.name for column in self.columns.values() if column.is_required)

    def admits(self, names: Iterable[str]) -> bool:
        """Whether a file with these columns can be of this kind."""
        given = set(names)
        return given <= set(self.columns) and given.issuperset(self.required)


SMALLEST = 1e-30
"""Of all numbers that are not 0: beyond it, and above `MeasuredColumn.most`, times and errors are no numbers."""
_LARGEST = 1e30
_MOST = MappingProxyType({"layers": 10_000.0, "n_devices": 1e9})
_MOST_OF_COUNTS = 1e15
_EVERYWHERE = "id:text verified:text source:text licence:text note:text"
_TYPES = MappingProxyType({kind.name.lower(): kind for kind in ColumnType})


def _schema(kind: str, *, required: str, optional: str, identity: str) -> Schema:
    columns: dict[str, MeasuredColumn] = {}
    for is_required, text in ((True, required), (False, f"{optional} {_EVERYWHERE}")):
        for entry in text.split():
            name, _, type_name = entry.partition(":")
            kind_of = _TYPES[type_name]
            most = _MOST.get(name, _MOST_OF_COUNTS if kind_of is ColumnType.COUNT else _LARGEST)
            known = RUN_OPTIONS.get(name)
            columns[name] = MeasuredColumn(
                name, kind_of, is_required, most, tuple(map(str, known.words)) if known else ()
            )
    return Schema(kind, MappingProxyType(columns), tuple(identity.split()))


OPERATORS = _schema(
    "operators",
    required="hardware:text op:text m:count n:count dtype:text latency_us:positive",
    optional="n_devices:count b:count k:count tflops:amount gbytes_per_s:amount timing:text library:text "
    "quantised:flag",
    identity="hardware op b m n k dtype",
)
ATTENTION = _schema(
    "attention",
    required="hardware:text op:text seq_q:count heads:count head_dim:count dtype:text latency_us:positive",
    optional="n_devices:count b:count seq_kv:count kv_heads:count head_dim_v:count causal:flag window:amount "
    "tflops:amount timing:text library:text",
    identity="hardware op b seq_q seq_kv heads kv_heads head_dim dtype",
)
# Tuned tables give -1 where the number of experts of a token, and with it the rate, is not known.
EXPERTS = _schema(
    "experts",
    required="hardware:text op:text tokens:count hidden:count ffn:count experts:count experts_per_token:text "
    "dtype:text latency_us:positive",
    optional="n_devices:count tp:count ep:count mlp_matrices:count distribution:text tflops:text timing:text "
    "library:text",
    identity="hardware op tokens hidden ffn experts dtype",
)
COLLECTIVES = _schema(
    "collectives",
    required="hardware:text n_devices:count bytes:count latency_us:positive",
    optional="n_nodes:count collective:text dtype:text algbw_gbytes_per_s:amount busbw_gbytes_per_s:amount fabric:text "
    "software:text timing:text",
    identity="hardware n_devices bytes",
)
# Some sources publish a rate without the bytes that it counts: those rows have no time.
EXCHANGES = _schema(
    "expert exchanges",
    required="hardware:text n_devices:count collective:text tokens:count hidden:count",
    optional="n_nodes:count experts:count experts_per_token:count sms:count dtype:text bytes:count latency_us:positive "
    "gbytes_per_s:amount fabric:text software:text timing:text",
    identity="hardware n_devices collective tokens hidden",
)
# MaxText counts micro-batches per chip, which may be a fraction of a sequence.
TRAINING = _schema(
    "training",
    required="hardware:text n_devices:count layers:count hidden:count heads:count seq:count global_batch:count "
    "iter_time_s:positive",
    optional="model:text head_dim:count kv_heads:count ffn:count mlp_matrices:count vocab:count tp:count pp:count "
    "dp:count cp:count interleave:count sharding:text micro_batch:positive recompute:text seq_parallel:flag "
    f"dtype:text software:text {' '.join(f'{column}:text' for column in RUN_OPTIONS)} power_limit_w:positive "
    "tokens_per_s_per_dev:amount tflops_per_dev:amount "
    "tflops_kind:text mfu:amount hfu:amount time_kind:text "
    "experts:count experts_per_token:count ep:count etp:count capacity:amount token_drop:flag "
    "imbalance:amount",
    identity="hardware n_devices model",
)
OF_RUNS_IN_WORDS = ("software", "recompute", *RUN_OPTIONS)
"""Columns of words that say how a run went beside its command."""
# Runs whose sizes are those of a model of the zoo or of a config beside the table, their plan a command or a word.
NAMED_RUNS = _schema(
    "runs of named models",
    required="hardware:text n_devices:count model:text",
    optional="table:text command:text plan:text dtype:text seq:count per_device_batch:positive estimator:text "
    f"{' '.join(f'{column}:text' for column in OF_RUNS_IN_WORDS)} capacity:amount token_drop:flag imbalance:amount "
    "power_limit_w:positive micro_batch:positive "
    "step_s:positive tokens_per_s:positive measured_tokens_per_s_per_dev:positive tokens_per_s_per_dev:positive "
    "step_cv_pct:amount compute_active_pct:amount comm_active_pct:amount comm_exposed_pct:amount "
    "comm_hidden_pct:amount idle_pct:amount",
    identity="hardware n_devices model",
)
_OF_RUNS = " ".join(
    f"{column.name}:{column.type.name.lower()}"
    for column in TRAINING.columns.values()
    if column.name not in _EVERYWHERE and column.name != "iter_time_s"
)
# A row names one of a training table beside its file, or has that table's columns itself.
MEMORY = _schema(
    "memory",
    required="measured_gib:positive",
    optional=f"table:text kind:text device_gib:positive {_OF_RUNS}",
    identity="",
)
LAYER = _schema(
    "layer",
    required="hardware:text hidden:count heads:count seq:count tp:count micro_batch:count forward_ms:positive "
    "backward_ms:positive",
    optional="n_devices:count model:text recompute:text seq_parallel:flag dtype:text",
    identity="hardware hidden heads seq tp",
)
WHOLE_MODEL = _schema(
    "whole model",
    required="hardware:text mode:text layers:count hidden:count heads:count seq:count batch:count e2e_ms:positive",
    optional="n_devices:count model:text ffn:count vocab:count tp:count pp:count dp:count option:text dtype:text "
    "forward_ms:positive backward_ms:positive",
    identity="hardware model mode seq batch",
)
DIE_AREA = _schema(
    "die area", required="die:text component:text area_mm2:positive", optional="process:text", identity="die component"
)
# A blank is of what a die lacks or nobody published; a chip whose area is blank says nothing of areas.
DIES = _schema(
    "whole dies",
    required="chip:text style:text node:positive",
    optional="die:text die_mm2:positive die_bound:text dies_per_device:amount mac16_full:amount mac8_only:amount "
    "fp32_lanes_full:amount fp64_lanes_full:amount active_share:amount rf_mb:amount l1_mb:amount glb_mb:amount "
    "glb_bytes_per_cycle:amount local_bytes_per_cycle:amount hbm_stacks_full:amount ext_dram:text "
    "hbm_stacks_used:amount dram_gbytes_s:amount dram_gb:amount link_gbytes_s_oneway:amount pcie:text clock_ghz:amount "
    "tdp_w:amount tdp_kind:text transistors_b:amount use:text",
    identity="chip",
)
NVDLA = _schema(
    "accelerator estimates",
    required="macs_int8:count area_16nm_mm2:positive",
    optional="conv_buffer_kb:count dram_gbytes_per_s:positive clock_ghz:positive area_28nm_mm2:positive "
    "resnet50_frames_per_s:positive peak_power_mw_16nm:positive avg_power_mw_16nm:positive",
    identity="macs_int8",
)
EYERISS = _schema(
    "convolution layers",
    required="hardware:text layer:text batch:count in_ch_per_group:count in_hw_padded:count out_ch:count out_hw:count "
    "kernel:count total_latency_ms:positive",
    optional="network:text stride:count groups:count processing_latency_ms:positive gmacs:positive active_pes:count "
    "global_buffer_mb:positive dram_mb:positive power_mw:positive",
    identity="hardware layer",
)
MLPERF = _schema(
    "time to train",
    required="hardware:text n_devices:count minutes:positive",
    optional="benchmark:text round:text",
    identity="hardware n_devices",
)

SCHEMAS = (
    OPERATORS,
    ATTENTION,
    EXPERTS,
    COLLECTIVES,
    EXCHANGES,
    TRAINING,
    MEMORY,
    LAYER,
    WHOLE_MODEL,
    DIE_AREA,
    DIES,
    NVDLA,
    EYERISS,
    MLPERF,
    NAMED_RUNS,
)

BY_CELL = "by cell"


@dataclass(frozen=True, slots=True)
class PublishedSet:
    """A published data set.

    Attributes:
        schema: kind of its file.
        software: whose rows its models predict; the first is the one that its name alone says.
        groups: columns whose values are groups of its rows.
        goals: mean absolute errors not to exceed, per cent, by group; empty of all rows, `BY_CELL` of all cells.
        rank: least Spearman correlation; None for none. What a search needs is the right order.
        is_context: whether it holds other quantities than latency: context, outside the goals.
        is_laboratory: whether rows and models are those of the distribution phaze-opt-lab: they price no answer.
    """

    schema: Schema
    software: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    goals: Mapping[str, float] = field(default_factory=dict)
    rank: float | None = None
    is_context: bool = False
    is_laboratory: bool = False


PUBLISHED_SETS: Mapping[str, PublishedSet] = MappingProxyType(
    {
        "op_llmcompass": PublishedSet(
            OPERATORS, goals={"A100 matmul": 2.5, "MI210 matmul": 4.0, "softmax/layernorm/gelu": 7.0}
        ),
        "op_gpt3_layer_llmcompass": PublishedSet(OPERATORS),
        "op_neusight_fp32": PublishedSet(OPERATORS, groups=("op", "hardware"), goals={"": 9.0}, is_laboratory=True),
        "op_tpu_gemm": PublishedSet(OPERATORS, groups=("hardware", "dtype"), goals={"": 8.0}),
        "op_best_matmul": PublishedSet(OPERATORS, groups=("dtype",)),
        "op_modern": PublishedSet(OPERATORS, is_laboratory=True),
        "attn_modern": PublishedSet(ATTENTION, is_laboratory=True),
        "moe_modern": PublishedSet(EXPERTS, is_laboratory=True),
        "collective_all_reduce": PublishedSet(COLLECTIVES, groups=("hardware",), goals={"": 8.0}),
        "collective_kinds": PublishedSet(COLLECTIVES, groups=("hardware", "collective"), goals={"": 12.0}),
        "expert_exchange": PublishedSet(
            EXCHANGES, groups=("hardware", "collective"), goals={"": 12.0}, is_laboratory=True
        ),
        "train_vtrain_multinode": PublishedSet(TRAINING, groups=("model",), goals={"": 6.0}, rank=0.985),
        "train_vtrain_singlenode": PublishedSet(TRAINING, goals={BY_CELL: 7.0}, rank=0.985),
        "train_megatron_sc21": PublishedSet(
            TRAINING, software=("megatron-2021", "deepspeed-zero3-2021"), goals={"": 2.5}
        ),
        "train_bigscience_a100": PublishedSet(TRAINING, software=("megatron-deepspeed",)),
        "train_megatron_tp_scaling": PublishedSet(TRAINING, groups=("hardware",)),
        "train_korthikanti22": PublishedSet(TRAINING, software=("megatron-2022",), goals={"": 3.5}),
        "layer_korthikanti22": PublishedSet(LAYER),
        "train_megatron_h100": PublishedSet(TRAINING, software=("megatron-core",), goals={"": 2.5}),
        "train_nemo_h100_fp8": PublishedSet(TRAINING, goals={"": 4.0}),
        "train_bridge_blackwell": PublishedSet(TRAINING, software=("megatron-bridge",)),
        "moe": PublishedSet(TRAINING, goals={"": 15.0}),
        "train_llmfoundry_fsdp": PublishedSet(
            TRAINING,
            software=("llm-foundry", "llm-foundry-h100", "llm-foundry-pure"),
            groups=("hardware",),
            goals={"": 4.0},
        ),
        "train_torchtitan_h100": PublishedSet(TRAINING, software=("torchtitan", "nanotron")),
        "train_fms_fsdp_h100": PublishedSet(TRAINING, software=("fms-fsdp",)),
        "train_pax_h100": PublishedSet(TRAINING, software=("pax", "maxtext-gpu")),
        "train_maxtext_tpu": PublishedSet(
            TRAINING, software=("maxtext", "maxtext-unfused", "maxtext-offload"), groups=("hardware",), goals={"": 5.0}
        ),
        "train_large_runs": PublishedSet(TRAINING),
        "e2e_neusight_fp32": PublishedSet(WHOLE_MODEL, groups=("hardware", "mode"), is_laboratory=True),
        "memory": PublishedSet(MEMORY, groups=("table",), goals={"": 10.0}, rank=0.93),
        "die_area": PublishedSet(DIE_AREA, is_context=True),
        "dies": PublishedSet(DIES, groups=("use",), is_context=True),
        "nvdla_estimates": PublishedSet(NVDLA, is_context=True),
        "eyeriss_alexnet": PublishedSet(EYERISS, is_context=True),
        "mlperf_gpt3": PublishedSet(MLPERF, is_context=True),
    }
)
"""By file stem, in the order of reports; megatron-core in fp8 is NeMo's."""
DATASET_SCHEMAS: Mapping[str, Schema] = MappingProxyType({name: each.schema for name, each in PUBLISHED_SETS.items()})
CONTEXT = frozenset(name for name, each in PUBLISHED_SETS.items() if each.is_context)
LABORATORY = tuple(name for name, each in PUBLISHED_SETS.items() if each.is_laboratory)
KERNEL_SETS = ("op_modern", "attn_modern", "moe_modern")
"""Kernels of modern GPUs under the device's clock."""
GET_LABORATORY = "`pip install -e lab` in the repository adds them"

NOT_PREDICTED: Mapping[str, str] = MappingProxyType(
    {
        "mlperf_gpt3": "a time to a target loss, which no model of one training step predicts",
        **dict.fromkeys(LABORATORY, f"models of GPU kernels are in the laboratory; {GET_LABORATORY}"),
    }
)
"""Why rows like those of a published set are read but not predicted, where no family is installed that does."""

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
        "ep": "expert_parallel expert_parallel_size expert_model_parallel_size",
        "etp": "expert_tensor expert_tensor_parallel expert_tensor_parallel_size",
        "experts": "num_experts n_experts num_local_experts n_routed_experts",
        "experts_per_token": "num_experts_per_tok top_k topk num_active_experts moe_router_topk",
        "capacity": "capacity_factor expert_capacity expert_capacity_factor moe_expert_capacity_factor",
        "token_drop": "drop drop_tokens token_dropping drops_tokens",
        "interleave": "virtual_stages vpp vp num_chunks",
        "sharding": "zero zero_stage fsdp strategy",
        "recompute": "checkpointing activation_checkpointing recomputation remat",
        "dtype": "precision data_type type",
        "software": "framework stack library",
        "compile": "torch_compile compiled",
        "float8": "fp8 fp8_recipe float8_recipe recipe",
        "async_tp": "asynctp async_tensor_parallel",
        "prefetch": "fsdp_prefetch forward_prefetch prefetching",
        "selective": "selective_ac ac_policy checkpoint_policy",
        "power_limit_w": "power_limit power_cap power_limit_watts",
        "iter_time_s": "time step_time step_time_s iteration_time iter_time time_s seconds iter_time_ms step_time_ms "
        "time_ms latency_s",
        "latency_us": "latency time time_us duration latency_ms time_ms runtime_us latency_s",
        "bytes": "size message_size payload",
        "n_nodes": "nodes num_nodes",
        "op": "operator kernel operation",
        "b": "batch",
        "batch": "batch_size",
        "die_mm2": "die_area area area_mm2 die_size die_size_mm2 mm2",
        "node": "process nm nanometres node_nm technology",
        "e2e_ms": "latency time time_ms latency_ms",
    }
)
"""Names by column, separated by spaces; the column's name says its unit."""


def is_slip(name: str, schema: Schema) -> bool:
    """Whether an unknown column is meant to be one of the kind: it has another name of it, or nearly its own.

    Passed over, what it says would be missing without a word; other columns may stand beside those that are read.
    """
    return not suggest_column(name, schema).startswith("known: ")


def suggest_column(name: str, schema: Schema) -> str:
    """The column that is meant, or all columns of the kind, none cut away."""
    lowered = name.lower().replace(" ", "_").replace("-", "_")
    for column, others in OTHER_NAMES.items():
        if column in schema.columns and lowered in others.split():
            return f"did you mean {column}?"
    found = suggest(lowered, schema.columns)
    return f"known: {', '.join(schema.columns)}" if found.startswith("known: ") else found
