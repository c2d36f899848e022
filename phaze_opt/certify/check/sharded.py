"""A model sharded for one tensor degree, as placement and scheduling see it (semantics 4 and 5)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from phaze_opt.estimate.collectives import collective_s, group_dimensions
from phaze_opt.graph.build import build_model_graph
from phaze_opt.graph.layer import LayerGraph, ModelGraph
from phaze_opt.graph.operator import CoreType, Operator, OperatorGraph, Phase
from phaze_opt.hardware.network import Network
from phaze_opt.objective.scenario import Scenario
from phaze_opt.workload.training import Optimizer

PHASES = (Phase.FORWARD, Phase.BACKWARD, Phase.UPDATE)
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class PhaseGraph:
    """One scheduling problem.

    Attributes:
        core_types: as the scheduler sees them: NETWORK is NONE.
        edges: precedence.
        first: position of its first operator among the model's.
        collective_s: its tensor-parallel collectives, one after the other, s.
    """

    core_types: tuple[CoreType, ...]
    edges: tuple[tuple[int, int], ...]
    first: int
    collective_s: float

    @property
    def columns(self) -> slice:
        """Its operators among the model's."""
        return slice(self.first, self.first + len(self.core_types))


@dataclass(frozen=True, slots=True)
class LayerSizes:
    """Sizes of every distinct layer, bytes, each of shape (num_distinct_layers,); names as in `LayerCosts`."""

    state: Floats
    gradient: Floats
    stash: Floats
    inputs: Floats
    working_set: Floats
    output: Floats


@dataclass(frozen=True, slots=True)
class Sharded:
    """One tensor degree of a model at one micro-batch.

    Attributes:
        degree: t.
        chain: distinct layer of every position of the chain, shape (num_layers,).
        sizes: of the distinct layers.
        tied_state, tied_gradient: bytes of the last layer's copy of the first one's weights, of no use in one stage.
        tied_share: share of the last layer's update that this copy takes.
        phases: ``phases[layer][phase]`` in the order of `PHASES`.
    """

    degree: int
    chain: NDArray[np.int64]
    sizes: LayerSizes
    tied_state: float
    tied_gradient: float
    tied_share: float
    phases: tuple[tuple[PhaseGraph, ...], ...]

    @property
    def collective_s(self) -> Floats:
        """Collectives of every distinct layer and phase, shape (num_distinct_layers, 3), s."""
        return np.array([[phase.collective_s for phase in layer] for layer in self.phases])


@dataclass(frozen=True, slots=True)
class ModelData:
    """A model at one micro-batch: all its tensor degrees, and their operators in one list."""

    operators: tuple[Operator, ...]
    options: tuple[Sharded, ...]


def build_model_data(scenario: Scenario, model: int, *, micro_batch: int) -> ModelData:
    """The graphs of one model of the scenario at one micro-batch."""
    spec = scenario.models[model]
    training = scenario.training_of(spec, micro_batch)
    operators: list[Operator] = []
    options = []
    for degree in scenario.tensor_degrees_of(spec):
        graph = build_model_graph(spec, training, tensor_parallel=degree)
        options.append(_shard(graph, scenario.cluster.network, training.optimizer, operators))
    return ModelData(tuple(operators), tuple(options))


def _shard(graph: ModelGraph, network: Network, optimizer: Optimizer, operators: list[Operator]) -> Sharded:
    """One degree, appending its operators to the shared list."""
    phases = []
    for layer in graph.layers:
        of_layer = []
        for phase in layer.phases:
            of_layer.append(_phase(phase, graph.tensor_parallel, network, first=len(operators)))
            operators.extend(phase.operators)
        phases.append(tuple(of_layer))
    last = graph.layers[graph.chain[-1]]
    tied = last.num_tied_parameters if len(graph.chain) > 1 else 0
    return Sharded(
        degree=graph.tensor_parallel,
        chain=np.array(graph.chain, dtype=np.int64),
        sizes=_sizes(graph.layers, optimizer),
        tied_state=float(tied * optimizer.bytes_per_parameter),
        tied_gradient=float(tied * optimizer.gradient_bytes),
        tied_share=tied / last.num_parameters if tied else 0.0,
        phases=tuple(phases),
    )


def _sizes(layers: tuple[LayerGraph, ...], optimizer: Optimizer) -> LayerSizes:
    """State is weight, gradient and optimizer state of every parameter."""
    parameters = np.array([layer.num_parameters for layer in layers], dtype=np.float64)
    return LayerSizes(
        state=parameters * optimizer.bytes_per_parameter,
        gradient=parameters * optimizer.gradient_bytes,
        stash=np.array([layer.stash_bytes for layer in layers], dtype=np.float64),
        inputs=np.array([layer.input_bytes for layer in layers], dtype=np.float64),
        working_set=np.array([layer.working_set_bytes for layer in layers], dtype=np.float64),
        output=np.array([layer.output_bytes for layer in layers], dtype=np.float64),
    )


def _phase(graph: OperatorGraph, degree: int, network: Network, *, first: int) -> PhaseGraph:
    """One problem with the time of its collectives over the innermost ``degree`` devices."""
    dimensions = group_dimensions(network, size=degree, stride=1)
    collectives = [operator.collective for operator in graph.operators if operator.collective is not None]
    seconds = [collective_s(c.kind, c.payload_bytes, dimensions) for c in collectives] if degree > 1 else []
    kinds = (operator.core_type for operator in graph.operators)
    return PhaseGraph(
        core_types=tuple(CoreType.NONE if kind is CoreType.NETWORK else kind for kind in kinds),
        edges=graph.edges,
        first=first,
        collective_s=float(sum(seconds)),
    )
