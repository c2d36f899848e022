"""Which differences between contenders can be claimed, per condition and over conditions as blocks."""

from collections.abc import Sequence
from itertools import combinations

import numpy as np

from phaze_opt.record.arrays import Flags, Floats
from phaze_opt.study.judging.scoring import JudgedCondition, Sample
from phaze_opt.study.judging.statistics import (
    cliques,
    friedman_p,
    holm_adjust,
    mann_whitney_p,
    mean_ranks,
    paired_superiority,
    sign_p,
    signed_rank_lead,
    smallest_mann_whitney_p,
    smallest_sign_p,
    vargha_delaney,
    wilcoxon_p,
)
from phaze_opt.study.scores import PairTest, Ranking

EVEN = 0.5
"""Effect of two samples of which neither is better."""
MANN_WHITNEY, SIGN, WILCOXON, NO_TEST = "Mann-Whitney", "sign test", "Wilcoxon", "none"


def condition_tests(judged: JudgedCondition, *, confidence: float) -> tuple[PairTest, ...]:
    """All pairs of contenders over the seeds of one condition, corrected together.

    Two samples of searches are compared by Mann-Whitney. A contender whose seeds all give one search is a constant of
    the condition, not a sample: others are tested for a median equal to it (sign test), and two constants not at all.
    """
    samples = judged.samples
    ordered = sorted(samples, key=lambda name: samples[name].median_regret)
    pairs = list(combinations(ordered, 2))
    raw = [seed_test(samples[first], samples[second]) for first, second in pairs]
    corrected = iter(holm_adjust([p_value for test, p_value in raw if test != NO_TEST]))
    adjusted = [1.0 if test == NO_TEST else next(corrected) for test, _ in raw]
    effects = [vargha_delaney(samples[first].regrets, samples[second].regrets) for first, second in pairs]
    return tuple(
        PairTest(
            condition=judged.key,
            first=first,
            second=second,
            test=test,
            p_value=p_value,
            effect=effect,
            # A test of ranks can go against the medians, by which the first one leads: then nobody is better.
            is_significant=p_value < 1.0 - confidence and effect > EVEN,
        )
        for (first, second), (test, _), p_value, effect in zip(pairs, raw, adjusted, effects, strict=True)
    )


def seed_test(first: Sample, second: Sample) -> tuple[str, float]:
    """Name of the test of two samples of one condition, and its p-value before correction."""
    if first.is_deterministic and second.is_deterministic:
        return NO_TEST, 1.0
    if first.is_deterministic:
        return SIGN, sign_p(second.regrets, float(first.regrets[0]))
    if second.is_deterministic:
        return SIGN, sign_p(first.regrets, float(second.regrets[0]))
    return MANN_WHITNEY, mann_whitney_p(first.regrets, second.regrets)


def smallest_seed_p(judged: JudgedCondition) -> float:
    """The least p-value, after correction, that any pair of this condition's sample sizes can give; 1 without tests."""
    pairs = combinations(judged.samples.values(), 2)
    least = [_smallest(*pair) for pair in pairs if not all(sample.is_deterministic for sample in pair)]
    return min(1.0, min(least) * len(least)) if least else 1.0


def _smallest(first: Sample, second: Sample) -> float:
    if first.is_deterministic or second.is_deterministic:
        return smallest_sign_p(max(len(first.regrets), len(second.regrets)))
    return smallest_mann_whitney_p(len(first.regrets), len(second.regrets))


def rank_over_conditions(
    judged: Sequence[JudgedCondition], names: Sequence[str], *, confidence: float
) -> tuple[Ranking, tuple[PairTest, ...]]:
    """Contenders ranked with conditions as blocks, and all pairs of them tested.

    Medians over seeds of the conditions in which every contender has a finished search: Friedman's test first; if it
    finds a difference (or there are two contenders only) Wilcoxon's signed-rank test of every pair with Holm's
    correction, as in Demsar (2006) with the later advice of Benavoli, Corani and Mangili (JMLR 17, 2016) to test pairs
    by Wilcoxon rather than by differences of mean ranks.

    A single condition is ranked without tests: over its seeds `condition_tests` tells more.

    Args:
        judged: conditions.
        names: contenders with at least one finished search, in the study's order.
        confidence: of claims.
    """
    blocks = [one for one in judged if all(name in one.samples for name in names)]
    medians = np.array([[one.samples[name].median_regret for name in names] for one in blocks], dtype=np.float64)
    if len(names) < 2 or not blocks:
        even = 0.5 * (len(names) + 1)
        return Ranking(tuple(names), (even,) * len(names), 1.0, (), len(judged), len(blocks)), ()
    ranks = mean_ranks(medians)
    order = np.argsort(ranks, kind="stable")
    ordered = [names[index] for index in order]
    overall_p = friedman_p(medians)
    level = 1.0 - confidence
    is_open = overall_p is None or overall_p < level
    tests = _block_tests(medians[:, order], ordered, level=level if is_open else 0.0) if len(blocks) > 1 else ()
    is_different = _differences(tests, ordered)
    ranking = Ranking(
        contenders=tuple(ordered),
        mean_ranks=tuple(float(ranks[index]) for index in order),
        friedman_p=1.0 if overall_p is None else overall_p,
        cliques=cliques(is_different),
        num_conditions=len(judged),
        num_blocks=len(blocks),
        num_tied=int((np.ptp(medians, axis=1) == 0.0).sum()),
        num_settings=len({one.condition.setting.name for one in blocks}),
        smallest_p=smallest_sign_p(len(blocks)),
    )
    return ranking, tests


def _block_tests(medians: Floats, names: Sequence[str], *, level: float) -> tuple[PairTest, ...]:
    pairs = list(combinations(range(len(names)), 2))
    adjusted = holm_adjust([wilcoxon_p(medians[:, first], medians[:, second]) for first, second in pairs])
    return tuple(
        PairTest(
            condition="",
            first=names[first],
            second=names[second],
            test=WILCOXON,
            p_value=p_value,
            effect=paired_superiority(medians[:, first], medians[:, second]),
            is_significant=p_value < level and signed_rank_lead(medians[:, first], medians[:, second]) > 0.0,
        )
        for (first, second), p_value in zip(pairs, adjusted, strict=True)
    )


def _differences(tests: Sequence[PairTest], names: Sequence[str]) -> Flags:
    """Which pairs are told apart, by index into names."""
    is_different = np.zeros((len(names), len(names)), dtype=np.bool_)
    for test in tests:
        if test.is_significant:
            first, second = names.index(test.first), names.index(test.second)
            is_different[first, second] = is_different[second, first] = True
    return is_different
