"""What the constants of shape in the models' code are worth: each at both ends of its range, all else fitted again.

    python experiments/validation/shapes.py

Orders of norms, steepnesses, relative rates of tiles and round numbers of training software are written in the code as
assumptions, not fitted: few rows see each of them. Here every one goes to both ends of its range, its family is fitted
anew, and the errors, fitted and (operators) by cross-validation over configurations, show whether the choice decides
anything. Writes shapes.json and shapes.md.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

from phaze_opt.validation.calibrate import calibrate
from phaze_opt.validation.dataset import Dataset, read_datasets
from phaze_opt.validation.fit import without_groups
from phaze_opt.validation.packs import known_constants
from phaze_opt.validation.predict import load_families

OUT = Path(__file__).with_suffix("")
SLOW_FAMILIES = ("fp32_operators", "training", "modern-training")
"""Families whose folds take minutes: fitted errors alone."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A constant in code.

    Attributes:
        module: that uses it.
        name: of the constant there.
        low, high: what it goes to.
        families: that see it.
        meaning: what it is.
    """

    module: str
    name: str
    low: Any
    high: Any
    families: tuple[str, ...]
    meaning: str


_MATMUL = _VECTOR = "phaze_opt.estimate.machine_operators"
_STEP, _MACHINE = "phaze_opt.cost.price_step", "phaze_opt.estimate.machine"
_EQUAL_TILES = tuple((a, b, 1.0) for a, b in ((256, 128), (128, 128), (128, 64), (64, 64)))
_STEEP_TILES = ((256, 128, 1.0), (128, 128, 1.1), (128, 64, 1.4), (64, 64, 2.0))

SHAPES = (
    Shape(_MATMUL, "TILES", _EQUAL_TILES, _STEEP_TILES, ("operators",), "relative time a FLOP of smaller tiles"),
    Shape(_MATMUL, "SPILL_STEEPNESS", 2.0, 8.0, ("operators",), "results from cache to memory"),
    Shape(_MATMUL, "SUSTAINED_S", 1e-3, 1e-2, ("operators",), "time to half of the loss of long matmuls"),
    Shape(_MACHINE, "SUSTAINED_LOSS", 0.02, 0.08, ("operators",), "rate that long matmuls lose"),
    Shape(_VECTOR, "FLOOR_NORM", 3.0, 12.0, ("operators",), "host's launch beside the device"),
    Shape(_VECTOR, "OVERLAP_NORM", 1.5, 6.0, ("operators",), "stream beside the latency of rows"),
    Shape(_VECTOR, "MISS_STEEPNESS", 3.0, 12.0, ("operators",), "second reading from cache to memory"),
    Shape(_STEP, "LAUNCH_NORM", 6.0, 24.0, ("training",), "host's launches beside the device"),
)


_SOFTWARE = "phaze_opt.cost.stacks"
_OLD, _NEW = ("training",), ("modern-training",)
SOFTWARE = (
    Shape(_SOFTWARE, "megatron-2021.attention_efficiency", 0.4, 0.6, _OLD, "attention's products over the peak"),
    Shape(_SOFTWARE, "megatron-2021.vector_efficiency", 0.75, 0.95, _OLD, "other operators over the memory rate"),
    Shape(_SOFTWARE, "megatron-2021.kernel_s", 1e-6, 6e-6, _OLD, "between two kernels"),
    Shape(_SOFTWARE, "megatron-2021.accumulation_bytes", 6.0, 10.0, _OLD, "adding gradients up, a parameter"),
    Shape(_SOFTWARE, "megatron-core.tensor_overlap", 0.3, 0.7, _NEW, "hidden share of tensor-parallel collectives"),
    Shape(_SOFTWARE, "megatron-core.data_overlap", 0.3, 0.7, _NEW, "hidden share of gradients"),
    Shape(_SOFTWARE, "megatron-core.transfer_overlap", 0.5, 0.9, _NEW, "hidden share of boundary transfers"),
    Shape(_SOFTWARE, "megatron-core.vector_efficiency", 0.7, 0.9, _NEW, "other operators over the memory rate"),
    Shape(_SOFTWARE, "llm-foundry.data_overlap", 0.5, 0.9, _NEW, "hidden share of gradients"),
)
"""Round numbers of software: ``name`` is the stack's, a point, and the field; stacks derived from it follow."""


@contextmanager
def placed(shape: Shape, value: Any) -> Iterator[None]:
    """The constant at a value, and back."""
    module = import_module(shape.module)
    name = shape.name
    if shape in SOFTWARE:
        stack, _, field = shape.name.partition(".")
        name, stated, changes = "_stated", module._stated, {field: value}

        def value(known: str) -> Any:
            is_changed = module.stack_group(stack) in module.stack_groups(known)
            return replace(stated(known), **changes) if is_changed else stated(known)

    before = getattr(module, name)
    setattr(module, name, value)
    try:
        yield
    finally:
        setattr(module, name, before)


def own_groups(family: str, datasets: tuple[Dataset, ...]) -> set[str]:
    """Groups that a family fits; those of others stay as the package has them."""
    (known,) = load_families((family,))
    rows = [row for data in datasets for row in data.rows if row.dataset in known.datasets]
    return {parameter.group for parameter in known.parameters(rows)}


def errors(family: str, datasets: tuple[Dataset, ...]) -> dict[str, dict[str, float]]:
    """Fitted and cross-validated MAPE of a family's data sets, fitted anew, %."""
    found = calibrate(
        load_families((family,)),
        datasets,
        without_groups(known_constants(), own_groups(family, datasets)),
        source="experiments/validation/shapes.py",
        has_held_out=family not in SLOW_FAMILIES,
    )
    sets = [each for fit in found.families for each in fit.sets]
    return {
        each.name: {
            "mape": round(each.whole.fitted.mape, 2),
            **({} if family in SLOW_FAMILIES else {"cross_validated_mape": round(each.cross_validated_mape, 2)}),
        }
        for each in sets
    }


def table(rows: list[Mapping[str, Any]]) -> str:
    """A row for every constant, data set and figure that moves by 0.05 points, and one for those that do not."""
    lines = ["| constant | range | data set | figure | low | as it is | high |", "|---|---|---|---|---|---|---|"]
    for row in rows:
        moved = [
            (name, figure, row["low"][name][figure], value, row["high"][name][figure])
            for name, figures in row["as_it_is"].items()
            for figure, value in figures.items()
            if max(round(abs(row[end][name][figure] - value), 2) for end in ("low", "high")) >= 0.05
        ]
        head = f"| `{row['name']}`: {row['meaning']} | {row['range']} |"
        for name, figure, low, value, high in moved:
            words = "cross-validated" if figure.startswith("cross") else "fitted"
            lines.append(f"{head} {name} | {words} | {low:.2f} | {value:.2f} | {high:.2f} |")
        if not moved:
            lines.append(f"{head} {', '.join(row['as_it_is'])} | both | | no change of 0.05 | |")
    return "\n".join(lines)


def main(
    shapes: Sequence[Shape] = (*SHAPES, *SOFTWARE), out: Path = OUT, command: str = "experiments/validation/shapes.py"
) -> None:
    datasets, _ = read_datasets(None)
    known: dict[str, dict[str, dict[str, float]]] = {}
    rows: list[Mapping[str, Any]] = []
    for shape in shapes:
        for family in shape.families:
            if family not in known:
                known[family] = errors(family, datasets)
            ends = {}
            for end, value in (("low", shape.low), ("high", shape.high)):
                with placed(shape, value):
                    ends[end] = errors(family, datasets)
            words = "equal to twice the steps" if shape.name == "TILES" else f"{shape.low:g} to {shape.high:g}"
            record = {"module": shape.module, "name": shape.name, "meaning": shape.meaning, "range": words}
            rows.append({**record, "family": family, "as_it_is": known[family], **ends})
            print(shape.name, family, flush=True)
    meta = {
        "command": f"python {command}",
        "versions": {name: version(name) for name in ("phaze-opt", "numpy", "scipy")},
        "fitted_constants": known_constants().digest,
        "figures": "MAPE in per cent",
    }
    out.with_suffix(".json").write_text(json.dumps({"_meta": meta, "rows": rows}, indent=1) + "\n", encoding="utf-8")
    text = "# Constants of shape at both ends of their ranges\n\nMAPE in per cent, the family fitted anew each time. "
    text += f"Written by `{Path(command).name}`.\n\n"
    out.with_suffix(".md").write_text(text + table(rows) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
