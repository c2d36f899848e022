"""Layers as plans shard them: scheduling problems, sizes, launches and collectives of every distinct set."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np

from phaze_opt.certify.check.problem_data import CORES_USED, PhaseGraph
from phaze_opt.graph.attention import is_attention_core
from phaze_opt.graph.build import build_model_graph
from phaze_opt.graph.layer import LayerGraph
from phaze_opt.graph.model_graph import ModelGraph
from phaze_opt.graph.operator import (
    Collective,
    CollectiveGroup,
    CollectiveKind,
    CoreType,
    Operator,
    OperatorGraph,
    ShardingOptions,
)
from phaze_opt.graph.residency import operators_again, run_again
from phaze_opt.record.arrays import Floats
from phaze_opt.workload.plan import ParallelPlan
from phaze_opt.workload.software import TrainingStack
from phaze_opt.workload.training import TrainingSpec
from phaze_opt.workload.workload import Workload

EMBEDDING, BLOCK, HEAD = 0, 1, -1
"""Parts of a model: all before the blocks, one block (which may be several layers), all behind them. Of blocks that
differ each kind is a part; the first of them stands at `BLOCK`."""
FORWARD, BACKWARD, UPDATE, AGAIN = range(4)
"""Passes of layers, as makespans come: AGAIN only where the software keeps results of some operators."""
PARTLY = AGAIN + 1
"""Forward as selective recomputation runs it again, where the software keeps results of some operators for it."""
EVERY = (FORWARD, BACKWARD, AGAIN, PARTLY)
"""Passes of every micro-batch, an axis in this order."""


@dataclass(frozen=True, slots=True, order=True)
class SetKey:
    """What decides the graphs of layers; sets are numbered by rising keys."""

    tensor: int
    context: int
    expert: int
    expert_tensor: int
    micro_batch: int


def key_of(plan: ParallelPlan) -> SetKey:
    """The set that a plan's layers are timed as."""
    return SetKey(plan.tensor, plan.context, plan.expert, plan.expert_tensor, plan.micro_batch)


@dataclass(frozen=True, slots=True)
class ExpertLayout:
    """Where the experts of a plan lie among the devices of a stage.

    Attributes:
        splits: neighbours that split each expert.
        shards: groups of them that share the experts.
        copies: devices that hold the same.
        is_apart: whether the experts' gradients are added up over devices of their own.
    """

    splits: int
    shards: int
    copies: int
    is_apart: bool


def expert_layout(plan: ParallelPlan) -> ExpertLayout:
    """The layout of a plan; where it says nothing, each tensor group has all experts, whole ones on each device."""
    devices = plan.tensor * plan.context * plan.data
    if plan.expert == 1 and plan.expert_tensor == 0:
        return ExpertLayout(1, plan.tensor, devices // plan.tensor, is_apart=False)
    splits = plan.tensor if plan.expert_tensor == 0 else plan.expert_tensor
    return ExpertLayout(splits, plan.expert, devices // splits // plan.expert, is_apart=True)


def expert_shards(plan: ParallelPlan) -> int:
    """Devices that the sharded state of one copy of the experts is spread over."""
    copies = expert_layout(plan).copies
    return min(plan.state_shards, copies) if plan.state_shards else copies


@dataclass(frozen=True, slots=True)
class SentCollectives:
    """Collectives of one pass: between operators, beside the compute, and with tokens to experts and back."""

    between: tuple[Collective, ...]
    beside: tuple[Collective, ...]
    tokens: tuple[Collective, ...]


@dataclass(frozen=True, slots=True)
class LayerSet:
    """Layers of some plans, on one device and for one micro-batch.

    Attributes:
        key: degrees and micro-batch.
        layers: the graphs of the distinct ones, for sizes.
        parts: places in ``layers`` of all that a part consists of, in order: embedding, every kind of block, head.
        order: kind of every block, first to last.
        phases: ``phases[layer][pass]``: forward, backward, update, and maybe forward again; without collectives.
        attention: of each layer, places of the operators that selective recomputation runs again.
        launches: operators on cores, ``launches[layer][EVERY]``.
        collectives: ``collectives[layer][EVERY]``.
        update_bytes: that the optimizer moves for a parameter of a block.
        num_active: experts that meet a token.
        groups: of how many groups of experts, and of how many of them it may meet any; 0 and 0 without groups.
    """

    key: SetKey
    layers: tuple[LayerGraph, ...]
    parts: tuple[tuple[int, ...], ...]
    order: tuple[int, ...]
    phases: tuple[tuple[PhaseGraph, ...], ...]
    attention: tuple[tuple[int, ...], ...]
    launches: tuple[tuple[int, ...], ...]
    collectives: tuple[tuple[SentCollectives, ...], ...]
    update_bytes: float
    num_active: int
    groups: tuple[int, int]

    def is_of(self, plan: ParallelPlan) -> bool:
        """Whether the layers of a plan are these."""
        return key_of(plan) == self.key

    @property
    def differs(self) -> bool:
        """Whether there are several kinds of blocks."""
        return len(self.parts) > len((EMBEDDING, BLOCK, HEAD))

    def held(self, start: int, stop: int) -> tuple[int, ...]:
        """Blocks of every kind from one on to before another."""
        own = self.order[start:stop]
        return tuple(own.count(kind) for kind in range(len(self.parts) - 2))

    def chain(self, stage: int, start: int, stop: int, stages: int) -> list[LayerGraph]:
        """Layers of a stage with some blocks, one after the other."""
        places = [place for kind in self.order[start:stop] for place in self.parts[BLOCK + kind]]
        first, last = self.parts[EMBEDDING] * (stage == 0), self.parts[HEAD] * (stage == stages - 1)
        return [self.layers[place] for place in (*first, *places, *last)]

    @property
    def tied_of_parts(self) -> tuple[int, ...]:
        """Parameters of each part that are a copy of what another holds, where one stage has all."""
        tied = [sum(layer.num_tied_parameters for layer in self.of(part)) for part in range(len(self.parts))]
        return tuple(tied) if self.differs else (0, 0, tied[HEAD])

    @property
    def shared_twice(self) -> int:
        """All of those together, of all blocks."""
        counts = (1, *self.held(0, len(self.order)), 1)
        return sum(count * tied for count, tied in zip(counts, self.tied_of_parts, strict=True))

    def of(self, part: int) -> tuple[LayerGraph, ...]:
        """Layers of a part, in order."""
        return tuple(self.layers[place] for place in self.parts[part])

    def parameters(self, part: int) -> int:
        """Parameters of a part."""
        return sum(layer.num_parameters for layer in self.of(part))

    @property
    def tied_parameters(self) -> int:
        """The largest copy that a part has of another's, such as the head of the embedding's table."""
        return max(self.tied_of_parts)

    @property
    def sent_bytes(self) -> float:
        """What goes from one of equal blocks to the next."""
        return self.of(BLOCK)[-1].output_bytes

    def crossing_bytes(self, at: int) -> float:
        """What goes to a block, or from the last one to the head, from the layer before it."""
        part = BLOCK + self.order[at - 1] if at else EMBEDDING
        return self.of(part)[-1].output_bytes

    @property
    def roots(self) -> tuple[tuple[LayerGraph, ...], tuple[LayerGraph, ...]]:
        """The first layer of the model, if it is before the blocks, and the last, if it is behind them."""
        return self.of(EMBEDDING)[:1], self.of(HEAD)[-1:]

    @property
    def inner(self) -> tuple[tuple[LayerGraph, ...], ...]:
        """Layers of every part but those."""
        return tuple(tuple(self.layers[place] for place in places) for places in self.inner_places)

    @property
    def inner_places(self) -> tuple[tuple[int, ...], ...]:
        """Places of those in ``layers``: what recomputation runs again."""
        return self.parts[EMBEDDING][1:], *self.parts[BLOCK:HEAD], self.parts[HEAD][:-1]

    def in_parts(self, values: Floats, *, is_again: bool = False) -> Floats:
        """Sums over what parts consist of, shape (parts, ...), of values of distinct layers, shape (layers, ...).

        ``is_again``: of what recomputation runs again alone.
        """
        found = np.zeros((len(self.parts), *values.shape[1:]))
        for part, places in enumerate(self.inner_places if is_again else self.parts):
            for place in places:
                found[part] += values[place]
        return found


def build_layer_sets(
    model: Workload, training: TrainingSpec, plans: Sequence[ParallelPlan], stack: TrainingStack
) -> tuple[tuple[LayerSet, ...], tuple[Operator, ...]]:
    """Every set of some plans by rising keys, and the operators of all of them.

    Args:
        model: what is trained.
        training: batch, sequence and optimizer; what a plan or the software decides is replaced.
        plans: that have the sets.
        stack: training software.
    """
    operators: list[Operator] = []
    example = {key_of(plan): plan for plan in plans}
    return tuple(_build_set(model, training, example[key], stack, operators) for key in sorted(example)), tuple(
        operators
    )


def build_set_graph(model: Workload, training: TrainingSpec, plan: ParallelPlan, stack: TrainingStack) -> ModelGraph:
    """The graphs of the layers of one plan."""
    return build_model_graph(
        model.with_combined_qkv() if stack.combines_qkv else model,
        replace(
            training,
            micro_batch=plan.micro_batch,
            is_sequence_parallel=plan.is_sequence_parallel,
            attention=stack.attention,
        ),
        tensor_parallel=plan.tensor,
        fusion=stack.fusion,
        options=ShardingOptions(
            context=plan.context,
            expert=plan.expert if expert_layout(plan).is_apart else None,
            has_kv_replicas=True,
            has_regathers=plan.is_sequence_parallel,
            expert_tensor=plan.expert_tensor or None,
        ),
    )


def _build_set(
    model: Workload, training: TrainingSpec, plan: ParallelPlan, stack: TrainingStack, operators: list[Operator]
) -> LayerSet:
    graph = build_set_graph(model, training, plan, stack)
    places = [place for unit in graph.cut.units for place in unit]
    unit = [graph.layers[place] for place in places if graph.layers[place].num_parameters]
    unit = unit or list(graph.layers)
    moved = sum(each.bytes_read + each.bytes_written for layer in unit for each in layer.update.operators)
    parts = (graph.cut.front, *graph.cut.units, graph.cut.back)
    partly = _kept_partly(graph.layers, parts, stack)
    layers = [_build_layer(layer, stack, operators, own) for layer, own in zip(graph.layers, partly, strict=True)]
    return LayerSet(
        key=key_of(plan),
        layers=graph.layers,
        parts=parts,
        order=graph.cut.order,
        phases=tuple(layer.phases for layer in layers),
        attention=tuple(layer.attention for layer in layers),
        launches=tuple(layer.launches for layer in layers),
        collectives=tuple(layer.collectives for layer in layers),
        update_bytes=moved / max(1, sum(layer.num_parameters for layer in unit)),
        num_active=model.num_active_experts,
        groups=_groups_of(model),
    )


def _groups_of(model: Workload) -> tuple[int, int]:
    """Groups of experts, and those of one token."""
    routing = model.expert_routing
    return (0, 0) if routing is None else (routing.num_groups, routing.num_active_groups)


@dataclass(frozen=True, slots=True)
class _BuiltLayer:
    phases: tuple[PhaseGraph, ...]
    attention: tuple[int, ...]
    launches: tuple[int, ...]
    collectives: tuple[SentCollectives, ...]


def _kept_partly(
    layers: Sequence[LayerGraph], parts: Sequence[Sequence[int]], stack: TrainingStack
) -> list[tuple[str, ...]]:
    """Of each layer, names whose results stay where stages recompute selectively; none where attention alone runs.

    A layer stands with its part: the first and the last layer of the model, which always keep all, have no say.
    """
    names = stack.memory.kept_operators
    inner = (parts[EMBEDDING][1:], *parts[BLOCK:HEAD], parts[HEAD][:-1])
    found: list[tuple[str, ...]] = [()] * len(layers)
    for places, own in zip(parts, inner, strict=True):
        if any(each.name in names and each.bytes_written for at in own for each in layers[at].forward.operators):
            for at in places:
                found[at] = (*names, *stack.kept_operators)
    return found


def _build_layer(
    layer: LayerGraph, stack: TrainingStack, operators: list[Operator], partly: Collection[str]
) -> _BuiltLayer:
    kept = _kept(layer.forward, stack.kept_operators)
    graphs = [layer.forward, layer.backward, layer.update]
    if stack.kept_operators:
        graphs.append(_without(layer.forward, kept))
    phases = tuple(_append(graph, operators) for graph in graphs)
    again = [each for number, each in enumerate(layer.forward.operators) if number not in kept]
    at_hand = _kept(layer.forward, partly)
    resent = [each for number, each in enumerate(layer.forward.operators) if partly and number not in at_hand]
    attention = [
        at
        for at, each in enumerate(layer.forward.operators)
        if _on_core(each) and (at not in at_hand if partly else is_attention_core(each.name))
    ]
    # Selective recomputation runs these alone, so that the buffer holds for it what is made in it alone.
    attention_at = len(operators)
    operators.extend(operators_again(layer.forward, attention).values())
    forward, backward = layer.forward.operators, layer.backward.operators
    return _BuiltLayer(
        phases=phases,
        attention=tuple(range(attention_at, len(operators))),
        launches=tuple(map(_num_launches, (forward, backward, again, resent))),
        collectives=(
            _sent(forward),
            _sent(backward, hides_reductions=stack.hides_input_reductions),
            _sent(again),
            _sent(resent),
        ),
    )


def _on_core(operator: Operator) -> bool:
    return any(CORES_USED[operator.core_type])


def _num_launches(operators: Sequence[Operator]) -> int:
    return sum(map(_on_core, operators))


def _append(graph: OperatorGraph, operators: list[Operator]) -> PhaseGraph:
    """One problem as the scheduler sees it."""
    first = len(operators)
    operators.extend(graph.operators)
    return scheduled_graph(graph, first=first)


def scheduled_graph(graph: OperatorGraph, *, first: int) -> PhaseGraph:
    """A phase as the scheduler sees it; its operators begin at ``first``."""
    kinds = (operator.core_type for operator in graph.operators)
    seen = tuple(CoreType.NONE if kind is CoreType.NETWORK else kind for kind in kinds)
    return PhaseGraph(core_types=seen, edges=graph.edges, first=first, collective_s=0.0)


def _kept(graph: OperatorGraph, names: Collection[str]) -> frozenset[int]:
    """Operators that do not run again: kernels that begin with one of the names, and what only passes these on."""
    kept: set[int] = set()
    for number, operator in enumerate(graph.operators):
        sources = {source for source, target in graph.edges if target == number}
        follows = not _on_core(operator) and sources and sources <= kept
        if follows or operator.name.split("+")[0] in names:
            kept.add(number)
    return frozenset(kept)


def _without(graph: OperatorGraph, kept: frozenset[int]) -> OperatorGraph:
    """The graph with kept operators as views of results that are there."""
    return run_again(
        graph, [number for number, each in enumerate(graph.operators) if _on_core(each) and number not in kept]
    )


def _sent(operators: Sequence[Operator], *, hides_reductions: bool = False) -> SentCollectives:
    """Collectives of a pass; software may run sums of input gradients over the tensor group beside its compute."""
    between: list[Collective] = []
    beside: list[Collective] = []
    tokens: list[Collective] = []
    for collective in (each.collective for each in operators if each.collective is not None):
        is_sum = collective.kind is CollectiveKind.ALL_REDUCE and collective.group is CollectiveGroup.TENSOR
        is_beside = collective.is_overlapped or (hides_reductions and is_sum)
        is_token = collective.kind is CollectiveKind.ALL_TO_ALL
        (tokens if is_token else beside if is_beside else between).append(collective)
    return SentCollectives(tuple(between), tuple(beside), tuple(tokens))
