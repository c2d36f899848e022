"""Sets of k chips that serve several models best, exactly over a table of values, and what each model loses by them."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from phaze_opt.errors import SolverError
from phaze_opt.objective.scenario import CommonMean
from phaze_opt.record.arrays import Flags, Floats
from phaze_opt.record.near_ties import comparable
from phaze_opt.record.pareto import undominated
from phaze_opt.study.result import ChipTable
from phaze_opt.study.scores import CommonDesign, PriceOfGenerality

MAX_PARTITIONED_MODELS = 8
"""Up to this many models the best sets are found over all partitions of the models; above, by an integer program."""
FORBIDDEN = -1e3
"""Term of a model on a chip that it may not use: below any sum of terms that are allowed, with weights of sum 1."""


def mean_of_shares(mean: CommonMean, shares: Floats, weights: Floats) -> float:
    """The mean that a common design is judged by; the worst case knows no weights.

    Args:
        mean: which one.
        shares: each model's value over its own best, shape (num_models,).
        weights: of the models, positive.
    """
    if mean is CommonMean.WORST:
        return float(shares.min())
    if mean is CommonMean.ARITHMETIC:
        return float(np.average(shares, weights=weights))
    if (shares <= 0.0).any():
        return 0.0
    return float(np.exp(np.average(np.log(shares), weights=weights)))


def best_portfolios(shares: Floats, weights: Floats, mean: CommonMean) -> tuple[tuple[int, ...], ...]:
    """For k = 1 .. number of models the at most k chips that maximise a mean, each model taking the best of them.

    Exact. Of sets that are equal for the worst case, one of the highest arithmetic mean.

    Args:
        shares: ``shares[model, chip]``, each model's value over its own best; 0 where infeasible.
        weights: of the models, positive, shape (num_models,); the worst case knows them only to decide ties.
        mean: what is maximised.

    Returns:
        Ascending indices of chips for each k; fewer than k where more do not help.
    """
    # Replacing a dominated chip by the one that dominates it lowers no model's share: some best set does without it.
    relevant = undominated(-shares.T)
    reduced, weights = shares[:, relevant], weights / weights.sum()
    if len(shares) <= MAX_PARTITIONED_MODELS:
        found = _over_partitions(reduced, weights, mean)
    else:
        sizes = range(1, len(shares) + 1)
        found = tuple(solve_portfolio(reduced, weights, num_chips=size, mean=mean) for size in sizes)
    return tuple(tuple(sorted({int(relevant[chip]) for chip in chosen})) for chosen in found)


def model_terms(shares: Floats, weights: Floats, mean: CommonMean) -> Floats:
    """What each model and chip adds to the sum that a mean grows with (of the worst case: the share itself).

    A chip that a model cannot use adds a forbidding amount to the geometric mean.
    """
    if mean is CommonMean.WORST:
        return shares
    if mean is CommonMean.ARITHMETIC:
        return weights[:, None] * shares
    logs = np.log(np.where(shares > 0.0, shares, 1.0))
    return np.where(shares > 0.0, weights[:, None] * logs, FORBIDDEN)


def terms_above(shares: Floats, weights: Floats, least: float) -> Floats:
    """Terms of the arithmetic mean in which no model may fall below a share: the second choice after the worst case."""
    return np.where(shares >= least, weights[:, None] * shares, FORBIDDEN)


def _over_partitions(shares: Floats, weights: Floats, mean: CommonMean) -> tuple[tuple[int, ...], ...]:
    """Each set of models served by one chip: the best partition into at most k such sets, for every k."""
    terms = model_terms(shares, weights, mean)
    if mean is not CommonMean.WORST:
        return tuple(chips for _, chips in _best_partitions(terms, takes_least=False))
    chosen = []
    for size, (least, _) in enumerate(_best_partitions(terms, takes_least=True)):
        above = terms_above(shares, weights, least)
        chosen.append(_best_partitions(above, takes_least=False, rounds=size + 1)[size][1])
    return tuple(chosen)


def _best_partitions(
    terms: Floats, *, takes_least: bool, rounds: int | None = None
) -> list[tuple[float, tuple[int, ...]]]:
    """Dynamic program over sets of models (bits): cover one set more by one chip, in every round.

    The set that is added holds the lowest model left, so that each partition is seen once; a round costs 3^models.

    Args:
        terms: ``terms[model, chip]``.
        takes_least: the score is the least term of all models, else their sum.
        rounds: largest number of chips; the number of models by default.

    Returns:
        Score and chips of the best partition into at most k sets, for k = 1 .. rounds.
    """
    num_models = len(terms)
    served = _best_chips(terms, takes_least=takes_least)
    everything = (1 << num_models) - 1
    best: dict[int, tuple[float, tuple[int, ...]]] = {0: (np.inf if takes_least else 0.0, ())}
    answers = []
    for _ in range(rounds or num_models):
        longer = dict(best)
        for covered, (value, chips) in best.items():
            left = everything & ~covered
            # Subsets of the bits left, by counting down under their mask; only those with the lowest bit left, so that
            # the parts of a partition come in one order and each partition is seen once.
            group = left
            while group:
                if group & left & -left:
                    term, chip = served[group]
                    total = min(value, term) if takes_least else value + term
                    if covered | group not in longer or total > longer[covered | group][0]:
                        longer[covered | group] = (total, (*chips, chip))
                group = (group - 1) & left
        best = longer
        answers.append(best[everything])
    return answers


def _best_chips(terms: Floats, *, takes_least: bool) -> dict[int, tuple[float, int]]:
    """For every set of models (bits) the best score that one chip gives it, and that chip."""
    found = {}
    for group in range(1, 1 << len(terms)):
        rows = [row for row in range(len(terms)) if group >> row & 1]
        scores = terms[rows].min(axis=0) if takes_least else terms[rows].sum(axis=0)
        chip = int(np.argmax(comparable(scores)))
        found[group] = (float(scores[chip]), chip)
    return found


SCALE = 1e4
"""Of the objective: HiGHS stops at an absolute gap of 1e-6, which then is 1e-10 of a share."""


def solve_portfolio(shares: Floats, weights: Floats, *, num_chips: int, mean: CommonMean) -> tuple[int, ...]:
    """At most ``num_chips`` chips that maximise a mean, by HiGHS, to 1e-9.

    The uncapacitated k-median program: ``open[c]`` chips, ``use[m, c] <= open[c]`` with one chip a model; for the worst
    case the least share is found first (a set cover at each level of share, by bisection), then the highest arithmetic
    mean that keeps it.

    Args:
        shares: ``shares[model, chip]``; 0 where infeasible.
        weights: of the models, positive, of sum 1, shape (num_models,).
        num_chips: at least 1.
        mean: what is maximised.

    Raises:
        SolverError: the program could not be solved.
    """
    if mean is not CommonMean.WORST:
        return _maximise(model_terms(shares, weights, mean), num_chips)
    levels = np.unique(shares)
    low, high = 0, len(levels) - 1
    while low < high:
        middle = (low + high + 1) // 2
        if _num_covering(shares >= levels[middle]) <= num_chips:
            low = middle
        else:
            high = middle - 1
    return _maximise(terms_above(shares, weights, float(levels[low])), num_chips)


def _maximise(terms: Floats, num_chips: int) -> tuple[int, ...]:
    """Chips that maximise the sum over models of the best term among them."""
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import coo_array, eye_array, hstack, kron

    num_models, total = terms.shape
    num_uses = num_models * total
    # Columns: open[c], then use[m, c] row by row. One chip a model; only open chips are used; at most so many are open.
    one_chip = hstack([coo_array((num_models, total)), kron(eye_array(num_models), np.ones((1, total)))])
    is_open = hstack([-kron(np.ones((num_models, 1)), eye_array(total)), eye_array(num_uses)])
    count = np.concatenate([np.ones(total), np.zeros(num_uses)])[None, :]
    solved = milp(
        np.concatenate([np.zeros(total), -SCALE * terms.ravel()]),
        integrality=np.concatenate([np.ones(total), np.zeros(num_uses)]),
        bounds=Bounds(0.0, 1.0),
        constraints=[
            LinearConstraint(one_chip.tocsr(), 1.0, 1.0),
            LinearConstraint(is_open.tocsr(), -np.inf, 0.0),
            LinearConstraint(count, 0.0, float(num_chips)),
        ],
        options={"mip_rel_gap": 0.0},
    )
    return _open_chips(solved, total)


def _num_covering(covers: Flags) -> int:
    """Least number of chips such that each model has one that covers it; more than all if there is none.

    Args:
        covers: ``covers[model, chip]``.
    """
    from scipy.optimize import Bounds, LinearConstraint, milp

    if not covers.any(axis=1).all():
        return len(covers) + 1
    total = covers.shape[1]
    solved = milp(
        np.ones(total),
        integrality=np.ones(total),
        bounds=Bounds(0.0, 1.0),
        constraints=[LinearConstraint(covers.astype(float), 1.0, np.inf)],
    )
    return len(_open_chips(solved, total))


def _open_chips(solved: Any, total: int) -> tuple[int, ...]:
    """Indices of the chips in a solution."""
    if solved.x is None or solved.status != 0:
        message = f"the best set of chips could not be found: {solved.message}"
        raise SolverError(message)
    return tuple(int(chip) for chip in np.flatnonzero(solved.x[:total] > 0.5))


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


def describe_portfolio(shares: Floats, weights: Floats, chips: tuple[int, ...], mean: CommonMean) -> CommonDesign:
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
