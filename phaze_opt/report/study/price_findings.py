"""Sentences on per-model against common designs."""

from __future__ import annotations

from phaze_opt.report.study.wording import counted, listed, mean_name, percent
from phaze_opt.study.config import Setting
from phaze_opt.study.result import ROUNDING, ChipTable, StudyResult
from phaze_opt.study.scores import CommonDesign, PriceOfGenerality, StudySummary

SMALL_PRICE = 0.01
"""A worst price up to which a set of chips is called as good as own ones."""


def price_findings(summary: StudySummary, result: StudyResult) -> list[str]:
    """For every setting what one chip for all models costs, on average and at worst, and how many chips end that."""
    tables = {table.setting: table for table in result.chip_tables}
    settings = {setting.name: setting for setting in result.config.settings}
    sentences = []
    for price in summary.prices:
        table = tables[price.setting]
        sentences += [_price(price, table, settings[price.setting]), *_shortfall(price, table, summary)]
    for table in result.chip_tables:
        left_out = [
            model for model, values in zip(table.models, table.values, strict=True) if max(values, default=0.0) <= 0.0
        ]
        if left_out:
            sentences.append(f"In setting {table.setting} no chip found can train {', '.join(left_out)}: left out.")
    return sentences


def _price(price: PriceOfGenerality, table: ChipTable, setting: Setting) -> str:
    num_models, num_own = len(price.models), len(set(price.own_best))
    where = f"In setting {price.setting} ({setting.goal.value.replace('_', ' ')})"
    if num_models == 1:
        return f"{where} there is one model, {price.models[0]}: a common design is its own."
    differ = "" if num_own < num_models else ", all different"
    own = f"{where} the {num_models} models have {counted(num_own, 'best chip')}{differ}"
    if num_own == 1:
        return f"{own}: generality costs nothing among these. {_basis(table)}{_unproven(price, setting)}"
    return f"{own}. {_common(price)} {_how_many(price)} {_basis(table)}{_unproven(price, setting)}"


def _common(price: PriceOfGenerality) -> str:
    """What one chip for all costs; means that choose the same chip are told together."""
    by_chip: dict[tuple[int, ...], list[CommonDesign]] = {}
    for design in price.common:
        by_chip.setdefault(design.chips, []).append(design)
    costs = []
    for designs in by_chip.values():
        shares = designs[0].shares
        worst = f"{percent(designs[0].worst_price)} at worst ({price.models[shares.index(min(shares))]})"
        means = listed([mean_name(design.mean) for design in designs])
        costs.append(f"chosen by {means} it costs {percent(designs[0].price)} on average and {worst}")
    return f"Of one chip for all, {'; '.join(costs)}."


def _how_many(price: PriceOfGenerality) -> str:
    """The least number of chips with which no model loses more than a percent, by the first mean."""
    first_mean = price.common[0].mean
    sets = [design for design in price.portfolios if design.mean == first_mean]
    size = next((size for size, design in enumerate(sets, start=1) if design.worst_price <= SMALL_PRICE), 0)
    if not size:
        return ""
    kept = f"one chip keeps every model within {percent(SMALL_PRICE)}"
    if size > 1:
        kept = f"{size} chips keep every model within {percent(SMALL_PRICE)} of its own best"
    return f"Chosen by {mean_name(first_mean)}, {kept}."


def _unproven(price: PriceOfGenerality, setting: Setting) -> str:
    """A warning where the price is within what schedules leave open."""
    if not any(0.0 < design.worst_price < setting.schedule_gap for design in price.common):
        return ""
    return f" Schedules are proved to {percent(setting.schedule_gap)} only, and prices below that may come from them."


def _shortfall(price: PriceOfGenerality, table: ChipTable, summary: StudySummary) -> list[str]:
    """How far the own bests of the table are from proved optima, where there are any."""
    gaps = []
    for model, chip in zip(price.models, price.own_best, strict=True):
        truth = summary.truths.get(f"{price.setting}.{model}")
        if truth is not None and truth.kind.is_proved:
            gaps.append(max(0.0, 1.0 - table.values[table.models.index(model)][chip] / truth.value))
    if not gaps:
        return []
    of_all = f"all {len(gaps)} models" if len(gaps) == len(price.models) else f"{len(gaps)} of the models"
    if max(gaps) < ROUNDING:
        return [f"In setting {price.setting} the own best of {of_all} is the proved optimum."]
    return [
        f"In setting {price.setting} own bests fall short of proved optima by up to {percent(max(gaps))} ({of_all})."
    ]


def _basis(table: ChipTable) -> str:
    """Over which chips this is exact."""
    evaluated = len(table.chips)
    if table.num_candidates > evaluated:
        return (
            f"This is exact over the {table.num_candidates} chips that searches found feasible: bounds leave "
            f"{evaluated} that can matter, and these are evaluated on every model."
        )
    return f"This is exact over the {counted(evaluated, 'chip')} that searches found, each evaluated on every model."
