"""Where a micro-batch stands in a view, by the order in which elements lie; what frameworks say they miss."""

import pytest

from phaze_opt.extract.hugging_face import _refused
from phaze_opt.extract.onnx_operations import rescaled
from phaze_opt.record.document import Document


@pytest.mark.parametrize(
    ("before", "after", "now", "within", "found"),
    [
        ((1, 256, 6, 6), (1, 9216), (3, 256, 6, 6), 1, ((3, 9216), 1)),
        ((2, 256, 6, 6), (2, 9216), (3, 256, 6, 6), 1, ((3, 9216), 1)),
        # Tokens and samples to rows, and back: samples stand behind the 5 tokens.
        ((5, 4, 64), (20, 64), (5, 2, 64), 1, ((10, 64), 5)),
        ((5, 1, 64), (5, 64), (5, 2, 64), 1, ((10, 64), 5)),
        ((20, 64), (5, 4, 64), (10, 64), 5, ((5, 2, 64), 1)),
        ((5, 64), (5, 1, 64), (10, 64), 5, ((5, 2, 64), 1)),
        # Channels to heads, which join the samples, and apart again.
        ((5, 4, 64), (5, 32, 8), (5, 2, 64), 1, ((5, 16, 8), 1)),
        ((5, 1, 64), (5, 8, 8), (5, 2, 64), 1, ((5, 16, 8), 1)),
        ((32, 5, 8), (4, 8, 5, 8), (16, 5, 8), 1, ((2, 8, 5, 8), 1)),
        ((8, 5, 8), (1, 8, 5, 8), (16, 5, 8), 1, ((2, 8, 5, 8), 1)),
        ((5, 8, 8), (5, 64), (5, 16, 8), 1, ((10, 64), 5)),
        # Two axes changed, or other elements.
        ((2, 2, 8), (4, 8), (3, 3, 8), 1, None),
        ((2, 8), (3, 8), (5, 8), 1, None),
    ],
)
def test_a_view_at_another_micro_batch(before, after, now, within, found):
    assert rescaled(before, after, now, within=within) == found


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ImportError("XWrapper requires the timm library but it was not found in it."), "pip install timm"),
        (ImportError("requires the `causal-conv1d` library"), "pip install causal-conv1d"),
        (ValueError("hidden_size"), "correct the config"),
    ],
)
def test_a_library_that_is_missed_is_no_fault_of_the_config(error, words):
    said = str(_refused(Document({}, "", "config.json", is_json=True), "Model", error))
    assert words in said
    assert ("correct the config" in said) is (words == "correct the config")
