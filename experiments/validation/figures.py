"""Writes the table of figures in docs/validation.md from generalisation.json, which generalise.py wrote.

Run: python experiments/validation/figures.py
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from phaze_opt.validation.goals import ERROR_GOALS, ErrorGoal, rank_goal
from phaze_opt.validation.schema import DATASET_SCHEMAS
from phaze_opt.whole_file import replace_file

HERE = Path(__file__).parent
DOCUMENT = HERE.parents[1] / "docs" / "validation.md"
BEGIN, END = "<!-- figures -->\n", "<!-- end of figures -->\n"
HEADER = (
    "| data set | rows | goal | fitted | cells kept out | others kept out | trivial | rank |\n"
    "|---|---|---|---|---|---|---|---|\n"
)


def main() -> None:
    record = json.loads((HERE / "generalisation.json").read_text(encoding="utf-8"))
    text = DOCUMENT.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    after = rest.partition(END)[2]
    replace_file(DOCUMENT, f"{before}{BEGIN}{table(record)}{END}{after}")


def table(record: dict[str, Any]) -> str:
    sets = {name: item for family in record["families"].values() for name, item in family["sets"].items()}
    lines = [line for name in DATASET_SCHEMAS if name in sets for line in of_set(name, sets[name])]
    counts = ", ".join(f"{name} {family['num_constants']}" for name, family in sorted(record["families"].items()))
    return f"\n{HEADER}{''.join(lines)}\nConstants by family: {counts}.\n\n"


def of_set(name: str, item: dict[str, Any]) -> list[str]:
    goals = {goal.group: goal for goal in ERROR_GOALS if goal.dataset == name}
    lines = [line_of(name, item, goals.get(""), trivial=number(item["baseline_mape"]), rank=rank_goal(name))]
    return lines + [line_of(f"- {group}", item["groups"][group], goal) for group, goal in goals.items() if group]


def line_of(
    label: str, item: dict[str, Any], goal: ErrorGoal | None, *, trivial: str = "", rank: float | None = None
) -> str:
    kept_out = dict(item["kept_out"])
    cells = kept_out.pop("cells", {"mape": None})
    others = ", ".join(f"{name} {number(figure['mape'])}" for name, figure in sorted(kept_out.items()))
    wanted = "" if goal is None else f"{goal.percent:g}"
    correlation = "" if item["fitted"]["spearman"] is None else f"{item['fitted']['spearman']:.3f}"
    correlation += "" if rank is None else f" (goal {rank:g})"
    cells_text = (
        label, f"{item['fitted']['rows']}", wanted, number(item["fitted"]["mape"]), number(cells["mape"]), others,
        trivial, correlation,
    )  # fmt: skip
    return f"| {' | '.join(cells_text)} |\n"


def number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.2f}" if value < 10 else f"{value:.1f}"


if __name__ == "__main__":
    main()
