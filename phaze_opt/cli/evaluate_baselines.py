"""The same job on other machines, under one assumption: ``evaluate --baseline``."""

from dataclasses import replace

from phaze_opt.cli.evaluate_request import EvaluateRequest
from phaze_opt.cli.price_job import price_job
from phaze_opt.cli.priced_job import PricedJob
from phaze_opt.errors import InputError
from phaze_opt.hardware.presets import find_machine

OPTION = "--baseline"


def price_baselines(request: EvaluateRequest, answer: PricedJob, *, names: str) -> tuple[PricedJob, ...]:
    """The job of an answer on other machines, in the order named.

    Software, number format, batch and degrees are those of the answer; each machine has its own network unless one is
    named. Beside a placement, which is under ideal software without ZeRO, a real machine has the same.

    Raises:
        InputError: a name is blank or repeated, or the job cannot be priced on one of them.
    """
    words = [word.strip() for word in names.split(",")] if names else []
    if not all(words) or len(set(words)) < len(words):
        message = f"'{names[:60]}' must be machines separated by commas, each once, such as h100,mi300x"
        raise InputError(message, source=OPTION)
    return tuple(_price(_same_job(request, answer, word), word) for word in words)


def _same_job(request: EvaluateRequest, answer: PricedJob, arch: str) -> EvaluateRequest:
    """The request of an answer for another machine."""
    alike = replace(request, arch=arch, with_sensitivity=False)
    alike_software = replace(alike, scenario=replace(request.scenario, software=answer.setting.software))
    if answer.is_by_plans:
        return alike_software
    if request.is_as_published or find_machine(arch) is None:
        return alike
    plan = replace(request.plan, zero="0")
    return replace(alike_software, plan=plan, micro_batch=str(answer.evaluation.micro_batch))


def _price(request: EvaluateRequest, name: str) -> PricedJob:
    """One of them; a fault is said to be of the option."""
    try:
        return price_job(request)
    except InputError as error:
        message = f"{name}: {error}"
        raise InputError(message, source=OPTION) from error
