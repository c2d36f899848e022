"""Plans that lie on a network in one way, and the columns of a `StepTable` that are gathered of them.

Degrees of such plans are the same, the choices of each differ: Python for each layout, none for each plan.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import numpy as np

from phaze_opt.cost.compiled_step import BLOCK, HEAD, CompiledStep, StepCompiler
from phaze_opt.cost.graph_sizes import stage_tensors
from phaze_opt.cost.step_batch import LayerColumns
from phaze_opt.cost.step_traffic import (
    ALONE,
    BESIDE,
    EXPERTS,
    group_members,
    layer_costs,
    plan_network,
    replica_costs,
    span_transfers,
    stage_begins,
    stage_counts,
    transfer_costs,
)
from phaze_opt.cost.traffic import NUM_FIELDS, Traffic
from phaze_opt.graph.layer import tied_parameters
from phaze_opt.graph.operator import CollectiveGroup
from phaze_opt.hardware.network import Network, Topology
from phaze_opt.hardware.torus_mapping import is_torus
from phaze_opt.record.arrays import Floats, Indices, Ints
from phaze_opt.workload.plan import ParallelPlan, Recompute
from phaze_opt.workload.plan_columns import FULL, NO_RECOMPUTE, RECOMPUTES, PlanColumns, number_rows
from phaze_opt.workload.software import TrainingStack
from phaze_opt.workload.training import TrainingSpec
from phaze_opt.workload.workload import Workload

_DEGREES = ("tensor", "pipeline", "data", "context", "expert", "expert_tensor")
Columns = dict[str, np.ndarray]
"""Of plans or runs, by the names of their fields in `PlanRows` and `RunRows`."""


@dataclass(frozen=True, slots=True)
class PlanLayout:
    """Plans of the same degrees but for interleave, with the same blocks in their stages.

    Attributes:
        steps: compiled for these degrees, one for each micro-batch.
        network: that the devices are on.
        step_of_plan: place in ``steps`` of each plan, shape (plans,).
        plans: the plans.
        rows: their places among all plans, shape (plans,).
        stage_recompute: of each stage where stages differ, places in `RECOMPUTES`; nothing where plans recompute alike.
    """

    steps: tuple[CompiledStep, ...]
    network: Network
    step_of_plan: Ints
    plans: PlanColumns
    rows: Indices
    stage_recompute: Ints

    @classmethod
    def of_step(cls, step: CompiledStep, network: Network, *, row: int) -> "PlanLayout":
        """One step alone, its blocks split as it says."""
        own = np.array([RECOMPUTES.index(each) for each in step.plan.stage_recompute], np.int64)
        plans = PlanColumns.of([step.plan])
        first, place = np.zeros(1, np.int64), np.array([row], np.intp)
        return cls((step,), network, first, plans, place, _of_stages(own, len(step.blocks)))


def list_layouts(
    model: Workload, training: TrainingSpec, plans: PlanColumns, *, network: Network, stack: TrainingStack
) -> Iterator[PlanLayout]:
    """The layouts of plans, each graph compiled once.

    A torus is mapped to the tensor groups and shards of each plan, so there the shards are part of a layout.

    Args:
        model: what is trained.
        training: batches, sequence and optimizer; each plan brings its micro-batch.
        plans: any number.
        network: of the cluster.
        stack: training software.
    """
    names = (*_DEGREES, "is_sequence_parallel", "stages", *(("state_shards",) if is_torus(network) else ()))
    compiler = StepCompiler()
    for rows in _equal_rows([getattr(plans, name) for name in names]):
        own = plans.take(rows)
        sizes, step_of_plan = np.unique(own.micro_batch, return_inverse=True)
        degrees: dict[str, Any] = {name: int(getattr(own, name)[0]) for name in names}
        degrees["is_sequence_parallel"] = bool(degrees["is_sequence_parallel"])
        blocks, stage_recompute, unit_order = plans.stage_choices[degrees.pop("stages")]
        degrees |= {"blocks": blocks, "stage_recompute": stage_recompute, "unit_order": unit_order}
        same = [ParallelPlan(**degrees, micro_batch=int(size)) for size in sizes]
        steps = tuple(compiler.compile(model, training, plan, stack=stack) for plan in same)
        recompute = np.array([RECOMPUTES.index(each) for each in stage_recompute], np.int64)
        stages = _of_stages(recompute, len(steps[0].blocks))
        yield PlanLayout(steps, plan_network(network, same[0]), step_of_plan.astype(np.int64), own, rows, stages)


def _of_stages(recompute: Ints, num_stages: int) -> Ints:
    """What stages recompute besides what their plan does in all of them."""
    return recompute if len(recompute) else np.full(num_stages, NO_RECOMPUTE)


def _equal_rows(columns: Sequence[Ints]) -> Iterator[Indices]:
    """Places of equal rows of some columns, one array for each distinct row."""
    if len(columns[0]):
        number = number_rows(columns)
        order = np.argsort(number, kind="stable")
        yield from np.split(order, np.flatnonzero(np.diff(number[order])) + 1)


@dataclass(frozen=True, slots=True)
class StageRuns:
    """The stages of a pipeline as runs of stages that hold and send the same.

    Attributes:
        kinds: embeddings, units of every kind and heads of the distinct stages, shape (kinds, layers).
        begins: of each run's stages, as `stage_begins` says, shape (runs,).
        kind: of each run's stages, place in ``kinds``, shape (runs,).
        boundaries: of each run's stages, place among the distinct pairs of boundaries, shape (runs,).
        recompute: of each run's stages, as given, shape (runs,).
        first: number of each run's first stage, shape (runs,).
        length: stages of each run, shape (runs,).
    """

    kinds: Ints
    kind: Ints
    begins: Ints
    boundaries: Ints
    recompute: Ints
    first: Ints
    length: Ints


def list_runs(blocks: tuple[int, ...], boundaries: Ints, recompute: Ints, *, order: tuple[int, ...] = ()) -> StageRuns:
    """Runs of the stages of a pipeline.

    Args:
        blocks: of each stage.
        boundaries: pair of boundaries of each stage (`step_traffic.TransferCosts`).
        recompute: of each stage, any numbers.
        order: kind of every unit of the model; all are equal unless given.
    """
    counts = [tuple(row) for row in stage_counts(blocks, order).tolist()]
    begins = stage_begins(blocks, order).tolist()
    kinds = list(dict.fromkeys(counts))
    number = {kind: place for place, kind in enumerate(kinds)}
    keys = zip([number[kind] for kind in counts], begins, boundaries.tolist(), recompute.tolist(), strict=True)
    found = [(*key, len(list(members))) for key, members in groupby(keys)]
    kind, begin, pair, choice, length = (np.array(column, np.int64) for column in zip(*found, strict=True))
    return StageRuns(np.array(kinds, np.int64), kind, begin, pair, choice, length.cumsum() - length, length)


class TableParts:
    """What was gathered of some layouts."""

    def __init__(self) -> None:
        """Nothing yet but the rows that send nothing."""
        self.graph_of_group: list[int] = []
        self._graphs: list[CompiledStep] = []
        self._place_of_graph: dict[int, int] = {}
        self._group_of: dict[object, int] = {}
        self._inside: list[tuple[CompiledStep, Floats]] = []
        self._transfers: list[Floats] = [np.zeros((1, NUM_FIELDS))]
        self._replicas: list[Floats] = [np.zeros((1, 5, NUM_FIELDS))]
        self._num_transfers = self._num_replicas = 1
        self._plans: list[Columns] = []
        self._runs: list[Columns] = []
        self._num_plans = 0

    def add(self, layout: PlanLayout) -> None:
        """Gather the plans of a layout."""
        plans, steps = layout.plans, layout.steps
        first = steps[0]
        of_step = np.array([self._group(step, layout.network) for step in steps])
        batches = np.array([step.num_micro_batches for step in steps])
        boundaries, transfer = self._add_transfers(layout)
        runs = list_runs(first.blocks, boundaries, layout.stage_recompute, order=first.graph.cut.order)
        states, of_plan = _distinct(plans.zero, plans.state_shards)
        found = [self._add_replicas(_with_state(first, *state), layout.network, runs) for state in states.tolist()]
        replica, shards, expert_shards, update_shards = (np.array(column) for column in zip(*found, strict=True))
        self._plans.append(
            {
                "row": layout.rows,
                "group": of_step[layout.step_of_plan],
                "num_micro_batches": batches[layout.step_of_plan],
                "interleave": plans.interleave,
                "fill_chunks": plans.interleave * first.stack.fill_chunks,
                "zero": plans.zero,
                "tensor": plans.tensor,
                "pipeline": plans.pipeline,
                "replicas": plans.data * plans.context,
                "shards": shards[of_plan],
                "expert_shards": expert_shards[of_plan],
                "update_shards": update_shards[of_plan],
                "tied_share": np.tile(tied_shares(first), (len(plans), 1)),
                "islands": np.full(len(plans), _num_islands(first, layout.network)),
            }
        )
        # Where stages recompute each in their own way, their plan says that nothing is recomputed.
        recompute = np.maximum(plans.recompute[:, None], runs.recompute)
        tensors = [stage_tensors(step) for step in steps]
        step, stage = layout.step_of_plan[:, None], runs.first
        shared = np.array([each.shared_bytes for each in tensors])[step, stage, recompute]
        sent = np.array([each.sent_bytes for each in tensors])[step, stage]
        columns = {"recompute": recompute, "shared_bytes": shared, "sent_bytes": sent}
        self._add_runs(runs, transfer=transfer, replica=replica[of_plan], columns=columns)
        self._note_recomputed(layout)

    def graphs(self) -> tuple[CompiledStep, ...]:
        """A step for each set of graphs, with full recomputation where any of its plans has it."""
        return tuple(self._graphs)

    def layer_columns(self) -> LayerColumns:
        """Of all groups."""
        steps = [step for step, _ in self._inside]
        costs = np.array([costs for _, costs in self._inside])
        return LayerColumns(
            launches=np.array([[part.launches for part in step.parts] for step in steps], float),
            tensor=Traffic.of(costs[:, ALONE]),
            experts=Traffic.of(costs[:, EXPERTS]),
            beside=Traffic.of(costs[:, BESIDE]),
            waits=np.array([sum(1.0 / rank for rank in range(2, step.plan.tensor + 1)) for step in steps], float),
            update_bytes=np.array([_update_bytes(step) for step in steps]),
        )

    def plan_columns(self) -> Columns:
        """Of all plans, in the order they were gathered, with the row that each is to have."""
        return _joined(self._plans)

    def run_columns(self) -> Columns:
        """Of all runs; plans by the order they were gathered in."""
        return _joined(self._runs)

    def transfer_costs(self) -> Floats:
        """Of all pairs of boundaries, shape (rows, fields)."""
        return np.concatenate(self._transfers)

    def replica_costs(self) -> Floats:
        """Of all kinds of stages, shape (rows, 5, fields), in the order of `ReplicaTraffic`."""
        return np.concatenate(self._replicas)

    def _group(self, step: CompiledStep, network: Network) -> int:
        """The group of graphs on a network; a member of it that only one device makes up has no place."""
        members = [group_members(step, group, network) for group in CollectiveGroup]
        spanned = tuple(tuple(each if each.size > 1 else None for each in dimensions) for dimensions in members)
        key = id(step.parts), step.stack.hides_input_reductions, step.stack.sends_once_a_node, spanned
        if key not in self._group_of:
            self._group_of[key] = len(self._inside)
            self._inside.append((step, layer_costs(step, network)))
            place = self._place_of_graph.setdefault(id(step.parts), len(self._graphs))
            if place == len(self._graphs):
                self._graphs.append(step)
            self.graph_of_group.append(place)
        return self._group_of[key]

    def _note_recomputed(self, layout: PlanLayout) -> None:
        """Graphs that any plan runs again in full are timed so: all other times are the same."""
        is_full = (layout.plans.recompute == FULL) | bool((layout.stage_recompute == FULL).any())
        for number in np.unique(layout.step_of_plan[is_full]):
            place = self._place_of_graph[id(layout.steps[number].parts)]
            step = self._graphs[place]
            if step.plan.recompute is not Recompute.FULL:
                full = replace(step.plan, recompute=Recompute.FULL, stage_recompute=())
                self._graphs[place] = replace(step, plan=full)

    def _add_transfers(self, layout: PlanLayout) -> tuple[Ints, Ints]:
        """Pair of boundaries of every stage, and each plan's first row of transfers."""
        if layout.steps[0].graph.cut.is_joined:
            return self._add_own_transfers(layout)
        sizes = np.array([step.parts[BLOCK].graph.output_bytes for step in layout.steps])
        wanted, of_plan = _distinct(layout.step_of_plan, layout.plans.interleave)
        found = transfer_costs(
            layout.steps[0], layout.network, payload_bytes=sizes[wanted[:, 0]], interleave=wanted[:, 1].astype(float)
        )
        costs = found.costs.reshape(-1, NUM_FIELDS)
        first = self._num_transfers + of_plan * found.costs.shape[1]
        self._transfers.append(costs)
        self._num_transfers += len(costs)
        return found.place_of_stage, first

    def _add_own_transfers(self, layout: PlanLayout) -> tuple[Ints, Ints]:
        """The same where boundaries differ in what crosses them: each stage has a row."""
        blocks = np.array(layout.steps[0].blocks)
        stage, stop = np.arange(len(blocks)), np.cumsum(blocks)
        found = [
            span_transfers(step, layout.network, stage=stage, start=stop - blocks, stop=stop) for step in layout.steps
        ]
        self._transfers += found
        first = self._num_transfers + layout.step_of_plan * len(blocks)
        self._num_transfers += len(blocks) * len(found)
        return stage, first

    def _add_replicas(self, step: CompiledStep, network: Network, runs: StageRuns) -> tuple[int, int, int, float]:
        """First row of a ZeRO stage's traffic of all kinds of stages, and what its state is spread over."""
        first, kinds, ends = self._num_replicas, len(runs.kinds), runs.kinds.copy()
        ends[:, BLOCK:HEAD] = 0
        costs = replica_costs(step, np.concatenate([runs.kinds, ends]), network)
        own = [each[:kinds] for each in (costs.parameters, costs.gathers, costs.reductions, costs.gradients)]
        table = np.stack([*own, costs.gradients[kinds:]], axis=1)
        self._replicas.append(table)
        self._num_replicas += len(table)
        return first, step.plan.shards, step.plan.expert_shards, update_shards(step)

    def _add_runs(self, runs: StageRuns, *, transfer: Ints, replica: Ints, columns: Columns) -> None:
        """Runs of plans that share them, from each plan's first rows of transfers and replica traffic.

        Args:
            runs: of the plans.
            transfer: row of each plan's first pair of boundaries.
            replica: row of its first kind of stage.
            columns: what plans do not share, each of shape (plans, runs).
        """
        shape = (len(transfer), len(runs.kind))
        numbers = np.arange(self._num_plans, self._num_plans + len(transfer))
        columns = columns | {
            "plan": np.broadcast_to(numbers[:, None], shape),
            "first": np.broadcast_to(runs.first, shape),
            "begins": np.broadcast_to(runs.begins, shape),
            "length": np.broadcast_to(runs.length, shape),
            "transfer": transfer[:, None] + runs.boundaries,
            "replica": replica[:, None] + runs.kind,
        }
        kinds = runs.kinds[runs.kind]
        counts = np.broadcast_to(kinds, (len(transfer), *kinds.shape)).reshape(-1, kinds.shape[1])
        self._runs.append({name: column.reshape(-1) for name, column in columns.items()} | {"counts": counts})
        self._num_plans += len(transfer)


def _joined(parts: list[Columns]) -> Columns:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _distinct(one: Ints, other: Ints) -> tuple[Ints, Ints]:
    """Distinct pairs of two columns, shape (pairs, 2), and the pair of each row."""
    pairs, place = np.unique(np.stack([one, other], axis=1), axis=0, return_inverse=True)
    return pairs, place.reshape(-1)


def _with_state(step: CompiledStep, zero: int, state_shards: int) -> CompiledStep:
    return replace(step, plan=replace(step.plan, zero=zero, state_shards=state_shards))


def _update_bytes(step: CompiledStep) -> float:
    """Bytes that the optimizer moves for a parameter of a unit; of any layer, where the front holds all units'."""
    parts = [part.graph for part in step.parts]
    units = parts[BLOCK:HEAD]
    held = units if any(each.num_parameters for each in units) else parts
    return sum(each.update_traffic_bytes for each in held) / max(1, sum(each.num_parameters for each in held))


def _num_islands(step: CompiledStep, network: Network) -> int:
    """Nodes or slices behind one switched network; 1 where there is no such level."""
    *inner, outermost = network.dimensions
    if not inner or outermost.topology is not Topology.SWITCH:
        return 1
    return math.ceil(step.plan.num_devices / math.prod(dimension.size for dimension in inner))


def tied_shares(step: CompiledStep) -> Floats:
    """Share of each part's update that an earlier one on the same stage does, shape (parts,): of one stage alone.

    The update is one pass over a layer's parameters, so a share of them takes that share of its time.
    """
    graphs = [part.graph for part in step.parts]
    tied = tied_parameters(graphs) if len(step.blocks) == 1 else (0,) * len(graphs)
    return np.array([own / max(1, graph.num_parameters) for own, graph in zip(tied, graphs, strict=True)])


def update_shards(step: CompiledStep) -> float:
    """How many times fewer parameters of units a device updates than it holds: experts have their own replicas."""
    plan, cut = step.plan, step.graph.cut
    if plan.zero == 0 or not plan.has_expert_groups:
        return float(plan.shards if plan.zero else 1)
    units = [step.parts[BLOCK + kind].graph for kind in (cut.order if cut.is_joined else (0,))]
    held, experts = (sum(getattr(each, name) for each in units) for name in ("num_parameters", "num_expert_parameters"))
    return float(held / ((held - experts) / plan.shards + experts / plan.expert_shards))
