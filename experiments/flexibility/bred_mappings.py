"""Mappings bred as DiGamma breeds them against the best of the same space; writes its record beside.

    python experiments/flexibility/bred_mappings.py [--output FILE]

For every loop nest of a model the genes are tile sizes (halvings of extents), loop order, parallel pair and shape; the
rates, elites and parents are DiGamma's (`search.digamma`): crossover 0.57, reorder 0.47, tile mutation 0.53, parallel
dimensions 0.1, populations of 20, `SAMPLES` mappings a nest. Seconds are of the processor, kernels compiled.
"""

import argparse
import json
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from loop_nests import FREE, MULTIPLIERS, RIGID, ROOM, nests_of
from map_space import ORDERS, PAIRS, LoopNest, NestChip, NestMapping, best_mapping

import phaze_opt
from phaze_opt.hardware.flexibility import shapes_of
from phaze_opt.search.strategies.digamma import DigammaOptions

SAMPLES, RATE, SEEDS = 1000, 8.0, 3
MODELS = ("alexnet", "mobilenet-v2", "resnet-50")
SHAPES = shapes_of(32, 32, 3)
RATES = DigammaOptions()
OWN = NestMapping((1,) * 6, ORDERS[0], PAIRS[0], SHAPES[0])


def sizes_of(extent: int) -> list[int]:
    """Tile sizes of a loop."""
    return sorted({-(-extent >> step) for step in range(extent.bit_length())})


def fits(nest: LoopNest, tile: tuple[int, ...]) -> bool:
    """Whether a tile fits the buffer."""
    k, c, y, x, r, s = tile
    inputs = c * ((y - 1) * nest.stride + r) * ((x - 1) * nest.stride + s)
    return k * c * r * s + inputs + (c if nest.is_depthwise else k) * y * x <= ROOM


def random_mapping(nest: LoopNest, rng: np.random.Generator) -> NestMapping:
    """A mapping whose tile fits, each gene drawn alike."""
    while True:
        tile = tuple(int(rng.choice(sizes_of(extent))) for extent in nest.extents)
        if fits(nest, tile):
            break
    order, pair, shape = (each[int(rng.integers(len(each)))] for each in (ORDERS, PAIRS, SHAPES))
    return NestMapping(tile, order, pair, shape)


def child_of(nest: LoopNest, first: NestMapping, second: NestMapping, rng: np.random.Generator) -> NestMapping:
    """A child by DiGamma's operators; of the first parent's tile where its own does not fit."""
    child, new = first, random_mapping(nest, rng)
    if rng.random() < RATES.crossover_rate:
        takes = rng.random(4) < 0.5
        pairs = zip(("tile", "order", "pair", "shape"), takes, strict=True)
        child = replace(child, **{name: getattr(second, name) for name, is_taken in pairs if is_taken})
    if rng.random() < RATES.reorder_rate:
        child = replace(child, order=new.order)
    if rng.random() < RATES.mutation_rate:
        tile = list(child.tile)
        for site in rng.integers(6, size=RATES.mutation_sites):
            tile[site] = new.tile[site]
        child = replace(child, tile=tuple(tile))
    if rng.random() < RATES.swap_rate:
        child = replace(child, pair=new.pair)
    if rng.random() < RATES.hardware_rate:
        child = replace(child, shape=new.shape)
    return child if fits(nest, child.tile) else replace(child, tile=first.tile)


def bred(chip: NestChip, nest: LoopNest, rng: np.random.Generator) -> float:
    """Least cycles of `SAMPLES` mappings of one nest."""
    size = RATES.population

    def cycles(mapping: NestMapping) -> float:
        return best_mapping(replace(chip, own=mapping, freedoms=RIGID), nest)[0]

    ranked = sorted(((cycles(each), number, each) for number, each in _draws(nest, size, rng)), key=lambda one: one[:2])
    number = size
    while number < SAMPLES:
        parents = [each for *_, each in ranked[: round(RATES.parent_share * size)]]
        children = []
        for _ in range(size - 1):
            first, second = (parents[int(rng.integers(len(parents)))] for _ in range(2))
            child = child_of(nest, first, second, rng)
            children.append((cycles(child), number, child))
            number += 1
        ranked = sorted([ranked[0], *children], key=lambda one: one[:2])
    return ranked[0][0]


def _draws(nest: LoopNest, size: int, rng: np.random.Generator) -> list[tuple[int, NestMapping]]:
    return [(number, random_mapping(nest, rng)) for number in range(size)]


def compare(model: str) -> dict[str, Any]:
    """Cycles of a model with bred mappings over those with the best, and the processor time of both."""
    nests: Counter[LoopNest] = nests_of(model)
    chip = NestChip(MULTIPLIERS, ROOM, RATE, OWN, FREE)
    best_mapping(chip, next(iter(nests)))
    started = time.process_time()
    exact = sum(count * best_mapping(chip, nest)[0] for nest, count in nests.items())
    exact_s, started = time.process_time() - started, time.process_time()
    ratios = []
    for seed in range(SEEDS):
        rng = np.random.default_rng(seed)
        ratios.append(sum(count * bred(chip, nest, rng) for nest, count in nests.items()) / exact)
    bred_s = (time.process_time() - started) / SEEDS
    return {
        "model": model,
        "nests": len(nests),
        "bred_over_exact": [round(each, 4) for each in ratios],
        "exact_s": round(exact_s, 3),
        "bred_s": round(bred_s, 2),
    }


def main() -> None:
    """Measure and write the record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path(__file__).with_suffix(".json"))
    path = parser.parse_args().output
    rows = []
    for model in MODELS:
        rows.append(compare(model))
        print(json.dumps(rows[-1]), flush=True)
    meta = {"version": phaze_opt.__version__, "samples": SAMPLES, "elements_per_cycle": RATE}
    path.write_text(json.dumps({"_meta": meta, "rows": rows}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
