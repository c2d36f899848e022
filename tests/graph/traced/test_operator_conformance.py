"""Every shipped operator rule passes the shipped conformance suite.

Stashes are what PyTorch 2.14 saves for backward of the same module in bfloat16 (`saved_tensors_hooks`), parameters,
labels and statistics of layer norms left out. Stated choices differ: a dropout mask and a maximum's place take a byte,
and pooling does not keep its input, which PyTorch needs for its shape alone.
"""

import pytest

from phaze_opt.graph.traced.operator_rule import OperatorRule, operator_rules
from phaze_opt.graph.traced.rules.elementwise import (
    ActivationRule,
    BatchNormRule,
    CrossEntropyRule,
    DropoutRule,
    NormRule,
    PointwiseLossRule,
    ProductRule,
    SoftmaxRule,
    SumRule,
)
from phaze_opt.graph.traced.rules.moves import (
    CopyRule,
    EmbeddingBagRule,
    EmbeddingRule,
    JoinRule,
    PartRule,
    ScatterRule,
    SplitRule,
    ViewRule,
)
from phaze_opt.graph.traced.rules.products import (
    AttentionRule,
    BatchedProductRule,
    CombineRule,
    EinsumRule,
    GroupedProductRule,
    LinearRule,
    SelectionRule,
)
from phaze_opt.graph.traced.rules.recurrent import MambaRule, RecurrentRule, SelectiveScanRule
from phaze_opt.graph.traced.rules.windows import ConvolutionRule, PoolingRule
from phaze_opt.plugins import PluginGroup, list_plugins
from phaze_opt.testing.operators import OperatorRuleConformance, RuleCase, given, ids, operator_call, weight
from phaze_opt.workload.training import AttentionForm

X, Y = given(4, 8), given(4, 8, name="other")
IMAGE = given(2, 6, 5, 5)
QUERY, KEY, VALUE = given(1, 4, 8, 16), given(1, 2, 8, 16, name="key"), given(1, 2, 8, 16, name="value")
LSTM_WEIGHTS = (weight(64, 8), weight(64, 16), weight(64), weight(64))
MIXER = (
    *(weight(32, 8), weight(16, 1, 4), weight(16), weight(5, 16), weight(16, 1), weight(16)),
    *(weight(16, 2), weight(16), weight(8, 16)),
)
ROWS = ((4, 8),)


def case(stash_bytes, op, *inputs, results=ROWS, backward=2.0, **attrs):
    return RuleCase(operator_call(op, *inputs, results=results, **attrs), stash_bytes, backward)


CASES = {
    LinearRule: [
        case(64, "aten.linear", X, weight(16, 8), weight(16), results=((4, 16),)),
        case(64, "aten.linear", X, weight(16, 8), results=((4, 16),)),
        case(64, "aten.addmm", weight(16), X, weight(8, 16), results=((4, 16),)),
        case(64, "aten.mm", X, weight(8, 16), results=((4, 16),)),
    ],
    BatchedProductRule: [
        case(640, "aten.matmul", given(2, 4, 8), given(2, 8, 16, name="right"), results=((2, 4, 16),)),
        case(128, "aten.matmul", given(2, 4, 8), weight(8, 16), results=((2, 4, 16),)),
        case(128, "aten.bmm", given(2, 4, 8), weight(2, 8, 16), results=((2, 4, 16),)),
    ],
    EinsumRule: [
        case(640, "aten.einsum", "bij,bjk->bik", (given(2, 4, 8), given(2, 8, 16, name="r")), results=((2, 4, 16),))
    ],
    AttentionRule: [
        # Fused: query, key, value and the result; backward multiplies five times where forward does twice.
        case(1024 + 2 * 512 + 1024, "phaze.attention", QUERY, KEY, VALUE, results=((1, 4, 8, 16),), backward=2.5),
        # Unfused: query, key, value and the probabilities.
        case(
            1024 + 2 * 512 + 512,
            "phaze.attention",
            QUERY,
            KEY,
            VALUE,
            results=((1, 4, 8, 16),),
            attention=AttentionForm.UNFUSED,
        ),
    ],
    ActivationRule: [
        *(case(64, f"aten.{name}", X) for name in ("relu", "gelu", "tanh", "relu6", "hardswish", "sigmoid", "silu")),
        case(64, "phaze.activation", X),
        case(64, "phaze.cap", X),
        case(0, "phaze.scale", X),
        case(64, "phaze.product", X),
        case(0, "phaze.rotary", X, work=16),
        case(128, "phaze.gate", X, Y),
        case(128, "phaze.gate", given(4, 16)),
    ],
    SumRule: [
        case(0, "aten.add", X, Y),
        case(0, "aten.add", X, weight(8)),
        case(0, "aten.add", X, 1.0),
        case(0, "aten.sub", X, given(1, 8, name="row")),
    ],
    ProductRule: [
        case(128, "aten.mul", X, Y),
        case(64, "aten.mul", X, X),
        case(0, "aten.mul", X, 2.0),
        case(64, "aten.mul", X, weight(8)),
    ],
    DropoutRule: [case(32, "aten.dropout", X, 0.5, True)],
    NormRule: [
        case(64, "aten.layer_norm", X, (8,), weight(8), weight(8)),
        case(64, "phaze.norm", X, weight(8)),
        case(64, "phaze.norm", X),
    ],
    BatchNormRule: [
        # Mean and deviation of each channel in fp32.
        case(600 + 48, "aten.batch_norm", IMAGE, weight(6), weight(6), results=((2, 6, 5, 5),))
    ],
    SoftmaxRule: [case(64, "aten.softmax", X, -1)],
    CrossEntropyRule: [case(64, "aten.cross_entropy_loss", X, ids(4), results=((),))],
    PointwiseLossRule: [case(64, "aten.binary_cross_entropy_with_logits", X, ids(4, 8), results=((),))],
    EmbeddingRule: [case(32, "aten.embedding", weight(10, 8), ids(4))],
    EmbeddingBagRule: [case(96, "aten.embedding_bag", weight(10, 8), ids(4, 3))],
    ConvolutionRule: [
        case(600, "aten.conv2d", IMAGE, weight(8, 6, 3, 3), weight(8), (1, 1), (1, 1), results=((2, 8, 5, 5),)),
        case(600, "aten.conv2d", IMAGE, weight(6, 1, 3, 3), None, 1, 1, 1, 6, results=((2, 6, 5, 5),)),
        case(600, "aten.conv2d", IMAGE, weight(8, 6, 3, 3), None, 2, "same", results=((2, 8, 3, 3),)),
        # Zeros behind the image alone, and those of ``same`` around an even kernel.
        case(600, "aten.conv2d", IMAGE, weight(8, 6, 4, 4), None, 2, 0, results=((2, 8, 2, 2),)),
        case(600, "aten.conv2d", IMAGE, weight(8, 6, 4, 4), None, 1, "same", results=((2, 8, 5, 5),)),
        case(600, "aten.conv_transpose2d", IMAGE, weight(6, 8, 2, 2), None, (2, 2), results=((2, 8, 10, 10),)),
        case(
            600,
            "aten.convolution",
            IMAGE,
            weight(8, 6, 3, 3),
            None,
            (1, 1),
            (1, 1),
            (1, 1),
            False,
            (0, 0),
            1,
            results=((2, 8, 5, 5),),
        ),
    ],
    PoolingRule: [
        case(24, "aten.max_pool2d", given(2, 3, 4, 4), (2, 2), results=((2, 3, 2, 2),)),
        case(0, "aten.avg_pool2d", given(2, 3, 4, 4), (2, 2), results=((2, 3, 2, 2),)),
        case(0, "aten.mean", given(2, 3, 4, 4), (2, 3), results=((2, 3),)),
        case(192, "aten.var", given(2, 3, 4, 4), (2, 3), results=((2, 3),)),
    ],
    ViewRule: [case(0, "aten.view", X, (8, 4), results=((8, 4),))],
    PartRule: [case(0, "phaze.part", X, results=((2, 8),))],
    SplitRule: [case(0, "phaze.split", X, results=((4, 2), (4, 6)))],
    JoinRule: [
        case(0, "aten.cat", (X, Y), 1, results=((4, 16),)),
        case(0, "aten.cat", (weight(1, 8), X), results=((5, 8),)),
    ],
    CopyRule: [case(0, "aten.index_select", X, 0, ids(2), results=((2, 8),))],
    ScatterRule: [case(0, "aten.index_add", given(9, 8), 0, ids(4), Y, results=((9, 8),))],
    RecurrentRule: [
        # Input, states, and as many gates and cells as cuDNN reserves: four gates and a cell of every step.
        case(
            160 + 320 + 5 * 320,
            "aten.lstm",
            given(5, 2, 8),
            (),
            LSTM_WEIGHTS,
            True,
            1,
            0.0,
            True,
            False,
            False,
            results=((5, 2, 16), (1, 2, 16), (1, 2, 16)),
            # The zero state before the first of five steps has no gradient, and its weight none from it.
            backward=2 * (8 + 16 * 4 / 5) / (8 + 16),
        )
    ],
    GroupedProductRule: [case(128, "aten._grouped_mm", given(8, 8), weight(2, 8, 16), results=((8, 16),))],
    SelectionRule: [case(0, "aten.topk", X, 2, results=((4, 2), (4, 2)))],
    CombineRule: [case(128 + 16, "phaze.combine", given(8, 8), given(8, 1, name="router"))],
    # By hand, of 6 tokens: input 8, convolution's input 16 and result 32 (padded), activation 16, step 1, B and C 4,
    # softplus 16 and its result 16, gate 16, scan 16, gated 16 elements a token.
    # By hand, of 6 tokens: x 16, step 16 before and behind its softplus, B and C 4, gate 16, scan 16 elements a token.
    SelectiveScanRule: [
        case(
            2 * 6 * (16 + 16 + 16 + 8 + 16 + 16),
            "phaze.selective_scan",
            given(2, 16, 3),
            given(2, 16, 3, name="step"),
            weight(16, 4),
            given(2, 4, 3, name="b"),
            given(2, 4, 3, name="c"),
            weight(16),
            given(2, 16, 3, name="gate"),
            weight(16),
            results=((2, 16, 3),),
        )
    ],
    MambaRule: [case(2 * 6 * 157, "phaze.mamba_mixer", given(2, 3, 8), *MIXER, results=((2, 3, 8),))],
}


class TestShippedRules(OperatorRuleConformance):
    @pytest.fixture(params=list(CASES), ids=lambda kind: kind.__name__)
    def kind(self, request):
        return request.param

    @pytest.fixture
    def rule(self, kind) -> OperatorRule:
        return kind()

    @pytest.fixture
    def cases(self, kind) -> list[RuleCase]:
        return CASES[kind]


def test_every_shipped_rule_has_cases():
    rules = {type(rule) for rule in operator_rules().values() if type(rule).__module__.startswith("phaze_opt.")}
    assert rules == set(CASES)
    assert len(list_plugins(PluginGroup.OPERATORS)) >= len(CASES)
