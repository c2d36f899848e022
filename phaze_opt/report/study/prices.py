"""The price of generality: what each model loses on other models' chips, on common designs and on k chips."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from phaze_opt.objective.goals import goal_values
from phaze_opt.report.chip import describe_chip
from phaze_opt.report.document import Alternative, Block, Choice, FigureBlock, Paragraph, Section, TableBlock
from phaze_opt.report.picture import Boxes, Layer, Picture, PlotAxis, Rule
from phaze_opt.report.study.inputs import ReportInputs
from phaze_opt.report.study.wording import SPACE, format_percent, listed, mean_name, percent
from phaze_opt.report.table import Column, TableContent, numbers
from phaze_opt.report.text import counted
from phaze_opt.study.config import Setting
from phaze_opt.study.result import ROUNDING, ChipTable, StudyResult
from phaze_opt.study.scores import CommonDesign, PriceOfGenerality, StudySummary

MATRIX_EXPORT = "price_matrix.csv"
PORTFOLIO_EXPORT = "portfolios.csv"
PALE_TO_DARK = ((0.0, (247, 244, 236)), (0.15, (242, 227, 192)), (0.5, (230, 159, 0)), (1.0, (122, 59, 0)))
"""Shares of the scale, and red, green and blue there."""
LEAST_SCALE = 0.01


def price_section(inputs: ReportInputs) -> Section | None:
    """Settings side by side, then the matrix of each; None where the question was not asked."""
    prices = inputs.summary.prices
    if inputs.result.config.generality is None and not prices:
        return None
    if not prices:
        text = "The study asks for the price of generality, but no setting is far enough to tell it."
        return Section("generality", "Price of generality", (Paragraph(text),))
    blocks: list[Block] = [
        Paragraph(
            "Price: what models lose, on weighted average, against their own best chip (worst model in brackets). "
            "Sets of k chips are chosen exactly among the chips evaluated."
        ),
        TableBlock(portfolio_table(prices), PORTFOLIO_EXPORT),
    ]
    gains = gains_table(inputs)
    if gains.rows:
        blocks.append(TableBlock(gains))
    options = tuple(Alternative(price.setting, _setting_blocks(inputs, price)) for price in prices)
    blocks.append(Choice("prices", "Setting", options))
    return Section("generality", "Price of generality", tuple(blocks))


def _setting_blocks(inputs: ReportInputs, price: PriceOfGenerality) -> tuple[Block, ...]:
    table = chip_table(inputs, price.setting)
    blocks: list[Block] = [
        FigureBlock(
            name=f"price-{inputs.summary.prices.index(price)}",
            picture=matrix_picture(price),
            alternative=describe_matrix(price),
            export=MATRIX_EXPORT,
        ),
        TableBlock(matrix_table(price), MATRIX_EXPORT),
    ]
    if table is not None:
        blocks.append(TableBlock(chips_table(price, table), PORTFOLIO_EXPORT))
    return tuple(blocks)


def chip_table(inputs: ReportInputs, setting: str) -> ChipTable | None:
    """The chips of a setting, if they are kept."""
    return next((table for table in inputs.result.chip_tables if table.setting == setting), None)


def matrix_columns(price: PriceOfGenerality) -> tuple[tuple[str, tuple[float, ...]], ...]:
    """(name of the design, loss of each model on it): each model's own best chip, then the common designs."""
    own = [
        (f"best of {model}", tuple(1.0 - row[column] for row in price.matrix))
        for column, model in enumerate(price.models)
    ]
    common = [
        (f"common ({mean_name(design.mean)})", tuple(1.0 - share for share in design.shares)) for design in price.common
    ]
    return (*own, *common)


def matrix_table(price: PriceOfGenerality) -> TableContent:
    """The matrix in figures."""
    designs = matrix_columns(price)
    columns = (Column("model"), *numbers(*(name for name, _ in designs)))
    rows = tuple((model, *(_loss(losses[row]) for _, losses in designs)) for row, model in enumerate(price.models))
    note = "Loss of the model in the row on the design in the column, against the model's own best chip."
    return TableContent(f"Price matrix: {price.setting}", columns, rows, note)


def _loss(loss: float) -> str:
    return "infeasible" if loss >= 1.0 else format_percent(max(0.0, loss))


def describe_matrix(price: PriceOfGenerality) -> str:
    """The greatest loss, and what the common designs cost."""
    cells = [
        (loss, model, name)
        for name, losses in matrix_columns(price)[: len(price.models)]
        for model, loss in zip(price.models, losses, strict=True)
    ]
    loss, model, name = max(cells)
    common = "; ".join(
        f"the common design by {mean_name(design.mean)} costs {format_percent(max(0.0, design.price))} on average and "
        f"{format_percent(max(0.0, design.worst_price))} at worst"
        for design in price.common
    )
    greatest = "is infeasible" if loss >= 1.0 else f"loses most, {format_percent(max(0.0, loss))},"
    worst = f"{model} {greatest} on the {name}" if loss > 0 else "none loses anything"
    sentence = f"Losses of {len(price.models)} models on each other's best chips: {worst}."
    return f"{sentence} {common[:1].upper()}{common[1:]}." if common else sentence


def matrix_picture(price: PriceOfGenerality) -> Picture:
    """Models down, designs across, the loss written in every cell; a line parts common designs from models' own."""
    designs = matrix_columns(price)
    cells = [
        (column, row, max(0.0, losses[row]), name)
        for row in range(len(price.models))
        for column, (name, losses) in enumerate(designs)
    ]
    top = max(LEAST_SCALE, *(min(1.0, loss) for _, _, loss, _ in cells))
    boxes = Boxes(
        [column - 0.5 for column, *_ in cells], [row - 0.5 for _, row, *_ in cells], [1.0] * len(cells),
        [1.0] * len(cells), "", [_shade(min(1.0, loss / top)) for _, _, loss, _ in cells],
        hovers=[f"{price.models[row]} on {name}: {_loss(loss)}" for _, row, loss, name in cells],
        words=["inf." if loss >= 1.0 else format_percent(loss).removesuffix(f"{SPACE}%") for _, _, loss, _ in cells],
    )  # fmt: skip
    layers: list[Layer] = [boxes]
    if price.common:
        layers.append(Rule(x=len(price.models) - 0.5, dash="solid"))
    x = PlotAxis(
        span=(-0.5, len(designs) - 0.5), ticks=tuple((float(at), name) for at, (name, _) in enumerate(designs))
    )
    y = PlotAxis(span=(-0.5, len(price.models) - 0.5), ticks=tuple(enumerate(price.models)), is_flipped=True)
    title = f"What each model loses, %: {price.setting}"
    return Picture(title, tuple(layers), x, y, height_px=150 + 46 * len(price.models))


def _shade(share: float) -> str:
    """The colour of a share of the scale."""
    shares = [at for at, _ in PALE_TO_DARK]
    parts = [np.interp(share, shares, [colour[part] for _, colour in PALE_TO_DARK]) for part in range(3)]
    return "#" + "".join(f"{round(part):02X}" for part in parts)


def portfolio_table(prices: Sequence[PriceOfGenerality]) -> TableContent:
    """Best sets of k chips by each mean, a column per setting."""
    columns = (Column("chips"), Column("chosen by"), *numbers(*(f"price: {price.setting}" for price in prices)))
    keys = list(dict.fromkeys((len(item.chips), item.mean) for price in prices for item in price.portfolios))
    rows = tuple(
        (str(count), mean_name(mean), *(_price(_portfolio(price, count, mean)) for price in prices))
        for count, mean in sorted(keys, key=lambda key: key[0])
    )
    note = "Weighted average loss of the models, each on the best chip of the set; loss of the worst model in brackets."
    return TableContent("Price by number of distinct chips", columns, rows, note)


def _portfolio(price: PriceOfGenerality, count: int, mean: str) -> CommonDesign | None:
    return next((item for item in price.portfolios if len(item.chips) == count and item.mean == mean), None)


def _price(design: CommonDesign | None) -> str:
    if design is None:
        return "-"
    return f"{format_percent(max(0.0, design.price))} ({format_percent(max(0.0, design.worst_price))})"


def chips_table(price: PriceOfGenerality, table: ChipTable) -> TableContent:
    """Which chip each design is, and who uses it."""
    rows: list[tuple[str, ...]] = [
        (f"best of {model}", describe_chip(table.chips[chip]), model)
        for model, chip in zip(price.models, price.own_best, strict=True)
    ]
    sets = [*price.common, *(item for item in price.portfolios if 1 < len(item.chips) < len(price.models))]
    for design in sets:
        kind = "common" if len(design.chips) == 1 else f"set of {len(design.chips)}"
        for place, chip in enumerate(design.chips):
            users = [model for model, use in zip(price.models, design.assignment, strict=True) if use == place]
            name = f"{kind} ({mean_name(design.mean)})"
            rows.append((name, describe_chip(table.chips[chip]), ", ".join(users) or "nobody"))
    columns = (Column("design"), Column("chip"), Column("used by"))
    note = f"Chosen among {len(table.chips):,} chips; the micro-batch is each model's own choice."
    return TableContent(f"Chips: {price.setting}", columns, tuple(rows), note)


def gains_table(inputs: ReportInputs) -> TableContent:
    """Mean ratio over the models to each reference: each model on its own chip, and all on each common one."""
    rows: list[tuple[str, ...]] = []
    for price in inputs.summary.prices:
        table = chip_table(inputs, price.setting)
        if table is not None:
            rows += _rows(inputs, price, table)
    means = inputs.summary.prices[0].common if inputs.summary.prices else ()
    heads = ["each its own", *(f"common ({mean_name(design.mean)})" for design in means)]
    columns = (Column("setting"), Column("against"), *numbers(*heads))
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


SMALL_PRICE = 0.01
"""A worst price up to which a set of chips is called as good as own ones."""


def price_findings(summary: StudySummary, result: StudyResult) -> list[str]:
    """For every setting what one chip for all models costs, on average and at worst, and how many chips end that."""
    tables = {table.setting: table for table in result.chip_tables}
    settings = {setting.name: setting for setting in result.config.settings}
    sentences = []
    for price in summary.prices:
        table = tables[price.setting]
        sentences += [_generality(price, table, settings[price.setting]), *_shortfall(price, table, summary)]
    for table in result.chip_tables:
        left_out = [
            model for model, values in zip(table.models, table.values, strict=True) if max(values, default=0.0) <= 0.0
        ]
        if left_out:
            sentences.append(f"In setting {table.setting} no chip found can train {', '.join(left_out)}: left out.")
    return sentences


def _generality(price: PriceOfGenerality, table: ChipTable, setting: Setting) -> str:
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
