"""One design for several models: the mean that stands for all of them."""

import math
from collections.abc import Sequence
from dataclasses import replace

from phaze_opt.objective.evaluation import Effort, Evaluation, EvaluationStatus
from phaze_opt.objective.scenario import CommonMean, Scenario


def combine_evaluations(members: Sequence[Evaluation], *, scenario: Scenario) -> Evaluation:
    """The evaluation of a common design; infeasible as soon as one model is.

    Rates are means by ``scenario.common``; MFU and utilisations are arithmetic means; energy and power are left zero
    because the models do not run together. ``iteration_time_s`` is the global batch over the mean throughput.
    """
    blank = _blank(members)
    broken = next((member for member in members if not member.is_feasible), None)
    if broken is not None:
        return replace(blank, status=broken.status, reason=f"{broken.model}: {broken.reason}")
    # Samples/s of a FLOP/s of each device: the same for every design, as throughput / (MFU x peak) is.
    weights = [m.throughput_samples_per_s / (m.mfu * m.accelerator.peak_flops_per_s) for m in members]
    throughput = combine_rates([m.throughput_samples_per_s for m in members], weights, common=scenario.common)
    bound = combine_rates([m.throughput_bound_samples_per_s for m in members], weights, common=scenario.common)
    token_weights = [weight * m.sequence_length for weight, m in zip(weights, members, strict=True)]
    tokens = combine_rates([m.throughput_tokens_per_s for m in members], token_weights, common=scenario.common)
    return replace(
        blank,
        throughput_samples_per_s=throughput,
        throughput_bound_samples_per_s=bound,
        throughput_tokens_per_s=tokens,
        iteration_time_s=scenario.global_batch / throughput,
        throughput_per_tdp=throughput / (blank.tdp_w * scenario.cluster.num_devices) if blank.tdp_w else 0.0,
        mfu=math.fsum(m.mfu for m in members) / len(members),
        tc_utilisation=math.fsum(m.tc_utilisation for m in members) / len(members),
        vc_utilisation=math.fsum(m.vc_utilisation for m in members) / len(members),
    )


def _blank(members: Sequence[Evaluation]) -> Evaluation:
    """The common design without any rate: names, sizes, effort and constraints of all its members."""
    effort = Effort.together([member.effort for member in members])
    first = members[0]
    return Evaluation(
        model=", ".join(member.model for member in members),
        status=EvaluationStatus.FEASIBLE,
        reason="",
        accelerator=first.accelerator,
        micro_batch=first.micro_batch,
        sequence_length=max(member.sequence_length for member in members),
        num_parameters=sum(member.num_parameters for member in members),
        area_mm2=first.area_mm2,
        tdp_w=first.tdp_w,
        provenance=first.provenance,
        effort=effort,
        constraints=_worst_constraints(members),
        members=tuple(members),
        unknown=first.unknown,
    )


def combine_rates(rates: Sequence[float], ideals: Sequence[float], *, common: CommonMean) -> float:
    """The mean of `CommonMean`: arithmetic, geometric, or lowest FLOP rate times the geometric mean of ideals.

    ``ideals`` are in the unit of ``rates`` per FLOP/s: samples, or tokens.
    """
    if common is CommonMean.ARITHMETIC:
        return math.fsum(rates) / len(rates)
    if common is CommonMean.GEOMETRIC:
        return math.exp(math.fsum(math.log(rate) for rate in rates) / len(rates))
    shares = [rate / ideal for rate, ideal in zip(rates, ideals, strict=True)]
    return min(shares) * math.exp(math.fsum(math.log(ideal) for ideal in ideals) / len(ideals))


def _worst_constraints(members: Sequence[Evaluation]) -> tuple[tuple[str, float], ...]:
    """The largest value of each constraint over the models."""
    names = dict.fromkeys(name for member in members for name, _ in member.constraints)
    return tuple((name, max(value for m in members for key, value in m.constraints if key == name)) for name in names)
