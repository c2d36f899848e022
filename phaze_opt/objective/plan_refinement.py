"""The refinement of layer times until one plan is known to be the best, on one chip or on several for stages to choose.

Every set of degrees enters with a closed bound below the step of any of its plans, at lower bounds on the makespans of
its layers; bounds never fall when a time of a layer rises. The set with the least bound is looked at: the program over
its cuts, recomputations and chips raises the bound, then the layers of the chips it chose are bounded anew, then their
schedules solved, then its best plan priced. That plan is the best one as soon as no bound of another set lies below it.
Sets that differ in pipeline, data, interleave or ZeRO alone share their layers, so few of them are scheduled.

Of several chips, a closed bound takes each layer at the time of the chip that is fastest at it. The program prices
chips whose schedules are solved and bounds the others (`plan.cuts.least_choice_on`), so that schedules are solved of
chips alone that it chose (decision 0264).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from phaze_opt.cost.device_seconds import NUM_CLASSES
from phaze_opt.cost.price_step import LayerTimes
from phaze_opt.estimate.protocol import Estimates
from phaze_opt.graph.model_graph import ModelGraph
from phaze_opt.hardware.accelerator import Accelerator
from phaze_opt.objective.best_placement import OptionTimes, bound_option, solve_option, verify_option
from phaze_opt.objective.bound_phases import MakespanBounds
from phaze_opt.objective.compile import PHASES, CompiledModel, CompiledOption
from phaze_opt.objective.scenario import Scenario
from phaze_opt.plan.cuts import MixedStages, cheaper_choices, is_as_fast, lower_of_stages, price_of_stages
from phaze_opt.plan.plan_degrees import MixedPlan, PlanDegrees, StageChip
from phaze_opt.record.arrays import Floats, Indices
from phaze_opt.record.near_ties import comparable
from phaze_opt.schedule.problem import MipRuns

SAME_STEP = 1e-9
"""Relative difference up to which a step priced among all plans and alone are the same."""


def layer_classes(makespan_s: Floats, graph: ModelGraph, *, num_classes: int = NUM_CLASSES) -> Floats:
    """Times of front, unit and back by class from makespans of layers, shape (..., parts, passes, classes), s.

    What full recomputation runs again takes no longer than forward itself, whose schedule serves it too.

    Args:
        makespan_s: of forward, backward, update and maybe forward again, shape (..., layers, phases), s.
        graph: which layers make up which part.
        num_classes: a makespan is of one class; others are 0, and may be left out where no parts are told.
    """
    forward_s = makespan_s[..., 0]
    again_s = np.minimum(makespan_s[..., len(PHASES)], forward_s) if makespan_s.shape[-1] > len(PHASES) else forward_s
    parts_s = graph.of_parts(makespan_s[..., : len(PHASES)], axis=-2)
    passes_s = np.concatenate([parts_s, graph.of_parts(again_s, axis=-1, is_again=True)[..., None]], axis=-1)
    classes_s = np.zeros((*passes_s.shape, num_classes))
    classes_s[..., 0] = passes_s
    return classes_s


@dataclass(slots=True, eq=False)
class ChipMakespans:
    """Makespans of all sets of layers on one chip: bounds, until they are refined.

    Attributes:
        accelerator: the chip.
        estimates: of all operators, row 0.
        graph: of any of the sets; all have the same layers in the same parts.
        lower_s: what no schedule goes below, shape (sets, layers, phases), s.
        known_s: what is attained where schedules are solved, and ``lower_s`` elsewhere.
        attention_s: what selective recomputation runs again, shape (sets, layers), s.
        times: of the sets of layers that were refined.
    """

    accelerator: Accelerator
    estimates: Estimates
    graph: ModelGraph
    lower_s: Floats
    known_s: Floats
    attention_s: Floats
    times: dict[int, OptionTimes] = field(default_factory=dict)

    @classmethod
    def of(
        cls, accelerator: Accelerator, estimates: Estimates, graph: ModelGraph, bounds: MakespanBounds
    ) -> "ChipMakespans":
        """Bounds alone, those of row 0."""
        makespan_s = bounds.makespan_s[0]
        return cls(accelerator, estimates, graph, makespan_s.copy(), makespan_s.copy(), bounds.attention_s[0])

    def is_solved(self, layers: int) -> bool:
        """Whether the schedules of a set of layers are solved."""
        return layers in self.times and self.times[layers].is_solved

    def layer_times(self, layers: int, makespan_s: Floats) -> LayerTimes:
        """Of one set of layers."""
        attention_s = self.graph.of_parts(self.attention_s[layers], is_again=True)
        return LayerTimes(layer_classes(makespan_s[layers], self.graph), attention_s)

    def stage_chip(self, layers: int) -> StageChip:
        """What stages with a set of layers know of the chip."""
        times = self.layer_times(layers, self.known_s)
        return StageChip(times, float(self.accelerator.hbm_bytes), self.is_solved(layers))

    def refine(self, layers: int, option: CompiledOption, *, scenario: Scenario) -> MipRuns:
        """Tighter bounds of makespans, or where they are known, their schedules; returns the MIPs solved."""
        shared, mips = (self.estimates, self.accelerator), MipRuns()
        if layers not in self.times:
            self.times[layers] = bound_option(option, *shared, scenario=scenario)
        else:
            mips = solve_option(option, self.times[layers], *shared, scenario=scenario)
        times = self.times[layers]
        times.lower_s = np.maximum(times.lower_s, self.lower_s[layers])
        self.lower_s[layers], self.known_s[layers] = times.lower_s, times.known_s
        return mips


@dataclass(frozen=True, slots=True)
class RefinedPlan:
    """The fastest plan and the set it is of.

    Attributes:
        best: the plan, and the chip of each stage.
        layers: number of the set of layers.
        mips: solved.
        num_searches: programs over cuts that were solved.
    """

    best: MixedPlan
    layers: int
    mips: MipRuns
    num_searches: int


class PlanRefinement:
    """The search for the fastest plan of a model.

    Args:
        compiled: the scheduling problems of its sets of layers.
        degrees: its plans.
        chips: that stages choose from; of equal plans stages take the first ones.
        scenario: how schedules are solved.
    """

    def __init__(
        self, compiled: CompiledModel, degrees: PlanDegrees, chips: Sequence[ChipMakespans], scenario: Scenario
    ) -> None:
        """Start from bounds alone."""
        self._compiled, self._first, self._degrees, self._scenario = compiled, degrees, degrees, scenario
        self._layers_of, self._chips = degrees.layers_of, tuple(chips)
        self._most_bytes = max(float(each.accelerator.hbm_bytes) for each in chips)
        self._found: dict[int, MixedPlan] = {}
        self._open: dict[int, set[int]] = {}
        self._layer_s: Floats | None = None
        self._mips, self._num_searches = MipRuns(), 0

    def run(self) -> RefinedPlan | None:
        """The fastest plan, plans that were left out at first among them; None if no plan fits."""
        while True:
            found = self._best()
            limit_s = math.inf if found is None else found.best.ranked.time.seconds * (1.0 + SAME_STEP)
            makespan_s = np.minimum.reduce([each.known_s for each in self._chips])
            wider = self._first.wider(layer_classes(makespan_s, self._compiled.graph), limit_s)
            if wider in (self._first, self._degrees):
                return found
            self._degrees, self._layers_of, self._layer_s = wider, wider.layers_of, None
            self._found, self._open = {}, {}

    def _best(self) -> RefinedPlan | None:
        """Look at the set of the least bound until it is one whose best plan is known; None if no plan fits."""
        values = self._closed_s(None)
        is_searched = np.zeros(len(values), dtype=np.bool_)
        while True:
            best = int(np.argmin(comparable(values)))
            if np.isinf(values[best]):
                return None
            if not is_searched[best]:
                values[best], is_searched[best] = self._searched_s(best), True
            elif best in self._found:
                return self._result(best)
            else:
                layers = int(self._layers_of[best])
                for chip in sorted(self._open.pop(best)):
                    self._refine(chip, layers)
                own = [number for number in np.flatnonzero(self._layers_of == layers) if number not in self._found]
                values[own], is_searched[own] = self._closed_s(np.array(own)), False

    def bound_s(self, seconds: float) -> float:
        """What the gaps of solved schedules leave open on one chip: the least bound of any set that has some, s."""
        (chip,) = self._chips
        open_layers = [
            number for number, times in chip.times.items() if times.is_solved and (times.upper_s > times.lower_s).any()
        ]
        if not open_layers:
            return seconds
        attention_s = self._compiled.graph.of_parts(chip.attention_s, axis=-1, is_again=True)
        lower = LayerTimes(layer_classes(chip.lower_s, self._compiled.graph), attention_s)
        rows = np.flatnonzero(np.isin(self._layers_of, open_layers))
        seconds = min(seconds, float(self._degrees.left_out_s(lower.classes_s[None])[0]))
        return self._degrees.least_step_s(lower, rows, self._most_bytes, limit_s=seconds)

    def _closed_s(self, chosen: Indices | None) -> Floats:
        """Closed bounds of sets at the times known, s."""
        if self._layer_s is None:
            self._layer_s = self._fastest_s([each.known_s for each in self._chips])
        bounds: Floats = self._degrees.bounds_s(self._layer_s, chosen, memory_bytes=self._most_bytes)[0]
        return bounds

    def _fastest_s(self, makespan_s: Sequence[Floats]) -> Floats:
        """What the software makes of layer times, each layer and pass on the chip that is fastest at it."""
        attention_s = np.minimum.reduce([each.attention_s for each in self._chips])
        graph = self._compiled.graph
        classes_s = layer_classes(np.minimum.reduce(makespan_s), graph, num_classes=1)
        return self._degrees.prices.layer_s(classes_s[None], graph.of_parts(attention_s, axis=-1, is_again=True)[None])

    def _searched_s(self, number: int) -> float:
        """The best plan of a set on chips that are scheduled, or the least bound of any; infinite where none can win.

        Chips that the bound rests on and that are not scheduled are noted.
        """
        self._num_searches += 1
        layers, limit_s = int(self._layers_of[number]), self._limit_s
        chips = self._stage_chips(layers)
        solved = [place for place, each in enumerate(chips) if each.is_exact]
        if len(solved) < len(chips):
            bound = self._degrees.least_choice(number, chips, limit_s=limit_s)
            if bound is None:
                return math.inf
            unsolved = set(bound.stages.chips).difference(solved)
            if unsolved:
                self._open[number] = unsolved
                return bound.seconds
        found = self._degrees.best_stages_on(number, [chips[place] for place in solved], limit_s=limit_s)
        if found is None:
            return math.inf
        self._found[number] = replace(found, chips=tuple(solved[each] for each in found.chips))
        return found.ranked.time.seconds

    @property
    def _limit_s(self) -> float:
        """What is slower than a plan that is known cannot win; what is as fast may, by its order."""
        return min((each.ranked.time.seconds for each in self._found.values()), default=math.inf) * (1.0 + SAME_STEP)

    def _refine(self, chip: int, layers: int) -> None:
        option = self._compiled.options[layers]
        self._mips |= self._chips[chip].refine(layers, option, scenario=self._scenario)
        self._layer_s = None

    def _result(self, number: int) -> RefinedPlan:
        """The plan, on the first chips that are as fast, its schedules replayed."""
        layers, best = int(self._layers_of[number]), self._found[number]
        if any(best.chips):
            best = self._with_first_chips(number, best)
        option = self._compiled.options[layers]
        for place in sorted(set(best.chips)):
            chip = self._chips[place]
            verify_option(option, chip.times[layers], chip.estimates, chip.accelerator, scenario=self._scenario)
        return RefinedPlan(best, layers, self._mips, self._num_searches)

    def _with_first_chips(self, number: int, best: MixedPlan) -> MixedPlan:
        """From the first stage on, each stage on the first chip on which the step takes no longer; cuts stay.

        Chips whose bound takes no longer are scheduled for it.
        """
        layers, best_s, plan = int(self._layers_of[number]), best.ranked.time.seconds, best.ranked.plan
        column = {size: place for place, size in enumerate(self._degrees.sizes(number))}
        fits = [self._degrees.fitting(number, float(each.accelerator.hbm_bytes)) for each in self._chips]
        stages = MixedStages(plan.blocks or self._degrees.step(number).blocks, best.chips, plan.recomputes)
        tables = self._degrees.tables(number, self._stage_chips(layers))
        for stage, size in enumerate(stages.blocks):
            allowed = np.array([each[stage, column[size]] for each in fits])
            for chip, way in cheaper_choices(stages, stage, allowed=allowed, recomputes=self._degrees.recomputes):
                trial, own = stages.with_stage(stage, chip, way), self._chips[chip]
                while not own.is_solved(layers) and is_as_fast(lower_of_stages(tables, trial), best_s):
                    self._refine(chip, layers)
                    tables = self._degrees.tables(number, self._stage_chips(layers))
                if own.is_solved(layers) and is_as_fast(price_of_stages(tables, trial), best_s):
                    stages = trial
                    break
        return self._degrees.mixed(number, stages, self._stage_chips(layers))

    def _stage_chips(self, layers: int) -> list[StageChip]:
        return [each.stage_chip(layers) for each in self._chips]
