"""Everything about a model that does not depend on the architecture, computed once and kept."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from phaze_opt.estimate.collectives import collective_s, group_dimensions, sent_bytes
from phaze_opt.graph.build import build_model_graph
from phaze_opt.graph.flops import model_flops
from phaze_opt.graph.layer import LayerGraph, ModelGraph
from phaze_opt.graph.operator import CoreType, Operator, OperatorGraph, Phase
from phaze_opt.hardware.network import Network
from phaze_opt.objective.scenario import Scenario
from phaze_opt.schedule.structure import ScheduleStructure, compile_structure
from phaze_opt.workload.model import ModelSpec
from phaze_opt.workload.training import TrainingSpec

Prepare = Callable[[Sequence[Operator]], Sequence[Operator]]
PHASES = (Phase.FORWARD, Phase.BACKWARD, Phase.UPDATE)


@dataclass(frozen=True, slots=True)
class CompiledPhase:
    """One scheduling problem: a layer's phase at one tensor degree.

    Attributes:
        layer: name of the layer.
        phase: forward, backward or update.
        structure: topology of its schedule.
        columns: index of each of its operators in `CompiledModel.operators`, shape (num_operators,).
        core_types: of each operator as the scheduler sees it (NETWORK is contracted like NONE).
        is_core: whether each operator occupies a core (NETWORK and NONE do not), same shape.
        edges: precedence between its operators.
        collective_s: its tensor-parallel collectives, one after the other, s.
        collective_bytes: bytes a device sends for them.
    """

    layer: str
    phase: Phase
    structure: ScheduleStructure
    columns: NDArray[np.int64]
    core_types: tuple[CoreType, ...]
    is_core: NDArray[np.bool_]
    edges: tuple[tuple[int, int], ...]
    collective_s: float
    collective_bytes: float


@dataclass(frozen=True, slots=True)
class CompiledOption:
    """A model sharded for one tensor degree.

    Attributes:
        graph: the sharded model.
        phases: ``phases[layer][phase]`` in the order of ``graph.layers`` and `PHASES`.
        core_columns: columns of its operators that occupy a core, shape (num_core_operators,).
        core_operators: those operators, as the estimator likes them.
    """

    graph: ModelGraph
    phases: tuple[tuple[CompiledPhase, CompiledPhase, CompiledPhase], ...]
    core_columns: NDArray[np.int64]
    core_operators: Sequence[Operator]

    @property
    def collective_s(self) -> NDArray[np.float64]:
        """Tensor-parallel collectives, shape (num_distinct_layers, 3), s."""
        return np.array([[phase.collective_s for phase in layer] for layer in self.phases])


@dataclass(frozen=True, slots=True)
class CompiledModel:
    """A model at one micro-batch, for every tensor degree it admits; ``operators`` are shared by all of them."""

    model: ModelSpec
    training: TrainingSpec
    operators: Sequence[Operator]
    options: tuple[CompiledOption, ...]
    flops_per_sample: float


def compile_model(scenario: Scenario, model: ModelSpec, *, micro_batch: int, prepare: Prepare = tuple) -> CompiledModel:
    """Build the graphs of a model for every tensor degree and precompute what no architecture changes.

    Args:
        scenario: workload, cluster and choices.
        model: one of its models.
        micro_batch: samples.
        prepare: what the estimator does to operators once (`CompilingEstimator.compile`).
    """
    training = scenario.training_of(model, micro_batch)
    operators: list[Operator] = []
    options = tuple(
        _compile_option(
            build_model_graph(model, training, tensor_parallel=degree),
            network=scenario.cluster.network,
            operators=operators,
            prepare=prepare,
        )
        for degree in scenario.tensor_degrees_of(model)
    )
    return CompiledModel(
        model=model,
        training=training,
        operators=prepare(operators),
        options=options,
        flops_per_sample=model_flops(model, training.sequence_length),
    )


def _compile_option(
    graph: ModelGraph, *, network: Network, operators: list[Operator], prepare: Prepare
) -> CompiledOption:
    """Compile every distinct layer of one graph, appending its operators to the shared list."""
    phases = tuple(_compile_layer(layer, graph.tensor_parallel, network, operators) for layer in graph.layers)
    columns = np.concatenate([phase.columns[phase.is_core] for layer in phases for phase in layer])
    return CompiledOption(
        graph=graph,
        phases=phases,
        core_columns=columns,
        core_operators=prepare([operators[column] for column in columns]),
    )


def _compile_layer(
    layer: LayerGraph, degree: int, network: Network, operators: list[Operator]
) -> tuple[CompiledPhase, CompiledPhase, CompiledPhase]:
    """Compile the three problems of one layer."""
    forward, backward, update = (
        _compile_phase(layer.name, phase, graph, degree=degree, network=network, operators=operators)
        for phase, graph in zip(PHASES, layer.phases, strict=True)
    )
    return forward, backward, update


def _compile_phase(
    layer: str, phase: Phase, graph: OperatorGraph, *, degree: int, network: Network, operators: list[Operator]
) -> CompiledPhase:
    """Compile one problem: its topology, its operators' columns and its collectives."""
    first = len(operators)
    operators.extend(graph.operators)
    kinds = (operator.core_type for operator in graph.operators)
    core_types = tuple(CoreType.NONE if kind is CoreType.NETWORK else kind for kind in kinds)
    dimensions = group_dimensions(network, size=degree, stride=1)
    collectives = [operator.collective for operator in graph.operators if operator.collective is not None]
    seconds = sum(collective_s(c.kind, c.payload_bytes, dimensions) for c in collectives) if degree > 1 else 0.0
    sent = sum(sent_bytes(c.kind, c.payload_bytes, dimensions) for c in collectives) if degree > 1 else 0.0
    return CompiledPhase(
        layer=layer,
        phase=phase,
        structure=compile_structure(core_types, graph.edges),
        columns=np.arange(first, first + len(graph), dtype=np.int64),
        core_types=core_types,
        is_core=np.array([kind is not CoreType.NONE for kind in core_types], dtype=np.bool_),
        edges=graph.edges,
        collective_s=float(seconds),
        collective_bytes=float(sent),
    )
