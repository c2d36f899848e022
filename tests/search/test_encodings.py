"""Encodings of the ablation: each reaches every kept point, and none proposes another."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from optuna.distributions import IntDistribution
from toy_runs import SPACE, fill, toy_context

from phaze_opt.errors import InputError
from phaze_opt.hardware.chip_template import DesignPoint
from phaze_opt.search.encodings import CODEC, EXPONENTS, LIFTED, Rejected, build_encoding
from phaze_opt.search.samplers.optuna_sampler import CmaEsStrategy, RandomStrategy, TPEStrategy
from phaze_opt.search.samplers.sampler_run import SamplerRun, find_unseen
from phaze_opt.search.strategy import Outcome
from phaze_opt.space.codec import Codec
from phaze_opt.space.search_space import SearchSpace

NAMES = (CODEC, EXPONENTS, LIFTED)


def no_singles() -> SearchSpace:
    """A space without designs of one core, so that some blocks keep nothing."""
    axes = replace(SPACE.axes, num_tc=(2, 4, 8, 16), num_vc=(4, 8, 16), tc_width=(16, 64, 128))
    return replace(SPACE, axes=axes, name="no-singles", min_area_fraction=0.8)


def all_proposals(space: SearchSpace, name: str) -> list[DesignPoint | Rejected]:
    encoding = build_encoding(name, space)
    distributions = encoding.distributions()
    ranges = []
    for known in distributions.values():
        assert isinstance(known, IntDistribution)
        ranges.append(range(known.low, known.high + 1))
    return [encoding.decode(dict(zip(distributions, values, strict=True))) for values in itertools.product(*ranges)]


@pytest.mark.parametrize("space", [SPACE, no_singles()], ids=lambda space: space.name)
@pytest.mark.parametrize("name", NAMES)
def test_every_kept_point_is_proposed_and_no_other(name: str, space: SearchSpace) -> None:
    proposed = {found for found in all_proposals(space, name) if isinstance(found, DesignPoint)}
    assert proposed == set(space.points())


@pytest.mark.parametrize("space", [SPACE, no_singles()], ids=lambda space: space.name)
@pytest.mark.parametrize("name", NAMES)
def test_decode_inverts_encode(name: str, space: SearchSpace) -> None:
    encoding = build_encoding(name, space)
    for point in space.points():
        assert encoding.decode(encoding.encode(point)) == point


def test_exponents_reject_exactly_what_is_not_kept_by_what_it_breaks() -> None:
    proposals = all_proposals(SPACE, EXPONENTS)
    rejected = [found for found in proposals if isinstance(found, Rejected)]
    joined = len(SPACE.axes.hbm_bytes) * len(SPACE.axes.micro_batch)
    assert len(proposals) == SPACE.num_candidates * joined
    assert len(rejected) == (SPACE.num_candidates - SPACE.num_architectures) * joined
    assert all(found.violation > 0 for found in rejected)
    assert len({found.violation for found in rejected}) > 10


def test_codec_and_lifted_never_reject() -> None:
    for name in (CODEC, LIFTED):
        assert not any(isinstance(found, Rejected) for found in all_proposals(SPACE, name))


def cores(number: int, point: DesignPoint) -> Outcome:
    return Outcome(number, point, (float(point.num_tc),))


@pytest.mark.parametrize("strategy", [TPEStrategy(), RandomStrategy(), CmaEsStrategy()], ids=lambda one: one.name)
@pytest.mark.parametrize("encoding", NAMES)
def test_every_encoding_fills_the_budget_with_kept_points(
    strategy: TPEStrategy | RandomStrategy | CmaEsStrategy, encoding: str
) -> None:
    points = fill(strategy.start(toy_context(encoding=encoding)), 24, cores)
    assert len(points) == 24
    assert all(SPACE.contains(point) for point in points)


def test_rejected_proposals_are_told_as_infeasible_and_not_handed_out() -> None:
    run = TPEStrategy().start(toy_context(encoding=EXPONENTS))
    assert isinstance(run, SamplerRun)
    fill(run, 24, cores)
    rejected = [trial for trial in run.study.trials if trial.constraints.get("kept", -1.0) > 0]
    assert rejected
    assert len(run.study.trials) >= 24 + len(rejected)


def test_an_unknown_encoding_is_refused() -> None:
    for strategy in (TPEStrategy(), RandomStrategy(), CmaEsStrategy()):
        with pytest.raises(InputError, match="encoding"):
            strategy.start(toy_context(encoding="gray"))


def small_space() -> SearchSpace:
    axes = replace(SPACE.axes, num_tc=(8, 16), num_vc=(1, 2, 4), tc_width=(32,), micro_batch=(1,))
    return replace(SPACE, axes=axes)


@pytest.mark.parametrize("strategy", [TPEStrategy(), CmaEsStrategy()], ids=lambda one: one.name)
def test_repeats_are_avoided_unless_allowed(strategy: TPEStrategy | CmaEsStrategy) -> None:
    """A space of few points: what remembers its proposals sees more of them."""
    space = small_space()
    avoiding = fill(strategy.start(toy_context(space=space, avoid_repeats=True)), space.size, cores)
    allowing = fill(strategy.start(toy_context(space=space, avoid_repeats=False)), space.size, cores)
    assert len(set(avoiding)) == space.size
    assert len(set(allowing)) < space.size


def test_repeats_are_proposed_when_nothing_new_is_left() -> None:
    small = small_space()
    run = TPEStrategy().start(toy_context(space=small))
    points = fill(run, small.size + 6, cores)
    assert set(points) == set(small.points())


def test_a_walk_finds_the_only_unseen_neighbour() -> None:
    codec, rng = Codec(SPACE), np.random.default_rng(0)
    target = SPACE.point(10)
    seen = set(SPACE.points()) - {target}
    found = [find_unseen(codec, codec.encode(SPACE.point(9)), seen=seen, rng=rng) for _ in range(20)]
    assert set(found) <= {target, None}
    assert target in found
