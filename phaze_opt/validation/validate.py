"""Score models on measurements beside trivial models, and the ranges of predictions from rows kept out of the fits."""

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations

import numpy as np

from phaze_opt.cost.stacks import find_software, measured_rows
from phaze_opt.errors import InputError
from phaze_opt.hardware.fitted import FittedConstants
from phaze_opt.hardware.spreads import LEVEL, NAMED, SOURCE, HeldGroup, Scale, Spread, octave, scale_of
from phaze_opt.record.arrays import Flags, Floats, Indices
from phaze_opt.validation.baselines import Baseline, describe_baseline
from phaze_opt.validation.dataset import Dataset
from phaze_opt.validation.family import Family, Label
from phaze_opt.validation.fit import fit_scale
from phaze_opt.validation.measured_row import Row
from phaze_opt.validation.packs import known_spreads
from phaze_opt.validation.predict import (
    Fold,
    Predictions,
    cells_of,
    fold_by_cell,
    leave_one_out,
    predict_held_out,
    predict_rows,
)
from phaze_opt.validation.result import (
    ERROR_GOALS,
    ExplainedRow,
    GoalResult,
    GroupResult,
    RowResult,
    SetResult,
    Validation,
    group_labels,
    mape,
    mape_by_cell,
    range_scores,
    score,
)
from phaze_opt.validation.schema import BY_CELL, PUBLISHED_SETS

WHOLE = ("source", "machine", "device", "chip", "fabric")
"""Tests of a family whose labels are kept out whole: what a range of something never seen rests on."""
CELLS = "cells"
MIN_ROWS = 19
"""Fewer rows, or cells of near copies, have no 5 % of them at an end: a wider kind is taken."""
MIN_GROUPS = 3
"""Of sources, machines or fabrics kept out whole; fewer say nothing of another."""
NUM_PARTS = 5
MAX_PAIRS = 4000


@dataclass(frozen=True, slots=True)
class Residual:
    """A row that was kept out: the kinds it tells of, its cell or source, and log(measured / predicted).

    Attributes:
        kinds, group, kept_out, log_quotient: these.
        rivals: the rows that one would choose among, such as plans of one model on one cluster; its group unless given.
        facts, traits: what it is like, and which traits of that the scale of its kinds may rest on.
    """

    kinds: tuple[str, ...]
    group: str
    kept_out: str
    log_quotient: float
    rivals: str = ""
    facts: Mapping[str, str] = field(default_factory=dict)
    traits: tuple[str, ...] = ()


def kept_out_residuals(family: Family, rows: Sequence[Row], start: FittedConstants) -> Iterator[Residual]:
    """Residuals of rows with their cells kept out, then with a source or machine kept out whole."""
    own = [row for row in rows if row.dataset in family.datasets and family.is_fitted(row)]
    measured = family.compile(own).measured_s
    cells = cells_of(family, own)
    predictions = predict_rows([family], own, start)
    terms = predictions.longest(start)
    facts = [
        row_facts(family, row, seconds, terms.get(index, ""))
        for index, (row, seconds) in enumerate(zip(own, predictions.predicted_s.tolist(), strict=True))
    ]
    tests: dict[str, tuple[Sequence[str], Sequence[Fold]]] = {CELLS: (cells, fold_by_cell(cells))}
    for name in WHOLE:
        if name in family.splits:
            labels = [family.splits[name](row) for row in own]
            tests[name] = (labels, leave_one_out(labels))
    for name, (groups, folds) in tests.items():
        quotients = np.log(measured / predict_held_out(family, own, folds, start)).tolist()
        # A handful of machines or sources says nothing of a scale.
        traits = family.scaled_by if name == CELLS else ()
        for row, group, quotient, each in zip(own, groups, quotients, facts, strict=True):
            if math.isfinite(quotient):
                kinds = (family.name,) if name == CELLS else whole_kinds(family, row, name)
                yield Residual(kinds, group, name, quotient, facts=each, traits=traits)


def row_facts(family: Family, row: Row, predicted: float, term: str) -> Mapping[str, str]:
    """What is known of a row beside its measurement: set, machine, regime, octave of the prediction, longest term."""
    device = row.find_device()
    machine = row.text("hardware", "") if device is None else device.name
    facts = {"set": row.dataset, "machine": machine, "regime": family.regime(row), "term": term, **family.facts(row)}
    return {**facts, "size": octave(predicted)} if predicted > 0.0 else facts


def whole_kinds(family: Family, row: Row, test: str) -> tuple[str, ...]:
    """Names of the spreads of rows of which a source or machine was kept out whole: of a row's regime, and of all.

    Where the family knows how near other machines are, those of machines as near come first.
    """
    kinds = (f"{family.name}, {test} kept out, {family.regime(row)}", f"{family.name}, {test} kept out")
    near = family.nearness(row)
    return (*(f"{kind}, {near}" for kind in kinds), *kinds) if near else kinds


def kinds_of(family: Family, row: Row, facts: Mapping[str, str], *, is_published: bool) -> tuple[str, ...]:
    """Kinds of ranges that suit a row, the first that is known to be taken.

    A row of the package, or of a machine that rows of its family are of, has the family's; of another machine that of
    machines or sources kept out whole. A user's step has that of steps whose source was kept out, with or without its
    software, and a collective between nodes that of such whose source was.
    """
    if is_published:
        return (family.name,)
    if family.apart(row):
        return (family.apart(row),)
    if family.unseen and row.is_guessed:
        name = find_software(row.text("software", ""))
        return (NAMED, family.unseen) if name and measured_rows(name) is not None else (family.unseen,)
    if known_spreads().knows(family.name, facts.get("machine", "")):
        return (family.name,)
    whole = (kind for test in WHOLE if test in family.splits for kind in whole_kinds(family, row, test))
    return (*whole, family.name)


@dataclass(frozen=True, slots=True)
class FittedSpread:
    """The range of a kind of rows and the scale that it is wide by."""

    spread: Spread
    scale: Scale


def fit_spreads(residuals: Sequence[Residual]) -> Mapping[str, FittedSpread]:
    """The spread of every kind with enough rows; groups kept out whole weigh alike, however many rows they have."""
    found = {}
    for kind, own in _by_kind(residuals).items():
        made = _fit(own)
        groups = _groups(own) if own[0].kept_out == SOURCE else {}
        found[kind] = FittedSpread(replace(made.spread, groups=groups), made.scale)
    return found


def _by_kind(residuals: Sequence[Residual]) -> Mapping[str, list[Residual]]:
    """Residuals of every kind that has enough."""
    by_kind: dict[str, list[Residual]] = {}
    for each in residuals:
        for kind in each.kinds:
            by_kind.setdefault(kind, []).append(each)
    return {kind: own for kind, own in sorted(by_kind.items()) if _is_enough(own)}


def _groups(own: Sequence[Residual]) -> dict[str, HeldGroup]:
    """Every publication, with how its rows lie in the range of the others."""
    held, _ = _held(own)
    found = {}
    for name in sorted({each.group for each in own}):
        is_own = [each.group == name for each in own]
        errors = np.array([math.expm1(-each.log_quotient) for each in own if each.group == name])
        found[name] = HeldGroup(
            num_rows=len(errors),
            mape=_rounded(100.0 * float(np.abs(errors).mean())),
            bias=_rounded(100.0 * float(errors.mean())),
            held=_rounded(float(held[is_own].mean())),
        )
    return found


def _is_enough(own: Sequence[Residual]) -> bool:
    least = MIN_ROWS if own[0].kept_out == CELLS else MIN_GROUPS
    return len(own) >= MIN_ROWS and len({each.group for each in own}) >= least


def _fit(own: Sequence[Residual]) -> FittedSpread:
    """Scale and range of rows of one kind."""
    low, high, scale = _ends(own)
    spread = Spread(
        low=low,
        high=high,
        apart=_rounded(math.exp(_pair_quantile(own))),
        num_rows=len(own),
        num_groups=len({each.group for each in own}),
        kept_out=own[0].kept_out,
        mape=_rounded(_mean_over_groups(own)),
    )
    return FittedSpread(spread, scale)


def _ends(own: Sequence[Residual]) -> tuple[float, float, Scale]:
    """Both ends of the range of a row whose scale is 1, and the scale.

    Errors are counted in scales that were fitted without the row's group: in those of its own fit they look smaller.
    """
    in_scales = np.array([each.log_quotient for each in own])
    for part in _deal(own) if own[0].traits else ():
        out = set(part)
        middle, scale = _scale([each for place, each in enumerate(own) if place not in out])
        in_scales[part] /= middle * _scales([own[place] for place in part], scale)
    middle, scale = _scale(own)
    weights, tail = _weights(own), (1.0 - LEVEL) / 2.0
    low, high = (math.exp(middle * quantile(in_scales, weights, share)) for share in (tail, 1.0 - tail))
    return _rounded(low), _rounded(high), scale


def _weights(own: Sequence[Residual]) -> Floats:
    """Groups kept out whole weigh alike, cells by their rows."""
    counts = Counter(each.group for each in own)
    return np.array([1.0 if each.kept_out == CELLS else 1.0 / counts[each.group] for each in own])


def _scale(own: Sequence[Residual]) -> tuple[float, Scale]:
    errors = np.array([each.log_quotient for each in own])
    return fit_scale([each.facts for each in own], errors, own[0].traits)


def _scales(own: Sequence[Residual], scale: Scale) -> Floats:
    return np.array([scale_of(scale, each.facts) for each in own])


def _mean_over_groups(own: Sequence[Residual]) -> float:
    """Mean over groups of the mean absolute error of the prediction within each, per cent."""
    by_group: dict[str, list[float]] = {}
    for each in own:
        by_group.setdefault(each.group, []).append(abs(math.exp(-each.log_quotient) - 1.0))
    return 100.0 * float(np.mean([np.mean(values) for values in by_group.values()]))


def quantile(values: Floats, weights: Floats, share: float) -> float:
    """Weighted quantile that holds for one more draw: the sample has n + 1 places, the new one among them.

    Args:
        values: shape (num_rows,).
        weights: of each, shape (num_rows,), positive.
        share: between 0 and 1.
    """
    order = np.argsort(values, kind="stable")
    cumulative = np.cumsum(weights[order]) / weights.sum()
    count = weights.sum() ** 2 / (weights**2).sum()
    wanted = (share * (count + 1.0) - 0.5) / count
    middle = cumulative - weights[order] / (2.0 * weights.sum())
    return float(np.interp(min(max(wanted, 0.0), 1.0), middle, values[order]))


def _pair_quantile(own: Sequence[Residual]) -> float:
    """What the difference of two rivals stays below in most pairs; of all rows where groups are single."""
    by_group: dict[str, list[float]] = {}
    for each in own:
        whole = each.group if each.kept_out != CELLS else ""
        by_group.setdefault(each.rivals or whole, []).append(each.log_quotient)
    differences = [
        abs(first - second) for values in by_group.values() for first, second in list(combinations(_thinned(values), 2))
    ]
    return float(np.quantile(differences, LEVEL)) if differences else 0.0


def _thinned(values: Sequence[float]) -> Sequence[float]:
    """Every so many of them, so that pairs stay few."""
    step = max(1, math.ceil(len(values) / math.sqrt(2 * MAX_PAIRS)))
    return values[::step]


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")


@dataclass(frozen=True, slots=True)
class CrossCoverage:
    """How ranges hold rows whose groups they were made without.

    Attributes:
        held: share of the rows that lie in theirs; of groups kept out whole over groups, as these weigh alike.
        half_width: middle of half the range, as a share of the prediction.
        num_rows: rows.
        least: lowest share held among sets, machines and recipes of `LEAST_TOLD` rows or more; 1 without any.
        sets: the same figures of every set with as many rows, of kinds whose rows have one.
    """

    held: float
    half_width: float
    num_rows: int
    least: float
    sets: Mapping[str, "CrossCoverage"] = field(default_factory=dict)


LEAST_TOLD = 40
"""Fewer rows tell little of how often a range holds."""


def cross_coverage(residuals: Sequence[Residual]) -> Mapping[str, CrossCoverage]:
    """How ranges made without the rows' own group hold, by kind: the check of the ranges themselves."""
    return {kind: _cross_coverage(own) for kind, own in _by_kind(residuals).items()}


def _cross_coverage(own: Sequence[Residual]) -> CrossCoverage:
    held, half = _held(own)

    def figures(places: Indices, sets: Mapping[str, CrossCoverage]) -> CrossCoverage:
        names = [name for name in ("set", "machine", "recipe") if own[0].traits]
        shares = [held[each].mean() for name in names for each in _told(own, places, name).values()]
        share = float(np.average(held[places], weights=_weights(own)[places]))
        return CrossCoverage(share, float(np.median(half[places])), len(places), float(min(shares, default=1.0)), sets)

    every = np.arange(len(own))
    sets = _told(own, every, "set") if own[0].traits else {}
    return figures(every, {name: figures(places, {}) for name, places in sets.items()})


def _told(own: Sequence[Residual], places: Indices, name: str) -> Mapping[str, Indices]:
    """Places of rows by a fact that enough of them have."""
    labels = np.array([own[place].facts.get(name, "") for place in places])
    found = {label: places[labels == label] for label in sorted(set(labels.tolist()) - {""})}
    return {label: each for label, each in found.items() if len(each) >= LEAST_TOLD}


def _held(own: Sequence[Residual]) -> tuple[Flags, Floats]:
    """Whether each row lies in a range made without its own group, and half of that range."""
    quotients = np.array([math.exp(each.log_quotient) for each in own])
    low, high = np.zeros(len(own)), np.zeros(len(own))
    for part in _deal(own):
        out = set(part)
        first, last, scale = _ends([each for place, each in enumerate(own) if place not in out])
        scales = _scales([own[place] for place in part], scale)
        # As `Spread.around`, all rows at once.
        low[part], high[part] = np.minimum(1.0, first**scales), np.maximum(1.0, last**scales)
    return (quotients >= low) & (quotients <= high), (high - low) / 2.0


def _deal(own: Sequence[Residual]) -> Iterator[list[int]]:
    """Places of groups in turn; of many cells in a few parts."""
    names = sorted({each.group for each in own}, key=lambda name: hashlib.sha256(name.encode()).hexdigest())
    parts = min(len(names), NUM_PARTS) if own[0].kept_out == CELLS else len(names)
    part_of = {name: index % parts for index, name in enumerate(names)}
    for part in range(parts):
        yield [place for place, each in enumerate(own) if part_of[each.group] == part]


Tell = Callable[[str], None]
NUM_WORST = 10
UNTOLD = "columns blank"
"""Regime or cell of a row without the columns that tell it."""


def validate(
    datasets: Sequence[Dataset],
    families: Sequence[Family],
    fitted: FittedConstants,
    *,
    baselines: Mapping[str, Baseline],
    on_progress: Tell | None = None,
) -> Validation:
    """Score the models on data sets.

    Args:
        datasets: measurements.
        families: what predicts them; a set that none predicts is unscored.
        fitted: constants.
        baselines: trivial models by published set.
        on_progress: told the name of each set, and how far its rows are.
    """
    tell = on_progress or (lambda _: None)
    results = [_validate_set(dataset, families, fitted, baselines, tell) for dataset in datasets]
    goals = tuple(goal for result in results for goal in _goals(result))
    return Validation(fitted=fitted, sets=tuple(results), goals=goals)


def _validate_set(
    dataset: Dataset, families: Sequence[Family], fitted: FittedConstants, baselines: Mapping[str, Baseline], tell: Tell
) -> SetResult:
    tell(dataset.name)
    predictions = predict_rows(families, dataset.rows, fitted)
    rows = _row_results(dataset, predictions, fitted, tell)
    scored = np.flatnonzero(predictions.is_scored).tolist()
    predicted, measured = predictions.predicted_s, predictions.measured_s
    trivial = _trivial(dataset.rows, baselines)
    cells = [rows[index].cell for index in scored]

    is_mixed = len(dataset.likes) > 1

    def labels(result: RowResult) -> tuple[str, ...]:
        likeness = (f"as {result.row.dataset}",) if is_mixed else ()
        return (*likeness, *group_labels(result.row))

    def groups(labels: Callable[[RowResult], tuple[str, ...]]) -> tuple[GroupResult, ...]:
        found: dict[str, list[int]] = {}
        for index in scored:
            for label in labels(rows[index]):
                found.setdefault(label, []).append(index)
        return tuple(
            GroupResult(label, score(predicted[own], measured[own]), _known_mape(trivial, measured, own))
            for label, own in sorted(found.items())
        )

    # Largest absolute errors first: those that weigh most in the mean.
    worst = sorted(scored, key=lambda index: (-abs(rows[index].error), rows[index].row.line))[:NUM_WORST]
    return SetResult(
        dataset=dataset,
        family=", ".join(dict.fromkeys(family.name for family in predictions.families if family is not None)),
        rows=rows,
        scores=score(predicted[scored], measured[scored]),
        mape_by_cell=mape_by_cell(predicted[scored], measured[scored], cells),
        num_cells=len(set(cells)),
        baseline=describe_baseline(dataset.schema.kind) if not baselines.keys().isdisjoint(dataset.likes) else "",
        baseline_mape=_known_mape(trivial, measured, scored),
        groups=groups(labels),
        regimes=groups(lambda result: (result.regime,)),
        worst=tuple(ExplainedRow(rows[index], predictions.explain(fitted, index)) for index in worst),
        ranges=range_scores([rows[index] for index in scored]),
    )


def _row_results(
    dataset: Dataset, predictions: Predictions, fitted: FittedConstants, tell: Tell
) -> tuple[RowResult, ...]:
    results = []
    middles, terms = predictions.ranges(fitted), predictions.longest(fitted)
    for index, (row, family) in enumerate(zip(dataset.rows, predictions.families, strict=True)):
        tell(f"{dataset.name}, row {index + 1:,} of {len(dataset.rows):,}")
        reason = predictions.unscored.get(index, "")
        predicted_s = float(predictions.unmeasured.get(index, predictions.predicted_s[index]))
        low_s = high_s = math.nan
        if family is not None and not reason:
            is_own = row.dataset == dataset.name
            low_s, high_s = _range(family, row, predicted_s, terms.get(index, ""), is_published=is_own)
        results.append(
            RowResult(
                row=row,
                measured_s=float(predictions.measured_s[index]),
                predicted_s=predicted_s,
                low_s=low_s,
                high_s=high_s,
                regime="" if reason or family is None else _name(family.regime, row),
                cell="" if reason or family is None else _name(family.cell, row),
                reason=reason,
                least_s=middles.get(index, (math.nan, math.nan))[0],
                most_s=middles.get(index, (math.nan, math.nan))[1],
            )
        )
    return tuple(results)


def _name(name: Label, row: Row) -> str:
    """Regime or cell of a row; a blank column that the prediction can do without is no reason to fail here."""
    try:
        return name(row)
    except InputError:
        return UNTOLD


def _range(family: Family, row: Row, predicted_s: float, term: str, *, is_published: bool) -> tuple[float, float]:
    """Range of a row; a blank column that the prediction can do without is no reason to fail here."""
    try:
        facts = row_facts(family, row, predicted_s, term)
        kinds = kinds_of(family, row, facts, is_published=is_published)
    except InputError:
        facts, kinds = {}, (family.name,)
    return known_spreads().around(kinds, predicted_s, facts)


def _trivial(rows: Sequence[Row], baselines: Mapping[str, Baseline]) -> Floats:
    """Times of the trivial model of each row's published set, s; nan where there is none."""
    return np.array([baselines[row.dataset].row_seconds(row) if row.dataset in baselines else math.nan for row in rows])


def _known_mape(predicted: Floats, measured: Floats, indices: Sequence[int]) -> float:
    chosen = [index for index in indices if math.isfinite(predicted[index])]
    return mape(predicted[chosen], measured[chosen])


def _goals(result: SetResult) -> Iterator[GoalResult]:
    """Goals of a published set; nan where no row is scored."""
    values = {"": result.scores.mape, BY_CELL: result.mape_by_cell}
    values |= {group.label: group.scores.mape for group in result.groups}
    for goal in ERROR_GOALS:
        if goal.dataset == result.name:
            yield GoalResult(result.name, goal.group, "mape", goal.percent, values.get(goal.group, math.nan))
    known = PUBLISHED_SETS.get(result.name)
    if known is not None and known.rank is not None:
        yield GoalResult(result.name, "", "spearman", known.rank, result.scores.spearman)
