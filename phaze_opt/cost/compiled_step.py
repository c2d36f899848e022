"""A training step without times: operators, collectives and sizes of every distinct layer under one plan."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from phaze_opt.errors import InputError
from phaze_opt.graph.attention import is_attention_core
from phaze_opt.graph.build import build_model_graph
from phaze_opt.graph.layer import LayerGraph, PartGraph
from phaze_opt.graph.model_graph import ModelGraph
from phaze_opt.graph.operator import Collective, Operator, OperatorGraph, Phase, ShardingOptions
from phaze_opt.graph.residency import is_on_core, operators_again, run_again
from phaze_opt.hardware.network import Network
from phaze_opt.record.arrays import Indices
from phaze_opt.workload.plan import ParallelPlan, Recompute, split_blocks
from phaze_opt.workload.software import TrainingStack
from phaze_opt.workload.training import TrainingSpec
from phaze_opt.workload.workload import Workload

if TYPE_CHECKING:
    from phaze_opt.cost.step_batch import StepBatch

EMBEDDING, BLOCK, HEAD = 0, 1, -1
"""Places of a model's parts, as in `CompiledStep.parts`; an axis of arrays. The embedding stands for all of the front,
the head for all of the back (`workload.chain`); a block is the first kind of unit, and the only one where units are
equal."""
FORWARD, BACKWARD, UPDATE, AGAIN = range(4)
"""Passes of a layer; an axis of arrays. AGAIN is forward as full recomputation runs it, without what is kept."""
NUM_PASSES = 4
RUN = (FORWARD, BACKWARD, AGAIN)
"""Passes of every micro-batch; an axis of arrays too, in this order."""
PARTLY = len(RUN)
"""Behind those, where passes send or launch: forward as selective recomputation runs it again."""


@dataclass(frozen=True, slots=True)
class CompiledPass:
    """Forward, backward or update of one distinct layer, or of the layers of a part one after the other.

    Attributes:
        columns: its operators in `CompiledStep.operators`, shape (num_operators,); those on cores only. Those of a
            layer that comes twice in a part are listed twice.
        partly_columns: what selective recomputation runs again of a forward pass: attention, or all but the operators
            that the software keeps; columns of its own where the buffer may hold something else for it.
        kept_columns: those of them that full recomputation does not run again.
        again_columns: what it runs again, likewise.
        collectives: tensor-parallel collectives, in order.
        kept_collectives: those of them that full recomputation does not run again: all they send was spared.
        partly_collectives: those that selective recomputation runs again; attention alone has none.
        partly_launches: operators that it launches again, where the software keeps others; attention alone, whose few
            kernels the host is ahead of, counts as none.
    """

    columns: Indices
    partly_columns: Indices
    kept_columns: Indices
    again_columns: Indices
    collectives: tuple[Collective, ...]
    kept_collectives: tuple[Collective, ...] = ()
    partly_collectives: tuple[Collective, ...] = ()
    partly_launches: int = 0


@dataclass(frozen=True, slots=True)
class CompiledLayer:
    """One distinct layer under a plan; sizes are per device and micro-batch.

    Attributes:
        kept: names of operators whose results selective recomputation keeps; none where it runs attention alone again.
    """

    graph: LayerGraph
    forward: CompiledPass
    backward: CompiledPass
    update: CompiledPass
    kept: frozenset[str]


@dataclass(frozen=True, slots=True)
class CompiledPart:
    """Front, a unit or back under a plan: its layers one after the other."""

    graph: PartGraph
    forward: CompiledPass
    backward: CompiledPass
    update: CompiledPass

    @property
    def passes(self) -> tuple[CompiledPass, CompiledPass, CompiledPass]:
        """Forward, backward and update."""
        return self.forward, self.backward, self.update

    @property
    def launches(self) -> tuple[int, int, int, int]:
        """Operators on cores of every pass of a micro-batch (`RUN`), and of `PARTLY`."""
        forward = len(self.forward.columns)
        again = forward - len(self.forward.kept_columns)
        return forward, len(self.backward.columns), again, self.forward.partly_launches


@dataclass(frozen=True, slots=True)
class CompiledStep:
    """A model under one plan and stack, ready to be priced again and again.

    Attributes:
        operators: of all its distinct layers, in the order that `CompiledPass.columns` index.
        graph: the sharded model.
        layers: its distinct layers, as in ``graph``; each is scheduled apart.
        parts: front, every kind of unit, and back, which stages are made of.
        blocks: units of each pipeline stage, first stage first; front and back go with the ends.
        on_networks: what it was priced by on each network (`cost.price_step`).
    """

    model: Workload
    training: TrainingSpec
    plan: ParallelPlan
    stack: TrainingStack
    operators: Sequence[Operator]
    graph: ModelGraph
    layers: tuple[CompiledLayer, ...]
    parts: tuple[CompiledPart, ...]
    blocks: tuple[int, ...]
    on_networks: dict[Network, "StepBatch"] = field(init=False, default_factory=dict, repr=False, compare=False)

    @property
    def num_micro_batches(self) -> int:
        """Micro-batches of one replica."""
        return self.plan.num_micro_batches(self.training.global_batch)

    @property
    def is_spared(self) -> bool:
        """Whether full recomputation leaves some operators out."""
        return bool(self.stack.kept_operators) and Recompute.FULL in self.plan.recomputes


def compile_step(model: Workload, training: TrainingSpec, plan: ParallelPlan, *, stack: TrainingStack) -> CompiledStep:
    """Build the sharded graphs of a plan.

    Args:
        model: what is trained.
        training: batches, sequence and optimizer; micro-batch and sequence shards are the plan's.
        plan: degrees, and the cuts of its stages.
        stack: fusion and attention form, which takes the place of that of ``training``.

    Raises:
        InputError: the model cannot be sharded this way, or the plan's cuts are not of its blocks.
    """
    model, training = _as_run(model, training, plan, stack)
    graph = build_model_graph(
        model, training, tensor_parallel=plan.tensor, fusion=stack.fusion, options=ShardingOptions.of_plan(plan)
    )
    operators: list[Operator] = []
    kept, partly = frozenset(stack.kept_operators), _kept_partly(graph, stack)
    layers = tuple(_compile_layer(layer, operators, kept, own) for layer, own in zip(graph.layers, partly, strict=True))
    parts = tuple(_compile_parts(layers, graph))
    blocks = blocks_of(model, plan)
    graph = replace(graph, cut=graph.cut.in_order(plan.unit_order))
    return CompiledStep(model, training, plan, stack, tuple(operators), graph, layers, parts, blocks)


def _kept_partly(graph: ModelGraph, stack: TrainingStack) -> list[frozenset[str]]:
    """Of each distinct layer, names of operators that selective recomputation keeps (as `graph_sizes` counts them).

    A part in which nothing goes by the names runs its attention again, as all do where the software names none.
    """
    named, nothing = frozenset((*stack.memory.kept_operators, *stack.kept_operators)), frozenset[str]()
    found = [nothing] * len(graph.layers)
    for part, kinds in zip(graph.parts, graph.cut.parts, strict=True):
        if part.keeps_any(stack.memory.kept_operators):
            for kind in kinds:
                found[kind] = named
    return found


def blocks_of(model: Workload, plan: ParallelPlan) -> tuple[int, ...]:
    """Blocks (units) of each stage of a model under a plan.

    Raises:
        InputError: the plan's cuts have another number of blocks than the model.
    """
    if plan.blocks and sum(plan.blocks) != model.num_units:
        given = f"blocks = {list(plan.blocks)} has {sum(plan.blocks)} blocks"
        message = f"{given}, not the {model.num_units} of {model.name}"
        raise InputError(message, key="blocks")
    return plan.blocks or split_blocks(model.num_units, plan.pipeline)


def _as_run(
    model: Workload, training: TrainingSpec, plan: ParallelPlan, stack: TrainingStack
) -> tuple[Workload, TrainingSpec]:
    """Model and training with what the plan and the software decide."""
    if stack.combines_qkv:
        model = model.with_combined_qkv()
    return model, replace(
        training,
        micro_batch=plan.micro_batch,
        is_sequence_parallel=plan.is_sequence_parallel,
        attention=stack.attention,
    )


_ANY_STAGES: Mapping[str, Any] = MappingProxyType(
    {
        "interleave": 1,
        "zero": 0,
        "state_shards": 0,
        "recompute": Recompute.NONE,
        "blocks": (),
        "stage_recompute": (),
        "unit_order": (),
    }
)
"""Fields of a plan that its graphs do not depend on, all neutral."""


class StepCompiler:
    """Compiles each distinct graph once: steps that differ in depth, batch, stages, replicas, ZeRO or recomputation."""

    def __init__(self) -> None:
        """Nothing is known yet."""
        self._known: dict[object, CompiledStep] = {}

    def compile(
        self, model: Workload, training: TrainingSpec, plan: ParallelPlan, *, stack: TrainingStack
    ) -> CompiledStep:
        """As `compile_step`; steps of the same graphs share their ``operators``."""
        # Experts are spread over replicas, so as many as they need stay.
        alone = replace(plan, pipeline=1, data=plan.expert, **_ANY_STAGES)
        key = model.layers_key, replace(training, global_batch=1), alone, stack
        if key not in self._known:
            self._known[key] = compile_step(model, training, plan, stack=stack)
        model, training = _as_run(model, training, plan, stack)
        known, blocks = self._known[key], blocks_of(model, plan)
        graph = replace(known.graph, model=model.name, cut=model.cut.in_order(plan.unit_order))
        return replace(known, model=model, training=training, plan=plan, graph=graph, blocks=blocks)


def forward_again(layer: CompiledLayer, step: CompiledStep) -> OperatorGraph:
    """Forward as full recomputation runs it again: operators whose results the software keeps occupy no core."""
    kept = {step.operators[column].name for column in layer.forward.kept_columns}
    forward = layer.graph.forward
    return run_again(forward, {number for number, each in enumerate(forward.operators) if each.name not in kept})


def partly_again(graph: OperatorGraph, kept: frozenset[str]) -> tuple[Operator, ...]:
    """What selective recomputation runs of a forward pass, in order; `CompiledLayer.kept` says what it keeps."""
    return tuple(operators_again(graph, _running_partly(graph, kept)).values())


def _running_partly(graph: OperatorGraph, kept: frozenset[str]) -> list[int]:
    """Operators on cores of a forward pass that selective recomputation runs again."""
    spared = _spared(graph, kept) if kept else set()
    return [
        number
        for number, each in enumerate(graph.operators)
        if each.phase is Phase.FORWARD
        and is_on_core(each)
        and (number not in spared if kept else is_attention_core(each.name))
    ]


def _compile_layer(
    layer: LayerGraph, operators: list[Operator], kept: frozenset[str], partly: frozenset[str]
) -> CompiledLayer:
    forward, backward, update = (_compile_pass(graph, operators, kept, partly) for graph in layer.phases)
    return CompiledLayer(layer, forward, backward, update, partly)


def _compile_parts(layers: Sequence[CompiledLayer], graph: ModelGraph) -> Iterator[CompiledPart]:
    """Layers of each part one after the other; the first and the last of the model are never run again."""
    for part, kinds in zip(graph.parts, graph.cut.parts, strict=True):
        inside = range(part.num_first, len(kinds) - part.num_last)
        own = [layers[kind] for kind in kinds]
        forward = [each.forward if place in inside else _run_once(each.forward) for place, each in enumerate(own)]
        backward, update = [each.backward for each in own], [each.update for each in own]
        yield CompiledPart(part, _joined(forward), _joined(backward), _joined(update))


def _run_once(forward: CompiledPass) -> CompiledPass:
    """A forward pass all of whose results are kept."""
    nothing = _indices([])
    return replace(
        forward,
        partly_columns=nothing,
        kept_columns=forward.columns,
        again_columns=nothing,
        kept_collectives=forward.collectives,
        partly_collectives=(),
        partly_launches=0,
    )


def _joined(passes: Sequence[CompiledPass]) -> CompiledPass:
    """One pass of several layers."""

    def columns(name: str) -> Indices:
        return np.concatenate([_indices([]), *(getattr(each, name) for each in passes)])

    def collectives(name: str) -> tuple[Collective, ...]:
        return tuple(collective for each in passes for collective in getattr(each, name))

    return CompiledPass(
        columns=columns("columns"),
        partly_columns=columns("partly_columns"),
        kept_columns=columns("kept_columns"),
        again_columns=columns("again_columns"),
        collectives=collectives("collectives"),
        kept_collectives=collectives("kept_collectives"),
        partly_collectives=collectives("partly_collectives"),
        partly_launches=sum(each.partly_launches for each in passes),
    )


def _compile_pass(
    graph: OperatorGraph, operators: list[Operator], kept: frozenset[str], kept_partly: frozenset[str]
) -> CompiledPass:
    """Columns of one phase's operators, appended to the shared list."""
    spared = _spared(graph, kept)
    on_core = [index for index, operator in enumerate(graph.operators) if is_on_core(operator)]
    columns = {index: len(operators) + place for place, index in enumerate(on_core)}
    operators.extend(graph.operators[index] for index in on_core)
    not_again = [columns[index] for index in on_core if index in spared]
    partly = _running_partly(graph, kept_partly)
    spared_partly = _spared(graph, kept_partly)
    again = [index for index in on_core if index not in spared]
    sent = [(index, each.collective) for index, each in enumerate(graph.operators) if each.collective is not None]
    return CompiledPass(
        _indices(list(columns.values())),
        _columns_again(graph, partly, columns, operators),
        _indices(not_again),
        _columns_again(graph, again, columns, operators),
        tuple(collective for _, collective in sent),
        tuple(collective for index, collective in sent if index in spared),
        tuple(collective for index, collective in sent if partly and kept_partly and index not in spared_partly),
        len(partly) if kept_partly else 0,
    )


def _columns_again(
    graph: OperatorGraph, running: list[int], columns: Mapping[int, int], operators: list[Operator]
) -> Indices:
    """Columns of what recomputation runs: those of the pass, or new ones where the buffer holds something else."""
    if len(running) in (0, len(columns)):
        return _indices([columns[index] for index in running])
    found: list[int] = []
    for index, operator in operators_again(graph, running).items():
        is_same = operator == graph.operators[index]
        found.append(columns[index] if is_same else len(operators))
        if not is_same:
            operators.append(operator)
    return _indices(found)


def _spared(graph: OperatorGraph, kept: frozenset[str]) -> set[int]:
    """Operators that are not run again: those of the names, and collectives and views of their results alone."""
    sources: dict[int, list[int]] = {}
    for source, target in graph.edges:
        sources.setdefault(target, []).append(source)
    spared: set[int] = set()
    for index, operator in enumerate(graph.operators):
        behind = not is_on_core(operator) and index in sources and spared.issuperset(sources[index])
        if behind or operator.name.partition("+")[0] in kept:
            spared.add(index)
    return spared


def _indices(columns: list[int]) -> Indices:
    return np.array(columns, np.intp)
