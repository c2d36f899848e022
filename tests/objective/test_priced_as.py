"""What answers say that a model was priced as."""

from pathlib import Path

import pytest
from kits.family_models import RECORDED
from kits.mixed_models import VisionLike

from phaze_opt.graph.any_model import load_any_model
from phaze_opt.objective.priced_as import priced_as, priced_to_json
from phaze_opt.workload.config import load_model, parse_config


def test_parameters_layers_and_flops_of_a_token() -> None:
    """GPT-2 XL at its 1,024 tokens: 6 x weights that multiply a token + 12 x layers x hidden x sequence."""
    (priced,) = priced_as([load_model("gpt2-xl")], None)
    weights = 48 * 12 * 1600**2 + 50257 * 1600
    assert priced.flops_per_token == 6 * weights + 12 * 48 * 1600 * 1024
    assert priced.sentence == (
        "gpt2-xl is priced as GPT2LMHeadModel, 1,557,611,200 parameters, 48 layers, 10.27 GFLOP a token of 1,024."
    )
    assert priced.warning == ""


def test_blocks_of_a_residual_net_are_its_layers_and_an_image_is_a_sample() -> None:
    model = load_any_model(str(Path(__file__).parents[1] / "traced_models" / "resnet18.json"))
    (priced,) = priced_as([model], None)
    assert priced.num_layers == 8 < len(model.cut.chain)
    assert priced.sentence.endswith("GFLOP a sample.")


def test_a_chain_most_of_which_has_no_number_is_counted_whole() -> None:
    chain = VisionLike(load_model("tiny"), 197, (0, 1, 2))
    (priced,) = priced_as([chain], None)
    assert (chain.num_layers, priced.num_layers) == (1, 3)


def test_a_sequence_that_is_asked_for_counts() -> None:
    asked, own = (priced_as([load_model("bert-large")], length)[0] for length in (128, None))
    assert (asked.sequence_length, own.sequence_length) == (128, 512)
    assert asked.flops_per_token < own.flops_per_token


@pytest.mark.parametrize(("name", "listed"), [("deepseek-v3", True), ("qwen3-8b", False)])
def test_keys_that_were_not_read_are_a_warning(name: str, listed: bool) -> None:  # noqa: FBT001
    (priced,) = priced_as([parse_config(RECORDED[name]["config"], name=name, source="s")], None)
    assert ("num_nextn_predict_layers" in priced.warning) is listed
    (data,) = priced_to_json([priced])
    assert data["unread_keys"] == list(priced.unread_keys)


def test_an_encoder_s_blocks_are_layers_too() -> None:
    (priced,) = priced_as([load_model("t5-large")], None)
    assert (priced.num_layers, priced.architecture) == (48, "T5ForConditionalGeneration")
