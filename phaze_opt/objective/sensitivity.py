"""What every assumption is worth: throughput and its ratio to the references at both ends of each range."""

import hashlib
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field, replace
from typing import final

from phaze_opt.hardware.accelerator import Accelerator
from phaze_opt.hardware.constants import Constants
from phaze_opt.hardware.networks import NETWORK_PREFIX, constants_of_network, list_networks, load_network
from phaze_opt.hardware.presets import load_architecture
from phaze_opt.hardware.silicon.chip_silicon import power_w_of
from phaze_opt.hardware.silicon.silicon import LINK_RATE, link_rate
from phaze_opt.objective.evaluate import Objective
from phaze_opt.objective.evaluation import Evaluation
from phaze_opt.objective.reference_machines import REFERENCES
from phaze_opt.objective.scenario import Scenario


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
            reference = self._evaluate(free, load_architecture(name, constants=constants)).throughput_samples_per_s
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
