"""Tables and sentences of a validation and of a calibration, for terminal, page and file alike."""

import csv
import io
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from types import MappingProxyType

import numpy as np

from phaze_opt.hardware.spreads import NAMED, UNSEEN, load_spreads
from phaze_opt.objective.software_notes import sources_sentence
from phaze_opt.report.table import Column, Fields, TableContent, number, numbers, table_of, words
from phaze_opt.report.text import counted, format_number, format_time
from phaze_opt.validation.measured_row import Row
from phaze_opt.validation.packs import pack_notes
from phaze_opt.validation.result import (
    ExplainedRow,
    GoalResult,
    GroupResult,
    SetResult,
    Validation,
    range_scores,
    score,
)
from phaze_opt.validation.schema import BY_CELL, DIES, MEMORY, TRAINING

OVERVIEW_COLUMNS = (Column("data set"), *numbers("rows", "MAPE", "goal", "trivial", "range", "held", "bias", "rank"))
GROUP_COLUMNS = (Column(""), *numbers("rows", "MAPE", "trivial", "median", "p90", "bias", "rank"))
OVERVIEW_NOTE = (
    "Errors in per cent of the measured value: mean of the absolute error (MAPE), bias (below 0: predicted too low). "
    "Trivial: mean error of a constant utilisation, a roofline times a constant, a line, or one amount of memory. "
    "Range: half of what 90 % of rows kept out of a fit lay in, per cent of the prediction; held: per cent of the rows "
    "that lie in theirs. Rank: Spearman's correlation, marked where there is a goal for it."
)
SOURCES_COLUMNS = (Column("publication"), *numbers("rows", "MAPE", "bias", "held", "MAPE, named", "held, named"))
_SOURCES_NOTE = (
    "Each publication is kept out of every fit. MAPE, bias: errors in per cent, its software taken as unknown; held: "
    "per cent of its rows that lie in the range that the other publications make. Named: the same with its software "
    "known by name, with constants that others say."
)
STEPS, OTHERS = "training steps", "others"
KINDS = MappingProxyType(
    {
        STEPS: ("training", "modern-training", "experts"),
        "operators": ("operators", "modern", "fp32_operators", "fp32_models"),
        "collectives": ("collectives", "collective-kinds"),
        "exchanges of experts": ("expert-exchange",),
        "peak memory": ("memory",),
        "die areas": ("dies",),
    }
)
"""Families by what they predict."""
KEPT_OUT = MappingProxyType(
    {"source": "publication", "device": "machine", "machine": "machine", "chip": "chip", "fabric": "fabric"}
)
"""What is a source by itself, by the word of a test."""
KIND_COLUMNS = (
    Column("kind"), *numbers("rows", "MAPE"), Column("kept out whole"), *numbers("so many", "MAPE then")
)  # fmt: skip
KIND_NOTE = (
    "Mean errors in per cent: of rows of which most were fitted, then of each publication, machine and so on by "
    "constants fitted to the others; of training by publication, of whole steps, their software taken as unknown (the "
    "README's counts vTrain's profiles of layers too). On rows that are not here outsiders found: training 17, "
    "experts 40, memory 16 to 37, dies 14 to 22, operators 9 to 18 (28 November 2026, docs/validation.md)."
)
SMALL, MOST_SETS = 40, 12
"""Rows below which a set is small, and sets beyond which small ones stand together."""
THOUSAND, NEAR_A_UNIT = 1000.0, 0.2
"""Between prefixes of units, and how near to a power of it (in such powers) a ratio is taken for another unit."""
_LAST_DIGITS = 1e-9
_INDENT = 2 * "\N{NO-BREAK SPACE}"
PREDICTED_COLUMNS = ("dataset", "id", "line", "measured", "predicted", "low", "high", "unscored")
"""Of the file of predictions; values are SI: s of times, bytes of memory; mm2 of areas."""
_HIDDEN = frozenset(
    {"id", "verified", "source", "note", "latency_us", "iter_time_s", "tokens_per_s_per_dev", "tflops_per_dev",
     "tflops", "tflops_kind", "time_kind", "mfu", "hfu", "gbytes_per_s", "algbw_gbytes_per_s", "busbw_gbytes_per_s",
     "e2e_ms", "forward_ms", "backward_ms", "timing", "kv_heads", "head_dim", "ffn", "vocab", "mlp_matrices",
     "measured_gib", "device_gib", "table", "kind"}
) | (DIES.columns.keys() - {"chip", "die", "style", "node"})  # fmt: skip
"""Columns that do not tell one configuration from another, or follow from what is measured."""


def overview_table(result: Validation) -> TableContent:
    """One row a set, and below it one for each group that has a goal; sets of context last."""
    rows: list[tuple[str, ...]] = []
    missed: set[int] = set()
    for entry in sorted(result.sets, key=lambda entry: entry.dataset.is_context):
        goals = {goal.group: goal for goal in result.goals if goal.dataset == entry.name and goal.figure == "mape"}
        rank = next((goal for goal in result.goals if goal.dataset == entry.name and goal.figure == "spearman"), None)
        missed |= {len(rows)} if _is_missed(goals.get("")) or _is_missed(rank) else set()
        rows.append(_set_row(entry, goals.get(""), rank))
        for group in [group for group in goals if group]:
            missed |= {len(rows)} if _is_missed(goals[group]) else set()
            rows.append(_group_row(entry, goals[group]))
    return TableContent("Data sets", OVERVIEW_COLUMNS, _with_room(rows), OVERVIEW_NOTE, frozenset(missed))


def short_table(result: Validation) -> TableContent:
    """The same with a row for all small sets of a kind, none for groups, and none for sets of context."""
    times = [entry for entry in result.sets if entry.scores.num_rows and not entry.dataset.is_context]
    small: dict[str, list[SetResult]] = {}
    for entry in (each for each in times if each.scores.num_rows < SMALL):
        small.setdefault(_kind_of(entry), []).append(entry)
    joined = [_joined(f"{counted(len(own), 'small set')}: {kind}", own) for kind, own in small.items()]
    goals = tuple(goal for goal in result.goals if not goal.group)
    large = [entry for entry in times if entry.scores.num_rows >= SMALL]
    return overview_table(replace(result, sets=(*large, *joined), goals=goals))


def _joined(name: str, entries: Sequence[SetResult]) -> SetResult:
    """Several sets as one, whose rows have no rank among one another."""
    rows = tuple(row for entry in entries for row in entry.rows)
    scored = [row for row in rows if not row.reason]
    scores = score(np.array([row.predicted_s for row in scored]), np.array([row.measured_s for row in scored]))
    known = [(entry.baseline_mape, entry.scores.num_rows) for entry in entries if math.isfinite(entry.baseline_mape)]
    return replace(
        entries[0],
        dataset=replace(entries[0].dataset, name=name),
        rows=rows,
        scores=replace(scores, spearman=math.nan),
        baseline_mape=_mean(known),
        ranges=range_scores(scored),
    )


def _mean(values: Sequence[tuple[float, int]]) -> float:
    """Of figures by their rows; nan of none."""
    rows = sum(count for _, count in values)
    return sum(value * count for value, count in values) / rows if rows else math.nan


def _kind_of(entry: SetResult) -> str:
    return next((kind for kind, names in KINDS.items() if entry.family in names), OTHERS)


def kinds_table(result: Validation, errors: Mapping[str, Mapping[str, float]]) -> TableContent:
    """What was fitted beside what no fit saw, a row a kind: sources kept out whole, a publication or a machine each.

    Args:
        result: of the published sets.
        errors: of sets when the constants were fitted, by name.
    """
    rows = []
    for kind, names in KINDS.items():
        entries = [entry for entry in result.sets if entry.family in names and entry.scores.num_rows]
        if not entries:
            continue
        fitted = [(entry.scores.mape, entry.scores.num_rows) for entry in entries]
        what, seen, error = _unseen_of(kind, entries, errors)
        count = sum(count for _, count in fitted)
        rows.append((kind, f"{count}", format_figure(_mean(fitted)), what, f"{seen}" if seen else "", error))
    return TableContent("What no fit saw", KIND_COLUMNS, tuple(rows), KIND_NOTE)


def _unseen_of(
    kind: str, entries: Sequence[SetResult], errors: Mapping[str, Mapping[str, float]]
) -> tuple[str, int, str]:
    """What was kept out whole, of how many rows, and their error; steps of publications are a record of their own."""
    steps = load_spreads().find([UNSEEN]) if kind == STEPS else None
    if steps is not None:
        return "publication", steps.num_rows, format_figure(steps.mape)
    found: dict[str, list[tuple[float, int]]] = {}
    for entry in entries:
        own = errors.get(entry.name, {})
        key = next((key for key in KEPT_OUT if f"leave_one_{key}_out_mape" in own), "")
        if key:
            found.setdefault(KEPT_OUT[key], []).append((own[f"leave_one_{key}_out_mape"], entry.scores.num_rows))
    every = [value for values in found.values() for value in values]
    return " or ".join(found), sum(count for _, count in every), format_figure(_mean(every))


def _with_room(rows: list[tuple[str, ...]]) -> tuple[tuple[str, ...], ...]:
    """Room for a mark behind ranks without a goal where others have one, so that digits stand below digits."""
    if not any(" " in row[-1] for row in rows):
        return tuple(rows)
    return tuple((*row[:-1], row[-1] if " " in row[-1] or not row[-1] else row[-1] + _INDENT) for row in rows)


def _is_missed(goal: GoalResult | None) -> bool:
    return goal is not None and not goal.is_met


def _set_row(entry: SetResult, goal: GoalResult | None, rank: GoalResult | None) -> tuple[str, ...]:
    scores, total = entry.scores, len(entry.rows)
    count = f"{total}" if scores.num_rows == total else f"{scores.num_rows}/{total}"
    trivial, ranges, bias, correlation = (
        format_figure(entry.baseline_mape),
        _range_texts(entry),
        format_signed(scores.bias),
        format_rank(scores.spearman),
    )
    goal_text = "" if goal is None else _goal_text(goal)
    marked = correlation if rank is None else f"{correlation} {_mark(rank)}".strip()
    return (entry.name, count, format_figure(scores.mape), goal_text, trivial, *ranges, bias, marked)


def _range_texts(entry: SetResult) -> tuple[str, str]:
    """Half the range and how often it holds, per cent; empty without one."""
    if not entry.ranges.num_rows:
        return "", ""
    return f"\N{PLUS-MINUS SIGN}{100 * entry.ranges.half_width:.0f}", f"{100 * entry.ranges.held:.0f}"


def _group_row(entry: SetResult, goal: GoalResult) -> tuple[str, ...]:
    group = next((group for group in entry.groups if group.label == goal.group), None)
    if group is not None:
        scores, trivial = group.scores, format_figure(group.baseline_mape)
        figures = (format_figure(scores.mape), _goal_text(goal), trivial, "", "", format_signed(scores.bias))
        return (f"{_INDENT}{goal.group}", f"{scores.num_rows}", *figures, format_rank(scores.spearman))
    count = f"{entry.num_cells} cells" if goal.group == BY_CELL else "0"
    return (f"{_INDENT}{goal.group}", count, format_figure(goal.value), _goal_text(goal), *[""] * 5)


def _figures(group: GroupResult) -> tuple[str, ...]:
    scores = group.scores
    return (
        format_figure(scores.mape),
        format_figure(group.baseline_mape),
        format_figure(scores.median_ape),
        format_figure(scores.p90_ape),
        format_signed(scores.bias),
        format_rank(scores.spearman),
    )


def _goal_text(goal: GoalResult) -> str:
    return f"{goal.goal:g} {_mark(goal)}"


def _mark(goal: GoalResult) -> str:
    return "\N{CHECK MARK}" if goal.is_met else "\N{BALLOT X}"


def format_figure(value: float) -> str:
    """Per cent with two decimals below ten; empty where there is nothing."""
    if not math.isfinite(value):
        return ""
    return f"{value:.2f}" if abs(value) < 10 else f"{value:.1f}"


def format_signed(value: float) -> str:
    """Per cent with its sign, none for what rounds to zero; empty where there is nothing."""
    if not math.isfinite(value):
        return ""
    return f"{value:+.1f}" if abs(value) >= 0.05 else "0.0"


def format_rank(value: float) -> str:
    """A correlation with three decimals, never rounded up to one; empty where there is nothing."""
    if not math.isfinite(value):
        return ""
    # Ranks in perfect order come out as 1 less the last digit of a float.
    return f"{math.floor(value * 1000 + _LAST_DIGITS) / 1000:.3f}"


def first_sentences(result: Validation) -> tuple[str, ...]:
    """What an answer begins with, on a terminal and on a page."""
    return (*unit_sentences(result), *score_sentences(result))


def told_sentences(result: Validation) -> tuple[str, ...]:
    """What is said of single sets, whoever asks."""
    return (*own_unscored_sentences(result), *middle_sentences(result), *unmeasured_sentences(result))


def score_sentences(result: Validation) -> tuple[str, ...]:
    """How far off the models are over all rows and in the best and the worst set, and what to expect elsewhere."""
    scored = [entry for entry in result.sets if entry.scores.num_rows and not entry.dataset.is_context]
    if not scored:
        return ("No row is scored: nothing is known of the models' error here. What is below the table says why.",)
    count, every = sum(entry.scores.num_rows for entry in scored), sum(len(entry.rows) for entry in result.sets)
    mape = _mean([(entry.scores.mape, entry.scores.num_rows) for entry in scored])
    trivial = _mean([(e.baseline_mape, e.scores.num_rows) for e in scored if math.isfinite(e.baseline_mape)])
    measured = f"{counted(count, 'row')} of {counted(len(scored), 'data set')}"
    others = sum(entry.scores.num_rows for entry in result.sets) - count
    measured += (
        f" (of {every:,} read: {others} are no times, {every - count - others} not scored)" if every > count else ""
    )
    text = f"Over {measured} predictions are {mape:.3g} % off in the mean"
    if math.isfinite(trivial):
        text += f"; one constant a set in their place would be {trivial:.3g} % off"
    best, worst = (pick(scored, key=lambda entry: entry.scores.mape) for pick in (min, max))
    ends = f"The least is {best.scores.mape:.3g} % ({best.name}), the most {worst.scores.mape:.3g} % ({worst.name})"
    if any(entry.scores.num_rows and entry.dataset.is_context for entry in result.sets):
        ends += "; sets that are not of times (die areas, say) count in none of these"
    bias = f"They are {scored[0].scores.bias:+.3g} % in the mean with their sign: below 0 is predicted too fast."
    has_steps = any(entry.dataset.schema is TRAINING for entry in scored)
    sources = sources_sentence([UNSEEN]) if has_steps else ""
    expected = f"{sources[:1].upper()}{sources[1:]}." if sources else ""
    said = (f"{text}.", f"{ends}." if len(scored) > 1 else bias)
    # What nobody fitted comes first where all that is scored was fitted.
    is_fitted = all(entry.dataset.name in entry.dataset.likes for entry in scored)
    return tuple(filter(None, (expected, *said) if is_fitted else (*said, expected)))


def goals_sentence(result: Validation) -> str:
    """How many goals are met, and which are not; empty without goals."""
    if not result.goals:
        return ""
    missed = [describe_goal(goal) for goal in result.goals if not goal.is_met]
    met = f"{len(result.goals) - len(missed)} of {len(result.goals)} goals met"
    return f"{met}." if not missed else f"{met}; missed: {'; '.join(missed)}."


def describe_goal(goal: GoalResult) -> str:
    """A goal in words: what, reached, wanted."""
    name = goal.dataset + (f" ({goal.group})" if goal.group else "")
    if not math.isfinite(goal.value):
        return f"{name}: nothing scored"
    if goal.figure == "spearman":
        return f"{name}: rank {format_rank(goal.value)} for {goal.goal:g}"
    return f"{name}: {format_figure(goal.value)} % for {goal.goal:g}"


def unscored_sentences(result: Validation) -> tuple[str, ...]:
    """Why rows are unscored, a sentence for each set and reason."""
    return tuple(
        f"{entry.name}: {count} of {len(entry.rows)} rows unscored: {reason}."
        for entry in result.sets
        for reason, count in entry.unscored_reasons.items()
    )


def own_unscored_sentences(result: Validation) -> tuple[str, ...]:
    """The same of a user's sets alone."""
    own = tuple(entry for entry in result.sets if entry.dataset.name not in entry.dataset.likes)
    return unscored_sentences(replace(result, sets=own))


def unit_sentences(result: Validation) -> tuple[str, ...]:
    """Sets whose times look as if they were given in another unit: a sentence each."""
    found = []
    for entry in result.sets:
        ratios = [
            each.measured_s / each.predicted_s for each in entry.rows if not each.reason and each.predicted_s > 0.0
        ]
        middle = median(ratios) if ratios else 1.0
        steps = round(math.log(middle, THOUSAND)) if middle > 0.0 else 0
        if steps and THOUSAND**-NEAR_A_UNIT < middle / THOUSAND**steps < THOUSAND**NEAR_A_UNIT:
            found.append(
                f"{entry.name}: what was measured is {format_number(middle)} times what is predicted, about a power of "
                "1,000; look whether the column has the unit that its name ends with."
            )
    return tuple(found)


def unmeasured_sentences(result: Validation) -> tuple[str, ...]:
    """What is predicted of dies whose area nobody published: a sentence a row of a user's set."""
    return tuple(
        f"{entry.name}, line {each.row.line}: {each.predicted_s:,.0f} mm2 predicted, not scored: {each.reason}."
        for entry in result.sets
        if entry.dataset.name not in entry.dataset.likes
        for each in entry.unmeasured
    )


def middle_sentences(result: Validation) -> tuple[str, ...]:
    """What rows that name no known software are priced as, a sentence a set that has such."""
    found = []
    for entry in result.sets:
        own = [each for each in entry.rows if each.is_middle]
        within = sum(each.is_within for each in own)
        if own:
            found.append(
                f"{entry.name}: {len(own)} of {len(entry.rows)} rows name no measured software: each is priced as the "
                f"middle of those that suit its machine and sharding, and {within} of the {len(own)} were measured "
                "between the fastest and the slowest of these (held in the table is of the range of 90 %)."
            )
    return tuple(found)


def shape_sentences(result: Validation) -> tuple[str, ...]:
    """What of the shapes of a user's sets costs time by itself."""
    return tuple(
        f"{entry.name}: {sentence}."
        for entry in result.sets
        if entry.dataset.name not in entry.dataset.likes
        for sentence in pack_notes([each.row for each in entry.rows])
    )


def group_table(title: str, groups: tuple[GroupResult, ...]) -> TableContent:
    """Figures of groups or regimes, largest error first."""
    ordered = sorted(groups, key=lambda group: (-group.scores.mape, group.label))
    rows = tuple((group.label, f"{group.scores.num_rows}", *_figures(group)) for group in ordered)
    return TableContent(title, GROUP_COLUMNS, rows)


def sources_table() -> TableContent:
    """Steps of publications that no fit saw: errors, and how often ranges made without them hold."""
    unseen, named = (load_spreads().entries[kind] for kind in (UNSEEN, NAMED))
    rows = []
    for name, own in sorted(unseen.groups.items(), key=lambda item: -item[1].num_rows):
        other = named.groups[name]
        texts = (format_figure(own.mape), format_signed(own.bias), f"{100 * own.held:.0f}")
        rows.append((name, f"{own.num_rows}", *texts, format_figure(other.mape), f"{100 * other.held:.0f}"))
    return TableContent("Publications that no fit saw", SOURCES_COLUMNS, tuple(rows), note=_SOURCES_NOTE)


def worst_table(entry: SetResult, *, limit: int | None = None) -> TableContent:
    """Rows of largest error with the shares of the predicted time; at most ``limit`` if given."""
    common = common_columns(entry)
    fields: Fields[ExplainedRow] = (
        words("row", lambda worst: worst.result.row.id),
        number("error", lambda worst: f"{100 * worst.result.error:+.1f} %"),
        number("measured", lambda worst: _value(entry, worst.result.measured_s)),
        number("predicted", lambda worst: _value(entry, worst.result.predicted_s)),
        words("configuration", lambda worst: describe_row(worst.result.row, common=common)),
        words("where the prediction goes", _where_time_goes),
    )
    shared = ", ".join(_words(name, text) for name, text in common.items() if _is_told(name, text, ()))
    return table_of("Worst rows", fields, entry.worst[:limit], f"In all rows: {shared}." if shared else "")


def _where_time_goes(worst: ExplainedRow) -> str:
    shares = sorted(worst.parts, key=lambda part: -abs(part.seconds))
    total = sum(part.seconds for part in worst.parts) or 1.0
    shown = (part for part in shares if abs(part.seconds) > 0.005 * abs(total))
    return ", ".join(f"{part.name} {100 * part.seconds / total:.0f} %" for part in shown)


def _value(entry: SetResult, value: float) -> str:
    if entry.dataset.schema is MEMORY:
        return f"{value:.1f} GiB"
    return f"{value:.3g}" if entry.dataset.is_context else format_time(value)


def describe_row(row: Row, *, common: Collection[str] = ()) -> str:
    """A row's configuration: columns that are neither blank, nor measured, nor about the source, nor common to all."""
    return ", ".join(_words(name, text) for name, text in row.values.items() if _is_told(name, text, common))


def _is_told(name: str, text: str, common: Collection[str]) -> bool:
    return bool(text) and name not in _HIDDEN and name not in common


def _words(name: str, text: str) -> str:
    return text if name in {"hardware", "model", "op"} else f"{name} {text}"


def common_columns(entry: SetResult) -> dict[str, str]:
    """Columns that have one value in all rows of a set of several, and the value."""
    rows = [result.row.values for result in entry.rows]
    if len(rows) < 2:
        return {}
    return {name: text for name, text in rows[0].items() if all(row.get(name) == text for row in rows)}


def write_predictions(result: Validation, path: Path) -> None:
    """Write every row as CSV in the order of the files: measured, predicted, its range, or why there is none."""
    from phaze_opt.report.page import write_text

    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(PREDICTED_COLUMNS)
    for entry in result.sets:
        for each in entry.rows:
            values = (each.measured_s, each.predicted_s, each.low_s, each.high_s)
            figures = [f"{value:.6g}" if math.isfinite(value) else "" for value in values]
            writer.writerow((entry.name, each.row.id, each.row.line, *figures, each.reason))
    write_text(path, text.getvalue())
