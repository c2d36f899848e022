"""The answer of ``evaluate`` beside the same job on other machines."""

from collections.abc import Sequence
from dataclasses import dataclass

from phaze_opt.objective.evaluation import Evaluation
from phaze_opt.objective.price_setting import PriceSetting
from phaze_opt.report.chip import silicon_words
from phaze_opt.report.die import ASKED_BY, EACH_AS_IT_IS
from phaze_opt.report.plans import known_figure
from phaze_opt.report.table import Fields, TableContent, number, table_of, words
from phaze_opt.report.text import format_mib, format_number, format_share, format_time
from phaze_opt.units import GIGA


@dataclass(frozen=True, slots=True)
class Contestant:
    """One machine with what the job comes to on it; ``usd`` of a device, None where that is not known."""

    evaluation: Evaluation
    setting: PriceSetting
    usd: float | None = None


def throughput_ratio(other: Evaluation, answer: Evaluation) -> float | None:
    """Samples a second of another machine for each of the answer; None where the answer is infeasible."""
    if answer.throughput_samples_per_s <= 0:
        return None
    return other.throughput_samples_per_s / answer.throughput_samples_per_s


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
        number("USD", lambda item: "n/k" if item.usd is None else format_number(item.usd)),
        number("GB/s", lambda item: f"{item.evaluation.accelerator.hbm_bandwidth_bytes_per_s / GIGA:,.0f}"),
        number("buffer", lambda item: format_mib(item.evaluation.accelerator.glb_bytes)),
    )
    all_of_them = (answer, *baselines)
    software = answer.setting.software
    note = [f"all under {software}, {answer.setting.peak_type}, {answer.setting.num_devices:,} devices each"]
    designs = [item.evaluation.accelerator for item in all_of_them if not item.setting.is_real]
    modelled = f", modelled {silicon_words(designs[0])} of designs" if designs else ""
    note.append(f"mm2 and W as published of machines that exist (n/p: not){modelled}")
    if any(item.usd is not None for item in all_of_them):
        note.append("USD of a device at the prices of `What it costs`, the same for all (n/k: not known)")
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


def _if_feasible(item: Contestant, text: str) -> str:
    return text if item.evaluation.is_feasible else "infeasible"


def _ratio(item: Contestant, answer: Contestant) -> str:
    ratio = throughput_ratio(item.evaluation, answer.evaluation)
    return f"{ratio:.3g}" if ratio is not None and item.evaluation.is_feasible else ""


def _figure(item: Contestant, name: str) -> str:
    text = known_figure(item.evaluation, name, "")
    return "n/p" if text == "not published" else text
