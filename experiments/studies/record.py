"""Records finished studies of a working directory: one JSON file each beside this script.

    phaze-opt study run studies/NAME.toml --jobs 2 --work-dir DIR
    python experiments/studies/record.py DIR [NAME...]

A record holds the judgement of the study (contenders, truths, prices, findings), what it cost, and how to repeat it.
The trials themselves are rebuilt by the command: the same versions give the same numbers.
"""

import argparse
import json
import os
import platform
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from phaze_opt.report.study.findings import describe_findings
from phaze_opt.report.study.limits import describe_ranking_limits
from phaze_opt.study.directory import list_studies
from phaze_opt.study.load import load_study
from phaze_opt.study.result import StudyResult
from phaze_opt.study.scores import ContenderScore, PriceOfGenerality, StudySummary
from phaze_opt.study.summary import summarise

HERE = Path(__file__).parent
PACKAGES = ("phaze-opt", "optuna", "numpy", "scipy", "scikit-learn", "highspy", "Pyomo", "numba")


def record(result: StudyResult) -> dict[str, Any]:
    """The judgement of a study, ready for JSON."""
    summary = summarise(result)
    return {
        "_meta": {
            "command": f"phaze-opt study run studies/{result.config.name}.toml --jobs 2",
            "study_id": result.study_id,
            "machine": f"{platform.machine()}, {os.cpu_count()} cores",
            "versions": {name: version(name) for name in PACKAGES},
            "python": platform.python_version(),
            "searches": len(result.cells),
            "evaluations": sum(cell.evaluations for cell in result.cells),
            "distinct_evaluations": sum(cell.distinct_evaluations for cell in result.cells),
            "charged_s": round(sum(cell.charged_s for cell in result.cells), 1),
            "is_complete": result.is_complete,
        },
        "truths": {
            key: {"kind": truth.kind.value, "value": truth.value, "point": asdict(truth.point)}
            for key, truth in summary.truths.items()
        },
        "references": {
            key: {name: evaluation.throughput_samples_per_s for name, evaluation in references.items()}
            for key, references in result.references.items()
        },
        "contenders": [_contender(score) for score in summary.contenders],
        "by_condition": [_contender(score) for score in summary.by_condition],
        "prices": [_price(price, result) for price in summary.prices],
        "findings": list(describe_findings(result, summary)),
        "ranking": _ranking(summary, result.config.judgement.confidence),
    }


def _contender(score: ContenderScore) -> dict[str, Any]:
    """A score with its numbers rounded to what they are worth."""
    return {key: _rounded(value) for key, value in asdict(score).items()}


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.5g}")
    if isinstance(value, dict):
        return {str(key): _rounded(entry) for key, entry in value.items()}
    return value


def _ranking(summary: StudySummary, confidence: float) -> dict[str, Any]:
    ranking = summary.ranking
    return {
        "contenders": list(ranking.contenders),
        "mean_ranks": [_rounded(rank) for rank in ranking.mean_ranks],
        "friedman_p": _rounded(ranking.friedman_p),
        "note": describe_ranking_limits(ranking, confidence),
    }


def _price(price: PriceOfGenerality, result: StudyResult) -> dict[str, Any]:
    """The price of generality of one setting, with the chips it speaks of."""
    (table,) = [table for table in result.chip_tables if table.setting == price.setting]
    named = {*price.own_best, *(chip for design in (*price.common, *price.portfolios) for chip in design.chips)}
    return {
        **{key: value for key, value in asdict(price).items() if key not in {"common", "portfolios"}},
        "common": [asdict(design) for design in price.common],
        "portfolios": [asdict(design) for design in price.portfolios],
        "chips": {str(chip): asdict(table.chips[chip]) for chip in sorted(named)},
        "num_chips": len(table.chips),
        "num_candidates": table.num_candidates,
    }


def main() -> None:
    """Record every finished study, or those named."""
    parser = argparse.ArgumentParser()
    parser.add_argument("work_dir", type=Path)
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    for entry in list_studies(options.work_dir):
        result = load_study(entry.path)
        if result.is_complete and (not options.names or result.config.name in options.names):
            text = json.dumps(record(result), indent=1)
            (HERE / f"{result.config.name}.json").write_text(text + "\n", encoding="utf-8")
            print(f"{result.config.name}: {len(result.cells)} searches")


if __name__ == "__main__":
    main()
