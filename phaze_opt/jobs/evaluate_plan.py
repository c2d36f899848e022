"""The part of ``phaze-opt evaluate`` that prices whole parallel plans on one machine, real or designed."""

from contextlib import suppress
from dataclasses import dataclass, replace
from types import MappingProxyType

from phaze_opt import __version__
from phaze_opt.cost.clocks import LayerClock, MachineClock, ScheduleClock
from phaze_opt.cost.operator_timers import power_share
from phaze_opt.cost.stacks import measured_base
from phaze_opt.errors import InputError
from phaze_opt.estimate.protocol import load_estimator
from phaze_opt.graph.sharding import model_flops
from phaze_opt.hardware.accelerator import Accelerator
from phaze_opt.hardware.area import check_covered
from phaze_opt.hardware.constants import Constants, load_constants
from phaze_opt.hardware.designed_chip import described_chip
from phaze_opt.hardware.device import ComputePath, Device, MatrixStyle, path_of
from phaze_opt.hardware.device_catalogue import is_shipped, told_name
from phaze_opt.hardware.economics.device_cost import DeviceParts, parts_of_chip, parts_of_machine
from phaze_opt.hardware.economics.prices import load_prices
from phaze_opt.hardware.fitted import FittedConstants, load_fitted
from phaze_opt.hardware.network import Cluster, Network
from phaze_opt.hardware.networks import DEFAULT_NETWORK, load_network
from phaze_opt.hardware.presets import load_architecture
from phaze_opt.hardware.silicon.chip_silicon import area_mm2_of, power_w_of
from phaze_opt.hardware.silicon.die_report import die_of
from phaze_opt.hardware.silicon.silicon import constants_with, has_die, link_rate, with_link_rate
from phaze_opt.hardware.spreads import load_spreads
from phaze_opt.jobs import evaluate_request
from phaze_opt.jobs.evaluate_chip import NO_DIE, called, micro_batches
from phaze_opt.jobs.evaluate_request import DEFAULT_DTYPE, EvaluateRequest, MachineOptions
from phaze_opt.jobs.priced_job import PricedJob, RankedJob
from phaze_opt.objective.best_placement import schedule_options
from phaze_opt.objective.caveats import Answer, Note, apply_rules, has_transformer, head_note, idle_devices
from phaze_opt.objective.compile import compile_steps
from phaze_opt.objective.evaluation import Provenance
from phaze_opt.objective.plan_evaluation import PlannedJob, evaluate_ranking, job_digest
from phaze_opt.objective.plan_options import check_can_fuse, check_fuser, cut_places, no_plan_fault, plan_choices
from phaze_opt.objective.priced_as import PriceSetting
from phaze_opt.objective.scenario import build_space, form_of, node_limit
from phaze_opt.objective.scenario_options import ScenarioOptions, SpaceOptions, declarations
from phaze_opt.objective.scheduled_plan import FusedPlan, PlannedModel, fuse_best_plan
from phaze_opt.objective.shape_notes import shape_notes
from phaze_opt.objective.silicon_options import chosen_silicon
from phaze_opt.objective.software_notes import SoftwareChoice, assumed_note, error_share, software_notes, step_kinds
from phaze_opt.plan.optimum import free_degrees, optimal_plan
from phaze_opt.plan.plan_search import Machine, PlanRanking, rank_plans, without_beaten
from phaze_opt.plan.plan_space import explain_no_plan, list_plans
from phaze_opt.record.suggestions import parse_word
from phaze_opt.schedule.problem import Exclusivity
from phaze_opt.space.search_space import SearchSpace
from phaze_opt.workload.chain import CutPlaces
from phaze_opt.workload.model import ModelSpec
from phaze_opt.workload.plan import ParallelPlan, PlanChoices
from phaze_opt.workload.plan_columns import PlanColumns
from phaze_opt.workload.software import IDEAL_STACK, TrainingStack
from phaze_opt.workload.sparsity import only_weights
from phaze_opt.workload.training import AttentionForm, Optimizer, TrainingSpec
from phaze_opt.workload.workload import Workload

OF_SCHEDULES = (
    "exclusivity", "schedule_gap", "estimator", "sparsity", "silicon", "process_nm", "hbm_generation", "layer_fusion",
)  # fmt: skip
"""Options of what is scheduled and of what designs are built; a machine that exists keeps its area and power."""
OF_MACHINES = MappingProxyType(
    {"float8": "designed chips compute in 16 bits", "power_limit_w": "--max-tdp-w is the budget of designs"}
)
"""Options of machines that exist, and why designs do not have them."""
OPERATORS_IN_TURN = "operators in turn"
"""What times the layers of a real machine, where a designed chip names its estimator."""


@dataclass(frozen=True, slots=True)
class _Chip:
    """One device as plans are priced on it; area and power are None where not published."""

    name: str
    accelerator: Accelerator
    clock: LayerClock
    peak_flops_per_s: float
    memory_bytes: float
    area_mm2: float | None
    tdp_w: float | None
    provenance: Provenance


def price_plans(request: EvaluateRequest, model: Workload) -> PricedJob:
    """Price every plan of one model that the options leave.

    Raises:
        InputError: an option breaks a rule, or no plan is left.
    """
    device = request.device
    if request.with_sensitivity and device is not None:
        message = f"is for designed chips: it varies what their price rests on; {device.name} exists; leave it out"
        raise InputError(message, source="--sensitivity")
    cuts = cut_places(request.scenario, is_design=device is None)
    if cuts is not CutPlaces.UNITS:
        model = model.cut_by_layers() if cuts is CutPlaces.LAYERS else model.cut_by_branches()
    choices = plan_choices(request.scenario, micro_batches(request), (model,))
    fitted = load_fitted(request.machine.constants)
    for name in OF_MACHINES:
        if getattr(request.machine, name) is not None:
            _refuse_design(request, declarations(MachineOptions)[name].flag, OF_MACHINES[name])
    number_format = request.machine.number_format
    software = evaluate_request.choose_software(
        request.scenario,
        device=device,
        fitted=fitted,
        dtype="" if device is None else number_format,
        float8=request.machine.float8,
        is_one_of_several=request.is_one_of_several,
        is_transformer=has_transformer(request.models),
    )
    path = _path(number_format)
    network = _network(request, device, fitted)
    known = _constants(request, network)
    chip = _designed(request, network, known) if device is None else _real(request, device, path, fitted, known)
    links = with_link_rate(network, chip.accelerator.link_bytes_per_s)
    machine = Machine(chip.clock, chip.memory_bytes, links, software.stack, is_real=device is not None)
    job = replace(_job(request, model, chip, machine, choices), constants=known if device is None else None)
    ranking = _rank(job, choices, has_cuts=device is None or model.cut.is_joined)
    notes = _notes(request, job, chip, network, software=software, device=device, path=path)
    setting = _setting(request, job, chip, path, notes, device=device, choice=software.choice)
    die = die_of(chip.accelerator, known) if device is None and has_die(known) else None
    parts, unbilled = _parts(chip, device, link_rate(links), known)
    fused = None
    chosen = _fused(request, job, ranking, choices, has_die=has_die(known))
    if chosen is not None:
        fused = chosen.fused
        if chosen.ranked.plan != ranking.ranked[0].plan:
            ranking = _rank(job, choices, has_cuts=True, also=chosen.ranked.plan)
            ranking = replace(ranking, ranked=ranking.ranked.led_by(chosen.ranked.plan))
        ranking = replace(ranking, bound_s=chosen.bound_s)
    to_run = setting.place_to_run(ranking.ranked)
    evaluation = evaluate_ranking(job, ranking, place=to_run, fused=fused)
    idle = idle_devices(evaluation, job.num_devices, choices.micro_batch).rstrip(".")
    notes = (*notes, Note("idle_devices", idle)) if idle else notes
    if device is not None and device.style is MatrixStyle.TILES:
        notes = (*notes, *shape_notes(job, evaluation))
    if fused is not None:
        notes = (*notes, Note("layer_fusion", fused.sentence))
        ranking = replace(ranking, ranked=ranking.ranked.with_time(fused.time))
    return PricedJob(
        evaluation, setting, notes, RankedJob(job, ranking, to_run), die=die, parts=parts, unbilled=unbilled
    )


def _fused(
    request: EvaluateRequest, job: PlannedJob, ranking: PlanRanking, choices: PlanChoices, *, has_die: bool
) -> FusedPlan | None:
    """The best plan of a die with its layers in groups; None where that is not asked for, or no plan fits.

    Raises:
        InputError: there is no such fuser, or the chip is no die.
    """
    name, clock = check_fuser(request.scenario.layer_fusion), job.machine.clock
    check_can_fuse(name, is_planned=True, has_die=has_die)
    if not (name and ranking.ranked and isinstance(clock, ScheduleClock)):
        return None
    degrees = free_degrees(job.model, job.training, num_devices=job.num_devices, choices=choices, machine=job.machine)
    planned = PlannedModel(compile_steps(degrees.prices.sets), degrees, tuple)
    return fuse_best_plan(planned, clock, ranking.ranked[0], memory_bytes=job.machine.memory_bytes, name=name)


def _parts(chip: _Chip, device: Device | None, links: float, known: Constants) -> tuple[DeviceParts | None, str]:
    """What the cost of a device is made of, or why that is not known."""
    if device is None:
        if not has_die(known):
            return None, NO_DIE
        return parts_of_chip(chip.accelerator, known, link_bytes_per_s=links), ""
    try:
        return parts_of_machine(device, load_prices(), link_bytes_per_s=links), ""
    except InputError as error:
        return None, str(error).removeprefix(f"'{error.key}': ")


def _rank(job: PlannedJob, choices: PlanChoices, *, has_cuts: bool, also: ParallelPlan | None = None) -> PlanRanking:
    """All plans of even stages that fit, fastest first; where cuts are free, the best of all plans among them.

    ``also`` is another plan that is among them, whatever its stages.
    """
    model, training, devices, stack = job.model, job.training, job.num_devices, job.machine.stack
    near = replace(choices, has_near_cuts=not has_cuts)
    first = near if model.has_experts else choices
    plans = list_plans(model, training, num_devices=devices, choices=first, stack=stack)
    if not len(plans) and not has_cuts:
        # Blocks that do not divide into the chunks asked for are cut as near to it as they can be.
        plans = list_plans(model, training, num_devices=devices, choices=near, stack=stack)
    if not len(plans):
        raise no_plan_fault(explain_no_plan(model, training, num_devices=devices, choices=choices, stack=stack))
    bound_s = 0.0
    if has_cuts:
        optimum = optimal_plan(model, training, num_devices=devices, choices=choices, machine=job.machine)
        best, bound_s = optimum.best, optimum.bound_s
        if best is not None and (best.plan.blocks or best.plan.stage_recompute):
            plans = PlanColumns.joined([plans, PlanColumns.of([best.plan])])
    if also is not None and (also.blocks or also.stage_recompute):
        plans = PlanColumns.joined([plans, PlanColumns.of([also])])
    return without_beaten(replace(rank_plans(model, training, plans, machine=job.machine), bound_s=bound_s))


def _job(request: EvaluateRequest, model: Workload, chip: _Chip, machine: Machine, choices: PlanChoices) -> PlannedJob:
    """What is asked for, without the plans."""
    scenario = request.scenario
    for flag, budget, value in (
        ("--max-area-mm2", scenario.max_area_mm2, chip.area_mm2),
        ("--max-tdp-w", scenario.max_tdp_w, chip.tdp_w),
    ):
        if budget is not None and value is None:
            message = f"needs a figure that is not published of {chip.name}; leave it out, or state it in a file"
            raise InputError(message, source=flag)
    training = TrainingSpec(
        micro_batch=1,
        sequence_length=evaluate_request.training_length(model, scenario.sequence_length),
        global_batch=scenario.global_batch,
        optimizer=parse_word(Optimizer, scenario.optimizer, source="--optimizer"),
        attention=parse_word(AttentionForm, scenario.attention, source="--attention"),
        sparsity=only_weights(scenario.sparsity),
    )
    training = _with_load(training, request, model)
    job = PlannedJob(
        model=model,
        training=training,
        machine=machine,
        accelerator=chip.accelerator,
        area_mm2=chip.area_mm2,
        tdp_w=chip.tdp_w,
        num_devices=scenario.devices,
        flops_per_sample=model_flops(model, training.sequence_length),
        peak_flops_per_s=chip.peak_flops_per_s,
        max_area_mm2=scenario.max_area_mm2,
        max_tdp_w=scenario.max_tdp_w,
    )
    return replace(job, provenance=replace(chip.provenance, scenario_digest=job_digest(job, choices)))


def _with_load(training: TrainingSpec, request: EvaluateRequest, model: Workload) -> TrainingSpec:
    """The training with the load of experts that was stated.

    Raises:
        InputError: a load is stated of no experts, of a design, or outside what one can be.
    """
    known = declarations(MachineOptions)
    for name in ("expert_imbalance", "expert_capacity"):
        value, flag = getattr(request.machine, name), known[name].flag
        if value is None:
            continue
        if not model.has_experts:
            message = f"is for models with experts, and {model.name} has none; leave it out"
            raise InputError(message, source=flag)
        _refuse_design(request, flag, "designs are priced with balanced experts")
        try:
            training = replace(training, **{name: value})
        except InputError as error:
            raise InputError(str(error).removeprefix(f"'{error.key}': "), source=flag) from None
    return training


def _refuse_design(request: EvaluateRequest, flag: str, why: str) -> None:
    if request.device is None:
        message = f"is for machines that exist; {why}; leave it out"
        raise InputError(message, source=flag)


def _constants(request: EvaluateRequest, network: Network) -> Constants:
    """The package's constants with the silicon asked for; real machines have none."""
    silicon = None if request.device is not None else chosen_silicon(request.scenario, network)
    return constants_with(silicon)


def _network(request: EvaluateRequest, device: Device | None, fitted: FittedConstants) -> Network:
    """The network asked for, else the machine's own, else the default."""
    own = DEFAULT_NETWORK if device is None else device.network or DEFAULT_NETWORK
    return load_network(request.network or own, num_devices=request.scenario.devices, fitted=fitted)


def _real(
    request: EvaluateRequest, device: Device, path: ComputePath, fitted: FittedConstants, known: Constants
) -> _Chip:
    """A machine that exists, with its published area and power.

    Raises:
        InputError: an option is for schedules, of which it has none, or it has no such path.
    """
    for option in map(declarations(ScenarioOptions).__getitem__, OF_SCHEDULES):
        if getattr(request.scenario, option.name) != option.default:
            message = f"is for designed chips; {device.name} runs operators one after the other; leave it out"
            raise InputError(message, source=option.flag)
    return _Chip(
        name=told_name(device),
        accelerator=described_chip(device, known),
        clock=MachineClock(device, path, fitted),
        peak_flops_per_s=device.peak(path),
        memory_bytes=device.hbm_bytes,
        area_mm2=device.die_mm2 or None,
        tdp_w=device.tdp_w or None,
        provenance=Provenance(package_version=__version__, estimator=OPERATORS_IN_TURN, constants_digest=fitted.digest),
    )


def _designed(request: EvaluateRequest, network: Network, known: Constants) -> _Chip:
    """An accelerator that is no real machine, with its modelled area and power."""
    if request.machine.dtype not in (None, DEFAULT_DTYPE, "fp16"):
        message = f"'{request.machine.dtype}' is for real machines; designed chips compute in 16 bits"
        raise InputError(message, source="--dtype")
    accelerator = load_architecture(request.arch, constants=known)
    check_covered(accelerator, known)
    estimator = load_estimator(_estimator(request)).with_constants(known)
    gap = request.scenario.schedule_gap
    clock = ScheduleClock(
        accelerator,
        estimator=estimator,
        exclusivity=parse_word(Exclusivity, request.scenario.exclusivity, source="--exclusivity"),
        options=schedule_options(gap, node_limit(gap)),
    )
    return _Chip(
        name=called(accelerator),
        accelerator=accelerator,
        clock=clock,
        peak_flops_per_s=accelerator.peak_flops_per_s,
        memory_bytes=float(accelerator.hbm_bytes),
        area_mm2=area_mm2_of(accelerator, known),
        tdp_w=power_w_of(accelerator, network, known),
        provenance=Provenance(package_version=__version__, estimator=estimator.name, constants_digest=known.digest),
    )


def _estimator(request: EvaluateRequest) -> str:
    """What prices operators of designed chips."""
    return form_of(request.scenario).estimator


def _notes(
    request: EvaluateRequest,
    job: PlannedJob,
    chip: _Chip,
    network: Network,
    *,
    software: evaluate_request.ChosenSoftware,
    device: Device | None,
    path: ComputePath,
) -> tuple[Note, ...]:
    """What is to be known of the software, the network (as it is without links that a chip states) and the chip."""
    own, stack, has_experts = request.machine.constants, software.stack, job.model.has_experts
    is_users = device is not None and not is_shipped(device)
    said = software_notes(
        stack.name,
        machine=chip.name,
        dtype=str(path),
        choice=SoftwareChoice.RULE if is_users and software.choice is SoftwareChoice.MEASURED else software.choice,
        gradients=(stack.gradient_bytes, software.measured.gradient_bytes, stack.gradient_source),
        num_experts=job.model.num_experts,
        sequence_length=job.training.sequence_length,
        errors=evaluate_request.fitted_errors(own),
        own_fit=evaluate_request.own_fit(own, stack.name, has_experts=has_experts),
        has_own_error=evaluate_request.own_error(own, stack.name, has_experts=has_experts) is not None,
        is_scheduled=device is None,
    )
    unused = evaluate_request.unused_fit(own, stack.name)
    said = (*said, Note("unused_fit", unused)) if unused else said
    known = job.constants or load_constants()
    about = Answer(known, models=request.models, cluster=Cluster(request.scenario.devices, network), is_best=False)
    if device is None:
        about = replace(about, accelerator=chip.accelerator, space=_own_space(request, network))
    said = (*said, *(replace(note, sentence=note.sentence.rstrip(".")) for note in apply_rules(about)))
    if device is None:
        return said
    if isinstance(job.model, ModelSpec) and device.style is MatrixStyle.TILES and head_note(job.model.head_size):
        said = (*said, Note("head_size", head_note(job.model.head_size)))
    assumed = assumed_note(stack.options, has_limit=request.machine.power_limit_w is not None)
    if assumed:
        said = (*said, Note("assumed_options", assumed))
    if request.machine.power_limit_w is not None:
        said = (*said, Note("power_limit", _power_note(device, stack)))
    if device.network or request.network:
        return said
    sentence = f"what joins {device.name} is not known: network {DEFAULT_NETWORK} is assumed; --network names another"
    return (*said, Note("network", sentence))


def _power_note(device: Device, stack: TrainingStack) -> str:
    """What a limit of power changes."""
    share = power_share(device, stack)
    if not stack.power_exponent:
        return f"{stack.name} has no share that goes with power: the limit of {device.tdp_w:g} W changes energy alone"
    return f"under {device.tdp_w:g} W a device matmuls reach {share:.3f} of their share of the peak on the usual power"


def _own_space(request: EvaluateRequest, network: Network) -> SearchSpace | None:
    """The default space of dies, on whose axes a design stands; None by the 22 nm tables."""
    silicon = chosen_silicon(request.scenario, network)
    return None if silicon is None else build_space(SpaceOptions(), silicon=silicon)


def _setting(
    request: EvaluateRequest,
    job: PlannedJob,
    chip: _Chip,
    path: ComputePath,
    notes: tuple[Note, ...],
    *,
    device: Device | None,
    choice: SoftwareChoice,
) -> PriceSetting:
    """What every plan of the answer shares."""
    is_real = device is not None
    training, stack = job.training, job.machine.stack
    constants, has_experts = request.machine.constants, job.model.has_experts
    # What a user fitted errs as the user's own rows kept out say, of models like theirs; else as published ones do.
    share = evaluate_request.own_error(constants, stack.name, has_experts=has_experts)
    # Of software that nobody measured too: sources kept out count as such.
    is_training = is_real and share is None and stack.name != IDEAL_STACK.name
    spread = load_spreads().find(step_kinds(stack.name, choice)) if is_training else None
    if share is None:
        rows, errors = measured_base(stack.name)[1], evaluate_request.fitted_errors(constants)
        share = error_share(rows, errors, machine=chip.name, dtype=str(path), has_experts=has_experts)
    return PriceSetting(
        machine=chip.name,
        software=stack.name,
        network=job.machine.network.name,
        model=job.model.name,
        num_devices=job.num_devices,
        tokens=training.global_batch * training.sequence_length,
        flops=training.global_batch * job.flops_per_sample,
        peak_flops_per_s=job.peak_flops_per_s,
        peak_type=str(path),
        is_ideal=is_real and stack.name == IDEAL_STACK.name,
        notes=tuple(note.sentence for note in notes),
        is_real=is_real,
        global_batch=training.global_batch,
        sequence_length=training.sequence_length,
        optimizer=training.optimizer.value,
        attention=stack.attention.value,
        estimator="" if is_real else _estimator(request),
        memory_bytes=job.machine.memory_bytes,
        error_share=share if spread is None else spread.apart - 1.0,
        spread=spread,
    )


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
