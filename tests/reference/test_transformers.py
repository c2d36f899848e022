"""Parameter counts and FLOPs against transformers and torch themselves (`make test-reference`).

Both are imported inside the tests, so that the default run, which deselects them, needs neither.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kits.family_models import RECORDED, model_of

from phaze_opt.graph.sharding import model_flops
from phaze_opt.workload.config import config_of, load_model, parse_config
from phaze_opt.workload.model_classes import ModelFamily, class_name, row_of
from phaze_opt.workload.zoo import list_models, read_zoo_text

pytestmark = [pytest.mark.reference, pytest.mark.filterwarnings("default")]

CONFIG_FILES = {path.stem: path for path in sorted((Path(__file__).parents[1] / "workload/configs").glob("*.json"))}
BATCH, SEQUENCE = 2, 64

ROTARY = {
    "hidden_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 160,
    "max_position_embeddings": 128,
    "vocab_size": 500,
}
SMALL: dict[str, dict[str, Any]] = {
    "gpt2": {"model_type": "gpt2", "n_embd": 64, "n_layer": 3, "n_head": 4, "n_positions": 128, "vocab_size": 500},
    "gpt2_n_inner": {
        "model_type": "gpt2",
        "n_embd": 64,
        "n_layer": 2,
        "n_head": 8,
        "n_positions": 64,
        "n_inner": 100,
        "vocab_size": 501,
    },
    "bert": {
        "model_type": "bert",
        "hidden_size": 64,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "intermediate_size": 200,
        "max_position_embeddings": 128,
        "vocab_size": 500,
    },
    "opt": {
        "model_type": "opt",
        "hidden_size": 64,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "ffn_dim": 200,
        "max_position_embeddings": 128,
        "word_embed_proj_dim": 64,
        "vocab_size": 500,
    },
    "opt_projected_post_norm": {
        "model_type": "opt",
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "ffn_dim": 200,
        "max_position_embeddings": 128,
        "word_embed_proj_dim": 32,
        "do_layer_norm_before": False,
        "vocab_size": 500,
    },
    "llama": ROTARY | {"model_type": "llama"},
    "llama_biases_head_dim": ROTARY | {"model_type": "llama", "attention_bias": True, "mlp_bias": True, "head_dim": 32},
    "mistral": ROTARY | {"model_type": "mistral"},
    "qwen2": ROTARY | {"model_type": "qwen2", "tie_word_embeddings": True},
    "mixtral": ROTARY | {"model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2},
}


def reference_model(config: dict[str, Any], *, device: str) -> Any:  # noqa: ANN401
    """The transformers model of a config, with random weights (none at all on the meta device)."""
    import torch
    import transformers
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    plain = {key: value for key, value in config.items() if key != "_source"}
    parsed = CONFIG_MAPPING[config["model_type"]].from_dict(plain, attn_implementation="eager")
    if config["model_type"] == "mixtral":
        parsed._experts_implementation = "eager"
    with torch.device(device):
        named = config.get("architectures") or (["BertForPreTraining"] if config["model_type"] == "bert" else [])
        if named:
            model = getattr(transformers, named[0])(parsed)
        else:
            model = transformers.AutoModelForCausalLM.from_config(parsed, attn_implementation="eager")
    model.tie_weights()
    return model


def count_parameters(model: Any) -> int:  # noqa: ANN401
    return sum({id(parameter): parameter.numel() for parameter in model.parameters()}.values())


@pytest.mark.parametrize("name", [*list_models(), *CONFIG_FILES])
def test_parameters_of_published_models(name: str) -> None:
    given = str(CONFIG_FILES[name]) if name in CONFIG_FILES else name
    text = CONFIG_FILES[name].read_text() if name in CONFIG_FILES else read_zoo_text(name)
    assert load_model(given).num_parameters == count_parameters(reference_model(json.loads(text), device="meta"))


@pytest.mark.parametrize("name", [name for name in RECORDED if name != "flan-t5-xl"])
def test_parameters_of_families(name: str) -> None:
    """Of a config of several models the language model; T5 of its first version, which transformers ties as it was."""
    config = RECORDED[name]["config"]
    inner = {"architectures": [model_of(name).architecture]} | config.get("text_config", {})
    given = inner if "text_config" in config else config
    assert model_of(name).num_parameters == count_parameters(reference_model(given, device="meta"))


@pytest.mark.parametrize("name", SMALL)
def test_parameters_of_small_models(name: str) -> None:
    spec = parse_config(SMALL[name], name=name, source="test")
    assert spec.num_parameters == count_parameters(reference_model(SMALL[name], device="meta"))


@pytest.mark.parametrize("name", SMALL)
def test_matmul_flops_of_a_training_step(name: str) -> None:
    """Forward and backward under torch's FlopCounterMode; rotary tables are a small product we leave out."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    torch.manual_seed(0)
    model = reference_model(SMALL[name], device="cpu").train()
    ids = torch.randint(0, SMALL[name]["vocab_size"], (BATCH, SEQUENCE))
    labels = {"labels": ids}
    if SMALL[name]["model_type"] == "bert":
        labels["next_sentence_label"] = torch.zeros(BATCH, dtype=torch.long)
    counter = FlopCounterMode(display=False)
    with counter:
        model(input_ids=ids, **labels).loss.backward()
    spec = parse_config(SMALL[name], name=name, source="test")
    assert counter.get_total_flops() == pytest.approx(BATCH * model_flops(spec, SEQUENCE), rel=1e-3)


def without_reading(model: Any) -> Any:  # noqa: ANN401
    return replace(model.transformer, unread_keys=(), notes=())


SWITCHES = ("use_sliding_window", "use_qk_norm", "use_bias")
NEEDED = {ModelFamily.DEEPSEEK_V2: {"num_experts_per_tok": 6}, ModelFamily.GLM4_MOE: {"num_attention_heads": 32}}
"""Sizes without a default that a model could have."""


@pytest.mark.parametrize(
    ("family", "switch"),
    [
        (family, switch)
        for family in ModelFamily
        for switch in ("", *SWITCHES)
        if {switch} <= {"", *row_of(family).reads}
    ],
)
def test_defaults_are_those_of_transformers(family: ModelFamily, switch: str) -> None:
    """A config of the sizes alone is the model of all that transformers writes of it, and has its parameters."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    schema, plain = config_of(family), CONFIG_MAPPING[family]()
    keys = schema.fields_by_key()
    layers = [key for key, field in keys.items() if field in ("num_layers", "num_decoder_layers")]
    required = [key for key, field in keys.items() if schema.model_fields[field].is_required()]
    given = {key: getattr(plain, key) for key in required} | dict.fromkeys(layers, 5) | NEEDED.get(family, {})
    given |= {"model_type": family.value, "pad_token_id": 1} | ({switch: True} if switch else {})
    full = CONFIG_MAPPING[family].from_dict(dict(given)).to_dict()
    named = {"architectures": [class_name(family, row_of(family).heads[0])]}
    one, other = (parse_config(each | named, name="x", source="s") for each in (given, full))
    assert without_reading(one) == without_reading(other)
    assert one.num_parameters == count_parameters(reference_model(full | named, device="meta"))
