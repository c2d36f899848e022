"""The price of generality: what each model loses on a chip that is not its own best one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from phaze_opt.objective.scenario import CommonMean
from phaze_opt.study.generality.portfolio import best_portfolios, mean_of_shares
from phaze_opt.study.result import ChipTable
from phaze_opt.study.scores import CommonDesign, PriceOfGenerality


def price_of_generality(table: ChipTable, means: Sequence[CommonMean]) -> PriceOfGenerality:
    """Every model's own best chip, the price matrix, and the best common designs and sets of them by each mean.

    A model that no chip of the table can train has no own best: it is left out (`PriceOfGenerality.models`).

    Args:
        table: values of models on chips.
        means: what common designs are chosen by.
    """
    values = np.array(table.values, dtype=np.float64).reshape(len(table.models), len(table.chips))
    rows = [row for row in range(len(table.models)) if values[row].max(initial=0.0) > 0.0]
    models = tuple(table.models[row] for row in rows)
    if not models:
        return PriceOfGenerality(table.setting, (), (), (), (), ())
    own = values[rows].argmax(axis=1)
    shares = values[rows] / values[rows].max(axis=1, keepdims=True)
    weights = np.array([table.weights[row] for row in rows], dtype=np.float64)
    portfolios = tuple(
        describe_portfolio(shares, weights, chips, mean)
        for mean in means
        for chips in best_portfolios(shares, weights, mean)
    )
    return PriceOfGenerality(
        setting=table.setting,
        models=models,
        own_best=tuple(int(chip) for chip in own),
        matrix=tuple(tuple(float(share) for share in row) for row in shares[:, own]),
        common=portfolios[:: len(models)],
        portfolios=portfolios,
    )


def describe_portfolio(
    shares: NDArray[np.float64], weights: NDArray[np.float64], chips: tuple[int, ...], mean: CommonMean
) -> CommonDesign:
    """What each model reaches if it takes the best of some chips, and what that costs.

    Args:
        shares: ``shares[model, chip]``, each model's value over its own best.
        weights: of the models.
        chips: indices of chips.
        mean: what they were chosen by.
    """
    offered = shares[:, chips]
    taken = offered.max(axis=1)
    return CommonDesign(
        mean=mean.value,
        chips=chips,
        assignment=tuple(int(choice) for choice in offered.argmax(axis=1)),
        shares=tuple(float(share) for share in taken),
        price=max(0.0, 1.0 - float(np.average(taken, weights=weights))),
        worst_price=1.0 - float(taken.min()),
        score=mean_of_shares(mean, taken, weights),
    )
