"""Writes the tables of docs/claims.md from claims.json, worth.json and ../silicon/optima.json; a dash: not measured.

Run: python experiments/claims/tables.py
"""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from phaze_opt.record.whole_file import replace_file

HERE = Path(__file__).parent
OPTIMA = HERE.parent / "silicon" / "optima.json"
"""Optima on the terms of a machine."""
DOCUMENT = HERE.parents[1] / "docs" / "claims.md"
MISSING = "-"
HAND = "expert on phaze-tpu-v4"
MEAN = "mean"
MODELS = ("bert-large", "gpt2-xl", "llama-2-7b", "gpt3-175b")
"""Of dies."""


def marked(text: str, name: str, table: str) -> str:
    """The document with one table replaced."""
    begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->\n"
    before, found, rest = text.partition(begin)
    if not found:
        message = f"{DOCUMENT} has no table {name}"
        raise ValueError(message)
    return f"{before}{begin}\n{table}\n{end}{rest.partition(end)[2]}"


def rows_of(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [list(header), ["---"] * len(header), *map(list, rows)]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def find(record: Mapping[str, Any], *path: str) -> Any:
    """What the record holds under a path; None if nothing."""
    found: Any = record
    for key in path:
        found = found.get(key) if isinstance(found, Mapping) else None
    return found


def times(value: float | None) -> str:
    """A ratio."""
    return MISSING if value is None else f"{value:.2f}"


def per_cent(value: float | None) -> str:
    """A share."""
    return MISSING if value is None else f"{100.0 * value:.1f} %"


def published(record: Mapping[str, Any]) -> str:
    """Own designs over machines and hand placements, and one design for all, on both networks."""
    networks, bases = ("flat", "two-level"), ("phaze-tpu-v4", HAND, "modelled tpu-v4")
    header = [
        "model",
        *(f"{network}: over {base.replace(HAND, 'hand placement')}" for network in networks for base in bases),
    ]
    models = sorted(record["published"]["flat"]["own"])
    rows = [
        [
            name,
            *(
                times(find(record, "published", network, "own_over", base, name))
                for network in networks
                for base in bases
            ),
        ]
        for name in (*models, MEAN)
    ]
    common = [times(find(record, "published-common", each, "over", base, MEAN)) for each in networks for base in bases]
    return rows_of(header, [*rows, ["mean, one design for all", *common]])


def dies(record: Mapping[str, Any]) -> str:
    """Own dies, and the best of them for all, at the area of either machine."""
    header = ("area of", "model", "arrays, buffer, stacks", "W over the machine's", "times the machine", "wham in 60")
    rows = []
    for machine in ("phaze-tpu-v4", "modelled tpu-v4"):
        area = f"{machine}, {find(record, 'die-machines', machine, 'area_mm2'):.0f} mm2"
        rows += [[area, model, *die_cells(record, machine, model)] for model in MODELS]
        means = (times(mean_over(record, machine, part)) for part in ("die-own", "die-wham"))
        rows += [[area, "mean", "", "", *means], [area, "mean, one die for all", *shared_cells(record, machine), ""]]
    return rows_of(header, rows)


def die_cells(record: Mapping[str, Any], machine: str, model: str) -> tuple[str, str, str, str]:
    """A die in words, its power and what it attains over the machine, and what wham does."""
    own = find(record, "die-own", machine, model)
    if own is None:
        return MISSING, MISSING, MISSING, MISSING
    size = dict(part.split("=") for part in own["chip"].split(","))
    words = f"{size['num_tc']} of {size['tc_width']}x{size['tc_depth']}, {size['glb_mb']} MB, {size['hbm_stacks']}"
    power = own["power_w"] / record["die-machines"][machine]["power_w"]
    return words, times(power), times(own["over"]), times(find(record, "die-wham", machine, model, "over"))


def mean_over(record: Mapping[str, Any], machine: str, part: str) -> float | None:
    """Geometric mean of what a part attains over a machine; None until all models are there."""
    found = find(record, part, machine) or {}
    if len(found) < len(record["die-machines"][machine]["rates"]):
        return None
    product = 1.0
    for model in sorted(found):
        product *= found[model]["over"]
    return float(product ** (1.0 / len(found)))


def shared_cells(record: Mapping[str, Any], machine: str) -> tuple[str, str, str]:
    """Whose die it is and what sharing costs, nothing of power, and what it attains."""
    found = find(record, "die-shared", machine)
    if found is None:
        return MISSING, "", MISSING
    return f"that of {found['own_of']}, {per_cent(found['price'])} slower", "", times(found["over"][MEAN])


TERMS = ("area", "watts", "area, HBM rate and buffer")


def equal_terms(_: Mapping[str, Any]) -> str:
    """Certified optima over a machine: as found, and on its terms."""
    record = json.loads(OPTIMA.read_text(encoding="utf-8"))["models"]
    rows = []
    for model in MODELS:
        terms = record[model]["terms"]
        as_found = record[model]["limits"]["826 mm2"]["certified"]["throughput_samples_per_s"]
        ratios = [as_found / terms["throughput_samples_per_s"], *(terms[name]["ratio"] for name in TERMS)]
        rows.append([model, *map(times, ratios)])
    return rows_of(("model", "as found, 826 mm2", *(f"its {name}" for name in TERMS)), rows)


LARGE = 1000.0
"""Rates from which on decimals say nothing."""
WORTH = ("bert-large", "gpt3-175b", "resnet-50", "mixtral-8x7b")
WORTH_COLUMNS = {
    "sub-stages (RASA)": ("pipelining", "times"),
    "ceiling of the base die": ("ceilings", "pipelining_times"),
    "of any die": ("no-fill", "times"),
    "2:4 weights": ("sparsity", "times"),
    "ceiling": ("ceilings", "sparsity_times"),
    "layer fusion": ("fusion", "times"),
    "its ceiling": ("ceilings", "fusion_times"),
    "flexibility": ("flexibility", "times"),
    "ceiling of flexibility": ("ceilings", "flexibility_times"),
    "sub-stages and 2:4": ("together", "times"),
    "and fusion": ("together+fusion", "times"),
    "and flexibility": ("everything+fusion", "times"),
    "ceiling of all": ("ceilings", "everything_times"),
}
"""What is told of each mechanism, and where worth.json has it."""


def worth(_: Mapping[str, Any]) -> str:
    """What each mechanism is worth at equal area and watts, over the base die, with its ceilings."""
    record = json.loads((HERE / "worth.json").read_text(encoding="utf-8"))["models"]
    rows = []
    for model in WORTH:
        found = [find(record, model, *path) for path in WORTH_COLUMNS.values()]
        base = find(record, model, "base", "throughput_samples_per_s")
        cells = [MISSING if value is None else f"{value:.3f}" for value in found]
        rate = MISSING if base is None else f"{base:,.0f}" if base > LARGE else f"{base:.2f}"
        rows.append([model, rate, *cells])
    return rows_of(("model", "base, samples/s", *WORTH_COLUMNS), rows)


TABLES: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "published form": published,
    "dies": dies,
    "equal terms": equal_terms,
    "worth": worth,
}


def main() -> None:
    """Write all tables."""
    record = json.loads((HERE / "claims.json").read_text(encoding="utf-8"))
    text = DOCUMENT.read_text(encoding="utf-8")
    for name, table in TABLES.items():
        text = marked(text, name, table(record))
    replace_file(DOCUMENT, text)


if __name__ == "__main__":
    main()
