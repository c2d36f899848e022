"""A finished study judged, as values: scores, ranks, tests, prices and findings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from phaze_opt.study.result import COUNTS, Truth

COSTS = ("evaluations", "distinct_evaluations", *COUNTS, "charged_s", "overhead_s")
"""What a search cost, as its result and its score name it."""


@dataclass(frozen=True, slots=True, eq=False)
class CellScore:
    """One search judged.

    Attributes:
        key, setting, workload, contender, seed: which one.
        curve: relative regret after each evaluation, shape (num_evaluations,): ``1 - best so far / truth`` (1 while
            nothing feasible was found); for several objectives ``1 - hypervolume so far / best known hypervolume``.
        regret: at the end.
        area_under_curve: mean of the curve over the whole budget (its last value repeated if it ended before).
        evaluations_to: evaluations until the regret was at most each target; targets not reached are absent.
        seconds_to: charged time until then, s; overhead is spread evenly over evaluations.
        hypervolume: dominated share of the box between the worst and the best known values; 0 for a single objective.
        evaluations, distinct_evaluations, probes, pruned, ilp_solves, placements, charged_s, overhead_s: its cost.
    """

    key: str
    setting: str
    workload: str
    contender: str
    seed: int
    curve: NDArray[np.float64]
    regret: float
    area_under_curve: float
    evaluations_to: Mapping[float, int]
    seconds_to: Mapping[float, float]
    hypervolume: float
    evaluations: int
    distinct_evaluations: int
    probes: int
    pruned: int
    ilp_solves: int
    placements: int
    charged_s: float
    overhead_s: float


@dataclass(frozen=True, slots=True)
class ContenderScore:
    """One contender over the seeds of one condition, or over all of them.

    Attributes:
        contender: its name.
        condition: key of the condition; empty for all (workloads weighted).
        num_cells: searches.
        median_regret, mean_regret: relative, at the end; over all conditions each weighs as its workload, whatever
            its number of searches.
        low_regret, high_regret: bootstrap interval of the mean regret.
        share_reached: share of searches that reached each target.
        median_evaluations_to: evaluations by which half of the searches had reached each target; targets that fewer
            ever reached are absent.
        median_seconds_to: likewise, s.
        mean_area_under_curve: mean.
        mean_hypervolume: mean over searches of several objectives; 0 if there are none.
        mean_distinct_evaluations, mean_probes, mean_pruned, mean_charged_s: means of the cost.
        mean_rank: over conditions by median regret, 1 is best; of a single condition its rank.
    """

    contender: str
    condition: str
    num_cells: int
    median_regret: float
    mean_regret: float
    low_regret: float
    high_regret: float
    share_reached: Mapping[float, float]
    median_evaluations_to: Mapping[float, float]
    median_seconds_to: Mapping[float, float]
    mean_area_under_curve: float
    mean_hypervolume: float
    mean_distinct_evaluations: float
    mean_probes: float
    mean_pruned: float
    mean_charged_s: float
    mean_rank: float


@dataclass(frozen=True, slots=True)
class PairTest:
    """Two contenders compared.

    Attributes:
        condition: key, or empty for conditions as blocks.
        first, second: contenders; ``first`` has the lower median regret.
        test: ``Wilcoxon`` over conditions; over seeds ``Mann-Whitney``, ``sign test`` where one of the two makes the
            same search whatever the seed, ``none`` where both do.
        p_value: after Holm's correction over all tested pairs of the same condition.
        effect: Vargha-Delaney A of first over second, 0.5 is none, 1 means always better; over conditions its paired
            form, the share of conditions in which first is better.
        is_significant: ``first`` is better at the study's confidence, on the test's own side too; over conditions only
            if Friedman's test finds a difference as well.
    """

    condition: str
    first: str
    second: str
    test: str
    p_value: float
    effect: float
    is_significant: bool


@dataclass(frozen=True, slots=True)
class Ranking:
    """Contenders ranked with conditions as blocks (medians over seeds).

    Attributes:
        contenders: best mean rank first.
        mean_ranks: of each.
        friedman_p: that all are alike; 1 if it cannot be tested.
        cliques: groups of contenders that no test tells apart, as index pairs (first, last) into ``contenders``.
        note: what is too few or tied, in words; empty if nothing is.
    """

    contenders: tuple[str, ...]
    mean_ranks: tuple[float, ...]
    friedman_p: float
    cliques: tuple[tuple[int, int], ...]
    note: str = ""


@dataclass(frozen=True, slots=True)
class CommonDesign:
    """A common design, or a set of designs, with what each model loses by it.

    Attributes:
        mean: what it was chosen by.
        chips: indices into `ChipTable.chips`; one for a common design, k for a portfolio.
        assignment: which of ``chips`` each model uses (index into ``chips``).
        shares: each model's value over its own best.
        price: 1 - weighted mean of the shares.
        worst_price: 1 - least share.
        score: the mean itself.
    """

    mean: str
    chips: tuple[int, ...]
    assignment: tuple[int, ...]
    shares: tuple[float, ...]
    price: float
    worst_price: float
    score: float


@dataclass(frozen=True, slots=True)
class PriceOfGenerality:
    """Per-model against common designs in one setting.

    Attributes:
        setting: its name.
        models: names.
        own_best: index of each model's best chip in `ChipTable.chips`.
        matrix: ``matrix[model][design]``: share of its own best that a model reaches on the best chip of each model.
        common: best common design by each mean.
        portfolios: best set of k chips for k = 1 .. number of models, by each mean, solved exactly over the table.
    """

    setting: str
    models: tuple[str, ...]
    own_best: tuple[int, ...]
    matrix: tuple[tuple[float, ...], ...]
    common: tuple[CommonDesign, ...]
    portfolios: tuple[CommonDesign, ...]


@dataclass(frozen=True, slots=True)
class StudySummary:
    """A study judged.

    Attributes:
        truths: what regret is against, by key of the condition (the best known where nothing better is had).
        cells: finished searches.
        contenders: over all conditions, best first.
        by_condition: per condition, best first.
        ranking: over conditions as blocks.
        tests: all pairs, over all conditions and per condition.
        prices: of the generality question, by setting; empty if it was not asked.
        findings: who wins, where, by how much, and what cannot be claimed: sentences.
    """

    truths: Mapping[str, Truth]
    cells: tuple[CellScore, ...]
    contenders: tuple[ContenderScore, ...]
    by_condition: tuple[ContenderScore, ...]
    ranking: Ranking
    tests: tuple[PairTest, ...]
    prices: tuple[PriceOfGenerality, ...]
    findings: tuple[str, ...]
