"""The future-proofing study of Kao et al. on loop nests with one buffer; writes its record beside.

    python experiments/flexibility/loop_nests.py [--output FILE]

Layers of seven models, forward, one sample (BERT: 512 tokens), convolutions as nests over K C Y X R S. Frozen is, of
the mappings that are best for one layer of AlexNet, the one that is best for all of AlexNet. Each class of freedom is
then given the same multipliers, buffer and memory. "K x C" is frozen by hand: 32 output by 32 input channels.
"""

import argparse
import json
import math
from collections import Counter
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from future_proofing import MODELS, products_of
from map_space import LoopNest, NestChip, NestMapping, best_mapping, class_of, find_flexion

import phaze_opt
from phaze_opt.graph.operator import Matmul
from phaze_opt.hardware.flexibility import Freedom

MULTIPLIERS = 1024
ROOM = 1 << 16
RATES = {"64 GB/s": 32.0, "16 GB/s": 8.0, "no limit": 1e12}
"""Elements of 2 bytes a cycle at 1 GHz."""
KERNELS = (11, 7, 5, 3, 1)
LARGEST_STRIDE = 2
RIGID, FREE = (Freedom.FIXED,) * 4, (Freedom.FULL,) * 4


def nest_of(shape: Matmul, *, has_pixels: bool) -> LoopNest:
    """The loops of a product; of a convolution by the kernel and stride that its sizes admit."""
    edge = math.isqrt(shape.m)
    is_square = has_pixels and edge * edge == shape.m and edge > 1
    if not is_square:
        return LoopNest((shape.n, shape.k, shape.m, 1, 1, 1), repeats=shape.batch)
    channels_at_once = shape.batch if shape.is_grouped else 1
    if not shape.left_elements:
        return LoopNest((shape.n, shape.k, edge, edge, 1, 1), repeats=channels_at_once)
    for kernel in KERNELS:
        channels, rest = divmod(shape.k, kernel * kernel)
        size = math.isqrt(shape.left_elements // channels) if channels else 0
        if not rest and size >= edge and channels * size * size == shape.left_elements:
            stride = max(1, round(size / edge))
            if shape.is_grouped:
                return LoopNest((1, shape.batch, edge, edge, kernel, kernel), stride, is_depthwise=True)
            return LoopNest((shape.n, channels, edge, edge, kernel, kernel), stride)
    message = f"{shape} is no convolution of a square kernel"
    raise ValueError(message)


def nests_of(model: str) -> Counter[LoopNest]:
    """Distinct nests of a model's forward products, and how often each comes."""
    operators = products_of(model, 1)["forward"].operators
    has_pixels = not model.startswith(("bert", "dlrm", "ncf"))
    return Counter(nest_of(shape, has_pixels=has_pixels) for one in operators for shape in one.matmuls)


def cycles(chip: NestChip, nests: Counter[LoopNest]) -> float:
    """Of a whole model."""
    return sum(count * best_mapping(chip, nest)[0] for nest, count in nests.items())


def fits_later(tile: tuple[int, ...]) -> bool:
    """Whether a tile fits where strides are as large as the later models'."""
    k, c, y, x, r, s = tile
    inputs = c * ((y - 1) * LARGEST_STRIDE + r) * ((x - 1) * LARGEST_STRIDE + s)
    return k * c * r * s + inputs + max(k, c) * y * x <= ROOM


def frozen_for(nests: Counter[LoopNest], free: NestChip) -> NestMapping:
    """Of the mappings that are best for one nest the one that is best for all."""
    found = [best_mapping(free, nest)[1] for nest in nests]
    rigid = [replace(free, own=each, freedoms=RIGID) for each in found if fits_later(each.tile)]
    return min(rigid, key=lambda chip: cycles(chip, nests)).own


def study(rate: float, models: dict[str, Counter[LoopNest]], own: NestMapping | None = None) -> dict[str, Any]:
    """Speed of every class over the frozen chip."""
    by_hand = NestMapping((64, 32, 7, 7, 3, 3), (0, 1, 2, 3, 4, 5), (0, 1), (32, 32))
    free = NestChip(MULTIPLIERS, ROOM, rate, own or by_hand, FREE)
    frozen = replace(free, own=own or frozen_for(models["alexnet"], free))
    classes = [
        replace(frozen, freedoms=tuple(Freedom.FULL if bit else Freedom.FIXED for bit in bits))
        for bits in product((0, 1), repeat=4)
    ]
    taken = {model: [cycles(chip, nests) for chip in classes] for model, nests in models.items()}
    speed = {model: np.array(times[0]) / times for model, times in taken.items()}
    mean = np.exp(np.mean([np.log(each) for each in speed.values()], axis=0))
    names = [class_of(chip.freedoms) for chip in classes]
    return {
        "frozen": {
            "tile": frozen.own.tile,
            "order": frozen.own.order,
            "pair": frozen.own.pair,
            "shape": frozen.own.shape,
        },
        "mean": {name: round(float(each), 3) for name, each in zip(names, mean, strict=True)},
        "full": {model: round(float(each[-1]), 3) for model, each in speed.items()},
        "parallelism_and_shape": {model: round(float(each[3]), 3) for model, each in speed.items()},
    }


def counts(models: dict[str, Counter[LoopNest]], own: NestMapping) -> dict[str, Any]:
    """Size of the map space of the largest layer of ResNet-50, and shares of part freedom."""
    nest = max(models["resnet-50"], key=lambda each: each.macs)
    free, part = (NestChip(MULTIPLIERS, ROOM, 1.0, own, (level,) * 4) for level in (Freedom.FULL, Freedom.PART))
    flexion = find_flexion(part, nest)
    return {
        "nest": nest.extents,
        "mappings": {"full": free.count_mappings(nest), "part": part.count_mappings(nest)},
        "part": {"hardware": flexion.hardware, "workload": flexion.workload, "of_mappings": flexion.of_mappings},
    }


def main() -> None:
    """Measure and write the record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path(__file__).with_suffix(".json"))
    path = parser.parse_args().output
    models = {model: nests_of(model) for model in MODELS}
    rows = []
    for name, rate in RATES.items():
        rows.append({"memory": name} | study(rate, models))
        print(json.dumps(rows[-1]), flush=True)
    by_hand = NestMapping((64, 32, 7, 7, 3, 3), (0, 1, 2, 3, 4, 5), (0, 1), (32, 32))
    rows.append({"memory": "no limit", "frozen by hand": "K x C"} | study(RATES["no limit"], models, by_hand))
    print(json.dumps(rows[-1]), flush=True)
    record = {
        "_meta": {"version": phaze_opt.__version__, "multipliers": MULTIPLIERS, "buffer_elements": ROOM},
        "rows": rows,
        "map_space": counts(models, by_hand),
    }
    path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
