"""Prices what ``evaluate`` is asked for: through parallel plans, or by the best placement."""

from phaze_opt.cli.evaluate_chip import price_chip
from phaze_opt.cli.evaluate_plan import price_plans
from phaze_opt.cli.evaluate_request import EvaluateRequest
from phaze_opt.cli.priced_job import PricedJob


def price_job(request: EvaluateRequest) -> PricedJob:
    """The answer to a request.

    Raises:
        InputError: an option breaks a rule, or no plan is left.
    """
    return price_plans(request) if request.is_for_plans else price_chip(request)
