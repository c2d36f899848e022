"""The answer of ``evaluate`` beside the same job on other machines."""

from collections.abc import Callable, Sequence
from functools import partial

from phaze_opt.hardware.economics.ownership import run_days
from phaze_opt.jobs.priced_job import Contestant, throughput_ratio
from phaze_opt.objective.bill import Bill, token_ratio_span, token_span
from phaze_opt.report.answer import joined
from phaze_opt.report.chip import silicon_words
from phaze_opt.report.die import ASKED_BY, EACH_AS_IT_IS
from phaze_opt.report.plans import known_figure
from phaze_opt.report.table import Fields, TableContent, number, table_of, words
from phaze_opt.report.text import counted, format_amount, format_mib, format_number, format_share, format_time
from phaze_opt.units import GIGA


def baselines_table(answer: Contestant, baselines: Sequence[Contestant], *, has_dies: bool = False) -> TableContent:
    """Step time, rates, utilisation, area, power and memories of the answer and its baselines, a row each."""
    fields: Fields[Contestant] = (
        words("machine", lambda item: item.setting.machine),
        number("step", lambda item: _if_feasible(item, format_time(item.evaluation.iteration_time_s))),
        number("samples/s", lambda item: _if_feasible(item, format_number(item.evaluation.throughput_samples_per_s))),
        number("ratio", lambda item: _ratio(item, answer)),
        number("MFU", lambda item: _if_feasible(item, format_share(item.evaluation.mfu))),
        number("mm2", lambda item: _figure(item, "area_mm2")),
        number("W", lambda item: _figure(item, "tdp_w")),
        number("GB/s", lambda item: f"{item.evaluation.accelerator.hbm_bandwidth_bytes_per_s / GIGA:,.0f}"),
        number("buffer", lambda item: format_mib(item.evaluation.accelerator.glb_bytes)),
    )
    all_of_them = (answer, *baselines)
    software = answer.setting.software
    own = [_own_words(item, software) for item in baselines if item.setting.software != software]
    note = [
        f"all under {software}{f' but {joined(own)}' if own else ''}",
        f"{answer.setting.peak_type}, {counted(answer.setting.num_devices, 'device')} each",
    ]
    designs = [item.evaluation.accelerator for item in all_of_them if not item.setting.is_real]
    modelled = f", modelled {silicon_words(designs[0])} of designs" if designs else ""
    note.append(f"mm2 and W as published of machines that exist (n/p: not){modelled}")
    if has_dies:
        note.append(f"{EACH_AS_IT_IS}; `{ASKED_BY} MACHINE` proves the best die on a machine's terms")
    note += [
        f"{item.setting.machine} is infeasible: {item.evaluation.reason}"
        for item in all_of_them
        if not item.evaluation.is_feasible
    ]
    note += [
        sentence for item in baselines for sentence in item.setting.notes if sentence.startswith(f"{software} was not")
    ]
    return table_of("The same job", fields, all_of_them, "; ".join(note), emphasis=lambda item: item is answer)


def _own_words(item: Contestant, software: str) -> str:
    """The software of a baseline, and what it trains in a second under the answer's."""
    same = item.same_software
    told = ""
    if same is not None and same.is_feasible:
        told = f" ({format_number(same.throughput_samples_per_s)} samples/s under {software})"
    return f"{item.setting.machine} under its own {item.setting.software}{told}"


def _if_feasible(item: Contestant, text: str) -> str:
    return text if item.evaluation.is_feasible else "infeasible"


def _ratio(item: Contestant, answer: Contestant) -> str:
    ratio = throughput_ratio(item.evaluation, answer.evaluation)
    return f"{ratio:.3g}" if ratio is not None and item.evaluation.is_feasible else ""


def _figure(item: Contestant, name: str) -> str:
    text = known_figure(item.evaluation, name, "")
    return "n/p" if text == "not published" else text


def money_table(contestants: Sequence[Contestant]) -> TableContent | None:
    """What each cluster costs, and a thousand million tokens and the run asked for on it; None where nothing is known.

    Args:
        contestants: the answer, then its baselines.
    """
    terms = next((item.bill.terms for item in contestants if item.bill is not None), None)
    if terms is None:
        return None
    unit = contestants[0].setting.counted
    fields: Fields[Contestant] = (
        words("machine", lambda item: item.setting.machine),
        number("a device", lambda item: _billed(item, lambda bill: format_number(bill.device_usd))),
        number("capex", lambda item: _billed(item, lambda bill: format_amount(bill.capex_usd))),
        number("TCO", lambda item: _billed(item, lambda bill: format_amount(bill.tco_usd))),
        number(f"1B {unit}", lambda item: _billed(item, lambda bill: format_number(GIGA * bill.usd_per_token))),
        number("range", lambda item: _billed(item, _range)),
    )
    if terms.tokens is not None:
        fields += (
            number("days", partial(_days, tokens=terms.tokens)),
            number("the run", lambda item: _billed(item, _usd_of_run)),
        )
    note = [
        "USD; TCO and what follows of it count electricity",
        "range: one price alone at an end of its own, without the error of throughput",
    ]
    if any(item.bill is None for item in contestants):
        note.append("n/k: not known")
    note += [item.unbilled for item in contestants if item.bill is None and item.unbilled]
    return table_of(
        "The same job in money", fields, contestants, "; ".join(note), emphasis=lambda item: item is contestants[0]
    )


def money_sentence(contestants: Sequence[Contestant]) -> str:
    """Which machine trains a token for least, and whether prices could turn that round; empty of fewer than two known.

    Args:
        contestants: the answer, then its baselines; it is the answer that the cheapest is held against, or the next
            cheapest where that is the answer.
    """
    known = sorted(
        ((item.setting.machine, item.bill) for item in contestants if item.bill is not None),
        key=lambda pair: pair[1].usd_per_token,
    )
    own = contestants[0].bill
    if len(known) < 2 or own is None:
        return ""
    name, least = known[0]
    other, bill = known[1] if least is own else (contestants[0].setting.machine, own)
    span = token_ratio_span(least, bill)
    noun = contestants[0].setting.counted.removesuffix("s")
    whole = "A" if len(known) == len(contestants) else "Where costs are known, a"
    said = (
        f"{whole} {noun} costs least on {name}, {format_number(GIGA * least.usd_per_token)} USD for 1B: "
        f"{span.value:.2f} times what it costs on {other} ({span.low:.2f} to {span.high:.2f} over the range of each "
        "price)"
    )
    return f"{said}; {span.high_price} may turn that round." if span.high > 1.0 else f"{said}."


def _billed(item: Contestant, cell: Callable[[Bill], str]) -> str:
    """A figure of a machine's bill."""
    return "n/k" if item.bill is None else cell(item.bill)


def _days(item: Contestant, *, tokens: float) -> str:
    """Of the training run asked for, known whatever a device costs."""
    rate = item.evaluation.throughput_tokens_per_s
    return _if_feasible(item, format_number(run_days(tokens, rate)) if rate > 0.0 else "")


def _usd_of_run(bill: Bill) -> str:
    """Of the training run asked for."""
    return "n/k" if bill.run is None else format_amount(bill.run.usd)


def _range(bill: Bill) -> str:
    span = token_span(bill)
    return f"{format_number(GIGA * span.low)} to {format_number(GIGA * span.high)}"
