"""The range of a headline: this design's own figure under each doubt that it hangs on, priced again and never searched.

Three parts, each alone: the error of the model on machines kept out of every fit, the choices that stand for what
nobody measured (options of the estimator, its ideal form, the rate of HBM), and other training software; choices and
software are those of `alternatives`. What other designs would do in such worlds is the business of `certify --robust`.

What every assumption is worth: throughput and its ratio to the references at both ends of each range.
"""

import hashlib
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import final

from phaze_opt.cost.stacks import measured_rows, unmeasured_parts
from phaze_opt.hardware.accelerator import Accelerator
from phaze_opt.hardware.chip_template import DesignPoint
from phaze_opt.hardware.constants import Constants
from phaze_opt.hardware.designed_chip import build_accelerator
from phaze_opt.hardware.fitted import read_own_file
from phaze_opt.hardware.networks import NETWORK_PREFIX, constants_of_network, list_networks, load_network
from phaze_opt.hardware.silicon.chip_silicon import power_w_of
from phaze_opt.hardware.silicon.silicon import LINK_RATE, link_rate
from phaze_opt.hardware.spreads import HELD_ELSEWHERE, Spread
from phaze_opt.objective.alternatives import Doubt, alternatives_of_designs, choose
from phaze_opt.objective.evaluate import Objective
from phaze_opt.objective.evaluation import Evaluation
from phaze_opt.objective.reference_machines import REFERENCES, load_reference
from phaze_opt.objective.scenario import Scenario
from phaze_opt.workload.plan import ParallelPlan


@dataclass(frozen=True, slots=True)
class SensitivityCase:
    """The design under study, rebuilt under every set of constants.

    Attributes:
        scenario: workload, cluster and choices.
        build_accelerator: the design under given constants (its HBM and GLB bandwidths may follow from them).
        micro_batch: samples; of full plans each plan has its own.
        network_name: rebuilt under the constants if it is one of the named networks, else kept as it is.
    """

    scenario: Scenario
    build_accelerator: Callable[[Constants], Accelerator]
    micro_batch: int
    network_name: str


@dataclass(frozen=True, slots=True)
class SensitivityRow:
    """One assumption at one setting.

    Attributes:
        assumption: key of the constant or name of the estimator option; empty for the nominal row.
        setting: value or choice.
        origin: ``nominal``, ``low``, ``high`` or ``option``.
        throughput_samples_per_s: of the design.
        throughput_per_tdp: of the design, samples/s/W.
        ratio_phaze_tpu_v4, ratio_modelled_tpu_v4: design over reference, modelled under the same setting; 0 if the
            reference is infeasible.
    """

    assumption: str
    setting: str
    origin: str
    throughput_samples_per_s: float
    throughput_per_tdp: float
    ratio_phaze_tpu_v4: float
    ratio_modelled_tpu_v4: float


@final
@dataclass(slots=True)
class _Pricer:
    """Prices the design and both references under one set of constants after another.

    Graphs are compiled once, and what leaves every latency, the accelerator and the network as they were is not
    scheduled and placed again: both change the time this takes, never a figure.
    """

    case: SensitivityCase
    nominal: Objective
    _known: dict[Hashable, Evaluation] = field(default_factory=dict)

    def row(self, constants: Constants, *, assumption: str, setting: str, origin: str) -> SensitivityRow:
        """Evaluate the design and both references under one set of constants."""
        scenario = _under(self.case, constants)
        if scenario.silicon is not None:
            constants = constants.with_overrides({LINK_RATE: scenario.silicon.link_bytes_per_s})
        unbounded = scenario.without_budgets()
        free = self.nominal.under(constants, scenario=unbounded, is_bounded_alike=True)
        capped = free.under(constants, scenario=scenario, is_bounded_alike=True)
        design = self._evaluate(capped, self.case.build_accelerator(constants))
        ratios = []
        for name in REFERENCES:
            reference = self._evaluate(free, load_reference(name, constants)).throughput_samples_per_s
            ratios.append(design.throughput_samples_per_s / reference if reference > 0 else 0.0)
        return SensitivityRow(
            assumption=assumption,
            setting=setting,
            origin=origin,
            throughput_samples_per_s=design.throughput_samples_per_s,
            throughput_per_tdp=design.throughput_per_tdp,
            ratio_phaze_tpu_v4=ratios[0],
            ratio_modelled_tpu_v4=ratios[1],
        )

    def _evaluate(self, objective: Objective, accelerator: Accelerator) -> Evaluation:
        """The evaluation, or an earlier one of the same latencies with the power of these constants."""
        scenario, micro_batch = objective.scenario, self.case.micro_batch
        power = power_w_of(accelerator, scenario.cluster.network, objective.constants)
        latencies = [objective.estimate(accelerator, micro_batch, index=i) for i in range(len(scenario.models))]
        arrays = (array for e in latencies for array in (e.one_core_s, e.spread_s, e.traffic_bytes))
        digest = hashlib.sha256(b"".join(array.tobytes() for array in arrays)).digest()
        is_capped = scenario.max_tdp_w is not None
        # The latencies are those of one micro-batch; full plans have others too.
        seen = digest if scenario.plans is None else objective.constants.digest
        key = (replace(accelerator, name=""), scenario, seen, power if is_capped else None)
        if key not in self._known:
            self._known[key] = objective.evaluate_accelerator(accelerator, micro_batch, is_built=True)
        known = self._known[key]
        if known.tdp_w == power:
            return known
        return replace(known, tdp_w=power, throughput_per_tdp=known.throughput_per_tdp * (known.tdp_w / power))


def analyse_sensitivity(case: SensitivityCase, *, constants: Constants | None = None) -> Iterator[SensitivityRow]:
    """The nominal row, then each uncertain constant at the ends of its range, then each option's alternatives.

    Of the networks' constants only those of the case's own; of a design that states its links its latencies alone. Of
    those of later parameters of the chip only those that the design states.
    """
    nominal = case.scenario.constants_of(constants)
    pricer = _Pricer(case, Objective(case.scenario.without_budgets(), constants=nominal))
    yield pricer.row(nominal, assumption="", setting="", origin="nominal")
    chip = case.build_accelerator(nominal)
    has_own_links = chip.link_bytes_per_s > 0
    of_network = constants_of_network(case.network_name, nominal, has_own_links=has_own_links)
    for key in nominal.uncertain_with(chip.stated):
        if key.startswith(NETWORK_PREFIX) and key not in of_network:
            continue
        entry = nominal.entries[key]
        for origin, value in (("low", entry.low), ("high", entry.high)):
            varied = nominal.with_overrides({key: value})
            yield pricer.row(varied, assumption=key, setting=f"{value:g} {entry.unit}", origin=origin)
    for name, choice in nominal.alternatives:
        varied = nominal.with_options({name: choice})
        yield pricer.row(varied, assumption=name, setting=choice, origin="option")


def _under(case: SensitivityCase, constants: Constants) -> Scenario:
    """The scenario with its named network rebuilt under the constants; budgets stay, references ignore them."""
    if case.network_name not in list_networks():
        return case.scenario
    devices = case.scenario.cluster.num_devices
    network, silicon = load_network(case.network_name, num_devices=devices, constants=constants), case.scenario.silicon
    if silicon is not None:
        silicon = replace(silicon, link_bytes_per_s=link_rate(network))
    return replace(case.scenario, cluster=replace(case.scenario.cluster, network=network), silicon=silicon)


SYSTOLIC_SETS = ("op_tpu_gemm", "train_maxtext_tpu")
"""Data sets of machines that are built as designs are."""
KEPT_OUT_WHOLE = ("leave_one_device_out_mape", "leave_one_chip_out_mape")
"""Errors on machines of which no row was fitted."""


@dataclass(frozen=True, slots=True)
class RangePart:
    """One doubt alone: the lowest and the highest figure, samples/s, and the settings that give them, in words."""

    name: str
    low: float
    high: float
    low_setting: str
    high_setting: str


@dataclass(frozen=True, slots=True)
class HeadlineRange:
    """A figure, samples/s, and what each doubt alone makes of it.

    Attributes:
        value: the figure.
        parts: the doubts.
        unmeasured: parts of the plan that no measurement of its software covers: no doubt speaks of them.
    """

    value: float
    parts: tuple[RangePart, ...]
    unmeasured: tuple[str, ...] = ()

    @property
    def low(self) -> float:
        """The lowest figure of any part."""
        return min([self.value, *(part.low for part in self.parts)])

    @property
    def high(self) -> float:
        """The highest figure of any part."""
        return max([self.value, *(part.high for part in self.parts)])


def machine_error() -> float:
    """Largest mean error on systolic machines kept out whole, as a share: so far off may be a design never built."""
    sets = read_own_file().sets
    errors = [sets[name][key] for name in SYSTOLIC_SETS for key in KEPT_OUT_WHOLE if key in sets[name]]
    return max(errors) / 100.0


def range_of_design(
    objective: Objective,
    build_accelerator: Callable[[Constants], Accelerator],
    *,
    value: float,
    micro_batch: int,
    error: float | None = None,
    plans: Sequence[ParallelPlan] = (),
) -> HeadlineRange:
    """The range of a design's throughput.

    Args:
        objective: that gave the figure.
        build_accelerator: the design under given constants: its bandwidths may follow from them.
        value: the figure, samples/s.
        micro_batch: samples; of full plans each plan has its own.
        error: of the model, as a share; `machine_error` unless given.
        plans: that the figure is of (`plans_of_evaluation`).
    """
    error = machine_error() if error is None else error

    def price(constants: Constants, scenario: Scenario) -> float:
        chip = build_accelerator(constants)
        return (
            objective.under(constants, scenario=scenario, is_bounded_alike=True)
            .evaluate_accelerator(chip, micro_batch, is_built=True)
            .throughput_samples_per_s
        )

    nominal, scenario = objective.constants, _unbounded(objective.scenario)
    priced: dict[Doubt, dict[str, float]] = {doubt: {} for doubt in Doubt}
    for each in alternatives_of_designs(scenario, nominal):
        other, constants = choose(each, scenario, nominal)
        priced[each.doubt][each.software or each.name] = price(constants, other)
    return range_of_prices(
        value,
        error=error,
        error_words="on machines kept out",
        alternatives={doubt.value: priced[doubt] for doubt in Doubt},
        unmeasured=unmeasured_of(plans, scenario.stack.name),
    )


def fusion_words(best: Evaluation | None, objective: Objective) -> str:
    """What groups of layers gain a design, beside the same with each layer alone; empty without layer fusion."""
    scenario = objective.scenario
    if best is None or not scenario.layer_fusion:
        return ""
    alone = objective.under(objective.constants, scenario=replace(_unbounded(scenario), layer_fusion=""))
    rate = alone.evaluate_accelerator(best.accelerator, best.micro_batch, is_built=True).throughput_samples_per_s
    gain = best.throughput_samples_per_s / rate - 1.0
    who = "in groups the layers" if gain > 0.0 else "no groups of the layers"
    more = f"{100.0 * gain:.2g} % more" if gain > 0.0 else "more"
    return f"layer fusion: {who} of the best design train {more} than each layer alone"


def plans_of_evaluation(evaluation: Evaluation) -> tuple[ParallelPlan, ...]:
    """The parallel plans of an evaluation, one for each model; none of placements."""
    placements = (each.placement for each in evaluation.members or (evaluation,))
    return tuple(each.plan for each in placements if each is not None and each.plan is not None)


def unmeasured_of(plans: Sequence[ParallelPlan], software: str) -> tuple[str, ...]:
    """Parts of plans that no measurement of their software covers; none of a software that is measured nowhere."""
    rows = measured_rows(software)
    return () if rows is None else tuple(dict.fromkeys(part for plan in plans for part in unmeasured_parts(plan, rows)))


def range_of_prices(
    value: float,
    *,
    error: float | None,
    error_words: str,
    alternatives: Mapping[str, Mapping[str, float]],
    unmeasured: tuple[str, ...] = (),
    spread: Spread | None = None,
) -> HeadlineRange:
    """The range of a figure from what it is priced at otherwise.

    Args:
        value: the figure, samples/s.
        error: of the model, as a share; None if none is known, which leaves the part out.
        error_words: where it was measured.
        alternatives: samples/s by setting, for each doubt; one without any is left out.
        unmeasured: of `unmeasured_of`.
        spread: of steps of sources kept out of every fit, in place of ``error`` where one speaks of the figure.
    """
    parts = [] if error is None else [_model_part(value, error, error_words)]
    if spread is not None:
        parts = [_spread_part(value, spread)]
    parts += [_part(name, value, priced) for name, priced in alternatives.items() if priced]
    return HeadlineRange(value, tuple(parts), unmeasured)


def range_of_point(objective: Objective, point: DesignPoint, evaluation: Evaluation) -> HeadlineRange:
    """`range_of_design` of a designed chip's evaluation; the chip is built anew under each set of constants."""

    def build(constants: Constants) -> Accelerator:
        return build_accelerator(point, constants=constants)

    value, plans = evaluation.throughput_samples_per_s, plans_of_evaluation(evaluation)
    return range_of_design(objective, build, value=value, micro_batch=point.micro_batch, plans=plans)


def _unbounded(scenario: Scenario) -> Scenario:
    """Budgets say which designs may be chosen; this one is."""
    return scenario.without_budgets()


def _model_part(value: float, error: float, where: str) -> RangePart:
    """Steps may take so much longer or shorter."""
    words = f"{100.0 * error:.1f} % {where}"
    return RangePart("model error", value / (1.0 + error), value / (1.0 - error), words, words)


def _spread_part(value: float, spread: Spread) -> RangePart:
    """Steps took so much longer or shorter where nobody had fitted their source."""
    words = f"90 % of steps of {spread.num_groups} sources kept out, {100 * HELD_ELSEWHERE:.0f} % of steps elsewhere"
    return RangePart("model error", value / spread.high, value / spread.low, words, words)


def _part(name: str, value: float, priced: Mapping[str, float]) -> RangePart:
    """The ends of what was priced, the figure itself among them; of equal ones the first."""
    known = {"as it is": value, **priced}
    low, high = min(known, key=known.__getitem__), max(known, key=known.__getitem__)
    return RangePart(name, known[low], known[high], low, high)
