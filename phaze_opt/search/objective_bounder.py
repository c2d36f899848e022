"""`ObjectiveBounder`: the bounds and estimates of an `Objective`, as probes see them."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from phaze_opt.hardware.chip_template import DesignPoint
from phaze_opt.objective.best_placement import phase_costs
from phaze_opt.objective.bounds import ThroughputBounder
from phaze_opt.objective.evaluate import Objective
from phaze_opt.search.probe import PhaseView, PointBound


@dataclass(frozen=True, slots=True)
class ObjectiveBounder:
    """Bounds points by `objective.bounds` and shows the operator graphs that the objective schedules.

    Attributes:
        objective: of the scenario; its compiled graphs are shared, nothing is evaluated.
    """

    objective: Objective
    _bounder: ThroughputBounder = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Keep what bounds share; nothing is computed yet."""
        object.__setattr__(self, "_bounder", ThroughputBounder(self.objective))

    def bound(self, points: Sequence[DesignPoint]) -> tuple[PointBound, ...]:
        """The bound of each point, in order."""
        devices = self.objective.scenario.cluster.num_devices
        return tuple(
            PointBound(
                throughput_samples_per_s=bound.throughput_samples_per_s,
                throughput_per_tdp=bound.throughput_samples_per_s / (bound.tdp_w * devices),
                tdp_w=bound.tdp_w,
                area_mm2=bound.area_mm2,
                reason=bound.reason,
            )
            for bound in self._bounder.bound_points(points)
        )

    def within_budgets(self, points: Sequence[DesignPoint]) -> tuple[bool, ...]:
        """Whether each point keeps to the scenario's budgets."""
        return self._bounder.within_budgets(points)

    def phases(self, point: DesignPoint) -> tuple[PhaseView, ...]:
        """Every model, tensor degree, distinct layer and phase on the architecture of a point."""
        accelerator = self.objective.accelerator(point)
        objective = self.objective.at_links(accelerator.link_bytes_per_s)
        views = []
        for index, model in enumerate(objective.scenario.models):
            compiled = objective.compiled(index, point.micro_batch)
            estimates = objective.estimate(accelerator, point.micro_batch, index=index)
            for option, micro_batch in zip(compiled.options, _micro_batches(objective, index, point), strict=True):
                for row, layer in enumerate(option.phases):
                    for phase in layer:
                        costs = phase_costs(phase, estimates, accelerator)
                        views.append(
                            PhaseView(
                                model=model.name,
                                tensor_parallel=option.graph.tensor_parallel,
                                micro_batch=micro_batch,
                                layer=phase.layer,
                                phase=phase.phase,
                                repeats=option.graph.chain.count(row),
                                core_types=phase.core_types,
                                edges=phase.edges,
                                one_core_s=costs.one_core_s,
                                spread_s=costs.spread_s,
                                floor_s=costs.floor_s,
                                collective_s=phase.collective_s,
                            )
                        )
        return tuple(views)


def _micro_batches(objective: Objective, index: int, point: DesignPoint) -> tuple[int, ...]:
    """Of every option of a model."""
    if objective.scenario.plans is None:
        return (point.micro_batch,) * len(objective.compiled(index, point.micro_batch).options)
    return tuple(step.plan.micro_batch for step in objective.planned(index).prices.sets)
