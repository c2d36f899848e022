"""The problem of a certificate in words: what a claim is about cannot be told from names, which anyone may choose."""

from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from typing import Any

from phaze_opt.certify.certificate import Certificate
from phaze_opt.hardware.chip_template import AXES
from phaze_opt.hardware.constants import Constants
from phaze_opt.hardware.network import Network
from phaze_opt.hardware.networks import list_networks, load_network
from phaze_opt.hardware.silicon.silicon import Silicon
from phaze_opt.objective.scenario import OWN_ESTIMATORS, Scenario, package_stack
from phaze_opt.space.known_spaces import die_space, phaze_space
from phaze_opt.space.search_space import SearchSpace
from phaze_opt.units import UM2_PER_MM2
from phaze_opt.workload.config import load_model
from phaze_opt.workload.model import ModelSpec
from phaze_opt.workload.plan import PlanChoices
from phaze_opt.workload.software import IDEAL_STACK, TrainingStack
from phaze_opt.workload.transformer import TransformerSpec
from phaze_opt.workload.workload import Workload
from phaze_opt.workload.zoo import list_models

_MAX_NAME = 60
_TOLD = frozenset((
    "models", "cluster", "global_batch", "sequence_length", "optimizer", "attention", "exclusivity", "recompute",
    "is_sequence_parallel", "tensor_parallel", "common", "max_area_mm2", "max_tdp_w", "estimator", "schedule_gap",
    "schedule_nodes", "plans", "stack", "silicon", "layer_fusion",
))  # fmt: skip
"""Fields of a scenario that sentences speak of, or that a proof does not depend on (the effort of schedules)."""
_OF_CUTS = ("has_cuts", "has_near_cuts", "blocks", "stage_recompute")
_EXPERT_TENSOR = "expert_tensor"
"""Fields of the choices of plans that a certificate, which is over every cut, leaves at their defaults."""
_MAX_LISTED = 16
_MAX_CHANGES = 4


def shown(name: str) -> str:
    """A name as it is printed: letters that only look like others, and what would move the cursor, as escapes."""
    text = name.encode("unicode_escape").decode("ascii")
    return text if len(text) <= _MAX_NAME else f"{text[:_MAX_NAME]}..."


def describe_problem(certificate: Certificate) -> tuple[str, ...]:
    """Models, cluster, choices and space, a sentence each."""
    scenario, space = certificate.scenario, certificate.space
    return (
        *(f"Model {_describe_model(model, scenario)}." for model in scenario.models),
        f"Cluster: {_describe_cluster(scenario)}.",
        f"Choices: {_describe_choices(scenario, _sought(certificate))}.",
        *(f"{name}: {text}." for name, text in _describe_plans(scenario)),
        *(f"{name}: {text}." for name, text in _describe_silicon(scenario)),
        f"Space {_describe_space(space, has_plans=scenario.plans is not None)}.",
    )


def find_differences(certificate: Certificate, constants: Constants) -> tuple[str, ...]:
    """Where models, network, space, software, estimator or sparse weights are not the package's, a sentence each."""
    scenario = certificate.scenario
    return (
        *(line for model in scenario.models for line in _model_differences(model)),
        *_network_differences(scenario.cluster.network, scenario.cluster.num_devices, constants),
        *_space_differences(certificate.space),
        *_software_differences(scenario.stack),
        *_estimator_differences(scenario.estimator),
    )


def _describe_model(model: Workload, scenario: Scenario) -> str:
    return (
        f"{shown(model.name)}: {model.sizes_sentence}, "
        f"{model.num_parameters:,} parameters, sequences of {scenario.sequence_length_of(model):,}"
    )


def _describe_cluster(scenario: Scenario) -> str:
    network = scenario.cluster.network
    levels = ", then ".join(
        f"{level.topology} of {level.size:,} at {level.bandwidth_bytes_per_s / 1e9:.6g} GB/s and "
        f"{level.latency_s * 1e6:.6g} us"
        for level in network.dimensions
    )
    devices = scenario.cluster.num_devices
    return f"{devices:,} device{'s' if devices > 1 else ''} on {shown(network.name)} ({levels})"


def _sought(certificate: Certificate) -> str:
    if not certificate.axes:
        return f"{certificate.goal.value} is maximised"
    return f"a front of {', '.join(certificate.axes)}"


def _describe_choices(scenario: Scenario, goal: str) -> str:
    limits = ((scenario.max_area_mm2, "mm2"), (scenario.max_tdp_w, "W"), (scenario.max_capex_usd, "USD of capex"))
    budgets = " and ".join(f"{limit:.6g} {unit}" for limit, unit in limits if limit is not None)
    several = f", {scenario.common} mean of the models" if len(scenario.models) > 1 else ""
    of_placements = (
        f"recomputation {scenario.recompute}, sequence parallel {_stated(scenario.is_sequence_parallel)}, "
        f"tensor degrees {_listed(sorted(set(scenario.tensor_parallel)))}, "
    )
    return (
        f"{goal}{several}, global batch {scenario.global_batch:,}, {scenario.optimizer}, "
        f"{scenario.attention} attention, exclusivity {scenario.exclusivity}, "
        f"{of_placements if scenario.plans is None else ''}"
        f"estimator {shown(scenario.estimator)}, budget {budgets or 'none'}{''.join(_others(scenario))}"
    )


def _others(scenario: Scenario) -> Iterator[str]:
    """Choices that no sentence knows, where they are not at their default: an option that was added decides too."""
    for field in fields(Scenario):
        value = getattr(scenario, field.name)
        if field.name not in _TOLD and value != field.default:
            yield f", {field.name.replace('_', ' ')} {shown(str(value))}"


def _describe_space(space: SearchSpace, *, has_plans: bool) -> str:
    """Axes and areas; plans have micro-batches of their own."""
    cap_mm2 = min(space.area_budget_um2, space.max_area_um2) / UM2_PER_MM2
    least_mm2 = space.min_area_fraction * space.area_budget_um2 / UM2_PER_MM2
    values = ((axis, getattr(space.axes, axis.name)) for axis in AXES if not (has_plans and axis.name == "micro_batch"))
    listed = [f"{axis.plural} {_listed([axis.printed(value) for value in own])}" for axis, own in values if own]
    return f"{shown(space.name)}: {', '.join(listed)}, {least_mm2:.6g} to {cap_mm2:.6g} mm2{_band_words(space)}"


def _band_words(space: SearchSpace) -> str:
    """By whose areas the least counts, where these are not the dies' own."""
    silicon = space.band_silicon
    if silicon is None:
        return ""
    changed = f" with {len(silicon.values)} constants of their own" if silicon.values else ""
    return f", the least by areas of {_silicon_words(silicon)}{changed}"


def _describe_plans(scenario: Scenario) -> Iterator[tuple[str, str]]:
    """What full plans may be, and what their software does that an ideal one does not."""
    if scenario.plans is None:
        return
    has_split = scenario.plans.expert_tensor != PlanChoices().expert_tensor
    unnamed = _OF_CUTS if has_split else (*_OF_CUTS, _EXPERT_TENSOR)
    named = (field.name for field in fields(scenario.plans) if field.name not in unnamed)
    choices = (f"{name.replace('_', ' ')} {_stated(getattr(scenario.plans, name))}" for name in named)
    yield "Plans", f"{', '.join(choices)}; every cut of the stages, a recomputation for each"
    differing = ((field.name, getattr(scenario.stack, field.name)) for field in fields(scenario.stack))
    told = [(name, value) for name, value in differing if value != getattr(IDEAL_STACK, name) and name != "name"]
    behaviour = ", ".join(f"{name.replace('_', ' ')} {shown(_stated(value))}" for name, value in told)
    yield "Software", f"{shown(scenario.stack.name)} ({behaviour or 'ideal'})"
    if scenario.layer_fusion:
        yield "Layer fusion", "bounds hold for layers in any groups, and solutions state those behind what is attained"


def _describe_silicon(scenario: Scenario) -> Iterator[tuple[str, str]]:
    """What dies are built of."""
    if scenario.silicon is not None:
        yield "Silicon", _silicon_words(scenario.silicon)


def _silicon_words(silicon: Silicon) -> str:
    links = f"links of {silicon.link_bytes_per_s / 1e9:.6g} GB/s"
    return f"dies at {silicon.nanometres} nm with stacks of {shown(silicon.hbm_generation)}, {links}"


def _stated(value: object) -> str:
    """A choice in words; an empty list leaves it free."""
    if isinstance(value, tuple):
        is_range = len(value) > 4 and value == tuple(range(1, len(value) + 1))  # noqa: PLR2004
        return f"1 to {len(value)}" if is_range else " ".join(map(str, value)) or "free"
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)


def _listed(values: Sequence[float | str]) -> str:
    """Few values as they are, many as their ends and number."""
    if isinstance(values[0], str):
        return " ".join(map(str, values))
    if len(values) <= _MAX_LISTED:
        return " ".join(f"{value:.6g}" for value in values)
    return f"{values[0]:.6g} to {values[-1]:.6g} ({len(values)} values)"


def _model_differences(model: Workload) -> Iterator[str]:
    if not isinstance(model, ModelSpec | TransformerSpec):
        yield f"Model {shown(model.name)} is none of the zoo's: its layers are the certificate's own."
        return
    if model.name not in list_models():
        yield f"Model {shown(model.name)} is none of the zoo's: its sizes are the certificate's own."
        return
    own = load_model(model.name)
    if type(own) is not type(model):
        yield f"Model {shown(model.name)} differs from the zoo's: it is stated in another form."
        return
    changed = _changed(replace(model, source=own.source), own)
    if changed:
        yield f"Model {shown(model.name)} differs from the zoo's: {changed}."


def _network_differences(network: Network, num_devices: int, constants: Constants) -> Iterator[str]:
    if network.name not in list_networks():
        yield f"Network {shown(network.name)} is none of the package's: its links are the certificate's own."
    elif network != load_network(network.name, num_devices=num_devices, constants=constants):
        yield f"Network {shown(network.name)} differs from the package's of that name."


def _space_differences(space: SearchSpace) -> Iterator[str]:
    if space.silicon is not None:
        # Capacities and micro-batches are a user's to choose; the sentence on the space has them.
        stack_bytes, batches = space.silicon.stack.capacity_bytes, space.axes.micro_batch
        hbm_bytes = tuple(stacks * stack_bytes for stacks in space.axes.hbm_stacks)
        own = die_space(space.silicon, hbm_bytes=hbm_bytes, micro_batches=batches)
        words = "the package's space of dies"
    else:
        hbm_bytes, batches = space.axes.hbm_bytes, space.axes.micro_batch
        own, words = phaze_space(hbm_bytes=hbm_bytes, micro_batches=batches), "Phaze's"
    if replace(space, name=own.name, max_area_um2=own.max_area_um2) == own:
        if space.max_area_um2 < space.area_budget_um2:
            yield f"Space {shown(space.name)} is {words} up to {space.max_area_um2 / UM2_PER_MM2:.6g} mm2."
    elif space.name == own.name:
        yield f"Space {shown(space.name)} is not {words}: it differs in {_changed_names(space, own)}."
    else:
        yield f"Space {shown(space.name)} is none of the package's: its axes and budget are the certificate's own."


def _software_differences(stack: TrainingStack) -> Iterator[str]:
    own = package_stack(stack)
    if own is None:
        yield f"Software {shown(stack.name)} is none of the package's: its figures and rules are the certificate's own."
    elif stack != own:
        changed = (f.name.replace("_", " ") for f in fields(own) if getattr(stack, f.name) != getattr(own, f.name))
        yield f"Software {shown(stack.name)} differs from the package's of that name in {', '.join(changed)}."


def _estimator_differences(name: str) -> Iterator[str]:
    if name not in OWN_ESTIMATORS:
        yield f"Estimator {shown(name)} is not the package's: all figures are its own."


def _changed(given: Any, own: Any) -> str:
    """Fields that differ, with both values."""
    pairs = ((f.name, getattr(given, f.name), getattr(own, f.name)) for f in fields(own))
    parts = [f"{name} {shown(str(value))} in place of {wanted}" for name, value, wanted in pairs if value != wanted]
    more = f" and {len(parts) - _MAX_CHANGES} more" if len(parts) > _MAX_CHANGES else ""
    return ", ".join(parts[:_MAX_CHANGES]) + more


def _changed_names(space: SearchSpace, own: SearchSpace) -> str:
    names = [f.name for f in fields(own.axes) if getattr(space.axes, f.name) != getattr(own.axes, f.name)]
    names += [name for name in ("area_budget_um2", "min_area_fraction") if getattr(space, name) != getattr(own, name)]
    return ", ".join(names)
