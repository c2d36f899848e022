"""`exhaustive` and `grid` enumerate: each point once, in a fixed order, starting points not again."""

from dataclasses import replace

import numpy as np
import pytest
from toy_runs import SPACE, search_toy, toy_context

from phaze_opt.errors import InputError
from phaze_opt.hardware.networks import load_network
from phaze_opt.hardware.silicon.silicon import silicon_of
from phaze_opt.plugins import PluginGroup, load_plugin
from phaze_opt.search.config import SearchConfig
from phaze_opt.search.samplers.grid import ExhaustiveStrategy
from phaze_opt.search.strategy import Capability, Outcome
from phaze_opt.space.known_spaces import die_space, phaze_space


def run_of(name, **options):
    return load_plugin(PluginGroup.STRATEGIES, name).start(toy_context(num_trials=SPACE.size, **options))


def ask_all(run, *, count=100):
    points = []
    while batch := run.ask(count):
        points += batch
        run.tell([Outcome(number, point, (1.0,)) for number, point in enumerate(batch)])
    return points


@pytest.mark.parametrize("name", ["exhaustive", "grid"])
@pytest.mark.parametrize("count", [1, 7, 4096])
def test_each_point_once_whatever_the_batch(name, count):
    points = ask_all(run_of(name), count=count)
    assert sorted(points) == sorted(SPACE.points())
    assert points == ask_all(run_of(name))


@pytest.mark.parametrize(("name", "options"), [("exhaustive", {}), ("grid", {}), ("grid", {"order": "space"})])
def test_starting_points_are_not_proposed_again(name, options):
    starts = [SPACE.point(index) for index in (0, 17, SPACE.size - 1)]
    run = run_of(name, **options)
    run.tell([Outcome(number, point, ()) for number, point in enumerate(starts)])
    points = ask_all(run)
    assert len(points) == SPACE.size - 3
    assert not set(points) & set(starts)
    assert points == [point for point in ask_all(run_of(name, **options)) if point not in starts]


def test_asks_are_full_while_points_are_left():
    run = run_of("exhaustive")
    first = run_of("exhaustive").ask(5)
    run.tell([Outcome(0, first[0], ()), Outcome(1, first[3], ())])
    assert run.ask(3) == (first[1], first[2], first[4])


def test_it_is_declared_fixed_and_takes_no_options():
    assert {Capability.EXHAUSTS, Capability.FIXED_ORDER} <= ExhaustiveStrategy().capabilities
    with pytest.raises(InputError, match="order"):
        run_of("exhaustive", order="space")


@pytest.mark.parametrize("pruner", ["", "critical-path"])
def test_a_search_with_starting_points_covers_the_space(tmp_path, pruner):
    config = SearchConfig("exhaustive", num_trials=SPACE.size, num_starts=3, pruner=pruner, work_dir=tmp_path)
    result = search_toy(config)
    points = [trial.point for trial in result.trials]
    assert len(points) == len(set(points)) == SPACE.size - result.pruned
    assert result.is_exhausted or not pruner


@pytest.mark.parametrize("name", ["tiny", "phaze"])
def test_points_are_decoded_as_the_space_does(name):
    space = SPACE if name == "tiny" else phaze_space()
    indices = np.random.default_rng(0).choice(space.size, size=300, replace=False)
    assert space.points_at(indices) == tuple(space.point(int(index)) for index in indices)
    assert space.points_at(indices[:0]) == ()
    for index in (-1, space.size):
        with pytest.raises(InputError, match="do not all exist"):
            space.points_at(np.array([0, index]))


def test_points_check_their_sizes():
    """The quick check of a point still names the field."""
    for name, value in (("glb_bytes", 0), ("micro_batch", -1)):
        with pytest.raises(InputError, match=f"{name} = {value}"):
            replace(SPACE.point(0), **{name: value})


def test_a_space_too_large_to_enumerate_names_a_proof():
    silicon = silicon_of(7, load_network("two-level", num_devices=8))
    context = replace(toy_context(SPACE), space=die_space(silicon, micro_batches=(1,)))
    with pytest.raises(InputError, match=r"at most 500,000 points and the space die has 1,983,866"):
        ExhaustiveStrategy().start(context)
