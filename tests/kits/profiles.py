"""Profiles of models on chips for tests."""

from functools import cache

from phaze_opt.cost.model_profile import ModelProfile, profile_model
from phaze_opt.estimate.analytic import AnalyticEstimator
from phaze_opt.graph.any_model import load_any_model
from phaze_opt.graph.build import build_model_graph
from phaze_opt.graph.layer import LayerGraph
from phaze_opt.graph.model_graph import ModelGraph
from phaze_opt.graph.operator import CoreType, Operator, OperatorGraph, OperatorKind, Phase, VectorKind, VectorWork
from phaze_opt.hardware.networks import load_network
from phaze_opt.hardware.presets import load_architecture
from phaze_opt.workload.chain import ChainCut
from phaze_opt.workload.training import TrainingSpec


@cache
def profile_of(name: str, t: int = 1, *, devices: int = 8, batch: int = 2, tokens: int | None = None) -> ModelProfile:
    """A model by name or file on one of ``t`` chips like TPUv4, ideal operators."""
    model = load_any_model(name)
    training = TrainingSpec(batch, tokens or model.own_sequence_length, batch)
    return _profiled(model, training, build_model_graph(model, training, tensor_parallel=t), devices)


def wide_profile(num_operators: int) -> ModelProfile:
    """A model of one layer whose forward is so many vector operators, each read by the next and by the tenth behind."""
    operators = tuple(_vector(f"operator_{index}", 1000 + 37 * index % 4096) for index in range(num_operators))
    edges = {(i, i + step) for i in range(num_operators) for step in (1, 10) if i + step < num_operators}
    forward = OperatorGraph(operators, tuple(sorted(edges)))
    layer = LayerGraph("wide", forward, OperatorGraph((), ()), OperatorGraph((), ()), 0, 0, 0, *[0.0] * 5)
    model = load_any_model("tiny")
    graph = ModelGraph("wide", 1, (layer,), ChainCut((), ((0,),), (), (0,)))
    return _profiled(model, TrainingSpec(1, 8, 1), graph, 1)


def _vector(name: str, elements: int) -> Operator:
    works = (VectorWork(VectorKind.ADD, elements),)
    return Operator(name, Phase.FORWARD, OperatorKind.VECTOR, CoreType.VC, (), works, 2.0 * elements, 2.0 * elements)


def _profiled(model: object, training: TrainingSpec, graph: ModelGraph, devices: int) -> ModelProfile:
    network = load_network("two-level", num_devices=devices)
    chip = load_architecture("phaze-tpu-v4")
    return profile_model(model, training, graph, accelerator=chip, estimator=AnalyticEstimator(), network=network)
