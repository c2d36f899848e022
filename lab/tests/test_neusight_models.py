"""Whole models in fp32: error on the package's measurements, kernels counted, plans that agree with each other."""

from dataclasses import replace

import numpy as np
import pytest
from kits.measured_rows import public_rows

from phaze_opt.graph.operator import CoreType, Matmul, Operator, OperatorKind, Phase, VectorKind, VectorWork
from phaze_opt.hardware.device_catalogue import load_device
from phaze_opt.validation.measured_row import Row
from phaze_opt.validation.packs import known_constants
from phaze_opt_lab.fp32.eager_kernels import EagerModel, eager_kernels
from phaze_opt_lab.fp32.kernels import Kernel
from phaze_opt_lab.fp32.models import FP32_MODELS, streaming_share

FAMILY = FP32_MODELS
EAGER = EagerModel(sequence_length=1024, hidden_size=1280, has_tanh_gelu=True, is_training=True)
GPT = {
    "hardware": "H100-SXM",
    "n_devices": "1",
    "model": "gpt2_large",
    "layers": "36",
    "hidden": "1280",
    "heads": "20",
    "ffn": "5120",
    "vocab": "50257",
    "mode": "inf",
    "seq": "1024",
    "batch": "4",
    "tp": "1",
    "pp": "1",
    "dp": "1",
    "dtype": "fp32",
    "e2e_ms": "215.0",
}


def _row(**values: str) -> Row:
    return Row(dataset="e2e_neusight_fp32", source="own.csv", line=2, values=GPT | values)


def _predict(*rows: Row) -> np.ndarray:
    return FAMILY.compile(rows).seconds(known_constants())


def test_public_rows_with_one_constant_of_their_own() -> None:
    """All 61 scored; 4.9 %, and 6.2 with operators' constants alone."""
    rows = public_rows(*FAMILY.datasets)
    compiled = FAMILY.compile(rows)
    assert not compiled.unscored
    assert len(FAMILY.parameters(rows)) == 1
    errors = np.abs(compiled.seconds(known_constants()) / compiled.measured_s - 1.0)
    assert errors.mean() < 0.055
    none = known_constants().updated({"fp32/models": {"streaming_power": 1.0}})
    assert np.abs(compiled.seconds(none) / compiled.measured_s - 1.0).mean() < 0.07
    assert np.sort(errors)[-3:].max() < 0.3


def test_parts_add_up() -> None:
    """Parts of a step sum to it."""
    rows = (_row(mode="train"), _row(mode="train", n_devices="4", tp="4"))
    compiled = FAMILY.compile(rows)
    for index, predicted in enumerate(compiled.seconds(known_constants())):
        assert sum(part.seconds for part in compiled.explain(known_constants(), index)) == pytest.approx(predicted)


def test_training_takes_about_three_forwards() -> None:
    """Backward costs twice the forward, less where memory bounds it."""
    forward, step = _predict(_row(), _row(mode="train"))
    assert 2.5 < step / forward < 3.5


def test_stages_of_one_micro_batch_take_as_long_as_one_device() -> None:
    """With one micro-batch no stage overlaps another; with four the pipeline pays."""
    alone, one, four = _predict(
        _row(mode="train"),
        _row(mode="train", n_devices="4", pp="4", option="pp4_1"),
        _row(mode="train", n_devices="4", pp="4", option="pp4_4"),
    )
    assert one == pytest.approx(alone, rel=0.05)
    assert four < 0.8 * one


def test_replicas_share_the_batch() -> None:
    """Four replicas of one sequence each take little more than one sequence alone."""
    one, four = _predict(_row(mode="train", batch="1"), _row(mode="train", batch="4", n_devices="4", dp="4"))
    assert one <= four < 1.2 * one


@pytest.mark.parametrize("name", ["gpt2_large", "bert_large", "opt_13"])
def test_a_model_s_name_is_read_in_any_case(name: str) -> None:
    """What decides kernels and heads are the first letters of the name."""
    lower, upper = _predict(_row(model=name), _row(model=name.upper()))
    assert upper == lower


def test_compiled_chains_save_time() -> None:
    """Fusing chains never costs."""
    eager, compiled = _predict(_row(), _row(option="fusion"))
    assert 0.6 * eager < compiled < eager


def _vector(name: str, kind: VectorKind, elements: int, *, phase: Phase = Phase.FORWARD) -> Operator:
    return Operator(
        name=name,
        phase=phase,
        kind=OperatorKind.VECTOR,
        core_type=CoreType.VC,
        vector_works=(VectorWork(kind, elements),),
        bytes_read=4.0 * elements,
        bytes_written=4.0 * elements,
    )


def test_streaming_lends_power_only_where_power_limits() -> None:
    """L4 multiplies far below its peak for want of power; V100 does not, and matrix units spend less."""
    fitted = known_constants()
    drawn = fitted.value("fp32/models", "streaming_power")
    assert streaming_share(load_device("l4"), fitted) == drawn < 1.0
    assert streaming_share(load_device("v100-pcie"), fitted) == 1.0
    assert streaming_share(load_device("mi210"), fitted) == 1.0
    assert 1.0 > streaming_share(load_device("h100-pcie"), fitted) > drawn


def test_kernels_of_an_operator() -> None:
    """Softmax and norms by rows, tanh GELU as eight kernels of eighteen passes, dropout only in training."""
    assert eager_kernels(_vector("softmax", VectorKind.SOFTMAX_FORWARD, 2048), EAGER) == (
        Kernel("softmax", (2.0, 1024)),
    )
    assert eager_kernels(_vector("mlp_norm", VectorKind.NORM_FORWARD, 2560), EAGER) == (Kernel("norm", (2.0, 1280)),)
    (gelu,) = eager_kernels(_vector("mlp_activation", VectorKind.ACTIVATION_FORWARD, 100), EAGER)
    assert gelu.count == 8
    assert gelu.count * gelu.sizes[0] == pytest.approx(18 * 400)
    dropout = _vector("mlp_dropout", VectorKind.ADD, 100)
    assert eager_kernels(dropout, EAGER)
    assert eager_kernels(dropout, replace(EAGER, is_training=False)) == ()
    assert eager_kernels(_vector("mlp_up_bias", VectorKind.ADD, 100), EAGER) == ()


def test_scores_are_scaled_and_masked_unless_compiled() -> None:
    """Two kernels over the scores beside their matmul."""
    scores = Operator(
        name="scores",
        phase=Phase.FORWARD,
        kind=OperatorKind.MATMUL,
        core_type=CoreType.TC,
        matmuls=(Matmul(80, 1024, 1024, 64),),
    )
    product = Kernel("matmul", (80, 1024, 1024, 64))
    mask = Kernel("stream", (8.0 * 80 * 1024 * 1024,), 2)
    assert eager_kernels(scores, EAGER) == (product, mask)
    assert eager_kernels(scores, replace(EAGER, is_compiled=True)) == (product,)
