"""From batch times of models to one throughput, and to the goal."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from phaze_opt.graph.flops import model_flops
from phaze_opt.objective.goals import Goal
from phaze_opt.objective.scenario import CommonMean, Scenario

Floats = NDArray[np.float64]


def throughput(scenario: Scenario, batch_s: Floats) -> Floats:
    """Samples/s of every row, shape (rows,); 0 where any model has no placement.

    Args:
        scenario: global batch, models and their mean.
        batch_s: of every model and row, shape (models, rows), s; infinite where nothing fits.
    """
    rates = scenario.global_batch / batch_s
    if len(rates) == 1:
        mean: Floats = rates[0]
        return mean
    is_feasible = np.isfinite(batch_s).all(axis=0)
    safe = np.where(is_feasible, rates, 1.0)
    return np.where(is_feasible, _mean(scenario, safe), 0.0)


def _mean(scenario: Scenario, rates: Floats) -> Floats:
    """The scenario's mean of rates, shape (models, rows) to (rows,).

    WORST is the lowest rate of model FLOPs, turned back into samples/s by the geometric mean of samples per FLOP.
    """
    if scenario.common is CommonMean.ARITHMETIC:
        mean: Floats = rates.mean(axis=0)
        return mean
    if scenario.common is CommonMean.GEOMETRIC:
        geometric: Floats = np.exp(np.log(rates).mean(axis=0))
        return geometric
    flops = np.array([model_flops(model, scenario.sequence_length_of(model)) for model in scenario.models])
    lowest: Floats = (rates * flops[:, None]).min(axis=0)
    return lowest * float(np.exp(-np.log(flops).mean()))


def goal_value(goal: Goal, rate: Floats, tdp_w: Floats, *, num_devices: int) -> Floats:
    """Samples/s, or samples/s/W of all devices given; shape (rows,)."""
    return rate / (tdp_w * num_devices) if goal is Goal.THROUGHPUT_PER_TDP else rate
