"""A study judged: regret of every search, ranks, tests, the price of generality, and what all of it stands on."""

import math
from collections.abc import Sequence

from phaze_opt.study.config import PublishedClaim, StudyConfig
from phaze_opt.study.generality.portfolio import price_of_generality
from phaze_opt.study.judging.contender_scores import condition_scores, overall_scores
from phaze_opt.study.judging.equal_quality import equal_quality
from phaze_opt.study.judging.scoring import JudgedCondition, judge_conditions
from phaze_opt.study.judging.significance import condition_tests, rank_over_conditions, smallest_seed_p
from phaze_opt.study.judging.statistics.bootstrap import difference_interval
from phaze_opt.study.result import StudyResult
from phaze_opt.study.scores import ClaimFound, ContenderScore, Lead, Standing, StudySummary

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
