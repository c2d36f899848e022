"""Records what each strengthening group of the ordering model is worth at the root.

    python experiments/schedule/root_bounds.py

Writes root_bounds.json beside itself; tests/schedule/data/root_bounds.json is the copy that tests compare with, and
changes only in a commit that says why.
"""

from __future__ import annotations

import json
import platform
from pathlib import Path

import highspy

from phaze_opt.schedule.root_bounds import root_bound_table


def main() -> None:
    """Compute the table, print it and write it."""
    rows = root_bound_table()
    meta = {
        "version": 1,
        "date": "2026-11-21",
        "tolerance_relative": 1e-6,
        "highspy": str(highspy.Highs().version()),
        "python": platform.python_version(),
        "what": "optimum of the relaxed ordering model: none = defining groups alone, +g = with g, -g = all but g, "
        "~g = neither g nor bound_rows",
    }
    record = json.dumps({"_meta": meta, "rows": rows}, indent=1) + "\n"
    Path(__file__).with_suffix(".json").write_text(record)
    for row in rows:
        print(row["problem"], f"upper {row['upper']:.5g}", {k: round(v, 3) for k, v in row["bounds"].items()})


if __name__ == "__main__":
    main()
