"""Families of configs: parameters and classes as transformers has them, lengths, keys that are listed as unread."""

import json
from dataclasses import replace
from typing import Any

import pytest
from kits.family_models import RECORDED, model_of

from phaze_opt.errors import InputError
from phaze_opt.graph.build import build_model_graph
from phaze_opt.graph.operator import PUBLISHED_SHARDING, ShardingOptions
from phaze_opt.workload.config import load_model, parse_config
from phaze_opt.workload.model_classes import ModelFamily
from phaze_opt.workload.training import TrainingSpec
from phaze_opt.workload.zoo import known_model_types, read_zoo_text

LLAMA = json.loads(read_zoo_text("llama-3-8b"))
_SIZES = {
    "vocab_size": 1000,
    "hidden_size": 256,
    "num_hidden_layers": 3,
    "num_attention_heads": 8,
    "intermediate_size": 512,
    "max_position_embeddings": 1024,
}
_LATENT = {"kv_lora_rank": 64, "q_lora_rank": 96, "qk_rope_head_dim": 16, "qk_nope_head_dim": 32, "v_head_dim": 32}
_EXPERTS = {"n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 64, "n_shared_experts": 1}
SWITCHED: dict[str, dict[str, Any]] = {
    "bert": _SIZES,
    "roberta": _SIZES,
    "phi3": _SIZES | {"num_key_value_heads": 4},
    "opt": _SIZES | {"ffn_dim": 512, "max_position_embeddings": 512},
    "deepseek_v2": _SIZES | _LATENT | _EXPERTS | {"first_k_dense_replace": 1, "num_key_value_heads": 8},
}


def config_of(name: str, **changes: Any) -> dict[str, Any]:
    return RECORDED[name]["config"] | changes


def refusal(config: dict[str, Any]) -> str:
    with pytest.raises(InputError) as caught:
        parse_config(config, name="given", source="given.json")
    return str(caught.value)


@pytest.mark.parametrize("name", RECORDED)
def test_parameters_are_those_of_the_class_in_transformers(name: str) -> None:
    assert model_of(name).num_parameters == RECORDED[name]["parameters"]


def test_every_family_is_recorded_in_two_sizes_or_classes() -> None:
    of_models = [RECORDED[name]["config"]["model_type"] for name in RECORDED]
    old = {"bert", "gpt2", "opt", "llama", "mistral", "qwen2", "mixtral", "gemma3_text"}
    assert {family for family in ModelFamily if of_models.count(family) < 2} - old == {"llama4_text"}


@pytest.mark.parametrize(
    ("name", "published"),
    [
        ("qwen3-8b", 8_190_735_360),
        ("qwen3-30b-a3b", 30_532_122_624),
        ("gemma-7b", 8_537_680_896),
        ("gemma-2-9b", 9_241_705_984),
        ("gemma-3-1b", 999_885_952),
        ("phi-3-mini-4k", 3_821_079_552),
        ("gpt-neox-20b", 20_554_567_680),
        ("falcon-7b", 6_921_720_704),
        ("deepseek-v2-lite", 15_706_484_224),
        ("deepseek-v3", 671_026_404_352),
        ("gpt-oss-20b", 20_914_757_184),
        ("t5-large", 737_668_096),
        ("flan-t5-xl", 2_849_757_184),
        ("vit-large-patch16-224", 304_326_632),
        ("whisper-large-v3", 1_543_490_560),
    ],
)
def test_parameters_are_those_of_the_published_weights(name: str, published: int) -> None:
    assert model_of(name).num_parameters == published


@pytest.mark.parametrize(
    ("zoo", "name"),
    [
        ("qwen3-8b", "qwen3-8b"),
        ("gemma-2-9b", "gemma-2-9b"),
        ("deepseek-v3", "deepseek-v3"),
        ("t5-large", "t5-large"),
        ("vit-large", "vit-large-patch16-224"),
        ("whisper-large-v3", "whisper-large-v3"),
    ],
)
def test_models_of_the_zoo_are_the_recorded_ones_with_nothing_unread(zoo: str, name: str) -> None:
    model = load_model(zoo).transformer
    assert model.unread_keys == ()
    assert model == replace(model_of(name), name=zoo, source=model.source, unread_keys=(), notes=())


@pytest.mark.parametrize(
    ("name", "billions"), [("qwen3-30b-a3b", 3.3), ("deepseek-v3", 37.6), ("gpt-oss-120b", 5.7), ("deepseek-v2", 21.4)]
)
def test_active_parameters_are_those_of_the_model_cards(name: str, billions: float) -> None:
    assert model_of(name).num_active_parameters / 1e9 == pytest.approx(billions, abs=0.06)


@pytest.mark.parametrize(
    ("name", "length"),
    [
        ("vit-base-patch16-224", 197),
        ("whisper-large-v3", 448),
        ("t5-large", 512),
        ("flan-t5-xl", 512),
        ("roberta-base", 512),
        ("qwen3-8b", 4096),
        ("falcon-7b", 2048),
    ],
)
def test_models_run_at_their_own_length(name: str, length: int) -> None:
    assert model_of(name).own_sequence_length == length


def test_encoders_have_lengths_of_their_own() -> None:
    whisper, t5 = model_of("whisper-large-v3").encoder, model_of("t5-large").encoder
    assert whisper is not None
    assert t5 is not None
    assert (whisper.length_beside(448), t5.length_beside(300)) == (1500, 300)


@pytest.mark.parametrize(
    ("name", "unread"),
    [
        ("qwen3-8b", ()),
        ("deepseek-v3", ("num_nextn_predict_layers",)),
        ("gemma-3-27b", ("mm_tokens_per_image", "vision_config")),
        ("llama-4-scout", ("vision_config",)),
        ("gpt-neox-20b", ()),
    ],
)
def test_keys_that_change_the_model_and_were_not_read_are_listed(name: str, unread: tuple[str, ...]) -> None:
    assert model_of(name).unread_keys == unread


def test_a_class_that_nobody_knows_is_listed() -> None:
    """The family's usual head is priced, and the answer says that the class was not read."""
    config = config_of("qwen3-8b")
    known, other = (
        parse_config(config | {"architectures": [name]}, name="x", source="s") for name in ("Qwen3Model", "MyOwn")
    )
    assert (known.unread_keys, other.unread_keys) == ((), ("architectures",))


def test_keys_inside_a_nested_config_are_listed_with_their_place() -> None:
    config = config_of("gemma-3-27b")
    config = config | {"text_config": config["text_config"] | {"use_ring": True, "use_cache": False}}
    model = parse_config(config, name="x", source="s")
    assert "text_config.use_ring" in model.unread_keys
    assert "text_config.use_cache" not in model.unread_keys


@pytest.mark.parametrize(
    ("name", "windows"),
    [
        ("gemma-2-9b", [4096, 0] * 21),
        ("gemma-3-1b", ([512] * 5 + [0]) * 4 + [512] * 2),
        ("gpt-oss-20b", [128, 0] * 12),
        ("phi-3-mini-4k", [2047] * 32),
        ("llama-4-scout", [8192, 8192, 8192, 0] * 12),
    ],
)
def test_windows_of_layers(name: str, windows: list[int]) -> None:
    assert [block.attention.window for block in model_of(name).stack.blocks] == windows


def test_listed_layer_types_win_and_must_be_of_every_layer() -> None:
    kinds = ["full_attention"] * 25 + ["sliding_attention"]
    model = parse_config(config_of("gemma-3-1b", layer_types=kinds), name="x", source="s").transformer
    assert [block.attention.window for block in model.stack.blocks] == [0] * 25 + [512]
    message = refusal(config_of("gemma-3-1b", layer_types=kinds[1:]))
    assert "key 'layer_types': lists 25 layers, not the 26 there are" in message


@pytest.mark.parametrize(
    ("family", "changes", "window"),
    [
        ("mistral", {"sliding_window": 512}, 512),
        ("mistral", {"sliding_window": None}, 0),
        ("mixtral", {"num_local_experts": 8, "num_experts_per_tok": 2}, 0),
        ("qwen2", {"sliding_window": 512}, 0),
        ("qwen2", {"sliding_window": 512, "use_sliding_window": True, "max_window_layers": 0}, 512),
    ],
)
def test_sliding_windows_of_the_older_families_are_read(family: str, changes: dict[str, Any], window: int) -> None:
    config = {key: value for key, value in LLAMA.items() if key != "architectures"} | {"model_type": family} | changes
    blocks = parse_config(config, name="x", source="s").transformer.stack.blocks
    assert {block.attention.window for block in blocks} == {window}


@pytest.mark.parametrize(
    ("family", "architecture", "changes", "parameters"),
    [
        ("opt", "OPTForCausalLM", {"word_embed_proj_dim": 128}, 1_906_944),
        ("opt", "OPTModel", {"word_embed_proj_dim": 128}, 1_906_944),
        ("opt", "OPTForSequenceClassification", {"word_embed_proj_dim": 128, "do_layer_norm_before": False}, 1_906_688),
        ("bert", "BertForMaskedLM", {"tie_word_embeddings": False}, 2_424_784),
        ("roberta", "RobertaForMaskedLM", {"tie_word_embeddings": False}, 2_424_784),
        ("deepseek_v2", "DeepseekV2ForCausalLM", {"attention_bias": True, "mlp_bias": True}, 2_340_336),
        ("deepseek_v2", "DeepseekV2ForCausalLM", {"moe_layer_freq": 2, "num_hidden_layers": 5}, 3_587_616),
        ("phi3", "Phi3ForCausalLM", {"attention_bias": True, "mlp_bias": True}, 2_283_264),
    ],
)
def test_switches_count_as_in_transformers(
    family: str, architecture: str, changes: dict[str, Any], parameters: int
) -> None:
    """Counted by transformers 5.24.0 on the meta device; what the graph's device holds is as much."""
    config = SWITCHED[family] | {"model_type": family, "architectures": [architecture]} | changes
    model = parse_config(config, name="x", source="s")
    assert model.num_parameters == parameters
    graph = build_model_graph(model, TrainingSpec(1, 128, 1), tensor_parallel=1)
    kinds = [graph.layers[kind] for kind in graph.chain]
    assert sum(layer.num_parameters - layer.num_tied_parameters for layer in kinds) == parameters


def test_opt_350m_classifies_what_is_projected() -> None:
    config = json.loads(read_zoo_text("opt-350m")) | {"architectures": ["OPTForSequenceClassification"]}
    assert parse_config(config, name="x", source="s").num_parameters == 331_197_440


@pytest.mark.parametrize(
    ("name", "changes", "key"),
    [
        ("phi-3-mini-4k", {"attention_bias": True}, "attention_bias"),
        ("falcon-7b", {"attention_bias": True}, "attention_bias"),
        ("deepseek-v3", {"layer_types": ["sliding_attention"] * 61}, "layer_types"),
        ("deepseek-v2-lite", {"moe_layer_freq": 2}, "moe_layer_freq"),
        ("gpt-neox-20b", {"num_key_value_heads": 8}, "num_key_value_heads"),
    ],
)
def test_keys_that_the_family_ignores_change_nothing_and_are_listed(
    name: str, changes: dict[str, Any], key: str
) -> None:
    model = parse_config(config_of(name, **changes), name=name, source="given.json").transformer
    assert key in model.unread_keys
    assert replace(model, unread_keys=()) == replace(model_of(name), unread_keys=())


@pytest.mark.parametrize(
    ("name", "changes"), [("whisper-large-v3", {"activation_function": "relu"}), ("falcon-7b", {"activation": "relu"})]
)
def test_activations_under_other_keys_are_read(name: str, changes: dict[str, Any]) -> None:
    model = parse_config(config_of(name, **changes), name="x", source="s").transformer
    assert {mlp.has_relu for block in model.blocks for mlp in block.dense_mlps} == {True}


def test_first_layers_of_deepseek_are_dense_and_llama_4_alternates() -> None:
    deepseek, llama = model_of("deepseek-v3").stack, model_of("llama-4-maverick").stack
    assert [block.experts is None for block in deepseek.blocks] == [True] * 3 + [False] * 58
    assert [block.experts is None for block in llama.blocks] == [True, False] * 24
    assert [block.attention.rotary_size > 0 for block in llama.blocks] == [True, True, True, False] * 12


@pytest.mark.parametrize(
    ("config", "architecture"),
    [
        (LLAMA, "LlamaForCausalLM"),
        (json.loads(read_zoo_text("bert-large")), "BertForPreTraining"),
        (json.loads(read_zoo_text("gpt2-xl")), "GPT2LMHeadModel"),
        (config_of("roberta-base"), "RobertaForMaskedLM"),
        (config_of("llama-4-scout"), "Llama4ForCausalLM"),
        (config_of("gemma-3-27b"), "Gemma3ForCausalLM"),
        (config_of("vit-huge-patch14-224-in21k"), "ViTModel"),
    ],
)
def test_the_class_that_is_priced_is_named(config: dict[str, Any], architecture: str) -> None:
    assert parse_config(config, name="x", source="s").transformer.architecture == architecture


def test_a_head_that_is_not_priced_is_refused_with_those_that_are() -> None:
    message = refusal(config_of("roberta-base", architectures=["RobertaForMultipleChoice"]))
    assert "'RobertaForMultipleChoice' has a head that is not priced" in message
    assert "RobertaForMaskedLM" in message
    assert "phaze-opt extract --hf PATH --out FILE" in message


@pytest.mark.parametrize("family", ["llava", "qwen2_moe", "mamba", "resnet", "gemma3n", "glm_moe_dsa"])
def test_a_family_of_its_own_is_never_told_to_be_another(family: str) -> None:
    message = refusal(LLAMA | {"model_type": family})
    assert "did you mean" not in message
    assert "is a family whose configs are not read" in message
    assert "phaze-opt extract --hf PATH --out FILE" in message
    assert "phaze-opt[extract]" in message


@pytest.mark.parametrize(
    ("given", "meant"),
    [("lama", "llama"), ("qwen", "qwen2 or qwen3"), ("gpt-oss", "gpt_oss"), ("vti", "vit"), ("LLaMA", "llama")],
)
def test_a_slip_of_one_letter_or_of_case_is_offered(given: str, meant: str) -> None:
    assert given not in known_model_types()
    assert f"did you mean {meant}?" in refusal({"model_type": given})


@pytest.mark.parametrize(
    ("given", "named"),
    [("qwen3_next", ""), ("nemotron_h", "NemotronHForCausalLM"), ("deepseek_ref", "DeepseekV4ForCausalLM")],
)
def test_who_is_refused_by_extraction_too_is_not_sent_there(given: str, named: str) -> None:
    """Where the type is nobody's, its class tells the family."""
    message = refusal({"model_type": given, "architectures": [named]})
    assert "extraction does not take it" in message
    assert "--hf" not in message
    assert "extract --torch" in message


@pytest.mark.parametrize("given", ["lamma9", "minimax_m3", "gemma5", "mimo"])
def test_two_letters_and_other_versions_are_not_offered(given: str) -> None:
    """Nor is extraction, of what transformers does not have: it would refuse too."""
    message = refusal({"model_type": given, "architectures": ["OtherForCausalLM"]})
    assert "did you mean" not in message
    assert "transformers 5.24.0 has none of this name" in message
    assert "extract --torch" in message
    assert "--hf" not in message


def test_a_type_that_nobody_knows_is_read_by_its_class() -> None:
    config = config_of("deepseek-v3", model_type="kimi_k9", architectures=["DeepseekV3ForCausalLM"])
    model = parse_config(config, name="k", source="s").transformer
    assert model.stack == model_of("deepseek-v3").stack
    assert (model.family, model.architecture) == (ModelFamily.DEEPSEEK_V3, "DeepseekV3ForCausalLM")
    assert any("read as deepseek_v3" in note for note in model.notes)
    known = config | {"model_type": "qwen2_moe"}
    assert "is a family whose configs are not read" in refusal(known)


def test_kimi_k2_has_the_parameters_of_its_card() -> None:
    """2 V h + h + 61 (attention + 2 h) + 3 h 18,432 + 60 (384 h + 385 x 3 h x 2,048), h = 7,168."""
    config = config_of("deepseek-v3") | {
        **{"model_type": "kimi_k2", "vocab_size": 163_840, "num_attention_heads": 64, "num_key_value_heads": 64},
        **{"n_routed_experts": 384, "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1},
    }
    assert parse_config(config, name="k", source="s").num_parameters == 1_026_408_209_408


@pytest.mark.parametrize("outer", ["kimi_k25", "mistral3", "some_vl"])
def test_of_a_class_of_several_models_the_language_model_is_read(outer: str) -> None:
    """Whatever the whole is called; what is said of all models alone (tied tables) holds for it too."""
    text = config_of("qwen3-0.6b")
    del text["tie_word_embeddings"]
    config = {"model_type": outer, "text_config": text, "vision_config": {"depth": 2}, "tie_word_embeddings": True}
    model = parse_config(config, name="v", source="s").transformer
    assert model.num_parameters == RECORDED["qwen3-0.6b"]["parameters"]
    assert model.unread_keys == ("vision_config",)
    assert any("language model alone is priced, as Qwen3ForCausalLM" in note for note in model.notes)


@pytest.mark.parametrize("given", ["qwen3_vl_text", "qwen3"])
def test_language_models_of_other_classes_are_read_as_what_they_are(given: str) -> None:
    config = config_of("qwen3-8b", model_type=given)
    assert parse_config(config, name="v", source="s").num_parameters == RECORDED["qwen3-8b"]["parameters"]


def test_a_format_of_saved_weights_and_sparse_attention_are_noted() -> None:
    more = {"quantization_config": {"quant_method": "fp8"}, "index_topk": 2048}
    model, plain = (parse_config(config_of("deepseek-v3") | each, name="x", source="s") for each in (more, {}))
    assert [
        word for word in ("saved quantised ('fp8')", "sparse (index_topk 2,048)") if word not in str(model.notes)
    ] == []
    assert model.num_parameters == plain.num_parameters


def test_defaults_of_deepseek_are_those_of_its_versions() -> None:
    """V3: three dense layers and a shared expert; V2: none and two. Sizes of a small config, counted by hand."""
    config = SWITCHED["deepseek_v2"] | {"model_type": "deepseek_v3"}
    plain = {key: value for key, value in config.items() if key not in ("first_k_dense_replace", "n_shared_experts")}
    for family, dense, shared in (("deepseek_v3", 3, 1), ("deepseek_v2", 0, 2)):
        both = (plain, plain | {"first_k_dense_replace": dense, "n_shared_experts": shared})
        one, other = (parse_config(each | {"model_type": family}, name="x", source="s") for each in both)
        assert one == other


def test_a_class_of_another_family_contradicts_the_model_type() -> None:
    message = refusal(config_of("gemma-7b", architectures=["Gemma2ForCausalLM"]))
    assert "'Gemma2ForCausalLM' is of family gemma2, but model_type is gemma" in message


@pytest.mark.parametrize(
    ("name", "changes", "words"),
    [
        ("whisper-tiny", {"decoder_attention_heads": 7}, "7 heads must divide d_model = 384"),
        ("deepseek-v3", {"num_experts_per_tok": 300}, "300 must not exceed n_routed_experts = 256"),
        ("vit-base-patch16-224", {"image_size": 8}, "image_size"),
        ("roberta-base", {"max_position_embeddings": 2}, "max_position_embeddings"),
        ("gemma-3-27b", {"text_config": {"hidden_size": 5376}}, "key 'text_config."),
        ("t5-large", {"is_encoder_decoder": False}, "is_encoder_decoder"),
        ("gpt-oss-20b", {"experts_per_token": 2}, "2 is not num_experts_per_tok = 4"),
        ("vit-base-patch16-224", {"id2label": None, "num_labels": 1 << 40}, "is no number of classes"),
    ],
)
def test_sizes_that_do_not_go_together_are_one_sentence(name: str, changes: dict[str, Any], words: str) -> None:
    message = refusal(config_of(name, **changes))
    assert words in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"no_rope_layers": [0]}, "key 'text_config.no_rope_layers': lists 1 layers, not the 48 there are"),
        ({"moe_layers": [99]}, "key 'text_config.moe_layers': names layer 99; give numbers from 0 to 47"),
    ],
)
def test_lists_of_llama_4_are_of_its_layers(changes: dict[str, Any], words: str) -> None:
    config = config_of("llama-4-scout")
    assert words in refusal(config | {"text_config": config["text_config"] | changes})


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (LLAMA | {"hidden_act": "swishy"}, ["'hidden_act'", "'swishy' is no activation", "did you mean swish"]),
        (config_of("t5-large") | {"feed_forward_proj": "gated-geluu"}, ["'feed_forward_proj'", "is no activation"]),
        (config_of("vit-large-patch16-224") | {"image_size": [224, 320]}, ["'image_size'", "is no square"]),
    ],
)
def test_values_that_no_model_has_are_refused(config: dict[str, Any], words: list[str]) -> None:
    said = refusal(config)
    assert [word for word in words if word not in said] == []


def test_an_image_may_be_given_by_both_sides() -> None:
    sizes: list[Any] = [224, [224, 224]]
    one, other = (
        parse_config(config_of("vit-large-patch16-224", image_size=size), name="v", source="s") for size in sizes
    )
    assert one == other


def test_a_share_of_rotated_channels_that_a_family_does_not_read_is_listed() -> None:
    """Of Llama a part cannot be rotated; Phi-3 reads it."""
    rope = {"rope_theta": 1e4, "partial_rotary_factor": 0.5}
    assert parse_config(LLAMA | {"rope_parameters": rope}, name="m", source="s").unread_keys == (
        "rope_parameters.partial_rotary_factor",
    )
    whole = parse_config(LLAMA | {"rope_parameters": rope | {"partial_rotary_factor": 1.0}}, name="m", source="s")
    assert whole.unread_keys == ()


def test_a_relu_is_a_lane_operation_but_in_the_published_form() -> None:
    """OPT's activations take the cycles of smooth ones where Phaze's placements are priced."""

    def kinds(options: ShardingOptions) -> set[str]:
        graph = build_model_graph(load_model("opt-350m"), TrainingSpec(1, 64, 1), tensor_parallel=1, options=options)
        works = (work for each in graph.layers[1].phases[:2] for op in each.operators for work in op.vector_works)
        return {work.kind for work in works}

    smooth = {"activation_forward", "activation_backward"}
    assert not smooth & kinds(ShardingOptions())
    assert smooth <= kinds(PUBLISHED_SHARDING)
