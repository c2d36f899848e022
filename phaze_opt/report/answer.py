"""What an answer says first: what to build or run, how much better it is, and what would overturn it."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from phaze_opt.jobs.machines_beside import ChipBeside
from phaze_opt.objective.bill import Bill
from phaze_opt.objective.caveats import Note
from phaze_opt.objective.evaluation import Evaluation
from phaze_opt.objective.goals import Goal, goal_values
from phaze_opt.objective.headline_range import HeadlineRange, RangePart, machine_error
from phaze_opt.objective.priced_as import PriceSetting
from phaze_opt.objective.scenario import Scenario
from phaze_opt.plan.plan_search import RankedPlan
from phaze_opt.report.bill import run_sentence as training_sentence
from phaze_opt.report.chip import chip_words
from phaze_opt.report.design import COMMON_MEANS
from phaze_opt.report.die import rate_words, size_words
from phaze_opt.report.plans import BRIM_NOTE, plan_words
from phaze_opt.report.table import TableContent
from phaze_opt.report.text import GOAL_UNITS, format_number, format_percentage, format_share, format_time, shown_value
from phaze_opt.units import bytes_to_gib

OF_THE_QUESTION = (
    "sparse_weights", "area_budget", "tdp_budget", "edge_of_space", "extrapolated_buffers", "padded_batch", "network",
    "partial_nodes", "measured_elsewhere", "unlike_measured", "layer_fusion", "no_attention", "unused_fit",
    "model", "unmasked_attention", "odd_sizes", "idle_devices", "micro_batch", "array_share",
)  # fmt: skip
"""Notes that say that something else was answered than may have been meant: they stand with the answer."""
NOT_MEASURED = "no software named"
"""Beginning of the note that the software asked for was replaced."""
AS_IT_IS = "as it is"
"""Setting of a range's end that is the figure itself (`headline_range`)."""
NEAR_SHOWN = 1e-6
"""Shortfall below which designs tie."""


@dataclass(frozen=True, slots=True)
class ShortAnswer:
    """What a command prints unless it is asked for all.

    Attributes:
        sentences: two or three that can be repeated to somebody who has not seen the table.
        tables: one; of a common design, and of several machines whose costs are known, two.
        notes: what of the question was changed.
        more: how to go on, and how to see more.
    """

    sentences: tuple[str, ...]
    tables: tuple[TableContent, ...] = ()
    notes: tuple[str, ...] = ()
    more: tuple[str, ...] = ()


def told_notes(notes: Sequence[Note]) -> tuple[str, ...]:
    """The notes that stand with the answer."""
    return tuple(f"Note: {_whole(note.sentence)}" for note in notes if is_told(note))


def is_told(note: Note) -> bool:
    """Whether a note stands with the answer."""
    return note.key in OF_THE_QUESTION or note.sentence.startswith(NOT_MEASURED)


def _whole(sentence: str) -> str:
    """With a full stop."""
    return sentence if sentence.endswith(".") else f"{sentence}."


def design_sentences(
    best: Evaluation,
    *,
    goal: Goal,
    scenario: Scenario,
    standing: str,
    held: Sequence[ChipBeside],
    bill: Bill | None,
    headline: HeadlineRange | None,
) -> tuple[str, ...]:
    """What to build, how much better it is and how surely, what would overturn it, what a training run takes.

    Args:
        best: the design.
        goal: that it is best by.
        scenario: what it trains.
        standing: how surely it is the best, as a clause.
        held: machines that it is held against.
        bill: of the design; None where costs are not known.
        headline: its range; None if none was asked for.
    """
    rates = {each.name: each.evaluation.throughput_samples_per_s for each in held}
    return (
        build_sentence(best, goal=goal, scenario=scenario, usd=None if bill is None else bill.device_usd),
        standing_sentence(standing, best, held, bill),
        overturn_sentence(headline, rates),
        "" if bill is None else training_sentence(bill),
    )


def build_sentence(best: Evaluation, *, goal: Goal, scenario: Scenario, usd: float | None = None) -> str:
    """What to build, what it takes, and what it attains under which plan; means are said to be means."""
    chip = best.accelerator
    cost = "" if usd is None else f", {format_number(usd)} USD"
    built = f"{chip_words(chip)} ({format_number(best.area_mm2)} mm2, {format_number(best.tdp_w)} W{cost})"
    models = joined([model.name for model in scenario.models])
    count = scenario.cluster.num_devices
    who = f"{count:,} of them train" if count > 1 else "it trains"
    return f"Build {built}: {who} {models} at {_attained(best, goal, scenario)}{_plan_words(best)}."


def _attained(best: Evaluation, goal: Goal, scenario: Scenario) -> str:
    rate = f"{format_number(best.throughput_samples_per_s)} samples/s"
    if goal is not Goal.THROUGHPUT:
        values = goal_values(goal, best)
        worth = f"{format_number(shown_value(goal, values[0]))} {GOAL_UNITS[goal]} ({rate})"
        rate = worth if len(values) == 1 else rate
    return f"{rate} ({COMMON_MEANS[scenario.common]})" if len(scenario.models) > 1 else rate


def _plan_words(best: Evaluation) -> str:
    """The plan of one model; several have each their own."""
    placement = best.placement
    if best.members or placement is None:
        return ""
    if placement.plan is not None:
        return f" under {plan_words(placement.plan)}"
    return (
        f" under tensor {placement.tensor_parallel} x pipeline {len(placement.stages)} x data {placement.data_parallel}"
    )


def standing_sentence(standing: str, best: Evaluation, baselines: Sequence[ChipBeside], bill: Bill | None) -> str:
    """How many times the baselines it is, in rate, per watt and per dollar; and how surely it is the best.

    Args:
        standing: how surely, as a clause.
        best: the answer.
        baselines: the machines.
        bill: of the answer; None where the cost is not known.
    """
    compared = compared_words(best, baselines, bill)
    text = f"It is {compared}; {standing}" if compared else f"{standing[0].upper()}{standing[1:]}"
    return f"{text}."


def compared_words(best: Evaluation, baselines: Sequence[ChipBeside], bill: Bill | None) -> str:
    """How many times the baselines a design is, as the end of a clause; empty without one."""
    parts = []
    for each in baselines:
        other = each.evaluation
        if other.throughput_samples_per_s <= 0.0:
            parts.append(f"what {each.name} cannot train ({other.reason})")
            continue
        ratios = [f"{best.throughput_samples_per_s / other.throughput_samples_per_s:.2f} times the throughput"]
        if best.known("tdp_w") and other.known("tdp_w"):
            ratios.append(f"{best.throughput_per_tdp / other.throughput_per_tdp:.2f} times per watt")
        if bill is not None and each.bill is not None:
            ratios.append(f"{bill.throughput_per_usd / each.bill.throughput_per_usd:.2f} times per dollar")
        parts.append(f"{joined(ratios)} of {each.name} ({rate_words(each)}; {size_words(other)})")
    return joined(parts) if parts else ""


def overturn_sentence(found: HeadlineRange | None, baselines: Mapping[str, float]) -> str:
    """The range, what gives its ends, and whether the lowest would be less than a baseline as that stands.

    Args:
        found: the range; None if none was asked for.
        baselines: samples/s by name.
    """
    if found is None:
        return ""
    if not found.parts:
        return f"No range: nothing is known of the error of {format_number(found.value)} samples/s."
    low = min(found.parts, key=lambda part: part.low)
    high = max(found.parts, key=lambda part: part.high)
    text = (
        f"It may be {format_number(found.low)} ({_doubt(low, low.low_setting)}) to {format_number(found.high)} "
        f"samples/s ({_doubt(high, high.high_setting)})"
    )
    beaten = {name: rate for name, rate in baselines.items() if 0.0 < rate < found.value}
    lost = [name for name, rate in beaten.items() if found.low < rate]
    if lost:
        return f"{text}: the least would be below {joined(lost)} as priced here, and overturn the answer."
    if beaten:
        whom = "the baseline" if len(baselines) == 1 else joined(list(beaten))
        return f"{text}: none of these doubts alone takes it below {whom} as priced here."
    return f"{text}."


def _doubt(part: RangePart, setting: str) -> str:
    """What gives an end of the range."""
    if setting == AS_IT_IS:
        return "as priced"
    words = {"model error": f"the model's error, {setting}", "software": f"software {setting}"}
    return words.get(part.name, setting)


def range_sentence(found: HeadlineRange) -> str:
    """One line: the lowest and the highest figure, and what each doubt alone makes of it."""
    parts = "; ".join(_part_words(part) for part in found.parts)
    ends = f"{format_number(found.low)} .. {format_number(found.high)}"
    if not found.parts:
        return f"No range: nothing is known of the error of {format_number(found.value)} samples/s."
    beyond = f" What was never measured of the plan is in none of them: {', '.join(found.unmeasured)}."
    return f"Range {ends} samples/s, each doubt alone: {parts}.{beyond if found.unmeasured else ''}"


def range_to_json(found: HeadlineRange | None) -> dict[str, Any] | None:
    """The range with its ends; null where none was asked for or nothing is feasible."""
    if found is None:
        return None
    parts = [asdict(part) for part in found.parts]
    return {"low": found.low, "high": found.high, "parts": parts, "unmeasured": list(found.unmeasured)}


def _part_words(part: RangePart) -> str:
    low, high = format_number(part.low), format_number(part.high)
    if part.low_setting == part.high_setting:
        return f"{part.name} {low} .. {high} ({part.low_setting})"
    return f"{part.name} {low} ({part.low_setting}) .. {high} ({part.high_setting})"


def attained_sentence(best: Evaluation, machine: str, num_devices: int) -> str:
    """What a machine attains: of one model under its plan, of several their mean."""
    models = joined([each.model for each in best.members or (best,)])
    mean = " (arithmetic mean)" if best.members else ""
    return (
        f"{num_devices:,} {machine} train {models} at {format_number(best.throughput_samples_per_s)} samples/s{mean}"
        f"{_plan_words(best)}: {format_time(best.iteration_time_s)} a step, MFU {format_share(best.mfu)}."
    )


def run_sentence(chosen: RankedPlan, setting: PriceSetting) -> str:
    """Which plan to run, what a step takes, and what speaks against it."""
    rate = setting.tokens_per_s(chosen.time)
    samples = f" ({format_number(setting.global_batch / chosen.time.seconds)} samples/s)"
    samples = "" if setting.counted == "samples" else samples
    text = (
        f"Run {setting.model} on {setting.num_devices:,} {setting.machine} under {plan_words(chosen.plan)}: "
        f"{format_time(chosen.time.seconds)} a step, {format_number(rate)} {setting.counted}/s{samples}, MFU "
        f"{format_share(setting.mfu(chosen))} of the {setting.peak_type} peak, "
        f"{bytes_to_gib(chosen.memory.peak_bytes):.1f} of {bytes_to_gib(setting.memory_bytes):.1f} GiB"
    )
    return f"{text}, which {_brim_words(chosen, setting)}." if setting.is_to_the_brim(chosen) else f"{text}."


def gain_of_fastest(plans: Sequence[RankedPlan], place: int) -> float:
    """By how much more the fastest plan trains in a second than the one to run, as a share."""
    return float(plans[place].time.seconds / plans[0].time.seconds) - 1.0


def fastest_sentence(plans: Sequence[RankedPlan], setting: PriceSetting, place: int) -> str:
    """What the fastest plan would gain, and why it is not the answer; empty where it is.

    Args:
        plans: fastest first.
        setting: what they were priced under.
        place: of the plan to run.
    """
    if not place:
        return ""
    first = plans[0]
    rate = f"{format_number(setting.tokens_per_s(first.time))} {setting.counted}/s"
    gain = format_percentage(gain_of_fastest(plans, place))
    return f"The fastest, plan 1, would train {gain} more ({rate}), but {_brim_words(first, setting)}."


def _brim_words(plan: RankedPlan, setting: PriceSetting) -> str:
    """What speaks against the memory of a plan: more than there is, or perhaps more."""
    if setting.is_over(plan):
        return f"takes more memory than a device has unless {bytes_to_gib(plan.memory.peak_bytes):.1f} GiB is too high"
    return BRIM_NOTE.partition(":")[0]


def told_apart_sentence(plans: Sequence[RankedPlan], setting: PriceSetting) -> str:
    """How many plans are too near to the first to be told from it; empty if none is."""
    first, *others = plans
    count = sum(bool(setting.is_within_error(each, first)) for each in others)
    if not count or setting.error_share is None:
        return ""
    who = f"{count:,} more plans are" if count > 1 else "One more plan is"
    return f"{who} within the model's error of {setting.error_share:.1%}: which is fastest, a run has to say."


def times_sentence(best: Evaluation, name: str, baselines: Mapping[str, Evaluation]) -> str:
    """How many times the throughput of each baseline an answer has."""
    known = {key: each for key, each in baselines.items() if each.is_feasible}
    ratios = [
        f"{best.throughput_samples_per_s / each.throughput_samples_per_s:.2f} times that of {key}"
        for key, each in known.items()
    ]
    lost = [f"{key} cannot run it" for key in baselines if key not in known]
    text = "; ".join(filter(None, (f"The throughput of {name} is {joined(ratios)}" if ratios else "", *lost)))
    return f"{text}." if text else ""


def near_sentence(values: Sequence[float], rows: str = "") -> str:
    """How many of the best designs tie, and which are nearer than the model's error; empty of a single one.

    Args:
        values: of the goal, the best first.
        rows: which designs they are of (`report.certificate.rows_words`), where not of all.
    """
    short = [1.0 - value / values[0] for value in values[1:]]
    ties = sum(each <= NEAR_SHOWN for each in short)
    error = machine_error()
    near = [each for each in short if NEAR_SHOWN < each <= error]
    texts = []
    if ties:
        texts.append(f"{ties:,} more{rows} {'ties' if ties == 1 else 'tie'} with the best")
    if near:
        who = f"the next {len(near)}{rows} fall" if len(near) > 1 else f"the next{rows} falls"
        texts.append(
            f"{who} {format_percentage(near[-1])} short at most, less than the model's error "
            f"({format_percentage(error)}): area, power and price may choose"
        )
    return "; ".join(texts)


def joined(words: Sequence[str]) -> str:
    """Words with commas, and ``and`` before the last."""
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last
