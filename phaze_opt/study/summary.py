"""A study judged: regret of every search, ranks, tests, the price of generality, and what all of it stands on."""

import math
from collections.abc import Sequence

import numpy as np

from phaze_opt.record.arrays import Floats
from phaze_opt.study.config import PublishedClaim, StudyConfig
from phaze_opt.study.generality import price_of_generality
from phaze_opt.study.judging.contender_scores import condition_scores, overall_scores
from phaze_opt.study.judging.scoring import JudgedCondition, judge_conditions
from phaze_opt.study.judging.significance import condition_tests, rank_over_conditions, smallest_seed_p
from phaze_opt.study.judging.statistics import difference_interval, evaluations_to
from phaze_opt.study.result import StudyResult
from phaze_opt.study.scores import CellScore, ClaimFound, ContenderScore, EqualQuality, Lead, Standing, StudySummary

SEED = 0
"""Of the resampling."""

Curves = Sequence[Floats]
"""Regret curves of the searches of one stratum."""


def equal_quality(cells: Sequence[CellScore], config: StudyConfig, first: str, second: str) -> EqualQuality | None:
    """Compare the evaluations of two contenders at equal quality; None if they share no condition.

    Args:
        cells: finished searches of the study.
        config: of the study.
        first: name of the contender that is asked to do as well.
        second: name of the contender whose median end sets the quality.
    """
    mine, yours = _curves(cells, first), _curves(cells, second)
    shared = [key for key in mine if key in yours]
    if not shared:
        return None
    weights = {workload.name: workload.weight for workload in config.workloads}
    ratio, low, high = equal_quality_ratio(
        [mine[key] for key in shared],
        [yours[key] for key in shared],
        [weights[workload] for _, workload in shared],
        confidence=config.judgement.confidence,
        num_resamples=config.judgement.num_bootstrap,
    )
    each = [evaluations_at_equal_quality(mine[key], yours[key]) for key in shared]
    num_reached = sum(needed < float("inf") for needed, _, _ in each)
    one = each[0] if len(each) == 1 and num_reached else (0.0, 0.0, 0.0)
    return EqualQuality(first, second, len(shared), num_reached, ratio, low, high, *one)


def _curves(cells: Sequence[CellScore], contender: str) -> dict[tuple[str, str], Curves]:
    """Regret curves of a contender's searches, by setting and workload."""
    keys = dict.fromkeys((cell.setting, cell.workload) for cell in cells if cell.contender == contender)
    return {
        key: [cell.curve for cell in cells if cell.contender == contender and (cell.setting, cell.workload) == key]
        for key in keys
    }


def evaluations_at_equal_quality(first: Curves, second: Curves) -> tuple[float, float, float]:
    """Evaluations of two strategies to the regret that half of the second one's searches end with.

    Args:
        first: curves of the strategy that is asked to do as well.
        second: curves of the strategy that sets the quality.

    Returns:
        The least number of evaluations by which half of the searches were there, of first (infinite if fewer than half
        ever are) and of second, and that regret.
    """
    finals, needed = _needed(first, second)
    order = np.argsort(finals, kind="stable")
    middle = int(order[_lower_middle(len(finals))])
    counts = [float(np.sort(table[:, middle])[_lower_middle(len(table))]) for table in needed]
    return counts[0], counts[1], float(finals[middle])


def equal_quality_ratio(
    first: Sequence[Curves],
    second: Sequence[Curves],
    weights: Sequence[float],
    *,
    confidence: float,
    num_resamples: int,
) -> tuple[float, float, float]:
    """Evaluations of the second strategy over those of the first at equal quality, geometric mean over strata.

    Above 1 the first one is the faster. The interval is of percentiles, seeds resampled in every stratum; a resample
    in which the first strategy does not get there counts as 0.

    Args:
        first: per stratum the curves of one strategy.
        second: per stratum the curves of the other one, whose median end is the quality.
        weights: of the strata; they are normalised.
        confidence: of the interval.
        num_resamples: of the bootstrap.

    Returns:
        Ratio, low and high; the ratio is 0 if the first strategy does not get there in some stratum.
    """
    rng = np.random.default_rng(SEED)
    logs, resampled = 0.0, np.zeros(num_resamples)
    shares = np.asarray(weights, dtype=np.float64) / np.sum(weights)
    with np.errstate(divide="ignore"):
        for one, other, share in zip(first, second, shares, strict=True):
            mine, yours, _ = evaluations_at_equal_quality(one, other)
            logs += share * np.log(yours / mine)
            resampled += share * np.log(_resampled_ratios(one, other, num_resamples, rng))
    tail = 0.5 * (1.0 - confidence)
    low, high = np.exp(np.quantile(resampled, [tail, 1.0 - tail], method="inverted_cdf"))
    return float(np.exp(logs)), float(low), float(high)


def _needed(first: Curves, second: Curves) -> tuple[Floats, list[Floats]]:
    """Final regrets of the second strategy; evaluations of every search of both to each of them, infinite if never."""
    finals = np.array([curve[-1] if len(curve) else 1.0 for curve in second])
    tables = []
    for curves in (first, second):
        counts = [[evaluations_to(curve, final) for final in finals] for curve in curves]
        tables.append(np.array([[np.inf if count is None else count for count in row] for row in counts], dtype=float))
    return finals, tables


def _resampled_ratios(first: Curves, second: Curves, num_resamples: int, rng: np.random.Generator) -> Floats:
    """The ratio of one stratum in every resample of the searches of both strategies, shape (num_resamples,)."""
    finals, (needed_first, needed_second) = _needed(first, second)
    picks_first = rng.integers(len(first), size=(num_resamples, len(first)))
    picks_second = rng.integers(len(second), size=(num_resamples, len(second)))
    # The quality of a resample is its lower median: picks become places in sorted order, and the middle one a search.
    place = np.argsort(np.argsort(finals, kind="stable"), kind="stable")
    middle_place = np.sort(place[picks_second], axis=1)[:, _lower_middle(len(second))]
    quality = np.argsort(finals, kind="stable")[middle_place]
    counts_first = np.sort(needed_first[picks_first, quality[:, None]], axis=1)[:, _lower_middle(len(first))]
    counts_second = np.sort(needed_second[picks_second, quality[:, None]], axis=1)[:, _lower_middle(len(second))]
    ratios: Floats = counts_second / counts_first
    return ratios


def _lower_middle(count: int) -> int:
    """Index of the lower median of sorted values: at least half of them are no larger."""
    return (count - 1) // 2


MAX_COMPARED = 8
"""Contenders whose cost is told one by one; of more, the tables tell."""


def summarise(result: StudyResult) -> StudySummary:
    """Judge what is finished of a study; the same result gives the same summary to the bit.

    Contenders with a failed search are left out; what their other searches found still counts for the best known.
    """
    config, judgement = result.config, result.config.judgement
    judged = judge_conditions(result)
    scores = {score.key: score for one in judged for sample in one.samples.values() for score in sample.scores}
    finished = {score.contender for score in scores.values()}
    names = [contender.name for contender in config.contenders if contender.name in finished]
    ranking, block_tests = rank_over_conditions(judged, names, confidence=judgement.confidence)
    seed_tests = tuple(test for one in judged for test in condition_tests(one, confidence=judgement.confidence))
    means = config.generality.means if config.generality is not None else ()
    prices = tuple(price_of_generality(table, means) for table in result.chip_tables)
    cells = tuple(scores[cell.cell.key] for cell in result.cells if cell.cell.key in scores)
    contenders = overall_scores(judged, names, judgement)
    rivals = [score.contender for score in contenders[1:MAX_COMPARED]]
    compared = [equal_quality(cells, config, contenders[0].contender, rival) for rival in rivals]
    return StudySummary(
        standings=tuple(_standing(one) for one in judged),
        cells=cells,
        contenders=contenders,
        by_condition=tuple(score for one in judged for score in condition_scores(one, judgement)),
        ranking=ranking,
        tests=(*block_tests, *seed_tests),
        prices=tuple(price for price in prices if price.models),
        lead=_lead(contenders, judged, config),
        equal_quality=tuple(one for one in compared if one is not None),
        claims=tuple(_claim_found(claim, judged) for claim in config.claims),
    )


def _claim_found(claim: PublishedClaim, judged: Sequence[JudgedCondition]) -> ClaimFound:
    """The best values of a claim's two settings, workload by workload."""
    best = {
        (one.condition.setting.name, one.condition.workload.name): one
        for one in judged
        if one.yardstick.truth is not None and one.yardstick.truth.value > 0.0
    }
    pairs = [
        (one, best[claim.over, name])
        for (setting, name), one in best.items()
        if setting == claim.setting and (claim.over, name) in best
    ]
    truths = [(one.yardstick.truth, other.yardstick.truth) for one, other in pairs]
    values = [(one.value, other.value) for one, other in truths if one is not None and other is not None]
    if not values:
        return ClaimFound(claim, None, 0, is_proved=False)
    weights = [one.weight for one, _ in pairs]
    here = math.exp(sum(w * math.log(a / b) for w, (a, b) in zip(weights, values, strict=True)) / sum(weights))
    is_proved = all(truth is not None and truth.kind.is_proved for pair in truths for truth in pair)
    return ClaimFound(claim, here, len(values), is_proved=is_proved)


def _standing(judged: JudgedCondition) -> Standing:
    yardstick, samples = judged.yardstick, judged.samples
    fruitless = {
        name: sum(bool((score.curve == 1.0).all()) for score in sample.scores) for name, sample in samples.items()
    }
    varying = [len(sample.regrets) for sample in samples.values() if len(set(sample.regrets)) > 1]
    return Standing(
        condition=judged.key,
        truth=yardstick.truth,
        beaten_truth=yardstick.beaten_truth,
        has_front=yardstick.box is not None,
        num_contenders=len(samples),
        infeasible={name: count for name, count in fruitless.items() if count and yardstick.truth is not None},
        deterministic={name: len(sample.scores) for name, sample in samples.items() if sample.is_deterministic},
        smallest_p=smallest_seed_p(judged),
        is_tied=len(samples) > 1 and len({score.regret for sample in samples.values() for score in sample.scores}) == 1,
        num_observations=min(varying, default=0),
    )


def _lead(contenders: Sequence[ContenderScore], judged: Sequence[JudgedCondition], config: StudyConfig) -> Lead | None:
    """How much more the second contender loses than the first, over the conditions of both."""
    first_two = [score.contender for score in contenders[:2]]
    shared = [one for one in judged if set(first_two) <= set(one.samples)]
    if len(first_two) < 2 or not shared:
        return None
    first, second = ([one.samples[name].regrets for one in shared] for name in first_two)
    low, high = difference_interval(
        first,
        second,
        [one.weight for one in shared],
        confidence=config.judgement.confidence,
        num_resamples=config.judgement.num_bootstrap,
    )
    return Lead(low, high)
