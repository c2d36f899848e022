"""The job of ``evaluate``: by plans or placements, on baselines, under every doubt and assumption."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from phaze_opt.cost.stacks import find_software, list_stacks
from phaze_opt.cost.suited_software import middle_place, software_of_any_module, software_of_machine, suited_software
from phaze_opt.errors import InputError, RefusedPlanError
from phaze_opt.hardware.constants import load_constants
from phaze_opt.hardware.fitted import load_fitted
from phaze_opt.hardware.network import Cluster
from phaze_opt.hardware.networks import DEFAULT_NETWORK, load_network
from phaze_opt.hardware.presets import load_architecture
from phaze_opt.jobs.evaluate_chip import DESIGNED, load_chip_scenario, price_chip
from phaze_opt.jobs.evaluate_plan import OF_SCHEDULES, price_plans
from phaze_opt.jobs.evaluate_request import EvaluateRequest, own_error, training_length
from phaze_opt.jobs.options import machine_names
from phaze_opt.jobs.priced_job import PricedJob, RankedJob
from phaze_opt.jobs.watch import Watch
from phaze_opt.objective.alternatives import OTHER_SOFTWARE, other_software
from phaze_opt.objective.bill import cluster_bill, vary_prices
from phaze_opt.objective.caveats import Note, has_transformer
from phaze_opt.objective.evaluate import Objective
from phaze_opt.objective.evaluation import CAPEX, Evaluation, EvaluationStatus, broken_budget
from phaze_opt.objective.headline_range import (
    HeadlineRange,
    SensitivityCase,
    SensitivityRow,
    analyse_sensitivity,
    plans_of_evaluation,
    range_of_design,
    range_of_prices,
    unmeasured_of,
)
from phaze_opt.objective.recipe import PricedPhase, recipe_price, recipe_sentence
from phaze_opt.objective.scenario import Scenario
from phaze_opt.objective.scenario_options import ScenarioOptions, declarations
from phaze_opt.objective.several_models import combine_evaluations
from phaze_opt.plan.plan_search import RankedPlan, rank_plans
from phaze_opt.record.suggestions import differ_by_a_letter, suggest
from phaze_opt.workload.plan import ParallelPlan
from phaze_opt.workload.software import launch_sizes, refusals
from phaze_opt.workload.sparsity import SparseWeights, parse_recipe

BASELINE = "--baseline"
OF_BUDGETS = ("max_area_mm2", "max_tdp_w", "max_capex_usd")
KNOWN_BEFORE = (
    "model", "accelerator", "micro_batch", "sequence_length", "num_parameters", "area_mm2", "tdp_w", "provenance",
    "unknown",
)  # fmt: skip
"""Fields of an evaluation that stand before anything is priced."""


def vary_assumptions(request: EvaluateRequest, answer: PricedJob, watch: Watch) -> tuple[SensitivityRow, ...]:
    """The sensitivity table of one architecture."""
    case = SensitivityCase(
        scenario=load_chip_scenario(request, constants=load_constants()),
        build_accelerator=lambda constants: load_architecture(request.arch, constants=constants),
        micro_batch=answer.evaluation.micro_batch,
        network_name=request.scenario.network,
    )
    with watch.working("varying every assumption over its range"):
        return tuple(analyse_sensitivity(case))


def find_range(request: EvaluateRequest, answer: PricedJob, watch: Watch) -> HeadlineRange | None:
    """The range of the answer's throughput; None of several models on a machine that exists."""
    if request.is_placed or request.device is None:
        known = load_constants()
        with watch.working("pricing the design under each doubt"):
            return range_of_design(
                Objective(load_chip_scenario(request, constants=known), constants=known),
                lambda constants: load_architecture(request.arch, constants=constants),
                value=answer.evaluation.throughput_samples_per_s,
                micro_batch=answer.evaluation.micro_batch,
                plans=plans_of_evaluation(answer.evaluation),
            )
    return None if answer.plans is None else _range_of_plan(answer, answer.plans, request)


def _range_of_plan(answer: PricedJob, plans: RankedJob, request: EvaluateRequest) -> HeadlineRange:
    """The range of the plan to run on a real machine: the same plan under other software, where it fits."""
    job, best = plans.job, plans.chosen
    fitted = load_fitted(request.machine.constants)
    prices = {}
    for name in OTHER_SOFTWARE:
        if name == job.machine.stack.name:
            continue
        machine = replace(job.machine, stack=other_software(job.machine.stack, name, fitted))
        ranked = rank_plans(job.model, job.training, [best.plan], machine=machine).ranked
        if ranked:
            prices[name] = job.training.global_batch / ranked[0].time.seconds
    own = own_error(request.machine.constants, job.machine.stack.name, has_experts=job.model.has_experts)
    return range_of_prices(
        answer.evaluation.throughput_samples_per_s,
        error=answer.setting.error_share,
        error_words=f"of {'steps' if own is None else 'your rows'} kept out of the fit",
        spread=answer.setting.spread,
        alternatives={"software": prices},
        unmeasured=unmeasured_of([best.plan], job.machine.stack.name),
    )


def price_job(request: EvaluateRequest, watch: Watch) -> PricedJob:
    """The answer to a request, with what it hangs on where that is asked for.

    Raises:
        InputError: an option breaks a rule, or no plan is left.
    """
    has_one_step = not request.scenario.sparsity or parse_recipe(request.scenario.sparsity).has_one_phase
    if not has_one_step:
        _refuse_beside_phases(request)
    answer = _within_capex(_price(request), request)
    if not answer.evaluation.is_feasible:
        return answer
    bill = None
    if request.costs is not None and answer.parts is not None:
        devices = answer.setting.num_devices
        bill = cluster_bill(answer.parts, answer.evaluation, request.costs, num_devices=devices)
        if answer.recipe is not None and answer.recipe.dense.is_feasible:
            dense = cluster_bill(answer.parts, answer.recipe.dense, request.costs, num_devices=devices)
            own, other = bill.throughput_per_usd, dense.throughput_per_usd
            answer = replace(answer, recipe=replace(answer.recipe, samples_per_usd=own, dense_samples_per_usd=other))
    rows = vary_prices(answer.evaluation, bill) if request.with_sensitivity and bill is not None else ()
    return replace(
        answer,
        bill=bill,
        price_rows=rows,
        sensitivity=vary_assumptions(request, answer, watch) if request.with_sensitivity else (),
        headline=find_range(request, answer, watch) if request.has_range and has_one_step else None,
    )


def _refuse_beside_phases(request: EvaluateRequest) -> None:
    """Refuse what is not worked out phase by phase.

    Raises:
        InputError: something of it is asked for.
    """
    given = {
        "--sensitivity": request.with_sensitivity,
        "Phaze's placements (--as phaze, --plans phaze)": request.is_placed,
        "all models but one": len(request.models) > 1,
    }
    words = " and ".join(word for word, is_given in given.items() if is_given)
    if words:
        message = (
            f"'{request.scenario.sparsity}' has several phases, each priced with its best plan, for one model and "
            f"without --sensitivity; leave out {words}, or give one pattern, such as 2:4"
        )
        raise InputError(message, source="--sparsity")


def _within_capex(answer: PricedJob, request: EvaluateRequest) -> PricedJob:
    """The answer, or that its cluster costs more than the budget.

    Raises:
        InputError: there is a budget, and what the cluster costs is not known.
    """
    budget, found = request.scenario.max_capex_usd, answer.evaluation
    if budget is None or request.costs is None:
        return answer
    if answer.parts is None:
        raise InputError(answer.unbilled, source="--max-capex-usd")
    if not found.is_feasible:
        return answer
    bill = cluster_bill(answer.parts, found, request.costs, num_devices=answer.setting.num_devices)
    slack = (CAPEX, float(bill.owned.capex_usd) / budget - 1.0)
    blank = Evaluation(
        **{name: getattr(found, name) for name in KNOWN_BEFORE},
        status=EvaluationStatus.FEASIBLE,
        reason="",
        constraints=(*found.constraints, slack),
    )
    over = broken_budget(blank, request.scenario)
    return replace(answer, evaluation=replace(found, constraints=blank.constraints) if over is None else over)


def _price(request: EvaluateRequest) -> PricedJob:
    """The figures; of sparse training of one model those of its mean step, beside dense training."""
    text = request.scenario.sparsity
    if not text or len(request.models) > 1 or request.device is not None:
        return _price_step(request)
    recipe = parse_recipe(text)
    kinds: dict[SparseWeights | None, str] = {None: ""}
    kinds |= {phase.weights: phase.weights.option for phase in recipe.phases if phase.weights is not None}
    answers = {weights: _price_step(_with_sparsity(request, option)) for weights, option in kinds.items()}
    phases = [PricedPhase(phase, answers[phase.weights].evaluation) for phase in recipe.phases]
    price = recipe_price(
        recipe,
        phases,
        dense=answers[None].evaluation,
        model=request.models[0],
        global_batch=request.scenario.global_batch,
    )
    last = answers[recipe.phases[-1].weights]
    notes = (*last.notes, Note("sparsity", recipe_sentence(price)))
    return replace(last, evaluation=price.mean, recipe=price, notes=notes)


def _with_sparsity(request: EvaluateRequest, text: str) -> EvaluateRequest:
    return replace(request, scenario=replace(request.scenario, sparsity=text))


def _price_step(request: EvaluateRequest) -> PricedJob:
    """The figures of one step; of several models by plans, each has the best of its own."""
    if request.is_placed:
        return price_chip(request)
    suited = _suited(request)
    if suited:
        return _middle(request, suited)
    members = tuple(price_plans(request, model) for model in request.models)
    return members[0] if len(members) == 1 else _combined(members, request)


def _suited(request: EvaluateRequest) -> tuple[str, ...]:
    """Software that suits a machine if one is named that nobody measured; empty of one that is known, or of a chip.

    Raises:
        InputError: the name is that of a known one but for a letter.
    """
    name, device = request.scenario.software, request.device
    if not (name and name.strip()) or device is None or find_software(name, load_fitted(request.machine.constants)):
        return ()
    meant = next((known for known in list_stacks() if differ_by_a_letter(name.strip(), known)), "")
    if meant:
        message = f"'{name[:60]}' names no software; did you mean {meant}?"
        raise InputError(message, source="--software")
    lengths = [training_length(model, request.scenario.sequence_length) for model in request.models]
    any_module = "" if has_transformer(request.models) else software_of_any_module(device)
    return (any_module,) if any_module else software_of_machine(device, sequence_length=max(lengths))


def _middle(request: EvaluateRequest, suited: Sequence[str]) -> PricedJob:
    """The job under the software in the middle of those that suit the plan, with the range of all of them.

    Of the plans to run under each software that one is answered which is to run of their middles. A plan that is given
    whole has the middle that `validate` gives its row.
    """
    answers, refused = _answers(replace(request, is_one_of_several=True), suited)
    best = {
        name: each.plans.chosen.plan
        for name, each in answers.items()
        if each.plans is not None and each.evaluation.is_feasible
    }
    if not best:
        return _middle_of(answers, refused, request)
    middles = sorted(
        (_middle_price(plan, answers, request) for plan in dict.fromkeys(best.values())),
        key=lambda each: (each.ranked.time.seconds, str(each.ranked.plan)),
    )
    setting = answers[middles[0].software].setting
    middle = middles[setting.place_to_run([each.ranked for each in middles])]
    plan, chosen = middle.ranked.plan, middle.software
    if best.get(chosen) != plan:
        answers[chosen] = _price(_pinned(request, plan, chosen))
    return _with_middle(answers[chosen], middle.rates, chosen, {**refused, **middle.refused}, request)


def _answers(request: EvaluateRequest, suited: Sequence[str]) -> tuple[dict[str, PricedJob], dict[str, str]]:
    """The job under each software whose launcher takes it, and what the launchers of the others say.

    Raises:
        RefusedPlanError: none does.
        InputError: what was asked is at fault under any software.
    """
    answers, refused = {}, {}
    for name in suited:
        try:
            answers[name] = _price(replace(request, scenario=replace(request.scenario, software=name)))
        except RefusedPlanError as error:
            refused[name] = error
    if not answers:
        raise next(reversed(refused.values()))
    return answers, {name: str(error) for name, error in refused.items()}


@dataclass(frozen=True, slots=True)
class _MiddlePrice:
    """A plan under the software in the middle of those that suit it, and samples/s under each of these.

    ``refused`` is what launchers of others say that suit too.
    """

    software: str
    ranked: RankedPlan
    rates: Mapping[str, float]
    refused: Mapping[str, str]


def _middle_price(plan: ParallelPlan, answers: Mapping[str, PricedJob], request: EvaluateRequest) -> _MiddlePrice:
    """A plan under each software that suits it and that it fits under, each as often as rows have it.

    One that fits under none of those, but is the best under another, is priced under all that it fits under.
    """
    first = next(each.plans.job for each in answers.values() if each.plans is not None)
    length = first.training.sequence_length
    found: dict[str, RankedPlan] = {}
    refused: dict[str, str] = {}
    names = [name for name in suited_software(plan, request.device, sequence_length=length) if name in answers]
    for name in answers:
        plans = answers[name].plans
        if plans is None:
            continue
        job, sizes = plans.job, launch_sizes(plans.job.model, plans.job.training, plan)
        told = refusals(name, job.machine.stack.rules, sizes)
        ranked = rank_plans(job.model, job.training, [plan], machine=job.machine).ranked
        if told and name in names:
            refused[name] = told[0]
        if len(ranked) and not told:
            found[name] = ranked[0]
    own = [name for name in names if name in found] or list(found)
    chosen = own[middle_place([float(found[name].time.seconds) for name in own])]
    rates = {name: request.scenario.global_batch / float(found[name].time.seconds) for name in own}
    return _MiddlePrice(chosen, found[chosen], rates, refused)


def _pinned(request: EvaluateRequest, plan: ParallelPlan, software: str) -> EvaluateRequest:
    """The request with every degree that a plan has."""
    scenario = replace(
        request.scenario,
        software=software,
        tensor_parallel=(plan.tensor,),
        pipeline=(plan.pipeline,),
        data=(plan.data,),
        context_parallel=(plan.context,),
        expert_parallel=(plan.expert,),
        expert_tensor_parallel=(plan.expert_tensor,) if plan.expert_tensor else (),
        interleave=(plan.interleave,),
        zero=(plan.zero,),
        state_shards=(plan.state_shards,) if plan.state_shards else (),
        recompute=request.scenario.recompute if plan.stage_recompute else plan.recompute.value,
        stage_blocks=",".join(map(str, plan.blocks)),
        stage_recompute=",".join(plan.stage_recompute) if plan.blocks else "",
    )
    return replace(request, scenario=scenario, micro_batch=str(plan.micro_batch), is_one_of_several=True)


def _middle_of(answers: Mapping[str, PricedJob], refused: Mapping[str, str], request: EvaluateRequest) -> PricedJob:
    """The answer in the middle of several: of several models, whose plans differ, or where nothing fits."""
    rates = {name: answer.evaluation.throughput_samples_per_s for name, answer in answers.items()}
    slowness = [-rate for rate in rates.values()]
    chosen = tuple(answers)[middle_place(slowness)]
    return _with_middle(answers[chosen], rates, chosen, refused, request)


def _with_middle(
    answer: PricedJob, rates: Mapping[str, float], chosen: str, refused: Mapping[str, str], request: EvaluateRequest
) -> PricedJob:
    """An answer with the sentence that says which software it is the middle of, and whose launchers refuse the plan."""
    order, name = sorted(rates, key=lambda each: (rates[each], each)), request.scenario.software or ""
    low, high = order[0], order[-1]
    sentence = (
        f"no software named '{name[:60]}' was measured ({suggest(name, list_stacks())}): priced as {chosen}, "
        f"the middle of {len(rates)} that suit {answer.setting.machine} ({rates[low]:,.3g} samples/s with "
        f"{low} to {rates[high]:,.3g} with {high})"
    )
    sentence = "; ".join([sentence, *(f"left out: {refused[name]}" for name in sorted(refused))])
    setting = replace(answer.setting, notes=(sentence, *answer.setting.notes))
    return replace(answer, setting=setting, notes=(Note("software", sentence), *answer.notes))


def _combined(members: Sequence[PricedJob], request: EvaluateRequest) -> PricedJob:
    """Several models on one machine, as a common design is worth: the arithmetic mean of their rates."""
    settings = [each.setting for each in members]
    devices = request.scenario.devices
    # The mean asks for batch and devices alone; degrees and network are those that the members were priced with.
    scenario = Scenario(
        models=request.models,
        cluster=Cluster(devices, load_network(DEFAULT_NETWORK, num_devices=devices)),
        global_batch=request.scenario.global_batch,
        tensor_parallel=(1,),
    )
    setting = replace(
        settings[0],
        model=", ".join(each.model for each in settings),
        tokens=sum(each.tokens for each in settings),
        flops=sum(each.flops for each in settings),
        sequence_length=max(each.sequence_length for each in settings),
        notes=tuple(dict.fromkeys(note for each in settings for note in each.notes)),
    )
    notes = tuple(dict.fromkeys(note for each in members for note in each.notes))
    evaluation = combine_evaluations([each.evaluation for each in members], scenario=scenario)
    first = members[0]
    return PricedJob(
        evaluation, setting, notes, members=tuple(members), die=first.die, parts=first.parts, unbilled=first.unbilled
    )


def price_baselines(request: EvaluateRequest, answer: PricedJob, watch: Watch, *, names: str) -> tuple[PricedJob, ...]:
    """The job of an answer on other machines, in the order named.

    A machine that exists makes of it what `evaluate` says of that machine alone; number format, batch and degrees are
    those of the answer, and the network is its own unless one is named. So is a design beside a machine that exists.
    Beside a placement all are priced as if they were designed.

    Raises:
        InputError: a name is blank or repeated, or the job cannot be priced on one of them.
    """
    words = machine_names(names) if names else ()
    plain = replace(request, with_sensitivity=False, has_range=False)
    if request.is_placed:
        plain = replace(plain, micro_batch=str(answer.evaluation.micro_batch))
    priced = []
    for word in words:
        try:
            priced.append(
                price_beside(replace(plain, arch=word), answer.setting.software, watch, is_design=not request.device)
            )
        except InputError as error:
            message = f"{word}: {error}"
            raise InputError(message, source=BASELINE) from error
    return tuple(_with_name(each, number, of=len(priced)) for number, each in enumerate(priced, 1))


def price_beside(request: EvaluateRequest, software: str, watch: Watch, *, is_design: bool) -> PricedJob:
    """A job on the machine of a request, as it stands beside an answer.

    Args:
        request: names the machine; its software, schedules, silicon and budgets are those of the answer.
        software: that the answer was priced under.
        watch: hears of what is priced.
        is_design: whether the answer is of a design.

    Raises:
        InputError: the job cannot be priced on the machine.
    """
    if request.is_placed or (is_design and request.device is None):
        own = price_job(request, watch)
        return replace(own, same_software=own)
    known = declarations(ScenarioOptions)
    names = ("software", "attention", *OF_BUDGETS, *(OF_SCHEDULES if request.device is not None else ()))
    scenario = replace(request.scenario, **{name: known[name].default for name in names})
    # What software of another name can do is not asked of the machine's own.
    own = price_job(replace(request, scenario=scenario, is_one_of_several=True), watch)
    if own.setting.software == software:
        return replace(own, same_software=own)
    named = request.scenario.software
    is_known = bool(named and find_software(named, load_fitted(request.machine.constants)))
    scenario = replace(scenario, software=software, attention=request.scenario.attention)
    try:
        same = price_job(replace(request, scenario=scenario, is_one_of_several=not is_known), watch)
    except InputError:
        return own
    return replace(own, same_software=same)


def _with_name(priced: PricedJob, number: int, *, of: int) -> PricedJob:
    """A baseline of sizes alone has a name of its own, beside an answer on such chips."""
    if priced.evaluation.accelerator.name:
        return priced
    name = f"baseline {number}" if of > 1 else "the baseline"
    called = priced.setting.machine.replace(DESIGNED, name)
    return replace(priced, setting=replace(priced.setting, machine=called))
