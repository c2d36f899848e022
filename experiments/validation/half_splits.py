"""What constants fitted to half of the public rows say of the other half; writes half_splits.json beside this file.

The public rows are a half of what was measured, drawn by a hash of each configuration. Halving them again at random,
rows of one id together, emulates that draw: constants are fitted to one half from the parameters' own starts and
predict the other. With half the rows to fit to that is harsher than the draw itself; errors with a fifth of the ids
kept out are milder, and ids drawn from them with replacement say how much a half of this size scatters.
Run: python experiments/validation/half_splits.py [--only FAMILY ...] [--seeds 10]
"""

import argparse
import json
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from typing import Any

import numpy as np
from homes import homes

from phaze_opt.record.arrays import Floats
from phaze_opt.record.whole_file import replace_file
from phaze_opt.validation.dataset import read_datasets
from phaze_opt.validation.family import Family
from phaze_opt.validation.fit import with_starts
from phaze_opt.validation.measured_row import Row
from phaze_opt.validation.packs import known_constants
from phaze_opt.validation.predict import Fold, cells_of, fold_by_cell, predict_held_out, predict_rows
from phaze_opt.validation.result import ERROR_GOALS, ErrorGoal, group_labels, mape, mape_by_cell, rank_correlations
from phaze_opt.validation.schema import BY_CELL

RECORD = "half_splits.json"
SMALL = 60
"""Sets with fewer ids are divided evenly, others id by id, as the published draw does."""
DRAWS = 2000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=[], metavar="FAMILY")
    parser.add_argument("--seeds", type=int, default=10)
    options = parser.parse_args()
    for home in homes(options.only):
        out = home.records / RECORD
        known = json.loads(out.read_text())["sets"] if out.exists() else {}
        for family in home.families:
            rows = [row for data in read_datasets(None)[0] for row in data.rows if row.dataset in family.datasets]
            if family.parameters(rows) and any(goal.dataset in family.datasets for goal in ERROR_GOALS):
                known |= measure(family, rows, options.seeds)
                record = {"_meta": meta(), "sets": known}
                replace_file(out, json.dumps(record, indent=1, sort_keys=True, allow_nan=False) + "\n")


def meta() -> dict[str, Any]:
    return {
        "command": "python experiments/validation/half_splits.py",
        "versions": {name: version(name) for name in ("phaze-opt", "numpy", "scipy")},
        "figures": "mean errors in per cent; shares of halves and draws within the goal; the least rank of a half",
    }


def measure(family: Family, rows: Sequence[Row], num_seeds: int) -> dict[str, Any]:
    """Figures of every goal of a family's sets."""
    start, parameters = known_constants(), family.parameters(rows)
    ids = [f"{row.dataset}|{row.id}" for row in rows]
    cells = cells_of(family, rows)
    package = predict_rows([family], rows, with_starts(start, parameters))
    kept_out = predict_held_out(family, rows, fold_by_cell(ids), start)
    halves = [predict_held_out(family, rows, [fold], start) for fold in half_folds(ids, num_seeds)]
    found = {}
    for goal in (goal for goal in ERROR_GOALS if goal.dataset in family.datasets):
        own = [index for index, row in enumerate(rows) if _is_of(row, goal)]
        by_id: dict[str, list[int]] = {}
        for index in own:
            by_id.setdefault(ids[index], []).append(index)

        def error(predicted: Floats, chosen: Sequence[int], goal: ErrorGoal = goal) -> float:
            scored = [index for index in chosen if np.isfinite(predicted[index])]
            times, measured = predicted[scored], package.measured_s[scored]
            if goal.group == BY_CELL:
                return mape_by_cell(times, measured, [cells[index] for index in scored])
            return mape(times, measured)

        split = np.array([error(predicted, own) for predicted in halves])
        ranks = [_rank(predicted, package.measured_s, own) for predicted in halves]
        drawn = np.array([error(kept_out, chosen) for chosen in draws(list(by_id.values()))])
        found[f"{goal.dataset} {goal.group}".strip()] = {
            "goal": goal.percent,
            "fitted_constants": start.digest,
            "fitted": _rounded(error(package.predicted_s, own)),
            "fifths": _rounded(error(kept_out, own)),
            "halves": _rounded(float(split.mean())),
            "halves_median": _rounded(float(np.median(split))),
            "halves_deviation": _rounded(float(split.std())),
            "halves_within_goal": _rounded(float((split <= goal.percent).mean())),
            "draws_deviation": _rounded(float(drawn.std())),
            "draws_within_goal": _rounded(float((drawn <= goal.percent).mean())),
            "halves_least_spearman": _rounded(min(ranks)),
        }
        print(goal.dataset, goal.group, found[f"{goal.dataset} {goal.group}".strip()], flush=True)
    return found


def half_folds(ids: Sequence[str], num_seeds: int) -> Iterator[Fold]:
    """Both halves of every random division, each kept out once."""
    for seed in range(num_seeds):
        generator = np.random.default_rng(seed)
        held_out: set[str] = set()
        for dataset in sorted({name.partition("|")[0] for name in ids}):
            own = sorted({name for name in ids if name.startswith(f"{dataset}|")})
            is_even = generator.permutation(len(own)) % 2 == 0
            chosen = is_even if len(own) < SMALL else generator.random(len(own)) < 0.5
            held_out |= {name for name, out in zip(own, chosen, strict=True) if out}
        inside = [name in held_out for name in ids]
        first = tuple(index for index, out in enumerate(inside) if out)
        second = tuple(index for index, out in enumerate(inside) if not out)
        yield Fold(f"{seed} a", held_out=first, kept=second)
        yield Fold(f"{seed} b", held_out=second, kept=first)


def draws(groups: Sequence[Sequence[int]]) -> Iterator[list[int]]:
    """As many ids as there are, drawn with replacement."""
    generator = np.random.default_rng(0)
    for _ in range(DRAWS):
        yield [index for place in generator.integers(0, len(groups), len(groups)) for index in groups[place]]


def _is_of(row: Row, goal: ErrorGoal) -> bool:
    return row.dataset == goal.dataset and (goal.group in ("", BY_CELL) or goal.group in group_labels(row))


def _rank(predicted: Floats, measured: Floats, own: Sequence[int]) -> float:
    scored = [index for index in own if np.isfinite(predicted[index])]
    return rank_correlations(predicted[scored], measured[scored])[0]


def _rounded(value: float) -> float | None:
    return float(f"{value:.3g}") if np.isfinite(value) else None


if __name__ == "__main__":
    main()
