"""Chips for several models: each on every model, and the sets of k that serve all best, exactly over that table."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from phaze_opt.errors import InputError, SolverError
from phaze_opt.hardware.chip_template import DesignPoint
from phaze_opt.objective.evaluation import Evaluation
from phaze_opt.objective.goals import goal_directions, goal_values
from phaze_opt.objective.scenario import CommonMean
from phaze_opt.record.arrays import Flags, Floats, Ints
from phaze_opt.record.near_ties import comparable
from phaze_opt.search.probe import PointBound, architecture_of, bound_values
from phaze_opt.study.config import Condition
from phaze_opt.study.result import CellResult, ChipTable
from phaze_opt.study.scores import CommonDesign, PriceOfGenerality

BATCH = 8
"""Chips evaluated at a time, whatever the number of workers: the table must not depend on it."""
ROUNDING = 1e-9
"""Relative allowance by which a bound may fall short of the value it bounds, as both are rounded."""

EvaluatePoints = Callable[[Condition, Sequence[DesignPoint]], Sequence[Evaluation]]
"""Evaluations of points in a condition, in order."""
BoundPoints = Callable[[Condition, Sequence[DesignPoint]], Sequence[PointBound]]
"""Upper bounds of points in a condition, in order, as of `PointBounder.bound`."""


def candidate_chips(cells: Iterable[CellResult], setting: str) -> tuple[DesignPoint, ...]:
    """Distinct chips (points of micro-batch 1) that any search of a setting found feasible, in ascending order."""
    mine = (cell for cell in cells if cell.cell.condition.setting.name == setting)
    return tuple(sorted({architecture_of(trial.point) for cell in mine for trial in cell.trials if trial.values}))


def build_chip_table(
    conditions: Sequence[Condition], chips: Sequence[DesignPoint], *, evaluate: EvaluatePoints, bound: BoundPoints
) -> ChipTable:
    """Each model's value on each candidate chip, at the best micro-batch of its space.

    Chips that cannot matter are left out. A chip is dropped only if some evaluated chip reaches, for every model, at
    least what bounds allow the dropped one: whatever set of chips the dropped one is in, the other one can take its
    place without a loss to any model. So each model's own best value and the best set of k chips by any mean that
    rises with the shares, for every k, are those of all candidates. Micro-batches that a bound rules out are skipped.

    Args:
        conditions: of the single-model workloads of one setting, in the study's order; one goal, one objective.
        chips: candidates; micro-batches are ignored, duplicates removed.
        evaluate: prices points; called with the same points in the same order whatever computes them.
        bound: bounds points; infinite bounds are allowed and rule nothing out.

    Raises:
        InputError: the goal has several objectives.
    """
    first = conditions[0]
    if len(goal_directions(first.goal)) > 1:
        message = (
            f"setting '{first.setting.name}' has the goal '{first.goal}', and designs for one and for many models are "
            "compared by one objective; give it the goal throughput or throughput_per_tdp"
        )
        raise InputError(message, key="generality")
    candidates = tuple(sorted({architecture_of(chip) for chip in chips}))
    pricing = _Pricing(conditions, candidates, evaluate, [_bounds(one, candidates, bound) for one in conditions])
    kept = _relevant(pricing)
    return ChipTable(
        setting=first.setting.name,
        models=tuple(one.workload.name for one in conditions),
        weights=tuple(one.workload.weight for one in conditions),
        chips=tuple(candidates[chip] for chip in kept),
        values=tuple(tuple(float(pricing.lower[row, chip]) for chip in kept) for row in range(len(conditions))),
        micro_batches=tuple(
            tuple(int(pricing.micro_batch[row, chip]) for chip in kept) for row in range(len(conditions))
        ),
        num_candidates=len(candidates),
    )


def _bounds(condition: Condition, chips: Sequence[DesignPoint], bound: BoundPoints) -> Floats:
    """Upper bounds on the objective, shape (num_chips, num_micro_batches); 0 where certainly infeasible."""
    micro_batches = condition.space.axes.micro_batch
    points = [replace(chip, micro_batch=size) for chip in chips for size in micro_batches]
    values = [bound_values(condition.goal, one) for one in bound(condition, points)] if points else []
    bounds = np.array([value[0] if value else 0.0 for value in values], dtype=np.float64)
    return bounds.reshape(len(chips), len(micro_batches)) * (1.0 + ROUNDING)


class _Pricing:
    """What is known of every model on every chip: brackets that evaluations close."""

    def __init__(
        self,
        conditions: Sequence[Condition],
        chips: Sequence[DesignPoint],
        evaluate: EvaluatePoints,
        bounds: Sequence[Floats],
    ) -> None:
        """Nothing is evaluated yet.

        Args:
            conditions: one per model.
            chips: candidates.
            evaluate: prices points.
            bounds: of each model, shape (num_chips, its num_micro_batches).
        """
        self._conditions, self._chips, self._evaluate = conditions, chips, evaluate
        self._open = [one.copy() for one in bounds]
        shape = (len(conditions), len(chips))
        self.lower: Floats = np.zeros(shape)
        self.micro_batch: Ints = np.zeros(shape, dtype=np.int64)

    @property
    def upper(self) -> Floats:
        """What each model can still reach on each chip, shape (num_models, num_chips)."""
        still_open = np.array([one.max(axis=1, initial=0.0) for one in self._open])
        upper: Floats = np.maximum(still_open.reshape(self.lower.shape), self.lower)
        return upper

    def settle(self, row: int, chips: Sequence[int]) -> None:
        """Evaluate a model on chips until no micro-batch left can beat the best one found, highest bound first."""
        condition, bounds = self._conditions[row], self._open[row]
        sizes = condition.space.axes.micro_batch
        while asked := [chip for chip in chips if bounds[chip].max(initial=0.0) > self.lower[row, chip]]:
            choices = [int(np.argmax(bounds[chip])) for chip in asked]
            points = [
                replace(self._chips[chip], micro_batch=sizes[choice])
                for chip, choice in zip(asked, choices, strict=True)
            ]
            for chip, choice, evaluation in zip(asked, choices, self._evaluate(condition, points), strict=True):
                bounds[chip, choice] = 0.0
                values = goal_values(condition.goal, evaluation)
                if values and values[0] > self.lower[row, chip]:
                    self.lower[row, chip] = values[0]
                    self.micro_batch[row, chip] = evaluation.micro_batch if evaluation.is_planned else sizes[choice]
        for chip in chips:
            bounds[chip] = 0.0


def _relevant(pricing: _Pricing) -> list[int]:
    """Chips that are evaluated on every model, ascending; all others are beaten by one of these everywhere.

    The most promising chips (by mean bound over the best bound of each model) are settled first, a model at a time, so
    that a chip that proves bad for one model need not be evaluated on the next.
    """
    num_models, num_chips = pricing.lower.shape
    upper = np.where(np.isfinite(pricing.upper), pricing.upper, 0.0)
    # Promise decides the order of the work alone: whatever it is, a chip is dropped only if a settled one beats it.
    best = np.maximum(upper.max(axis=1, initial=0.0), np.finfo(np.float64).tiny)
    promise = (upper / best[:, None]).mean(axis=0)
    waiting = [int(chip) for chip in np.argsort(-promise, kind="stable")]
    settled: list[int] = []
    while waiting := _undominated(pricing, waiting, settled):
        batch, waiting = waiting[:BATCH], waiting[BATCH:]
        for row in range(num_models):
            batch = _undominated(pricing, batch, settled)
            pricing.settle(row, batch)
        settled += batch
    return sorted(chip for chip in settled if pricing.lower[:, chip].any()) if num_chips else []


def _undominated(pricing: _Pricing, chips: Sequence[int], settled: Sequence[int]) -> list[int]:
    """Chips that no settled one is sure to equal or beat on every model."""
    if not settled or not chips:
        return list(chips)
    upper = pricing.upper[:, list(chips)]
    reached = pricing.lower[:, list(settled)]
    is_beaten = np.any(np.all(reached[:, None, :] >= upper[:, :, None], axis=0), axis=1)
    return [chip for chip, beaten in zip(chips, is_beaten.tolist(), strict=True) if not beaten]


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
    relevant = np.flatnonzero(~dominated_columns(shares))
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


def dominated_columns(shares: Floats) -> Flags:
    """Chips that another chip equals or exceeds for every model; of equal chips all but the first.

    Replacing such a chip by the other one lowers no model's share, so some best set does without it.

    Args:
        shares: shape (num_models, num_chips).
    """
    num_chips = shares.shape[1]
    is_dominated = np.zeros(num_chips, dtype=np.bool_)
    for chip in range(num_chips):
        column = shares[:, chip : chip + 1]
        no_worse = (shares >= column).all(axis=0)
        is_better = (shares > column).any(axis=0)
        is_earlier = np.arange(num_chips) < chip
        is_dominated[chip] = (no_worse & (is_better | is_earlier)).any()
    return is_dominated


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
