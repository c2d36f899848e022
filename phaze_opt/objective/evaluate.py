"""`Objective`: a design point in, an `Evaluation` out; pure and deterministic."""

from collections.abc import Sequence
from dataclasses import replace

from phaze_opt import __version__
from phaze_opt.cost.clocks import ScheduleClock
from phaze_opt.errors import InputError
from phaze_opt.estimate.protocol import CompilingEstimator, Estimates, load_estimator
from phaze_opt.hardware.accelerator import Accelerator, AcceleratorTable, table_of
from phaze_opt.hardware.area import check_covered
from phaze_opt.hardware.chip_template import DesignPoint
from phaze_opt.hardware.constants import Constants
from phaze_opt.hardware.designed_chip import GENERATION, build_accelerator
from phaze_opt.hardware.presets import is_machine
from phaze_opt.hardware.silicon.chip_silicon import area_mm2_of, over_reticle, power_w_of
from phaze_opt.hardware.silicon.silicon import has_die, with_link_rate
from phaze_opt.objective.best_placement import PlacedModel, place_model, schedule_options, verify_placed
from phaze_opt.objective.bill import own_chips
from phaze_opt.objective.bound_phases import POOL_MICRO_BATCHES, MakespanBounds, PhasePools, pool_chips
from phaze_opt.objective.compile import PHASES, CompiledModel, compile_model
from phaze_opt.objective.evaluation import (
    CAPEX,
    Effort,
    Evaluation,
    EvaluationStatus,
    Provenance,
    broken_budget,
    budget_constraints,
    unbuildable,
)
from phaze_opt.objective.metrics import break_down, cause_shares, energy_j, split_makespans, utilisations
from phaze_opt.objective.plan_evaluation import (
    PlannedJob,
    PlanTimes,
    evaluate_plan,
    layer_schedules,
    refuse_misfits,
    with_rates,
)
from phaze_opt.objective.plan_refinement import ChipMakespans
from phaze_opt.objective.scenario import PLANNED, Scenario
from phaze_opt.objective.scheduled_plan import (
    EvaluatedPlan,
    MixedChips,
    PlannedModel,
    ScheduledPlan,
    fuse_best_plan,
    plan_model,
    schedule_best_plan,
    schedule_mixed_plan,
)
from phaze_opt.objective.several_models import combine_evaluations
from phaze_opt.placement.problem import PlacementStatus
from phaze_opt.plan.plan_search import Machine
from phaze_opt.schedule.highs import solver_words
from phaze_opt.workload.workload import Workload


def _check_silicon(chip: Accelerator, constants: Constants) -> None:
    """Refuse to price a chip by silicon that it was not built by: its HBM and its area would be of two kinds.

    Raises:
        InputError: it was.
    """
    known = constants.option(GENERATION) if has_die(constants) else ""
    if chip.hbm_generation != known:
        given, asked = (
            f"a die with {each}" if each else "of the tables at 22 nm" for each in (chip.hbm_generation, known)
        )
        message = f"the chip is {given} and the scenario's silicon {asked}; build it with the objective's constants"
        raise InputError(message, key="accelerator")


class Objective:
    """Evaluates designs for one scenario; graphs are compiled once per model and micro-batch and kept.

    Keeping them changes speed, never a result: two objectives of equal scenario and constants agree to the bit.
    """

    def __init__(self, scenario: Scenario, *, constants: Constants | None = None) -> None:
        """Load the estimator.

        Args:
            scenario: workload, cluster and choices.
            constants: the package's own unless given.

        Raises:
            PluginError: the estimator is unknown or fails to load.
        """
        self.scenario = scenario
        self.constants = scenario.constants_of(constants)
        self._estimator = load_estimator(scenario.estimator).with_constants(self.constants)
        self._compiled: dict[tuple[int, int], CompiledModel] = {}
        self._planned: dict[int, PlannedModel] = {}
        self._pools: dict[int, PhasePools] = {}
        self._lender: Objective | None = None
        self._at_links: dict[float, Objective] = {}
        self._ahead: dict[tuple[int, Accelerator], tuple[Estimates, MakespanBounds]] = {}
        self._provenance = Provenance(
            package_version=__version__,
            estimator=self._estimator.name,
            solver=solver_words(),
            scenario_digest=scenario.digest,
            constants_digest=self.constants.digest,
        )

    def evaluate(self, point: DesignPoint) -> Evaluation:
        """Evaluate a point of the space, as a designed chip."""
        # A micro-batch that cannot be is refused by name, before it overflows a column of integers.
        self.scenario.training_of(self.scenario.models[0], point.micro_batch)
        return self.evaluate_accelerator(self.accelerator(point), point.micro_batch)

    def accelerator(self, point: DesignPoint) -> Accelerator:
        """The designed chip that a point means."""
        return build_accelerator(point, constants=self.constants)

    def evaluate_accelerator(
        self, accelerator: Accelerator, micro_batch: int = 1, *, is_built: bool = False
    ) -> Evaluation:
        """Evaluate any accelerator, for every model of the scenario.

        Args:
            accelerator: the chip, built under the objective's constants.
            micro_batch: samples, of Phaze's placements; full plans have micro-batches of their own.
            is_built: whether it counts as built whatever its area; machines of the package do.

        Raises:
            InputError: the chip is of other silicon than the scenario.
        """
        _check_silicon(accelerator, self.constants)
        own = self.at_links(accelerator.link_bytes_per_s)
        refused = not is_built and over_reticle(accelerator, self.constants)[1]
        price = (
            own._refuse_unbuildable if refused and not is_machine(accelerator, self.constants) else own._evaluate_model
        )
        members = tuple(
            price(index, model, accelerator, micro_batch) for index, model in enumerate(self.scenario.models)
        )
        found = members[0] if len(members) == 1 else combine_evaluations(members, scenario=self.scenario)
        return self.with_money(found)

    def with_money(self, found: Evaluation) -> Evaluation:
        """With throughput per USD and the slack of the budget, where a goal or a budget is of money."""
        scenario, budget = self.scenario, self.scenario.max_capex_usd
        if not found.is_feasible or (scenario.prices is None and budget is None):
            return found
        owned = own_chips(table_of(found.accelerator), scenario, self.constants)
        slack = () if budget is None else ((CAPEX, float(owned.capex_usd[0]) / budget - 1.0),)
        rate = found.throughput_samples_per_s / float(owned.usd_per_s[0])
        kept = tuple(each for each in found.constraints if each[0] != CAPEX)
        return replace(found, throughput_per_usd=rate, constraints=(*kept, *slack))

    def _budgets(self, accelerator: Accelerator, area_mm2: float, tdp_w: float) -> tuple[tuple[str, float], ...]:
        """By how much a chip exceeds each budget, relative to it."""
        scenario, budget = self.scenario, self.scenario.max_capex_usd
        own = budget_constraints(area_mm2, tdp_w, scenario)
        if budget is None:
            return own
        owned = own_chips(table_of(accelerator), scenario, self.constants)
        return (*own, (CAPEX, float(owned.capex_usd[0]) / budget - 1.0))

    def at_links(self, link_bytes_per_s: float) -> "Objective":
        """The objective of chips with links of their own: the same but for a network that is so fast.

        Graphs are priced on a network once, so each rate of links has an objective; figures say that they are of this
        one.

        Args:
            link_bytes_per_s: `Accelerator.link_bytes_per_s`; 0 for those of the scenario's network.
        """
        cluster = self.scenario.cluster
        network = with_link_rate(cluster.network, link_bytes_per_s)
        if network is cluster.network:
            return self
        if link_bytes_per_s not in self._at_links:
            scenario = replace(self.scenario, cluster=replace(cluster, network=network))
            other = Objective(scenario, constants=self.constants)
            # Dual vectors bound schedules, which no network changes.
            other._lender, other._provenance = self, self._provenance
            self._at_links[link_bytes_per_s] = other
        return self._at_links[link_bytes_per_s]

    def under(self, constants: Constants, *, scenario: Scenario, is_bounded_alike: bool = False) -> "Objective":
        """An objective for other constants; graphs are shared where scenarios have the same (`Scenario.of_graphs`).

        Args:
            constants: of the other objective.
            scenario: of the other objective.
            is_bounded_alike: share dual vectors too. They bound makespans under any constants, so that figures are the
                same to the bit; how far below an open schedule its bound lies may differ.
        """
        other = Objective(scenario, constants=constants)
        if scenario.of_graphs == self.scenario.of_graphs:
            other._compiled, other._planned = self._compiled, self._planned
            other._lender = self if is_bounded_alike else None
        return other

    def estimate(self, accelerator: Accelerator, micro_batch: int, *, index: int = 0) -> Estimates:
        """Estimates of all operators of one model on one accelerator."""
        return self.estimate_table(table_of(accelerator), micro_batch, index=index)

    def estimate_table(self, table: AcceleratorTable, micro_batch: int, *, index: int = 0) -> Estimates:
        """Estimates of all operators of one model on many accelerators, one row each."""
        return self._estimator.estimate(self.compiled(index, micro_batch).operators, table)

    def bounded(self, table: AcceleratorTable, micro_batch: int, *, index: int) -> tuple[CompiledModel, Estimates]:
        """The scheduling problems of one model that bound its layers on many accelerators, and their estimates.

        Where layers are fused, the layers of units are as fast as any groups could let them be (decision 0312).
        """
        if not self.scenario.layer_fusion:
            return self.compiled(index, micro_batch), self.estimate_table(table, micro_batch, index=index)
        freed = self.planned(index).freed
        return freed.compiled, freed.estimates(self._estimator, table)

    def grow_pools(self, pools: PhasePools, *, index: int) -> None:
        """Add the vectors of the fixed designs of `bound_phases.POOL_DESIGNS` for one model."""
        chips = pool_chips(self.constants)
        for micro_batch in POOL_MICRO_BATCHES if self.scenario.plans is None else POOL_MICRO_BATCHES[:1]:
            estimates = self.estimate_table(chips, micro_batch, index=index)
            pools.grow(self.compiled(index, micro_batch), estimates, chips)

    def planned(self, index: int) -> PlannedModel:
        """The scenario's model ``index`` with all its parallel plans; of a scenario of full plans.

        Raises:
            InputError: the choices leave no plan.
        """
        if index not in self._planned:
            prepare = self._estimator.compile if isinstance(self._estimator, CompilingEstimator) else tuple
            self._planned[index] = plan_model(self.scenario, self.scenario.models[index], prepare=prepare)
        return self._planned[index]

    def compiled(self, index: int, micro_batch: int) -> CompiledModel:
        """The compiled form of the scenario's model ``index`` at one micro-batch; of full plans, at all of them."""
        if self.scenario.plans is not None:
            return self.planned(index).compiled
        key = (index, micro_batch)
        if key not in self._compiled:
            model = self.scenario.models[index]
            prepare = self._estimator.compile if isinstance(self._estimator, CompilingEstimator) else tuple
            self._compiled[key] = compile_model(self.scenario, model, micro_batch=micro_batch, prepare=prepare)
        return self._compiled[key]

    def place(self, accelerator: Accelerator, micro_batch: int, *, index: int = 0) -> tuple[PlacedModel, Estimates]:
        """Estimate, schedule and place one model; the part of an evaluation that takes the time.

        Raises:
            InputError: the accelerator's elements are not those the model is trained in.
        """
        compiled = self.compiled(index, micro_batch)
        _check_elements(accelerator, compiled)
        estimates = self.estimate(accelerator, micro_batch, index=index)
        return place_model(compiled, estimates, accelerator, scenario=self.scenario), estimates

    def plan(
        self, accelerator: Accelerator, *, index: int = 0, scenario: Scenario | None = None
    ) -> ScheduledPlan | None:
        """The fastest full plan of one model and its schedules; None if no plan fits.

        Args:
            accelerator: the chip.
            index: which model of the scenario.
            scenario: says how thoroughly schedules are solved; its own unless given.

        Raises:
            InputError: the choices leave no plan, or the accelerator's elements are not those the model is trained in.
        """
        known = self._ahead.get((index, accelerator))
        estimates, bounds = known or self._bound_chips([accelerator], index)[0][1]
        own = scenario or self.scenario
        return schedule_best_plan(self.planned(index), bounds, estimates, accelerator, scenario=own)

    def plan_stages(self, accelerators: Sequence[Accelerator], *, index: int = 0) -> MixedChips | None:
        """The fastest full plan of one model whose stages each run on one of several chips; None if no plan fits.

        Args:
            accelerators: the chips; of equal plans stages run on the first ones.
            index: which model of the scenario.

        Raises:
            InputError: as of `plan`.
        """
        planned, graph = self.planned(index), self.planned(index).compiled.graph
        known = self._bound_chips(accelerators, index)
        chips = [ChipMakespans.of(each, estimates, graph, bounds) for each, (estimates, bounds) in known]
        return schedule_mixed_plan(planned, chips, scenario=self.scenario)

    def look_ahead(self, accelerators: Sequence[Accelerator]) -> None:
        """Estimate and bound full plans' layers on chips together that are evaluated next, each by itself."""
        for rate in {each.link_bytes_per_s for each in accelerators}:
            own = self.at_links(rate)
            alike = [each for each in accelerators if each.link_bytes_per_s == rate]
            own._ahead = {
                (index, chip): known
                for index in range(len(self.scenario.models))
                for chip, known in own._bound_chips(alike, index)
            }

    def _bound_chips(
        self, accelerators: Sequence[Accelerator], index: int
    ) -> list[tuple[Accelerator, tuple[Estimates, MakespanBounds]]]:
        """Each chip with the estimates and bounds of one model on it; no row of them depends on others."""
        compiled = self.planned(index).compiled
        for accelerator in accelerators:
            _check_elements(accelerator, compiled)
        table = AcceleratorTable.from_accelerators(list(accelerators))
        estimates = self.estimate_table(table, PLANNED, index=index)
        bounds = self._pools_of(index).bounds_and_choices(compiled, estimates, table)
        known = [(estimates.of_design(row), bounds.of_design(row)) for row in range(len(table))]
        return list(zip(accelerators, known, strict=True))

    def _pools_of(self, index: int) -> PhasePools:
        """Dual vectors of one model, its own or those of the objective that lends them."""
        if self._lender is not None:
            return self._lender._pools_of(index)
        if index not in self._pools:
            self._pools[index] = PhasePools(self.scenario.exclusivity)
            self.grow_pools(self._pools[index], index=index)
        return self._pools[index]

    def evaluate_placed(
        self, accelerator: Accelerator, micro_batch: int, placed: PlacedModel, estimates: Estimates, *, index: int = 0
    ) -> Evaluation:
        """The evaluation of one model in a placement found elsewhere, such as a hand placement; budgets apply.

        Args:
            accelerator: the machine.
            micro_batch: samples.
            placed: schedules and placement of the model ``index`` on it.
            estimates: of `estimate`, that the schedules were made with.
            index: which model of the scenario.
        """
        blank = self._blank(self.scenario.models[index], accelerator, micro_batch)
        return broken_budget(blank, self.scenario) or self._judge(index, blank, placed, estimates)

    def refuse(
        self, accelerator: Accelerator, micro_batch: int, status: EvaluationStatus, reason: str, *, index: int = 0
    ) -> Evaluation:
        """The evaluation of a design that is infeasible before anything is placed."""
        return replace(self._blank(self.scenario.models[index], accelerator, micro_batch), status=status, reason=reason)

    def _refuse_unbuildable(
        self, _index: int, model: Workload, accelerator: Accelerator, micro_batch: int
    ) -> Evaluation:
        """One model on a chip that cannot be built."""
        return unbuildable(self._blank(model, accelerator, micro_batch), self.constants)

    def _evaluate_model(self, index: int, model: Workload, accelerator: Accelerator, micro_batch: int) -> Evaluation:
        """One model on one accelerator."""
        if self.scenario.plans is not None:
            return self.evaluate_planned(accelerator, index=index).evaluation
        blank = self._blank(model, accelerator, micro_batch)
        broken = broken_budget(blank, self.scenario)
        if broken is not None:
            return broken
        placed, estimates = self.place(accelerator, micro_batch, index=index)
        return self._judge(index, blank, placed, estimates)

    def evaluate_planned(
        self, accelerator: Accelerator, *, index: int = 0, scenario: Scenario | None = None, is_brief: bool = False
    ) -> EvaluatedPlan:
        """One model under its fastest full plan, with what it was computed from; budgets apply.

        Another ``scenario`` than its own says how thoroughly schedules are solved; ``is_brief`` is `evaluate_plan`'s.
        """
        blank = self._blank(self.scenario.models[index], accelerator, PLANNED)
        broken = broken_budget(blank, self.scenario)
        if broken is not None:
            return EvaluatedPlan(broken)
        scheduled = self.plan(accelerator, index=index, scenario=scenario)
        return self._evaluate_plans(index, blank, scheduled, scenario=scenario or self.scenario, is_brief=is_brief)

    def _evaluate_plans(
        self, index: int, blank: Evaluation, scheduled: ScheduledPlan | None, *, scenario: Scenario, is_brief: bool
    ) -> EvaluatedPlan:
        """The evaluation of the fastest full plan of one model, or why there is none."""
        planned, chip = self.planned(index), blank.accelerator
        prices, room_bytes = planned.prices, float(chip.hbm_bytes)
        if scheduled is None:
            return EvaluatedPlan(refuse_misfits(blank, len(prices.plans), planned.degrees.least_bytes, room_bytes))
        model, clock = scenario.models[index], self._clock(chip, scenario)
        job = PlannedJob(
            model=model,
            training=prices.training,
            machine=Machine(clock, room_bytes, scenario.cluster.network, scenario.stack),
            accelerator=chip,
            area_mm2=blank.area_mm2,
            tdp_w=blank.tdp_w,
            num_devices=scenario.cluster.num_devices,
            flops_per_sample=planned.compiled.flops_per_sample,
            peak_flops_per_s=chip.peak_flops_per_s,
            max_area_mm2=scenario.max_area_mm2,
            max_tdp_w=scenario.max_tdp_w,
            constants=self.constants,
            provenance=self._provenance,
        )
        schedules = layer_schedules(scheduled.option, scheduled.times)
        results = tuple(tuple(layer[: len(PHASES)]) for layer in scheduled.times.schedules)
        times: PlanTimes | None = PlanTimes(scheduled.layer_times, schedules, results)
        ranked, step, bound_s, chosen, fused = scheduled.ranked, scheduled.step, scheduled.bound_s, None, None
        if scenario.layer_fusion:
            chosen = fuse_best_plan(planned, clock, ranked, memory_bytes=room_bytes, name=scenario.layer_fusion)
            # Another plan has layers of its own, whose schedules are found with it.
            times = times if chosen.ranked.plan == ranked.plan else None
            ranked, step, bound_s, fused = chosen.ranked, chosen.step, chosen.bound_s, chosen.fused
        effort = Effort.of(scheduled.mips, scheduled.num_searches)
        found = evaluate_plan(job, ranked, bound_s=bound_s, times=times, step=step, fused=fused, is_brief=is_brief)
        return EvaluatedPlan(replace(found, effort=effort), scheduled, chosen)

    def _clock(self, accelerator: Accelerator, scenario: Scenario | None = None) -> ScheduleClock:
        """What times any step's layers on a chip as this scenario, or another, schedules them."""
        own = scenario or self.scenario
        options = schedule_options(own.schedule_gap, own.schedule_nodes)
        return ScheduleClock(accelerator, estimator=self._estimator, exclusivity=own.exclusivity, options=options)

    def _blank(self, model: Workload, accelerator: Accelerator, micro_batch: int) -> Evaluation:
        """What is known of an evaluation before anything is estimated."""
        check_covered(accelerator, self.constants)
        area = area_mm2_of(accelerator, self.constants)
        power = power_w_of(accelerator, self.scenario.cluster.network, self.constants)
        return Evaluation(
            model=model.name,
            status=EvaluationStatus.FEASIBLE,
            reason="",
            accelerator=accelerator,
            micro_batch=micro_batch,
            sequence_length=self.scenario.sequence_length_of(model),
            num_parameters=model.num_parameters,
            area_mm2=area,
            tdp_w=power,
            provenance=self._provenance,
            constraints=self._budgets(accelerator, area, power),
        )

    def _judge(self, index: int, blank: Evaluation, placed: PlacedModel, estimates: Estimates) -> Evaluation:
        """Verify and measure a placement, or say why there is none."""
        if placed.placement.status is PlacementStatus.INFEASIBLE:
            return _out_of_memory(blank, placed)
        compiled = self.compiled(index, blank.micro_batch)
        verify_placed(placed, compiled, estimates, blank.accelerator, scenario=self.scenario)
        return self._measure(blank, compiled, placed, estimates)

    def _measure(
        self, blank: Evaluation, compiled: CompiledModel, placed: PlacedModel, estimates: Estimates
    ) -> Evaluation:
        """Fill in every metric of a feasible placement."""
        placement = placed.placement
        explained = self._estimator.explain(placed.option.core_operators, blank.accelerator)
        columns = placed.option.core_columns.tolist()
        shares = {column: cause_shares(entry) for column, entry in zip(columns, explained, strict=True)}
        seconds, budget = placement.batch_time_s, blank.accelerator.hbm_bytes
        busy_tc, busy_vc = utilisations(compiled, placed, blank.accelerator, constants=self.constants)
        joules = energy_j(placed, estimates, blank.area_mm2, training=compiled.training, constants=self.constants)
        found = with_rates(
            blank,
            seconds,
            bound_s=placed.bound_s,
            global_batch=self.scenario.global_batch,
            num_devices=self.scenario.cluster.num_devices,
            flops_per_sample=compiled.flops_per_sample,
            peak_flops_per_s=blank.accelerator.peak_flops_per_s,
            memory_excess=min(0.0, max(stage.memory_bytes for stage in placement.stages) / budget - 1.0),
        )
        return replace(
            found,
            tc_utilisation=busy_tc,
            vc_utilisation=busy_vc,
            energy_per_iteration_j=joules,
            average_power_w=joules / seconds / placement.devices_used,
            placement=placement,
            schedules=layer_schedules(placed.option, placed.times),
            breakdown=break_down(placed, split_makespans(placed, estimates, shares=shares)),
            effort=Effort.of(placed.mips, placed.num_placements),
        )


def _check_elements(accelerator: Accelerator, compiled: CompiledModel) -> None:
    """Refuse a chip whose elements are not those the model is trained in."""
    if accelerator.dtype_bytes != compiled.training.dtype_bytes:
        message = (
            f"{accelerator.dtype_bytes} bytes an element do not go with training in "
            f"{compiled.training.dtype_bytes}; give {compiled.training.dtype_bytes}"
        )
        raise InputError(message, key="dtype_bytes")


def _out_of_memory(blank: Evaluation, placed: PlacedModel) -> Evaluation:
    """The evaluation of a point that no placement fits."""
    shortfall = placed.placement.shortfall
    reason = shortfall.reason if shortfall is not None else "no placement fits the memory"
    excess = shortfall.needed_bytes / shortfall.available_bytes - 1.0 if shortfall is not None else 1.0
    return replace(
        blank,
        status=EvaluationStatus.OUT_OF_MEMORY,
        reason=reason,
        constraints=(*blank.constraints, ("memory", max(excess, 1e-6))),
        effort=Effort.of(placed.mips, placed.num_placements),
    )
