"""Many plans as columns: what of their steps no chip and no constant of a software changes.

Tables refer to one another by row, so that what plans share is stated once: a plan has a group (graphs on a network)
and runs of equal stages; a run has the transfers of a pair of boundaries and the traffic of a kind of stage. Row 0 of
transfers and replicas sends nothing.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from phaze_opt.cost.compiled_step import CompiledStep
from phaze_opt.cost.step_batch import LayerColumns, StepBatch
from phaze_opt.cost.step_table_parts import PlanLayout, TableParts
from phaze_opt.cost.traffic import Traffic
from phaze_opt.hardware.network import Network
from phaze_opt.record.arrays import Floats, Indices, Ints
from phaze_opt.workload.plan_columns import FULL, NO_RECOMPUTE, SELECTIVE


@dataclass(frozen=True, slots=True)
class PlanRows:
    """One entry for each plan.

    Attributes:
        group: row in ``StepTable.inside``.
        num_micro_batches, interleave, zero, tensor, pipeline: of the plan.
        fill_chunks: what the other stages' time is divided by while the pipeline fills, model chunks or more.
        replicas: data times context parallel degree.
        shards, expert_shards: devices that sharded state of all but the experts, and of experts, is spread over.
        update_shards: parameters a device holds for each that it updates.
        tied_share: share of each part's update that an earlier one on the same stage does, shape (plans, parts).
        islands: parts of the outermost switched network (nodes, slices) that the devices fill.
    """

    group: Ints
    num_micro_batches: Ints
    interleave: Ints
    fill_chunks: Ints
    zero: Ints
    tensor: Ints
    pipeline: Ints
    replicas: Ints
    shards: Ints
    expert_shards: Ints
    update_shards: Floats
    tied_share: Floats
    islands: Ints


@dataclass(frozen=True, slots=True)
class RunRows:
    """One entry for each run of equal stages of each plan, in the order of plans and stages.

    Attributes:
        plan: row of its plan.
        first, length: number of its first stage, and stages.
        counts: embeddings, units of every kind and heads of a stage, shape (runs, layers).
        begins: part that a stage's first unit is, of what it would share with the layer before it; shape (runs,).
        recompute: of its stages, places in `RECOMPUTES`.
        transfer, replica: rows in the table's transfers and replica traffic.
        shared_bytes, sent_bytes: of its stages, as `graph_sizes.StageTensors` with their recomputation.
    """

    plan: Ints
    first: Ints
    length: Ints
    counts: Ints
    begins: Ints
    recompute: Ints
    transfer: Ints
    replica: Ints
    shared_bytes: Floats
    sent_bytes: Floats


@dataclass(frozen=True, slots=True)
class ReplicaTraffic:
    """What replicas send for a kind of stage, as `step_traffic.ReplicaCosts`, each of shape (rows,).

    Attributes:
        end_gradients: gradients of such a stage without its blocks.
    """

    parameters: Traffic
    gathers: Traffic
    reductions: Traffic
    gradients: Traffic
    end_gradients: Traffic


@dataclass(frozen=True, slots=True)
class StepTable:
    """Plans of one or several models, ready to be priced under any layer times.

    Attributes:
        graphs: a compiled step for each distinct set of graphs; clocks time them.
        graph_of_group: place in ``graphs`` of each group, shape (groups,).
        inside: groups: graphs whose collectives lie on the network in one way.
        plans: one entry for each plan.
        start: first run of each plan, and behind the last one the number of runs, shape (plans + 1,).
        runs: one entry for each run.
        transfers, replicas: traffic by row.
    """

    graphs: tuple[CompiledStep, ...]
    graph_of_group: Ints
    inside: LayerColumns
    plans: PlanRows
    start: Ints
    runs: RunRows
    transfers: Traffic
    replicas: ReplicaTraffic

    def __len__(self) -> int:
        """Number of plans."""
        return len(self.plans.group)

    def batch(self, rows: Indices) -> StepBatch:
        """Some plans stage by stage."""
        first, last = self.start[rows], self.start[rows + 1]
        step, run = ranges(first, last)
        step, run = np.repeat(step, self.runs.length[run]), np.repeat(run, self.runs.length[run])
        num_stages = self.plans.pipeline[rows]
        stage = np.arange(len(run)) - np.repeat(num_stages.cumsum() - num_stages, num_stages)
        shape = (len(rows), int(num_stages.max(initial=1)))
        transfer, replica = np.zeros(shape, np.intp), np.zeros(shape, np.intp)
        layers, recompute = np.zeros((*shape, self.runs.counts.shape[1])), np.full(shape, NO_RECOMPUTE)
        transfer[step, stage], replica[step, stage] = self.runs.transfer[run], self.runs.replica[run]
        layers[step, stage], recompute[step, stage] = self.runs.counts[run], self.runs.recompute[run]
        sent = self.replicas
        return StepBatch(
            inside=self.inside.take(self.plans.group[rows]),
            layers=layers,
            num_micro_batches=self.plans.num_micro_batches[rows].astype(float),
            interleave=self.plans.fill_chunks[rows].astype(float),
            again=(recompute == FULL).astype(float),
            is_selective=(recompute == SELECTIVE).astype(float),
            transfers=self.transfers.take(transfer),
            parameters=sent.parameters.take(replica),
            forward_gathers=sent.gathers.take(replica),
            reductions=sent.reductions.take(replica),
            gradients=sent.gradients.take(replica),
            update_shards=self.plans.update_shards[rows],
            tied_share=self.plans.tied_share[rows],
            islands=self.plans.islands[rows].astype(float),
        )


def build_table(layouts: Iterable[PlanLayout]) -> StepTable:
    """The table of all plans of some layouts, in the order of their rows."""
    parts = TableParts()
    for layout in layouts:
        parts.add(layout)
    plans, of_run = parts.plan_columns(), parts.run_columns()
    order = np.argsort(plans.pop("row"), kind="stable")
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    of_run["plan"] = place[of_run["plan"]]
    in_order = np.argsort(of_run["plan"], kind="stable")
    runs = RunRows(**{name: column[in_order] for name, column in of_run.items()})
    sent, graphs = parts.replica_costs(), parts.graphs()
    by_degrees = sorted(range(len(graphs)), key=lambda number: _degrees(graphs[number]))
    return StepTable(
        graphs=tuple(graphs[number] for number in by_degrees),
        graph_of_group=np.argsort(by_degrees)[parts.graph_of_group].astype(np.int64),
        inside=parts.layer_columns(),
        plans=PlanRows(**{name: column[order] for name, column in plans.items()}),
        start=np.searchsorted(runs.plan, np.arange(len(order) + 1)).astype(np.int64),
        runs=runs,
        transfers=Traffic.of(parts.transfer_costs()),
        replicas=ReplicaTraffic(*(Traffic.of(np.ascontiguousarray(sent[:, place])) for place in range(sent.shape[1]))),
    )


def _degrees(step: CompiledStep) -> tuple[int, ...]:
    """What tells the graphs of one model and software apart, and their order."""
    plan = step.plan
    return plan.tensor, plan.context, plan.expert, plan.expert_tensor, plan.micro_batch


def build_batch(steps: Sequence[CompiledStep], networks: Sequence[Network]) -> StepBatch:
    """Steps of any models and software, each on its network, stage by stage."""
    both = enumerate(zip(steps, networks, strict=True))
    table = build_table(PlanLayout.of_step(step, network, row=row) for row, (step, network) in both)
    return table.batch(np.arange(len(steps)))


def ranges(first: Ints, last: Ints) -> tuple[Indices, Indices]:
    """All numbers of several ranges, one after the other, and which range each is of."""
    length = last - first
    number = np.repeat(np.arange(len(first)), length)
    return number, np.arange(len(number)) - np.repeat(length.cumsum() - length, length) + first[number]
