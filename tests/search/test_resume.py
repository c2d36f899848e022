"""Resuming: whatever was lost, the result is that of an uninterrupted run, and finished work is not done again."""

import json
import logging
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kits.fewer_cases import every
from kits.planted import plant
from toy_runs import SPACE, search_toy

from phaze_opt.errors import InputError
from phaze_opt.hardware.chip_template import DesignPoint
from phaze_opt.objective.evaluation import Evaluation
from phaze_opt.plugins import PluginOrigin
from phaze_opt.record.journal import Journal, format_line, parse_line, read_journal
from phaze_opt.search.config import SearchConfig, search_id
from phaze_opt.search.journal import keep_journal
from phaze_opt.search.result import SearchProgress, SearchResult
from phaze_opt.testing.problems import ToyObjective, ToyScenario


@dataclass(slots=True)
class Counter:
    """Counts evaluations of the search itself, and presses Ctrl-C in the one numbered ``stop_at``."""

    stop_at: int = -1
    count: int = 0
    is_opened: bool = False

    def __call__(self, scenario: ToyScenario) -> "Counter | ToyObjective":
        if self.is_opened:  # the winner is evaluated again by an objective of its own
            return ToyObjective(scenario)
        self.is_opened = True
        return self

    def evaluate(self, point: DesignPoint) -> Evaluation:
        if self.count == self.stop_at:
            raise KeyboardInterrupt
        self.count += 1
        return ToyObjective(ToyScenario()).evaluate(point)


def search(config: SearchConfig, counter: Counter | None = None) -> SearchResult:
    return search_toy(config, objective_factory=counter or Counter())


def same(first: SearchResult, second: SearchResult) -> bool:
    def plain(result: SearchResult) -> SearchResult:
        def bare(trials: tuple) -> tuple:  # type: ignore[type-arg]
            return tuple(replace(trial, wall_s=0.0, is_resumed=False) for trial in trials)

        return replace(
            result, wall_s=0.0, overhead_s=0.0, trials=bare(result.trials), pareto_front=bare(result.pareto_front)
        )

    return plain(first) == plain(second)


def journal_of(config: SearchConfig) -> Path:
    return config.work_dir / search_id(config, scenario=ToyScenario(), space=SPACE) / "trials.jsonl"


@pytest.mark.parametrize(
    ("strategy", "share"), every(2, ["random", "tpe", "cma-es", "nsga2", "qmc", "grid"], [0.0, 0.05, 0.2, 0.5, 0.99])
)
def test_interrupted_and_resumed_equals_uninterrupted(strategy: str, share: float, tmp_path: Path) -> None:
    config = SearchConfig(strategy, num_trials=22, work_dir=tmp_path / "whole", seed=4)
    whole_counter = Counter()
    whole = search(config, whole_counter)
    stop_at = int(share * whole_counter.count)
    config = replace(config, work_dir=tmp_path / "parts")
    part = search(config, Counter(stop_at))
    assert part.is_interrupted
    assert part.distinct_evaluations == stop_at
    assert all(trial.evaluation == whole.trials[trial.number].evaluation for trial in part.trials)
    rest = Counter()
    resumed = search(replace(config, resume=True), rest)
    assert same(resumed, whole)
    assert rest.count == whole_counter.count - stop_at
    finished = {trial.number for trial in part.trials}
    assert [trial.is_resumed for trial in resumed.trials] == [number in finished for number in range(22)]


def test_resumed_twice_and_when_complete(tmp_path: Path) -> None:
    config = SearchConfig("tpe", num_trials=16, work_dir=tmp_path, resume=True)
    whole = search(replace(config, work_dir=tmp_path / "whole"))
    for stop_at in (3, 5):
        assert search(config, Counter(stop_at)).is_interrupted
    assert same(search(config), whole)
    text = journal_of(config).read_text()
    idle = Counter(stop_at=1)  # the winner alone
    assert same(search(config, idle), whole)
    assert idle.count == 1
    assert journal_of(config).read_text() == text
    assert len(text.splitlines()) == 17


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cut=st.integers(min_value=0))
def test_a_journal_torn_anywhere_resumes(cut: int, tmp_path: Path) -> None:
    config = SearchConfig("tpe", num_trials=14, work_dir=tmp_path)
    whole = search(config)
    path = journal_of(config)
    data = path.read_bytes()
    path.write_bytes(data[: cut % (len(data) + 1)])
    assert same(search(replace(config, resume=True)), whole)
    assert len(path.read_bytes().splitlines()) == 15


def test_a_longer_search_continues_a_shorter_one(tmp_path: Path) -> None:
    config = SearchConfig("tpe", num_trials=10, work_dir=tmp_path)
    search(config)
    longer = Counter()
    resumed = search(replace(config, num_trials=20, resume=True), longer)
    assert same(resumed, search(replace(config, num_trials=20, work_dir=tmp_path / "whole")))
    assert longer.count < 20


def test_without_resume_it_starts_afresh(tmp_path: Path) -> None:
    config = SearchConfig("tpe", num_trials=10, work_dir=tmp_path)
    search(config)
    again = Counter()
    assert not any(trial.is_resumed for trial in search(config, again).trials)
    assert again.count > 0
    assert len(journal_of(config).read_text().splitlines()) == 11


def test_options_that_are_refused_leave_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no_such_option"):
        search(SearchConfig("tpe", options={"no_such_option": 1}, work_dir=tmp_path / "runs"))
    assert not (tmp_path / "runs").exists()


def test_what_decides_the_trials_decides_the_identity(tmp_path: Path) -> None:
    config = SearchConfig("tpe")
    base = search_id(config, scenario=ToyScenario(), space=SPACE)
    changes = ({"strategy": "qmc"}, {"options": {"candidates": 3}}, {"seed": 1}, {"batch": 2})
    others = [
        *(search_id(replace(config, **change), scenario=ToyScenario(), space=SPACE) for change in changes),
        search_id(config, scenario=ToyScenario(max_macs=5), space=SPACE),
        search_id(config, scenario=ToyScenario(), space=replace(SPACE, min_area_fraction=0.5)),
    ]
    assert len({base, *others}) == 7
    same_trials = replace(config, jobs=3, name="x", resume=True, work_dir=tmp_path, num_trials=1)
    assert search_id(same_trials, scenario=ToyScenario(), space=SPACE) == base


def test_lines_are_json_and_say_what_was_tried(tmp_path: Path) -> None:
    config = SearchConfig("random", num_trials=5, work_dir=tmp_path, name="readable")
    result = search(config)
    header, *lines = (json.loads(line) for line in journal_of(config).read_text().splitlines())
    assert header["name"] == "readable"
    assert header["scenario"]["max_macs"] == ToyScenario().max_macs
    assert [line["number"] for line in lines] == [0, 1, 2, 3, 4]
    assert [DesignPoint(**line["point"]) for line in lines] == [trial.point for trial in result.trials]


def changed_digit(text: str) -> str:
    """A throughput in the middle is a thousand times higher."""
    lines = text.splitlines(keepends=True)
    lines[3] = re.sub(r'("throughput_samples_per_s": )([0-9.]+)', r"\g<1>7\g<2>", lines[3])
    return "".join(lines)


DAMAGES: dict[str, Callable[[str], str]] = {
    "a changed digit": changed_digit,
    "not json": lambda text: text + "not json\n",
    "a list": lambda text: text + "[]\n",
    "a line without checksum": lambda text: text + '{"number": 1}\n',
    "another value with its checksum": lambda text: text + format_line({"number": 0, "point": {}, "evaluation": {}}),
    "no start": lambda text: text[text.index("\n") + 1 :],
    "nothing of it": lambda text: "\0\1\n",
    "an empty object": lambda text: "{}\n",
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_line_costs_that_line(damage: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = SearchConfig("random", num_trials=6, work_dir=tmp_path)
    whole = search(config)
    path = journal_of(config)
    path.write_text(DAMAGES[damage](path.read_text()))
    with caplog.at_level(logging.WARNING, logger="phaze_opt"):
        assert same(search(replace(config, resume=True)), whole)
        kept = read_journal(path).values
        assert {line.get("number", line.get("name")) for line in kept if line} == {*range(6), ""}
        assert bool(caplog.records) == (damage != "no start")
        caplog.clear()
        assert same(search(replace(config, resume=True)), whole)
        assert not caplog.records or damage in {"another value with its checksum", "an empty object"}


def test_the_journal_of_a_later_version_is_left_alone(tmp_path: Path) -> None:
    config = SearchConfig("random", num_trials=5, work_dir=tmp_path, resume=True)
    path = journal_of(config)
    path.parent.mkdir(parents=True)
    path.write_text(format_line({"format": 99}))
    with pytest.raises(InputError, match="format 99") as caught:
        search(config)
    assert caught.value.source == str(path)
    assert path.read_text() == format_line({"format": 99})


def test_old_and_new_code_of_a_plug_in_are_not_mixed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = SearchConfig("random", num_trials=5, work_dir=tmp_path, resume=True)
    whole = search(config)
    assert same(search(config), whole)
    origin = PluginOrigin("phaze_opt.strategies", "random", distribution="mine", version="2", digest="new")
    monkeypatch.setattr("phaze_opt.search.run.plugin_origins", lambda wanted: (origin,))
    with pytest.raises(InputError, match="the code of 'random' .mine 2. has changed") as caught:
        search(config)
    assert caught.value.source == str(journal_of(config))
    assert same(search(replace(config, resume=False)), whole)
    assert same(search(config), whole)


def test_a_journal_runs_no_code(tmp_path: Path) -> None:
    planted, config = plant(tmp_path), SearchConfig("random", num_trials=5, work_dir=tmp_path)
    whole = search(config)
    path = journal_of(config)
    lines = [planted.named_in(parse_line(line)) for line in path.read_text().splitlines()]
    path.write_text("".join(map(format_line, lines)))
    again = search(replace(config, resume=True))
    assert [trial.values for trial in again.trials] == [trial.values for trial in whole.trials]
    assert not planted.has_run


def test_one_process_runs_a_search_at_a_time(tmp_path: Path) -> None:
    config = SearchConfig("random", num_trials=5, work_dir=tmp_path)
    with (
        keep_journal(journal_of(config).parent, start={}, is_resumed=False),
        pytest.raises(InputError, match="another process runs this search"),
    ):
        search(config)
    assert search(config).evaluations == 5


def test_an_unwritable_working_directory_is_an_input_error_at_the_start(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    counter = Counter()
    with pytest.raises(InputError, match="cannot be written"):
        search(SearchConfig("random", num_trials=5, work_dir=blocked), counter)
    assert counter.count == 0


def test_a_journal_in_place_of_a_directory_is_an_input_error(tmp_path: Path) -> None:
    config = SearchConfig("random", num_trials=5, work_dir=tmp_path)
    journal_of(config).mkdir(parents=True)
    with pytest.raises(InputError, match="is a directory, no file"):
        search(config)


def test_a_disk_full_at_the_start_is_an_input_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Journal, value: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Journal, "append", full)
    with pytest.raises(InputError, match="No space left"):
        keep_journal(tmp_path, start={}, is_resumed=False).__enter__()


def test_a_disk_that_fills_up_later_costs_the_journal_not_the_search(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = SearchConfig("tpe", num_trials=9, work_dir=tmp_path / "a")
    whole = search(config)

    def full(self: Journal, value: object) -> None:
        raise OSError(28, "No space left on device")

    def fill(progress: SearchProgress) -> None:
        if progress.num_finished == 3:
            monkeypatch.setattr(Journal, "append", full)

    with caplog.at_level(logging.WARNING, logger="phaze_opt"):
        elsewhere = replace(config, work_dir=tmp_path / "b")
        result = search_toy(elsewhere, objective_factory=Counter(), on_progress=fill)
    assert same(result, whole)
    assert [record.getMessage().count("cannot be resumed") for record in caplog.records] == [1]
