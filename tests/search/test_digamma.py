"""DiGamma: each operator by what it must and must not change, its generations, and that it beats chance."""

from collections import Counter
from dataclasses import asdict, replace

import numpy as np
import pytest
from toy_runs import SPACE, fill, toy_context

from phaze_opt.hardware.chip_template import DesignPoint
from phaze_opt.search.strategies.digamma import (
    HARDWARE,
    DigammaOptions,
    DigammaStrategy,
    breed,
    cross,
    exchange,
    mutate,
    redraw,
    scale_cores,
)
from phaze_opt.search.strategies.genome import build_genome
from phaze_opt.search.strategy import Outcome
from phaze_opt.space.search_space import SearchSpace

GENOME = build_genome(SPACE)
RATES = ("crossover_rate", "reorder_rate", "mutation_rate", "hardware_rate", "swap_rate", "grow_rate", "age_rate")
NEVER = DigammaOptions(**dict.fromkeys(RATES, 0.0))
ALWAYS = DigammaOptions(**dict.fromkeys(RATES, 1.0), mutation_sites=5)


def draw(seed: int):  # type: ignore[no-untyped-def]
    return GENOME.draw(np.random.default_rng(seed))


@pytest.mark.parametrize("seed", range(20))
def test_no_operator_leaves_the_ranges_or_touches_its_parents(seed: int) -> None:
    rng = np.random.default_rng(seed)
    first, second = draw(seed), draw(seed + 100)
    before = first.copy(), second.copy()
    child = breed(GENOME, first, second, options=ALWAYS, rng=rng)
    assert (child >= 0).all()
    assert (child < np.array(GENOME.counts)).all()
    assert (first == before[0]).all()
    assert (second == before[1]).all()


def test_without_operators_a_child_is_its_first_parent() -> None:
    assert (breed(GENOME, draw(1), draw(2), options=NEVER, rng=np.random.default_rng(0)) == draw(1)).all()


def test_crossover_mixes_both_parents_evenly() -> None:
    first, second = np.zeros(1000, dtype=np.int64), np.ones(1000, dtype=np.int64)
    assert 400 < cross(first, second, rng=np.random.default_rng(0)).sum() < 600


def test_exchange_swaps_what_two_axes_mean() -> None:
    """Width runs from 32 to 128, depth from 32 to 64: 64 x 32 becomes 32 x 64; 128 x 32 is clipped to 32 x 64."""
    width, depth = GENOME.locus("tc_width"), GENOME.locus("tc_depth")
    assert width is not None
    assert depth is not None
    genes = np.zeros(GENOME.num_genes, dtype=np.int64)
    for gene, expected in ((0, (32, 32)), (1, (32, 64)), (2, (32, 64))):
        genes[width] = gene
        turned = GENOME.decode(exchange(GENOME, genes, "tc_width", "tc_depth"))
        assert (turned.tc_width, turned.tc_depth) == expected
    both = exchange(GENOME, draw(3), "tc_halvings", "vc_halvings")
    changed = np.flatnonzero(both != draw(3))
    assert set(changed) <= {GENOME.locus("tc_halvings"), GENOME.locus("vc_halvings")}


def test_mutation_moves_at_most_its_sites_by_one_step_each_time() -> None:
    rng = np.random.default_rng(0)
    distances = [int(abs(mutate(GENOME, draw(seed), num_sites=1, rng=rng) - draw(seed)).sum()) for seed in range(200)]
    assert set(distances) == {1}
    distances = [int(abs(mutate(GENOME, draw(seed), num_sites=3, rng=rng) - draw(seed)).sum()) for seed in range(200)]
    assert max(distances) == 3


def test_hardware_mutation_changes_exactly_one_hardware_gene() -> None:
    rng = np.random.default_rng(0)
    counted: Counter[int] = Counter()
    for seed in range(300):
        changed = np.flatnonzero(redraw(GENOME, draw(seed), HARDWARE, rng=rng) != draw(seed))
        assert len(changed) == 1
        counted[int(changed[0])] += 1
    assert set(counted) == set(range(GENOME.num_genes)) - {GENOME.locus("micro_batch")}


def test_mappings_that_a_space_opens_are_bred() -> None:
    """Reordering draws the loop order anew, swapping the split; where a space has neither nothing is drawn."""
    opened = {"loop_order": (1, 2, 3), "core_split": (1, 3), "array_shape": (1, 2)}
    space = SearchSpace(
        "mappings", replace(SPACE.axes, **opened), area_budget_um2=SPACE.area_budget_um2, min_area_fraction=0.0
    )
    genome, rng = build_genome(space), np.random.default_rng(0)
    order, split, shape = (genome.locus(name) for name in opened)
    assert None not in {order, split, shape}
    cores = {genome.locus("tc_halvings"), genome.locus("vc_halvings")}
    edges = {genome.locus("tc_width"), genome.locus("tc_depth")}
    for rate, switch, others in (("reorder_rate", order, cores), ("swap_rate", split, edges)):
        options = replace(NEVER, **{rate: 1.0})
        for seed in range(20):
            parent = genome.draw(np.random.default_rng(seed))
            changed = set(np.flatnonzero(breed(genome, parent, parent, options=options, rng=rng) != parent))
            assert switch in changed <= {switch, *others}
    seen = {point.loop_order for point in fill_run(space)}
    assert seen == set(opened["loop_order"])
    assert (redraw(GENOME, draw(0), ("loop_order",), rng=rng) == draw(0)).all()


def fill_run(space: SearchSpace) -> list[DesignPoint]:
    """Sixty points of a run to which free orders and shapes are better."""
    run = DigammaStrategy().start(toy_context(space=space))

    def judge(number: int, point: DesignPoint) -> Outcome:
        return Outcome(number, point, (float(point.array_shape - point.loop_order),))

    points = fill(run, 60, judge)
    late = [point for point in points[40:] if point.array_shape == 2]
    assert len(late) > 10, "children descend from the better half"
    return points


def test_growing_adds_cores_and_ageing_removes_them() -> None:
    rng = np.random.default_rng(0)
    loci = [GENOME.locus("tc_halvings"), GENOME.locus("vc_halvings")]
    for seed in range(50):
        for step in (-1, 1):
            change = scale_cores(GENOME, draw(seed), step=step, rng=rng) - draw(seed)
            assert change.sum() in {step, 0}
            assert set(np.flatnonzero(change)) <= set(loci)
    genes = np.zeros(GENOME.num_genes, dtype=np.int64)
    full, fewer = GENOME.decode(genes), GENOME.decode(scale_cores(GENOME, genes, step=1, rng=rng))
    assert (fewer.num_tc, fewer.num_vc) != (full.num_tc, full.num_vc)
    assert fewer.num_tc <= full.num_tc


def test_rates_are_those_of_the_paper() -> None:
    assert asdict(DigammaOptions()) == {
        "population": 20,
        "elite_share": 0.05,
        "parent_share": 0.4,
        "crossover_rate": 0.57,
        "reorder_rate": 0.47,
        "mutation_rate": 0.53,
        "mutation_sites": 3,
        "hardware_rate": 0.5,
        "first_hardware_rate": 1.0,
        "swap_rate": 0.1,
        "grow_rate": 0.57,
        "age_rate": 0.27,
    }


def test_the_first_generation_is_random_and_the_next_descends_from_the_best() -> None:
    """Without operators children are copies, which are not proposed again: so only random points come, as it says."""
    quiet = {name: 0.0 for name in ("crossover_rate", "reorder_rate", "mutation_rate", "hardware_rate", "swap_rate")}
    quiet |= {"first_hardware_rate": 1.0, "grow_rate": 0.0, "age_rate": 0.0}
    run = DigammaStrategy().start(toy_context(population=8, **quiet))
    first = run.ask(8)
    run.tell([Outcome(number, point, (float(number),)) for number, point in enumerate(first)])
    # Parents are the best 40 %, three of eight; hardware mutation changes one gene of one of them.
    parents = [GENOME.encode(point) for point in first[-3:]]
    for child in run.ask(7):
        genes = GENOME.encode(child)
        assert min(np.count_nonzero(genes != parent) for parent in parents) <= 3
        assert child.micro_batch in {point.micro_batch for point in first[-3:]}


def test_the_elite_survives_a_bad_generation() -> None:
    run = DigammaStrategy().start(toy_context(population=6))
    first = run.ask(6)
    run.tell([Outcome(number, point, (100.0 if number == 2 else 1.0,)) for number, point in enumerate(first)])
    for _ in range(4):
        run.tell([Outcome(9, point, (0.0,)) for point in run.ask(5)])
    assert run._population[0] == first[2]  # type: ignore[attr-defined]


def test_starting_points_belong_to_the_first_generation() -> None:
    run = DigammaStrategy().start(toy_context(population=5))
    starts = [SPACE.point(index) for index in (1, 200, 400)]
    run.tell([Outcome(number, point, (1.0,)) for number, point in enumerate(starts)])
    asked = run.ask(2)
    assert not set(asked) & set(starts)
    run.tell([Outcome(3 + number, point, (2.0,)) for number, point in enumerate(asked)])
    assert set(run._population) == {*starts, *asked}  # type: ignore[attr-defined]


def test_pruned_points_take_part_by_their_bound() -> None:
    run = DigammaStrategy().start(toy_context(population=4))
    points = run.ask(4)
    told = [
        Outcome(0, points[0], (1.0,)),
        Outcome(-1, points[1], (0.5,), is_pruned=True),
        Outcome(-1, points[2], (), is_pruned=True),
        Outcome(1, points[3], (), (("memory", 0.1),)),
    ]
    run.tell(told)
    assert run._population == [points[0], points[1], points[3], points[2]]  # type: ignore[attr-defined]
