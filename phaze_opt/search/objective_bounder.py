"""`ObjectiveBounder`: the bounds and estimates of an `Objective`, as probes see them."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import repeat

from phaze_opt.hardware.chip_template import DesignPoint, PointColumns
from phaze_opt.hardware.designed_chip import chips_of
from phaze_opt.hardware.silicon.chip_silicon import static_w_per_mm2
from phaze_opt.objective.best_placement import phase_costs
from phaze_opt.objective.bill import own_chips
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
        objective, devices = self.objective, self.objective.scenario.cluster.num_devices
        # An iteration takes at least what one device leaks meanwhile: loose, but never above what is reached.
        leak_w = static_w_per_mm2(objective.constants)
        return tuple(
            PointBound(
                throughput_samples_per_s=bound.throughput_samples_per_s,
                throughput_per_tdp=bound.throughput_samples_per_s / (bound.tdp_w * devices),
                tdp_w=bound.tdp_w,
                area_mm2=bound.area_mm2,
                reason=bound.reason,
                throughput_per_usd=bound.throughput_samples_per_s / usd_per_s if usd_per_s else math.inf,
                throughput_per_joule=bound.throughput_samples_per_s / (leak_w * bound.area_mm2),
            )
            for bound, usd_per_s in zip(self._bounder.bound_points(points), self._usd_per_s(points), strict=True)
        )

    def _usd_per_s(self, points: Sequence[DesignPoint]) -> Iterator[float]:
        """What a second of training costs on a cluster of each chip; 0 where no goal and no budget is of money."""
        scenario, constants = self.objective.scenario, self.objective.constants
        if scenario.prices is None or not points:
            return repeat(0.0, len(points))
        chips = chips_of(PointColumns.of(points), constants)
        return iter(own_chips(chips, scenario, constants).usd_per_s.tolist())

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
