"""Genomes and merits: what bred strategies stand on."""

import itertools
import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from toy_runs import SPACE, few_points

from phaze_opt.search.strategies.genome import Archive, build_genome, merit_of
from phaze_opt.search.strategy import Outcome

GENOME = build_genome(SPACE)


def test_every_point_is_encoded_within_its_ranges_and_decoded_again() -> None:
    for point in SPACE.points():
        genes = GENOME.encode(point)
        assert (genes >= 0).all()
        assert (genes < np.array(GENOME.counts)).all()
        assert GENOME.decode(genes) == point


@given(st.lists(st.integers(-5, 20), min_size=GENOME.num_genes, max_size=GENOME.num_genes))
def test_any_genes_mean_a_kept_point(genes: list[int]) -> None:
    assert SPACE.contains(GENOME.decode(np.array(genes)))


def test_loci_are_the_axes_of_their_names() -> None:
    stems = ("glb_mb", "tc_width", "tc_depth", "tc_halvings", "vc_halvings", "hbm_gb", "micro_batch")
    loci = [GENOME.locus(stem) for stem in stems]
    assert sorted(loci) == list(range(GENOME.num_genes))
    width = GENOME.locus("tc_width")
    genes = np.zeros(GENOME.num_genes, dtype=np.int64)
    assert width is not None
    genes[width] = 2
    assert GENOME.decode(genes).tc_width == SPACE.axes.tc_width[2]


def test_an_axis_of_one_value_has_no_gene() -> None:
    genome = build_genome(few_points((1,)))
    assert genome.num_genes == 0
    assert genome.locus("tc_width") is None
    assert genome.decode(genome.draw(np.random.default_rng(0))) == genome.codec.space.point(0)


def test_draws_reach_every_point() -> None:
    rng = np.random.default_rng(2)
    drawn = {GENOME.decode(GENOME.draw(rng)) for _ in range(3 * SPACE.size)}
    # With replacement 1 - exp(-3), 95 %, of the points are hit.
    assert len(drawn) > 0.93 * SPACE.size


POINT = SPACE.point(0)
BEST_TO_WORST = (
    Outcome(0, POINT, (5.0,)),
    Outcome(-1, POINT, (5.0,), is_pruned=True),
    Outcome(1, POINT, (4.0,), (("area", -0.1),)),
    Outcome(-1, POINT, (3.0,), is_pruned=True),
    Outcome(2, POINT, (), (("area", 0.1), ("memory", -0.5))),
    Outcome(3, POINT, (), (("area", 0.1), ("memory", 0.5))),
    Outcome(4, POINT, (), (("area", math.inf),)),
)


def test_merits_follow_debs_rules_and_bounds_come_after_values() -> None:
    merits = [merit_of(outcome, sign=1.0) for outcome in BEST_TO_WORST]
    assert all(better > worse for better, worse in itertools.pairwise(merits))


def test_what_says_nothing_of_its_violation_is_worst() -> None:
    silent = merit_of(Outcome(0, POINT, ()), sign=1.0)
    for outcome in BEST_TO_WORST:
        assert merit_of(outcome, sign=1.0) >= silent
    assert merit_of(Outcome(0, POINT, (), (("area", math.nan),)), sign=1.0) == silent


def test_a_falling_objective_turns_the_order() -> None:
    low, high = Outcome(0, POINT, (1.0,)), Outcome(1, POINT, (2.0,))
    assert merit_of(low, sign=-1.0) > merit_of(high, sign=-1.0)


def test_an_archive_keeps_the_first_telling_and_ranks_ties_by_age() -> None:
    points = [SPACE.point(index) for index in range(4)]
    archive = Archive(1.0)
    values = (1.0, 3.0, 3.0, 2.0)
    archive.add([Outcome(0, point, (value,)) for point, value in zip(points, values, strict=True)])
    archive.add([Outcome(4, points[0], (9.0,))])
    assert archive.best(3) == [points[1], points[2], points[3]]
    assert archive.best(99)[-1] == points[0]
