"""A study judged: regret of every search, ranks, tests, the price of generality and findings in words."""

from __future__ import annotations

from phaze_opt.study.generality.price import price_of_generality
from phaze_opt.study.judging.contender_scores import condition_scores, overall_scores
from phaze_opt.study.judging.findings.write import write_findings
from phaze_opt.study.judging.judged_condition import judge_conditions
from phaze_opt.study.judging.significance import condition_tests, rank_over_conditions
from phaze_opt.study.result import StudyResult
from phaze_opt.study.scores import StudySummary


def summarise(result: StudyResult) -> StudySummary:
    """Judge what is finished of a study; the same result gives the same summary to the bit.

    Contenders with a failed search are left out; what their other searches found still counts for the best known.
    """
    judgement = result.config.judgement
    judged = judge_conditions(result)
    scores = {score.key: score for one in judged for sample in one.samples.values() for score in sample.scores}
    finished = {score.contender for score in scores.values()}
    names = [contender.name for contender in result.config.contenders if contender.name in finished]
    ranking, block_tests = rank_over_conditions(judged, names, confidence=judgement.confidence)
    seed_tests = tuple(test for one in judged for test in condition_tests(one, confidence=judgement.confidence))
    generality = result.config.generality
    means = generality.means if generality is not None else ()
    prices = tuple(price_of_generality(table, means) for table in result.chip_tables)
    summary = StudySummary(
        truths={one.key: one.yardstick.truth for one in judged if one.yardstick.truth is not None},
        cells=tuple(scores[cell.cell.key] for cell in result.cells if cell.cell.key in scores),
        contenders=overall_scores(judged, names, judgement),
        by_condition=tuple(score for one in judged for score in condition_scores(one, judgement)),
        ranking=ranking,
        tests=(*block_tests, *seed_tests),
        prices=tuple(price for price in prices if price.models),
        findings=(),
    )
    return write_findings(summary, judged, result)
