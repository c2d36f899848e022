"""Per-model and common designs against reference machines: the figure that papers report as a speed-up."""

from __future__ import annotations

from collections.abc import Sequence

from phaze_opt.objective.goals import goal_values
from phaze_opt.report.content import Column, TableContent
from phaze_opt.report.study.inputs import ReportInputs
from phaze_opt.report.study.wording import mean_name
from phaze_opt.study.result import ChipTable
from phaze_opt.study.scores import PriceOfGenerality


def gains_table(inputs: ReportInputs) -> TableContent:
    """Mean ratio over the models to each reference: each model on its own chip, and all on each common one."""
    rows: list[tuple[str, ...]] = []
    for price in inputs.summary.prices:
        table = next((table for table in inputs.result.chip_tables if table.setting == price.setting), None)
        if table is not None:
            rows += _rows(inputs, price, table)
    means = inputs.summary.prices[0].common if inputs.summary.prices else ()
    heads = ["each its own", *(f"common ({mean_name(design.mean)})" for design in means)]
    columns = (Column("setting"), Column("against"), *(Column(head, is_number=True) for head in heads))
    note = (
        "Weighted arithmetic mean over the models of the setting's objective over that of the reference on the same "
        "model; a reference that is infeasible for one of the models is left out."
    )
    return TableContent("Gain over reference machines", columns, tuple(rows), note)


def _rows(inputs: ReportInputs, price: PriceOfGenerality, table: ChipTable) -> list[tuple[str, ...]]:
    references = [_reference_values(inputs, price.setting, model) for model in price.models]
    own = [table.values[row][chip] for row, chip in enumerate(price.own_best)]
    rows = []
    for name in dict.fromkeys(name for values in references for name in values):
        values = [by_name.get(name, 0.0) for by_name in references]
        if min(values) <= 0:
            continue
        ratios = [best / value for best, value in zip(own, values, strict=True)]
        shares = [(1.0,) * len(ratios), *(design.shares for design in price.common)]
        means = [_mean(ratios, share, table.weights) for share in shares]
        rows.append((price.setting, name, *(f"{mean:.3g}x" for mean in means)))
    return rows


def _reference_values(inputs: ReportInputs, setting: str, model: str) -> dict[str, float]:
    """First objective of every feasible reference for one model of a setting."""
    for condition in inputs.result.conditions:
        if (condition.setting.name, condition.workload.name) == (setting, model):
            references = inputs.result.references.get(condition.key, {})
            values = {name: goal_values(condition.goal, reference) for name, reference in references.items()}
            return {name: found[0] for name, found in values.items() if found}
    return {}


def _mean(ratios: Sequence[float], shares: Sequence[float], weights: Sequence[float]) -> float:
    parts = (weight * ratio * share for weight, ratio, share in zip(weights, ratios, shares, strict=True))
    return sum(parts) / sum(weights)
