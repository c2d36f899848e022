"""A study in MLflow: four levels of runs, figures where the views look for them, nothing twice whatever happens."""

import json
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from kits.recorded_store import AT_THE_END, FlakyClient, deliver_all, rows

from phaze_opt.errors import PluginError, TrackingError
from phaze_opt.plugins import PluginGroup
from phaze_opt.record.whole_file import put_aside
from phaze_opt.study.events import CellFinished, StudyEvent, StudyFinished, StudyStarted
from phaze_opt.testing.events import example_study, record_study
from phaze_opt.testing.trackers import interrupted
from phaze_opt.track import protocol, store
from phaze_opt.track.destination import Destination, default_uri
from phaze_opt.track.pending_delivery import list_orders
from phaze_opt.track.protocol import Delivery, NullSession, TrackerConfig, TrialRuns
from phaze_opt.track.records import MAX_CURVE_POINTS, median_curve, thinned
from phaze_opt.track.store import find_search_runs, newest_link
from phaze_opt.track.study_views import compare_link, search_views, study_views

pytestmark = pytest.mark.usefixtures("undrawn")

NUM_TRIALS = 2
EVENTS = example_study(NUM_TRIALS, num_seeds=1, strategies=("tpe", "random"))
NUM_CELLS = 4
LEVELS = {"study": 1, "strategy": 2, "seed": NUM_CELLS, "trial": NUM_CELLS * NUM_TRIALS}
RUNS = """
    select run.run_uuid, run.name, role.value, parent.value, run.status, run.start_time, run.end_time from runs as run
    join tags as role on role.run_uuid = run.run_uuid and role.key = 'phaze_opt.role'
    left join tags as parent on parent.run_uuid = run.run_uuid and parent.key = 'mlflow.parentRunId'
    where run.lifecycle_stage = 'active'
"""


def record(work_dir: Path, events: tuple[StudyEvent, ...] = EVENTS, **config) -> Delivery:
    session = AT_THE_END.open_study(TrackerConfig(work_dir=work_dir, **config))
    for event in record_study(work_dir, events):
        session.observe(event)
    return session.close()


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory, empty_store: Path) -> Path:
    """A working directory whose store has the whole study; tests that share it change nothing."""
    work_dir = tmp_path_factory.mktemp("recorded")
    shutil.copyfile(empty_store, work_dir / "mlflow.db")
    assert record(work_dir).is_complete
    return work_dir


def levels(work_dir: Path) -> dict[str, int]:
    return dict(Counter(role for _, _, role, *_ in rows(work_dir, RUNS)))


def experiment_tags(work_dir: Path, name: str) -> dict[str, str]:
    query = "select tag.key, tag.value from experiment_tags as tag join experiments using (experiment_id) where name = "
    return dict(rows(work_dir, f"{query} '{name}'"))


def test_runs_nest_in_four_levels_and_end(recorded: Path) -> None:
    runs = {run_id: rest for run_id, *rest in rows(recorded, RUNS)}
    assert levels(recorded) == LEVELS
    above = {"strategy": "study", "seed": "strategy", "trial": "seed"}
    for name, role, parent, status, start_ms, end_ms in runs.values():
        assert status == "FINISHED", name
        assert end_ms >= start_ms
        if role == "study":
            assert parent is None
        else:
            assert runs[parent][1] == above[role]
            assert start_ms < runs[parent][4], "a list sorted by start shows parents first"
    names = {name for name, role, *_ in runs.values() if role == "seed"}
    assert "seed 0 bert-large tpe" in names


def test_strategies_have_the_figures_that_answer_which_one_wins(recorded: Path) -> None:
    judged = EVENTS[-1]
    assert isinstance(judged, StudyFinished)
    query = """
        select run.name, metric.key, metric.value from latest_metrics as metric join runs as run using (run_uuid)
        join tags as role on role.run_uuid = run.run_uuid and role.key = 'phaze_opt.role' and role.value = 'strategy'
    """
    found: dict[str, dict[str, float]] = {}
    for name, key, value in rows(recorded, query):
        found.setdefault(name, {})[key] = value
    for name, metrics in judged.contender_metrics.items():
        assert metrics.items() <= found[name].items()
    assert rows(recorded, "select count(*) from params where key = 'plugin'") == [(2 + NUM_CELLS,)]


def test_searches_have_curves_of_throughput_and_regret(recorded: Path) -> None:
    event = EVENTS[1]
    assert isinstance(event, CellFinished)
    key = event.result.cell.key
    curve = """
        select step, metrics.value from metrics join tags using (run_uuid)
        where tags.key = 'phaze_opt.cell' and tags.value = '{}' and metrics.key = '{}' order by step
    """
    best = dict(rows(recorded, curve.format(key, "best_throughput_samples_per_s")))
    rates = [evaluation.throughput_samples_per_s for evaluation in event.evaluations]
    assert best == {number + 1: max(rates[: number + 1]) for number in range(NUM_TRIALS)}
    truth = max(
        evaluation.throughput_samples_per_s
        for other in EVENTS[1:-1]
        if isinstance(other, CellFinished) and other.result.cell.condition.key == event.result.cell.condition.key
        for evaluation in other.evaluations
    )
    regret = dict(rows(recorded, curve.format(key, "regret_curve_pct")))
    expected = {step: 100 * (1 - value / truth) for step, value in best.items()}
    assert regret == pytest.approx(expected, abs=1e-9)


def test_regret_curves_are_those_of_the_judgement_whatever_the_objectives(work_dir: Path) -> None:
    """Of several objectives regret is of the hypervolume, which no curve of throughput tells."""
    judged, first = EVENTS[-1], EVENTS[1]
    assert isinstance(judged, StudyFinished)
    assert isinstance(first, CellFinished)
    key, name = first.result.cell.key, first.result.cell.contender.name
    curves = {cell: (90.0, 40.0, 7.5) for cell in judged.cell_regrets_pct}
    record(work_dir, (*EVENTS[:-1], replace(judged, cell_regrets_pct=curves)))
    query = "select step, metrics.value from metrics join tags using (run_uuid) where metrics.key = 'regret_curve_pct'"
    for tag, value in (("phaze_opt.cell", key), ("phaze_opt.contender", name)):
        found = dict(rows(work_dir, f"{query} and tags.key = '{tag}' and tags.value = '{value}' order by step"))
        assert found == {1: 90.0, 2: 40.0, 3: 7.5}


def test_trials_have_the_architecture_as_params(work_dir: Path) -> None:
    record(work_dir, EVENTS[:2])
    # MLflow draws no line for a run that lacks one of them.
    (drawn,) = [
        chart for view in study_views() if view.key == "trials" for chart in view.charts if "selectedParams" in chart
    ]
    names = ("num_tc", "num_vc", "tc_width", "tc_depth", "glb_mb", "hbm_gb", "micro_batch")
    assert set(names) <= set(drawn["selectedParams"])
    for name in (*drawn["selectedParams"], "workload", "strategy"):
        query = f"""
            select count(*) from params join tags using (run_uuid)
            where params.key = '{name}' and tags.key = 'phaze_opt.role' and tags.value = 'trial'
        """
        assert rows(work_dir, query) == [(NUM_TRIALS,)], name


def test_the_experiment_bears_the_studys_name_note_and_views(recorded: Path) -> None:
    tags = experiment_tags(recorded, "example")
    note = tags["mlflow.note.content"]
    assert "Which strategy finds the best design" in note
    for view in study_views():
        state = json.loads(tags[f"mlflow.sharedViewState.{view.key}"])
        assert state["selectedColumns"]
        assert f"viewStateShareKey={view.key}" in note
    strategies = json.loads(tags["mlflow.sharedViewState.strategies"])
    assert strategies["selectedColumns"][0] == "metrics.`median_regret_pct`"
    assert "compare-runs" in note
    assert "least median regret" in rows(recorded, "select value from tags where key = 'mlflow.note.content'")[0][0]


def test_the_interface_is_opened_at_the_view_of_the_newest_study(recorded: Path) -> None:
    link = newest_link(Destination(default_uri(recorded), recorded))
    assert "viewStateShareKey=strategies" in link
    assert "workflowType=machine_learning" in link


def test_every_search_has_its_run(recorded: Path) -> None:
    destination = Destination(default_uri(recorded), recorded)
    assert isinstance(EVENTS[0], StudyStarted)
    runs = find_search_runs(destination, EVENTS[0].study_id)
    assert set(runs) == {event.result.cell.key for event in EVENTS if isinstance(event, CellFinished)}
    assert len(set(runs.values())) == len(runs)
    assert find_search_runs(destination, "another") == {}


def test_an_experiment_of_the_users_keeps_its_note(work_dir: Path) -> None:
    columns = "experiment_id, name, lifecycle_stage, artifact_location"
    rows(work_dir, f"insert into experiments ({columns}) values (7, 'mine', 'active', '/tmp/x')")
    words = ("mlflow.note.content", "my words")
    rows(work_dir, "insert into experiment_tags (experiment_id, key, value) values (7, ?, ?)", *words)
    assert record(work_dir, EVENTS[:2], experiment="mine").is_complete
    assert experiment_tags(work_dir, "mine")["mlflow.note.content"] == "my words"
    assert "mlflow.sharedViewState.trials" in experiment_tags(work_dir, "mine")


@pytest.mark.parametrize("failing_call", [3, *(pytest.param(each, marks=pytest.mark.slow) for each in (12, 30)), 52])
def test_failure_at_any_call_is_repaired_by_the_next_delivery(failing_call: int, work_dir: Path, monkeypatch) -> None:
    real = store.open_client
    monkeypatch.setattr(store, "open_client", lambda where: FlakyClient(real(where), failing_call))
    assert not record(work_dir).is_complete
    monkeypatch.setattr(store, "open_client", real)
    assert deliver_all(Destination(default_uri(work_dir), work_dir)) == 0
    assert levels(work_dir) == LEVELS
    assert rows(work_dir, "select count(*) from runs where status != 'FINISHED'") == [(0,)]
    points = "select count(*) from metrics where key in ('regret_curve_pct', 'best_throughput_samples_per_s')"
    assert rows(work_dir, points) == [(NUM_TRIALS * (2 * NUM_CELLS + 2),)]


def test_an_interrupted_study_is_killed_and_a_resumed_one_finished_in_the_same_runs(work_dir: Path) -> None:
    record(work_dir, interrupted(EVENTS, num_cells=2))
    assert [status for _, _, role, _, status, *_ in rows(work_dir, RUNS) if role == "study"] == ["KILLED"]
    record(work_dir)
    assert levels(work_dir) == LEVELS
    assert {status for *_, status, _, _ in rows(work_dir, RUNS)} == {"FINISHED"}
    before = rows(work_dir, "select count(*) from metrics")
    assert record(work_dir).is_complete
    assert rows(work_dir, "select count(*) from metrics") == before


def test_a_study_begun_afresh_is_a_run_of_its_own(work_dir: Path) -> None:
    record(work_dir, EVENTS[:3])
    put_aside(work_dir / "phaze-opt-studies" / EVENTS[0].study_id)
    slower = tuple(
        replace(event, result=replace(event.result, overhead_s=9.0)) if isinstance(event, CellFinished) else event
        for event in EVENTS
    )
    record(work_dir, slower)
    record(work_dir, slower)
    assert levels(work_dir)["study"] == 2
    assert sorted(status for *_, role, _, status, _, _ in rows(work_dir, RUNS) if role == "study") == [
        "FINISHED",
        "KILLED",
    ]
    assert len(list_orders(work_dir)) == 2, "studies that were put aside are their users'"


def test_only_best_trials_if_asked_and_the_rest_later(work_dir: Path) -> None:
    record(work_dir, trials=TrialRuns.BEST)
    assert levels(work_dir) == {**LEVELS, "trial": NUM_CELLS}
    best = rows(work_dir, "select count(*) from tags where key = 'is_best' and value = 'true'")
    assert best == [(NUM_CELLS,)]
    record(work_dir)
    assert levels(work_dir) == LEVELS


def test_a_given_experiment_holds_the_study(work_dir: Path) -> None:
    record(work_dir, EVENTS[:2], experiment="shared")
    assert rows(work_dir, "select name from experiments where name in ('shared', 'example')") == [("shared",)]


def test_misuse_is_told(work_dir: Path) -> None:
    session = AT_THE_END.open_study(TrackerConfig(work_dir=work_dir))
    with pytest.raises(TrackingError, match="one study"):
        session.observe(EVENTS[1])
    (started,) = record_study(work_dir, EVENTS[:1])
    session.observe(started)
    with pytest.raises(TrackingError, match="another session"):
        session.observe(started)
    other = EVENTS[0]
    assert isinstance(other, StudyStarted)
    with pytest.raises(TrackingError, match="one study"):
        session.observe(StudyFinished("other", True))


def test_a_tracker_without_studies_is_refused_before_a_study_starts(work_dir: Path, monkeypatch) -> None:
    class SearchesOnly:
        name = "searches-only"

        def open(self, config: TrackerConfig) -> NullSession:
            return NullSession()

    def load(group: PluginGroup, name: str) -> object:
        return SearchesOnly()

    monkeypatch.setattr(protocol, "load_plugin", load)
    protocol.open_tracker("searches-only", TrackerConfig(work_dir=work_dir))
    with pytest.raises(PluginError, match="'searches-only' records searches only"):
        protocol.open_tracker("searches-only", TrackerConfig(work_dir=work_dir), "study")


def test_curves() -> None:
    assert median_curve([(4.0, 2.0, 1.0), (8.0,), (6.0, 5.0)]) == (6.0, 5.0, 5.0)
    values = np.maximum.accumulate(np.random.default_rng(0).random(5 * MAX_CURVE_POINTS)).tolist()
    points = thinned(values)
    assert len(points) < MAX_CURVE_POINTS
    steps, kept = zip(*points, strict=True)
    assert np.interp(range(1, len(values) + 1), steps, kept) == pytest.approx(values)


def test_views_fit_a_tag_of_an_experiment() -> None:
    for view in (*study_views(), *search_views()):
        assert (
            len(view.state("tags.study_id = 'a-study-with-a-name-of-sixty-characters-and-then-a-digest-0123456789ab'"))
            <= 5000
        )
    assert compare_link("3", ["a", "b"]).endswith("runs=%5B%22a%22%2C%22b%22%5D&experiments=%5B%223%22%5D")
