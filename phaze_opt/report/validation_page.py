"""The page of a validation: which goals are met, every set in figures, its worst rows explained, and the constants."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.resources import files
from types import MappingProxyType

from phaze_opt import __version__
from phaze_opt.hardware.fitted import FittedFile, FittedGroup
from phaze_opt.report.document import Block, FigureBlock, Folded, Paragraph, ReportDocument, Section, TableBlock
from phaze_opt.report.table import Column, Fields, TableContent, number, table_of, words
from phaze_opt.report.validation_figures import error_picture, overview_picture, regimes_picture, scatter_picture
from phaze_opt.report.validation_tables import (
    MOST_SETS,
    describe_goal,
    first_sentences,
    format_figure,
    format_rank,
    format_signed,
    goals_sentence,
    group_table,
    kinds_table,
    overview_table,
    sources_table,
    told_sentences,
    worst_table,
)
from phaze_opt.validation.result import SetResult, Validation

_NUM_COLUMNS = 5


def build_document(result: Validation, constants: FittedFile) -> ReportDocument:
    """The page as values."""
    sections = [_overview(result, constants)]
    sources = read_sources()
    sets = tuple(
        _set_fold(entry, result, anchor, fitted=constants.sets.get(entry.name, {}), source=sources.get(entry.name))
        for entry, anchor in zip(result.sets, _anchors(result), strict=True)
    )
    sections.append(Section("sets", "Every data set", sets))
    if constants.groups:
        sections.append(_constants_section(constants))
    return ReportDocument(
        title="The models against measured machines",
        findings=_findings(result),
        sections=tuple(sections),
        footer=(("phaze-opt", __version__), ("constants (sha256)", result.fitted.digest)),
    )


def _findings(result: Validation) -> tuple[str, ...]:
    """What the terminal says: how far off the models are, the goals, and what of rows is to be known."""
    return tuple(filter(None, (*first_sentences(result), goals_sentence(result), *told_sentences(result))))


def _overview(result: Validation, constants: FittedFile) -> Section:
    table = TableBlock(_with_kept_out(overview_table(result), constants))
    blocks: list[Block] = [
        Folded("The same in figures, a row a set", (table,)),
        Folded(
            "Training steps of publications that no fit saw, and how often their ranges hold",
            (TableBlock(sources_table()),),
        ),
    ]
    shown = [entry for entry in result.sets if entry.scores.num_rows and not entry.dataset.is_context]
    if shown:
        figure = FigureBlock(
            name="overview",
            alternative="A disc for the model, a circle for rows predicted by constants fitted to other cells, a cross "
            "for the worst of the tests that keep out a device, a model or the like as a whole, a diamond for the "
            "trivial model, an upright stroke for the goal of the whole set, where there is one; the further left the "
            "better, on a logarithmic axis.",
            picture=overview_picture(result, constants.sets),
        )
        blocks.insert(0, figure)
    if len(result.sets) > MOST_SETS:
        blocks.insert(0, TableBlock(kinds_table(result, constants.sets)))
    return Section("overview", "Overview", tuple(blocks))


def _with_kept_out(table: TableContent, constants: FittedFile) -> TableContent:
    """The overview with two more columns: errors of rows kept out when the constants were fitted."""
    if not constants.sets:
        return table
    errors = [constants.sets.get(row[0], {}).get("cross_validated_mape", math.nan) for row in table.rows]
    others = [", ".join(_kept_out_whole(constants.sets.get(row[0], {}), "")) for row in table.rows]
    rows = tuple(
        (*row[:3], format_figure(error), *row[3:], whole)
        for row, error, whole in zip(table.rows, errors, others, strict=True)
    )
    columns = (*table.columns[:3], Column("kept out", is_number=True), *table.columns[3:], Column("one kept out whole"))
    note = (
        f"{table.note} Kept out, when the constants were fitted: mean error of rows predicted by constants fitted "
        "to other cells; in the last column, to other devices, models and so on."
    )
    return replace(table, columns=columns, rows=rows, note=note)


def _kept_out_whole(errors: Mapping[str, float], unit: str) -> list[str]:
    """Errors where one device, model or the like was kept out at a time, by what it was."""
    return [
        f"{key.removeprefix('leave_one_').removesuffix('_out_mape').replace('_', ' ')} {format_figure(value)}{unit}"
        for key, value in sorted(errors.items())
        if key.startswith("leave_one_")
    ]


def _anchors(result: Validation) -> list[str]:
    """A place in the page for every set: its name in letters, digits and dashes, numbered if two are alike."""
    names = [re.sub(r"[^a-z0-9]+", "-", entry.name.lower()) for entry in result.sets]
    return [f"{name}-{index}" if names.count(name) > 1 else name for index, name in enumerate(names)]


def _set_fold(
    entry: SetResult, result: Validation, anchor: str, *, fitted: Mapping[str, float], source: "MeasuredSet | None"
) -> Folded:
    blocks: list[Block] = [] if source is None else [Paragraph(source.sentence)]
    blocks.append(Paragraph(_summary(entry, result)))
    if fitted:
        blocks.append(Paragraph(_when_fitted(fitted)))
    if entry.dataset.is_context:
        blocks.append(Paragraph("Context: quantities other than latency, or not measured; outside the goals."))
    if entry.unscored_reasons:
        blocks.append(TableBlock(_unscored_table(entry)))
    if entry.scores.num_rows:
        blocks += _scored_blocks(entry, anchor)
    return Folded(f"{entry.name}: {_in_short(entry)}", tuple(blocks))


def _in_short(entry: SetResult) -> str:
    """A set in a few words."""
    scores = entry.scores
    if not scores.num_rows:
        return "not scored"
    return f"mean error {format_figure(scores.mape)} % over {scores.num_rows:,} rows"


def _summary(entry: SetResult, result: Validation) -> str:
    scores = entry.scores
    if not scores.num_rows:
        return f"None of {len(entry.rows)} rows is scored."
    rank = f", rank correlation {format_rank(scores.spearman)}" if format_rank(scores.spearman) else ""
    trivial = f" Trivial model ({entry.baseline}): {format_figure(entry.baseline_mape)} %." if entry.baseline else ""
    goals = "".join(
        f" Goal {'met' if goal.is_met else 'missed'}: {describe_goal(goal)}."
        for goal in result.goals
        if goal.dataset == entry.name
    )
    return (
        f"{scores.num_rows} of {len(entry.rows)} rows scored by the models of {entry.family}: mean error "
        f"{format_figure(scores.mape)} %, median {format_figure(scores.median_ape)} %, 90th percentile "
        f"{format_figure(scores.p90_ape)} %, bias {format_signed(scores.bias)} %{rank}.{trivial}{goals}"
    )


def _when_fitted(errors: Mapping[str, float]) -> str:
    """What was seen when the constants were fitted: rows fitted, and rows kept out."""
    tests = _kept_out_whole(errors, " %")
    cells = errors.get("cross_validated_mape", math.nan)
    parts = [f"{format_figure(errors.get('mape', math.nan))} % on the rows fitted"]
    parts += [f"{format_figure(cells)} % with cells kept out"] if math.isfinite(cells) else []
    parts += [f"with one kept out at a time: {', '.join(tests)}"] if tests else []
    return f"When the constants were fitted, mean errors were {'; '.join(parts)}."


def _scored_blocks(entry: SetResult, name: str) -> list[Block]:
    blocks: list[Block] = [
        FigureBlock(
            name=f"scatter-{name}",
            alternative="Each point is a row; on the line the prediction is the measurement. "
            "--predictions FILE.csv has every row.",
            picture=scatter_picture(entry),
        ),
        FigureBlock(
            name=f"errors-{name}", alternative="Below zero the prediction is too fast.", picture=error_picture(entry)
        ),
    ]
    if len(entry.regimes) > 1:
        worst = max(entry.regimes, key=lambda group: group.scores.mape)
        blocks.append(
            FigureBlock(
                name=f"regimes-{name}",
                alternative=f"Number of rows in parentheses. Largest: {worst.label} with "
                f"{format_figure(worst.scores.mape)} %.",
                picture=regimes_picture(entry.regimes),
            )
        )
        blocks.append(Folded("Figures of every regime", (TableBlock(group_table("Regimes", entry.regimes)),)))
    if len(entry.groups) > 1:
        blocks.append(Folded("Figures by group", (TableBlock(group_table("Groups", entry.groups)),)))
    blocks.append(TableBlock(worst_table(entry)))
    return blocks


def _unscored_table(entry: SetResult) -> TableContent:
    fields: Fields[tuple[str, int]] = (words("reason", lambda item: item[0]), number("rows", lambda item: f"{item[1]}"))
    return table_of("Rows not scored", fields, entry.unscored_reasons.items())


def _constants_section(constants: FittedFile) -> Section:
    groups = dict(constants.groups)
    number = sum(len(group.constants) for group in groups.values())
    return Section(
        "constants",
        "Constants",
        (
            Paragraph(
                f"{number:,} constants in {len(groups)} groups were fitted, none of a single row or model; the file of "
                "constants has each with its bounds, and calibrate prints those that it fits."
            ),
            Folded("Groups of constants, with their errors", (TableBlock(_residuals_table(groups)),)),
        ),
    )


def _residuals_table(groups: dict[str, FittedGroup]) -> TableContent:
    nothing = float("nan")
    fields: Fields[tuple[str, FittedGroup]] = (
        words("group", lambda item: item[0]),
        number("constants", lambda item: f"{len(item[1].constants)}"),
        number("rows", lambda item: f"{sum(len(ids) for ids in item[1].datasets.values())}"),
        number("fitted", lambda item: format_figure(item[1].residuals.get("mape", nothing))),
        number("cells kept out", lambda item: format_figure(item[1].residuals.get("cross_validated_mape", nothing))),
        words("others kept out", lambda item: ", ".join(_kept_out_whole(item[1].residuals, ""))),
    )
    note = (
        "Mean errors in per cent of the rows that a group touches: fitted, and with rows kept out of the fit. A group "
        "that touches none prices machines without measurements."
    )
    return table_of("Groups of constants", fields, sorted(groups.items()), note)


@dataclass(frozen=True, slots=True)
class MeasuredSet:
    """One line of that table, in its words."""

    measured: str
    source: str
    licence: str

    @property
    def sentence(self) -> str:
        """All of it as two sentences."""
        first, *rest = self.measured.split(" ")
        # A type such as fp32 keeps its small letters.
        words = [first.capitalize() if first.rstrip(",").isalpha() and first.islower() else first, *rest]
        return f"{' '.join(words)}. Source: {self.source} ({self.licence})."


def read_sources() -> Mapping[str, MeasuredSet]:
    """Published sets by name, as `validation/data/README.md` describes them."""
    text = files("phaze_opt.validation").joinpath("data", "README.md").read_text(encoding="utf-8")
    found: dict[str, MeasuredSet] = {}
    for line in text.splitlines():
        cells = [cell.strip().replace("`", "") for cell in line.strip("| ").split("|")]
        if len(cells) == _NUM_COLUMNS and cells[0].endswith(".csv"):
            found[cells[0].removesuffix(".csv")] = MeasuredSet(cells[2], cells[3], cells[4])
    return MappingProxyType(found)
