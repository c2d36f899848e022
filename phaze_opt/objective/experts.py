"""Expert baselines: hand placements, priced like any other design, as rows beside what a search finds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from phaze_opt.estimate.protocol import Estimates
from phaze_opt.hardware.accelerator import Accelerator
from phaze_opt.hardware.constants import Constants
from phaze_opt.hardware.presets import load_architecture
from phaze_opt.objective.compile import CompiledModel
from phaze_opt.objective.evaluate import Objective
from phaze_opt.objective.evaluation import Evaluation, EvaluationStatus
from phaze_opt.objective.expert_placement import ExpertPlacement, load_expert_book
from phaze_opt.objective.layer_times import bound_option, solve_option
from phaze_opt.objective.placing import PlacedModel, layer_costs, placement_problem
from phaze_opt.objective.scenario import Scenario
from phaze_opt.objective.several_models import combine_evaluations
from phaze_opt.placement.problem import PlacementResult
from phaze_opt.placement.solve import evaluate_placement

EXPERT_PREFIX = "expert on "
"""Begins the name of every row that is a hand placement."""


def evaluate_experts(
    scenario: Scenario, micro_batches: Sequence[int], *, constants: Constants
) -> Mapping[str, Evaluation]:
    """The hand placement of the scenario's models on each machine, at its best micro-batch of those given.

    The tensor degree is the expert's, whatever degrees the scenario offers to a search, and budgets do not apply. On a
    cluster of another size the number of replicas follows the devices (`ExpertPlacement.data_parallel`). What does not
    fit is an evaluation with its reason. Several models share a machine and a micro-batch, each with its own placement.

    Returns:
        Evaluations by name; empty if one of the models has no hand placement.
    """
    book = load_expert_book()
    experts = [book.placement_of(model) for model in scenario.models]
    known = [expert for expert in experts if expert is not None]
    if len(known) < len(experts):
        return {}
    pricers = [
        _Pricer(expert, replace(scenario, models=(model,), max_area_mm2=None, max_tdp_w=None), constants)
        for model, expert in zip(scenario.models, known, strict=True)
    ]
    best: dict[str, Evaluation] = {}
    for machine in book.accelerators:
        accelerator = load_architecture(machine, constants=constants)
        evaluations = [_evaluate(pricers, accelerator, size, scenario=scenario) for size in micro_batches]
        best[f"{EXPERT_PREFIX}{machine}"] = max(evaluations, key=lambda each: each.throughput_samples_per_s)
    return best


def is_expert(name: str) -> bool:
    """Whether a reference's name is that of a hand placement."""
    return name.startswith(EXPERT_PREFIX)


def _evaluate(
    pricers: Sequence[_Pricer], accelerator: Accelerator, micro_batch: int, *, scenario: Scenario
) -> Evaluation:
    """All models on one machine at one micro-batch."""
    members = [pricer.evaluate(accelerator, micro_batch) for pricer in pricers]
    return members[0] if len(members) == 1 else combine_evaluations(members, scenario=scenario)


class _Pricer:
    """Prices one model's hand placement on any machine; graphs are compiled once."""

    def __init__(self, expert: ExpertPlacement, scenario: Scenario, constants: Constants) -> None:
        self._expert = expert
        self._has_devices = expert.devices_per_replica <= scenario.cluster.num_devices
        # With too few devices the expert's degree may not even be one of the scenario's; nothing is placed then.
        self._scenario = replace(scenario, tensor_parallel=(expert.tensor,)) if self._has_devices else scenario
        self._objective = Objective(self._scenario, constants=constants)

    def evaluate(self, accelerator: Accelerator, micro_batch: int) -> Evaluation:
        """One machine at one micro-batch."""
        if not self._has_devices:
            devices = self._scenario.cluster.num_devices
            reason = (
                f"the hand placement of {self._expert.pipeline} stages x {self._expert.tensor} devices does not fit "
                f"{devices} devices"
            )
            return self._objective.refuse(accelerator, micro_batch, EvaluationStatus.TOO_FEW_DEVICES, reason)
        compiled = self._objective.compiled(0, micro_batch)
        estimates = self._objective.estimate(accelerator, micro_batch)
        placed = self._place(compiled, estimates, accelerator, micro_batch)
        return self._objective.evaluate_placed(accelerator, micro_batch, placed, estimates)

    def _place(
        self, compiled: CompiledModel, estimates: Estimates, accelerator: Accelerator, micro_batch: int
    ) -> PlacedModel:
        """Exact schedules of the expert's tensor degree, and the expert's placement on them."""
        (option,) = compiled.options
        times = bound_option(option, estimates, accelerator, scenario=self._scenario)
        num_ilp_solves = solve_option(option, times, estimates, accelerator, scenario=self._scenario)

        def price(lower: bool) -> PlacementResult:
            makespans = times.lower_s if lower else times.upper_s
            costs = layer_costs(option, makespans, training=compiled.training)
            problem = placement_problem((costs,), compiled.training, accelerator, scenario=self._scenario)
            data_parallel = self._expert.data_parallel(
                num_devices=self._scenario.cluster.num_devices,
                global_batch=self._scenario.global_batch,
                micro_batch=micro_batch,
            )
            return evaluate_placement(
                problem,
                tensor_parallel=self._expert.tensor,
                data_parallel=data_parallel,
                cuts=self._expert.cuts(),
            )

        return PlacedModel(
            placement=price(lower=False),
            option=option,
            times=times,
            bound_s=price(lower=True).batch_time_s,
            num_ilp_solves=num_ilp_solves,
            num_placements=1,
        )
