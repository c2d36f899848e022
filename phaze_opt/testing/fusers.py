"""The conformance suite of fusers.

A plug-in author derives a test class and overrides one fixture:

    class TestMine(FuserConformance):
        @pytest.fixture
        def fuser(self):
            return MyFuser()

A fuser that declares itself exact must reach what trying all groups finds on small chains; how much one that does not
loses there is measured, and reported as the property ``regret`` of the test.
"""

import math
import pickle
from collections.abc import Callable
from itertools import product

import numpy as np
import pytest

from phaze_opt.schedule.layer_fusion import (
    NUM_PLACES,
    Fuser,
    FusionChoice,
    FusionGroup,
    FusionProblem,
    groups_s,
    no_groups,
)
from phaze_opt.testing.isolation import assert_imports_cheaply, global_generators, in_spawned_process

_CHOICES = (FusionChoice(), FusionChoice(2), FusionChoice(2, holds_weights=True))
_CLOSE = 1e-9


def drawn_problem(seed: int, *, num_layers: int = 5, num_slices: int = 4, capacity_bytes: int = 40) -> FusionProblem:
    """A drawn chain: some borders that nothing may cross, some ways that cannot run, and each layer alone can."""
    generator = np.random.default_rng(seed)
    seconds = generator.uniform(1.0, 2.0, (3, len(_CHOICES), NUM_PLACES, num_slices))
    # Less to move in the middle of a group, and more with less of the buffer.
    seconds *= np.array([1.0, 0.9, 0.8, 0.6])[:, None] * (1.0 + 0.1 * np.arange(num_slices))
    seconds[generator.random(seconds.shape) < 0.05] = np.inf
    seconds[:, 0, 0, 0] = 2.0
    borders = generator.integers(1, 25, num_layers - 1)
    borders[generator.random(num_layers - 1) < 0.1] = -1
    weights = generator.integers(0, 12, num_layers)
    return FusionProblem(generator.integers(0, 3, num_layers), borders, weights, _CHOICES, capacity_bytes, seconds)


def tried_s(problem: FusionProblem) -> float:
    """The least that any groups take, of all that there are; reserves are counted tensor by tensor here, s."""
    layers = range(problem.num_layers)
    best = math.inf
    for cuts in product((False, True), repeat=problem.num_layers - 1):
        firsts = [0, *(place for place in layers[1:] if cuts[place - 1])]
        stops = [*firsts[1:], problem.num_layers]
        best = min(best, sum(_group_s(problem, a, b) for a, b in zip(firsts, stops, strict=True)))
    return best


def _group_s(problem: FusionProblem, first: int, stop: int) -> float:
    inner = range(first, stop - 1)
    if any(problem.border_bytes[place] < 0 for place in inner):
        return math.inf
    found = []
    for number, choice in enumerate(problem.choices):
        live = [
            sum(int(problem.border_bytes[place]) for place in (layer - 1, layer) if place in inner)
            for layer in range(first, stop)
        ]
        weights = sum(int(each) for each in problem.weight_bytes[first:stop]) if choice.holds_weights else 0
        needed = math.ceil(max(live) / choice.num_parts) + weights
        slices = math.ceil(needed * problem.num_slices / problem.capacity_bytes)
        if slices >= problem.num_slices:
            continue
        places = [(layer < stop - 1) + 2 * (layer > first) for layer in range(first, stop)]
        kinds = problem.kinds[first:stop]
        found.append(sum(problem.seconds[k, number, p, slices] for k, p in zip(kinds, places, strict=True)))
    return min(found, default=math.inf)


def fused_s(fuser: Fuser, seed: int) -> tuple[FusionGroup, ...]:
    """Groups of a drawn chain; a function, for another process."""
    return fuser.fuse(drawn_problem(seed, num_layers=12), seed=seed)


class FuserConformance:
    """Tests that every fuser passes; override `fuser`, and `max_regret` if yours is not exact."""

    max_regret = 1.0
    """Largest share of the least time that a fuser that is not exact may take beyond it here."""

    @pytest.fixture
    def fuser(self) -> Fuser:
        """The fuser under test."""
        raise NotImplementedError

    def test_declares_itself(self, fuser: Fuser) -> None:
        """It has a name and says whether it is exact."""
        assert isinstance(fuser, Fuser)
        assert fuser.name
        assert isinstance(fuser.is_exact, bool)

    def test_groups_are_whole_and_run(self, fuser: Fuser) -> None:
        """All layers are in one group each; no group is infinite, and all take no longer than each layer alone."""
        for seed in range(8):
            problem = drawn_problem(seed, num_layers=seed + 1)
            found = groups_s(problem, fuser.fuse(problem, seed=seed))
            assert found <= groups_s(problem, no_groups(problem)) * (1.0 + _CLOSE)

    def test_against_all_groups(self, fuser: Fuser, record_property: Callable[[str, object], None]) -> None:
        """An exact one takes the least time that there is."""
        regrets = []
        for seed in range(12):
            problem = drawn_problem(seed)
            regrets.append(groups_s(problem, fuser.fuse(problem, seed=seed)) / tried_s(problem) - 1.0)
        record_property("regret", float(max(regrets)))
        assert min(regrets) >= -_CLOSE
        assert max(regrets) <= (_CLOSE if fuser.is_exact else self.max_regret)

    def test_nothing_stays_without_a_buffer(self, fuser: Fuser) -> None:
        """Where no reserve fits every layer is a group."""
        problem = drawn_problem(3, capacity_bytes=0)
        assert len(fuser.fuse(problem)) == problem.num_layers

    def test_is_reproducible_and_has_no_side_effects(self, fuser: Fuser) -> None:
        """The same groups again, as a copy and in another process; the problem and shared generators stay."""
        problem, before = drawn_problem(5, num_layers=12), global_generators()
        kept = pickle.dumps(problem.seconds)
        found = fuser.fuse(problem, seed=5)
        assert fused_s(pickle.loads(pickle.dumps(fuser)), 5) == found
        assert in_spawned_process(fused_s, fuser, 5) == found
        assert pickle.dumps(problem.seconds) == kept
        assert pickle.dumps(global_generators()) == pickle.dumps(before)

    def test_is_imported_cheaply(self, fuser: Fuser) -> None:
        """Its module pulls in nothing heavy."""
        assert_imports_cheaply(fuser)
