"""The part of ``phaze-opt evaluate`` that prices whole parallel plans on one machine."""

from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any

from phaze_opt.cli import plan_options
from phaze_opt.cli.output import end_infeasible, out, print_json, print_tables
from phaze_opt.cost.clocks import LayerClock, MachineClock, ScheduleClock
from phaze_opt.cost.measured_software import measured_rows, unmeasured_parts, usual_zero
from phaze_opt.errors import InputError
from phaze_opt.graph.flops import model_flops
from phaze_opt.hardware.constants import load_constants
from phaze_opt.hardware.device import ComputePath, Device, path_of
from phaze_opt.hardware.fitted import load_fitted
from phaze_opt.hardware.networks import DEFAULT_NETWORK, load_network
from phaze_opt.hardware.presets import find_machine, load_architecture
from phaze_opt.hardware.table_coverage import check_covered
from phaze_opt.objective.caveats import Answer, apply_rules
from phaze_opt.objective.evaluate import load_estimator
from phaze_opt.objective.scenario_options import ScenarioOptions, declarations
from phaze_opt.plan.plan_search import Machine, PlanRanking, rank_plans, without_vain_recompute
from phaze_opt.plan.plan_space import explain_no_plan, list_plans
from phaze_opt.plan.ranked_plans import RankedPlan
from phaze_opt.record.plain_data import field_values
from phaze_opt.record.suggestions import parse_word
from phaze_opt.report.plans import (
    RESERVE_NOTE,
    PlanSetting,
    coverage_note,
    memory_table,
    plans_table,
    software_notes,
    step_table,
)
from phaze_opt.schedule.options import ScheduleOptions
from phaze_opt.schedule.problem import Exclusivity
from phaze_opt.workload.model import ModelSpec
from phaze_opt.workload.software import IDEAL_STACK
from phaze_opt.workload.training import AttentionForm, Optimizer, TrainingSpec

DEFAULT_DTYPE = "bf16"
PLAN_RECOMPUTE = ("none", "selective", "full")
"""Words of ``--recompute`` that only whole plans know."""
OF_SCHEDULES = ("exclusivity", "schedule_gap", "estimator")
OF_PLANS = (
    "devices", "global_batch", "sequence_length", "network", "optimizer", "attention", "recompute", "tensor_parallel",
    "is_sequence_parallel",
)  # fmt: skip
"""Options of a scenario that plans are made of; those of schedules are for plans of designed chips."""
"""Options of what is scheduled."""
DEFAULT_TOP = 10


@dataclass(frozen=True, slots=True)
class EvaluateRequest:
    """What the command line of ``evaluate`` says.

    Attributes:
        models: to train.
        arch: preset, file or inline sizes.
        micro_batch: as written; None where nothing was.
        network: as given; None where it goes with the machine.
        scenario, plan: the options.
        with_sensitivity: whether assumptions are varied too.
    """

    models: tuple[ModelSpec, ...]
    arch: str
    micro_batch: str | None
    network: str | None
    scenario: ScenarioOptions
    plan: plan_options.PlanOptions
    with_sensitivity: bool

    @property
    def is_for_plans(self) -> bool:
        """Whether whole plans are asked for."""
        return self.plan.is_asked_for or self.scenario.recompute in PLAN_RECOMPUTE

    @property
    def model(self) -> ModelSpec:
        """The one model that plans are priced for.

        Raises:
            InputError: there are several.
        """
        if len(self.models) > 1:
            message = f"plans are priced for one model, not {len(self.models)}; name one"
            raise InputError(message, source="--model")
        return self.models[0]


def evaluate_plans(request: EvaluateRequest, *, json: bool) -> None:
    """Price every plan that the options leave, and print the fastest.

    Raises:
        InputError: an option breaks a rule, or no plan is left.
    """
    _refuse_chip_options(request)
    scenario = request.scenario
    choices = plan_options.plan_choices(request.plan, scenario, micro_batch=request.micro_batch)
    machine, setting = _build_machine(request)
    if request.plan.zero is None:
        choices = replace(choices, zero=(usual_zero(setting.software),))
    training = _training(request)
    plans = list_plans(request.model, training, num_devices=request.scenario.devices, choices=choices)
    if not len(plans):
        message = explain_no_plan(request.model, training, num_devices=request.scenario.devices, choices=choices)
        raise InputError(message)
    ranking = without_vain_recompute(rank_plans(request.model, training, plans, machine=machine))
    top = DEFAULT_TOP if request.plan.top is None else request.plan.top
    if json:
        print_json(_to_json(ranking, setting, top=top))
    elif ranking.ranked:
        _print_tables(ranking, setting, top=top)
    if not ranking.ranked:
        gib, own = ranking.least_bytes / 2**30, machine.memory_bytes / 2**30
        end_infeasible(
            f"none of {ranking.num_misfits} plans fits; the smallest needs {gib:.1f} GiB of {own:.1f}; allow more "
            "devices, recomputation or ZeRO"
        )


def _training(request: EvaluateRequest) -> TrainingSpec:
    return TrainingSpec(
        micro_batch=1,
        sequence_length=plan_options.training_length(request.model, request.scenario.sequence_length),
        global_batch=request.scenario.global_batch,
        optimizer=parse_word(Optimizer, request.scenario.optimizer, source="--optimizer"),
        attention=parse_word(AttentionForm, request.scenario.attention, source="--attention"),
    )


def _build_machine(request: EvaluateRequest) -> tuple[Machine, PlanSetting]:
    """The machine that plans are priced on, real or designed, and what its report says about it."""
    fitted = load_fitted(request.plan.constants)
    clock: LayerClock
    path = _path(request.plan.dtype or DEFAULT_DTYPE)
    device = find_machine(request.arch)
    real = None if device is None else device.name
    attention = request.scenario.attention
    software = plan_options.choose_software(request.plan, machine=real, attention=attention, fitted=fitted)
    if device is None:
        clock, peak, memory_bytes, name = _designed_chip(request)
        network_name = request.network or DEFAULT_NETWORK
    else:
        _refuse_schedule_options(request, device.name)
        clock, peak = MachineClock(device, path, fitted), device.peak(path)
        memory_bytes, name = device.hbm_bytes, device.name
        network_name = request.network or device.network or DEFAULT_NETWORK
    network = load_network(network_name, num_devices=request.scenario.devices, fitted=fitted)
    setting = _setting(request, software, device, machine=name, network=network.name, peak=(peak, path))
    return Machine(clock, memory_bytes, network, software.stack), setting


def _setting(
    request: EvaluateRequest,
    software: plan_options.ChosenSoftware,
    device: Device | None,
    *,
    machine: str,
    network: str,
    peak: tuple[float, ComputePath],
) -> PlanSetting:
    """What the report of plans says of the machine and the software they are priced on."""
    plan, model, stack, training = request.plan, request.model, software.stack, _training(request)
    notes = software_notes(
        stack.name,
        machine=machine,
        dtype=str(peak[1]),
        is_chosen=software.is_chosen,
        is_zero_named=plan.zero is not None,
        gradients=(stack.gradient_bytes, software.measured.gradient_bytes, stack.gradient_source),
        num_experts=model.num_experts,
        sequence_length=training.sequence_length,
        errors=plan_options.fitted_errors(plan.constants),
        own_fit=plan_options.own_fit(plan.constants, stack.name),
    )
    return PlanSetting(
        machine=machine,
        software=stack.name,
        network=network,
        model=model.name,
        num_devices=request.scenario.devices,
        tokens=training.global_batch * training.sequence_length,
        flops=training.global_batch * model_flops(model, training.sequence_length),
        peak_flops_per_s=peak[0],
        peak_type=str(peak[1]),
        is_ideal=device is not None and stack.name == IDEAL_STACK.name,
        notes=notes + (_chip_notes(request) if device is None else _network_notes(request, device)),
    )


def _network_notes(request: EvaluateRequest, device: Device) -> tuple[str, ...]:
    """That a real machine whose own network is not known is priced on an assumed one."""
    if device.network or request.network:
        return ()
    return (f"what joins {device.name} is not known: network {DEFAULT_NETWORK} is assumed; --network names another",)


def _chip_notes(request: EvaluateRequest) -> tuple[str, ...]:
    """What is to be known of a designed chip, as of any answer."""
    notes = apply_rules(Answer(load_constants(), load_architecture(request.arch)))
    return tuple(note.sentence.rstrip(".") for note in notes)


def _refuse_chip_options(request: EvaluateRequest) -> None:
    """Options that whole plans do not go with: whatever of a scenario plays no part in them."""
    given = {"--sensitivity": request.with_sensitivity} | {
        known.flag: getattr(request.scenario, known.name) != known.default
        for known in declarations(ScenarioOptions).values()
        if known.name not in OF_PLANS + OF_SCHEDULES
    }
    for option, is_given in given.items():
        if is_given:
            message = "does not go with options of a parallel plan; leave one or the other out"
            raise InputError(message, source=option)


def _refuse_schedule_options(request: EvaluateRequest, name: str) -> None:
    """A real machine runs one operator after the other, as its constants were fitted: nothing is scheduled."""
    for known in map(declarations(ScenarioOptions).__getitem__, OF_SCHEDULES):
        if getattr(request.scenario, known.name) != known.default:
            message = f"is for designed chips; {name} runs operators one after the other; leave it out"
            raise InputError(message, source=known.flag)


def _path(dtype: str) -> ComputePath:
    """Path of the matmuls; weights, activations and gradients of a step are 16-bit on all that are offered."""
    path: ComputePath | None = None
    with suppress(InputError):
        path = path_of(dtype)
    if path not in (ComputePath.BF16, ComputePath.FP8):
        message = (
            f"'{dtype[:60]}' is not for whole steps, whose weights and activations are 16-bit; give bf16, fp16 or fp8"
        )
        raise InputError(message, source="--dtype")
    return path


def _designed_chip(request: EvaluateRequest) -> tuple[LayerClock, float, float, str]:
    """Clock, peak, memory and name of an accelerator that is no real machine."""
    if request.plan.dtype not in (None, DEFAULT_DTYPE, "fp16"):
        message = f"'{request.plan.dtype}' is for real machines; designed chips compute in 16 bits"
        raise InputError(message, source="--dtype")
    accelerator = load_architecture(request.arch)
    check_covered(accelerator, load_constants())
    clock = ScheduleClock(
        accelerator,
        estimator=load_estimator(request.scenario.estimator),
        exclusivity=parse_word(Exclusivity, request.scenario.exclusivity, source="--exclusivity"),
        options=ScheduleOptions(mip_gap=request.scenario.schedule_gap),
    )
    return clock, accelerator.peak_flops_per_s, float(accelerator.hbm_bytes), accelerator.name or "designed chips"


def _to_json(ranking: PlanRanking, setting: PlanSetting, *, top: int) -> dict[str, Any]:
    """The setting and the fastest plans; SI units."""
    return {
        "setting": asdict(setting),
        "num_fitting": len(ranking.ranked),
        "num_misfits": ranking.num_misfits,
        "num_dominated": ranking.num_dominated,
        "plans": [_plan_to_json(each, setting) for each in ranking.ranked[:top]],
    }


def _plan_to_json(ranked: RankedPlan, setting: PlanSetting) -> dict[str, Any]:
    rows = measured_rows(setting.software)
    return {
        **field_values(ranked.plan),
        "unmeasured": None if rows is None else list(unmeasured_parts(ranked.plan, rows)),
        "iteration_time_s": ranked.time.seconds,
        "throughput_tokens_per_s": setting.tokens_per_s(ranked.time),
        "mfu": setting.mfu(ranked),
        "peak_memory_bytes": ranked.memory.peak_bytes,
        "breakdown": asdict(ranked.time),
        "stages": [asdict(stage) for stage in ranked.memory.stages],
    }


def _print_tables(ranking: PlanRanking, setting: PlanSetting, *, top: int) -> None:
    screen = out()
    if len(ranking.ranked) > 1 or ranking.num_misfits:
        print_tables(plans_table(ranking, setting, top=top))
    best = ranking.ranked[0]
    print_tables(step_table(best, setting), memory_table(best))
    if len(ranking.ranked) == 1 and not ranking.num_misfits:
        rate, mfu = setting.tokens_per_s(best.time), setting.mfu(best)
        share = f"MFU {100 * mfu:.1f} % of the {setting.peak_type} peak"
        screen.print(f"{best.time.seconds:.4g} s a step, {rate:,.0f} tokens/s, {share}; {RESERVE_NOTE}")
        coverage, _ = coverage_note([best], setting.software)
        if coverage:
            screen.print(coverage)
    if setting.notes:
        screen.print("; ".join(setting.notes))
