"""Training steps of sources that no fit saw, each publication kept out whole; writes sources.json beside this file.

Every constant of training is fitted again without the source, and its rows are priced as those of a software that
nobody knows; named: as those of their own, with constants that other publications say.
Run: python experiments/validation/sources.py [--out FILE]
"""

import argparse
import json
import platform
from pathlib import Path
from typing import Any

import numpy as np

import phaze_opt
from phaze_opt.hardware.fitted import load_fitted
from phaze_opt.record.whole_file import replace_file
from phaze_opt.validation.dataset import read_datasets
from phaze_opt.validation.result import score
from phaze_opt.validation.row_times import ideal_seconds
from phaze_opt.validation.training.entries import LAYER
from phaze_opt.validation.training.family import SOURCES, LeftOutRow, predict_left_out

OUT = Path(__file__).with_name("sources.json")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=OUT, help="file to write")
    arguments = parser.parse_args()
    datasets, _ = read_datasets(None, list(SOURCES))
    rows = [row for data in datasets for row in data.rows]
    found = predict_left_out(rows, load_fitted(), on_progress=lambda text: print(text, flush=True))
    document = {"_meta": meta(), **figures(found), "rows": [of_row(each) for each in found]}
    replace_file(arguments.out, json.dumps(document, indent=1, allow_nan=False) + "\n")


def figures(found: tuple[LeftOutRow, ...]) -> dict[str, Any]:
    """Figures of each source and of each of its tables, and their means."""
    sources: dict[str, list[LeftOutRow]] = {}
    tables: dict[str, list[LeftOutRow]] = {}
    for each in found:
        sources.setdefault(each.source, []).append(each)
        tables.setdefault(f"{each.source}: {each.row.dataset}", []).append(each)
    trivial = trivial_errors(sources)
    by_source = {name: {**of_rows(own), "trivial_mape": trivial[name]} for name, own in sources.items()}
    by_table = {name: of_rows(own) for name, own in tables.items()}
    return {
        "mean_over_sources": rounded(float(np.mean([each["mape"] for each in by_source.values()]))),
        "mean_over_sources_named": rounded(float(np.mean([each["named_mape"] for each in by_source.values()]))),
        "mean_over_tables": rounded(float(np.mean([each["mape"] for each in by_table.values()]))),
        "sources": by_source,
        "tables": by_table,
    }


def trivial_errors(sources: dict[str, list[LeftOutRow]]) -> dict[str, float]:
    """Errors in per cent of one utilisation for all: the middle of the other sources' middles."""
    quotients = {
        name: np.array([each.measured_s / ideal_seconds(each.row, "training") for each in own if is_step(each)])
        for name, own in sources.items()
    }
    middles = {name: float(np.median(values)) for name, values in quotients.items()}
    found = {}
    for name, values in quotients.items():
        factor = float(np.median([middle for other, middle in middles.items() if other != name]))
        found[name] = rounded(100.0 * float(np.abs(factor / values - 1.0).mean()))
    return found


def is_step(each: LeftOutRow) -> bool:
    """Whether a row is of whole steps."""
    return each.row.dataset != LAYER


def of_rows(rows: list[LeftOutRow]) -> dict[str, Any]:
    """Errors in per cent, how many rows lie in the range of the software that suits, and errors under their own."""
    scores = score(np.array([each.predicted_s for each in rows]), np.array([each.measured_s for each in rows]))
    named = score(np.array([each.named_s for each in rows]), np.array([each.measured_s for each in rows]))
    within = sum(each.low_s <= each.measured_s <= each.high_s for each in rows)
    return {
        "rows": len(rows),
        "mape": rounded(scores.mape),
        "bias": rounded(scores.bias),
        "within_range": within,
        "named_mape": rounded(named.mape),
        "named_bias": rounded(named.bias),
    }


def of_row(each: LeftOutRow) -> list[Any]:
    """Source, data set, id, and seconds: predicted, least, most, measured, and predicted under its own software."""
    seconds = (each.predicted_s, each.low_s, each.high_s, each.measured_s, each.named_s)
    return [each.source, each.row.dataset, each.row.id, *map(rounded, seconds)]


def rounded(value: float) -> float:
    return float(f"{value:.6g}")


def meta() -> dict[str, Any]:
    return {
        "command": "python experiments/validation/sources.py",
        "python": platform.python_version(),
        "numpy": np.__version__,
        "phaze_opt": phaze_opt.__version__,
        "figures": "mape and bias in per cent; rows: source, set, id; predicted, least, most, measured, named seconds",
    }


if __name__ == "__main__":
    main()
