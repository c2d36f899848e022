"""What every assumption is worth: throughput and its ratio to the references at both ends of each range."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from phaze_opt.hardware.accelerator import Accelerator
from phaze_opt.hardware.constants import Constants, load_constants
from phaze_opt.hardware.networks import list_networks, load_network
from phaze_opt.objective.evaluate import Objective
from phaze_opt.objective.references import REFERENCES, evaluate_references
from phaze_opt.objective.scenario import Scenario


@dataclass(frozen=True, slots=True)
class SensitivityCase:
    """The design under study, rebuilt under every set of constants.

    Attributes:
        scenario: workload, cluster and choices.
        build_accelerator: the design under given constants (its HBM and GLB bandwidths may follow from them).
        micro_batch: samples.
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
        ratio_tpu_v4, ratio_tpu_v4_published: design over reference under the same setting; 0 if the reference is
            infeasible.
    """

    assumption: str
    setting: str
    origin: str
    throughput_samples_per_s: float
    throughput_per_tdp: float
    ratio_tpu_v4: float
    ratio_tpu_v4_published: float


def analyse_sensitivity(case: SensitivityCase, *, constants: Constants | None = None) -> Iterator[SensitivityRow]:
    """The nominal row, then each uncertain constant at the ends of its range, then each option's alternatives."""
    nominal = constants if constants is not None else load_constants()
    yield _row(case, nominal, assumption="", setting="", origin="nominal")
    for key in nominal.uncertain:
        if key.startswith("network.") and not key.startswith(_network_prefix(case.network_name)):
            continue
        entry = nominal.entries[key]
        for origin, value in (("low", entry.low), ("high", entry.high)):
            varied = nominal.with_overrides({key: value})
            yield _row(case, varied, assumption=key, setting=f"{value:g} {entry.unit}", origin=origin)
    for name, option in nominal.options.items():
        for choice in option.alternatives:
            if choice != option.choice:
                varied = nominal.with_options({name: choice})
                yield _row(case, varied, assumption=name, setting=choice, origin="option")


def _network_prefix(name: str) -> str:
    """Prefix of the constants of a named network."""
    return f"network.{name.replace('-', '_')}."


def _row(case: SensitivityCase, constants: Constants, *, assumption: str, setting: str, origin: str) -> SensitivityRow:
    """Evaluate the design and both references under one set of constants."""
    scenario = _under(case, constants)
    evaluation = Objective(scenario, constants=constants).evaluate_accelerator(
        case.build_accelerator(constants), case.micro_batch
    )
    references = evaluate_references(scenario, (case.micro_batch,), constants=constants)
    ratios = []
    for name in REFERENCES:
        reference = references[name].throughput_samples_per_s
        ratios.append(evaluation.throughput_samples_per_s / reference if reference > 0 else 0.0)
    return SensitivityRow(
        assumption=assumption,
        setting=setting,
        origin=origin,
        throughput_samples_per_s=evaluation.throughput_samples_per_s,
        throughput_per_tdp=evaluation.throughput_per_tdp,
        ratio_tpu_v4=ratios[0],
        ratio_tpu_v4_published=ratios[1],
    )


def _under(case: SensitivityCase, constants: Constants) -> Scenario:
    """The scenario with its named network rebuilt under the constants; budgets stay, references ignore them."""
    if case.network_name not in list_networks():
        return case.scenario
    devices = case.scenario.cluster.num_devices
    network = load_network(case.network_name, num_devices=devices, constants=constants)
    return replace(case.scenario, cluster=replace(case.scenario.cluster, network=network))
