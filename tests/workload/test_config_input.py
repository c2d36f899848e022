"""Bad input to `load_model`: one short sentence naming file, line, key, value, rule and remedy; never another error."""

import copy
import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kits.family_models import RECORDED

from phaze_opt.errors import InputError
from phaze_opt.workload.config import load_model, parse_config, parse_config_object, parse_config_text
from phaze_opt.workload.family_config import MAX_LAYERS
from phaze_opt.workload.zoo import list_models, read_zoo_text

LLAMA = json.loads(read_zoo_text("llama-3-8b"))
GPT2 = json.loads(read_zoo_text("gpt2-xl"))
BERT = json.loads(read_zoo_text("bert-large"))
MIXTRAL = json.loads(read_zoo_text("mixtral-8x7b"))
SIZES = [
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "vocab_size",
    "max_position_embeddings",
]


def refusal(given: object, tmp_path: Path | None = None) -> str:
    """The one sentence with which a config (or, as text or bytes, a file) is refused."""
    with pytest.raises(InputError) as caught:
        if tmp_path is None:
            parse_config(given, name="given", source="given.json")
        else:
            path = tmp_path / "given.json"
            path.write_bytes(given if isinstance(given, bytes) else str(given).encode())
            load_model(str(path))
    message = str(caught.value)
    assert len(message) < 1500
    assert "\n" not in message
    assert "given.json" in message
    return message


def test_a_folder_with_a_config_is_the_model_of_its_name(tmp_path: Path) -> None:
    folder = tmp_path / "my-llama"
    folder.mkdir()
    with pytest.raises(InputError, match=r"is a directory without a config\.json; give"):
        load_model(str(folder))
    (folder / "config.json").write_text("\ufeff" + json.dumps(LLAMA), encoding="utf-8")
    for name in (folder, f"{folder}/", folder / "config.json"):
        model = load_model(str(name))
        assert (model.name, model.num_parameters) == ("my-llama", 8_030_261_248)


def test_numbers_that_are_not_finite_are_read_as_transformers_saves_them(tmp_path: Path) -> None:
    """Where no size may be one they are refused as the bare words are."""
    saved = {"time_step_limit": [0.0, {"__float__": "Infinity"}], "low": {"__float__": "-Infinity"}}
    values = parse_config_object(json.dumps(saved | {"no": {"__float__": "NaN"}}), source="s").values
    assert (values["time_step_limit"], values["low"]) == ([0.0, math.inf], -math.inf)
    assert math.isnan(values["no"])
    bare, written = (
        refusal(json.dumps(LLAMA | {"hidden_size": size}), tmp_path) for size in (math.inf, {"__float__": "Infinity"})
    )
    assert bare == written
    other = {"__float__": "Infinity", "more": 1}
    assert parse_config_object(json.dumps({"a": other}), source="s").values["a"] == other


def test_truncated_file_names_the_line(tmp_path: Path) -> None:
    text = read_zoo_text("llama-3-8b")
    message = refusal(text[: text.index("intermediate_size") + 5], tmp_path)
    line = text[: text.index("intermediate_size")].count("\n") + 1
    assert f"given.json:{line}: is not valid JSON" in message
    assert "truncated" in message


@pytest.mark.parametrize("key", SIZES)
@pytest.mark.parametrize(
    "value", [0, -1, 1.5, 4096.0, float("nan"), float("inf"), "4096", None, True, [4096], {}, 10**18]
)
def test_sizes_must_be_positive_whole_numbers(key: str, value: object) -> None:
    assert f"key '{key}'" in refusal(LLAMA | {key: value})


def test_layers_have_a_bound_that_is_said() -> None:
    deep = parse_config(LLAMA | {"num_hidden_layers": MAX_LAYERS}, name="deep", source="s")
    assert deep.num_layers == MAX_LAYERS
    assert f"value 10000 must be at most {MAX_LAYERS}" in refusal(LLAMA | {"num_hidden_layers": 10_000})


@pytest.mark.parametrize("key", [*SIZES, "model_type"])
def test_missing_key_is_named(key: str) -> None:
    message = refusal({name: value for name, value in LLAMA.items() if name != key})
    assert f"key '{key}': is missing" in message


@pytest.mark.parametrize(
    ("changed", "has_relu"),
    [
        (GPT2, False),
        (GPT2 | {"activation_function": "relu"}, True),
        (BERT | {"hidden_act": "relu"}, True),
        (BERT | {"hidden_act": None}, False),
        (json.loads(read_zoo_text("opt-1.3b")), True),
        (json.loads(read_zoo_text("opt-1.3b")) | {"activation_function": "gelu"}, False),
    ],
)
def test_the_activation_is_the_config_s(changed: dict, has_relu: bool) -> None:
    assert parse_config(changed, name="x", source="s").has_relu is has_relu


def test_opt_s_activation_is_a_relu_unless_its_config_says_otherwise() -> None:
    config = {key: value for key, value in json.loads(read_zoo_text("opt-350m")).items() if "activation" not in key}
    assert parse_config(config, name="x", source="s").has_relu


def test_unknown_extra_keys_change_nothing_and_are_listed_unless_harmless() -> None:
    harmless = {"torch_dtype": "bfloat16", "rope_scaling": {"factor": 8.0}, "quantization_config": None}
    plain = parse_config(LLAMA, name="x", source="s")
    assert parse_config(LLAMA | harmless, name="x", source="s") == plain
    other = parse_config(LLAMA | {"my_key": [1], "a_key": False}, name="x", source="s")
    assert other == replace(plain, unread_keys=("a_key", "my_key"))


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_any_damage_to_a_config_gives_a_model_or_an_input_error(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from([*list_models(), *RECORDED]))
    config = json.loads(read_zoo_text(name)) if name in list_models() else copy.deepcopy(RECORDED[name]["config"])
    inner = data.draw(st.sampled_from([config, config.get("text_config", config)]))
    for key in data.draw(st.lists(st.sampled_from(sorted(inner)), max_size=3)):
        inner[key] = data.draw(JSON_VALUES)
    text = json.dumps(config, indent=2)
    text = text[: data.draw(st.integers(0, len(text)) | st.just(len(text)))]
    try:
        model = parse_config_text(text, name="damaged", source="damaged.json")
    except InputError as error:
        assert len(str(error)) < 1500
        assert "\n" not in str(error)
    else:
        assert model.num_parameters > 0
        assert model.transformer.own_sequence_length > 0
