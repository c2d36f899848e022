"""What the layers of a model are made of, and what every operator takes on one chip: no plan, no step."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from phaze_opt.estimate.collectives import collective_s, group_dimensions
from phaze_opt.estimate.protocol import Estimator
from phaze_opt.graph.layer import LayerGraph, PartGraph
from phaze_opt.graph.model_graph import ModelGraph
from phaze_opt.graph.operator import CoreType, Operator, OperatorGraph, Phase
from phaze_opt.hardware.accelerator import Accelerator, table_of
from phaze_opt.hardware.network import Network, NetworkDimension
from phaze_opt.schedule.precedence import ROUNDING, Mobility, find_mobility
from phaze_opt.schedule.problem import Cores, Exclusivity
from phaze_opt.schedule.solve import ScheduleBounds, bound_compiled
from phaze_opt.schedule.structure import compile_structure
from phaze_opt.workload.training import TrainingSpec
from phaze_opt.workload.workload import Workload


@dataclass(frozen=True, slots=True)
class OperatorProfile:
    """One operator on the chip.

    Attributes:
        operator: what it is.
        latency_s: spread over all cores of its types; of a collective on the network; 0 of a view.
        traffic_bytes: HBM traffic then.
    """

    operator: Operator
    latency_s: float
    traffic_bytes: float

    @property
    def work(self) -> tuple[int, float]:
        """Matmul FLOPs, and bytes of operands and results."""
        return self.operator.matmul_flops, self.operator.traffic_bytes


@dataclass(frozen=True, slots=True)
class PhaseProfile:
    """Forward, backward or update of a layer on the chip.

    Attributes:
        phase: which.
        graph: its operators and their order.
        operators: each on the chip, in the order of the graph.
        mobility: slack of each where every operator takes its ``latency_s``; its length is the critical path, below
            which no schedule can be.
        compute: bounds of the shortest schedule; ``upper_s`` is attained. Collectives are apart.
        collective_s: collectives, one after the other.
    """

    phase: Phase
    graph: OperatorGraph
    operators: tuple[OperatorProfile, ...]
    mobility: Mobility
    compute: ScheduleBounds
    collective_s: float

    @property
    def seconds(self) -> float:
        """A schedule that is attained, and the collectives."""
        return self.compute.upper_s + self.collective_s

    @property
    def flops(self) -> int:
        """Matmul FLOPs."""
        return sum(each.operator.matmul_flops for each in self.operators)

    @property
    def operand_bytes(self) -> float:
        """Operands and results of its operators, each read and written by itself."""
        return sum((each.operator.traffic_bytes for each in self.operators), start=0.0)

    @property
    def traffic_bytes(self) -> float:
        """HBM traffic on the chip."""
        return sum((each.traffic_bytes for each in self.operators), start=0.0)

    @property
    def critical(self) -> tuple[int, ...]:
        """Operators on the critical path, or on one of several."""
        return tuple(index for index in range(len(self.operators)) if self.mobility.is_critical(index))

    @property
    def tight_edges(self) -> tuple[tuple[int, int], ...]:
        """Edges of the graph that the critical path runs along: the next operator starts where the one before ends."""
        critical, asap = frozenset(self.critical), self.mobility.asap_s
        slack = ROUNDING * self.mobility.length_s

        def is_tight(edge: tuple[int, int]) -> bool:
            source, target = edge
            is_critical = source in critical and target in critical
            return is_critical and asap[target] - asap[source] - self.operators[source].latency_s <= slack

        return tuple(filter(is_tight, self.graph.edges))


@dataclass(frozen=True, slots=True)
class LayerProfile:
    """One distinct layer on the chip: sizes of its graph, its phases, and how often the model has it."""

    graph: LayerGraph
    repeats: int
    forward: PhaseProfile
    backward: PhaseProfile
    update: PhaseProfile

    @property
    def phases(self) -> tuple[PhaseProfile, PhaseProfile, PhaseProfile]:
        """Forward, backward and update."""
        return self.forward, self.backward, self.update

    @property
    def num_operators(self) -> int:
        """Of forward and backward."""
        return len(self.forward.operators) + len(self.backward.operators)

    @property
    def flops(self) -> int:
        """Matmul FLOPs of forward and backward."""
        return self.forward.flops + self.backward.flops

    @property
    def operand_bytes(self) -> float:
        """Operands and results of forward and backward."""
        return self.forward.operand_bytes + self.backward.operand_bytes

    @property
    def traffic_bytes(self) -> float:
        """HBM traffic of forward and backward on the chip."""
        return self.forward.traffic_bytes + self.backward.traffic_bytes

    @property
    def intensity(self) -> float:
        """Matmul FLOPs for each byte of operands and results of forward and backward."""
        return ratio(self.flops, self.operand_bytes)

    @property
    def seconds(self) -> float:
        """Forward and backward of a micro-batch."""
        return self.forward.seconds + self.backward.seconds

    @property
    def path_s(self) -> float:
        """Critical paths of forward and backward."""
        return self.forward.mobility.length_s + self.backward.mobility.length_s


@dataclass(frozen=True, slots=True)
class ModelProfile:
    """A model on one device of a tensor-parallel group, layer by layer; one micro-batch.

    Attributes:
        model: what it is of.
        training: micro-batch, sequence, optimizer.
        accelerator: the chip.
        network: that the collectives run on.
        graph: the sharded model.
        layers: its distinct layers, as in ``graph``.
    """

    model: Workload
    training: TrainingSpec
    accelerator: Accelerator
    network: Network
    graph: ModelGraph
    layers: tuple[LayerProfile, ...]

    @property
    def stash_bytes(self) -> float:
        """Activations of all layers kept for backward; what two neighbours keep counts once."""
        return PartGraph(tuple(self.graph.layers[kind] for kind in self.graph.chain)).stash_bytes

    @property
    def num_parameters(self) -> int:
        """Parameters on the device: the model's own count, or of a shard the sum of layers.

        The sum counts what first and last layer share once, and what others share as often as it is read.
        """
        if self.graph.tensor_parallel == 1:
            return self.model.num_parameters
        each = ((layer.graph.num_parameters - layer.graph.num_tied_parameters) * layer.repeats for layer in self.layers)
        return sum(each)

    @property
    def flops(self) -> int:
        """Matmul FLOPs of forward and backward of all layers."""
        return sum(layer.flops * layer.repeats for layer in self.layers)

    @property
    def operand_bytes(self) -> float:
        """Operands and results of forward and backward of all layers."""
        return sum((layer.operand_bytes * layer.repeats for layer in self.layers), start=0.0)

    @property
    def traffic_bytes(self) -> float:
        """HBM traffic of forward and backward of all layers on the chip."""
        return sum((layer.traffic_bytes * layer.repeats for layer in self.layers), start=0.0)

    @property
    def seconds(self) -> float:
        """Forward and backward of all layers, one after the other."""
        return sum((layer.seconds * layer.repeats for layer in self.layers), start=0.0)

    @property
    def num_operators(self) -> int:
        """Of forward and backward of all layers."""
        return sum(layer.num_operators * layer.repeats for layer in self.layers)

    @property
    def heaviest(self) -> tuple[LayerProfile, ...]:
        """The distinct layers, those first that take most of the model's time; of equal ones the earlier."""
        return tuple(sorted(self.layers, key=lambda layer: -layer.seconds * layer.repeats))


def profile_model(
    model: Workload,
    training: TrainingSpec,
    graph: ModelGraph,
    *,
    accelerator: Accelerator,
    estimator: Estimator,
    network: Network,
    exclusivity: Exclusivity = Exclusivity.CHIP,
) -> ModelProfile:
    """The layers of a sharded model on a chip. Schedules are bracketed, not solved: nothing here searches.

    Args:
        model: what ``graph`` is of.
        training: what it was built with.
        graph: the sharded model.
        accelerator: the chip.
        estimator: what prices operators.
        network: that the tensor-parallel group is part of.
        exclusivity: what an operator excludes that is spread over all cores.
    """
    group = group_dimensions(network, size=graph.tensor_parallel, stride=1)
    chip = _Chip(accelerator, estimator, group, exclusivity)
    layers = tuple(
        LayerProfile(layer, graph.chain.count(kind), *(chip.profile(phase, of) for phase, of in _phases(layer)))
        for kind, layer in enumerate(graph.layers)
    )
    return ModelProfile(model, training, accelerator, network, graph, layers)


def _phases(layer: LayerGraph) -> Sequence[tuple[Phase, OperatorGraph]]:
    return (Phase.FORWARD, layer.forward), (Phase.BACKWARD, layer.backward), (Phase.UPDATE, layer.update)


@dataclass(frozen=True, slots=True)
class _Chip:
    """What prices a phase."""

    accelerator: Accelerator
    estimator: Estimator
    group: Sequence[NetworkDimension]
    exclusivity: Exclusivity

    def profile(self, phase: Phase, graph: OperatorGraph) -> PhaseProfile:
        """A phase: its operators priced, their slack, and what a schedule of them takes."""
        estimates = self.estimator.estimate(graph.operators, table_of(self.accelerator))
        spread_s, traffic = estimates.spread_s[0], estimates.traffic_bytes[0]
        collectives = [self._collective_s(operator) for operator in graph.operators]
        latencies = [own or float(spread) for own, spread in zip(collectives, spread_s, strict=True)]
        before: list[list[int]] = [[] for _ in latencies]
        for source, target in graph.edges:
            before[target].append(source)
        kinds = (operator.core_type for operator in graph.operators)
        core_types = tuple(CoreType.NONE if kind is CoreType.NETWORK else kind for kind in kinds)
        compute = bound_compiled(
            compile_structure(core_types, graph.edges),
            np.ascontiguousarray(estimates.one_core_s[0]),
            np.ascontiguousarray(spread_s),
            cores=Cores.of(self.accelerator),
            exclusivity=self.exclusivity,
            floor_s=float(traffic.sum()) / self.accelerator.hbm_bandwidth_bytes_per_s,
        )
        operators = tuple(
            OperatorProfile(operator, latency, float(moved))
            for operator, latency, moved in zip(graph.operators, latencies, traffic, strict=True)
        )
        mobility = find_mobility(range(len(latencies)), before, latencies)
        return PhaseProfile(phase, graph, operators, mobility, compute, sum(collectives, start=0.0))

    def _collective_s(self, operator: Operator) -> float:
        """Time of a collective on the network; 0 of what is none."""
        if operator.collective is None:
            return 0.0
        return collective_s(operator.collective.kind, operator.collective.payload_bytes, self.group)


def ratio(value: float, whole: float) -> float:
    """A quotient; 0 of nothing."""
    return value / whole if whole else 0.0
