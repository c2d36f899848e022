"""The page of a certificate: what is proved, how the gap closed, the best designs and where their time goes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from phaze_opt import __version__
from phaze_opt.certify.certificate import Certificate
from phaze_opt.certify.equal_terms import EqualTerms
from phaze_opt.certify.result import CertifyResult, ProofMove, RankedDesign
from phaze_opt.certify.robust.result import OverWorlds, RobustResult
from phaze_opt.certify.standing import Ties, members_of
from phaze_opt.hardware.silicon.die_report import DieReport
from phaze_opt.jobs.machines_beside import ChipBeside, bills_in, dies_in
from phaze_opt.objective.caveats import Note
from phaze_opt.objective.evaluation import Evaluation
from phaze_opt.objective.goals import Goal
from phaze_opt.objective.headline_range import HeadlineRange
from phaze_opt.report.answer import ShortAnswer, range_sentence
from phaze_opt.report.bill import bill_tables
from phaze_opt.report.certificate import (
    RunnerUp,
    axes_words,
    best_table,
    claim_sentence,
    effort_sentence,
    flatness_table,
    has_bound,
    history_table,
    infeasible_sentence,
    rows_words,
    ties_sentence,
)
from phaze_opt.report.design import evaluation_contents
from phaze_opt.report.die import area_table, limits_table, plain_sentences, power_table
from phaze_opt.report.document import ReportDocument, Section
from phaze_opt.report.equal_terms import equal_sentence, equal_table, left_out_sentences
from phaze_opt.report.figures import breakdown_picture
from phaze_opt.report.front import (
    FrontMachine,
    arch_table,
    front_pictures,
    front_sentence,
    front_table,
    front_ties_sentence,
    machines_beside,
)
from phaze_opt.report.picture import BEST_COLOUR, COLOURS, Band, Curve, Layer, Picture, PlotAxis, faint
from phaze_opt.report.pictures import amount_pictures, in_reading_order, picture_sections
from phaze_opt.report.robust import minimax_sentences, over_worlds_pictures, robust_contents
from phaze_opt.report.table import TableContent
from phaze_opt.report.text import GOAL_UNITS, counted, shown_value

NOTHING_SAID = ShortAnswer(())


def build_document(
    result: CertifyResult,
    *,
    ties: Ties,
    runner_up: RunnerUp | None,
    robust: RobustResult | None = None,
    headline: HeadlineRange | None = None,
    notes: Sequence[Note] = (),
    beside: Sequence[ChipBeside] = (),
    num_held: int = 0,
    equal: EqualTerms | None = None,
    terms: str = "",
    first: ShortAnswer = NOTHING_SAID,
    over_worlds: OverWorlds | None = None,
) -> ReportDocument:
    """The page as values.

    Args:
        result: of the proof.
        ties: how many designs share the first place.
        runner_up: the best design of lower value.
        robust: worlds beside the nominal one.
        headline: range of the best design's figure.
        notes: what the answer rests on.
        beside: the best design, then the machines that it is held against and the references.
        num_held: machines that it is held against; they are the first.
        equal: optima on the terms of a machine.
        terms: on which this one is proved, for the title.
        first: what is printed of the proof, to stand above all.
        over_worlds: a front over worlds beside the nominal one.
    """
    certificate = result.certificate
    if certificate.axes:
        return _front_document(
            result,
            first=first,
            notes=notes,
            beside=beside,
            machines=machines_beside(beside[1:]),
            terms=terms,
            over_worlds=over_worlds,
        )
    what = "the certified optimum" if certificate.claim.is_proved else "the best design and a bound on all"
    tables: list[TableContent] = []
    figures: dict[str, Picture] = {}
    robust_said = "" if robust is None else " ".join(minimax_sentences(robust))
    if first.sentences and robust_said:
        first = replace(first, sentences=(*first.sentences, robust_said))
    lead = [*first.sentences, claim_sentence(result)]
    if result.best:
        tables = _best_tables(result)
        lead.append(ties_sentence(ties, rows_words(result)))
        lead.append(" ".join(runner_up.sentences if runner_up is not None else ()))
        figures["breakdown"] = breakdown_picture(
            _compared(result.best, runner_up, beside[1 : 1 + num_held]), needs_schedules=False
        )
    dies, bills = _dies(beside, equal), bills_in(beside)
    if dies:
        tables += [area_table(dies), power_table(dies), limits_table(dies), *bill_tables(bills)]
        on_terms = () if equal is None else (equal_sentence(equal, result), *left_out_sentences(equal))
        lead.append(" ".join(on_terms or plain_sentences(beside)))
        figures |= amount_pictures(dies, bills)
    if equal is not None and dies:
        tables.append(equal_table(equal, result))
    if headline is not None:
        lead.append(range_sentence(headline))
    if len(result.history) > 1:
        figures["gap"] = gap_picture(result.history, goal=certificate.goal, end_s=result.wall_s)
        tables.append(history_table(result))
    if robust is not None:
        lead.append(robust_said)
        tables += robust_contents(robust)
    lead += [note.sentence for note in notes]
    sections, said = _sections(first, in_reading_order(figures), tables, lead)
    return _document(result, _title(certificate, what, terms), sections, said)


def _best_tables(result: CertifyResult) -> list[TableContent]:
    """The best designs, how flat the optimum is, and what the best is made of."""
    of_design = evaluation_contents(result.best[0].evaluation, references={})
    # Without references beside it, the performance is in the other tables.
    of_design = [content for content in of_design if content.title != "Performance"]
    return [best_table(result), flatness_table(result), *of_design]


def _title(certificate: Certificate, what: str, terms: str) -> str:
    """Models, devices, what the page is of, and on which terms."""
    names = ", ".join(model.name for model in certificate.scenario.models)
    devices = counted(certificate.scenario.cluster.num_devices, "accelerator")
    return f"{names} on {devices}: {what}{terms and f', {terms}'}"


def _document(result: CertifyResult, title: str, sections: tuple[Section, ...], lead: Sequence[str]) -> ReportDocument:
    effort = " ".join(filter(None, (infeasible_sentence(result), effort_sentence(result))))
    return ReportDocument(
        title,
        sections,
        lead=tuple(dict.fromkeys(filter(None, lead))),
        footer=(("phaze-opt", __version__), ("effort", effort), ("certificate", str(result.directory))),
    )


def _front_document(
    result: CertifyResult,
    *,
    first: ShortAnswer,
    notes: Sequence[Note],
    beside: Sequence[ChipBeside],
    machines: Sequence[FrontMachine],
    terms: str,
    over_worlds: OverWorlds | None,
) -> ReportDocument:
    """The page of a front: the front, the fastest design on it as a die, and the proof over time."""
    certificate = result.certificate
    tables: list[TableContent] = []
    figures: dict[str, Picture] = {}
    lead = [*first.sentences, front_sentence(result)]
    if result.front:
        lead.append(front_ties_sentence(result))
        front, has_plans = members_of(result), certificate.scenario.plans is not None
        tables += [
            front_table(front, certificate.axes, has_plans=has_plans),
            arch_table(front, certificate.axes, certificate.scenario),
        ]
        figures |= front_pictures(front, certificate.axes, machines)
        figures |= {} if over_worlds is None else over_worlds_pictures(over_worlds)
    dies = dies_in(beside)
    if dies:
        tables += [area_table(dies), power_table(dies), limits_table(dies)]
        figures |= amount_pictures(dies, {})
    if len(result.history) > 1:
        tables.append(history_table(result))
    title = _title(certificate, f"the front of {axes_words(certificate.axes)}", terms)
    sections, said = _sections(first, figures, tables, [*lead, *(note.sentence for note in notes)])
    return _document(result, title, sections, said)


def _sections(
    first: ShortAnswer, figures: Mapping[str, Picture], tables: Sequence[TableContent], said: Sequence[str]
) -> tuple[tuple[Section, ...], list[str]]:
    """Sections and the head: where an answer is printed it stands there, and what it rests on is folded."""
    if not first.sentences:
        return picture_sections((), figures, tables), list(said)
    rest = [sentence for sentence in said if sentence not in first.sentences]
    return picture_sections(first.tables, figures, tables, rest), [*first.sentences, *first.notes]


def _dies(beside: Sequence[ChipBeside], equal: EqualTerms | None) -> dict[str, DieReport]:
    """Dies by name: of the best design, and of the references or of the machine that it is on equal terms with."""
    known = dies_in(beside)
    return known if equal is None or not known else {**dict([*known.items()][:1]), equal.name: equal.die}


def _compared(
    best: Sequence[RankedDesign], runner_up: RunnerUp | None, held: Sequence[ChipBeside]
) -> dict[str, Evaluation]:
    """The best design, the runner-up by the model on which it loses most, and of one model the baselines."""
    first = best[0].evaluation
    others = {} if first.members else {each.name: each.evaluation for each in held}
    if runner_up is None:
        return {"best": first, **others}
    second = runner_up.design.evaluation
    if not first.members:
        return {"best": first, "runner-up": second, **others}
    pairs = zip(first.members, second.members, strict=True)
    winner, loser = next(pair for pair in pairs if pair[1].model == runner_up.model)
    return {f"best, {winner.model}": winner, f"runner-up, {loser.model}": loser}


def gap_picture(history: Sequence[ProofMove], *, goal: Goal, end_s: float) -> Picture:
    """Incumbent and bound over time; what lies between them is in doubt.

    Args:
        history: moves of the two.
        goal: for the axis.
        end_s: end of the proof, to which the last of both are drawn, s.
    """
    incumbents = [(move.wall_s, shown_value(goal, move.value)) for move in history if move.value > 0.0]
    bounds = [(move.wall_s, shown_value(goal, move.value_upper)) for move in history if has_bound(move)]
    both = [move for move in history if move.value > 0.0 and has_bound(move)]
    low, high = (
        [shown_value(goal, value) for value in values]
        for values in ([move.value for move in both], [move.value_upper for move in both])
    )
    layers: list[Layer] = (
        [
            Band(
                [*(move.wall_s for move in both), end_s],
                [*low, *low[-1:]],
                [*high, *high[-1:]],
                faint(COLOURS[0]),
                is_step=True,
            )
        ]
        if both
        else []
    )
    for name, points, colour, size in (
        ("bound on every point", bounds, COLOURS[0], 5),
        ("incumbent", incumbents, BEST_COLOUR, 8),
    ):
        if points:
            values = [value for _, value in (*points, points[-1])]
            times_s = [*(time_s for time_s, _ in points), end_s]
            hovers = [
                f"{name}: {value:,.6g} {GOAL_UNITS[goal]} after {time_s:.3g} s"
                for time_s, value in zip(times_s, values, strict=True)
            ]
            layers.append(
                Curve(times_s, values, name, colour, 2.5, is_step=True, marker="circle", marker_px=size, hovers=hovers)
            )
    return Picture(
        "How the gap closed", tuple(layers), PlotAxis("seconds", is_from_zero=True), PlotAxis(GOAL_UNITS[goal])
    )
