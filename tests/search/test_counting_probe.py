"""Probes are counted by architecture, and are no way to enumerate a space."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from toy_runs import SPACE, search_toy

from phaze_opt.errors import PluginError
from phaze_opt.hardware.chip_template import DesignPoint
from phaze_opt.objective.goals import Goal
from phaze_opt.search.config import SearchConfig
from phaze_opt.search.probe import CountingProbe, probe_limit
from phaze_opt.search.strategy import Capability, Outcome, StrategyContext
from phaze_opt.testing.problems import ToyBounder, ToyScenario

MANY_BATCHES = replace(SPACE, axes=replace(SPACE.axes, micro_batch=(1, 2, 4, 8, 16, 32)))


def make_probe(limit: int) -> CountingProbe:
    return CountingProbe(lambda: ToyBounder(ToyScenario()), Goal.THROUGHPUT, limit=limit, who="this test")


def test_micro_batches_of_one_architecture_count_once() -> None:
    point = MANY_BATCHES.point(0)
    variants = [replace(point, micro_batch=value) for value in MANY_BATCHES.axes.micro_batch]
    probe = make_probe(2)
    assert len(probe.bounds(variants)) == len(variants)
    probe.phases(variants[3])
    assert (probe.num_probes, probe.num_left) == (1, 1)


def test_more_than_the_limit_is_refused_and_not_counted() -> None:
    probe = make_probe(2)
    chips = [SPACE.point(index * len(SPACE.axes.micro_batch)) for index in range(3)]
    with pytest.raises(PluginError, match="this test probes more than the 2 architectures"):
        probe.bounds(chips)
    assert probe.num_probes == 0
    probe.bounds(chips[:2])
    with pytest.raises(PluginError, match="num_left"):
        probe.phases(chips[2])
    assert (probe.num_probes, probe.num_left) == (2, 0)


@pytest.mark.parametrize(
    ("num_trials", "num_architectures", "limit"), [(60, 29_360, 1200), (60, 100, 50), (1, 29_360, 20), (5, 1, 1)]
)
def test_the_limit_follows_the_budget_and_is_half_of_the_architectures(
    num_trials: int, num_architectures: int, limit: int
) -> None:
    assert probe_limit(num_trials, num_architectures) == limit


@dataclass(frozen=True, slots=True)
class Peeper:
    """Bounds every architecture it may and proposes the first points."""

    seen: list[int]
    name: str = "peeper"
    capabilities: frozenset[Capability] = frozenset({Capability.SINGLE_OBJECTIVE, Capability.PROBES})

    def start(self, context: StrategyContext) -> "Peeper":
        assert context.probe is not None
        self.seen.append(context.probe.num_left)
        return self

    def ask(self, count: int) -> Sequence[DesignPoint]:
        return [SPACE.point(index) for index in range(count)]

    def tell(self, outcomes: Sequence[Outcome]) -> None: ...


@pytest.mark.parametrize("space", [SPACE, MANY_BATCHES])
def test_no_search_may_probe_more_than_half_of_the_chips(
    space: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Points are several a chip, so that half of the points would be every chip there is."""
    seen: list[int] = []
    monkeypatch.setattr("phaze_opt.search.run.load_strategy", lambda name: Peeper(seen))
    search_toy(SearchConfig("peeper", num_trials=200, work_dir=tmp_path), space=space)
    chips = {replace(point, micro_batch=1) for point in SPACE.points()}
    assert seen == [len(chips) // 2]
