"""Parameter counts: `ModelSpec` against closed forms written here from raw configs, and against recorded values."""

import json
from pathlib import Path

import pytest

from phaze_opt.workload.config import load_model
from phaze_opt.workload.zoo import list_models, read_zoo_text

HERE = Path(__file__).parent
GOLDEN = json.loads((HERE / "parameter_counts.json").read_text())
ZOO = {name: json.loads(read_zoo_text(name)) for name in list_models()}
PLAIN = {"bert", "gpt2", "opt", "llama", "mistral", "qwen2", "mixtral"}
"""Families with closed forms here; `test_families` has the others."""
CONFIGS = {name: config for name, config in ZOO.items() if config["model_type"] in PLAIN}
CONFIG_FILES = {path.stem: path for path in sorted((HERE / "configs").glob("*.json"))}
CONFIGS |= {name: json.loads(path.read_text()) for name, path in CONFIG_FILES.items()}


def bert(c: dict) -> int:
    h, f, v = c["hidden_size"], c["intermediate_size"], c["vocab_size"]
    embeddings = h * (v + c["max_position_embeddings"] + c["type_vocab_size"] + 2)
    layer = 4 * h * h + 4 * h + 2 * h * f + f + h + 4 * h
    sequence = (h * h + h) + 2 * h + 2 if c.get("architectures") != ["BertForMaskedLM"] else 0
    return embeddings + c["num_hidden_layers"] * layer + (h * h + h + 2 * h + v) + sequence


def gpt2(c: dict) -> int:
    h, f = c["n_embd"], c.get("n_inner") or 4 * c["n_embd"]
    layer = 4 * h * h + 2 * h * f + 9 * h + f
    return h * (c["vocab_size"] + c["n_positions"]) + c["n_layer"] * layer + 2 * h


def opt(c: dict) -> int:
    h, f, e = c["hidden_size"], c["ffn_dim"], c["word_embed_proj_dim"]
    layer = 4 * h * h + 2 * h * f + 9 * h + f
    projections = 0 if e == h else 2 * e * h
    final_norm = 2 * h if c["do_layer_norm_before"] else 0
    tables = c["vocab_size"] * e + (c["max_position_embeddings"] + 2) * h
    return tables + projections + c["num_hidden_layers"] * layer + final_norm


def llama(c: dict) -> int:
    h, f, v, layers = c["hidden_size"], c["intermediate_size"], c["vocab_size"], c["num_hidden_layers"]
    head = c.get("head_dim", h // c["num_attention_heads"])
    q, kv = head * c["num_attention_heads"], head * c["num_key_value_heads"]
    experts = c.get("num_local_experts", 1)
    router = experts * h if "num_local_experts" in c else 0
    bias = q + 2 * kv if c["model_type"] == "qwen2" else 0
    layer = 2 * h * q + 2 * h * kv + bias + 3 * h * f * experts + router + 2 * h
    return v * h * (1 if c["tie_word_embeddings"] else 2) + layers * layer + h


CLOSED_FORMS = {
    "bert": bert,
    "gpt2": gpt2,
    "opt": opt,
    "llama": llama,
    "mistral": llama,
    "qwen2": llama,
    "mixtral": llama,
}


def loaded(name: str):
    return load_model(str(CONFIG_FILES[name]) if name in CONFIG_FILES else name)


@pytest.mark.parametrize("name", CONFIGS)
def test_count_equals_closed_form(name: str) -> None:
    config = CONFIGS[name]
    assert loaded(name).num_parameters == CLOSED_FORMS[config["model_type"]](config)


@pytest.mark.parametrize("name", CONFIGS)
def test_count_equals_recorded_transformers_value(name: str) -> None:
    assert loaded(name).num_parameters == GOLDEN["parameters"][name]


@pytest.mark.parametrize(
    ("name", "published"),
    [
        ("bert-large", 336_226_108),
        ("gpt2-xl", 1_557_611_200),
        ("llama-2-7b", 6_738_415_616),
        ("opt-350m", 331_196_416),
        ("opt-1.3b", 1_315_758_080),
        ("llama-3-8b", 8_030_261_248),
        ("llama-3-70b", 70_553_706_496),
        ("llama-3-405b", 405_853_388_800),
        ("mixtral-8x7b", 46_702_792_704),
        ("mistral-7b", 7_241_732_096),
        ("qwen2-7b", 7_615_616_512),
    ],
)
def test_count_equals_published_value(name: str, published: int) -> None:
    assert loaded(name).num_parameters == published


@pytest.mark.parametrize(
    ("name", "billions", "tolerance"),
    [
        ("gpt3-175b", 174.6, 0.05),
        ("megatron-bert", 1.3, 0.05),
        ("megatron-gpt2-54", 2.5, 0.05),
        ("megatron-gpt2-72", 8.3, 0.05),
    ],
)
def test_count_is_near_the_papers_rounded_value(name: str, billions: float, tolerance: float) -> None:
    assert loaded(name).num_parameters / 1e9 == pytest.approx(billions, abs=tolerance)


def test_active_parameters_of_mixtral_are_the_12_9_billion_of_its_paper() -> None:
    model = load_model("mixtral-8x7b")
    assert model.num_active_parameters / 1e9 == pytest.approx(12.9, abs=0.05)
    dense = load_model("llama-2-7b")
    assert dense.num_active_parameters == dense.num_parameters


@pytest.mark.parametrize("name", list_models())
def test_every_zoo_entry_states_a_source(name: str) -> None:
    model = load_model(name)
    assert model.name == name
    assert model.source == ZOO[name]["_source"]
    assert len(model.source) > 20
