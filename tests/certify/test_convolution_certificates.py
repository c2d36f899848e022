"""Proofs over layers with convolutions, groups and recurrences: equal to brute force, and checked independently."""

from pathlib import Path

import pytest
from kits.tape_layers import lowered, record
from small_problems import brute_force, small_problem, small_scenario, small_space

from phaze_opt.certify.check import problem_data
from phaze_opt.certify.check.check import check_certificate
from phaze_opt.certify.problem import CertifyOptions
from phaze_opt.certify.prove import certify
from phaze_opt.graph import operations as ops
from phaze_opt.graph.convolution_shape import ConvolutionShape
from phaze_opt.graph.convolutions import batch_norm, convolution
from phaze_opt.graph.model_graph import ModelGraph
from phaze_opt.graph.operations import HARD_SWISH
from phaze_opt.graph.operator import PUBLISHED_SHARDING, ShardingOptions
from phaze_opt.graph.program import Tape, Tensor
from phaze_opt.graph.traced.rules.recurrent import RecurrentShape, lstm
from phaze_opt.objective import compile as compile_module
from phaze_opt.workload.chain import ChainCut
from phaze_opt.workload.model import ModelSpec
from phaze_opt.workload.training import TrainingSpec

ELEMENTS = 2 * 32 * 28 * 28


def residual(tape: Tape, tensor: Tensor) -> Tensor:
    """Two ways that run side by side, one of them depthwise, and their sum."""
    plain = ConvolutionShape(2, 32, 32, (28, 28), (1, 1))
    apart = ConvolutionShape(2, 32, 32, (28, 28), (3, 3), padding=(1, 1), groups=32)
    one = batch_norm(tape, "one.norm", convolution(tape, "one", tensor, plain), channels=32)
    two = ops.elementwise(tape, "swish", (convolution(tape, "two", tensor, apart, has_bias=True),), HARD_SWISH)
    return ops.elementwise(tape, "relu", (ops.add(tape, "sum", one, two),), ops.RELU)


def recurrent(tape: Tape, tensor: Tensor) -> Tensor:
    """Steps over the rows of the images."""
    return lstm(tape, "lstm", tensor, RecurrentShape(56, 14, 64, 64))


def classes(tape: Tape, tensor: Tensor) -> Tensor:
    return ops.loss(tape, "loss", ops.linear(tape, "classes", tensor, rows=2, inner=28 * 28 * 32, width=10))


def graph_of(model: ModelSpec, training: TrainingSpec, *, tensor_parallel: int, options: ShardingOptions) -> ModelGraph:
    """A chain of all three, whatever the model says."""
    assert options is PUBLISHED_SHARDING
    layers = tuple(lowered(record(ELEMENTS, layer)) for layer in (residual, recurrent, classes))
    return ModelGraph(model.name, tensor_parallel, layers, ChainCut((0,), ((0, 1),), (2,), (0,)))


@pytest.mark.parametrize("estimator", ["analytic", "calibrated"])
def test_a_proof_equals_brute_force_and_its_check_passes(
    estimator: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (compile_module, problem_data):
        monkeypatch.setattr(module, "build_model_graph", graph_of)
    space = small_space(num_tc=(1, 8), num_vc=(2, 16), tc_width=(16, 64), micro_batch=(1,))
    problem = small_problem(small_scenario(tensor_parallel=(1,), estimator=estimator), space)
    result = certify(problem, CertifyOptions(tolerance=0.0, directory=tmp_path))
    values, _ = brute_force(problem)
    assert len(set(values)) > 4  # noqa: PLR2004
    report = check_certificate(result.directory)
    assert report.claim.value == pytest.approx(max(values), rel=1e-9)
    assert report.claim.is_proved
