"""Everything about a model that does not depend on the architecture, computed once and kept."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from phaze_opt.cost.compiled_step import CompiledStep, forward_again, partly_again
from phaze_opt.estimate.collectives import collective_s, group_dimensions, sent_bytes
from phaze_opt.graph.build import build_model_graph
from phaze_opt.graph.model_graph import ModelGraph
from phaze_opt.graph.operator import PUBLISHED_SHARDING, CoreType, Operator, OperatorGraph, Phase
from phaze_opt.graph.sharding import model_flops
from phaze_opt.hardware.network import NetworkDimension
from phaze_opt.objective.scenario import Scenario
from phaze_opt.record.arrays import Flags, Floats, Ints
from phaze_opt.schedule.structure import ScheduleStructure, compile_structure
from phaze_opt.workload.training import TrainingSpec
from phaze_opt.workload.workload import Workload

Prepare = Callable[[Sequence[Operator]], Sequence[Operator]]
PHASES = (Phase.FORWARD, Phase.BACKWARD, Phase.UPDATE)
AGAIN_PHASE = "again"
"""What forward is called where full recomputation runs it again without what the software keeps."""


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
        alternatives: of a problem that only bounds, what it may be instead (`objective.fusion_bounds`): shares, and
            columns whose makespans these are of.
    """

    layer: str
    phase: Phase
    structure: ScheduleStructure
    columns: Ints
    core_types: tuple[CoreType, ...]
    is_core: Flags
    edges: tuple[tuple[int, int], ...]
    collective_s: float
    collective_bytes: float
    alternatives: tuple[tuple[tuple[float, Ints], ...], ...] = ()

    @property
    def ways(self) -> tuple[tuple[tuple[float, Ints], ...], ...]:
        """The alternatives; without any, all of its own columns."""
        return self.alternatives or (((1.0, self.columns),),)


@dataclass(frozen=True, slots=True)
class CompiledOption:
    """A model sharded for one tensor degree; of full plans, for all degrees that decide its layers' graphs.

    Attributes:
        graph: the sharded model.
        phases: ``phases[layer][phase]`` in the order of ``graph.layers`` and `PHASES`. Behind them may come forward as
            full recomputation runs it again, where the software keeps some of its results.
        core_columns: columns of its operators that occupy a core, shape (num_core_operators,).
        core_operators: those operators, as the estimator likes them.
        partly_columns: of each distinct layer, columns of what selective recomputation runs again; of full plans.
    """

    graph: ModelGraph
    phases: tuple[tuple[CompiledPhase, ...], ...]
    core_columns: Ints
    core_operators: Sequence[Operator]
    partly_columns: tuple[Ints, ...] = ()

    @property
    def num_phases(self) -> int:
        """Scheduling problems of a layer."""
        return len(self.phases[0])

    @property
    def collective_s(self) -> Floats:
        """Tensor-parallel collectives, shape (num_distinct_layers, num_phases), s."""
        return np.array([[phase.collective_s for phase in layer] for layer in self.phases])


@dataclass(frozen=True, slots=True)
class CompiledModel:
    """A model at one micro-batch, for every tensor degree it admits; ``operators`` are shared by all of them.

    Of full plans the options differ in micro-batch too, and ``training`` is that of the smallest one.
    """

    model: Workload
    training: TrainingSpec
    operators: Sequence[Operator]
    options: tuple[CompiledOption, ...]
    flops_per_sample: float

    @property
    def graph(self) -> ModelGraph:
        """Of the first option; all have the same kinds of layers in the same parts."""
        return self.options[0].graph


def compile_model(scenario: Scenario, model: Workload, *, micro_batch: int, prepare: Prepare = tuple) -> CompiledModel:
    """Build the graphs of a model for every tensor degree and precompute what no architecture changes.

    Args:
        scenario: workload, cluster and choices.
        model: one of its models.
        micro_batch: samples.
        prepare: what the estimator does to operators once (`CompilingEstimator.compile`).
    """
    training = scenario.training_of(model, micro_batch)
    operators: list[Operator] = []
    options = []
    for degree in scenario.tensor_degrees_of(model):
        graph = build_model_graph(model, training, tensor_parallel=degree, options=PUBLISHED_SHARDING)
        dimensions = group_dimensions(scenario.cluster.network, size=degree, stride=1)
        phases = tuple(
            tuple(
                _compile_phase(
                    layer.name,
                    phase,
                    problem,
                    _new_columns(problem, operators),
                    dimensions=dimensions if degree > 1 else (),
                )
                for phase, problem in zip(PHASES, layer.phases, strict=True)
            )
            for layer in graph.layers
        )
        options.append(_option(graph, phases, operators, prepare))
    return CompiledModel(
        model=model,
        training=training,
        operators=prepare(operators),
        options=tuple(options),
        flops_per_sample=model_flops(model, training.sequence_length),
    )


def compile_steps(steps: Sequence[CompiledStep], *, prepare: Prepare = tuple) -> CompiledModel:
    """The scheduling problems of steps, an option each; the price of a step adds collectives, so none is part of them.

    Operators that steps have in common (updates, whatever no micro-batch changes) are listed once.

    Args:
        steps: of one model; each with graphs of its own (`CompiledStep.operators`).
        prepare: what the estimator does to operators once (`CompilingEstimator.compile`).
    """
    columns: dict[Operator, int] = {}
    options = []
    for step in steps:
        phases = []
        for layer in step.layers:
            problems = list(zip(PHASES, layer.graph.phases, strict=True))
            if step.stack.kept_operators:
                problems.append((Phase.FORWARD, forward_again(layer, step)))
            phases.append(
                tuple(
                    _compile_phase(layer.graph.name, phase, problem, _columns_of(problem.operators, columns))
                    for phase, problem in problems
                )
            )
        partly = tuple(_columns_of(partly_again(layer.graph.forward, layer.kept), columns) for layer in step.layers)
        option = _option(step.graph, tuple(phases), list(columns), prepare)
        options.append(replace(option, partly_columns=partly))
    return CompiledModel(
        model=steps[0].model,
        training=steps[0].training,
        operators=prepare(list(columns)),
        options=tuple(options),
        flops_per_sample=model_flops(steps[0].model, steps[0].training.sequence_length),
    )


def _option(
    graph: ModelGraph, phases: tuple[tuple[CompiledPhase, ...], ...], operators: Sequence[Operator], prepare: Prepare
) -> CompiledOption:
    """An option of its compiled problems."""
    columns = np.concatenate([phase.columns[phase.is_core] for layer in phases for phase in layer])
    return CompiledOption(
        graph=graph,
        phases=phases,
        core_columns=columns,
        core_operators=prepare([operators[column] for column in columns]),
    )


def _new_columns(graph: OperatorGraph, operators: list[Operator]) -> Ints:
    """Columns of a graph's operators, appended to the list."""
    first = len(operators)
    operators.extend(graph.operators)
    return np.arange(first, len(operators), dtype=np.int64)


def _columns_of(operators: Sequence[Operator], columns: dict[Operator, int]) -> Ints:
    """Columns of operators; those that are new get the next ones."""
    return np.array([columns.setdefault(operator, len(columns)) for operator in operators], dtype=np.int64)


def _compile_phase(
    layer: str, phase: Phase, graph: OperatorGraph, columns: Ints, *, dimensions: Sequence[NetworkDimension] = ()
) -> CompiledPhase:
    """Compile one problem: its topology, its operators' columns, and its collectives over a group of devices."""
    kinds = (operator.core_type for operator in graph.operators)
    core_types = tuple(CoreType.NONE if kind is CoreType.NETWORK else kind for kind in kinds)
    collectives = [operator.collective for operator in graph.operators if operator.collective is not None]
    seconds = sum(collective_s(c.kind, c.payload_bytes, dimensions) for c in collectives) if dimensions else 0.0
    sent = sum(sent_bytes(c.kind, c.payload_bytes, dimensions) for c in collectives) if dimensions else 0.0
    return CompiledPhase(
        layer=layer,
        phase=phase,
        structure=compile_structure(core_types, graph.edges),
        columns=columns,
        core_types=core_types,
        is_core=np.array([kind is not CoreType.NONE for kind in core_types], dtype=np.bool_),
        edges=graph.edges,
        collective_s=float(seconds),
        collective_bytes=float(sent),
    )
