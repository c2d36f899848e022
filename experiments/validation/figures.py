"""Writes the table of figures in docs/validation.md, and of an installed laboratory in its kernels.md.

Mean errors are those that calibrate.py wrote beside the constants when they were fitted, and ranks are worked out anew,
so that both are of the constants in force; errors of groups and the trivial model are of generalisation.json, which
generalise.py wrote.

Run: python experiments/validation/figures.py
"""

import json
import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

from generalise import RECORD, baseline_mape
from homes import Home, homes

from phaze_opt.record.whole_file import replace_file
from phaze_opt.report.validation_tables import format_figure, format_rank
from phaze_opt.validation.baselines import fit_baselines
from phaze_opt.validation.calibrate import CELLS, error_name
from phaze_opt.validation.dataset import Dataset, read_datasets
from phaze_opt.validation.packs import known_constants, known_file
from phaze_opt.validation.predict import predict_rows
from phaze_opt.validation.result import ERROR_GOALS, ErrorGoal, rank_correlations
from phaze_opt.validation.schema import DATASET_SCHEMAS, PUBLISHED_SETS

MOST_GROUPS = 12
"""Groups of a family that are named one by one."""
BEGIN, END = "<!-- figures -->\n", "<!-- end of figures -->\n"
HEADER = (
    "| data set | rows | goal | fitted | cells kept out | others kept out | trivial | rank |\n"
    "|---|---|---|---|---|---|---|---|\n"
)


KEPT_OUT_GOALS = (
    ("op_neusight_fp32", "linear", "device", 20.0),
    ("train_llmfoundry_fsdp", "", "devices", 6.0),
    ("train_llmfoundry_fsdp", "", "nodes", 6.0),
    ("train_vtrain_singlenode", "", "hidden", 9.0),
    ("train_vtrain_multinode", "", "model", 6.5),
    ("train_maxtext_tpu", "", "chip", 10.0),
    ("op_tpu_gemm", "", "device", 14.0),
    ("memory", "", "source", 10.0),
    ("dies", "", "chip", 16.0),
    ("dies", "", "family", 21.0),
)
"""Set, group, what is kept out, and the error not to exceed, per cent."""


def main() -> None:
    for home in homes():
        record = json.loads((home.records / RECORD).read_text(encoding="utf-8"))
        text = home.page.read_text(encoding="utf-8")
        before, _, rest = text.partition(BEGIN)
        after = rest.partition(END)[2]
        replace_file(home.page, f"{before}{BEGIN}{table(home, record)}{END}{after}")


def with_constants(home: Home, sets: dict[str, Any]) -> dict[str, Any]:
    """Figures of every set of a home, its mean errors as the file of constants has them."""
    predicted = {name for family in home.families for name in family.datasets}
    errors, datasets = known_file().sets, [data for data in read_datasets(None)[0] if data.name in predicted]
    baselines, ranks = fit_baselines(datasets), ranks_of(home, datasets)
    found = {}
    for data in (data for data in datasets if data.name in errors):
        own, known = errors[data.name], sets.get(data.name, {})
        tests = [name.removesuffix("_out_mape").removeprefix("leave_one_") for name in own if name.startswith("leave")]
        rows = {"rows": len(data.rows)} | {key: figure["rows"] for key, figure in known.get("kept_out", {}).items()}
        found[data.name] = {
            "baseline_mape": baseline_mape(data, baselines),
            "groups": {},
            **known,
            "fitted": {
                "rows": len(data.rows),
                **known.get("fitted", {}),
                "spearman": ranks.get(data.name),
                "mape": own["mape"],
            },
            "kept_out": {
                test: {"rows": rows.get(test, len(data.rows)), "mape": own[error_name(test)]}
                for test in (CELLS, *tests)
                if error_name(test) in own
            },
        }
    return found


def ranks_of(home: Home, datasets: Sequence[Dataset]) -> dict[str, float]:
    """Spearman's correlation of every set under the constants in force."""
    found = {}
    for data in datasets:
        predictions = predict_rows(home.families, data.rows, known_constants())
        scored = predictions.is_scored
        if scored.sum() > 1:
            found[data.name] = rank_correlations(predictions.predicted_s[scored], predictions.measured_s[scored])[0]
    return found


def table(home: Home, record: dict[str, Any]) -> str:
    stated = {name: item for family in record["families"].values() for name, item in family["sets"].items()}
    sets = with_constants(home, stated)
    lines = [line for name in DATASET_SCHEMAS if name in sets for line in of_set(name, sets[name])]
    return f"\n{HEADER}{''.join(lines)}\n{kept_out_table(sets)}\n{constants_table(home)}\n"


def kept_out_table(sets: dict[str, Any]) -> str:
    """What the models say of devices, sizes and models that they were not fitted to, beside the goals."""
    lines = ["| data set | kept out | rows | goal | reached |\n", "|---|---|---|---|---|\n"]
    for name, group, test, goal in KEPT_OUT_GOALS:
        item = sets.get(name, {})
        figures = item.get("groups", {}).get(group, {}) if group else item
        figure = figures.get("kept_out", {}).get(test)
        if figure is not None:
            label = f"{name}, {group}" if group else name
            lines.append(f"| {label} | {test} | {figure['rows']} | {goal:g} | {number(figure['mape'])} |\n")
    return "".join(lines)


def constants_table(home: Home) -> str:
    """Numbers of constants by family and group."""
    lines = ["| family | constants | of each group |\n", "|---|---|---|\n"]
    rows = [row for data in read_datasets(None)[0] for row in data.rows]
    for family in sorted(home.families, key=lambda each: each.name):
        parameters = family.parameters([row for row in rows if row.dataset in family.datasets])
        counts = Counter(parameter.group for parameter in parameters)
        groups = ", ".join(f"{group} {count}" for group, count in sorted(counts.items()))
        if counts:
            shown = groups if len(counts) <= MOST_GROUPS else f"{len(counts)} groups"
            lines.append(f"| {family.name} | {len(parameters)} | {shown} |\n")
    return "".join(lines)


def of_set(name: str, item: dict[str, Any]) -> list[str]:
    goals = {goal.group: goal for goal in ERROR_GOALS if goal.dataset == name}
    lines = [line_of(name, item, goals.get(""), trivial=number(item["baseline_mape"]), rank=PUBLISHED_SETS[name].rank)]
    return lines + [line_of(f"- {group}", item["groups"][group], goal) for group, goal in goals.items() if group]


def line_of(
    label: str, item: dict[str, Any], goal: ErrorGoal | None, *, trivial: str = "", rank: float | None = None
) -> str:
    kept_out = dict(item["kept_out"])
    cells = kept_out.pop("cells", {"mape": None})
    others = ", ".join(f"{name} {number(figure['mape'])}" for name, figure in sorted(kept_out.items()))
    wanted = "" if goal is None else f"{goal.percent:g}"
    correlation = format_rank(known(item["fitted"]["spearman"]))
    correlation += "" if rank is None else f" (goal {rank:g})"
    cells_text = (
        label, f"{item['fitted']['rows']}", wanted, number(item["fitted"]["mape"]), number(cells["mape"]), others,
        trivial, correlation,
    )  # fmt: skip
    return f"| {' | '.join(cells_text)} |\n"


def number(value: float | None) -> str:
    return format_figure(known(value))


def known(value: float | None) -> float:
    """A figure of the record, where null is nan."""
    return math.nan if value is None else value


if __name__ == "__main__":
    main()
