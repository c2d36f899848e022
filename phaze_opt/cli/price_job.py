"""Prices what ``evaluate`` is asked for: through parallel plans, or by the best placement."""

from collections.abc import Sequence
from dataclasses import replace

from phaze_opt.cli.evaluate_chip import price_chip
from phaze_opt.cli.evaluate_plan import price_plans
from phaze_opt.cli.evaluate_request import EvaluateRequest
from phaze_opt.cli.priced_job import PricedJob
from phaze_opt.hardware.network import Cluster
from phaze_opt.hardware.networks import DEFAULT_NETWORK, load_network
from phaze_opt.objective.scenario import Scenario
from phaze_opt.objective.several_models import combine_evaluations


def price_job(request: EvaluateRequest) -> PricedJob:
    """The answer to a request; of several models by plans, each has the best of its own.

    Raises:
        InputError: an option breaks a rule, or no plan is left.
    """
    if not request.is_for_plans:
        return price_chip(request)
    members = tuple(price_plans(request, model) for model in request.models)
    return members[0] if len(members) == 1 else _combined(members, request)


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
    return PricedJob(evaluation, setting, notes, members=tuple(members))
