"""Digests of what is to be optimised: equal where evaluations, and optima, are equal."""

from __future__ import annotations

import hashlib
import json

from phaze_opt import __version__
from phaze_opt.hardware.constants import Constants
from phaze_opt.objective.goals import Goal
from phaze_opt.objective.scenario import Scenario
from phaze_opt.space.search_space import SearchSpace


def evaluations_digest(scenario: Scenario, constants: Constants) -> str:
    """Equal where evaluations of a point are equal."""
    return _digest(__version__, scenario.digest, constants.digest)


def problem_digest(scenario: Scenario, constants: Constants, *, space: SearchSpace, goal: Goal) -> str:
    """Equal where optima are equal."""
    return _digest(evaluations_digest(scenario, constants), space.digest, goal.value)


def _digest(*parts: str) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()
