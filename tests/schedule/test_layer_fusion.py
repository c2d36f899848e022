"""Layer fusion: every fuser passes the suite, the program is fast, and chains that cannot be are refused."""

import time
from dataclasses import replace

import numpy as np
import pytest

from phaze_opt.errors import InputError
from phaze_opt.plugins import PluginGroup, load_plugin
from phaze_opt.schedule.genetic_fusion import GeneticFuser
from phaze_opt.schedule.layer_fusion import ExactFuser, Fuser, FusionGroup, group_layers_s, groups_s, no_groups
from phaze_opt.schedule.learned_fusion import LearnedFuser
from phaze_opt.testing.fusers import FuserConformance, drawn_problem, tried_s


class TestExact(FuserConformance):
    @pytest.fixture
    def fuser(self) -> Fuser:
        return ExactFuser()


class TestGenetic(FuserConformance):
    max_regret = 0.05

    @pytest.fixture
    def fuser(self) -> Fuser:
        return GeneticFuser()


class TestLearned(FuserConformance):
    """Chains of the suite are unlike any that it was taught: times of their layers have nothing to do with sizes."""

    max_regret = 0.3

    @pytest.fixture
    def fuser(self) -> Fuser:
        return LearnedFuser()


@pytest.mark.parametrize("name", ["exact", "genetic", "learned"])
def test_they_are_plug_ins(name: str) -> None:
    fuser = load_plugin(PluginGroup.FUSERS, name)
    assert isinstance(fuser, Fuser)
    assert fuser.name == name


def test_96_layers_take_less_than_a_second() -> None:
    problem = drawn_problem(1, num_layers=96, num_slices=16, capacity_bytes=1000)
    started = time.process_time()
    groups = ExactFuser().fuse(problem)
    assert time.process_time() - started < 1.0
    bred = groups_s(problem, GeneticFuser(num_samples=400).fuse(problem))
    assert groups_s(problem, groups) <= bred <= groups_s(problem, no_groups(problem))


@pytest.mark.parametrize("seed", range(20, 26))
def test_more_layers_than_tried_by_the_suite(seed: int) -> None:
    problem = drawn_problem(seed, num_layers=9, num_slices=3, capacity_bytes=60)
    groups = ExactFuser().fuse(problem)
    assert groups_s(problem, groups) == pytest.approx(tried_s(problem), rel=1e-9)
    assert group_layers_s(problem, groups).sum() == pytest.approx(groups_s(problem, groups), rel=1e-12)


def test_cheaper_ways_never_raise_the_least_time() -> None:
    problem = drawn_problem(7, num_layers=8)
    cheaper = replace(problem, seconds=problem.seconds * 0.5)
    smaller = replace(problem, border_bytes=np.where(problem.border_bytes > 0, 1, problem.border_bytes))
    least = groups_s(problem, ExactFuser().fuse(problem))
    assert groups_s(cheaper, ExactFuser().fuse(cheaper)) == pytest.approx(least / 2, rel=1e-9)
    # A reserve that is smaller leaves more of the buffer, and these times rise with the slices that are taken.
    rising = replace(problem, seconds=np.minimum.accumulate(problem.seconds[..., ::-1], axis=-1)[..., ::-1])
    assert groups_s(rising, ExactFuser().fuse(rising)) >= groups_s(
        replace(smaller, seconds=rising.seconds), ExactFuser().fuse(replace(smaller, seconds=rising.seconds))
    ) * (1 - 1e-9)


def test_what_is_no_chain_is_refused() -> None:
    problem = drawn_problem(2)
    with pytest.raises(InputError, match="one border less"):
        replace(problem, border_bytes=problem.border_bytes[1:])
    with pytest.raises(InputError, match="kinds x 3 choices x 4 places x slices"):
        replace(problem, seconds=problem.seconds[:, :2])
    with pytest.raises(InputError, match="must follow one another through 5"):
        groups_s(problem, (FusionGroup(0, 2, 0), FusionGroup(3, 5, 0)))
