"""Solutions of designs with full plans: schedules replayed, the plan admitted, its stages' memory, its price."""

from dataclasses import dataclass, replace

import numpy as np

from phaze_opt.certify.certificate import SolvedModel, SolvedPart, SolvedPlan, SolvedSchedule
from phaze_opt.certify.check.plan_bounds import PlannedModels
from phaze_opt.certify.check.plans.admitted import chunk_cuts, even_blocks
from phaze_opt.certify.check.plans.grouped import LayersInParts, SolvedGroups, estimate_all
from phaze_opt.certify.check.plans.layer_sets import AGAIN, FORWARD, LayerSet, key_of, scheduled_graph
from phaze_opt.certify.check.plans.plan_check import PlanCheck, StagedPlan
from phaze_opt.certify.check.problem_data import PHASES
from phaze_opt.certify.check.solutions import phase_latencies, replay
from phaze_opt.estimate.protocol import Estimates
from phaze_opt.graph.operator import OperatorGraph
from phaze_opt.hardware.accelerator import AcceleratorTable
from phaze_opt.record.arrays import Floats
from phaze_opt.workload.plan import Recompute

_PASSES = (*PHASES, PHASES[FORWARD])


@dataclass(frozen=True, slots=True)
class PlanSolutions:
    """Works out the step of a solved model.

    Attributes:
        models: the problem and the plans of its models.
    """

    models: PlannedModels

    def step_s(self, model: int, solved: SolvedModel, chip: AcceleratorTable) -> float | str:
        """The step of a model's plan and schedules on one chip, s, or the rule that they break."""
        models = self.models.at_links(float(chip.link_bytes_per_s[0]))
        check = models.checks[model]
        fault = self._fault(model, solved)
        if fault is not None or solved.plan is None:
            return fault or "has no full plan"
        staged = StagedPlan(solved.plan.plan, solved.plan.blocks, solved.plan.recompute)
        for stage, takes in enumerate(check.even.memory_bytes(staged)):
            if takes > chip.hbm_bytes[0]:
                return f"stage {stage} takes {takes:.6g} bytes of {float(chip.hbm_bytes[0]):.6g}"
        sets = check.even.sets
        number = [layers.key for layers in sets].index(key_of(staged.plan))
        estimates = models.estimate(model, chip)
        makespan_s = self._makespans(sets[number], solved.schedules, chip, estimates)
        if isinstance(makespan_s, str):
            return makespan_s
        grouped_s = self.grouped_s(check.even, sets[number], solved, chip, makespan_s)
        if isinstance(grouped_s, str):
            return grouped_s
        # Layers of other sets have no part in the price of this one's plan.
        of_all = np.zeros((1, len(sets), *makespan_s.shape))
        of_all[0, number] = makespan_s
        return float(check.even.price_s(staged, of_all, check.even.attention_s(estimates.spread_s), grouped_s)[0])

    def _fault(self, model: int, solved: SolvedModel) -> str | None:
        """Why a solution states no plan that the scenario admits."""
        scenario, check = self.models.problem.certificate.scenario, self.models.checks[model]
        if solved.plan is None or scenario.plans is None:
            return "has no full plan"
        plan = solved.plan.plan
        if solved.stages or (solved.tensor_parallel, solved.data_parallel) != (plan.tensor, plan.data):
            return "has a placement beside its full plan, or other degrees"
        if not check.even.admits(plan):
            return f"its plan is none that the scenario admits: {plan}"
        return _fault_of_stages(solved.plan, scenario.models[model].num_units, scenario.plans.recompute)

    def grouped_s(
        self, check: PlanCheck, layers: LayerSet, solved: SolvedModel, chip: AcceleratorTable, makespan_s: Floats
    ) -> list[dict[tuple[int, int], float]] | str:
        """Of each stage what its units take in the groups of a solution; no stages where it has none."""
        if solved.fusion is None or solved.plan is None:
            return []
        if check.grouped is None:
            return "has layers in groups, which its scenario has none of"
        estimator = self.models.problem.estimator
        exclusivity = self.models.problem.certificate.scenario.exclusivity

        def replay_part(graph: OperatorGraph, part: SolvedPart) -> float | str:
            left = replace(chip, glb_bytes=chip.glb_bytes - part.reserved_bytes)
            problem = scheduled_graph(graph, first=0)
            latencies = phase_latencies(problem, left, estimate_all(graph.operators, estimator, left))
            return replay(problem, part.schedule, latencies, exclusivity)

        graphs = LayersInParts(check.model, check.training, check.stack, layers, solved.plan.plan)
        groups = SolvedGroups(graphs, solved.plan, int(chip.glb_bytes[0]), replay_part)
        return groups.stages_s(solved.fusion, makespan_s)

    def _makespans(
        self, layers: LayerSet, schedules: tuple[SolvedSchedule, ...], chip: AcceleratorTable, estimates: Estimates
    ) -> Floats | str:
        """Makespans of all layers and passes, each scheduled once; shape (layers, passes), s."""
        num_passes = len(layers.phases[0])
        listed = {(each.layer, each.phase, each.is_again): each for each in schedules}
        expected = {
            (layer, _PASSES[column], column == AGAIN)
            for layer in range(len(layers.phases))
            for column in range(num_passes)
        }
        if set(listed) != expected or len(schedules) != len(expected):
            return "does not schedule every layer's passes once"
        makespans = np.zeros((len(layers.phases), num_passes))
        exclusivity = self.models.problem.certificate.scenario.exclusivity
        for layer, graphs in enumerate(layers.phases):
            for column, graph in enumerate(graphs):
                schedule = listed[layer, _PASSES[column], column == AGAIN]
                made = replay(graph, schedule, phase_latencies(graph, chip, estimates), exclusivity)
                if isinstance(made, str):
                    return f"schedule of layer {layer}, {schedule.phase}{' again' * schedule.is_again}: {made}"
                makespans[layer, column] = made
        return makespans


def _fault_of_stages(solved: SolvedPlan, num_layers: int, choices: tuple[Recompute, ...]) -> str | None:
    """Blocks all placed, chunks equal, recomputation as the scenario lets it be."""
    plan, blocks = solved.plan, solved.blocks
    if len(blocks) != plan.pipeline or len(solved.recompute) != plan.pipeline or sum(blocks) != num_layers:
        return f"its {plan.pipeline} stages do not hold {num_layers} blocks"
    if min(blocks) < 0 or 0 in blocks[1:-1]:
        return "a stage between the ends has no block"
    if plan.interleave > 1 and blocks not in chunk_cuts(num_layers, plan.pipeline, plan.interleave):
        return f"its stages are not {plan.interleave} equal chunks each"
    if not set(solved.recompute) <= set(choices):
        return "a stage recomputes as the scenario does not let it"
    if (plan.blocks or even_blocks(num_layers, plan.pipeline)) != blocks or plan.recomputes != solved.recompute:
        return "its plan has other stages than are stated beside it"
    return None
