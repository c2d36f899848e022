"""A chip frozen for AlexNet on later models, and what each freedom of mappings alone gives; writes its record beside.

    python experiments/flexibility/future_proofing.py [--output FILE]

Kao et al. (SIGMETRICS 2022) freeze an accelerator of 2014 for AlexNet and give it MnasNet, ResNet-50, MobileNet-V2,
BERT, DLRM and NCF: one whose mappings are free is 11.8 times as fast (geometric mean, AlexNet included). Here both have
the same multipliers, buffers and memory. A model takes the sum over its products, forward alone and whole training
steps. Frozen is the best of all rigid chips for AlexNet; classes are the paper's T, O, P, S.
"""

import argparse
import json
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

import phaze_opt
from phaze_opt.estimate.analytic import AnalyticEstimator
from phaze_opt.estimate.operator_table import CompiledOperators
from phaze_opt.graph.any_model import load_any_model
from phaze_opt.graph.build import build_model_graph
from phaze_opt.graph.operator import Phase
from phaze_opt.hardware.accelerator import Accelerator, AcceleratorTable
from phaze_opt.hardware.flexibility import ARRAY_SHAPE, CORE_SPLIT, LOOP_ORDER, SWITCHES, TILING, Freedom, shapes_of
from phaze_opt.workload.training import TrainingSpec

ROOT = Path(__file__).resolve().parents[2]
MODELS = {
    "alexnet": "studies/models/alexnet.json",
    "mnasnet": "studies/models/mnasnet1_0.json",
    "resnet-50": "studies/models/resnet50.json",
    "mobilenet-v2": "studies/models/mobilenet_v2.json",
    "bert-large": "",
    "dlrm": "studies/models/dlrm.json",
    "ncf": "tests/traced_models/ncf.json",
}
SEQUENCE = 512
CHIPS = {
    "edge, 1,024 multipliers, 16 GB/s": Accelerator(4, 4, 16, 16, 16, 1 << 20, 2.56e11, 4096, 1 << 30, 16e9, 1e9),
    "edge, 1,024 multipliers, 256 GB/s": Accelerator(4, 4, 16, 16, 16, 1 << 20, 2.56e11, 4096, 1 << 30, 256e9, 1e9),
    "cloud, 65,536 multipliers, 800 GB/s": Accelerator(
        4, 16, 128, 128, 128, 1 << 24, 4e12, 1 << 18, 1 << 35, 800e9, 1e9
    ),
}


def products_of(model: str, batch: int) -> dict[str, CompiledOperators]:
    """Operators with products of a whole step, and of forward alone."""
    spec = load_any_model(str(ROOT / MODELS[model]) if MODELS[model] else model)
    graph = build_model_graph(spec, TrainingSpec(batch, SEQUENCE, batch), tensor_parallel=1)
    graphs = (getattr(graph.layers[kind], phase) for kind in graph.chain for phase in map(str, Phase))
    operators = [each for one in graphs for each in one.operators if each.matmuls]
    forward = [each for each in operators if each.phase is Phase.FORWARD]
    return {"step": AnalyticEstimator.compile(operators), "forward": AnalyticEstimator.compile(forward)}


def seconds(products: CompiledOperators, chips: list[Accelerator]) -> np.ndarray:
    """Sum over products on each chip, s."""
    found = AnalyticEstimator().estimate(products, AcceleratorTable.from_accelerators(chips))
    return np.asarray(found.spread_s.sum(axis=1))


def rigid_chips(chip: Accelerator) -> list[Accelerator]:
    """Every chip of its multipliers that has no freedom at all."""
    shapes = shapes_of(chip.tc_width, chip.tc_depth, 1 + ARRAY_SHAPE.keys.index("full"))
    orders, splits = (
        [code for code in range(1, 1 + len(each.kinds)) if each.freedom(code) is Freedom.FIXED]
        for each in (LOOP_ORDER, CORE_SPLIT)
    )
    fixed = 1 + TILING.keys.index("fixed")
    return [
        replace(chip, tc_width=width, tc_depth=depth, tiling=fixed, loop_order=order, core_split=split, array_shape=1)
        for (width, depth), order, split in product(shapes, orders, splits)
    ]


def classes_of(frozen: Accelerator) -> dict[str, Accelerator]:
    """The 16 classes: each switch as frozen or in full."""
    full = {name: 1 + switch.keys.index("full") for name, switch in SWITCHES.items()}
    found = {}
    for bits in product((0, 1), repeat=4):
        freed = {name: full[name] for name, bit in zip(SWITCHES, bits, strict=True) if bit}
        found["".join(map(str, bits))] = replace(frozen, **freed)
    return found


def study(chip: Accelerator, products: dict[str, CompiledOperators]) -> dict[str, Any]:
    """Frozen chip, and speed of every class over it, by model and as the geometric mean."""
    rigid = rigid_chips(chip)
    frozen = rigid[int(np.argmin(seconds(products["alexnet"], rigid)))]
    classes = classes_of(frozen)
    taken = {model: seconds(each, list(classes.values())) for model, each in products.items()}
    speed = {model: times[0] / times for model, times in taken.items()}
    means = np.exp(np.mean([np.log(each) for each in speed.values()], axis=0))
    kept = ("tc_width", "tc_depth", "loop_order", "core_split")
    own = {model: float(seconds(each, rigid).min() / taken[model][-1]) for model, each in products.items()}
    return {
        "frozen": {name: getattr(frozen, name) for name in kept}
        | {name: SWITCHES[name].keys[getattr(frozen, name) - 1] for name in ("loop_order", "core_split")},
        "mean": {key: round(float(each), 3) for key, each in zip(classes, means, strict=True)},
        "full": {model: round(float(each[-1]), 3) for model, each in speed.items()},
        "full_over_own_rigid": {model: round(each, 3) for model, each in own.items()},
    }


def main() -> None:
    """Measure and write the record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path(__file__).with_suffix(".json"))
    path = parser.parse_args().output
    rows = []
    for batch in (1, 32):
        products = {model: products_of(model, batch) for model in MODELS}
        for (name, chip), work in product(CHIPS.items(), ("forward", "step")):
            chosen = {model: each[work] for model, each in products.items()}
            rows.append({"chip": name, "batch": batch, "work": work} | study(chip, chosen))
            print(json.dumps(rows[-1]), flush=True)
    record = {"_meta": {"version": phaze_opt.__version__, "estimator": "analytic"}, "rows": rows}
    path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
